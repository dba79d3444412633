//! `.h5dir/images`: datasets of numbers as images, `PATH.png`, `PATH/000001.png` and
//! `PATH/000001.tif`.
//!
//! `PATH.png` is a preview. The directory PATH has the images of the dataset in full size, counted
//! from 1, in each of [`FORMS`]. Sizes follow from the shape; images are made when they are read.

use super::bytes::{Bytes, copy};
use super::context::Context;
use super::links::LinkView;
use super::suffixed::{name_of_directory, named};
use super::view::{Child, Class, Extent, Inode, Item, View, Visit};
use crate::base::Result;
use crate::base::locks::Mutex;
use crate::connector::{Connector, ObjectId, ObjectKind};
use crate::present::{ImageForm, Pictures, has_pictures};
use lru::LruCache;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Suffix of previews.
const SUFFIX: &[u8] = b".png";
/// Forms of images in full size, by the suffix of their files.
const FORMS: [(&[u8], ImageForm); 2] = [(SUFFIX, ImageForm::StoredPng), (b".tif", ImageForm::Tiff)];
/// Key of the directory of a dataset's images.
const FRAMES: &[u8] = b"images";
/// Most images of a dataset that are files: their names have six digits.
const FRAMES_MAX: u64 = 999_999;
/// Positions of directories begin here; those of files are smaller.
const FIRST_DIRECTORY: u64 = 1 << 61;
/// Most bytes of the images of open files that are kept.
const IMAGES_BYTES_MAX: u64 = 128 << 20;

/// See the module's description.
pub struct Images;

/// Name of image `number`, counted from 1, in the form with `suffix`.
fn frame_name(number: u64, suffix: &[u8]) -> Vec<u8> {
    [format!("{number:06}").as_bytes(), suffix].concat()
}

/// The image that `name` is that of, counted from 1, and its form.
fn named_frame(name: &[u8]) -> Option<(u64, ImageForm)> {
    let (digits, suffix, form) = FORMS.iter().find_map(|(suffix, form)| Some((name.strip_suffix(*suffix)?, suffix, *form)))?;
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (number > 0 && frame_name(number, suffix) == name).then_some((number, form))
}

fn pictures(connector: &Arc<dyn Connector>, id: ObjectId) -> Result<Pictures> {
    Pictures::of(connector.clone(), id, "".into())
}

/// Images of the dataset `id` that are files.
fn frames(connector: &Arc<dyn Connector>, id: ObjectId) -> Result<u64> {
    Ok(pictures(connector, id)?.frames().min(FRAMES_MAX))
}

/// What a file has: an image, counted from 0, or the preview.
fn shown(item: &Item) -> (Option<u64>, ImageForm) {
    named_frame(item.key()).map_or((None, ImageForm::StoredPng), |(number, form)| (number.checked_sub(1), form))
}

/// The image with this name.
fn frame(id: ObjectId, name: Vec<u8>) -> Child {
    let item = Item::part_of(&Images, Class::File, id, &name);
    Child { name, item, link_name: None }
}

/// The dataset whose images `item` is the directory of.
fn frames_of(item: &Item) -> Option<ObjectId> {
    item.owner.filter(|_| item.class == Class::Directory)
}

/// The directory of `child`: a group, a symbolic link to one, or a dataset with images.
fn directory_of(cx: &Context<'_>, child: Child) -> Option<Child> {
    let item = match child.item.dataset() {
        Some(id) => {
            let has_frames = frames(cx.connector, id).is_ok_and(|frames| frames > 0);
            has_frames.then(|| Item::part_of(&Images, Class::Directory, id, FRAMES))?
        }
        None => Some(child.item.clone()).filter(|item| matches!(item.class, Class::Group | Class::Symlink))?,
    };
    Some(named(child, item, |name| name_of_directory(name, SUFFIX)))
}

impl LinkView for Images {
    fn object(&'static self, cx: &Context<'_>, kind: ObjectKind, id: ObjectId) -> Option<Item> {
        let is_shown = kind == ObjectKind::Dataset && has_pictures(&**cx.connector, id);
        is_shown.then(|| Item::object_of(self, Class::Dataset, id))
    }

    fn group(&'static self, id: ObjectId) -> Item {
        Item::object_of(self, Class::Group, id)
    }

    fn suffix(&self) -> &'static [u8] {
        SUFFIX
    }
}

impl View for Images {
    fn name(&self) -> &'static str {
        "images"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("images/PATH.png", "a preview; PATH/000001.png, .tif and so on: images")
    }

    /// The colours of a palette that a reference names are shown.
    fn names_targets(&self) -> bool {
        true
    }

    fn root(&'static self, group: ObjectId) -> Item {
        Images.group(group)
    }

    fn lookup(&'static self, cx: &Context<'_>, dir: &dyn Inode, name: &[u8]) -> Result<Option<Child>> {
        if let Some(id) = frames_of(dir.item()) {
            let Some((number, _)) = named_frame(name) else { return Ok(None) };
            return Ok((number <= frames(cx.connector, id)?).then(|| frame(id, name.to_vec())));
        }
        let Some(group) = dir.item().group() else { return Ok(None) };
        if let Some(child) = Images.lookup_in(cx, dir, group, name)?.filter(|child| child.item.class == Class::Dataset) {
            return Ok(Some(child));
        }
        Ok(Images.lookup_shown(cx, dir, group, name, &|name| name_of_directory(name, SUFFIX))?.and_then(|child| directory_of(cx, child)))
    }

    fn list(&'static self, cx: &Context<'_>, dir: &dyn Inode, start: u64, f: Visit<'_>) -> Result<()> {
        if let Some(id) = frames_of(dir.item()) {
            let forms = FORMS.len() as u64;
            let mut files = start..frames(cx.connector, id)?.saturating_mul(forms);
            let _ = files.try_for_each(|file| {
                let suffix = FORMS.get((file % forms) as usize).map_or(SUFFIX, |(suffix, _)| suffix);
                f(frame(id, frame_name((file / forms).saturating_add(1), suffix)), file.saturating_add(1))
            });
            return Ok(());
        }
        let Some(group) = dir.item().group() else { return Ok(()) };
        let mut file = |child: Child, next| if child.item.class == Class::Dataset { f(child, next) } else { ControlFlow::Continue(()) };
        if start < FIRST_DIRECTORY && !Images.list_links(cx, dir, group, start, &mut file)? {
            return Ok(());
        }
        Images.list_plain(cx, dir, group, start.saturating_sub(FIRST_DIRECTORY), &mut |child, next| {
            let next = next.saturating_add(FIRST_DIRECTORY);
            directory_of(cx, child).map_or(ControlFlow::Continue(()), |child| f(child, next))
        })
    }

    fn extent(&self, cx: &Context<'_>, inode: &dyn Inode) -> Result<Extent> {
        let item = inode.item();
        match item.owner.filter(|_| matches!(item.class, Class::Dataset | Class::File)) {
            Some(id) => {
                let (frame, form) = shown(item);
                Ok(Extent::of(pictures(cx.connector, id)?.size(frame, form)))
            }
            None => Ok(Extent::of(0)),
        }
    }

    fn open(&self, cx: &Context<'_>, inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        let item = inode.item();
        let Some(id) = item.owner.filter(|_| matches!(item.class, Class::Dataset | Class::File)) else { return Ok(None) };
        let made: Arc<Made> = cx.buffers.get();
        let number = made.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Box::new(Opened { connector: cx.connector.clone(), id, shown: shown(item), made, number, making: Mutex::new(()) })))
    }
}

/// Images of open files.
#[derive(Default)]
struct Made {
    /// Numbers of open files that were given.
    opened: AtomicU64,
    images: Mutex<Kept>,
}

/// Images by the number of the open file.
struct Kept {
    images: LruCache<u64, Arc<Vec<u8>>>,
    bytes: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Kept { images: LruCache::unbounded(), bytes: 0 }
    }
}

impl Kept {
    fn put(&mut self, number: u64, image: Arc<Vec<u8>>) {
        self.bytes = self.bytes.saturating_add(image.len() as u64);
        self.images.put(number, image);
        // The last one stays: it is being read.
        while self.bytes > IMAGES_BYTES_MAX && self.images.len() > 1 {
            let Some((_, image)) = self.images.pop_lru() else { return };
            self.bytes = self.bytes.saturating_sub(image.len() as u64);
        }
    }

    fn remove(&mut self, number: u64) {
        let len = self.images.pop(&number).map_or(0, |image| image.len() as u64);
        self.bytes = self.bytes.saturating_sub(len);
    }
}

/// An open image.
struct Opened {
    connector: Arc<dyn Connector>,
    id: ObjectId,
    /// The image, counted from 0, or the preview.
    shown: (Option<u64>, ImageForm),
    made: Arc<Made>,
    number: u64,
    /// Locked while the image is made: only readers of this file wait.
    making: Mutex<()>,
}

impl Opened {
    fn kept(&self) -> Option<Arc<Vec<u8>>> {
        self.made.images.lock().images.get(&self.number).cloned()
    }

    fn image(&self) -> Result<Arc<Vec<u8>>> {
        if let Some(image) = self.kept() {
            return Ok(image);
        }
        let _making = self.making.lock();
        if let Some(image) = self.kept() {
            return Ok(image);
        }
        let image = Arc::new(pictures(&self.connector, self.id)?.file(self.shown.0, self.shown.1)?);
        self.made.images.lock().put(self.number, image.clone());
        Ok(image)
    }
}

impl Bytes for Opened {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(copy(&self.image()?, offset, buf))
    }

    fn size(&self) -> Result<u64> {
        Ok(pictures(&self.connector, self.id)?.size(self.shown.0, self.shown.1))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.made.images.lock().remove(self.number);
    }
}
