//! Listings: pages of names, bounded by the memory that they take.

use super::answer::{OBJECT_MAX, bad, may_be_etag};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::{Error, Extensions, ObjectMeta};
use std::collections::BTreeSet;

/// Memory for one listing, bytes; also more than a server lists within a usual timeout.
const LISTING_MAX: u64 = 64 << 20;
/// Memory that a name takes beside its bytes.
const NAME_OVERHEAD: u64 = 64;
/// Memory that an object with its version takes beside its name.
const OBJECT_OVERHEAD: u64 = 192;
/// What a page counts, so that pages without names end.
const PAGE_OVERHEAD: u64 = 4 << 10;

/// What is left of the memory for a listing.
pub(super) struct Room(u64);

impl Room {
    /// Room for a listing.
    pub(super) fn new() -> Room {
        Room(LISTING_MAX)
    }

    /// Takes the room of `name`.
    pub(super) fn take(&mut self, name: &str) -> Result<(), Error> {
        self.take_bytes(NAME_OVERHEAD.saturating_add(name.len() as u64))
    }

    fn take_bytes(&mut self, bytes: u64) -> Result<(), Error> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(|| unusable("the listing is too long: it has more than 64 MiB of names"))?;
        Ok(())
    }
}

/// The error of a listing that is not used for the reason `text`.
fn unusable(text: &str) -> Error {
    Error::Generic { store: "listing", source: Box::new(bad(text)) }
}

/// Errors: what a listing says of an object is past the limits of an answer about it alone.
fn check(meta: &ObjectMeta) -> Result<(), Error> {
    if meta.size > OBJECT_MAX {
        return Err(unusable("the listing has an object of 2^63 bytes or more"));
    }
    let is_malformed = meta.e_tag.as_ref().is_some_and(|etag| !may_be_etag(etag));
    if is_malformed { Err(unusable("an ETag of the listing is malformed")) } else { Ok(()) }
}

/// Objects and prefixes directly below a prefix.
pub(super) struct Folder<T> {
    /// What was made of the objects.
    pub(super) objects: Vec<T>,
    /// Keys of the prefixes.
    pub(super) prefixes: BTreeSet<String>,
}

/// Lists the folder `prefix`, empty or ending in a slash; keeps what `kept` makes of each object.
pub(super) async fn folder<T>(
    store: &dyn PaginatedListStore,
    prefix: &str,
    extensions: Extensions,
    kept: impl Fn(&ObjectMeta) -> Option<T>,
) -> Result<Folder<T>, Error> {
    let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
    let mut room = Room::new();
    let mut found = Folder { objects: Vec::new(), prefixes: BTreeSet::new() };
    let mut token: Option<String> = None;
    loop {
        let (page_token, extensions) = (token.clone(), extensions.clone());
        let options = PaginatedListOptions { delimiter: Some("/".into()), page_token, extensions, ..PaginatedListOptions::default() };
        let page = store.list_paginated(prefix, options).await?;
        room.take_bytes(PAGE_OVERHEAD)?;
        for meta in &page.result.objects {
            room.take(meta.location.as_ref())?;
            room.take_bytes(OBJECT_OVERHEAD)?;
            check(meta)?;
            found.objects.extend(kept(meta));
        }
        for prefix in &page.result.common_prefixes {
            room.take(prefix.as_ref())?;
            found.prefixes.insert(prefix.as_ref().to_owned());
        }
        let next = page.page_token.filter(|token| !token.is_empty());
        if next.is_none() {
            return Ok(found);
        }
        if next == token {
            return Err(unusable("the listing repeats a page"));
        }
        token = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::list::PaginatedListResult;
    use object_store::path::Path as Key;
    use object_store::{ListResult, Result};
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Pages of `names` names, without end; the same token each time if `repeats`.
    struct Endless {
        names: u64,
        repeats: bool,
        size: u64,
        pages: AtomicU64,
    }

    impl PaginatedListStore for Endless {
        fn list_paginated<'a, 'b, 'c>(
            &'a self,
            _: Option<&'b str>,
            _: PaginatedListOptions,
        ) -> Pin<Box<dyn Future<Output = Result<PaginatedListResult>> + Send + 'c>>
        where
            'a: 'c,
            'b: 'c,
            Self: 'c,
        {
            let page = self.pages.fetch_add(1, Ordering::Relaxed);
            let key = |n: u64| ObjectMeta {
                location: Key::from(format!("p/{page:08}-{n:08}")),
                last_modified: Default::default(),
                size: self.size,
                e_tag: None,
                version: None,
            };
            let objects = (0..self.names).map(key).collect();
            let result = ListResult { common_prefixes: Vec::new(), objects, extensions: Extensions::new() };
            let token = if self.repeats { "t".to_owned() } else { page.to_string() };
            Box::pin(std::future::ready(Ok(PaginatedListResult { result, page_token: Some(token) })))
        }
    }

    #[test]
    fn listings_without_end_fail() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (names, repeats, most, text) in [(1000, false, 300, "too long"), (0, false, 20_000, "too long"), (3, true, 3, "repeats a page")]
        {
            let store = Endless { names, repeats, size: 1, pages: AtomicU64::new(0) };
            let listed = runtime.block_on(folder(&store, "p/", Extensions::new(), |meta| Some(meta.size)));
            let error = listed.err().unwrap().to_string();
            assert!(error.contains(text), "{error}");
            let pages = store.pages.load(Ordering::Relaxed);
            assert!(pages <= most, "{pages} pages");
        }
    }

    /// A server may state any size and ETag. ETags are kept: long ones would fill the memory.
    #[test]
    fn sizes_and_etags_that_no_object_has_are_refused() {
        let meta = |size, e_tag: &str| {
            check(&ObjectMeta {
                location: Key::from("p"),
                last_modified: Default::default(),
                size,
                e_tag: Some(e_tag.to_owned()),
                version: None,
            })
        };
        for etag in ["", "\"e\"", "0x8D", &"e".repeat(256)] {
            assert!(meta(OBJECT_MAX, etag).is_ok(), "{etag}");
        }
        for (size, etag, text) in [
            (OBJECT_MAX + 1, "e", "2^63 bytes"),
            (u64::MAX, "e", "2^63 bytes"),
            (1, &"e".repeat(257), "ETag"),
            (1, "a b", "ETag"),
            (1, "\u{e4}", "ETag"),
        ] {
            let error = meta(size, etag).unwrap_err().to_string();
            assert!(error.contains(text), "{size} {etag}: {error}");
        }
    }

    /// A listing of an object with a size that no file has.
    #[test]
    fn listings_are_checked() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = Endless { names: 1, repeats: true, size: u64::MAX, pages: AtomicU64::new(0) };
        let listed = runtime.block_on(folder(&store, "p/", Extensions::new(), |meta| Some(meta.size)));
        assert!(listed.err().unwrap().to_string().contains("2^63 bytes"));
    }
}
