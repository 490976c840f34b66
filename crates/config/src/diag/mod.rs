//! Findings about a configuration, in HAProxy's format.
//!
//! A finding with a position is shown as
//!
//! ```text
//! [ALERT]    (4711) : config : parsing [edge.cfg:12] : unknown keyword 'maxcon' in 'frontend' section; did
//! you mean 'maxconn'?
//!   --> edge.cfg:12:3
//!   maxcon 2000
//!   ^~~~~~
//! ```
//!
//! Scripts and editors parse the first line, which has the format of HAProxy. Terminals can make a link of
//! the second. The last line underlines the word, with a caret at the error.

mod outcome;
mod render;

pub use outcome::{Check, ExitCode, Outcome};

use crate::limits::{MAX_ALIKE, MAX_DIAGNOSTICS};
use crate::source::{FileId, Pos};
use std::collections::{BTreeSet, HashMap};

/// Severity of a finding, in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Suspicious but valid; shown only with `-dD`.
    Diag,
    /// Information.
    Notice,
    /// Probably a mistake. The configuration is used, unless `-dW` or `zero-warning` forbids it.
    Warning,
    /// An error: the configuration is not used.
    Alert,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its severity.
    pub severity: Severity,
    /// Its position, if it has one.
    pub pos: Option<Pos>,
    /// The error and advice. The first line has no full stop if the finding has a position. Further lines are
    /// shown below the source line.
    pub message: String,
    /// Length of the message without its suggestion. Findings that agree up to here are alike.
    stem: usize,
}

/// The findings of one run, bounded in number.
#[derive(Debug, Default)]
pub struct Diagnostics {
    found: Vec<Diagnostic>,
    counts: [usize; 4],
    /// Number of findings with the same severity and text as a kept one.
    alike: HashMap<(Severity, String), usize>,
    /// Number of findings that were neither kept nor counted in `alike`.
    dropped: usize,
    /// Files with errors.
    files: BTreeSet<FileId>,
    diag_mode: bool,
}

impl Diagnostics {
    /// An empty list. It keeps findings of [`Severity::Diag`] only in diagnostic mode (`-dD`).
    pub fn new(diag_mode: bool) -> Self {
        Self { diag_mode, ..Self::default() }
    }

    /// Adds a finding. It is only counted beyond [`MAX_DIAGNOSTICS`] findings, or [`MAX_ALIKE`] with the same
    /// text. The first alert is always kept. The same finding at the same position is ignored: each proxy
    /// that inherits a line compiles it, and so reports its mistakes again.
    pub fn push(&mut self, severity: Severity, pos: Option<Pos>, message: impl Into<String>) {
        self.push_with(severity, pos, message.into(), String::new);
    }

    /// Adds an error at a position, with a suggestion behind its message. Suggestions are expensive, so
    /// `guess` is called for a kept finding only.
    pub fn alert_with(&mut self, pos: Pos, message: impl Into<String>, guess: impl FnOnce() -> String) {
        self.push_with(Severity::Alert, Some(pos), message.into(), guess);
    }

    fn push_with(
        &mut self,
        severity: Severity,
        pos: Option<Pos>,
        message: String,
        guess: impl FnOnce() -> String,
    ) {
        if severity == Severity::Diag && !self.diag_mode {
            return;
        }
        let key = (severity, message);
        let is_kept =
            |found: &Diagnostic| found.pos == pos && found.severity == severity && found.stem() == key.1;
        if pos.is_some() && self.alike.contains_key(&key) && self.found.iter().any(is_kept) {
            return;
        }
        let first_alert = severity == Severity::Alert && self.errors() == 0;
        self.counts[severity as usize] += 1;
        if severity == Severity::Alert {
            self.files.extend(pos.map(|pos| pos.file));
        }
        let full = self.found.len() >= MAX_DIAGNOSTICS && !first_alert;
        match self.alike.get_mut(&key) {
            Some(count) if full || *count >= MAX_ALIKE => *count += 1,
            _ if full => self.dropped += 1,
            _ => {
                let message = key.1.clone() + &guess();
                self.found.push(Diagnostic { severity, pos, message, stem: key.1.len() });
                *self.alike.entry(key).or_default() += 1;
            }
        }
    }

    /// Adds an error at a position.
    pub fn alert(&mut self, pos: Pos, message: impl Into<String>) {
        self.push(Severity::Alert, Some(pos), message);
    }

    /// Adds a warning at a position.
    pub fn warning(&mut self, pos: Pos, message: impl Into<String>) {
        self.push(Severity::Warning, Some(pos), message);
    }

    /// Adds a finding of [`Severity::Diag`] at a position.
    pub fn diag(&mut self, pos: Pos, message: impl Into<String>) {
        self.push(Severity::Diag, Some(pos), message);
    }

    /// The kept findings, oldest first.
    pub fn found(&self) -> &[Diagnostic] {
        &self.found
    }

    /// True if an error was found in the line of `pos`. A further error there may be a consequence.
    ///
    /// Cost: linear in the number of kept findings.
    pub fn has_error_in_line(&self, pos: Pos) -> bool {
        let same = |found: Pos| (found.file, found.line) == (pos.file, pos.line);
        let mut errors = self.found.iter().filter(|found| found.severity == Severity::Alert);
        errors.any(|found| found.pos.is_some_and(same))
    }

    /// Number of findings of a severity, kept or not.
    pub fn count(&self, severity: Severity) -> usize {
        self.counts[severity as usize]
    }

    /// Number of errors, kept or not.
    pub fn errors(&self) -> usize {
        self.count(Severity::Alert)
    }

    /// Number of findings that were not kept and have a text that no kept one has.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// Number of findings with the same severity and text, itself included.
    fn alike(&self, finding: &Diagnostic) -> usize {
        self.alike.get(&(finding.severity, finding.stem().to_owned())).copied().unwrap_or(1)
    }

    /// `2 errors, 1 warning`; `None` without errors and warnings.
    pub fn tally(&self) -> Option<String> {
        let parts = [(Severity::Alert, "error"), (Severity::Warning, "warning")].map(|(severity, word)| {
            match self.count(severity) {
                0 => None,
                1 => Some(format!("1 {word}")),
                count => Some(format!("{count} {word}s")),
            }
        });
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl Diagnostic {
    /// The message without its suggestion.
    fn stem(&self) -> &str {
        &self.message[..self.stem]
    }
}

impl Severity {
    /// The severity in brackets, padded to a common width.
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
        for number in 0..MAX_DIAGNOSTICS + 7 {
            all.push(Severity::Warning, None, format!("w{number}"));
        }
        all.push(Severity::Alert, None, "first");
        all.push(Severity::Alert, None, "second");
        assert_eq!(all.count(Severity::Warning), MAX_DIAGNOSTICS + 7);
        assert_eq!((all.errors(), all.found().len()), (2, MAX_DIAGNOSTICS + 1));
        assert_eq!(all.found().last().unwrap().message, "first");
        assert_eq!(all.dropped(), 8);
    }

    #[test]
    fn those_alike_leave_room_for_others() {
        let mut all = Diagnostics::new(false);
        for _ in 0..MAX_DIAGNOSTICS + 7 {
            all.push(Severity::Alert, None, "alike");
        }
        all.push(Severity::Alert, None, "another");
        assert_eq!((all.errors(), all.found().len(), all.dropped()), (MAX_DIAGNOSTICS + 8, MAX_ALIKE + 1, 0));
        assert_eq!(all.tally().unwrap(), format!("{} errors", MAX_DIAGNOSTICS + 8));
    }

    #[test]
    fn a_suggestion_is_made_for_kept_findings_only_and_does_not_part_those_alike() {
        let mut all = Diagnostics::new(false);
        let mut sources = crate::source::Sources::new();
        let file = sources.add("t.cfg", "x\n").unwrap();
        let guesses = std::cell::Cell::new(0);
        for line in (1..).take(MAX_DIAGNOSTICS + 7) {
            all.alert_with(Pos { file, line, column: 1 }, "alike", || {
                guesses.set(guesses.get() + 1);
                format!("; guess {}", guesses.get())
            });
        }
        assert_eq!((guesses.get(), all.found().len()), (MAX_ALIKE, MAX_ALIKE));
        let text = all.render(&sources, 7);
        assert!(text.contains("] : alike; guess 1\n") && text.contains("1006 more of the same"), "{text}");
        assert!(!text.contains("guess 2"), "{text}");
    }

    #[test]
    fn an_inherited_mistake_is_one_finding() {
        let mut all = Diagnostics::new(false);
        let file = crate::source::Sources::new().add("t.cfg", "x\n").unwrap();
        for line in [1, 2, 1, 2] {
            all.warning(Pos { file, line, column: 1 }, "alike");
        }
        all.alert(Pos { file, line: 1, column: 1 }, "alike");
        assert_eq!((all.count(Severity::Warning), all.errors(), all.found().len()), (2, 1, 3));
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
