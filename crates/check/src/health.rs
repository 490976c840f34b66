//! When a server is up: `rise` good checks in a row bring it up, `fall` failed ones take it down.

use crate::status::{Outcome, Status};

/// `init-state`: where a server begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Init {
    /// Up, until `fall` checks have failed.
    FullyUp,
    /// Up, until one check has failed.
    #[default]
    Up,
    /// Down, until one check went well.
    Down,
    /// Down, until `rise` checks went well.
    FullyDown,
}

/// How checks find a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// It works.
    Up,
    /// It works and wants no new clients.
    Stopping,
    /// It does not work.
    Down,
}

/// What failing traffic counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// For one failed check: `fail-check`.
    AsCheck,
    /// For all but one: the next failed check takes the server down (`sudden-death`).
    BeforeLast,
    /// For all that it takes: `mark-down`.
    Last,
}

/// What a check's outcome changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// How it was.
    pub from: Running,
    /// How it is.
    pub to: Running,
}

/// How healthy a server is: from 0 to `rise + fall - 1`, and up from `rise` on.
#[derive(Clone, Debug)]
pub struct Health {
    rise: u32,
    fall: u32,
    value: u32,
    running: Running,
}

impl Health {
    /// Before the first check. Both counts are at least 1.
    pub fn new(rise: u32, fall: u32, init: Init) -> Self {
        let (rise, fall) = (rise.max(1), fall.max(1));
        let value = match init {
            Init::FullyUp => rise + fall - 1,
            Init::Up => rise,
            Init::Down => rise - 1,
            Init::FullyDown => 0,
        };
        let running = if value >= rise { Running::Up } else { Running::Down };
        Self { rise, fall, value, running }
    }

    /// As it was, by its four parts.
    pub(crate) fn of(rise: u32, fall: u32, value: u32, running: Running) -> Self {
        Self { rise, fall, value, running }
    }

    /// A check came to this. Whether it moved the health, and what changed by it.
    pub fn report(&mut self, status: Status) -> (bool, Option<Change>) {
        let before = (self.value, self.running);
        match status.outcome() {
            Outcome::Unknown => {}
            Outcome::Failed => {
                self.value = self.value.saturating_sub(1);
                if self.value < self.rise {
                    self.value = 0;
                    self.running = Running::Down;
                }
            }
            passed @ (Outcome::Passed | Outcome::Conditional) => {
                self.value = (self.value + 1).min(self.most());
                if self.value >= self.rise {
                    self.value = self.most();
                    self.running = match (passed, self.running) {
                        // What is down does not come up by wanting no clients.
                        (Outcome::Conditional, Running::Down) => Running::Down,
                        (Outcome::Conditional, _) => Running::Stopping,
                        _ => Running::Up,
                    };
                }
            }
        }
        let changed = before.1 != self.running;
        (before.0 != self.value, changed.then_some(Change { from: before.1, to: self.running }))
    }

    /// Live traffic failed too often: a failed check, and where it counts for more, there is none or one left
    /// before the server goes down.
    pub fn observe(&mut self, counted: Counted) -> (bool, Option<Change>) {
        let before = self.value;
        match counted {
            Counted::AsCheck => {}
            Counted::BeforeLast if self.value > self.rise => self.value = self.rise + 1,
            Counted::BeforeLast => {}
            Counted::Last => self.value = self.rise,
        }
        let (moved, change) = self.report(Status::Hana);
        (moved || before != self.value, change)
    }

    /// As healthy as another one, which may count in other steps: then it is so for certain.
    pub fn like(&self, other: &Self) -> Self {
        let (rise, fall, running) = (self.rise, self.fall, other.running);
        if (rise, fall) == (other.rise, other.fall) {
            return other.clone();
        }
        let value = if running == Running::Down { 0 } else { rise + fall - 1 };
        Self { rise, fall, value, running }
    }

    /// It is so for certain, whatever was found.
    pub fn set(&mut self, running: Running) {
        self.running = running;
        self.value = if running == Running::Down { 0 } else { self.most() };
    }

    /// How it is.
    pub fn running(&self) -> Running {
        self.running
    }

    /// Its value.
    pub fn value(&self) -> u32 {
        self.value
    }

    /// `rise` and `fall`.
    pub fn steps(&self) -> (u32, u32) {
        (self.rise, self.fall)
    }

    /// `rise`
    pub fn rise(&self) -> u32 {
        self.rise
    }

    /// `fall`
    pub fn fall(&self) -> u32 {
        self.fall
    }

    /// Neither about to go down nor about to come up.
    pub fn is_settled(&self) -> bool {
        self.value == 0 || self.value == self.most()
    }

    fn most(&self) -> u32 {
        self.rise + self.fall - 1
    }

    /// The checks that count towards the next change, and of how many: `2/3` of a server that fails for the
    /// second time of three is 1 of 3 left.
    pub fn progress(&self) -> (u32, u32) {
        if self.value >= self.rise {
            (self.value - self.rise + 1, self.fall)
        } else {
            (self.value, self.rise)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(health: &mut Health, statuses: &[Status]) -> Vec<Option<Change>> {
        statuses.iter().map(|status| health.report(*status).1).collect()
    }

    #[test]
    fn one_failure_takes_a_server_down_that_was_never_checked() {
        let mut health = Health::new(2, 3, Init::Up);
        assert_eq!(
            after(&mut health, &[Status::L4Con]),
            [Some(Change { from: Running::Up, to: Running::Down })]
        );
        assert_eq!((health.value(), health.progress()), (0, (0, 2)));
    }

    #[test]
    fn rise_good_checks_bring_it_up_and_fall_failures_take_it_down() {
        let mut health = Health::new(2, 3, Init::FullyDown);
        let up = Some(Change { from: Running::Down, to: Running::Up });
        assert_eq!(after(&mut health, &[Status::L7Ok, Status::L7Ok]), [None, up]);
        assert_eq!(health.progress(), (3, 3));
        let down = Some(Change { from: Running::Up, to: Running::Down });
        assert_eq!(after(&mut health, &[Status::L7Sts, Status::L7Tout, Status::L7Rsp]), [None, None, down]);
    }

    #[test]
    fn a_good_check_in_between_heals_at_once_and_a_failure_on_the_way_up_begins_anew() {
        let mut health = Health::new(2, 3, Init::FullyUp);
        assert_eq!(after(&mut health, &[Status::L7Sts, Status::L7Sts, Status::L7Ok]), [None; 3]);
        assert!(health.is_settled());
        let mut health = Health::new(3, 1, Init::FullyDown);
        after(&mut health, &[Status::L4Ok, Status::L4Ok, Status::L4Con]);
        assert_eq!(health.value(), 0);
    }

    #[test]
    fn errors_of_traffic_count_as_they_are_told_to() {
        let down = Some(Change { from: Running::Up, to: Running::Down });
        for (counted, changes, left) in [
            (Counted::AsCheck, [None, None], 3),
            (Counted::BeforeLast, [None, down], 0),
            (Counted::Last, [down, None], 0),
        ] {
            let mut health = Health::new(2, 4, Init::FullyUp);
            let seen = [health.observe(counted).1, health.report(Status::L4Con).1];
            assert_eq!((seen, health.value()), (changes, left), "{counted:?}");
        }
    }

    #[test]
    fn what_wants_no_clients_stops_where_it_ran_and_does_not_come_up_by_it() {
        let mut health = Health::new(1, 2, Init::FullyUp);
        let stops = Some(Change { from: Running::Up, to: Running::Stopping });
        let back = Some(Change { from: Running::Stopping, to: Running::Up });
        assert_eq!(after(&mut health, &[Status::L7OkC, Status::L7OkC, Status::L7Ok]), [stops, None, back]);
        let mut health = Health::new(1, 2, Init::FullyDown);
        assert_eq!(after(&mut health, &[Status::L7OkC]), [None]);
        assert_eq!(health.running(), Running::Down);
    }

    proptest! {
        #[test]
        fn it_stays_in_its_range_and_is_up_only_from_rise_on(
            rise in 1u32..6, fall in 1u32..6, outcomes in proptest::collection::vec(any::<bool>(), 0..64)
        ) {
            let mut health = Health::new(rise, fall, Init::Up);
            for good in outcomes {
                health.report(if good { Status::L4Ok } else { Status::L4Con });
                prop_assert!(health.value() < rise + fall);
                prop_assert_eq!(health.running() == Running::Up, health.value() >= rise);
            }
        }
    }
}
