//! What the program says, in HAProxy's shape.

use manylane_sync::{LockClass, Mutex};
use std::fmt::Display;
use std::io::Write;
use std::sync::OnceLock;

/// Bytes that are kept of what is said while a worker starts.
pub(crate) const MOST_KEPT: usize = 32 << 10;

static CLASS: LockClass = LockClass::new("words of the start", LockClass::LEAF);
static KEPT: OnceLock<Mutex<Option<String>>> = OnceLock::new();

/// From here on what is said is kept, too: a worker's master tells it to whoever has asked for a reload.
pub(crate) fn keep() {
    KEPT.get_or_init(|| Mutex::new(&CLASS, Some(String::new())));
}

/// What was said since then. No more is kept.
pub(crate) fn kept() -> String {
    KEPT.get().and_then(|kept| kept.lock().take()).unwrap_or_default()
}

/// Set once [`introduced`].
static INTRODUCED: OnceLock<()> = OnceLock::new();

/// Says no more what this program is: it has been said, the process is ready, or it is of no use.
pub(crate) fn introduced() {
    let _ = INTRODUCED.set(());
}

/// What HAProxy says before the first warning or error of its start: which program writes this.
fn introduction() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let version = line("NOTICE", format_args!("manylane version is {}", env!("CARGO_PKG_VERSION")));
    version + &line("NOTICE", format_args!("path to executable is {}", path.display()))
}

/// Lines that are written already, with their ends.
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

/// Adds lines to others, as long as there is room.
pub(crate) fn add(kept: &mut String, text: &str) {
    for line in text.split_inclusive('\n') {
        if kept.len() + line.len() <= MOST_KEPT {
            kept.push_str(line);
        }
    }
}

/// One line.
pub(crate) fn line(severity: &str, message: impl Display) -> String {
    format!("{:<11}({}) : {message}\n", format!("[{severity}]"), std::process::id())
}

/// One line on standard error.
pub(crate) fn say(severity: &str, message: impl Display) {
    text(&line(severity, message));
}

/// Several lines that are written already, and one more.
pub(crate) fn lines(text: &str, severity: &str, last: &str) -> String {
    let between = if text.is_empty() { "" } else { "\n" };
    format!("{text}{between}{}", line(severity, last))
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
