//! Whether a configuration that is read again fits under `-m`, beside the one that serves.
//!
//! What is built asks for memory by calls that cannot fail: where there is none the process aborts. So a
//! reload asks first whether there is as much as the first generation took, which is measured.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Bytes that a byte of a file takes while a generation is made of it, where a file has grown: lines of
/// servers take 400, sections of a few lines 700.
const EACH: usize = 768;

/// What the first generation took, in bytes.
struct Meter {
    /// What the system says of the process: opened before a `chroot`.
    status: File,
    /// What the process had written to before it read the files.
    begin: usize,
    /// The size of the files, and what the process had written to when it had read them.
    read: OnceLock<(usize, usize)>,
    /// The same when all lanes served.
    serves: OnceLock<usize>,
}

static METER: OnceLock<Meter> = OnceLock::new();

/// Bytes of memory that the process has written to.
fn written(status: &File) -> Option<usize> {
    let mut text = [0; 4096];
    let length = status.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(kilobytes.trim().strip_suffix(" kB")?.parse::<usize>().ok()? << 10)
}

/// Measures from here on. To be called before files are read, where memory is bounded. Where the system does
/// not tell, all reloads are tried.
pub(crate) fn measure() {
    if let Ok(status) = File::open("/proc/self/status")
        && let Some(begin) = written(&status)
    {
        METER.get_or_init(|| Meter { status, begin, read: OnceLock::new(), serves: OnceLock::new() });
    }
}

/// Files of so many bytes were read and built.
pub(crate) fn read(bytes: usize) {
    if let Some(meter) = METER.get()
        && let Some(now) = written(&meter.status)
    {
        meter.read.get_or_init(|| (bytes, now));
    }
}

/// All lanes serve what was read.
pub(crate) fn serves() {
    if let Some(meter) = METER.get()
        && let Some(now) = written(&meter.status)
    {
        meter.serves.get_or_init(|| now);
    }
}

/// Whether files of so many bytes can be read again.
///
/// # Errors
/// A sentence: there is too little memory for it.
pub(crate) fn has_room_for(bytes: usize) -> Result<(), String> {
    let Some(meter) = METER.get() else { return Ok(()) };
    let Some(&(before, read)) = meter.read.get() else { return Ok(()) }; // it is the start
    let most = meter.serves.get().map_or(read, |serves| read.max(*serves));
    let need = needed((before, most.saturating_sub(meter.begin)), bytes);
    let found = manylane_pool::reserve::available(need);
    if found == need {
        return Ok(());
    }
    Err(format!(
        "The configuration is not built: beside the one that serves it needs about {} MB, and '-m' leaves {} \
         MB; raise '-m', or start another process with '-sf {}'.",
        need.div_ceil(1 << 20),
        found >> 20,
        std::process::id()
    ))
}

/// What files of so many bytes take, where those of so many others took so much.
fn needed((before, took): (usize, usize), bytes: usize) -> usize {
    match bytes.checked_sub(before) {
        Some(more) => took + more * EACH,
        None => took / before * bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_grow_need_more_and_those_that_shrink_less() {
        assert_eq!(needed((1000, 400_000), 1000), 400_000);
        assert_eq!(needed((1000, 400_000), 1100), 400_000 + 100 * EACH);
        assert_eq!(needed((1000, 400_000), 500), 200_000);
        assert_eq!(needed((0, 0), 0), 0);
    }

    #[test]
    fn memory_that_is_written_to_is_seen() {
        let status = File::open("/proc/self/status").unwrap();
        let before = written(&status).unwrap();
        let block = vec![1_u8; 32 << 20];
        assert!(written(&status).unwrap() >= before + (16 << 20));
        drop(block);
    }
}
