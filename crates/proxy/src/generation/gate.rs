//! Whether a frontend takes connections: an operator closes it for a while, or for good.

use manylane_sync::atomic::{AtomicU64, Ordering};

/// A frontend's gate, which its generations share. Lanes look at it between two connections.
#[derive(Debug, Default)]
pub struct Gate(AtomicU64); // the state in two bits, and above them how often it changed

/// Whether connections are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateState {
    /// They are.
    Open,
    /// They are not, until it is open again.
    Paused,
    /// They are not any more.
    Shut,
}

/// A gate as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GateSeen(u64);

impl GateSeen {
    pub(crate) fn state(self) -> GateState {
        match self.0 & 3 {
            0 => GateState::Open,
            1 => GateState::Paused,
            _ => GateState::Shut,
        }
    }
}

impl Gate {
    /// What it is.
    pub fn state(&self) -> GateState {
        self.seen().state()
    }

    /// What it is, which differs from what it was before each change.
    pub(crate) fn seen(&self) -> GateSeen {
        // Acquire: pairs with the release in `set`, whoever sees it closed sees what was done before.
        GateSeen(self.0.load(Ordering::Acquire))
    }

    /// Sets it, unless it was shut. What it was before.
    pub fn set(&self, to: GateState) -> GateState {
        let state = match to {
            GateState::Open => 0,
            GateState::Paused => 1,
            GateState::Shut => 2,
        };
        // Release: see `seen`.
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            let was = GateSeen(word).state();
            (was != to && was != GateState::Shut).then_some(((word >> 2) + 1) << 2 | state)
        });
        GateSeen(before.unwrap_or_else(|word| word)).state()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_was_shut_stays_so_and_each_change_is_seen() {
        let gate = Gate::default();
        let first = gate.seen();
        assert_eq!(
            (gate.set(GateState::Paused), gate.set(GateState::Paused)),
            (GateState::Open, GateState::Paused)
        );
        assert_eq!(gate.set(GateState::Open), GateState::Paused);
        assert_ne!(gate.seen(), first, "open as before, but not the same");
        assert_eq!(
            (gate.set(GateState::Shut), gate.set(GateState::Open)),
            (GateState::Open, GateState::Shut)
        );
        assert_eq!(gate.state(), GateState::Shut);
    }
}
