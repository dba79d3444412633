//! The event loops of a mount that is written to: how many of them take requests.
//!
//! Changes are made one after the other. If each were taken by the loop that has slept longest, as the kernel has it, each would wake
//! a thread, which then waits for the lock that the one before it still has. So after some changes in a row a loop that has answered
//! one stays away as long as another takes requests. It comes back before a request that takes long, and when the loop that is left may
//! have to wait (see [`crate::base::waiting`]). The one that is left looks for the next request before it sleeps (see [`super::near`]).
//!
//! ```text
//! all loops = those that stay away + those busy for long (or waiting) + those that take requests, of which one is always left
//! ```

use super::near::Near;
use crate::base::waiting;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A change that is soon made.
    Change,
    /// What may take long by itself, or is better done by several at once.
    Long,
    /// Anything else.
    Other,
}

/// Changes in a row after which loops stay away.
const MANY: u32 = 64;
/// A loop that stays away looks this often whether the one that is left got stuck without telling.
const LOOK: Duration = Duration::from_secs(1);
/// Requests in that time, each soon after the one before, that are many.
const BUSY: u64 = 1000;
/// So long after that happened none stays away: the one that is stuck may be for some time.
const WARY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct State {
    /// Loops that have served.
    known: usize,
    /// Loops that stay away, and how many of them may come back.
    away: usize,
    back: usize,
    /// Loops busy for long.
    long: usize,
    /// Loops that stay not away and serve just now, and requests begun.
    serving: usize,
    begun: u64,
    /// Changes in a row.
    changes: u32,
    /// Until then none stays away.
    wary: Option<Instant>,
    /// A loop has ended: so do all.
    ended: bool,
}

impl State {
    /// Loops that served before and take requests, now or soon.
    fn taking(&self) -> usize {
        self.known.saturating_sub(self.away.saturating_sub(self.back)).saturating_sub(self.long)
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct Crew {
    loops: usize,
    /// How often a loop that stays away looks after the one that is left.
    look: Duration,
    state: Mutex<State>,
    come: Condvar,
    near: Near,
}

thread_local! {
    static MEMBER: RefCell<Option<Member>> = const { RefCell::new(None) };
    /// The request served here counts as a long one.
    static LONG: Cell<bool> = const { Cell::new(false) };
}

/// A loop: when its thread ends, the session does.
struct Member(Arc<Crew>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.come.notify_all();
    }
}

impl Crew {
    /// Of so many event loops.
    pub fn new(loops: usize, near: Near) -> Arc<Self> {
        Self::looking(loops, LOOK, near)
    }

    fn looking(loops: usize, look: Duration, near: Near) -> Arc<Self> {
        Arc::new(Crew { loops, look, state: Mutex::default(), come: Condvar::new(), near })
    }

    /// How the next request is waited for.
    pub fn near(&self) -> &Near {
        &self.near
    }

    /// A request is served by this thread, a loop's, until what is returned is dropped: after the answer.
    pub fn turn(self: &Arc<Self>, kind: Kind) -> Turn<'_> {
        self.join();
        let mut state = self.state.lock();
        state.begun = state.begun.wrapping_add(1);
        state.serving = state.serving.saturating_add(1);
        if kind == Kind::Long {
            state.changes = 0;
            self.long(&mut state);
        }
        drop(state);
        waiting::watch(kind != Kind::Long);
        Turn { crew: self, kind }
    }

    /// Makes this thread one of the loops that are known.
    fn join(self: &Arc<Self>) {
        MEMBER.with_borrow_mut(|member| {
            if member.is_none() {
                self.state.lock().known += 1;
                let crew = Arc::downgrade(self);
                waiting::tell(Some(Arc::new(move || {
                    if let Some(crew) = crew.upgrade() {
                        crew.long(&mut crew.state.lock());
                    }
                })));
                *member = Some(Member(self.clone()));
            }
        });
    }

    /// This loop is busy for long: another takes requests.
    fn long(&self, state: &mut State) {
        LONG.set(true);
        state.long = state.long.saturating_add(1);
        // One that has not served yet takes them as well.
        let fresh = self.loops.saturating_sub(state.known);
        if state.taking().saturating_add(fresh) == 0 {
            self.call(state);
        }
    }

    /// Has one come back.
    fn call(&self, state: &mut State) {
        if state.away > state.back {
            state.back = state.back.saturating_add(1);
            self.come.notify_one();
        }
    }

    fn end(&self, kind: Kind) {
        waiting::watch(false);
        let mut state = self.state.lock();
        state.serving = state.serving.saturating_sub(1);
        if LONG.replace(false) {
            state.long = state.long.saturating_sub(1);
        }
        // Of those that are known only this one takes requests.
        let last = state.away > 0 && state.taking() < 2 && !state.ended;
        if kind == Kind::Change {
            state.changes = state.changes.saturating_add(1);
            // Another one that is known is left: when it ends, this one hears of it.
            let many = state.changes >= MANY && !state.ended && state.taking() >= 2 && !std::thread::panicking();
            if many && state.wary.is_none_or(|until| Instant::now() >= until) {
                return self.stay_away(state);
            }
        }
        drop(state);
        if last {
            self.near.wait();
        }
    }

    /// Returns when this loop shall take requests again.
    fn stay_away(&self, mut state: MutexGuard<'_, State>) {
        state.away = state.away.saturating_add(1);
        while state.back == 0 && !state.ended {
            let (begun, came) = (state.begun, self.near.came());
            let late = self.come.wait_for(&mut state, self.look).timed_out();
            let stuck = state.begun == begun && state.serving > 0 && state.serving >= self.loops.saturating_sub(state.away);
            if late && stuck {
                state.wary = Instant::now().checked_add(WARY);
                self.call(&mut state);
            }
            if late && self.near.came().wrapping_sub(came) < BUSY {
                self.near.rest();
            }
        }
        state.back = state.back.saturating_sub(1);
        state.away = state.away.saturating_sub(1);
        if state.away == 0 {
            // Nobody looks any more whether few requests come.
            self.near.rest();
        }
    }
}

/// A request that is being served.
#[derive(Debug)]
pub struct Turn<'c> {
    crew: &'c Arc<Crew>,
    kind: Kind,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.crew.end(self.kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;

    type Request = Box<dyn FnOnce() + Send>;

    /// No look helps a loop that should have come by itself.
    const NEVER: Duration = Duration::from_secs(3600);

    /// Loops that take requests from one queue, as those of a session do.
    struct Loops {
        crew: Arc<Crew>,
        requests: Option<Sender<(Kind, Request)>>,
        threads: Vec<JoinHandle<()>>,
        idle: Arc<AtomicUsize>,
    }

    impl Loops {
        fn start(n: usize, look: Duration) -> Self {
            let (crew, (requests, queue)) = (Crew::looking(n, look, Near::new(false)), channel());
            let (queue, idle): (Arc<Mutex<Receiver<(Kind, Request)>>>, _) = (Arc::new(Mutex::new(queue)), Arc::new(AtomicUsize::new(0)));
            let serve = |_| {
                let (crew, queue, idle) = (crew.clone(), queue.clone(), idle.clone());
                std::thread::spawn(move || {
                    loop {
                        idle.fetch_add(1, Ordering::SeqCst);
                        let next = queue.lock().recv();
                        idle.fetch_sub(1, Ordering::SeqCst);
                        let Ok((kind, request)) = next else { return };
                        let _turn = crew.turn(kind);
                        request();
                    }
                })
            };
            let threads = (0..n).map(serve).collect();
            Loops { crew, requests: Some(requests), threads, idle }
        }

        fn send(&self, kind: Kind, f: impl FnOnce() + Send + 'static) {
            self.requests.as_ref().unwrap().send((kind, Box::new(f))).unwrap();
        }

        fn call(&self, kind: Kind, f: impl FnOnce() + Send + 'static) {
            let (done, end) = channel();
            self.send(kind, move || {
                f();
                done.send(()).unwrap();
            });
            end.recv_timeout(Duration::from_secs(20)).unwrap();
        }

        /// Changes until all but one stay away.
        fn settle(&self) {
            let away = || self.crew.state.lock().away;
            let start = Instant::now();
            while away() + 1 < self.threads.len() && start.elapsed() < Duration::from_secs(20) {
                self.call(Kind::Change, || {});
            }
            assert_eq!(away() + 1, self.threads.len());
        }
    }

    impl Drop for Loops {
        fn drop(&mut self) {
            self.requests = None;
            if std::thread::panicking() {
                return;
            }
            // Whoever waits here for ever is a loop that was forgotten.
            self.threads.drain(..).for_each(|t| t.join().unwrap());
        }
    }

    /// A request that lasts until what is returned is set.
    fn held(loops: &Loops, kind: Kind, before: impl FnOnce() + Send + 'static) -> Arc<AtomicBool> {
        let (go, (begun, begins)) = (Arc::new(AtomicBool::new(false)), channel());
        let end = go.clone();
        loops.send(kind, move || {
            before();
            begun.send(()).unwrap();
            while !end.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        begins.recv_timeout(Duration::from_secs(20)).unwrap();
        go
    }

    #[test]
    fn one_loop_makes_many_changes_and_all_end_with_it() {
        for n in [2, 4, 16] {
            let loops = Loops::start(n, NEVER);
            loops.settle();
            (0..1000).for_each(|_| loops.call(Kind::Change, || {}));
            assert_eq!(loops.crew.state.lock().away, n - 1);
            assert!(loops.idle.load(Ordering::SeqCst) <= 1);
        }
    }

    #[test]
    fn another_loop_comes_for_what_takes_long_and_when_one_may_wait() {
        let loops = Loops::start(3, NEVER);
        for (kind, before) in [(Kind::Long, (|| {}) as fn()), (Kind::Change, waiting::may_wait), (Kind::Other, waiting::may_wait)] {
            loops.settle();
            let (first, second) = (held(&loops, kind, before), held(&loops, kind, before));
            loops.call(Kind::Other, || {});
            [first, second].iter().for_each(|go| go.store(true, Ordering::SeqCst));
        }
        loops.settle();
    }

    #[test]
    fn a_loop_that_is_stuck_without_telling_is_noticed() {
        let loops = Loops::start(2, Duration::from_millis(200));
        loops.settle();
        let go = held(&loops, Kind::Other, || {});
        // As long as it is stuck the other one stays.
        (0..200).for_each(|_| loops.call(Kind::Change, || {}));
        assert_eq!(loops.crew.state.lock().away, 0);
        go.store(true, Ordering::SeqCst);
    }

    #[test]
    fn loops_that_never_served_keep_none_away() {
        let loops = Loops::start(2, NEVER);
        let go = held(&loops, Kind::Long, || {});
        // One is left that is known: it does not stay away, whatever it makes.
        (0..200).for_each(|_| loops.call(Kind::Change, || {}));
        assert_eq!(loops.crew.state.lock().away, 0);
        go.store(true, Ordering::SeqCst);
    }
}
