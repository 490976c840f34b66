//! What the program does not do yet, refused by name where the file says it.

use manylane_config::diag::Diagnostics;
use manylane_config::source::Pos;
use manylane_config::lex::Word;
use manylane_config::tree::{Config, Set};
use std::path::PathBuf;

/// Takes note of what is refused.
pub(super) struct Refuse<'a> {
    pub(super) found: &'a mut Diagnostics,
    pub(super) config: &'a Config,
    /// `-dr`
    pub(super) ignore_unresolved: bool,
}

impl Refuse<'_> {
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

    /// Says that a setting makes no difference here.
    pub(super) fn idle<T>(&mut self, set: &Option<Set<T>>, keyword: &str, why: &str) {
        if let Some(set) = set {
            self.found.warning(set.pos, format!("'{keyword}' has no effect here: {why}"));
        }
    }
}
