//! Growth of counters: events in the last second, the most events in one second, and means of times. A task
//! of the first lane samples the counters once a second (`runtime::meter`); counting lanes do nothing for it.
//!
//! # Rates
//! A rate covers the second that ends now, as in HAProxy: the events since the last sample, plus a share of
//! the events between the two samples before it, as large as the part of that second that is still covered.
//! So a burst shows at once, also to the lane that counts it, and no lane shares a line that is written more
//! than once a second. Cost of reading a rate: one line of each lane, and that of the last sample.

use manylane_sched::Time;
use manylane_stats::{CounterGroup, Counters, Tally};
use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::{LockClass, Mutex, SeqLatch};
use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

static METER: LockClass = LockClass::new("rates", LockClass::LEAF);

/// Number of events that a mean covers: older events count ever less.
pub const MEAN_OF: u64 = 1024;

/// Counters that have rates.
pub trait MeteredCounters: Counters {
    /// Names of the counters whose growth in a second is reported.
    const RATES: [&'static str; 2];
    /// Returns one of these counters.
    fn rated(&self, which: usize) -> &Tally;
    /// Names of the counters whose difference is the number of things that exist now: those that began and
    /// those that ended.
    const LEVEL: (&'static str, &'static str);
    /// Names of the counters of means: the sum, and the number of events.
    const MEANS: &'static [(&'static str, &'static str)];
}

/// Period of rates.
const SECOND: Duration = Duration::from_secs(1);

/// Rates and means for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeterSnapshot {
    /// Events in the last second, for each of [`MeteredCounters::RATES`].
    pub rates: [u64; 2],
    /// Most events in one second.
    pub most: [u64; 2],
    /// Means, for each of [`MeteredCounters::MEANS`], and 0 behind them.
    pub means: [f64; MOST_MEANS],
    /// When the first of the rates was last above 0; `None` if it never was.
    pub last: Option<Time>,
    /// Usual number of things at once: the current number, or a decaying average of former ones if that is
    /// larger.
    pub usual: u64,
}

/// State of the samples, under a lock that samples, `clear` and `forget_most` take.
#[derive(Debug, Default)]
struct Samples {
    /// When the last sample was taken, and the counters' values then.
    before: Option<Time>,
    was: Vec<u64>,
    /// Buffer of the next sample, so that sampling on a lane allocates nothing.
    sums: Vec<u64>,
}

/// Results for reports. Each number is atomic by itself: a concurrent report may mix old and new ones.
#[derive(Debug, Default)]
struct Latest {
    most: [AtomicU64; 2],
    /// The bits of an `f64`.
    means: [AtomicU64; MOST_MEANS],
    /// In nanoseconds of [`Time`]; 0 for never.
    last: AtomicU64,
    usual: AtomicU64,
    /// Values of the counters of [`MeteredCounters::RATES`] when an operator last reset the maximum. Only
    /// later events can be the maximum.
    forgotten: [AtomicU64; 2],
    /// Values of the counters when they were cleared, less what they [began
    /// with](Meter::begin_with); allocated by the first of these.
    cleared: OnceLock<Box<[AtomicU64]>>,
}

/// Growth of a counter since the last sample.
struct Growth {
    elapsed: Duration,
    /// Events in that time; if it is longer than a second, events per second.
    current: u64,
    /// Events per second between the two samples before.
    grown: u64,
    /// Value of the counter at the sample.
    had: u64,
}

/// Counters with their rates.
#[derive(Debug)]
pub struct Meter<C> {
    counts: CounterGroup<C>,
    samples: Mutex<Samples>,
    latest: Latest,
    /// Last sample, for rates that are read before the next one: its time in nanoseconds of [`Time`], the
    /// values of the counters of [`MeteredCounters::RATES`], and their growth in the second before. Written
    /// under the lock of `samples`.
    last: SeqLatch<5>,
}

impl<C: MeteredCounters> Default for Meter<C> {
    fn default() -> Self {
        let none = || vec![0; C::NAMES.len()];
        let samples = Samples { before: None, was: none(), sums: none() };
        Self {
            counts: CounterGroup::new(),
            samples: Mutex::new(&METER, samples),
            latest: Latest::default(),
            last: SeqLatch::new([0; 5]),
        }
    }
}

impl<C> Deref for Meter<C> {
    type Target = CounterGroup<C>;

    fn deref(&self) -> &CounterGroup<C> {
        &self.counts
    }
}

/// Returns the index of a counter by name. Evaluated at compile time, since a sample covers tens of thousands
/// of servers.
const fn index_of(names: &[&str], name: &str) -> usize {
    let mut at = 0;
    while at < names.len() {
        let (own, name, mut same) = (names[at].as_bytes(), name.as_bytes(), 0);
        while same < name.len() && same < own.len() && own[same] == name[same] {
            same += 1;
        }
        if same == name.len() && same == own.len() {
            return at;
        }
        at += 1;
    }
    panic!("counters name what they have")
}

/// Most means that a group of counters may have.
const MOST_MEANS: usize = 8;

impl<C: MeteredCounters> Meter<C> {
    const RATED: [usize; 2] = [index_of(C::NAMES, C::RATES[0]), index_of(C::NAMES, C::RATES[1])];
    const LEVEL: (usize, usize) = (index_of(C::NAMES, C::LEVEL.0), index_of(C::NAMES, C::LEVEL.1));
    const MEANS: [(usize, usize); MOST_MEANS] = {
        let (mut indexes, mut at) = ([(0, 0); MOST_MEANS], 0);
        while at < C::MEANS.len() {
            indexes[at] = (index_of(C::NAMES, C::MEANS[at].0), index_of(C::NAMES, C::MEANS[at].1));
            at += 1;
        }
        indexes
    };
}

impl<C: MeteredCounters> Meter<C> {
    /// Returns the growth since the counters were cleared, in the order of their names. `sums` comes from
    /// [`CounterGroup::read_cheap`].
    pub fn since_cleared(&self, sums: &[u64]) -> Vec<u64> {
        let cleared =
            |index: usize| self.latest.cleared.get().map_or(0, |all| all[index].load(Ordering::Relaxed));
        // The counters may have been cleared after `sums` was read: then the difference is below 0.
        let since = |position: usize, sum: u64| sum.wrapping_sub(cleared(position)).cast_signed().max(0);
        sums.iter().enumerate().map(|(number, sum)| since(number, *sum).cast_unsigned()).collect()
    }

    /// Returns the results of the last sample and the current rates. Takes no lock.
    pub fn figures(&self, now: Time) -> MeterSnapshot {
        let Latest { most, means, last, usual, forgotten, cleared } = &self.latest;
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let mut figures = MeterSnapshot {
            means: means.each_ref().map(|mean| f64::from_bits(read(mean))),
            last: Some(read(last)).filter(|last| *last != 0).map(Time::from_nanos),
            usual: read(usual),
            ..MeterSnapshot::default()
        };
        for (which, forgotten) in forgotten.iter().map(read).enumerate() {
            figures.rates[which] = self.rate(which, now);
            let since = self.counts.read_cheap_one(|counts| counts.rated(which)).saturating_sub(forgotten);
            // A sample may have been taken since, and it counted only events after the reset for the maximum.
            let Growth { current, grown, had, .. } = self.since_sample(which, now);
            let sampled = grown.min(had.saturating_sub(forgotten));
            figures.most[which] = read(&most[which]).max(current.min(since)).max(sampled);
        }
        // There was an event since the last sample, or in the second before it, and after the counters were
        // cleared.
        let Growth { elapsed, current, grown, .. } = self.since_sample(0, now);
        let cleared = cleared.get().map_or(0, |all| read(&all[Self::RATED[0]]));
        let sum = self.counts.read_cheap_one(|counts| counts.rated(0));
        if sum.wrapping_sub(cleared).cast_signed() > 0 {
            if current > 0 {
                figures.last = Some(now);
            } else if grown > 0 {
                let sample = Time::from_nanos(now.as_nanos().saturating_sub(elapsed.as_nanos() as u64));
                figures.last = figures.last.max(Some(sample));
            }
        }
        figures
    }

    /// Returns one of [`MeteredCounters::RATES`]: events in the second that ends now.
    pub fn rate(&self, which: usize, now: Time) -> u64 {
        let Growth { elapsed, current, grown, .. } = self.since_sample(which, now);
        if current == 0 && grown <= 1 && elapsed < SECOND {
            return grown; // as in HAProxy; otherwise a single event would vanish at once
        }
        let left = SECOND.saturating_sub(elapsed).as_nanos() as u64;
        current + (u128::from(grown) * u128::from(left) / SECOND.as_nanos()) as u64
    }

    /// Returns the growth of a counter since the last sample.
    fn since_sample(&self, which: usize, now: Time) -> Growth {
        let (at, had, grown, current) = loop {
            let [at, had @ .., first, second] = self.last.read();
            let sum = self.counts.read_cheap_one(|counts| counts.rated(which));
            // A thread that loses its processor here may have read a sum that belongs to a later sample.
            if self.last.read()[0] == at {
                break (at, had[which], [first, second][which], sum.wrapping_sub(had[which]));
            }
        };
        if at == 0 {
            return Growth { elapsed: Duration::ZERO, current, grown: 0, had }; // no sample was taken yet
        }
        let elapsed = now.since(Time::from_nanos(at));
        // The next sample is late.
        let current =
            if elapsed > SECOND { (current as f64 / elapsed.as_secs_f64()).ceil() as u64 } else { current };
        Growth { elapsed, current, grown, had }
    }

    /// Stores the sample that rates start from. Called under the lock of `samples`.
    fn count_from(&self, sums: [u64; 2], now: Time) {
        let [at, had @ .., _, _] = self.last.read();
        let passed = now.since(Time::from_nanos(at));
        if at != 0 && passed < SECOND / 2 {
            return; // a second generation samples the same counters
        }
        let seconds = if at == 0 { 1.0 } else { passed.as_secs_f64().max(1.0) };
        let [first, second] = [0, 1].map(|which: usize| {
            let grown = sums[which].wrapping_sub(had[which]);
            (grown as f64 / seconds).round() as u64
        });
        self.last.write([now.as_nanos(), sums[0], sums[1], first, second]);
    }

    /// Makes reports begin with these values, which another process had counted. To be called before anything
    /// is counted.
    #[cfg_attr(any(loom, manylane_sim), allow(dead_code))] // no model takes numbers over
    pub(crate) fn begin_with(&self, counted: &[(&str, u64)]) {
        let _turn = self.samples.lock();
        let none = || C::NAMES.iter().map(|_| AtomicU64::new(0)).collect();
        let cleared = self.latest.cleared.get_or_init(none);
        for (name, value) in counted {
            if let Some(index) = C::NAMES.iter().position(|own| own == name) {
                // Half of all numbers, since a difference that is larger stands for one below 0.
                let value = (*value).min(i64::MAX.cast_unsigned() / 2);
                cleared[index].store(0u64.wrapping_sub(value), Ordering::Relaxed);
            }
        }
    }

    /// Makes reports count from now on.
    pub fn clear(&self) {
        let _turn = self.samples.lock();
        let none = || C::NAMES.iter().map(|_| AtomicU64::new(0)).collect();
        let Latest { last, means, cleared, .. } = &self.latest;
        for (word, sum) in cleared.get_or_init(none).iter().zip(self.counts.read_cheap()) {
            word.store(sum, Ordering::Relaxed);
        }
        [last].into_iter().chain(means).for_each(|value| value.store(0, Ordering::Relaxed));
    }

    /// Resets the maximum per second.
    pub fn forget_most(&self) {
        let _turn = self.samples.lock();
        for (which, (forgotten, most)) in self.latest.forgotten.iter().zip(&self.latest.most).enumerate() {
            let now = self.counts.read_cheap_one(|counts| counts.rated(which));
            forgotten.store(now, Ordering::Relaxed);
            most.store(0, Ordering::Relaxed);
        }
    }

    /// Takes a sample, about a second after the last one. Returns the first of [`MeteredCounters::RATES`].
    pub fn sample(&self, now: Time) -> u64 {
        let mut samples = self.samples.lock();
        let Samples { before, was, sums } = &mut *samples;
        let latest = &self.latest;
        self.counts.read_cheap_into(sums);
        let seconds = before.map_or(1.0, |then| now.since(then).as_secs_f64().max(0.001));
        let grown = |index: usize| sums[index].wrapping_sub(was[index]);
        let rates = Self::RATED.map(|position| (grown(position) as f64 / seconds).round() as u64);
        for (which, number) in Self::RATED.into_iter().enumerate() {
            let since = sums[number].saturating_sub(latest.forgotten[which].load(Ordering::Relaxed));
            raise(&latest.most[which], rates[which].min(since));
        }
        self.count_from(Self::RATED.map(|at| sums[at]), now);
        if grown(Self::RATED[0]) > 0 {
            latest.last.store(now.as_nanos(), Ordering::Relaxed);
        }
        for ((sum, of), mean) in Self::MEANS.into_iter().zip(&latest.means).take(C::MEANS.len()) {
            let events = grown(of);
            if events > 0 {
                let newest = grown(sum) as f64 / events as f64;
                let share = events as f64 / sums[of].clamp(events, MEAN_OF.max(events)) as f64;
                let older = f64::from_bits(mean.load(Ordering::Relaxed));
                mean.store((older + (newest - older) * share).to_bits(), Ordering::Relaxed);
            }
        }
        let level = sums[Self::LEVEL.0].saturating_sub(sums[Self::LEVEL.1]);
        let usual = level.max((latest.usual.load(Ordering::Relaxed) + level) / 2);
        latest.usual.store(usual, Ordering::Relaxed);
        *before = Some(now);
        std::mem::swap(was, sums);
        rates[0]
    }
}

/// Raises a maximum. Called under the lock of its writers.
fn raise(most: &AtomicU64, to: u64) {
    if to > most.load(Ordering::Relaxed) {
        most.store(to, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    manylane_stats::counters! {
        struct Few { begun, ended, ms }
    }

    impl MeteredCounters for Few {
        const RATES: [&'static str; 2] = ["begun", "ended"];
        const LEVEL: (&'static str, &'static str) = ("begun", "ended");
        const MEANS: &'static [(&'static str, &'static str)] = &[("ms", "ended")];

        fn rated(&self, which: usize) -> &Tally {
            [&self.begun, &self.ended][which]
        }
    }

    #[test]
    fn rates_are_of_the_last_second_and_means_of_the_last_events() {
        let counted: Meter<Few> = Meter::default();
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        counted.own().begun.add(10);
        counted.own().ended.add(4);
        counted.own().ms.add(40);
        counted.sample(at(10));
        let first = counted.figures(at(10));
        assert_eq!((first.rates, first.most, first.usual), ([10, 4], [10, 4], 6));
        assert_eq!((first.means[0], first.last), (10.0, Some(at(10))));
        counted.sample(at(12));
        let sampling = counted.samples.lock();
        let second = counted.figures(at(12)); // takes no lock, so it does not wait
        drop(sampling);
        assert_eq!((second.rates, second.most, second.last), ([0, 0], [10, 4], Some(at(10))));
        counted.own().begun.add(4);
        counted.own().ended.add(12);
        counted.own().ms.add(12 * 26);
        counted.sample(at(14));
        let third = counted.figures(at(14));
        assert_eq!((third.rates, third.most, third.usual), ([2, 6], [10, 6], 3));
        assert_eq!(third.means[..2], [22.0, 0.0], "4 of 10 and 12 of 26");
        counted.forget_most();
        assert_eq!((counted.figures(at(14)).rates, counted.figures(at(14)).most), ([2, 6], [0, 0]));
        counted.own().begun.add(9);
        counted.forget_most();
        counted.own().begun.add(3);
        assert_eq!(counted.figures(at(14)).most, [3, 0]);
        counted.own().ended.add(2048);
        counted.sample(at(15));
        assert_eq!((counted.figures(at(15)).rates, counted.figures(at(15)).most), ([12, 2048], [3, 2048]));
        assert_eq!(counted.figures(at(15)).means[0], 0.0, "older ones do not count any more");
        counted.own().begun.add(500);
        counted.forget_most();
        counted.own().begun.add(5);
        counted.sample(at(16));
        counted.own().begun.add(40);
        assert_eq!(counted.figures(at(16)).most[0], 40, "what came before it was forgotten counts no more");
    }

    /// Item 61 of haproxy-today.
    #[test]
    fn counters_begin_with_what_another_process_had_counted_until_they_are_cleared() {
        let counted: Meter<Few> = Meter::default();
        let now = Time::ZERO + Duration::from_secs(100);
        counted.begin_with(&[("begun", 70), ("ms", u64::MAX), ("none", 1)]);
        let read = |counted: &Meter<Few>| counted.since_cleared(&counted.read_cheap());
        assert_eq!(read(&counted)[..2], [70, 0]);
        let figures = counted.figures(now);
        assert_eq!((figures.rates, figures.usual, figures.last), ([0, 0], 0, None));
        counted.own().begun.add(5);
        counted.own().ms.add(1);
        assert_eq!(read(&counted), [75, 0, i64::MAX.cast_unsigned() / 2 + 1]);
        counted.clear();
        counted.own().begun.add(2);
        assert_eq!(read(&counted), [2, 0, 0]);
        assert_eq!(counted.since_cleared(&[1, 0, 0])[0], 0, "what was read before it was cleared");
    }

    #[test]
    fn a_rate_is_of_the_second_that_ends_now() {
        let counted: Meter<Few> = Meter::default();
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let add = |events| counted.own().begun.add(events);
        let rate = |millis| counted.rate(0, at(millis));
        add(3);
        assert_eq!(rate(9_900), 3, "before the first look");
        counted.sample(at(10_000));
        assert_eq!([10_000, 10_500, 10_999].map(rate), [3, 1, 0]);
        for more in 1..=20 {
            add(1);
            assert_eq!(rate(10_500), 1 + more, "a burst shows at once");
        }
        assert_eq!(counted.figures(at(10_500)).most, [20, 0], "in this second, which is not over");
        assert_eq!((rate(11_000), rate(12_000)), (20, 10), "a look is late");
        counted.sample(at(11_000));
        assert_eq!([11_000, 11_250, 12_000].map(rate), [20, 15, 0]);
        counted.sample(at(11_200)); // another generation's sample
        add(8);
        assert_eq!([11_250, 11_500].map(rate), [23, 18]);
        counted.sample(at(12_000));
        counted.sample(at(13_000));
        add(1);
        counted.sample(at(14_000));
        assert_eq!([14_000, 14_900].map(rate), [1, 1], "the only one does not vanish at once");
        counted.sample(at(15_000));
        assert_eq!(rate(15_000), 0);
    }
}
