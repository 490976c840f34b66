//! A log-linear histogram of 64-bit values with a bounded relative error, in a few kilobytes a lane.
//!
//! Each power of two is cut into 2^`BITS` equal buckets, as HdrHistogram does. Values below 2^(`BITS`+1) have
//! a bucket each.

use crate::read::{self, StillCounting};
use crate::tally::Tally;
use manylane_sync::{LaneId, PerLane};

/// A named histogram of `u64` values with a slot for each lane.
///
/// Every value that a snapshot returns is the middle of a bucket, except for the smallest and the largest,
/// which are exact. So it is within 2^-(`BITS`+1) of the recorded value: 1.6 % with the default of 5 bits.
/// `BITS` is 1 to 10.
///
/// # Cost
/// `record`: the lookup of the lane's slot, a count of leading zeros, one addition; 0 line transfers in
/// steady state. Memory: (65 - `BITS`) x 2^`BITS` x 8 bytes a lane that recorded: 15 KiB with 5 bits.
///
/// ```
/// use manylane_stats::Histogram;
/// let latency: Histogram = Histogram::new("latency, us");
/// (1..=1000).for_each(|us| latency.record(us));
/// let snapshot = latency.read_cheap();
/// assert!(snapshot.quantile(0.99).unwrap().abs_diff(990) <= 990 / 64);
/// assert_eq!((snapshot.count(), snapshot.min(), snapshot.max()), (1000, Some(1), Some(1000)));
/// ```
#[derive(Debug)]
pub struct Histogram<const BITS: u32 = 5> {
    name: &'static str,
    slots: PerLane<Slot<BITS>>,
}

/// Written in this order by `record`, read in the opposite order (rule 3): a value in its bucket is also
/// within the extremes.
#[derive(Debug)]
struct Slot<const BITS: u32> {
    /// The smallest value, inverted, so that 0 means none and both extremes only grow (rule 4).
    inverted_min: Tally,
    max: Tally,
    buckets: Box<[Tally]>,
}

impl<const BITS: u32> Histogram<BITS> {
    const BITS_IN_RANGE: () = assert!(BITS >= 1 && BITS <= 10, "a histogram has 1 to 10 bits of precision");
    const BUCKETS: usize = bucket_of::<BITS>(u64::MAX) + 1;

    crate::const_fn! {
        /// Creates an empty histogram. The name should contain the unit.
        pub fn new(name: &'static str) -> Self {
            const { Self::BITS_IN_RANGE };
            Self { name, slots: PerLane::new(|_| Slot::new(Self::BUCKETS)) }
        }
    }

    /// Returns the name for reports.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Counts `value` on the calling lane.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn record(&self, value: u64) {
        let slot = self.slots.own();
        if slot.inverted_min.get() < !value {
            slot.inverted_min.set(!value);
        }
        if slot.max.get() < value {
            slot.max.set(value);
        }
        slot.buckets[bucket_of::<BITS>(value)].add(1);
    }

    /// Copies the values of all lanes while they go on: those recorded before the call, and possibly some
    /// recorded during it.
    pub fn read_cheap(&self) -> HistogramSnapshot<BITS> {
        let mut all = HistogramSnapshot::new();
        self.lanes().iter().for_each(|(_, lane)| all.merge(lane));
        all
    }

    /// Returns the values that all lanes had recorded at one moment during the call.
    ///
    /// # Errors
    /// [`StillCounting`] if lanes kept recording at every attempt.
    pub fn read_exact(&self) -> Result<HistogramSnapshot<BITS>, StillCounting> {
        let mut all = HistogramSnapshot::new();
        read::exact(|| self.lanes())?.iter().for_each(|(_, lane)| all.merge(lane));
        Ok(all)
    }

    /// Returns each lane's own part, while the lanes go on.
    pub fn lanes(&self) -> Vec<(LaneId, HistogramSnapshot<BITS>)> {
        self.slots.iter().map(|(lane, slot)| (lane, slot.read())).collect()
    }
}

impl<const BITS: u32> Slot<BITS> {
    fn new(buckets: usize) -> Self {
        Self {
            inverted_min: Tally::new(),
            max: Tally::new(),
            buckets: (0..buckets).map(|_| Tally::new()).collect(),
        }
    }

    fn read(&self) -> HistogramSnapshot<BITS> {
        let buckets: Vec<u64> = self.buckets.iter().map(Tally::get).collect();
        HistogramSnapshot {
            count: buckets.iter().fold(0, |sum, n| sum.wrapping_add(*n)),
            buckets,
            // The value u64::MAX is inverted to 0, which is right: it is the initial minimum, too.
            min: !self.inverted_min.get(),
            max: self.max.get(),
        }
    }
}

/// Returns the bucket of `value`.
#[inline]
const fn bucket_of<const BITS: u32>(value: u64) -> usize {
    // The exponent of values below 2^(BITS+1) counts as 0: one bucket a value.
    let exponent = (value | 1 << BITS).ilog2() - BITS;
    ((exponent as usize) << BITS) + (value >> exponent) as usize
}

/// Returns the smallest value of a bucket, and its number of values.
const fn range_of<const BITS: u32>(bucket: usize) -> (u64, u64) {
    let exponent = ((bucket >> BITS) as u32).saturating_sub(1);
    let mantissa = bucket as u64 - ((exponent as u64) << BITS);
    (mantissa << exponent, 1 << exponent)
}

/// The recorded values of a histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot<const BITS: u32 = 5> {
    buckets: Vec<u64>,
    count: u64,
    min: u64,
    max: u64,
}

impl<const BITS: u32> HistogramSnapshot<BITS> {
    /// Creates a snapshot without values.
    pub fn new() -> Self {
        Self { buckets: vec![0; Histogram::<BITS>::BUCKETS], count: 0, min: u64::MAX, max: 0 }
    }

    /// Adds the values of `other`, as if both had been one histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.wrapping_add(*theirs);
        }
        self.count = self.count.wrapping_add(other.count);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Returns the number of recorded values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the exact smallest value; none without values.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// Returns the exact largest value; none without values.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// Returns the mean, within the relative error of the histogram; none without values.
    ///
    /// It comes from the buckets, since a sum would overflow with large values.
    pub fn mean(&self) -> Option<f64> {
        let weighted = |(bucket, n): (usize, &u64)| self.middle(bucket) as f64 * *n as f64;
        let sum: f64 = self.buckets.iter().enumerate().filter(|(_, n)| **n > 0).map(weighted).sum();
        (self.count > 0).then(|| sum / self.count as f64)
    }

    /// Returns the smallest value that at least the fraction `q` of all values does not exceed, within the
    /// relative error of the histogram; none without values. `q` is clamped to 0.0 to 1.0.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count);
        if rank == self.count {
            return Some(self.max);
        }
        if rank == 1 {
            return Some(self.min);
        }
        let mut passed = 0;
        for (bucket, n) in self.buckets.iter().enumerate() {
            passed += n;
            if passed >= rank {
                return Some(self.middle(bucket));
            }
        }
        Some(self.max)
    }

    /// Iterates over the buckets with values: smallest value, largest value, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.buckets.iter().enumerate().filter(|(_, n)| **n > 0).map(|(bucket, n)| {
            let (low, width) = range_of::<BITS>(bucket);
            (low, low + (width - 1), *n)
        })
    }

    /// Returns the representative of `bucket`: its middle, within the extremes.
    fn middle(&self, bucket: usize) -> u64 {
        let (low, width) = range_of::<BITS>(bucket);
        (low + width / 2).clamp(self.min, self.max)
    }
}

impl<const BITS: u32> Default for HistogramSnapshot<BITS> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap_from_0_to_the_largest_value() {
        fn check<const BITS: u32>() {
            let mut next = 0;
            for bucket in 0..Histogram::<BITS>::BUCKETS {
                let (low, width) = range_of::<BITS>(bucket);
                assert_eq!(low, next, "bucket {bucket} of {BITS} bits");
                let high = low + (width - 1);
                assert_eq!((bucket_of::<BITS>(low), bucket_of::<BITS>(high)), (bucket, bucket));
                assert!(width == 1 || low / width >= 1 << BITS, "bucket {bucket} is too wide");
                next = high.wrapping_add(1);
            }
            assert_eq!(next, 0, "the last bucket ends with the largest value");
        }
        check::<1>();
        check::<5>();
        check::<10>();
    }

    #[test]
    fn an_empty_histogram_has_no_values() {
        let snapshot = Histogram::<5>::new("test").read_cheap();
        assert_eq!(snapshot.count(), 0);
        assert_eq!((snapshot.min(), snapshot.max(), snapshot.quantile(0.5)), (None, None, None));
        assert_eq!(snapshot.mean(), None);
        assert_eq!(snapshot.buckets().count(), 0);
    }

    #[test]
    fn the_extreme_values_are_recorded_exactly() {
        let histogram = Histogram::<5>::new("test");
        histogram.record(u64::MAX);
        let one = histogram.read_cheap();
        assert_eq!(
            (one.min(), one.max(), one.quantile(0.5)),
            (Some(u64::MAX), Some(u64::MAX), Some(u64::MAX))
        );
        histogram.record(0);
        let both = histogram.read_exact().expect("nobody records");
        assert_eq!((both.min(), both.max(), both.count()), (Some(0), Some(u64::MAX), 2));
        assert_eq!(both.buckets().next(), Some((0, 0, 1)));
    }
}
