//! The right to read the structures of a container.
//!
//! A call of the container model takes the lock of readers once, as an [`Access`], and passes it to
//! whatever reads structures. An operation has the lock alone, as an [`Access`] too: so both use
//! the same readers, which lock nothing. A thread never locks again: the lock is fair, and a reader
//! that came back behind a waiting operation would wait for itself.

use super::NativeConnector;
use crate::base::lock_order::{Locked, Rank};
use crate::base::waiting;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Orders readers of structures and operations.
#[derive(Default)]
pub(super) struct StructureLock(RwLock<()>);

impl StructureLock {
    fn shared(&self) -> Held<'_> {
        let lock = || waiting::take(|| self.0.try_read(), || self.0.read());
        Held::Shared(Locked::acquire(Rank::Structures, &self.0, lock))
    }

    fn try_shared(&self) -> Option<Held<'_>> {
        let guard = self.0.try_read()?;
        Some(Held::Shared(Locked::acquire(Rank::Structures, &self.0, || guard)))
    }

    fn alone(&self) -> Held<'_> {
        let lock = || waiting::take(|| self.0.try_write(), || self.0.write());
        Held::Alone(Locked::acquire(Rank::Structures, &self.0, lock))
    }
}

/// Why structures stay as they are.
#[allow(dead_code, reason = "guards are held, not read")]
enum Held<'a> {
    /// The lock of readers is held.
    Shared(Locked<RwLockReadGuard<'a, ()>>),
    /// The lock is held alone.
    Alone(Locked<RwLockWriteGuard<'a, ()>>),
    /// The caller of a layout has an access, which lasts until the layout returns.
    ByCaller,
    /// The container is never changed.
    Unchanged,
}

/// Reads the structures of a container, which do not change while this value lives.
///
/// Threads that work for its owner use it by reference.
pub struct Access<'a> {
    pub(super) connector: &'a NativeConnector,
    _held: Held<'a>,
}

impl<'a> Access<'a> {
    /// Access for a callback of a layout: a source of a virtual dataset is opened, a log is loaded.
    ///
    /// Layouts know no locks. The caller of a layout has an access, or is a thread that works for a
    /// caller that has one.
    pub(super) fn of_caller(connector: &'a NativeConnector) -> Access<'a> {
        debug_assert!(connector.editing.as_ref().is_none_or(|e| e.lock.0.is_locked()), "a layout is used without an access");
        Access { connector, _held: Held::ByCaller }
    }
}

impl NativeConnector {
    /// Waits for the operation under way, and keeps structures as they are.
    pub fn access(&self) -> Access<'_> {
        let held = self.editing.as_ref().map_or(Held::Unchanged, |editing| editing.lock.shared());
        Access { connector: self, _held: held }
    }

    /// [`NativeConnector::access`], unless an operation is under way or waits.
    pub(super) fn try_access(&self) -> Option<Access<'_>> {
        let held = self.editing.as_ref().map_or(Some(Held::Unchanged), |editing| editing.lock.try_shared())?;
        Some(Access { connector: self, _held: held })
    }

    /// Waits for all readers, and keeps them out.
    pub(super) fn access_alone(&self) -> Access<'_> {
        let held = self.editing.as_ref().map_or(Held::Unchanged, |editing| editing.lock.alone());
        Access { connector: self, _held: held }
    }
}

#[cfg(test)]
mod tests {
    use super::super::edit::fault_tests::writable;
    use super::super::tests::editor;
    use crate::connector::edit::Edit;
    use crate::connector::{Budget, Connector, Form};
    use crate::file::fault::{Fault, Plan};
    use std::ops::ControlFlow;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Each callback of the container model may use the container, while an operation waits for the
    /// lock: it would wait for a reader that waits for it.
    #[test]
    fn callbacks_read_the_container_while_an_operation_waits() {
        let c = writable(&Plan::new(0, 0, 0, Fault::Short));
        let id = c.create_file(c.root(), b"d").unwrap();
        editor(&c).set_fact(id, "dataset", br#"{"dtype": "u1", "shape": [300], "chunks": [1]}"#).unwrap();
        c.write(id, 0, &[7; 300]).unwrap();
        let to = c.create_file(c.root(), b"r").unwrap();
        editor(&c).set_fact(to, "dataset", br#"{"dtype": {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}, "shape": [200]}"#).unwrap();
        for n in 0..100 {
            c.create_group(c.root(), format!("g{n}").as_bytes()).unwrap();
        }
        c.commit().unwrap();
        let operation = || c.set_comment(id, b"c").unwrap();
        let beside = |read: &mut dyn FnMut(&mut dyn FnMut())| {
            let mut calls = 0usize;
            std::thread::scope(|scope| {
                read(&mut || {
                    calls += 1;
                    if calls == 1 {
                        let (done, is_done) = channel();
                        scope.spawn(move || {
                            operation();
                            done.send(()).unwrap();
                        });
                        // The operation ends meanwhile: the callback holds no lock.
                        is_done.recv_timeout(Duration::from_secs(60)).unwrap();
                    }
                    c.info(id).unwrap();
                });
            });
            calls
        };
        let links = beside(&mut |call| {
            let mut f = |_, _| {
                call();
                ControlFlow::Continue(())
            };
            c.list(c.root(), 0, &mut f).unwrap();
        });
        let references = beside(&mut |call| {
            let mut f = |_| {
                call();
                Ok(ControlFlow::Continue(()))
            };
            c.references(to, 0, &mut Budget::tight(1 << 20), &mut f).unwrap();
        });
        let chunks = beside(&mut |call| {
            let mut f = |_: &[u64], _, _| {
                call();
                ControlFlow::Continue(())
            };
            c.chunks(id).unwrap().unwrap().list(0, &mut f).unwrap();
        });
        assert_eq!((links, references, chunks), (102, 200, 300));
        assert_eq!(c.content(id, Form::Main).unwrap().size(), Ok(300));
    }
}
