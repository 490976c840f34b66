//! Aborts the process with a message that nobody may read.

use std::process::abort;
use std::thread::{Builder, sleep};
use std::time::Duration;

/// Longest time that [`abort_after`] waits for its message.
const LONGEST: Duration = Duration::from_secs(1);

/// Stack size in bytes of the thread that waits: the system counts all of it where memory is bounded.
const STACK: usize = 64 << 10;

/// Aborts the process once `write` has written why, or after a second: the reader of standard error may have
/// stopped. `write` should ignore errors, since the reader may also have left. If the system has no thread
/// for the second, `write` has as long as it takes.
pub fn abort_after(write: impl FnOnce()) -> ! {
    let waits = || {
        sleep(LONGEST);
        abort()
    };
    let _ = Builder::new().name("abort".to_owned()).stack_size(STACK).spawn(waits);
    write();
    abort()
}
