//! A hierarchical timing wheel (G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels*, 1987) with
//! two changes: timers move down *before* they are due, and a postponed timer stays in its place.
//!
//! # Layout
//! Ticks are milliseconds. Each level has 256 buckets; a bucket of level n spans 128^n ticks:
//!
//! | level | bucket | reach |
//! |---|---|---|
//! | 0 | 1 ms | 256 ms |
//! | 1 | 128 ms | 32.8 s |
//! | 2 | 16.4 s | 70 min |
//! | 3 | 35 min | 6.2 days |
//!
//! A timer beyond that waits in the last bucket and is placed again from there. Each bucket is a ring of
//! nodes with a sentinel, so a node leaves its ring without knowing which ring it is, and a whole ring moves
//! in constant time.
//!
//! # Protocol
//! 1. A bucket of level n spans half of the reach of level n-1. So its timers fit there from one whole span
//!    before the bucket begins; they move half a span before. That leaves enough time to move many timers
//!    without making one late.
//! 2. A bucket that is due, or has to move down, goes as a whole to its level's ring for that purpose. The
//!    wheel takes a bounded number of timers from these rings, from the lowest level first: timers from
//!    higher levels have more time left.
//! 3. A timer that is taken fires if its deadline has come; otherwise it is placed by its deadline. So moving
//!    a deadline later is one store; moving it earlier is a change of ring.
//! 4. No timer fires early: deadlines are rounded up to ticks, the time is rounded down.
//!
//! # Cost
//! Arming, cancelling: two links, a bit. Moving later: a store. A timer that waits for d moves at most
//! log128(d) times. Finding the next: a bitmap of 256 bits for each level. Memory: 40 bytes a timer, in
//! chunks that never move.

use crate::chunks::{Chunks, Fresh};
use crate::own::Own;
use crate::slot::NIL;
use crate::time::Time;
use manylane_sync::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::task::Waker;

/// Models have a small wheel, so that they reach its edges.
const LEVELS: u32 = if cfg!(loom) { 2 } else { 4 };
const BUCKETS: u32 = if cfg!(loom) { 4 } else { 256 };
/// Bits by which a level's span exceeds that of the level below (rule 1).
const STEP: u32 = BUCKETS.ilog2() - 1;
/// First sentinel after those of the buckets: the ring of due timers. Sentinels are the first nodes.
const DUE: u32 = LEVELS * BUCKETS;
/// Number of sentinels. Timers that are to move down from level n are in the ring `DUE + n`.
const SENTINELS: u32 = DUE + LEVELS;
const NANOS: u64 = 1_000_000;

/// Returns the first tick at which `deadline` has passed (rule 4).
pub(crate) fn deadline_tick(deadline: Time) -> u64 {
    deadline.as_nanos().div_ceil(NANOS)
}

/// A timer, or a ring's sentinel.
#[repr(C)]
struct Node {
    next: Own<u32>,
    prev: Own<u32>,
    /// Tick at which to fire, not before the bucket that holds the node.
    deadline: Own<u64>,
    /// Initialised while the state is `LINKED`.
    waker: UnsafeCell<MaybeUninit<Waker>>,
    state: Own<u8>,
}

const IDLE: u8 = 0;
const LINKED: u8 = 1;
const FIRED: u8 = 2;

// SAFETY: zero bytes are numbers of zero and an uninitialised waker.
unsafe impl Fresh for Node {
    #[cfg(loom)]
    fn fresh() -> Self {
        Self {
            next: Own::new(0),
            prev: Own::new(0),
            deadline: Own::new(0),
            waker: UnsafeCell::new(MaybeUninit::uninit()),
            state: Own::new(IDLE),
        }
    }
}

/// The wheel of a lane, for its owner only.
pub(crate) struct Wheel {
    nodes: Chunks<Node>,
    /// Number of nodes that exist.
    fresh: Own<u32>,
    /// First of the free nodes.
    free: Own<u32>,
    /// All ticks up to this one are due, or have fired.
    time: Own<u64>,
    /// Number of linked timers.
    armed: Own<u32>,
    /// Bitmap of the buckets that may hold timers: a set bit may be stale, a clear one never is.
    bits: [[Own<u64>; 4]; LEVELS as usize],
    /// Tick at which the first bucket needs attention, or [`UNKNOWN`]: the lane asks in each of its rounds.
    attention: Own<u64>,
}

/// No tick was computed yet, or the last one has passed.
const UNKNOWN: u64 = 0;

impl Wheel {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Chunks::new(),
            fresh: Own::new(0),
            free: Own::new(NIL),
            time: Own::new(0),
            armed: Own::new(0),
            bits: std::array::from_fn(|_| std::array::from_fn(|_| Own::new(0))),
            attention: Own::new(UNKNOWN),
        }
    }

    fn node(&self, index: u32) -> &Node {
        // SAFETY: indices come from `take_node` and from links, or are sentinels, which exist once the first
        // node does.
        unsafe { self.nodes.at(index) }
    }

    /// Restarts the time for a new owner, who may have another clock. Timers that outlived the old owner keep
    /// it.
    pub(crate) fn restart(&self) {
        if self.armed.get() == 0 {
            self.time.set(0);
            self.attention.set(UNKNOWN);
        }
    }

    /// Takes a node for a timer; none if there is no memory.
    pub(crate) fn take_node(&self) -> Option<u32> {
        let free = self.free.get();
        if free != NIL {
            self.free.set(self.node(free).next.get());
            return Some(free);
        }
        self.fresh_node()
    }

    #[cold]
    fn fresh_node(&self) -> Option<u32> {
        loop {
            let index = self.fresh.get();
            if !self.nodes.reach(index) {
                return None;
            }
            self.fresh.set(index + 1);
            if index >= SENTINELS {
                return Some(index);
            }
            let sentinel = self.node(index);
            sentinel.next.set(index);
            sentinel.prev.set(index);
        }
    }

    /// Returns a node to the free list. The caller drops the returned waker.
    pub(crate) fn give_node(&self, index: u32) -> Option<Waker> {
        let waker = self.disarm(index);
        let node = self.node(index);
        node.state.set(IDLE);
        node.next.set(self.free.replace(index));
        waker
    }

    /// Arms an idle or fired timer.
    pub(crate) fn arm(&self, index: u32, deadline: u64, waker: Waker) {
        let node = self.node(index);
        debug_assert!(node.state.get() != LINKED);
        // SAFETY: the state shows that there is no waker; no other thread touches the wheel.
        node.waker.with_mut(|slot| unsafe { (*slot).write(waker) });
        node.state.set(LINKED);
        node.deadline.set(deadline);
        self.armed.set(self.armed.get() + 1);
        self.insert(index, deadline);
    }

    /// Moves the deadline of an armed timer (rule 3).
    pub(crate) fn postpone(&self, index: u32, deadline: u64) {
        let node = self.node(index);
        let before = node.deadline.replace(deadline);
        if deadline < before && node.state.get() == LINKED {
            self.unlink(node);
            self.insert(index, deadline);
        }
    }

    /// Replaces the waker of an armed timer, and returns the old one.
    pub(crate) fn set_waker(&self, index: u32, waker: Waker) -> Waker {
        // SAFETY: armed, so there is a waker; no other thread touches the wheel.
        self.node(index).waker.with_mut(|slot| unsafe { std::mem::replace((*slot).assume_init_mut(), waker) })
    }

    /// True if the armed timer would wake `waker`.
    pub(crate) fn wakes(&self, index: u32, waker: &Waker) -> bool {
        // SAFETY: armed, so there is a waker; the comparison calls back into nothing.
        self.node(index).waker.with(|slot| unsafe { (*slot).assume_init_ref().will_wake(waker) })
    }

    pub(crate) fn is_armed(&self, index: u32) -> bool {
        self.node(index).state.get() == LINKED
    }

    /// Removes a timer from the wheel; returns its waker if it was armed.
    fn disarm(&self, index: u32) -> Option<Waker> {
        let node = self.node(index);
        (node.state.get() == LINKED).then(|| {
            self.unlink(node);
            self.expired(node)
        })
    }

    /// Takes the waker out of a timer that was just unlinked.
    fn expired(&self, node: &Node) -> Waker {
        node.state.set(FIRED);
        self.armed.set(self.armed.get() - 1);
        // SAFETY: it was linked, so there is a waker; from here on the state says that there is none.
        node.waker.with(|waker| unsafe { (*waker).assume_init_read() })
    }

    fn unlink(&self, node: &Node) {
        let (next, prev) = (node.next.get(), node.prev.get());
        self.node(prev).next.set(next);
        self.node(next).prev.set(prev);
    }

    fn link(&self, ring: u32, index: u32) {
        let (sentinel, node) = (self.node(ring), self.node(index));
        let last = sentinel.prev.replace(index);
        node.prev.set(last);
        node.next.set(ring);
        self.node(last).next.set(index);
    }

    /// Links a node into the finest level that reaches its deadline.
    fn insert(&self, index: u32, deadline: u64) {
        let time = self.time.get();
        if deadline <= time {
            return self.link(DUE, index);
        }
        for level in 0..LEVELS {
            let shift = STEP * level;
            let distance = (deadline >> shift) - (time >> shift);
            if distance < u64::from(BUCKETS) || level == LEVELS - 1 {
                let ahead = (time >> shift) + distance.min(u64::from(BUCKETS) - 1);
                let bucket = ahead as u32 % BUCKETS;
                let word = &self.bits[level as usize][bucket as usize / 64];
                word.set(word.get() | 1 << (bucket % 64));
                self.attention.set(self.attention.get().min(Self::attention(level, ahead)));
                return self.link(level * BUCKETS + bucket, index);
            }
        }
    }

    /// Moves a whole bucket to the end of another ring, in constant time.
    fn splice(&self, level: u32, bucket: u32, to: u32) {
        let word = &self.bits[level as usize][bucket as usize / 64];
        word.set(word.get() & !(1 << (bucket % 64)));
        let from = level * BUCKETS + bucket;
        let (source, target) = (self.node(from), self.node(to));
        let (first, last) = (source.next.replace(from), source.prev.replace(from));
        if first == from {
            return; // all its timers were cancelled
        }
        let before = target.prev.replace(last);
        self.node(before).next.set(first);
        self.node(first).prev.set(before);
        self.node(last).next.set(to);
    }

    /// Returns the first bucket of `level`, from number `from` on and within a turn, that may hold timers.
    fn next_bucket(&self, level: u32, from: u64) -> Option<u64> {
        let words = &self.bits[level as usize];
        // Most levels are empty.
        if words.iter().fold(0, |any, word| any | word.get()) == 0 {
            return None;
        }
        let start = from as u32 % BUCKETS;
        // The word in which the turn begins comes again at its end, for its lower bits.
        for step in 0..=4 {
            let index = (start / 64 + step) % 4;
            let mut word = words[index as usize].get();
            if step == 0 {
                word &= u64::MAX << (start % 64);
            } else if step == 4 {
                word &= !(u64::MAX << (start % 64));
            }
            if word != 0 {
                let bucket = index * 64 + word.trailing_zeros();
                return Some(from + u64::from(bucket.wrapping_sub(start) % BUCKETS));
            }
        }
        None
    }

    /// Returns the tick at which bucket `bucket` of `level` needs attention: on level 0 when it is due, on
    /// the others half a span before it begins.
    fn attention(level: u32, bucket: u64) -> u64 {
        match level {
            0 => bucket,
            _ => (bucket << (STEP * level)).saturating_sub(1 << (STEP * level - 1)),
        }
    }

    /// Returns the number of the first bucket of `level` that had no attention yet.
    fn first_bucket(&self, level: u32) -> u64 {
        if level == 0 { self.time.get() + 1 } else { self.time.get() >> (STEP * level) }
    }

    /// Sets the time to `now`, and moves buckets that are due, or have to move down, to the rings of rule 2.
    /// Fires nothing yet.
    #[inline]
    pub(crate) fn advance(&self, now: Time) {
        let now = now.as_nanos() / NANOS;
        if now > self.time.get() {
            self.advance_to(now);
        }
    }

    #[inline(never)]
    fn advance_to(&self, now: u64) {
        if self.attention.get() <= now {
            self.attention.set(UNKNOWN);
            let levels = if self.armed.get() > 0 { LEVELS } else { 0 };
            for level in 0..levels {
                let to = DUE + level;
                let mut from = self.first_bucket(level);
                // Within one turn: a bucket further on has the same number as one behind.
                let end = from + u64::from(BUCKETS);
                while let Some(bucket) = self.next_bucket(level, from)
                    && bucket < end
                    && Self::attention(level, bucket) <= now
                {
                    self.splice(level, bucket as u32 % BUCKETS, to);
                    from = bucket;
                }
            }
        }
        self.time.set(now);
    }

    /// Returns the waker of the next timer that fires now, if there is one; `budget` bounds how many timers
    /// are examined.
    pub(crate) fn next_expired(&self, budget: &mut u32) -> Option<Waker> {
        if self.fresh.get() < SENTINELS {
            return None;
        }
        while *budget > 0 {
            let index = self.first_pending()?;
            *budget -= 1;
            let node = self.node(index);
            self.unlink(node);
            let deadline = node.deadline.get();
            if deadline <= self.time.get() {
                return Some(self.expired(node));
            }
            self.insert(index, deadline);
        }
        None
    }

    /// Returns the first timer that is to fire or to move.
    fn first_pending(&self) -> Option<u32> {
        (DUE..SENTINELS)
            .map(|ring| (ring, self.node(ring).next.get()))
            .find(|(ring, first)| first != ring)
            .map(|p| p.1)
    }

    /// Returns the tick at which the first bucket needs attention; none if no bucket may hold timers.
    #[cold]
    fn first_attention(&self) -> Option<u64> {
        let of_level = |level| {
            let bucket = self.next_bucket(level, self.first_bucket(level))?;
            Some(Self::attention(level, bucket))
        };
        (0..LEVELS).filter_map(of_level).min()
    }

    /// Returns the time of the wheel's next event; none while no timer is armed. May be earlier than the
    /// first deadline.
    pub(crate) fn next_event(&self) -> Option<Time> {
        if self.armed.get() == 0 {
            return None;
        }
        if self.first_pending().is_some() {
            return Some(Time::ZERO);
        }
        if self.attention.get() == UNKNOWN {
            self.attention.set(self.first_attention()?);
        }
        Some(Time::from_millis(self.attention.get()))
    }
}

const _: () = assert!(cfg!(any(loom, manylane_sim)) || size_of::<Node>() == 40);

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Wake;

    struct Fired(AtomicU64);

    impl Wake for Fired {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn fire_all(wheel: &Wheel, now: u64) -> usize {
        wheel.advance(Time::from_millis(now));
        let mut budget = u32::MAX;
        std::iter::from_fn(|| wheel.next_expired(&mut budget)).map(Waker::wake).count()
    }

    #[test]
    fn a_timer_fires_at_its_tick_and_not_before_at_every_level() {
        for deadline in
            [1, 2, 127, 128, 255, 256, 257, 300, 32_767, 32_768, 40_000, 5_000_000, 700_000_000, 1 << 34]
        {
            for start in [0, 1, 63, 64, 127, 1_000_000] {
                let wheel = Wheel::new();
                fire_all(&wheel, start);
                let index = wheel.take_node().expect("memory");
                wheel.arm(index, start + deadline, Waker::noop().clone());
                let mut wakes = 0;
                while let Some(at) = wheel.next_event() {
                    let now = (at.as_nanos() / NANOS).max(wheel.time.get());
                    let fired = fire_all(&wheel, now);
                    assert_eq!(fired == 1, now == start + deadline, "{deadline} from {start}: at {now}");
                    wakes += 1;
                    assert!(wakes < 2_000, "{deadline} from {start}: looked at too often");
                }
                assert!(!wheel.is_armed(index));
            }
        }
    }

    /// A step of the test. Times are distances, from a millisecond to half a year; `which` picks one of the
    /// armed timers.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Arm { after: u64 },
        Move { which: Index, after: u64 },
        Cancel { which: Index },
        Pass { time: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let time = |most: u32| (0..=most, any::<u64>()).prop_map(|(bits, random)| random % (1 << bits));
        prop_oneof![
            3 => time(34).prop_map(|after| Step::Arm { after }),
            2 => (any::<Index>(), time(34)).prop_map(|(which, after)| Step::Move { which, after }),
            1 => any::<Index>().prop_map(|which| Step::Cancel { which }),
            3 => time(30).prop_map(|time| Step::Pass { time }),
        ]
    }

    proptest! {
        /// Tests arming, moving both ways, cancelling, and jumps of time.
        #[test]
        fn the_wheel_agrees_with_an_ordered_map(steps in vec(step(), 1..100)) {
            let wheel = Wheel::new();
            let fired = Arc::new(Fired(AtomicU64::new(0)));
            let mut expected: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = 0;
            let pick = |expected: &BTreeMap<u32, u64>, which: Index| {
                (!expected.is_empty()).then(|| *expected.keys().nth(which.index(expected.len())).expect("in \
                    range"))
            };
            for step in steps {
                match step {
                    Step::Arm { after } => {
                        let index = wheel.take_node().expect("memory");
                        wheel.arm(index, now + 1 + after, Waker::from(fired.clone()));
                        prop_assert_eq!(expected.insert(index, now + 1 + after), None);
                    }
                    Step::Move { which, after } => {
                        if let Some(index) = pick(&expected, which) {
                            wheel.postpone(index, now + 1 + after);
                            expected.insert(index, now + 1 + after);
                        }
                    }
                    Step::Cancel { which } => {
                        if let Some(index) = pick(&expected, which) {
                            prop_assert!(wheel.give_node(index).is_some());
                            expected.remove(&index);
                        }
                    }
                    Step::Pass { time } => {
                        now += time;
                        let before = fired.0.load(Ordering::Relaxed);
                        fire_all(&wheel, now);
                        let due: Vec<u32> =
                            expected.iter().filter(|(_, at)| **at <= now).map(|(index, _)| *index).collect();
                        prop_assert_eq!(fired.0.load(Ordering::Relaxed) - before, due.len() as u64, "now \
                            {}", now);
                        for index in due {
                            prop_assert!(!wheel.is_armed(index));
                            wheel.give_node(index);
                            expected.remove(&index);
                        }
                        if let Some(event) = wheel.next_event().filter(|_| time > 0) {
                            prop_assert!(event > Time::from_millis(now), "{:?} again at {}", event, now);
                        }
                    }
                }
                prop_assert_eq!(wheel.armed.get() as usize, expected.len());
                if let Some(first) = expected.values().min() {
                    let event = wheel.next_event().expect("something is armed").as_nanos() / NANOS;
                    prop_assert!(event <= *first, "sleeping until {} misses {}", event, first);
                }
            }
            // The wheel does not free wakers that are still armed, since it lives as long as the program.
            expected.into_keys().for_each(|index| drop(wheel.give_node(index)));
        }
    }

    #[test]
    fn moving_a_deadline_later_leaves_the_timer_where_it_is() {
        let wheel = Wheel::new();
        let index = wheel.take_node().expect("memory");
        wheel.arm(index, 10, Waker::noop().clone());
        let links = |wheel: &Wheel| (wheel.node(index).next.get(), wheel.node(index).prev.get());
        let before = links(&wheel);
        wheel.postpone(index, 100_000);
        assert_eq!(links(&wheel), before);
        assert_eq!(fire_all(&wheel, 99_999), 0);
        assert_eq!(fire_all(&wheel, 100_000), 1);
    }

    /// Ten million timers within a minute: each round examines a bounded number, and still none is late.
    #[test]
    fn millions_of_timers_are_moved_in_bounded_steps_and_none_is_late() {
        let timers: u64 = if cfg!(debug_assertions) { 300_000 } else { 10_000_000 };
        let wheel = Wheel::new();
        for n in 0..timers {
            let index = wheel.take_node().expect("memory");
            wheel.arm(index, 1 + n * 60_000 / timers, Waker::noop().clone());
        }
        let mut fired = 0;
        for now in 1..=60_000 {
            wheel.advance(Time::from_millis(now));
            // The budget of ten rounds in each millisecond.
            let mut budget = 10 * super::super::TIMERS_PER_ROUND;
            while wheel.next_expired(&mut budget).is_some() {
                fired += 1;
            }
            assert_eq!(fired, (now * timers).div_ceil(60_000), "at {now}");
        }
        assert_eq!((fired, wheel.armed.get()), (timers, 0));
    }
}
