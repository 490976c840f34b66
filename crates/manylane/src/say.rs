//! What the program says, in HAProxy's shape.

use std::fmt::Display;
use std::io::Write;

/// One line on standard error.
pub(crate) fn say(severity: &str, message: impl Display) {
    let _ =
        writeln!(std::io::stderr(), "{:<11}({}) : {message}", format!("[{severity}]"), std::process::id());
}

/// Several lines that are written already, and one more. Nobody may be there to read them.
pub(crate) fn all(text: &str, severity: &str, last: &str) {
    let between = if text.is_empty() { "" } else { "\n" };
    let line = format!("{:<11}({}) : {last}", format!("[{severity}]"), std::process::id());
    let _ = writeln!(std::io::stderr(), "{text}{between}{line}");
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
