//! What the program does not do yet, refused by name where the file says it.

use manylane_config::diag::Diagnostics;
use manylane_config::source::Pos;
use manylane_config::tree::Set;

/// Takes note of what is refused.
pub(super) struct Refuse<'a> {
    pub(super) found: &'a mut Diagnostics,
    /// `-dr`
    pub(super) ignore_unresolved: bool,
}

impl Refuse<'_> {
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

    /// Refuses a switch that is on.
    pub(super) fn on(&mut self, set: &Option<Set<bool>>, keyword: &str, why: &str) {
        if let Some(set) = set
            && set.value
        {
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
