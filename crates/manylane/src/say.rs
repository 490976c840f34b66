//! Messages of the program, in HAProxy's form.

use manylane_sync::{LockClass, Mutex};
use std::fmt::Display;
use std::io::Write;
use std::sync::OnceLock;

/// Most bytes of messages that are kept while a worker starts.
pub(crate) const MOST_KEPT: usize = 32 << 10;

static CLASS: LockClass = LockClass::new("startup messages", LockClass::LEAF);
static KEPT: OnceLock<Mutex<Option<String>>> = OnceLock::new();

/// Starts to keep messages: a worker's master passes them to clients that asked for a reload.
pub(crate) fn keep() {
    KEPT.get_or_init(|| Mutex::new(&CLASS, Some(String::new())));
}

/// Returns the kept messages and stops keeping them.
pub(crate) fn kept() -> String {
    KEPT.get().and_then(|kept| kept.lock().take()).unwrap_or_default()
}

/// Set once the program was [`introduced`].
static INTRODUCED: OnceLock<()> = OnceLock::new();

/// Suppresses the introduction: it was written, the process is ready, or the introduction is useless.
pub(crate) fn introduced() {
    let _ = INTRODUCED.set(());
}

/// Returns the lines that HAProxy writes before the first warning or error of its start: which program this
/// is.
fn introduction() -> String {
    // Without `/proc` the system does not tell the path.
    let called = || std::env::args_os().next().unwrap_or_default().into();
    let path = std::env::current_exe().unwrap_or_else(|_| called());
    let version = line("NOTICE", format_args!("manylane version is {}", env!("CARGO_PKG_VERSION")));
    version + &line("NOTICE", format_args!("path to executable is {}", path.display()))
}

/// Writes formatted lines, with their ends.
pub(crate) fn text(text: &str) {
    let warns = |line: &str| line.starts_with("[WARNING]") || line.starts_with("[ALERT]");
    if text.lines().any(warns) && INTRODUCED.set(()).is_ok() {
        self::text(&introduction());
    }
    if let Some(kept) = KEPT.get()
        && let Some(kept) = &mut *kept.lock()
    {
        add(kept, text);
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Appends lines as long as there is room.
pub(crate) fn add(kept: &mut String, text: &str) {
    for line in text.split_inclusive('\n') {
        if kept.len() + line.len() <= MOST_KEPT {
            kept.push_str(line);
        }
    }
}

/// Formats one line.
pub(crate) fn line(severity: &str, message: impl Display) -> String {
    format!("{:<11}({}) : {message}\n", format!("[{severity}]"), std::process::id())
}

/// Writes one line to standard error.
pub(crate) fn say(severity: &str, message: impl Display) {
    text(&line(severity, message));
}

/// Appends one line to formatted lines.
pub(crate) fn lines(text: &str, severity: &str, last: &str) -> String {
    let between = if text.is_empty() { "" } else { "\n" };
    format!("{text}{between}{}", line(severity, last))
}

/// Writes an error.
pub(crate) fn alert(message: impl Display) {
    say("ALERT", message);
}

/// Writes a warning.
pub(crate) fn warning(message: impl Display) {
    say("WARNING", message);
}

/// Writes information.
pub(crate) fn notice(message: impl Display) {
    say("NOTICE", message);
}
