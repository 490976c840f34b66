//! How many bytes a filter lets through in a time.

use std::time::Duration;

/// One grant has at least the bytes of this time: 20 wake-ups a second are little work.
const GRANT: Duration = Duration::from_millis(50);

/// One grant has at least so many bytes, as HAProxy grants what a buffer has: a small message goes at once.
const BUFFER: u32 = 16_384;

/// How many bytes go on in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bytes a period, above 0.
    pub limit: u32,
    /// Above 0.
    pub period: Duration,
    /// So many bytes are granted at once at least, as far as the limit allows.
    pub min_size: u32,
}

impl Bandwidth {
    /// Bytes that go on at once at most: never more than a whole period's.
    pub fn grant(self) -> u64 {
        let (limit, period) = (u128::from(self.limit), self.period.as_nanos().max(1));
        let usual = limit * GRANT.as_nanos() / period;
        let least = u128::from(self.min_size.max(BUFFER));
        usual.max(least).min(limit.max(1)) as u64 // `limit` is less than 2^32
    }

    /// Nanoseconds that so many bytes take, rounded up.
    pub fn cost(self, bytes: u64) -> u64 {
        let cost = (u128::from(bytes) * self.period.as_nanos()).div_ceil(u128::from(self.limit.max(1)));
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

/// Which filter of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterId {
    /// Number of its proxy in the file.
    pub proxy: u32,
    /// Number among the filters of the proxy.
    pub index: u32,
}
