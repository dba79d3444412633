//! The event loops of a writable mount: how many of them take requests.
//!
//! Changes are made one after the other. The kernel gives each to the loop that has slept longest,
//! which would then wait for the lock that the loop before it still holds. So after many
//! consecutive changes an idle loop parks as long as another one takes requests. It resumes before
//! a request that takes long, and when the loop that is left may block (see
//! [`crate::base::waiting`]). With busy polling the loop that is left polls for the next request
//! before it sleeps (see [`super::busy_poll`]).
//!
//! ```text
//! all loops = parked + those with long (or blocked) requests + those that take requests (>= 1)
//! ```

use super::busy_poll::BusyPoll;
use crate::base::waiting;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A change that takes little time.
    Change,
    /// A request that may take long, or that several loops serve better at once.
    Long,
    /// Any other request.
    Other,
}

/// Consecutive changes after which idle loops park.
const PARK_AFTER_CHANGES: u32 = 64;
/// How often a parked loop checks whether the loops that take requests are blocked without notice.
const STUCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Requests within that time that came while being polled for, with which processors are kept
/// awake.
const BUSY_REQUESTS: u64 = 1000;
/// After such a block no loop parks for this long: the next one may last.
const NO_PARKING_AFTER_STUCK: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct LoopCounts {
    /// Loops that have served a request.
    known: usize,
    /// Parked loops.
    parked: usize,
    /// Parked loops that were called to resume.
    resuming: usize,
    /// Loops with a long request.
    long: usize,
    /// Loops that serve a request now; parked ones do not count.
    serving: usize,
    /// Requests begun.
    begun: u64,
    /// Consecutive changes.
    changes: u32,
    /// No loop parks until then.
    no_parking_until: Option<Instant>,
    /// A loop has ended: all do.
    ended: bool,
}

impl LoopCounts {
    /// Known loops that take requests, now or soon.
    fn taking(&self) -> usize {
        self.known.saturating_sub(self.parked.saturating_sub(self.resuming)).saturating_sub(self.long)
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct EventLoops {
    loops: usize,
    /// How often a parked loop checks the others.
    check_interval: Duration,
    state: Mutex<LoopCounts>,
    resume: Condvar,
    busy_poll: BusyPoll,
}

thread_local! {
    static MEMBER: RefCell<Option<Member>> = const { RefCell::new(None) };
    /// The request served by this thread counts as a long one.
    static LONG: Cell<bool> = const { Cell::new(false) };
}

/// A loop: when its thread ends, the session does.
struct Member(Arc<EventLoops>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.resume.notify_all();
    }
}

impl EventLoops {
    /// `loops` event loops.
    pub fn new(loops: usize, busy_poll: BusyPoll) -> Arc<Self> {
        Self::checking(loops, STUCK_CHECK_INTERVAL, busy_poll)
    }

    fn checking(loops: usize, check_interval: Duration, busy_poll: BusyPoll) -> Arc<Self> {
        Arc::new(EventLoops { loops, check_interval, state: Mutex::default(), resume: Condvar::new(), busy_poll })
    }

    /// How the next request is polled for.
    pub fn busy_poll(&self) -> &BusyPoll {
        &self.busy_poll
    }

    /// This thread, a loop, serves a request until the result is dropped, after the answer.
    pub fn turn(self: &Arc<Self>, kind: RequestKind) -> Turn<'_> {
        self.join();
        let mut state = self.state.lock();
        state.begun = state.begun.wrapping_add(1);
        state.serving = state.serving.saturating_add(1);
        if kind == RequestKind::Long {
            state.changes = 0;
            self.begin_long(&mut state);
        }
        // Parked ones resume when this one blocks.
        let free = state.taking().saturating_add(self.fresh(&state)).saturating_add(state.parked.saturating_sub(state.resuming));
        // This one is among them unless its request is long.
        let last = free == usize::from(kind != RequestKind::Long);
        drop(state);
        waiting::arm(kind != RequestKind::Long);
        Turn { event_loops: self, kind, last }
    }

    /// Makes this thread a known loop.
    fn join(self: &Arc<Self>) {
        MEMBER.with_borrow_mut(|member| {
            if member.is_none() {
                self.state.lock().known += 1;
                let event_loops = Arc::downgrade(self);
                waiting::set_hook(Some(Arc::new(move || {
                    if let Some(event_loops) = event_loops.upgrade() {
                        event_loops.begin_long(&mut event_loops.state.lock());
                    }
                })));
                *member = Some(Member(self.clone()));
            }
        });
    }

    /// The request of this loop takes long: another loop takes requests.
    fn begin_long(&self, state: &mut LoopCounts) {
        LONG.set(true);
        state.long = state.long.saturating_add(1);
        if state.taking().saturating_add(self.fresh(state)) == 0 {
            self.resume_one(state);
        }
    }

    /// Loops that have not served yet, and take requests as well.
    fn fresh(&self, state: &LoopCounts) -> usize {
        self.loops.saturating_sub(state.known)
    }

    /// Calls a parked loop.
    fn resume_one(&self, state: &mut LoopCounts) {
        if state.parked > state.resuming {
            state.resuming = state.resuming.saturating_add(1);
            self.resume.notify_one();
        }
    }

    fn end(&self, kind: RequestKind) {
        waiting::arm(false);
        let mut state = self.state.lock();
        state.serving = state.serving.saturating_sub(1);
        if LONG.replace(false) {
            state.long = state.long.saturating_sub(1);
        }
        // This is the only known loop that takes requests.
        let last = state.parked > 0 && state.taking() < 2 && !state.ended;
        if kind == RequestKind::Change {
            state.changes = state.changes.saturating_add(1);
            // Another known loop is left: when it ends, this one is notified.
            let many = state.changes >= PARK_AFTER_CHANGES && !state.ended && state.taking() >= 2 && !std::thread::panicking();
            if many && state.no_parking_until.is_none_or(|until| Instant::now() >= until) {
                return self.park(state);
            }
        }
        drop(state);
        if last {
            self.busy_poll.wait();
        }
    }

    /// Returns when this loop resumes.
    fn park(&self, mut state: MutexGuard<'_, LoopCounts>) {
        state.parked = state.parked.saturating_add(1);
        while state.resuming == 0 && !state.ended {
            let (begun, polled) = (state.begun, self.busy_poll.requests());
            let late = self.resume.wait_for(&mut state, self.check_interval).timed_out();
            let stuck = state.begun == begun && state.serving > 0 && state.serving >= self.loops.saturating_sub(state.parked);
            if late && stuck {
                state.no_parking_until = Instant::now().checked_add(NO_PARKING_AFTER_STUCK);
                self.resume_one(&mut state);
            }
            if late && self.busy_poll.requests().wrapping_sub(polled) < BUSY_REQUESTS {
                self.busy_poll.rest();
            }
        }
        state.resuming = state.resuming.saturating_sub(1);
        state.parked = state.parked.saturating_sub(1);
        if state.parked == 0 {
            // No parked loop is left to notice that few requests come.
            self.busy_poll.rest();
        }
    }
}

/// A request that is being served.
#[derive(Debug)]
pub struct Turn<'c> {
    event_loops: &'c Arc<EventLoops>,
    kind: RequestKind,
    last: bool,
}

impl Turn<'_> {
    /// True if no loop is left to take other requests while this one serves its own.
    pub fn is_last(&self) -> bool {
        self.last
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.event_loops.end(self.kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;

    type Request = Box<dyn FnOnce() + Send>;

    /// No check helps a loop that should have resumed by itself.
    const NEVER: Duration = Duration::from_secs(3600);

    /// Loops that take requests from one queue, as those of a session do.
    struct Loops {
        event_loops: Arc<EventLoops>,
        requests: Option<Sender<(RequestKind, Request)>>,
        threads: Vec<JoinHandle<()>>,
        idle: Arc<AtomicUsize>,
    }

    impl Loops {
        fn start(n: usize, check_interval: Duration) -> Self {
            let (event_loops, (requests, queue)) = (EventLoops::checking(n, check_interval, BusyPoll::new(false)), channel());
            let (queue, idle): (Arc<Mutex<Receiver<(RequestKind, Request)>>>, _) =
                (Arc::new(Mutex::new(queue)), Arc::new(AtomicUsize::new(0)));
            let serve = |_| {
                let (event_loops, queue, idle) = (event_loops.clone(), queue.clone(), idle.clone());
                std::thread::spawn(move || {
                    loop {
                        idle.fetch_add(1, Ordering::SeqCst);
                        let next = queue.lock().recv();
                        idle.fetch_sub(1, Ordering::SeqCst);
                        let Ok((kind, request)) = next else { return };
                        let _turn = event_loops.turn(kind);
                        request();
                    }
                })
            };
            let threads = (0..n).map(serve).collect();
            Loops { event_loops, requests: Some(requests), threads, idle }
        }

        fn send(&self, kind: RequestKind, f: impl FnOnce() + Send + 'static) {
            self.requests.as_ref().unwrap().send((kind, Box::new(f))).unwrap();
        }

        fn call(&self, kind: RequestKind, f: impl FnOnce() + Send + 'static) {
            let (done, end) = channel();
            self.send(kind, move || {
                f();
                done.send(()).unwrap();
            });
            end.recv_timeout(Duration::from_secs(20)).unwrap();
        }

        /// Changes until all but one loop are parked.
        fn settle(&self) {
            let parked = || self.event_loops.state.lock().parked;
            let start = Instant::now();
            while parked() + 1 < self.threads.len() && start.elapsed() < Duration::from_secs(20) {
                self.call(RequestKind::Change, || {});
            }
            assert_eq!(parked() + 1, self.threads.len());
        }
    }

    impl Drop for Loops {
        fn drop(&mut self) {
            self.requests = None;
            if std::thread::panicking() {
                return;
            }
            // A join that never returns shows a loop that stayed parked.
            self.threads.drain(..).for_each(|t| t.join().unwrap());
        }
    }

    /// A request that lasts until what is returned is set.
    fn held(loops: &Loops, kind: RequestKind, before: impl FnOnce() + Send + 'static) -> Arc<AtomicBool> {
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
    fn one_loop_makes_many_changes_and_all_loops_end_with_it() {
        for n in [2, 4, 16] {
            let loops = Loops::start(n, NEVER);
            loops.settle();
            (0..1000).for_each(|_| loops.call(RequestKind::Change, || {}));
            assert_eq!(loops.event_loops.state.lock().parked, n - 1);
            assert!(loops.idle.load(Ordering::SeqCst) <= 1);
        }
    }

    #[test]
    fn another_loop_resumes_for_long_requests_and_when_one_may_block() {
        let loops = Loops::start(3, NEVER);
        for (kind, before) in
            [(RequestKind::Long, (|| {}) as fn()), (RequestKind::Change, waiting::may_wait), (RequestKind::Other, waiting::may_wait)]
        {
            loops.settle();
            let (first, second) = (held(&loops, kind, before), held(&loops, kind, before));
            loops.call(RequestKind::Other, || {});
            [first, second].iter().for_each(|go| go.store(true, Ordering::SeqCst));
        }
        loops.settle();
    }

    #[test]
    fn a_request_that_leaves_no_loop_is_the_last() {
        // This thread is one of the loops.
        let event_loops = EventLoops::checking(3, NEVER, BusyPoll::new(false));
        let is_last = |kind| event_loops.turn(kind).is_last();
        assert!(!is_last(RequestKind::Long) && !is_last(RequestKind::Change));
        std::thread::scope(|scope| {
            let hold = |kind, before: fn()| {
                let ((begun, begins), (end, ends)) = (channel(), channel::<()>());
                let event_loops = &event_loops;
                let thread = scope.spawn(move || {
                    let _turn = event_loops.turn(kind);
                    before();
                    begun.send(()).unwrap();
                    let _ = ends.recv();
                });
                begins.recv().unwrap();
                (end, thread)
            };
            let (end, long) = hold(RequestKind::Long, || {});
            assert!(!is_last(RequestKind::Long) && !is_last(RequestKind::Change));
            let _blocked = hold(RequestKind::Change, waiting::may_wait);
            for kind in [RequestKind::Long, RequestKind::Change, RequestKind::Other] {
                assert!(is_last(kind), "{kind:?}");
            }
            drop(end);
            long.join().unwrap();
            assert!(!is_last(RequestKind::Long) && !is_last(RequestKind::Change));
        });
    }

    #[test]
    fn a_loop_that_blocks_without_notice_is_detected() {
        let loops = Loops::start(2, Duration::from_millis(200));
        loops.settle();
        let go = held(&loops, RequestKind::Other, || {});
        // While it is stuck the other one does not park.
        (0..200).for_each(|_| loops.call(RequestKind::Change, || {}));
        assert_eq!(loops.event_loops.state.lock().parked, 0);
        go.store(true, Ordering::SeqCst);
    }

    #[test]
    fn loops_that_never_served_do_not_let_others_park() {
        let loops = Loops::start(2, NEVER);
        let go = held(&loops, RequestKind::Long, || {});
        // The only known loop left does not park.
        (0..200).for_each(|_| loops.call(RequestKind::Change, || {}));
        assert_eq!(loops.event_loops.state.lock().parked, 0);
        go.store(true, Ordering::SeqCst);
    }
}
