//! Proves that a store creates an object once: containers rely on nothing else.

use super::ObjectStore;
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
        let removed = store.delete(&key).or_else(|_| store.delete(&key));
        match outcome {
            Ok(1) => {
                removed?;
                round += 1;
            }
            Ok(n) if n > 1 => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            // A request failed, or its reply was lost: the round proves nothing.
            Err(e) if failures == FAILURES_MAX || !matches!(e.raw_os_error(), Some(libc::EIO | libc::ETIMEDOUT)) => return Err(e),
            Ok(_) if failures == FAILURES_MAX => return Err(io::Error::from_raw_os_error(libc::EIO)),
            Ok(_) | Err(_) => failures += 1,
        }
    }
    Ok(())
}

/// Number of concurrent creators of `key` that succeeded; more than there are if other bytes than
/// theirs are there.
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
    let stored = store.get(key, 0..2)?;
    for result in results {
        if result?.is_some_and(|number| stored != [number]) {
            return Ok(u32::MAX);
        }
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
