//! Whether a frontend takes connections: an operator closes it for a while, or for good.

use manylane_sync::atomic::{AtomicU64, Ordering};

/// A frontend's gate, which its generations share. Lanes look at it between two connections.
#[derive(Debug, Default)]
pub struct FrontendGate(AtomicU64); // the state in two bits, and above them how often it changed

/// Whether connections are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontendGateState {
    /// They are.
    Open,
    /// They are not, until it is open again.
    Paused,
    /// They are not any more.
    Shut,
}

/// A gate as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrontendGateSnapshot(u64);

impl FrontendGateSnapshot {
    pub(crate) fn state(self) -> FrontendGateState {
        match self.0 & 3 {
            0 => FrontendGateState::Open,
            1 => FrontendGateState::Paused,
            _ => FrontendGateState::Shut,
        }
    }
}

impl FrontendGate {
    /// What it is.
    pub fn state(&self) -> FrontendGateState {
        self.seen().state()
    }

    /// What it is, which differs from what it was before each change.
    pub(crate) fn seen(&self) -> FrontendGateSnapshot {
        // Acquire: pairs with the release in `set`, whoever sees it closed sees what was done before.
        FrontendGateSnapshot(self.0.load(Ordering::Acquire))
    }

    /// Sets it, unless it was shut. What it was before.
    pub fn set(&self, to: FrontendGateState) -> FrontendGateState {
        let state = match to {
            FrontendGateState::Open => 0,
            FrontendGateState::Paused => 1,
            FrontendGateState::Shut => 2,
        };
        // Release: see `seen`.
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
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
        let first = gate.seen();
        assert_eq!(
            (gate.set(FrontendGateState::Paused), gate.set(FrontendGateState::Paused)),
            (FrontendGateState::Open, FrontendGateState::Paused)
        );
        assert_eq!(gate.set(FrontendGateState::Open), FrontendGateState::Paused);
        assert_ne!(gate.seen(), first, "open as before, but not the same");
        assert_eq!(
            (gate.set(FrontendGateState::Shut), gate.set(FrontendGateState::Open)),
            (FrontendGateState::Open, FrontendGateState::Shut)
        );
        assert_eq!(gate.state(), FrontendGateState::Shut);
    }
}
