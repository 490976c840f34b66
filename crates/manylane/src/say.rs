//! What the program says, in HAProxy's shape.

use std::fmt::Display;

/// One line on standard error.
pub(crate) fn say(severity: &str, message: impl Display) {
    eprintln!("{:<11}({}) : {message}", format!("[{severity}]"), std::process::id());
}

/// An error.
pub(crate) fn alert(message: impl Display) {
    say("ALERT", message);
}

/// A warning.
pub(crate) fn warning(message: impl Display) {
    say("WARNING", message);
}

/// Information.
pub(crate) fn notice(message: impl Display) {
    say("NOTICE", message);
}
