//! `.h5dir/README`: the contents of the directory, one line for each view that the mount has.

use super::bytes::{Bytes, Text};
use super::context::Context;
use super::control::shown;
use super::view::{Class, Extent, Inode, Item, View};
use crate::base::Result;
use crate::connector::ObjectId;
use std::sync::Arc;

/// A text about the views that the function returns.
pub struct Readme(pub fn() -> &'static [&'static dyn View]);

const BEFORE: &str = "\
This directory shows the HDF5 file in other forms. A listing of the root of the
mount leaves it out. Files are made as they are read. PATH is the path of an
object in the mount.

";

const AFTER: &str = "
Attributes of the HDF5 file are extended attributes of files and directories:

    getfattr -d FILE                        attributes
    getfattr -n user.h5dir.datatype FILE    facts: also shape, layout, filters

'man 7 h5dir' describes the mount, also as 'h5dir man 7 | man -l -'.
";

/// One line for each of `views`: its files, and what they have.
fn lines(views: &[&dyn View]) -> String {
    let width = views.iter().map(|view| view.about().0.len()).max().unwrap_or(0);
    views.iter().map(|view| view.about()).map(|(files, about)| format!("{files:width$}  {about}\n")).collect()
}

/// The text about `views`.
fn text(views: &[&dyn View]) -> Vec<u8> {
    [BEFORE, &lines(views), AFTER].concat().into_bytes()
}

impl Readme {
    /// The text about the views that the mount has now.
    fn text(&self, cx: &Context<'_>) -> Vec<u8> {
        text(&shown(self.0(), cx).collect::<Vec<_>>())
    }
}

impl View for Readme {
    fn name(&self) -> &'static str {
        "README"
    }

    fn about(&self) -> (&'static str, &'static str) {
        ("README", "this text")
    }

    fn root(&'static self, _group: ObjectId) -> Item {
        Item { view: self, class: Class::File, owner: None, key: None }
    }

    fn follows_names(&self) -> bool {
        false
    }

    // Views of containers come and go.
    fn is_generated(&self, _item: &Item) -> bool {
        true
    }

    fn extent(&self, cx: &Context<'_>, _inode: &dyn Inode) -> Result<Extent> {
        Ok(Extent::of(self.text(cx).len() as u64))
    }

    fn open(&self, cx: &Context<'_>, _inode: Arc<dyn Inode>) -> Result<Option<Box<dyn Bytes>>> {
        Ok(Some(Box::new(Text(self.text(cx)))))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ALL;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_view_has_a_line_that_fits_on_a_terminal() {
        let text = String::from_utf8(text(ALL)).unwrap();
        for view in ALL {
            let (files, about) = view.about();
            assert!(files.split('/').next() == Some(view.name()) && !about.is_empty(), "{}: {files:?} {about:?}", view.name());
        }
        assert!(text.lines().all(|line| line.len() < 80), "{text}");
        assert!(text.lines().count() < 45, "{text}");
        let names: Vec<_> = ALL.iter().map(|view| view.name()).collect();
        assert!(names.is_sorted() && names.iter().collect::<BTreeSet<_>>().len() == names.len(), "{names:?}");
    }
}
