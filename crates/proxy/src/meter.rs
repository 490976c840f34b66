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
use manylane_sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use manylane_sync::{LockClass, Mutex};
use std::ops::Deref;
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

/// What a look leaves for those who ask for a rate before the next one.
#[derive(Debug, Default)]
struct Sample {
    /// When it was, in nanoseconds of [`Time`].
    at: AtomicU64,
    /// What the counters had then.
    had: [AtomicU64; 2],
    /// How much of that was of the second before.
    grown: [AtomicU64; 2],
}

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

#[derive(Debug, Default)]
struct Looks {
    /// When, and what the counters had then.
    before: Option<Time>,
    was: Vec<u64>,
    /// Where the next look's are put: a look is a lane's, and allocates nothing.
    sums: Vec<u64>,
    figures: Figures,
    /// What the counters had when they were cleared.
    cleared: Vec<u64>,
    /// What was counted for each of [`Metered::RATES`] when the most of a second was forgotten: only what
    /// came since can be the most.
    forgotten: [u64; 2],
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

/// What of a rate lies under its lock, as it was when it was read.
#[derive(Debug, Default)]
pub struct Snapshot {
    figures: Figures,
    cleared: Vec<u64>,
    forgotten: [u64; 2],
}

impl Snapshot {
    /// What was counted since the counters were cleared, in order of their names; `sums` is what
    /// [`CounterGroup::read_cheap`] says.
    pub fn since_cleared(&self, sums: &[u64]) -> Vec<u64> {
        let cleared = self.cleared.iter().copied().chain(std::iter::repeat(0));
        sums.iter().zip(cleared).map(|(sum, cleared)| sum.saturating_sub(cleared)).collect() // they may have been cleared since
    }
}

/// Counters with their rate.
#[derive(Debug)]
pub struct Counted<C> {
    counts: CounterGroup<C>,
    looks: Mutex<Looks>,
    /// The last look, and the one before it. Each is written again at the second look from then: who reads
    /// it meanwhile, having been without a processor, sees that by `last`.
    samples: [Sample; 2],
    /// How many looks there were, which says which of them is the last.
    last: AtomicUsize,
}

impl<C: Metered> Default for Counted<C> {
    fn default() -> Self {
        let none = || vec![0; C::NAMES.len()];
        let looks = Looks { was: none(), sums: none(), ..Looks::default() };
        Self {
            counts: CounterGroup::new(),
            looks: Mutex::new(&METER, looks),
            samples: Default::default(),
            last: AtomicUsize::new(0),
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
    /// What is read under the lock; what the other reports are made of takes none.
    pub fn looked(&self) -> Snapshot {
        let mut cleared = Vec::new(); // nothing is allocated under the lock
        loop {
            let looks = self.looks.lock();
            if cleared.capacity() < looks.cleared.len() {
                drop(looks);
                cleared.reserve(C::NAMES.len());
                continue;
            }
            cleared.extend_from_slice(&looks.cleared);
            return Snapshot { figures: looks.figures, cleared, forgotten: looks.forgotten };
        }
    }

    /// What the last look found, and the rates of now.
    pub fn figures(&self, now: Time) -> Figures {
        self.figures_of(&self.looked(), now)
    }

    /// The same without the lock.
    pub fn figures_of(&self, looked: &Snapshot, now: Time) -> Figures {
        let mut figures = looked.figures;
        let cleared = looked.cleared.get(Self::RATED[0]).copied().unwrap_or(0);
        for (which, forgotten) in looked.forgotten.into_iter().enumerate() {
            figures.rates[which] = self.rate(which, now);
            let since = self.counts.read_cheap_one(|counts| counts.rated(which)).saturating_sub(forgotten);
            // There may have been a look since, which took no more for the most than what came since that was
            // forgotten.
            let Passed { current, grown, had, .. } = self.since_sample(which, now);
            let looked = grown.min(had.saturating_sub(forgotten));
            figures.most[which] = figures.most[which].max(current.min(since)).max(looked);
        }
        // Since the last look there was one, or in the second before that, and not before they were cleared.
        let Passed { elapsed, current, grown, .. } = self.since_sample(0, now);
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
        let Passed { elapsed, current, grown, .. } = self.since_sample(which, now);
        if current == 0 && grown <= 1 && elapsed < SECOND {
            return grown; // as in HAProxy: else one event in a second would be none at once
        }
        let left = SECOND.saturating_sub(elapsed).as_nanos() as u64;
        current + (u128::from(grown) * u128::from(left) / SECOND.as_nanos()) as u64
    }

    /// What has passed since the last look. A thread that loses its processor here reads again, if there was
    /// a look meanwhile: once, or a few times, since there is one in a second.
    fn since_sample(&self, which: usize, now: Time) -> Passed {
        loop {
            let last = self.last.load(Ordering::Acquire);
            let sample = &self.samples[last % 2];
            let sum = self.counts.read_cheap_one(|counts| counts.rated(which));
            let had = sample.had[which].load(Ordering::Relaxed);
            let grown = sample.grown[which].load(Ordering::Relaxed);
            let at = sample.at.load(Ordering::Relaxed);
            // Pairs with that of `sample`: who has read something of a later look sees that there was one.
            fence(Ordering::Acquire);
            if self.last.load(Ordering::Relaxed) != last {
                continue;
            }
            let current = sum.wrapping_sub(had);
            if at == 0 {
                return Passed { elapsed: Duration::ZERO, current, grown: 0, had }; // nobody has looked yet
            }
            let elapsed = now.since(Time::from_nanos(at));
            // The look is late.
            let current = if elapsed > SECOND {
                (current as f64 / elapsed.as_secs_f64()).ceil() as u64
            } else {
                current
            };
            return Passed { elapsed, current, grown, had };
        }
    }

    /// Rates are counted from here on.
    fn sample(&self, sums: [u64; 2], now: Time) {
        let last = self.last.load(Ordering::Relaxed);
        let (before, next) = (&self.samples[last % 2], &self.samples[(last + 1) % 2]);
        let at = before.at.load(Ordering::Relaxed);
        let passed = now.since(Time::from_nanos(at));
        if at != 0 && passed < SECOND / 2 {
            return; // a second generation with the same counters looks, too
        }
        fence(Ordering::Release); // who reads something of this look sees the one before it
        let seconds = if at == 0 { 1.0 } else { passed.as_secs_f64().max(1.0) };
        for (which, sum) in sums.into_iter().enumerate() {
            let grown = sum.wrapping_sub(before.had[which].load(Ordering::Relaxed));
            next.had[which].store(sum, Ordering::Relaxed);
            next.grown[which].store((grown as f64 / seconds).round() as u64, Ordering::Relaxed);
        }
        next.at.store(now.as_nanos(), Ordering::Relaxed);
        self.last.store(last.wrapping_add(1), Ordering::Release);
    }

    /// From now on only what comes is told.
    pub fn clear(&self) {
        let mut looks = self.looks.lock();
        looks.cleared = self.counts.read_cheap();
        looks.figures.last = None;
        looks.figures.means.fill(0.0);
    }

    /// The most of a second is forgotten.
    pub fn forget_most(&self) {
        let mut looks = self.looks.lock();
        looks.forgotten =
            std::array::from_fn(|which| self.counts.read_cheap_one(|counts| counts.rated(which)));
        looks.figures.most = [0; 2];
    }

    /// Looks at the counters, about a second after the last look. The first of [`Metered::RATES`].
    pub fn look(&self, now: Time) -> u64 {
        let mut looks = self.looks.lock();
        let Looks { before, was, sums, figures, forgotten, .. } = &mut *looks;
        self.counts.read_cheap_into(sums);
        let seconds = before.map_or(1.0, |then| now.since(then).as_secs_f64().max(0.001));
        let grown = |place: usize| sums[place].wrapping_sub(was[place]);
        for (which, place) in Self::RATED.into_iter().enumerate() {
            let rate = (grown(place) as f64 / seconds).round() as u64;
            let since = sums[place].saturating_sub(forgotten[which]);
            figures.rates[which] = rate;
            figures.most[which] = figures.most[which].max(rate.min(since));
        }
        self.sample(Self::RATED.map(|place| sums[place]), now);
        if grown(Self::RATED[0]) > 0 {
            figures.last = Some(now);
        }
        for ((sum, of), mean) in Self::MEANS.into_iter().zip(&mut figures.means).take(C::MEANS.len()) {
            let events = grown(of);
            if events > 0 {
                let newest = grown(sum) as f64 / events as f64;
                let share = events as f64 / sums[of].clamp(events, MEAN_OF.max(events)) as f64;
                *mean += (newest - *mean) * share;
            }
        }
        let level = sums[Self::LEVEL.0].saturating_sub(sums[Self::LEVEL.1]);
        figures.usual = level.max((figures.usual + level) / 2);
        *before = Some(now);
        std::mem::swap(was, sums);
        figures.rates[0]
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
        let second = counted.figures(at(12));
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
