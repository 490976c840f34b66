//! Whether a frontend accepts connections. An operator may pause it, or shut it for good.

use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::update;

/// The gate of a frontend, shared by its generations. Lanes read it before they accept a connection.
#[derive(Debug, Default)]
pub struct FrontendGate(AtomicU64); // bits 0 and 1: the state; above: number of changes

/// State of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontendGateState {
    /// The frontend accepts connections.
    Open,
    /// The frontend accepts no connections until it is open again.
    Paused,
    /// The frontend accepts no connections any more. Final.
    Shut,
}

/// The state of a gate, and the number of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontendGateSnapshot(u64);

impl FrontendGateSnapshot {
    /// The state then.
    pub fn state(self) -> FrontendGateState {
        match self.0 & 3 {
            0 => FrontendGateState::Open,
            1 => FrontendGateState::Paused,
            _ => FrontendGateState::Shut,
        }
    }
}

impl FrontendGate {
    /// Returns the state.
    #[inline]
    pub fn state(&self) -> FrontendGateState {
        self.snapshot().state()
    }

    /// Returns a snapshot. Snapshots before and after a change differ.
    #[inline]
    pub fn snapshot(&self) -> FrontendGateSnapshot {
        // Acquire: pairs with the release in `set`. A lane that sees the new state sees all writes before it.
        FrontendGateSnapshot(self.0.load(Ordering::Acquire))
    }

    /// Sets the state, unless the gate is shut. Returns the state before.
    pub fn set(&self, to: FrontendGateState) -> FrontendGateState {
        let state = match to {
            FrontendGateState::Open => 0,
            FrontendGateState::Paused => 1,
            FrontendGateState::Shut => 2,
        };
        // Release: see `snapshot`.
        let before = update(&self.0, Ordering::AcqRel, Ordering::Acquire, |word| {
            let was = FrontendGateSnapshot(word).state();
            (was != to && was != FrontendGateState::Shut).then_some(((word >> 2) + 1) << 2 | state)
        });
        FrontendGateSnapshot(before.unwrap_or_else(|word| word)).state()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_was_shut_stays_so_and_each_change_is_seen() {
        let gate = FrontendGate::default();
        let first = gate.snapshot();
        assert_eq!(
            (gate.set(FrontendGateState::Paused), gate.set(FrontendGateState::Paused)),
            (FrontendGateState::Open, FrontendGateState::Paused)
        );
        assert_eq!(gate.set(FrontendGateState::Open), FrontendGateState::Paused);
        assert_ne!(gate.snapshot(), first, "open as before, but not the same");
        assert_eq!(
            (gate.set(FrontendGateState::Shut), gate.set(FrontendGateState::Open)),
            (FrontendGateState::Open, FrontendGateState::Shut)
        );
        assert_eq!(gate.state(), FrontendGateState::Shut);
    }
}
