//! Bandwidth limits of streams: `filter bwlim-in` and `filter bwlim-out`.
//!
//! A limiter stores the time until which the bytes so far use up the limit. Each grant adds the time that its
//! bytes take, and the next grant waits for that time. A stream that was idle or woken late may catch up by
//! one grant, not more. So in any interval `t` a stream forwards at most `limit * t / period` bytes plus two
//! [grants](Bandwidth::grant), and one grant if the interval begins with its first byte.
//!
//! Streams that share a limit store this time in a stick table entry: each reserves its grants there, and
//! forwards a grant when its time has come. Together they have the limit, and streams that always have data
//! get equal parts.

use super::{HeldEntry, table_millis};
use manylane_expr::DataType;
use manylane_plan::Side;
use manylane_plan::generation::{Bandwidth, FilterId};
use manylane_sched::Time;
use std::cell::RefCell;

/// Limits one direction of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limiter {
    /// Until this time the bytes so far use up the limit.
    paid: Time,
}

impl Limiter {
    /// Returns a limiter that begins `now`.
    pub(crate) fn new(now: Time) -> Self {
        Self { paid: now }
    }

    /// Returns how many of `there` bytes may be forwarded now, at least one.
    ///
    /// # Errors
    /// If none may: the time of the next attempt.
    fn allowed(&self, bandwidth: Bandwidth, there: usize, now: Time) -> Result<usize, Time> {
        if self.paid > now {
            return Err(self.paid);
        }
        Ok(usize::try_from(bandwidth.grant()).unwrap_or(usize::MAX).min(there))
    }

    /// Accounts for `bytes` that are forwarded now.
    fn charge(&mut self, bandwidth: Bandwidth, bytes: usize, now: Time) {
        let earliest = now.as_nanos().saturating_sub(bandwidth.cost(bandwidth.grant()));
        let paid = self.paid.as_nanos().max(earliest);
        self.paid = Time::from_nanos(paid.saturating_add(bandwidth.cost(bytes as u64)));
    }
}

/// One stream's part in a shared limit.
#[derive(Debug)]
pub struct Shared {
    entry: HeldEntry,
    sender: Side,
    /// The reserved grant.
    turn: Option<Grant>,
}

/// A reserved grant: when it begins, its bytes, and the time that they take, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Grant {
    begins: Time,
    bytes: u64,
    cost: u64,
}

impl Shared {
    /// Limits what `sender` sends by the rate in a stick table's entry.
    pub fn new(entry: HeldEntry, sender: Side) -> Self {
        Self { entry, sender, turn: None }
    }

    /// As [`Limiter::allowed`], after reserving a grant.
    fn allowed(&mut self, bandwidth: Bandwidth, there: usize, now: Time) -> Result<usize, Time> {
        let Some(entry) = self.entry.entry() else { return Ok(there) };
        let turn = self.turn.get_or_insert_with(|| {
            let (whole, bytes) = (bandwidth.grant(), bandwidth.grant().min(there as u64));
            let (cost, spare) = (bandwidth.cost(bytes), bandwidth.cost(whole));
            let begins = entry.reserve(self.sender == Side::Server, cost, spare, now.as_nanos());
            Grant { begins: Time::from_nanos(begins), bytes, cost }
        });
        if turn.begins > now {
            return Err(turn.begins);
        }
        Ok(usize::try_from(turn.bytes).unwrap_or(usize::MAX).min(there))
    }

    /// Accounts for `bytes` of the grant; the rest of it is released for other streams.
    fn charge(&mut self, bandwidth: Bandwidth, bytes: usize, now: Time) {
        self.end_turn(bandwidth.cost(bytes as u64));
        let rate = match self.sender {
            Side::Client => DataType::BytesInRate,
            Side::Server => DataType::BytesOutRate,
        };
        if let Some(entry) = self.entry.entry() {
            entry.add(rate, bytes as u64, table_millis(now));
        }
    }

    fn end_turn(&mut self, cost: u64) {
        if let (Some(turn), Some(entry)) = (self.turn.take(), self.entry.entry()) {
            entry.give_back(self.sender == Side::Server, turn.cost.saturating_sub(cost));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end_turn(0);
    }
}

/// Own or shared limit.
#[derive(Debug)]
enum Budget {
    /// The stream has the limit alone.
    Own(Limiter),
    /// The stream shares the limit.
    Shared(Shared),
}

/// A filter that a rule has enabled.
#[derive(Debug)]
struct Enabled {
    id: FilterId,
    sender: Side,
    bandwidth: Bandwidth,
    budget: Budget,
}

/// Limits of a stream, which `set-bandwidth-limit` enables. Reused for later streams: the list keeps its
/// memory.
#[derive(Debug, Default)]
pub struct Limits(RefCell<Vec<Enabled>>);

impl Limits {
    /// Disables all limits.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Enables a filter for bytes of `sender`, or changes its limit. Bytes forwarded before stay accounted
    /// for.
    pub fn set(&self, id: FilterId, sender: Side, bandwidth: Bandwidth, now: Time) {
        let mut list = self.0.borrow_mut();
        match list.iter_mut().find(|enabled| enabled.id == id) {
            Some(enabled) => enabled.bandwidth = bandwidth,
            None => list.push(Enabled { id, sender, bandwidth, budget: Budget::Own(Limiter::new(now)) }),
        }
    }

    /// Returns true if a rule has enabled this filter.
    pub fn has(&self, id: FilterId) -> bool {
        self.0.borrow().iter().any(|enabled| enabled.id == id)
    }

    /// Enables a filter whose limit is shared with other streams.
    pub fn share(&self, id: FilterId, bandwidth: Bandwidth, shared: Shared) {
        let sender = shared.sender;
        self.0.borrow_mut().push(Enabled { id, sender, bandwidth, budget: Budget::Shared(shared) });
    }

    /// Returns true if bytes of `sender` are limited.
    pub fn bound(&self, sender: Side) -> bool {
        self.0.borrow().iter().any(|enabled| enabled.sender == sender)
    }

    /// Returns how many of `there` bytes of `sender` may be forwarded now, at least one, and accounts for
    /// them.
    ///
    /// # Errors
    /// If none may: the time of the next attempt.
    pub fn take(&self, sender: Side, there: usize, now: Time) -> Result<usize, Time> {
        let mut list = self.0.borrow_mut();
        let mut bytes = there;
        for enabled in list.iter_mut().filter(|enabled| enabled.sender == sender) {
            bytes = match &mut enabled.budget {
                Budget::Own(limiter) => limiter.allowed(enabled.bandwidth, bytes, now)?,
                Budget::Shared(shared) => shared.allowed(enabled.bandwidth, bytes, now)?,
            };
        }
        for enabled in list.iter_mut().filter(|enabled| enabled.sender == sender) {
            match &mut enabled.budget {
                Budget::Own(limiter) => limiter.charge(enabled.bandwidth, bytes, now),
                Budget::Shared(shared) => shared.charge(enabled.bandwidth, bytes, now),
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const FIRST: FilterId = FilterId { proxy: 1, index: 0 };
    const SECOND: FilterId = FilterId { proxy: 1, index: 1 };

    fn bandwidth() -> impl Strategy<Value = Bandwidth> {
        let limit = prop_oneof![1..100_u32, 1000..2_000_000_u32, any::<u32>().prop_map(|limit| limit.max(1))];
        let period =
            prop_oneof![1..50_u64, 900..1100_u64, 1..100_000_000_u64].prop_map(Duration::from_millis);
        let min_size = prop_oneof![Just(0_u32), 1..10_000_u32, any::<u32>()];
        (limit, period, min_size).prop_map(|(limit, period, min_size)| Bandwidth { limit, period, min_size })
    }

    /// Actions of a stream: bytes that are there, and nanoseconds by which it is late or idle.
    fn steps() -> impl Strategy<Value = Vec<(usize, u64)>> {
        let there = prop_oneof![1..2000_usize, 1..10_000_000_usize];
        let late = prop_oneof![Just(0_u64), 0..3_000_000_u64, 0..100_000_000_000_u64];
        prop::collection::vec((there, late), 1..60)
    }

    /// Bytes of `bandwidth` in `nanoseconds`, rounded up.
    fn at_most(bandwidth: Bandwidth, nanoseconds: u64) -> u128 {
        (u128::from(nanoseconds) * u128::from(bandwidth.limit)).div_ceil(bandwidth.period.as_nanos())
    }

    proptest! {
        #[test]
        fn no_span_of_time_has_more_bytes_than_its_limit_and_two_grants(
            bandwidth in bandwidth(),
            steps in steps(),
        ) {
            let limits = Limits::default();
            let begun = Time::from_nanos(1 << 40);
            let (mut now, mut passed) = (begun, Vec::new());
            limits.set(FIRST, Side::Server, bandwidth, now);
            for (there, late) in steps {
                let bytes = match limits.take(Side::Server, there, now) {
                    Ok(bytes) => bytes,
                    Err(then) => {
                        prop_assert!(then > now);
                        now = Time::from_nanos(then.as_nanos() + late);
                        limits.take(Side::Server, there, now).expect("it is woken when it may go on")
                    }
                };
                prop_assert!((1..=there).contains(&bytes) && bytes as u64 <= bandwidth.grant());
                passed.push((now, bytes as u128));
            }
            for (at, (from, _)) in passed.iter().enumerate() {
                let mut sum = 0;
                for (to, bytes) in &passed[at..] {
                    sum += bytes;
                    let span = to.as_nanos() - from.as_nanos();
                    let spare = if at == 0 { 1 } else { 2 };
                    prop_assert!(sum <= at_most(bandwidth, span) + spare * u128::from(bandwidth.grant()));
                }
            }
        }

        #[test]
        fn who_always_has_bytes_and_is_never_late_gets_all_that_the_limit_allows(bandwidth in bandwidth()) {
            let limits = Limits::default();
            let mut now = Time::from_nanos(1 << 40);
            let (begun, mut sum, mut grants) = (now, 0_u128, 0_u64);
            limits.set(FIRST, Side::Client, bandwidth, now);
            for _ in 0..100 {
                match limits.take(Side::Client, usize::MAX, now) {
                    Ok(bytes) => (sum, grants) = (sum + bytes as u128, grants + 1),
                    Err(then) => now = then,
                }
            }
            // Each grant's cost is rounded up by less than a nanosecond.
            let span = (now.as_nanos() - begun.as_nanos()).saturating_sub(grants);
            prop_assert!(sum + 1 >= at_most(bandwidth, span));
        }

        #[test]
        fn of_several_filters_the_slowest_says_when_and_all_are_paid(
            one in bandwidth(),
            other in bandwidth(),
            steps in steps(),
        ) {
            let (both, alone) = (Limits::default(), [Limits::default(), Limits::default()]);
            let mut now = Time::from_nanos(1 << 40);
            both.set(FIRST, Side::Client, one, now);
            both.set(SECOND, Side::Client, other, now);
            alone[0].set(FIRST, Side::Client, one, now);
            alone[1].set(SECOND, Side::Client, other, now);
            for (there, late) in steps {
                match both.take(Side::Client, there, now) {
                    Ok(bytes) => {
                        for own in &alone {
                            prop_assert_eq!(own.take(Side::Client, bytes, now), Ok(bytes));
                        }
                    }
                    Err(then) => now = Time::from_nanos(then.as_nanos() + late),
                }
            }
        }
    }

    #[test]
    fn a_limit_is_of_its_direction_and_the_last_rule_counts() {
        let limits = Limits::default();
        let now = Time::from_nanos(1 << 40);
        let bandwidth = Bandwidth { limit: 100_000, period: Duration::from_secs(1), min_size: 0 };
        limits.set(FIRST, Side::Server, bandwidth, now);
        assert!(limits.bound(Side::Server) && !limits.bound(Side::Client));
        assert_eq!(limits.take(Side::Client, 50_000, now), Ok(50_000));
        assert_eq!(limits.take(Side::Server, 50_000, now), Ok(16_384), "a buffer");
        let later = now + Duration::from_micros(163_840);
        assert_eq!(limits.take(Side::Server, 50_000, now), Err(later));
        let bandwidth = Bandwidth { limit: 200_000, min_size: 20_000, ..bandwidth };
        limits.set(FIRST, Side::Server, bandwidth, now);
        assert_eq!(limits.take(Side::Server, 50_000, now), Err(later), "what went on stays paid for");
        assert_eq!(limits.take(Side::Server, 50_000, later), Ok(20_000), "min-size");
        assert_eq!(limits.take(Side::Server, 50_000, later), Err(later + Duration::from_millis(100)));
        limits.clear();
        assert_eq!(limits.take(Side::Server, 50_000, later), Ok(50_000));
    }

    #[test]
    fn no_grant_is_above_the_limit_and_none_is_of_no_bytes() {
        let of = |limit, period, min_size| {
            Bandwidth { limit, period: Duration::from_millis(period), min_size }.grant()
        };
        assert_eq!(of(100_000, 1000, 0), 16_384);
        assert_eq!(of(1_000_000, 1000, 2896), 50_000);
        assert_eq!(of(100_000, 1000, 20_000), 20_000);
        assert_eq!(of(1000, 1000, 16_384), 1000);
        assert_eq!(of(1, 86_400_000, 0), 1);
        assert_eq!(of(1000, 10, 0), 1000);
    }
}
