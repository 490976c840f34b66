//! `observe`, `error-limit`, `on-error`: errors of live traffic.
//!
//! # Protocol
//! Requests of all lanes read one number of the server, which is 0 while there are no errors. Only errors,
//! and the first success after an error, write its cache line. So in steady state no line moves.

use super::refuse::Refuse;
use manylane_check::ErrorWeight;
use manylane_config::table::ServerOptions;
use manylane_config::tree::Mode;
use manylane_sync::Arc;
use manylane_sync::atomic::{AtomicU32, Ordering};

/// Default of `error-limit`, in consecutive errors.
const USUAL_LIMIT: u32 = 10;

/// Observation of a server's live traffic.
#[derive(Debug)]
pub struct TrafficObserver {
    /// True to observe HTTP responses, false for connections.
    pub layer7: bool,
    /// `error-limit`
    limit: u32,
    /// `on-error`
    pub on_error: OnError,
    /// Number of consecutive errors. Relaxed: no other data depends on it.
    errors: Arc<AtomicU32>,
}

/// Effect of too many errors, besides that the next check comes sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// No other effect.
    FastInter,
    /// The errors count as this change of the health.
    Counts(ErrorWeight),
}

impl TrafficObserver {
    pub(super) fn new(options: &ServerOptions, mode: Mode, refuse: &mut Refuse<'_>) -> Option<Self> {
        let observe = options.observe?;
        let layer7 = observe.value == "layer7";
        if layer7 && mode != Mode::Http {
            refuse.idle(
                &options.observe,
                "observe layer7",
                "it is for 'mode http' only; say 'observe layer4'",
            );
            return None;
        }
        let on_error = match options.on_error.map(|set| set.value) {
            Some("fastinter") => OnError::FastInter,
            Some("sudden-death") => OnError::Counts(ErrorWeight::BeforeLast),
            Some("mark-down") => OnError::Counts(ErrorWeight::Last),
            _ => OnError::Counts(ErrorWeight::AsCheck),
        };
        let limit = options.error_limit.map_or(USUAL_LIMIT, |set| set.value);
        Some(Self { layer7, limit, on_error, errors: Arc::default() })
    }

    /// Takes over the number of errors of the same server in the generation before.
    pub(super) fn succeed(&mut self, was: &Self) {
        self.errors = was.errors.clone();
    }

    /// Counts a success.
    #[inline]
    pub fn well(&self) {
        if self.errors.load(Ordering::Relaxed) != 0 {
            self.errors.store(0, Ordering::Relaxed);
        }
    }

    /// Counts an error. If there were too many in a row, returns their number and starts again at 0.
    pub fn failed(&self) -> Option<u32> {
        let errors = self.errors.fetch_add(1, Ordering::Relaxed) + 1;
        (errors >= self.limit).then(|| {
            self.errors.store(0, Ordering::Relaxed);
            errors
        })
    }
}
