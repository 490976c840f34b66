//! Bandwidth limits of filters, and the sizes of their grants.

use std::time::Duration;

/// A grant has at least the bytes that the limit allows in this time, so a stream wakes up about 20 times a
/// second at most.
const GRANT: Duration = Duration::from_millis(50);

/// A grant has at least this many bytes, if the limit allows: HAProxy grants what a buffer holds, so that
/// small messages are not delayed.
const BUFFER: u32 = 16_384;

/// A bandwidth limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bytes per period, above 0.
    pub limit: u32,
    /// Period, above 0.
    pub period: Duration,
    /// Bytes that a grant has at least, as far as the limit allows.
    pub min_size: u32,
}

impl Bandwidth {
    /// Returns the size of a grant, in bytes: at most the bytes of a whole period.
    pub fn grant(self) -> u64 {
        let (limit, period) = (u128::from(self.limit), self.period.as_nanos().max(1));
        let usual = limit * GRANT.as_nanos() / period;
        let least = u128::from(self.min_size.max(BUFFER));
        usual.max(least).min(limit.max(1)) as u64 // `limit` is less than 2^32
    }

    /// Returns the time that `bytes` take, in nanoseconds, rounded up.
    pub fn cost(self, bytes: u64) -> u64 {
        let cost = (u128::from(bytes) * self.period.as_nanos()).div_ceil(u128::from(self.limit.max(1)));
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

/// Identifies a filter of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterId {
    /// Number of the proxy in the file, from 1.
    pub proxy: u32,
    /// Index among the filters of the proxy.
    pub index: u32,
}
