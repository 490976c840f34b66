//! Refuses settings that the program does not implement, at their position in the file.

use super::files::Files;
use manylane_config::diag::{Diagnostics, Severity};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::tree::{Config, Set};
use manylane_sync::Arc;
use manylane_tls::Store;
use std::collections::HashSet;
use std::path::PathBuf;

/// Collects errors while a generation is built.
pub(super) struct Refuse<'a> {
    pub(super) found: &'a mut Diagnostics,
    pub(super) config: &'a Config,
    /// `-dr`
    pub(super) ignore_unresolved: bool,
    /// [`StartOptions::no_lookups`](super::StartOptions::no_lookups)
    pub(super) no_lookups: bool,
    /// Files read so far.
    pub(super) files: Files,
    /// Number of listeners so far, over all `bind` lines.
    pub(super) listeners: usize,
    /// `@<section>/<name>` of `load` lines of which a file was refused, and `@<section>` of sections with a
    /// `load` line that was refused, so its certificate is missing.
    pub(super) refused_loads: HashSet<String>,
    /// Certificates and keys read so far.
    pub(super) tls: Arc<Store>,
}

impl<'a> Refuse<'a> {
    pub(super) fn new(found: &'a mut Diagnostics, config: &'a Config, ignore_unresolved: bool) -> Self {
        Self {
            found,
            config,
            ignore_unresolved,
            no_lookups: false,
            files: Files::default(),
            listeners: 0,
            refused_loads: HashSet::new(),
            tls: Arc::default(),
        }
    }

    /// Returns true if `word` is `@<section>/<name>` of a certificate that is missing, since its `load` line
    /// was refused.
    pub(super) fn is_refused_load(&self, word: &Word) -> bool {
        let name = word.shown().to_string();
        let section = name.split('/').next().unwrap_or_default();
        self.refused_loads.contains(&name) || self.refused_loads.contains(section)
    }

    /// Returns the path of the file that `word` names.
    pub(super) fn path(&self, word: &Word) -> PathBuf {
        self.config.path(word.bytes(), word.pos())
    }

    /// Refuses `keyword` at `pos` for the reason `why`.
    pub(super) fn keyword(&mut self, pos: Pos, keyword: &str, why: &str) {
        let message = format!("'{keyword}' is a keyword of HAProxy that this program refuses: {why}");
        self.found.alert(pos, message);
    }

    /// Refuses the keyword if it is set.
    pub(super) fn set<T>(&mut self, set: &Option<Set<T>>, keyword: &str, why: &str) {
        if let Some(set) = set {
            self.keyword(set.pos, keyword, why);
        }
    }

    /// Adds a message below a warning.
    pub(super) fn note(&mut self, pos: Pos, message: String) {
        self.found.push(Severity::Notice, Some(pos), message);
    }

    /// Adds a note that the setting has no effect here.
    pub(super) fn idle<T>(&mut self, set: &Option<Set<T>>, keyword: &str, why: &str) {
        if let Some(set) = set {
            // A note, since `zero-warning` would refuse a file that HAProxy accepts.
            let message = format!("'{keyword}' has no effect here: {why}");
            self.found.push(Severity::Notice, Some(set.pos), message);
        }
    }
}
