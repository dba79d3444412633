//! Measurements of this process: how often operations ran, how long they took, how they failed.
//!
//! They are sums since the process began, as Prometheus wants counters and histograms.

use crate::base::locks::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Upper bounds of the buckets of a histogram, nanoseconds. A last bucket has no bound.
pub const BOUNDS_NS: [u64; 7] = [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];
const BUCKETS: usize = BOUNDS_NS.len() + 1;

/// Requests of the kernel, by operation.
pub static OPERATIONS: Family = Family::new();
/// Requests of the kernel that failed, by operation and error.
pub static ERRORS: Counters = Counters(RwLock::new(BTreeMap::new()));
/// Filters that decoded a chunk, by filter.
pub static DECODED: Family = Family::new();
/// Commits, by result.
pub static COMMITS: Family = Family::new();
/// Bytes that reads returned.
pub static READ_BYTES: AtomicU64 = AtomicU64::new(0);
/// Bytes that writes took.
pub static WRITTEN_BYTES: AtomicU64 = AtomicU64::new(0);

/// How long something took, each time.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

/// Values of a histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// How often it took at most as long as each bound of [`BOUNDS_NS`], and how often in all.
    pub up_to: [u64; BUCKETS],
    /// Duration of all together, nanoseconds.
    pub nanoseconds: u64,
}

impl Histogram {
    fn record(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get(BOUNDS_NS.partition_point(|bound| *bound < ns)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.nanoseconds.fetch_add(ns, Ordering::Relaxed);
    }

    fn sample(&self) -> Sample {
        let mut up_to = [0; BUCKETS];
        let mut sum = 0u64;
        for (value, bucket) in up_to.iter_mut().zip(&self.buckets) {
            sum = sum.saturating_add(bucket.load(Ordering::Relaxed));
            *value = sum;
        }
        Sample { up_to, nanoseconds: self.nanoseconds.load(Ordering::Relaxed) }
    }
}

/// Histograms of one measurement, by name.
#[derive(Debug)]
pub struct Family(RwLock<BTreeMap<&'static str, Arc<Histogram>>>);

impl Family {
    const fn new() -> Self {
        Family(RwLock::new(BTreeMap::new()))
    }

    /// Records that `name` took from `begun` until now.
    pub fn record(&self, name: &'static str, begun: Instant) {
        let took = begun.elapsed();
        if let Some(histogram) = self.0.read().get(name) {
            return histogram.record(took);
        }
        self.0.write().entry(name).or_default().record(took);
    }

    /// All histograms, by name.
    pub fn samples(&self) -> Vec<(&'static str, Sample)> {
        self.0.read().iter().map(|(name, histogram)| (*name, histogram.sample())).collect()
    }
}

/// Counters by two labels: a name and a number.
#[derive(Debug)]
pub struct Counters(RwLock<BTreeMap<(&'static str, i32), Arc<AtomicU64>>>);

impl Counters {
    /// Adds one.
    pub fn add(&self, name: &'static str, number: i32) {
        if let Some(counter) = self.0.read().get(&(name, number)) {
            counter.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.0.write().entry((name, number)).or_default().fetch_add(1, Ordering::Relaxed);
    }

    /// All counters, by their labels.
    pub fn values(&self) -> Vec<(&'static str, i32, u64)> {
        self.0.read().iter().map(|((name, number), n)| (*name, *number, n.load(Ordering::Relaxed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_buckets() {
        let histogram = Histogram::default();
        for us in [5, 10, 11, 999, 1_000_000, 20_000_000] {
            histogram.record(Duration::from_micros(us));
        }
        let sample = histogram.sample();
        assert_eq!((sample.up_to, sample.nanoseconds), ([2, 3, 4, 4, 4, 5, 5, 6], 21_001_025_000));
        let family = Family::new();
        let begun = Instant::now();
        ["b", "a", "b"].into_iter().for_each(|name| family.record(name, begun));
        let counts: Vec<_> = family.samples().into_iter().map(|(name, s)| (name, s.up_to[7])).collect();
        assert_eq!(counts, [("a", 1), ("b", 2)]);
    }
}
