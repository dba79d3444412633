//! Extents in pages: a directory of blocks in memory, some hundred extents in each.

use super::extent::{Extent, Piece, Source};
use super::pages::{PAGE_BYTES, Page, Pages, put_difference, put_number, take_difference, take_number};
use crate::base::{Address, Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// Most bytes of an encoded extent.
const EXTENT_BYTES_MAX: usize = 64;
const STORED: u8 = 0;
const DEFLATED: u8 = 1;
const SCATTERED: u8 = 2;

/// Extents next to each other that are in one page.
#[derive(Debug)]
struct Block {
    /// First element.
    first: u64,
    /// After the last element.
    end: u64,
    /// Written elements.
    elements: u64,
    page: Page,
}

/// Extents that do not overlap, none of which is staged.
#[derive(Debug, Default)]
pub(super) struct Packed {
    blocks: Vec<Block>,
    /// Written elements.
    elements: u64,
}

/// What the next extent of a block is stored relative to.
#[derive(Default)]
struct Before {
    end: u64,
    log: u64,
    offset: u64,
}

impl Before {
    fn put(&mut self, bytes: &mut Vec<u8>, e: &Extent) {
        put_number(bytes, e.first.saturating_sub(self.end));
        put_number(bytes, e.end.saturating_sub(e.first));
        self.end = e.end;
        let mut place = |bytes: &mut Vec<u8>, log: u32, offset: u64| {
            put_difference(bytes, log.into(), self.log);
            put_difference(bytes, offset, self.offset);
            (self.log, self.offset) = (log.into(), offset);
        };
        match e.source {
            Source::Stored { log, offset } => {
                bytes.push(STORED);
                place(bytes, log, offset);
            }
            Source::Deflated { log, offset, first, elements, stored } => {
                bytes.push(DEFLATED);
                place(bytes, log, offset);
                [first, elements, stored].into_iter().for_each(|n| put_number(bytes, n.into()));
            }
            Source::Scattered { record, first } => {
                bytes.push(SCATTERED);
                put_number(bytes, record.into());
                put_number(bytes, first);
            }
            // Not packed.
            Source::Staged { .. } => {}
        }
    }

    fn take(&mut self, bytes: &mut &[u8]) -> Option<Extent> {
        let first = self.end.checked_add(take_number(bytes)?)?;
        let end = first.checked_add(take_number(bytes)?)?;
        let (kind, rest) = bytes.split_first()?;
        *bytes = rest;
        let small = |bytes: &mut &[u8]| u32::try_from(take_number(bytes)?).ok();
        let source = if *kind == SCATTERED {
            Source::Scattered { record: small(bytes)?, first: take_number(bytes)? }
        } else {
            self.log = take_difference(bytes, self.log)?;
            self.offset = take_difference(bytes, self.offset)?;
            let (log, offset) = (u32::try_from(self.log).ok()?, self.offset);
            match *kind {
                STORED => Source::Stored { log, offset },
                DEFLATED => Source::Deflated { log, offset, first: small(bytes)?, elements: small(bytes)?, stored: small(bytes)? },
                _ => return None,
            }
        };
        self.end = end;
        Some(Extent { first, end, source })
    }
}

impl Block {
    fn extents(&self) -> Result<Vec<Extent>> {
        let bytes = self.page.read()?;
        let (mut rest, mut before, mut all) = (bytes.as_slice(), Before::default(), Vec::new());
        while !rest.is_empty() {
            let extent = before.take(&mut rest);
            all.push(extent.ok_or_else(|| Error::corrupt("temporary file of a log", Address::UNDEF, "a page that was changed"))?);
        }
        Ok(all)
    }

    fn store(bytes: &[u8], extents: &[Extent], pages: &Arc<Pages>) -> Result<Option<Block>> {
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return Ok(None) };
        let elements = extents.iter().map(|e| e.end.saturating_sub(e.first)).fold(0, u64::saturating_add);
        Ok(Some(Block { first: first.first, end: last.end, elements, page: pages.store(bytes)? }))
    }
}

/// Blocks of `extents`, about evenly filled.
fn blocks_of(extents: &[Extent], pages: &Arc<Pages>) -> Result<Vec<Block>> {
    let (mut bytes, mut before, mut total) = (Vec::new(), Before::default(), 0usize);
    for e in extents {
        bytes.clear();
        before.put(&mut bytes, e);
        total = total.saturating_add(bytes.len());
    }
    let room = PAGE_BYTES - EXTENT_BYTES_MAX;
    let count = total.div_ceil(room).max(1);
    let enough = total.div_ceil(count);
    let mut blocks = Vec::with_capacity(count);
    (bytes, before) = (Vec::with_capacity(PAGE_BYTES), Before::default());
    let mut from = 0;
    for (i, e) in extents.iter().enumerate() {
        if bytes.len() >= enough.min(room) {
            blocks.extend(Block::store(&bytes, extents.get(from..i).unwrap_or_default(), pages)?);
            bytes.clear();
            (before, from) = (Before::default(), i);
        }
        before.put(&mut bytes, e);
    }
    blocks.extend(Block::store(&bytes, extents.get(from..).unwrap_or_default(), pages)?);
    Ok(blocks)
}

/// `old` extents where `new` pieces are not, and those of the pieces that have a source.
fn merged(old: Vec<Extent>, new: &[Piece], size: u64) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::with_capacity(old.len().saturating_add(new.len()));
    let mut push = |e: Extent| match all.last_mut() {
        Some(last) if last.continues_in(&e, size) => last.end = e.end,
        _ => all.push(e),
    };
    let mut old = old.into_iter();
    let mut next = old.next();
    for piece in new {
        while let Some(e) = next.filter(|e| e.first < piece.end) {
            if e.first < piece.first {
                push(Extent { end: e.end.min(piece.first), ..e });
            }
            if e.end > piece.end {
                next = Some(e.cut(&(piece.end.max(e.first)..e.end), size));
                break;
            }
            next = old.next();
        }
        if let Some(source) = piece.source {
            push(Extent { first: piece.first, end: piece.end, source });
        }
    }
    next.into_iter().chain(old).for_each(push);
    all
}

impl Packed {
    /// Number of the first block that ends after `at`.
    fn block_after(&self, at: u64) -> usize {
        self.blocks.partition_point(|b| b.end <= at)
    }

    /// True if a block may have elements of `range`.
    pub(super) fn may_have(&self, range: &Range<u64>) -> bool {
        self.blocks.get(self.block_after(range.start)).is_some_and(|b| b.first < range.end)
    }

    /// Written elements.
    pub(super) fn elements(&self) -> u64 {
        self.elements
    }

    /// Written elements in `range`.
    pub(super) fn count(&self, range: &Range<u64>) -> Result<u64> {
        let mut count = 0u64;
        for block in self.blocks.iter().skip(self.block_after(range.start)).take_while(|b| b.first < range.end) {
            count = count.saturating_add(if block.first >= range.start && block.end <= range.end {
                block.elements
            } else {
                let within = block.extents()?.into_iter().filter(|e| e.end > range.start && e.first < range.end);
                within.map(|e| e.end.min(range.end).saturating_sub(e.first.max(range.start))).sum()
            });
        }
        Ok(count)
    }

    /// Applies `pieces`, which are ascending and not staged. An error leaves everything as it was.
    pub(super) fn merge(&mut self, pieces: &[Piece], size: u64, pages: &Arc<Pages>) -> Result<()> {
        let mut changes: Vec<(Range<usize>, Vec<Block>)> = Vec::new();
        let mut pieces = pieces.iter().copied();
        let mut next = pieces.next();
        let mut group = Vec::new();
        while let Some(first) = next.map(|p| p.first) {
            // Pieces up to the next block, with the block before that.
            let end = self.blocks.partition_point(|b| b.first <= first);
            let limit = self.blocks.get(end).map_or(u64::MAX, |b| b.first);
            group.clear();
            while let Some(piece) = next.filter(|p| p.first < limit) {
                group.push(Piece { end: piece.end.min(limit), ..piece });
                next = if piece.end > limit { Some(piece.after(limit, size)) } else { pieces.next() };
            }
            let number = end.saturating_sub(1)..end;
            let block = self.blocks.get(number.clone()).unwrap_or_default().first();
            let is_replaced = |b: &Block| group.first().is_some_and(|p| p.first <= b.first && p.end >= b.end);
            let old = block.filter(|b| !is_replaced(b)).map_or_else(|| Ok(Vec::new()), Block::extents)?;
            changes.push((number, blocks_of(&merged(old, &group, size), pages)?));
        }
        let (mut old, mut at) = (std::mem::take(&mut self.blocks).into_iter(), 0usize);
        for (range, new) in changes {
            self.blocks.extend(old.by_ref().take(range.start.saturating_sub(at)));
            old.by_ref().take(range.len()).for_each(drop);
            self.blocks.extend(new);
            at = range.end;
        }
        self.blocks.extend(old);
        self.elements = self.blocks.iter().map(|b| b.elements).fold(0, u64::saturating_add);
        Ok(())
    }

    /// Reads extents in ascending order.
    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor { packed: self, end: 0, extents: Vec::new(), at: 0 }
    }
}

/// Reads extents in ascending order.
pub(super) struct Cursor<'a> {
    packed: &'a Packed,
    /// End of the block that was read.
    end: u64,
    extents: Vec<Extent>,
    at: usize,
}

impl Cursor<'_> {
    /// The first extent that has elements of `range`, which begins after that of the last call.
    pub(super) fn next_in(&mut self, range: &Range<u64>) -> Result<Option<Extent>> {
        loop {
            while let Some(e) = self.extents.get(self.at) {
                if e.end > range.start {
                    return Ok((e.first < range.end).then_some(*e));
                }
                self.at = self.at.saturating_add(1);
            }
            let from = range.start.max(self.end);
            let Some(block) = self.packed.blocks.get(self.packed.block_after(from)).filter(|b| b.first < range.end) else {
                return Ok(None);
            };
            (self.extents, self.end, self.at) = (block.extents()?, block.end, 0);
        }
    }
}
