//! Serving a caller on its own processor.
//!
//! Who asks one thing after another, each when the last was answered (`cp` and `tar` of small files, `find`), waits for two
//! wake-ups per request. If the caller and the event loop run on two processors, each of them is idle while the other one
//! works, and must be woken from that: on a virtual machine that takes longer than most requests. On one processor it is a
//! switch between two threads. So when a run of requests came from one thread, none of them while another was under way,
//! the event loops are kept to the processor which that thread runs on; the first sign of anything else ends that.
//!
//! Only event loops are moved: threads that decode, encode and commit stay where the system puts them.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Requests in a row until the caller's processor is looked at, and again from then on: callers are moved too.
const RUN: u32 = 64;

thread_local! {
    /// This thread is known as an event loop.
    static KNOWN: Cell<bool> = const { Cell::new(false) };
}

/// See the module's description.
pub struct Near {
    /// Requests under way that somebody waits for.
    under_way: AtomicUsize,
    /// Who asked last.
    caller: AtomicU32,
    /// Requests of that caller in a row.
    run: AtomicU32,
    place: Mutex<Place>,
}

/// Where the event loops are.
#[derive(Default)]
struct Place {
    loops: Vec<Pid>,
    /// Where they may be.
    allowed: Option<CpuSet>,
    /// The processor that they are kept to.
    kept: Option<usize>,
}

/// A request under way.
pub struct Asked<'a>(&'a Near);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Near {
    /// Nothing was asked yet.
    pub fn new() -> Self {
        Near { under_way: AtomicUsize::new(0), caller: AtomicU32::new(0), run: AtomicU32::new(0), place: Mutex::default() }
    }

    /// The thread `caller` waits for the answer to a request, until what is returned is dropped.
    pub fn asked(&self, caller: u32) -> Asked<'_> {
        if !KNOWN.get() {
            KNOWN.set(true);
            self.place.lock().enter();
        }
        let alone = self.under_way.fetch_add(1, Ordering::Relaxed) == 0;
        let same = self.caller.swap(caller, Ordering::Relaxed) == caller;
        if alone && same && caller != 0 {
            if self.run.fetch_add(1, Ordering::Relaxed) % RUN == RUN - 1 {
                self.place.lock().keep(processor_of(caller));
            }
        } else if self.run.swap(0, Ordering::Relaxed) >= RUN {
            self.place.lock().keep(None);
        }
        Asked(self)
    }
}

impl Place {
    fn enter(&mut self) {
        let this = nix::unistd::gettid();
        if self.allowed.is_none() {
            self.allowed = sched_getaffinity(this).ok();
        }
        self.loops.push(this);
        self.kept = None;
    }

    /// Keeps the event loops to a processor, or to none. What fails changes nothing but the speed.
    fn keep(&mut self, processor: Option<usize>) {
        let Some(allowed) = self.allowed else { return };
        let processor = processor.filter(|&p| allowed.is_set(p).unwrap_or(false));
        if processor == self.kept {
            return;
        }
        let mut set = CpuSet::new();
        let set = match processor.map(|p| set.set(p)) {
            Some(Ok(())) => set,
            _ => allowed,
        };
        for event_loop in &self.loops {
            let _ = sched_setaffinity(*event_loop, &set);
        }
        self.kept = processor;
    }
}

/// The processor that a thread ran on last: field 39 of its `stat`.
fn processor_of(thread: u32) -> Option<usize> {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    // The second field, the program's name, may hold anything.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Vec<usize> {
        let set = sched_getaffinity(nix::unistd::gettid()).unwrap();
        (0..CpuSet::count()).filter(|&p| set.is_set(p).unwrap()).collect()
    }

    #[test]
    fn a_run_of_one_caller_keeps_the_loop_near_it_and_anything_else_lets_it_go() {
        let before = allowed();
        // A caller that stays where it is.
        let (send, receive) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let caller = std::thread::spawn(move || {
            send.send(nix::unistd::gettid().as_raw() as u32).unwrap();
            let _ = stopped.recv();
        });
        let id = receive.recv().unwrap();
        let near = Near::new();
        for _ in 0..=RUN {
            drop(near.asked(id));
        }
        assert_eq!(allowed(), [processor_of(id).unwrap()]);
        drop(near.asked(id + 1));
        assert_eq!(allowed(), before, "another caller");
        for _ in 0..=RUN {
            drop(near.asked(id));
        }
        assert_eq!(allowed().len(), 1);
        let first = near.asked(id);
        drop(near.asked(id));
        drop(first);
        assert_eq!(allowed(), before, "two at a time");
        for _ in 0..10 * RUN {
            let first = near.asked(id);
            drop(near.asked(id));
            drop(first);
        }
        assert_eq!(allowed(), before);
        stop.send(()).unwrap();
        caller.join().unwrap();
        assert_eq!(processor_of(0), None);
    }
}
