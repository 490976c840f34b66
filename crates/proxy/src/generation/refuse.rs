//! What the program does not do yet, refused by name where the file says it.

use super::files::Files;
use manylane_config::diag::{Diagnostics, Severity};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::tree::{Config, Set};
use manylane_sync::Arc;
use manylane_tls::Store;
use std::path::PathBuf;

/// Takes note of what is refused.
pub(super) struct Refuse<'a> {
    pub(super) found: &'a mut Diagnostics,
    pub(super) config: &'a Config,
    /// `-dr`
    pub(super) ignore_unresolved: bool,
    /// The files that were read.
    pub(super) files: Files,
    /// Listeners so far, of all `bind` lines.
    pub(super) listeners: usize,
    /// The files of TLS, and what lines with TLS have in common.
    pub(super) tls: Arc<Store>,
}

impl<'a> Refuse<'a> {
    pub(super) fn new(found: &'a mut Diagnostics, config: &'a Config, ignore_unresolved: bool) -> Self {
        Self { found, config, ignore_unresolved, files: Files::default(), listeners: 0, tls: Arc::default() }
    }

    /// The file that a word names.
    pub(super) fn path(&self, word: &Word) -> PathBuf {
        self.config.path(word.bytes(), word.pos())
    }

    /// The keyword at `pos` is refused because of `why`.
    pub(super) fn keyword(&mut self, pos: Pos, keyword: &str, why: &str) {
        let message = format!("'{keyword}' is a keyword of HAProxy that this program refuses: {why}");
        self.found.alert(pos, message);
    }

    /// Refuses what is set.
    pub(super) fn set<T>(&mut self, set: &Option<Set<T>>, keyword: &str, why: &str) {
        if let Some(set) = set {
            self.keyword(set.pos, keyword, why);
        }
    }

    /// Says something that is no warning.
    pub(super) fn note(&mut self, pos: Pos, message: String) {
        self.found.push(Severity::Notice, Some(pos), message);
    }

    /// Says that a setting makes no difference here.
    pub(super) fn idle<T>(&mut self, set: &Option<Set<T>>, keyword: &str, why: &str) {
        if let Some(set) = set {
            // No warning: `zero-warning` would refuse a file that HAProxy takes.
            let message = format!("'{keyword}' has no effect here: {why}");
            self.found.push(Severity::Notice, Some(set.pos), message);
        }
    }
}
