//! `observe`, `error-limit`, `on-error`: errors of live traffic.
//!
//! # Protocol
//! Requests on any lane read one number of the server, which stays 0 as long as all goes well: its line is
//! written by errors, and by the first success after them. So in steady state no line moves.

use super::refuse::Refuse;
use manylane_check::Counted;
use manylane_config::table::ServerOptions;
use manylane_config::tree::Mode;
use manylane_sync::Arc;
use manylane_sync::atomic::{AtomicU32, Ordering};

/// Errors in a row, without `error-limit`.
const USUAL_LIMIT: u32 = 10;

/// What is observed of a server's traffic.
#[derive(Debug)]
pub struct Observed {
    /// Responses of HTTP; else connections.
    pub layer7: bool,
    /// `error-limit`
    limit: u32,
    /// `on-error`
    pub on_error: OnError,
    /// Errors in a row. Relaxed: a number by itself.
    errors: Arc<AtomicU32>,
}

/// What too many errors do, beside that the next check is made sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// Nothing more.
    FastInter,
    /// It counts in this way.
    Counts(Counted),
}

impl Observed {
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
            Some("sudden-death") => OnError::Counts(Counted::BeforeLast),
            Some("mark-down") => OnError::Counts(Counted::Last),
            _ => OnError::Counts(Counted::AsCheck),
        };
        let limit = options.error_limit.map_or(USUAL_LIMIT, |set| set.value);
        Some(Self { layer7, limit, on_error, errors: Arc::default() })
    }

    /// Goes on with the errors of the same server in the generation before.
    pub(super) fn succeed(&mut self, was: &Self) {
        self.errors = was.errors.clone();
    }

    /// It went well.
    #[inline]
    pub(crate) fn well(&self) {
        if self.errors.load(Ordering::Relaxed) != 0 {
            self.errors.store(0, Ordering::Relaxed);
        }
    }

    /// It did not. How many times in a row, if that is too often; then it begins anew.
    pub(crate) fn failed(&self) -> Option<u32> {
        let errors = self.errors.fetch_add(1, Ordering::Relaxed) + 1;
        (errors >= self.limit).then(|| {
            self.errors.store(0, Ordering::Relaxed);
            errors
        })
    }
}
