//! Observations of servers by requests, where they count for health (`observe`).

use super::check_report::tell;
use super::local::Local;
use crate::traffic::Parties;
use manylane_balance::Index;
use manylane_check::{CheckResult, Status};
use manylane_plan::generation::{Backend, OnError, ServerCheck, TrafficObserver};

/// Observation of a server by one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The server was connected.
    Connected,
    /// The server could not be connected.
    NotConnected,
    /// The response had this status.
    Status(u16),
    /// The head of the response was invalid.
    BadHead,
    /// The framing of the response's body was invalid.
    BadBody,
    /// No response arrived in time.
    Silent,
    /// The server closed before its response.
    Closed,
}

impl Observation {
    /// Returns whether the observation is a success; `None` if it does not count in this mode.
    fn is_well(self, layer7: bool) -> Option<bool> {
        match (self, layer7) {
            (Self::Connected, false) => Some(true),
            (Self::NotConnected, _) => Some(false),
            (Self::Connected, true) | (_, false) => None,
            // 501 and 505 may be due to the client's request.
            (Self::Status(status), true) => Some(status < 500 || status == 501 || status == 505),
            (Self::BadHead | Self::BadBody | Self::Silent | Self::Closed, true) => Some(false),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Connected => "L4 successful connection",
            Self::NotConnected => "L4 unsuccessful connection",
            Self::Status(_) => "Wrong http response",
            Self::BadHead => "Invalid http response (headers)",
            Self::BadBody => "Invalid http response",
            Self::Silent => "Read timeout (http)",
            Self::Closed => "Read error (http)",
        }
    }
}

/// Counts an observation of a server.
#[inline]
pub fn observe(local: &Local, backend: &Backend, index: Index, observation: Observation) {
    let Some(check) = &backend.servers[index.get()].check else { return };
    let Some(observed) = &check.observed else { return };
    match observation.is_well(observed.layer7) {
        None => {}
        Some(true) => observed.well(),
        Some(false) => failed(local, backend, index, check, observed, observation),
    }
}

#[cold]
fn failed(
    local: &Local,
    backend: &Backend,
    index: Index,
    check: &ServerCheck,
    observed: &TrafficObserver,
    observation: Observation,
) {
    if !check.board.is_active() {
        return;
    }
    let Some(errors) = observed.failed() else { return };
    let server = Some(&*backend.servers[index.get()]);
    Parties { server, ..Parties::new(&local.generation) }.error_limit_reached();
    if let OnError::Counts(counted) = observed.on_error {
        let info = format!("Detected {errors} consecutive errors, last one was: {}", observation.words());
        let (is_new, change) = check.board.observe(CheckResult::new(Status::Hana, info), counted);
        tell(local, backend, index, is_new, change);
    }
    check.notify.notify_one();
}
