//! Requests that may take long when no other event loop is left to take requests: threads of their
//! own serve them, so that short ones never wait for them.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// Most such threads of a mount. Its event loops serve further requests.
const THREADS_MAX: usize = 64;

/// The threads of a mount that serve requests apart.
#[derive(Debug, Default)]
pub struct Apart {
    running: Mutex<usize>,
    /// Signals that a thread ended.
    ended: Condvar,
}

/// A running thread; its drop ends the count, also by a panic.
struct Running(Arc<Apart>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = self.0.running.lock();
        *running = running.saturating_sub(1);
        self.0.ended.notify_all();
    }
}

impl Apart {
    /// Serves a request in a thread of its own; in this one if none can be started.
    pub fn serve(self: &Arc<Self>, request: impl FnOnce() + Send + 'static) {
        let Some(running) = self.begin() else { return request() };
        // A thread that does not start gives the request back.
        let request = Arc::new(Mutex::new(Some(request)));
        let taken = request.clone();
        let started = std::thread::Builder::new().name("h5dir-apart".into()).spawn(move || {
            let _running = running;
            let request = taken.lock().take();
            if let Some(request) = request {
                request();
            }
        });
        if started.is_err()
            && let Some(request) = request.lock().take()
        {
            request();
        }
    }

    fn begin(self: &Arc<Self>) -> Option<Running> {
        let mut running = self.running.lock();
        if *running >= THREADS_MAX {
            return None;
        }
        *running = running.saturating_add(1);
        Some(Running(self.clone()))
    }

    /// Waits until all requests are answered.
    pub fn wait(&self) {
        let mut running = self.running.lock();
        while *running > 0 {
            self.ended.wait(&mut running);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn requests_beyond_the_limit_are_served_by_the_caller() {
        let (apart, served) = (Arc::new(Apart::default()), Arc::new(AtomicUsize::new(0)));
        let (end, ends) = channel::<()>();
        let ends = Arc::new(Mutex::new(ends));
        for _ in 0..THREADS_MAX {
            let (served, ends) = (served.clone(), ends.clone());
            apart.serve(move || {
                ends.lock().recv().unwrap();
                served.fetch_add(1, Ordering::SeqCst);
            });
        }
        let (caller, count) = (std::thread::current().id(), served.clone());
        apart.serve(move || {
            assert_eq!(std::thread::current().id(), caller);
            count.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(served.load(Ordering::SeqCst), 1);
        (0..THREADS_MAX).for_each(|_| end.send(()).unwrap());
        apart.wait();
        assert_eq!(served.load(Ordering::SeqCst), THREADS_MAX + 1);
    }

    #[test]
    fn a_request_that_panics_is_not_waited_for() {
        let apart = Arc::new(Apart::default());
        apart.serve(|| panic!("as the test wants"));
        apart.wait();
    }
}
