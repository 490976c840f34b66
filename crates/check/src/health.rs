//! The health of a server: `rise` good checks in a row bring it up, `fall` failed checks in a row take it
//! down.

use crate::status::{Outcome, Status};

/// `init-state`: initial state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Init {
    /// Up, until `fall` checks have failed.
    FullyUp,
    /// Up, until one check has failed.
    #[default]
    Up,
    /// Down, until one check has passed.
    Down,
    /// Down, until `rise` checks have passed.
    FullyDown,
}

/// State of a server by its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    /// The server works.
    Up,
    /// The server works and takes no new clients.
    Stopping,
    /// The server does not work.
    Down,
}

/// Weight of failing traffic, compared with checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorWeight {
    /// Counts as one failed check: `fail-check`.
    AsCheck,
    /// Leaves one failure: the next failed check takes the server down (`sudden-death`).
    BeforeLast,
    /// Takes the server down: `mark-down`.
    Last,
}

/// Change of state by the result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// State before.
    pub from: HealthState,
    /// State after.
    pub to: HealthState,
}

/// Health of a server: a number from 0 to `rise + fall - 1`; the server is up from `rise` on.
#[derive(Clone, Debug)]
pub struct Health {
    rise: u32,
    fall: u32,
    value: u32,
    running: HealthState,
}

impl Health {
    /// Creates the health before the first check. Both counts are at least 1.
    pub fn new(rise: u32, fall: u32, init: Init) -> Self {
        let (rise, fall) = (rise.max(1), fall.max(1));
        let value = match init {
            Init::FullyUp => rise + fall - 1,
            Init::Up => rise,
            Init::Down => rise - 1,
            Init::FullyDown => 0,
        };
        let running = if value >= rise { HealthState::Up } else { HealthState::Down };
        Self { rise, fall, value, running }
    }

    /// Restores a health from its four parts.
    pub(crate) fn of(rise: u32, fall: u32, value: u32, running: HealthState) -> Self {
        Self { rise, fall, value, running }
    }

    /// Applies the status of a check. Returns whether the health moved, and the change of state, if there was
    /// one.
    pub fn report(&mut self, status: Status) -> (bool, Option<Change>) {
        let before = (self.value, self.running);
        match status.outcome() {
            Outcome::Unknown => {}
            Outcome::Failed => {
                self.value = self.value.saturating_sub(1);
                if self.value < self.rise {
                    self.value = 0;
                    self.running = HealthState::Down;
                }
            }
            passed @ (Outcome::Passed | Outcome::Conditional) => {
                self.value = (self.value + 1).min(self.most());
                if self.value >= self.rise {
                    self.value = self.most();
                    self.running = match (passed, self.running) {
                        // A server that is down does not come up by a result that takes no new clients.
                        (Outcome::Conditional, HealthState::Down) => HealthState::Down,
                        (Outcome::Conditional, _) => HealthState::Stopping,
                        _ => HealthState::Up,
                    };
                }
            }
        }
        let changed = before.1 != self.running;
        (before.0 != self.value, changed.then_some(Change { from: before.1, to: self.running }))
    }

    /// Applies repeated failures of live traffic: one failed check, or as many as `counted` asks for. Returns
    /// what [`report`](Self::report) does.
    pub fn observe(&mut self, counted: ErrorWeight) -> (bool, Option<Change>) {
        let before = self.value;
        match counted {
            ErrorWeight::AsCheck => {}
            ErrorWeight::BeforeLast if self.value > self.rise => self.value = self.rise + 1,
            ErrorWeight::BeforeLast => {}
            ErrorWeight::Last => self.value = self.rise,
        }
        let (moved, change) = self.report(Status::Hana);
        (moved || before != self.value, change)
    }

    /// Returns the health of `other` with the counts of this one. If the counts differ, the state is kept and
    /// settled.
    pub fn like(&self, other: &Self) -> Self {
        let (rise, fall, running) = (self.rise, self.fall, other.running);
        if (rise, fall) == (other.rise, other.fall) {
            return other.clone();
        }
        let value = if running == HealthState::Down { 0 } else { rise + fall - 1 };
        Self { rise, fall, value, running }
    }

    /// Sets a settled state, whatever checks found.
    pub fn set(&mut self, running: HealthState) {
        self.running = running;
        self.value = if running == HealthState::Down { 0 } else { self.most() };
    }

    /// Returns the state.
    pub fn running(&self) -> HealthState {
        self.running
    }

    /// Returns the number.
    pub fn value(&self) -> u32 {
        self.value
    }

    /// Returns `rise` and `fall`.
    pub fn steps(&self) -> (u32, u32) {
        (self.rise, self.fall)
    }

    /// Returns `rise`.
    pub fn rise(&self) -> u32 {
        self.rise
    }

    /// Returns `fall`.
    pub fn fall(&self) -> u32 {
        self.fall
    }

    /// Returns whether the server is neither about to go down nor about to come up.
    pub fn is_settled(&self) -> bool {
        self.value == 0 || self.value == self.most()
    }

    fn most(&self) -> u32 {
        self.rise + self.fall - 1
    }

    /// Returns the progress towards the next change. For a server that is up: the number of failures that are
    /// left, and `fall`; after the first of three failures, 2 of 3. For one that is down: the number of
    /// checks passed, and `rise`.
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
            [Some(Change { from: HealthState::Up, to: HealthState::Down })]
        );
        assert_eq!((health.value(), health.progress()), (0, (0, 2)));
    }

    #[test]
    fn rise_good_checks_bring_it_up_and_fall_failures_take_it_down() {
        let mut health = Health::new(2, 3, Init::FullyDown);
        let up = Some(Change { from: HealthState::Down, to: HealthState::Up });
        assert_eq!(after(&mut health, &[Status::L7Ok, Status::L7Ok]), [None, up]);
        assert_eq!(health.progress(), (3, 3));
        let down = Some(Change { from: HealthState::Up, to: HealthState::Down });
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
    fn errors_of_traffic_count_as_configured() {
        let down = Some(Change { from: HealthState::Up, to: HealthState::Down });
        for (counted, changes, left) in [
            (ErrorWeight::AsCheck, [None, None], 3),
            (ErrorWeight::BeforeLast, [None, down], 0),
            (ErrorWeight::Last, [down, None], 0),
        ] {
            let mut health = Health::new(2, 4, Init::FullyUp);
            let observed = [health.observe(counted).1, health.report(Status::L4Con).1];
            assert_eq!((observed, health.value()), (changes, left), "{counted:?}");
        }
    }

    #[test]
    fn what_wants_no_clients_stops_where_it_ran_and_does_not_come_up_by_it() {
        let mut health = Health::new(1, 2, Init::FullyUp);
        let stops = Some(Change { from: HealthState::Up, to: HealthState::Stopping });
        let back = Some(Change { from: HealthState::Stopping, to: HealthState::Up });
        assert_eq!(after(&mut health, &[Status::L7OkC, Status::L7OkC, Status::L7Ok]), [stops, None, back]);
        let mut health = Health::new(1, 2, Init::FullyDown);
        assert_eq!(after(&mut health, &[Status::L7OkC]), [None]);
        assert_eq!(health.running(), HealthState::Down);
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
                prop_assert_eq!(health.running() == HealthState::Up, health.value() >= rise);
            }
        }
    }
}
