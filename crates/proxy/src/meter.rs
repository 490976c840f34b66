//! How fast counters grow: events in the last second, the most that there were in one, and means of times. A
//! task of the first lane looks at the counters once a second (`run`); those who count do nothing for it.
//!
//! # Rates
//! A rate is that of a second which ends now, as HAProxy has it: what was counted since the last look, and of
//! what was counted between the two looks before it as large a part as that second still has. So a burst
//! shows at once, also to the lane whose own events it is made of, and nobody shares a line that is
//! written more than once a second. Cost, for who asks: a line of each lane, and that of the last look.

use manylane_sched::Time;
use manylane_stats::{CounterGroup, Counters, Tally};
use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::{LockClass, Mutex, SeqLatch};
use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

static METER: LockClass = LockClass::new("rates", LockClass::LEAF);

/// Events that a mean is made of: older ones count ever less.
pub const MEAN_OF: u64 = 1024;

/// Which counters have a rate.
pub trait Metered: Counters {
    /// Those whose growth in a second is told.
    const RATES: [&'static str; 2];
    /// The counter of one of them.
    fn rated(&self, which: usize) -> &Tally;
    /// What there is now: what began, and what ended.
    const LEVEL: (&'static str, &'static str);
    /// Means: a sum, and of how many.
    const MEANS: &'static [(&'static str, &'static str)];
}

/// The second that rates are of.
const SECOND: Duration = Duration::from_secs(1);

/// What is told of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Events in the last second, for each of [`Metered::RATES`].
    pub rates: [u64; 2],
    /// The most that there were in a second.
    pub most: [u64; 2],
    /// For each of [`Metered::MEANS`], and 0 behind them.
    pub means: [f64; MOST_MEANS],
    /// Since when the first of the rates is 0; nothing when it always was.
    pub last: Option<Time>,
    /// About how many there are at once: what there is now, and less and less of what there was.
    pub usual: u64,
}

/// What looks remember, under the lock of those who look and clear.
#[derive(Debug, Default)]
struct Looks {
    /// When, and what the counters had then.
    before: Option<Time>,
    was: Vec<u64>,
    /// Where the next look's are put: a look is a lane's, and allocates nothing.
    sums: Vec<u64>,
}

/// What looks and operators leave for reports, each a number by itself: a report that is made meanwhile may
/// have some of before and some of after.
#[derive(Debug, Default)]
struct Latest {
    most: [AtomicU64; 2],
    /// As bits.
    means: [AtomicU64; MOST_MEANS],
    /// In nanoseconds of [`Time`]; 0: never.
    last: AtomicU64,
    usual: AtomicU64,
    /// What was counted for each of [`Metered::RATES`] when the most of a second was forgotten: only what
    /// came since can be the most.
    forgotten: [AtomicU64; 2],
    /// What the counters had when they were cleared; made by the first who clears them.
    cleared: OnceLock<Box<[AtomicU64]>>,
}

/// What passed since the last look at a counter.
struct Passed {
    elapsed: Duration,
    /// Events in that time, or in a second of it.
    current: u64,
    /// Those of the second before.
    grown: u64,
    /// All that there were at the look.
    had: u64,
}

/// Counters with their rate.
#[derive(Debug)]
pub struct Counted<C> {
    counts: CounterGroup<C>,
    looks: Mutex<Looks>,
    latest: Latest,
    /// For those who ask for a rate before the next look: when the last one was, in nanoseconds of [`Time`];
    /// what the counters of [`Metered::RATES`] had then; how much of that was of the second before. Written
    /// under the lock of `looks`.
    last: SeqLatch<5>,
}

impl<C: Metered> Default for Counted<C> {
    fn default() -> Self {
        let none = || vec![0; C::NAMES.len()];
        let looks = Looks { before: None, was: none(), sums: none() };
        Self {
            counts: CounterGroup::new(),
            looks: Mutex::new(&METER, looks),
            latest: Latest::default(),
            last: SeqLatch::new([0; 5]),
        }
    }
}

impl<C> Deref for Counted<C> {
    type Target = CounterGroup<C>;

    fn deref(&self) -> &CounterGroup<C> {
        &self.counts
    }
}

/// Where a counter of that name stands. For constants: a look passes by tens of thousands of servers.
const fn place(names: &[&str], name: &str) -> usize {
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

/// Means that a group of counters may have.
const MOST_MEANS: usize = 8;

impl<C: Metered> Counted<C> {
    const RATED: [usize; 2] = [place(C::NAMES, C::RATES[0]), place(C::NAMES, C::RATES[1])];
    const LEVEL: (usize, usize) = (place(C::NAMES, C::LEVEL.0), place(C::NAMES, C::LEVEL.1));
    const MEANS: [(usize, usize); MOST_MEANS] = {
        let (mut places, mut at) = ([(0, 0); MOST_MEANS], 0);
        while at < C::MEANS.len() {
            places[at] = (place(C::NAMES, C::MEANS[at].0), place(C::NAMES, C::MEANS[at].1));
            at += 1;
        }
        places
    };
}

impl<C: Metered> Counted<C> {
    /// What was counted since the counters were cleared, in order of their names; `sums` is what
    /// [`CounterGroup::read_cheap`] says.
    pub fn since_cleared(&self, sums: &[u64]) -> Vec<u64> {
        let cleared =
            |place: usize| self.latest.cleared.get().map_or(0, |all| all[place].load(Ordering::Relaxed));
        // They may have been cleared since.
        sums.iter().enumerate().map(|(place, sum)| sum.saturating_sub(cleared(place))).collect()
    }

    /// What the last look found, and the rates of now. Takes no lock.
    pub fn figures(&self, now: Time) -> Figures {
        let Latest { most, means, last, usual, forgotten, cleared } = &self.latest;
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let mut figures = Figures {
            means: means.each_ref().map(|mean| f64::from_bits(read(mean))),
            last: Some(read(last)).filter(|last| *last != 0).map(Time::from_nanos),
            usual: read(usual),
            ..Figures::default()
        };
        for (which, forgotten) in forgotten.iter().map(read).enumerate() {
            figures.rates[which] = self.rate(which, now);
            let since = self.counts.read_cheap_one(|counts| counts.rated(which)).saturating_sub(forgotten);
            // There may have been a look since, which took no more for the most than what came since that was
            // forgotten.
            let Passed { current, grown, had, .. } = self.since_look(which, now);
            let looked = grown.min(had.saturating_sub(forgotten));
            figures.most[which] = read(&most[which]).max(current.min(since)).max(looked);
        }
        // Since the last look there was one, or in the second before that, and not before they were cleared.
        let Passed { elapsed, current, grown, .. } = self.since_look(0, now);
        let cleared = cleared.get().map_or(0, |all| read(&all[Self::RATED[0]]));
        if self.counts.read_cheap_one(|counts| counts.rated(0)) > cleared {
            if current > 0 {
                figures.last = Some(now);
            } else if grown > 0 {
                let look = Time::from_nanos(now.as_nanos().saturating_sub(elapsed.as_nanos() as u64));
                figures.last = figures.last.max(Some(look));
            }
        }
        figures
    }

    /// One of [`Metered::RATES`]: events in the second that ends now.
    pub fn rate(&self, which: usize, now: Time) -> u64 {
        let Passed { elapsed, current, grown, .. } = self.since_look(which, now);
        if current == 0 && grown <= 1 && elapsed < SECOND {
            return grown; // as in HAProxy: else one event in a second would be none at once
        }
        let left = SECOND.saturating_sub(elapsed).as_nanos() as u64;
        current + (u128::from(grown) * u128::from(left) / SECOND.as_nanos()) as u64
    }

    /// What has passed since the last look.
    fn since_look(&self, which: usize, now: Time) -> Passed {
        let (at, had, grown, current) = loop {
            let [at, had @ .., first, second] = self.last.read();
            let sum = self.counts.read_cheap_one(|counts| counts.rated(which));
            // A thread that loses its processor here has counted what belongs to a later look.
            if self.last.read()[0] == at {
                break (at, had[which], [first, second][which], sum.wrapping_sub(had[which]));
            }
        };
        if at == 0 {
            return Passed { elapsed: Duration::ZERO, current, grown: 0, had }; // nobody has looked yet
        }
        let elapsed = now.since(Time::from_nanos(at));
        // The look is late.
        let current =
            if elapsed > SECOND { (current as f64 / elapsed.as_secs_f64()).ceil() as u64 } else { current };
        Passed { elapsed, current, grown, had }
    }

    /// Rates are counted from here on. Called under the lock of `looks`.
    fn count_from(&self, sums: [u64; 2], now: Time) {
        let [at, had @ .., _, _] = self.last.read();
        let passed = now.since(Time::from_nanos(at));
        if at != 0 && passed < SECOND / 2 {
            return; // a second generation with the same counters looks, too
        }
        let seconds = if at == 0 { 1.0 } else { passed.as_secs_f64().max(1.0) };
        let [first, second] = [0, 1].map(|which: usize| {
            let grown = sums[which].wrapping_sub(had[which]);
            (grown as f64 / seconds).round() as u64
        });
        self.last.write([now.as_nanos(), sums[0], sums[1], first, second]);
    }

    /// From now on only what comes is told.
    pub fn clear(&self) {
        let _turn = self.looks.lock();
        let none = || C::NAMES.iter().map(|_| AtomicU64::new(0)).collect();
        let Latest { last, means, cleared, .. } = &self.latest;
        for (place, sum) in cleared.get_or_init(none).iter().zip(self.counts.read_cheap()) {
            place.store(sum, Ordering::Relaxed);
        }
        [last].into_iter().chain(means).for_each(|value| value.store(0, Ordering::Relaxed));
    }

    /// The most of a second is forgotten.
    pub fn forget_most(&self) {
        let _turn = self.looks.lock();
        for (which, (forgotten, most)) in self.latest.forgotten.iter().zip(&self.latest.most).enumerate() {
            let now = self.counts.read_cheap_one(|counts| counts.rated(which));
            forgotten.store(now, Ordering::Relaxed);
            most.store(0, Ordering::Relaxed);
        }
    }

    /// Looks at the counters, about a second after the last look. The first of [`Metered::RATES`].
    pub fn look(&self, now: Time) -> u64 {
        let mut looks = self.looks.lock();
        let Looks { before, was, sums } = &mut *looks;
        let latest = &self.latest;
        self.counts.read_cheap_into(sums);
        let seconds = before.map_or(1.0, |then| now.since(then).as_secs_f64().max(0.001));
        let grown = |place: usize| sums[place].wrapping_sub(was[place]);
        let rates = Self::RATED.map(|place| (grown(place) as f64 / seconds).round() as u64);
        for (which, place) in Self::RATED.into_iter().enumerate() {
            let since = sums[place].saturating_sub(latest.forgotten[which].load(Ordering::Relaxed));
            raise(&latest.most[which], rates[which].min(since));
        }
        self.count_from(Self::RATED.map(|place| sums[place]), now);
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

/// Under the lock of those who write it.
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

    impl Metered for Few {
        const RATES: [&'static str; 2] = ["begun", "ended"];
        const LEVEL: (&'static str, &'static str) = ("begun", "ended");
        const MEANS: &'static [(&'static str, &'static str)] = &[("ms", "ended")];

        fn rated(&self, which: usize) -> &Tally {
            [&self.begun, &self.ended][which]
        }
    }

    #[test]
    fn rates_are_of_the_last_second_and_means_of_the_last_events() {
        let counted: Counted<Few> = Counted::default();
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        counted.own().begun.add(10);
        counted.own().ended.add(4);
        counted.own().ms.add(40);
        counted.look(at(10));
        let first = counted.figures(at(10));
        assert_eq!((first.rates, first.most, first.usual), ([10, 4], [10, 4], 6));
        assert_eq!((first.means[0], first.last), (10.0, Some(at(10))));
        counted.look(at(12));
        let looking = counted.looks.lock();
        let second = counted.figures(at(12)); // waits for nobody
        drop(looking);
        assert_eq!((second.rates, second.most, second.last), ([0, 0], [10, 4], Some(at(10))));
        counted.own().begun.add(4);
        counted.own().ended.add(12);
        counted.own().ms.add(12 * 26);
        counted.look(at(14));
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
        counted.look(at(15));
        assert_eq!((counted.figures(at(15)).rates, counted.figures(at(15)).most), ([12, 2048], [3, 2048]));
        assert_eq!(counted.figures(at(15)).means[0], 0.0, "older ones do not count any more");
        counted.own().begun.add(500);
        counted.forget_most();
        counted.own().begun.add(5);
        counted.look(at(16));
        counted.own().begun.add(40);
        assert_eq!(counted.figures(at(16)).most[0], 40, "what came before it was forgotten counts no more");
    }

    #[test]
    fn a_rate_is_of_the_second_that_ends_now() {
        let counted: Counted<Few> = Counted::default();
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let add = |events| counted.own().begun.add(events);
        let rate = |millis| counted.rate(0, at(millis));
        add(3);
        assert_eq!(rate(9_900), 3, "before the first look");
        counted.look(at(10_000));
        assert_eq!([10_000, 10_500, 10_999].map(rate), [3, 1, 0]);
        for more in 1..=20 {
            add(1);
            assert_eq!(rate(10_500), 1 + more, "a burst shows at once");
        }
        assert_eq!(counted.figures(at(10_500)).most, [20, 0], "in this second, which is not over");
        assert_eq!((rate(11_000), rate(12_000)), (20, 10), "a look is late");
        counted.look(at(11_000));
        assert_eq!([11_000, 11_250, 12_000].map(rate), [20, 15, 0]);
        counted.look(at(11_200)); // another generation's
        add(8);
        assert_eq!([11_250, 11_500].map(rate), [23, 18]);
        counted.look(at(12_000));
        counted.look(at(13_000));
        add(1);
        counted.look(at(14_000));
        assert_eq!([14_000, 14_900].map(rate), [1, 1], "the only one does not vanish at once");
        counted.look(at(15_000));
        assert_eq!(rate(15_000), 0);
    }
}
