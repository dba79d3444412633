//! Proves that a store creates an object once: containers rely on nothing else.

use super::ObjectStore;
use crate::base::request_error::{RequestError, errno_of, is_absent, is_transient};
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

/// Keys that are created.
const ROUNDS: u32 = 3;
/// Failed rounds that are repeated.
const FAILURES_MAX: u32 = 3;
/// Concurrent creators of one key.
const CREATORS: usize = 4;

/// Creates several keys by concurrent requests, and removes them. Errors: `EOPNOTSUPP` if a key had
/// several creators or other bytes than its creator's; else that of a request that failed again.
pub fn check(store: &dyn ObjectStore) -> io::Result<()> {
    let mut random = [0u8; 8];
    getrandom::fill(&mut random).map_err(|_| io::Error::from_raw_os_error(libc::EIO))?;
    let (mut round, mut failures) = (0, 0);
    while round < ROUNDS {
        let key = format!("probe/{:016x}-{round}-{failures}", u64::from_le_bytes(random));
        let outcome = race(store, &key);
        // A store that does not answer deletes nothing.
        if outcome.as_ref().is_err_and(|e| !is_transient(e) && errno_of(e) != Some(libc::EACCES)) {
            return outcome.map(drop);
        }
        let removed = store.delete(&key).or_else(|e| if is_transient(&e) { store.delete(&key) } else { Err(e) });
        match outcome {
            Ok(1) => {
                removed?;
                round += 1;
            }
            Ok(n) if n > 1 => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            // A request failed, or its reply was lost: the round proves nothing.
            Err(e) if failures == FAILURES_MAX || !is_transient(&e) => return Err(e),
            Ok(_) if failures == FAILURES_MAX => return Err(none_created().into()),
            Ok(_) | Err(_) => failures += 1,
        }
    }
    Ok(())
}

fn none_created() -> RequestError {
    let text = "the server refuses to create objects (If-None-Match: *); use another server".into();
    RequestError { errno: libc::EIO, is_transient: false, text }
}

/// Number of concurrent creators of `key` that succeeded; more than there are if other bytes than
/// theirs are there. Errors: that of a creator, or of reading the object; one that is not transient
/// if the server refuses the creation or does not answer.
fn race(store: &dyn ObjectStore, key: &str) -> io::Result<u32> {
    let winners = AtomicU32::new(0);
    let barrier = Barrier::new(CREATORS);
    let results: Vec<io::Result<Option<u8>>> = std::thread::scope(|scope| {
        let create = |number: u8| {
            let (winners, barrier) = (&winners, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let won = store.create(key, &[number])?;
                winners.fetch_add(won.into(), Ordering::Relaxed);
                Ok(won.then_some(number))
            })
        };
        let threads: Vec<_> = (0..CREATORS).map(|n| create(u8::try_from(n).unwrap_or(u8::MAX))).collect();
        let failed = || Err(io::Error::from_raw_os_error(libc::EIO));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| failed())).collect()
    });
    let mut numbers = Vec::new();
    let mut failure = None;
    for result in results {
        match result {
            Ok(number) => numbers.extend(number),
            Err(e) if !is_transient(&e) => return Err(e),
            Err(e) => failure = Some(e),
        }
    }
    let stored = match (store.get(key, 0..2), failure) {
        (Ok(stored), None) => stored,
        (Err(e), Some(failure)) if is_absent(&e) => return Err(failure),
        (Err(e), _) => return Err(e),
        (Ok(_), Some(failure)) => return Err(failure),
    };
    if numbers.iter().any(|number| stored != [*number]) {
        return Ok(u32::MAX);
    }
    Ok(winners.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::super::faulty::{Fault, FaultyStore};
    use super::super::memory::MemoryStore;
    use super::*;
    use std::ops::Range;

    /// A reply that was lost proves nothing: another key is created.
    #[test]
    fn lost_replies_are_no_second_creator() {
        for number in 0..20 {
            check(&FaultyStore::new(MemoryStore::default(), Fault::LostReply, number)).unwrap();
        }
        let refused = check(&FaultyStore::new(MemoryStore::default(), Fault::Killed, 2)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EIO));
    }

    /// Each request to a server that does not answer takes the timeout.
    #[test]
    fn few_requests_are_sent_to_a_server_that_does_not_answer() {
        let creators = CREATORS as i64;
        for number in 0..3 * (creators + 2) {
            let store = FaultyStore::new(MemoryStore::default(), Fault::Silent, number);
            let error = check(&store).unwrap_err();
            assert_eq!((errno_of(&error), error.to_string().as_str()), (Some(libc::ETIMEDOUT), "the server does not answer"));
            assert!(store.since() <= creators + 1, "{number}: {} requests", store.since());
        }
    }

    /// A server that denies writes, and says so.
    struct Denying;

    impl ObjectStore for Denying {
        fn get(&self, _: &str, _: Range<u64>) -> io::Result<Vec<u8>> {
            Err(io::Error::from_raw_os_error(libc::ENOENT))
        }

        fn put(&self, _: &str, _: &[u8]) -> io::Result<()> {
            Err(RequestError { errno: libc::EACCES, is_transient: false, text: "denied".into() }.into())
        }

        fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
            self.put(key, bytes).map(|()| true)
        }

        fn list_after(&self, _: &str, _: &str) -> io::Result<Vec<String>> {
            Ok(Vec::new())
        }

        fn head(&self, _: &str) -> io::Result<Option<u64>> {
            Ok(None)
        }

        fn delete(&self, key: &str) -> io::Result<()> {
            self.put(key, b"")
        }
    }

    #[test]
    fn the_error_of_a_creator_is_reported() {
        assert_eq!(check(&Denying).unwrap_err().to_string(), "denied");
    }

    /// A server that ignores If-None-Match.
    struct Overwriting(MemoryStore);

    impl ObjectStore for Overwriting {
        fn get(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
            self.0.get(key, range)
        }

        fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
            self.0.put(key, bytes)
        }

        fn create(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
            self.0.put(key, bytes).map(|()| true)
        }

        fn list_after(&self, prefix: &str, after: &str) -> io::Result<Vec<String>> {
            self.0.list_after(prefix, after)
        }

        fn head(&self, key: &str) -> io::Result<Option<u64>> {
            self.0.head(key)
        }

        fn delete(&self, key: &str) -> io::Result<()> {
            self.0.delete(key)
        }
    }

    #[test]
    fn only_stores_that_create_once_pass() {
        let store = MemoryStore::default();
        check(&store).unwrap();
        assert_eq!(store.keys(), Vec::<String>::new());
        let refused = check(&Overwriting(MemoryStore::default())).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
