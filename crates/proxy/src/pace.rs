//! How fast counters grow: events in the last second, the most that there were in one, and means of times. A task of the first lane looks at the
//! counters once a second ([`crate::run`]); those who count do nothing for it.

use manylane_sched::Time;
use manylane_stats::{CounterGroup, Counters};
use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::{LockClass, Mutex};
use std::ops::Deref;

static PACE: LockClass = LockClass::new("pace", LockClass::LEAF);

/// Events that a mean is made of: older ones count ever less.
pub const MEAN_OF: u64 = 1024;

/// Which counters have a pace.
pub trait Paced: Counters {
    /// Those whose growth in a second is told.
    const RATES: [&'static str; 2];
    /// What there is now: what began, and what ended.
    const LEVEL: (&'static str, &'static str);
    /// Means: a sum, and of how many.
    const MEANS: &'static [(&'static str, &'static str)];
}

/// What is told of a pace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Events in the last second, for each of [`Paced::RATES`].
    pub rates: [u64; 2],
    /// The most that there were in a second.
    pub most: [u64; 2],
    /// For each of [`Paced::MEANS`].
    pub means: Vec<f64>,
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
}

/// Counters with their pace.
#[derive(Debug)]
pub struct Counted<C> {
    counts: CounterGroup<C>,
    looks: Mutex<Looks>,
    /// The rates of the last look, for rules: stored by who looks, once a second.
    rates: [AtomicU64; 2],
}

impl<C: Paced> Default for Counted<C> {
    fn default() -> Self {
        let none = || vec![0; C::NAMES.len()];
        let figures = Figures { means: vec![0.0; C::MEANS.len()], ..Figures::default() };
        let looks = Looks { was: none(), sums: none(), figures, ..Looks::default() };
        Self { counts: CounterGroup::new(), looks: Mutex::new(&PACE, looks), rates: Default::default() }
    }
}

impl<C> Deref for Counted<C> {
    type Target = CounterGroup<C>;

    fn deref(&self) -> &CounterGroup<C> {
        &self.counts
    }
}

fn place<C: Counters>(name: &str) -> usize {
    C::NAMES.iter().position(|own| *own == name).expect("counters name what they have")
}

impl<C: Paced> Counted<C> {
    /// What the last look found.
    pub fn figures(&self) -> Figures {
        self.looks.lock().figures.clone()
    }

    /// One of [`Paced::RATES`], as the last look found it.
    pub fn rate(&self, which: usize) -> u64 {
        self.rates[which].load(Ordering::Relaxed)
    }

    /// What was counted since the counters were cleared, in order of their names; `sums` is what [`CounterGroup::read_cheap`] says.
    pub fn since_cleared(&self, sums: &[u64]) -> Vec<u64> {
        let looks = self.looks.lock();
        let cleared = looks.cleared.iter().copied().chain(std::iter::repeat(0));
        sums.iter().zip(cleared).map(|(sum, cleared)| sum.saturating_sub(cleared)).collect() // they may have been cleared since
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
        let figures = &mut self.looks.lock().figures;
        figures.most = figures.rates;
    }

    /// Looks at the counters, about a second after the last look.
    pub fn look(&self, now: Time) {
        let mut looks = self.looks.lock();
        let Looks { before, was, sums, figures, .. } = &mut *looks;
        self.counts.read_cheap_into(sums);
        let seconds = before.map_or(1.0, |then| now.since(then).as_secs_f64().max(0.001));
        let grown = |name| {
            let place = place::<C>(name);
            sums[place].wrapping_sub(was[place])
        };
        for ((name, rate), most) in C::RATES.iter().zip(&mut figures.rates).zip(&mut figures.most) {
            *rate = (grown(name) as f64 / seconds).round() as u64;
            *most = (*most).max(*rate);
        }
        for (rate, own) in figures.rates.iter().zip(&self.rates) {
            own.store(*rate, Ordering::Relaxed);
        }
        if grown(C::RATES[0]) > 0 {
            figures.last = Some(now);
        }
        for ((sum, of), mean) in C::MEANS.iter().zip(&mut figures.means) {
            let events = grown(of);
            if events > 0 {
                let newest = grown(sum) as f64 / events as f64;
                let share = events as f64 / sums[place::<C>(of)].clamp(events, MEAN_OF.max(events)) as f64;
                *mean += (newest - *mean) * share;
            }
        }
        let level = sums[place::<C>(C::LEVEL.0)].saturating_sub(sums[place::<C>(C::LEVEL.1)]);
        figures.usual = level.max((figures.usual + level) / 2);
        *before = Some(now);
        std::mem::swap(was, sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    manylane_stats::counters! {
        struct Few { begun, ended, ms }
    }

    impl Paced for Few {
        const RATES: [&'static str; 2] = ["begun", "ended"];
        const LEVEL: (&'static str, &'static str) = ("begun", "ended");
        const MEANS: &'static [(&'static str, &'static str)] = &[("ms", "ended")];
    }

    #[test]
    fn rates_are_of_the_last_second_and_means_of_the_last_events() {
        let counted: Counted<Few> = Counted::default();
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        counted.own().begun.add(10);
        counted.own().ended.add(4);
        counted.own().ms.add(40);
        counted.look(at(10));
        let first = counted.figures();
        assert_eq!((first.rates, first.most, first.usual), ([10, 4], [10, 4], 6));
        assert_eq!((first.means, first.last), (vec![10.0], Some(at(10))));
        counted.look(at(12));
        let second = counted.figures();
        assert_eq!((second.rates, second.most, second.last), ([0, 0], [10, 4], Some(at(10))));
        counted.own().begun.add(4);
        counted.own().ended.add(12);
        counted.own().ms.add(12 * 26);
        counted.look(at(14));
        let third = counted.figures();
        assert_eq!((third.rates, third.most, third.usual), ([2, 6], [10, 6], 3));
        assert_eq!(third.means, [22.0], "4 of 10 and 12 of 26");
        counted.forget_most();
        assert_eq!(counted.figures().most, [2, 6]);
        counted.own().ended.add(2048);
        counted.look(at(15));
        assert_eq!(counted.figures().means, [0.0], "older ones do not count any more");
    }
}
