//! Findings about a configuration: all of one run, in the order in which they were made, in HAProxy's shape.
//!
//! A finding at a place is shown as
//!
//! ```text
//! [ALERT]    (4711) : config : parsing [edge.cfg:12] : unknown keyword 'maxcon' in 'frontend' section; did you mean 'maxconn' maybe ? at column 3:
//!   maxcon 2000
//!   ^
//! ```
//!
//! The first line has the shape that scripts and editors read from HAProxy; the other two are for people.

mod outcome;
mod render;

pub use outcome::{Check, ExitCode, Outcome};

use crate::limits::MAX_DIAGNOSTICS;
use crate::source::Pos;

/// How much a finding matters. Ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Suspicious but legal; shown with `-dD` only.
    Diag,
    /// Information.
    Notice,
    /// Probably not meant so; the configuration is used, unless `-dW` or `zero-warning` forbid it.
    Warning,
    /// An error: the configuration is not used.
    Alert,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How much it matters.
    pub severity: Severity,
    /// The place, when there is one.
    pub pos: Option<Pos>,
    /// What was wrong and what to do, without a full stop at the end of a place's first line; further lines
    /// are shown below it.
    pub message: String,
}

/// The findings of one run.
#[derive(Debug, Default)]
pub struct Diagnostics {
    found: Vec<Diagnostic>,
    counts: [usize; 4],
    diag_mode: bool,
}

impl Diagnostics {
    /// None yet. Findings of [`Severity::Diag`] are kept only in diagnostic mode (`-dD`).
    pub fn new(diag_mode: bool) -> Self {
        Self { diag_mode, ..Self::default() }
    }

    /// Adds a finding. Beyond [`MAX_DIAGNOSTICS`] findings are counted only, save that the first alert is
    /// always kept.
    pub fn push(&mut self, severity: Severity, pos: Option<Pos>, message: impl Into<String>) {
        if severity == Severity::Diag && !self.diag_mode {
            return;
        }
        let first_alert = severity == Severity::Alert && self.errors() == 0;
        self.counts[severity as usize] += 1;
        if self.found.len() < MAX_DIAGNOSTICS || first_alert {
            self.found.push(Diagnostic { severity, pos, message: message.into() });
        }
    }

    /// Adds an error at a place.
    pub fn alert(&mut self, pos: Pos, message: impl Into<String>) {
        self.push(Severity::Alert, Some(pos), message);
    }

    /// Adds a warning at a place.
    pub fn warning(&mut self, pos: Pos, message: impl Into<String>) {
        self.push(Severity::Warning, Some(pos), message);
    }

    /// Adds something suspicious at a place, in diagnostic mode.
    pub fn diag(&mut self, pos: Pos, message: impl Into<String>) {
        self.push(Severity::Diag, Some(pos), message);
    }

    /// The findings that were kept, oldest first.
    pub fn found(&self) -> &[Diagnostic] {
        &self.found
    }

    /// How many there were of a severity, kept or not.
    pub fn count(&self, severity: Severity) -> usize {
        self.counts[severity as usize]
    }

    /// How many errors there were.
    pub fn errors(&self) -> usize {
        self.count(Severity::Alert)
    }

    /// Whether further findings are only counted: then nobody needs a proposal.
    pub fn is_full(&self) -> bool {
        self.found.len() >= MAX_DIAGNOSTICS
    }

    /// How many findings were counted but not kept.
    pub fn dropped(&self) -> usize {
        self.counts.iter().sum::<usize>() - self.found.len()
    }
}

impl Severity {
    /// The word between brackets, padded to the width of the longest.
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Self::Diag => "[DIAG]     ",
            Self::Notice => "[NOTICE]   ",
            Self::Warning => "[WARNING]  ",
            Self::Alert => "[ALERT]    ",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_beyond_the_limit_are_counted_and_the_first_error_is_kept() {
        let mut all = Diagnostics::new(false);
        for _ in 0..MAX_DIAGNOSTICS + 7 {
            all.push(Severity::Warning, None, "w");
        }
        all.push(Severity::Alert, None, "first");
        all.push(Severity::Alert, None, "second");
        assert_eq!(all.count(Severity::Warning), MAX_DIAGNOSTICS + 7);
        assert_eq!((all.errors(), all.found().len()), (2, MAX_DIAGNOSTICS + 1));
        assert_eq!(all.found().last().unwrap().message, "first");
        assert_eq!(all.dropped(), 8);
    }

    #[test]
    fn suspicions_are_kept_in_diagnostic_mode_only() {
        for mode in [false, true] {
            let mut all = Diagnostics::new(mode);
            all.push(Severity::Diag, None, "hm");
            assert_eq!(all.found().len(), usize::from(mode));
        }
    }
}
