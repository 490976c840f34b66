//! Aborts the process with a message that nobody may read.

use std::process::abort;
use std::thread::{Builder, sleep};
use std::time::Duration;

/// Longest time that the message of a process that aborts may take, for its reader: that may have stopped.
pub const LONGEST_WRITE: Duration = Duration::from_secs(1);

/// Stack size in bytes of the thread that waits: the system counts all of it where memory is bounded.
const STACK: usize = 64 << 10;

/// Aborts the process once `write` has written why, or after the `longest` time: [`LONGEST_WRITE`], and what
/// `write` itself may need. `write` should ignore errors, since the reader may also have left. If the system
/// has no thread that waits, `write` has as long as it takes.
pub fn abort_after(longest: Duration, write: impl FnOnce()) -> ! {
    let waits = move || {
        sleep(longest);
        abort()
    };
    let _ = Builder::new().name("abort".to_owned()).stack_size(STACK).spawn(waits);
    write();
    abort()
}
