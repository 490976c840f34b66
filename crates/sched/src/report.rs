//! Reports of lanes: each counts in its own home, and a reader sums (R-F2).

use crate::class::Class;
use crate::home;
use crate::home::Published;
use crate::isolate;
use crate::time::Time;
use manylane_stats::counters;
use manylane_sync::LaneId;
use manylane_sync::atomic::Ordering;
use std::fmt;
use std::time::Duration;

counters! {
    /// Counters of a lane since the process began.
    pub(crate) struct Counters {
        pub(crate) rounds,
        pub(crate) urgent,
        pub(crate) normal,
        pub(crate) bulk,
        pub(crate) heavy,
        pub(crate) spawned,
        pub(crate) completed,
        pub(crate) arrived,
        pub(crate) refused,
        pub(crate) woken_remotely,
        pub(crate) late_wakes,
        pub(crate) timers,
        pub(crate) timers_moved,
        pub(crate) sleeps,
        pub(crate) slept,
    }
}

/// Numbers of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneReport {
    /// The lane.
    pub lane: LaneId,
    /// Number of tasks on the lane at the end of its last round.
    pub live: u64,
    /// Number of tasks in its run queues at the end of its last round; indexed by [`Class`].
    pub queued: [u64; 4],
    /// Kind of the running task.
    pub running: Option<&'static str>,
    /// Number of rounds.
    pub rounds: u64,
    /// Number of polled tasks; indexed by [`Class`].
    pub polled: [u64; 4],
    /// Number of tasks that began.
    pub spawned: u64,
    /// Number of tasks that ended.
    pub completed: u64,
    /// Number of tasks that came from other lanes.
    pub arrived: u64,
    /// Number of tasks from other lanes for which there was no slot.
    pub refused: u64,
    /// Number of wake-ups from other lanes.
    pub woken_remotely: u64,
    /// Number of wake-ups of tasks that had ended.
    pub late_wakes: u64,
    /// Number of timers that fired.
    pub timers: u64,
    /// Number of timers that were examined but did not fire: moved to a finer level of the wheel, or
    /// postponed.
    pub timers_moved: u64,
    /// Number of times that the lane went to sleep.
    pub sleeps: u64,
    /// Time that the lane slept, or looked for work in vain. A current sleep counts up to the present time of
    /// the lane's clock.
    pub slept: Duration,
}

impl LaneReport {
    /// Returns the number of tasks in all its run queues.
    pub fn run_queue(&self) -> u64 {
        self.queued.iter().sum()
    }

    /// Returns the number of polled tasks of all classes.
    pub fn polls(&self) -> u64 {
        self.polled.iter().sum()
    }
}

impl fmt::Display for LaneReport {
    /// Writes one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: live {}, ", self.lane, self.live)?;
        match self.running {
            Some(kind) => write!(f, "runs one of the kind `{kind}`")?,
            None => f.write_str("runs none")?,
        }
        for (name, numbers) in [("queued", &self.queued), ("polled", &self.polled)] {
            let [urgent, normal, bulk, heavy] = numbers;
            write!(f, "; {name}: {urgent} urgent, {normal} normal, {bulk} bulk, {heavy} heavy")?;
        }
        write!(
            f,
            "; spawned {}, completed {}, arrived {}, refused {}, woken by others {}, woken late {}, timers \
                {}, timers moved {}, rounds {}, sleeps {}, slept {:?}",
            self.spawned,
            self.completed,
            self.arrived,
            self.refused,
            self.woken_remotely,
            self.late_wakes,
            self.timers,
            self.timers_moved,
            self.rounds,
            self.sleeps,
            self.slept
        )
    }
}

/// Returns the numbers of every lane that ever ran, read while the lanes go on. Cost: three lines for each
/// lane.
pub fn report() -> Vec<LaneReport> {
    home::all()
        .map(|(lane, home)| {
            let published = &home.published;
            let counters = &published.counters;
            LaneReport {
                lane,
                live: published.live.get(),
                queued: Class::ALL.map(|class| published.queued[class as usize].get()),
                running: published.running().map(crate::TaskKind::name),
                rounds: counters.rounds.get(),
                polled: [&counters.urgent, &counters.normal, &counters.bulk, &counters.heavy]
                    .map(|n| n.get()),
                // Reads ends before beginnings (rule 3 of `manylane_stats`), so ends never exceed beginnings.
                completed: counters.completed.get(),
                spawned: counters.spawned.get(),
                arrived: counters.arrived.get(),
                refused: counters.refused.get(),
                woken_remotely: counters.woken_remotely.get(),
                late_wakes: counters.late_wakes.get(),
                timers: counters.timers.get(),
                timers_moved: counters.timers_moved.get(),
                sleeps: counters.sleeps.get(),
                slept: Duration::from_nanos(slept(published, Time::now())),
            }
        })
        .collect()
}

/// Number of readings of a lane that falls asleep and wakes meanwhile. After the last one the result may lack
/// that sleep.
const TRIES: u32 = 4;

/// Returns the nanoseconds that a lane has slept until `now`.
fn slept(published: &Published, now: Time) -> u64 {
    let mut tries = TRIES;
    loop {
        let before = published.counters.slept.get();
        // Acquire: pairs with `Home::wakes`, so that a sleep does not count both as current and as over.
        let since = published.asleep.load(Ordering::Acquire);
        let asleep = if since == 0 { 0 } else { now.as_nanos().saturating_sub(since) };
        tries -= 1;
        if published.counters.slept.get() == before || tries == 0 {
            return before + asleep;
        }
    }
}

/// Returns the number of lanes at `now`, and how long all lanes together have slept since the process began.
/// Allocates nothing. Cost: two lines for each lane.
pub fn idle(now: Time) -> (u32, Duration) {
    let (mut lanes, mut sum) = (0, 0u64);
    for (_, home) in home::all() {
        let published = &home.published;
        lanes += u32::from(published.state.load(Ordering::Relaxed) != isolate::ABSENT);
        sum += slept(published, now);
    }
    (lanes, Duration::from_nanos(sum))
}
