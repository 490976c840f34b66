//! Log targets.

use super::refuse::Refuse;
use manylane_config::lex::Word;
use manylane_config::tree::{LogTarget, Set};

const WHY: &str = "logs are not built yet";

/// Where the line of a target is.
fn pos(target: &LogTarget) -> manylane_config::source::Pos {
    match target {
        LogTarget::Global(pos) => *pos,
        LogTarget::Own(line) => line.pos,
    }
}

/// The targets of `global`.
pub(super) fn global(
    log: &[LogTarget],
    hostname: &Option<Set<Option<Word>>>,
    tag: &Option<Set<Word>>,
    refuse: &mut Refuse<'_>,
) {
    targets(log, refuse);
    refuse.set(hostname, "log-send-hostname", WHY);
    refuse.set(tag, "log-tag", WHY);
}

/// The targets of a proxy.
pub(super) fn targets(log: &[LogTarget], refuse: &mut Refuse<'_>) {
    for target in log {
        refuse.keyword(pos(target), "log", WHY);
    }
}
