//! Checks whether a configuration that is read again fits into bounded memory (`-m`), beside the serving one.
//!
//! Building a generation allocates in ways that cannot fail: without memory the process aborts. So a reload
//! first checks that as much memory is available as the first generation took, which is measured.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Bytes of memory for each further byte of a file that has grown: lines of servers take 400, sections of a
/// few lines 700.
const EACH: usize = 768;

/// Bytes of memory for each further section, besides those of its lines. A section without lines takes 30 KB,
/// of which 15 KB are parts of two large tables; the allocator needs the rest when it finds no gap for these.
const SECTION: usize = 64 << 10;

/// Size of the files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Size {
    pub(crate) bytes: usize,
    /// Number of sections that are proxies or `defaults`.
    pub(crate) proxies: usize,
}

/// Memory that the first generation took, in bytes.
struct Meter {
    /// The process's status file, opened before a `chroot`.
    status: File,
    /// Memory that the process had written to before it read the files.
    begin: usize,
    /// Size of the files, and the memory written to after they were read.
    read: OnceLock<(Size, usize)>,
    /// Memory written to once all lanes served.
    serves: OnceLock<usize>,
}

static METER: OnceLock<Meter> = OnceLock::new();

/// Returns the number of bytes of memory that the process has written to.
fn written(status: &File) -> Option<usize> {
    let mut text = [0; 4096];
    let length = status.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(kilobytes.trim().strip_suffix(" kB")?.parse::<usize>().ok()? << 10)
}

/// Starts to measure. To be called before files are read, if memory is limited. If the system does not report
/// memory, all reloads are attempted.
pub(crate) fn measure() {
    if let Ok(status) = File::open("/proc/self/status")
        && let Some(begin) = written(&status)
    {
        METER.get_or_init(|| Meter { status, begin, read: OnceLock::new(), serves: OnceLock::new() });
    }
}

/// Records the memory after files of this size were read and built.
pub(crate) fn read(size: Size) {
    if let Some(meter) = METER.get()
        && let Some(now) = written(&meter.status)
    {
        meter.read.get_or_init(|| (size, now));
    }
}

/// Records the memory once all lanes serve.
pub(crate) fn serves() {
    if let Some(meter) = METER.get()
        && let Some(now) = written(&meter.status)
    {
        meter.serves.get_or_init(|| now);
    }
}

/// Checks whether files of this size can be read again.
///
/// # Errors
/// A sentence: there is too little memory.
pub(crate) fn has_room_for(size: Size) -> Result<(), String> {
    let Some(meter) = METER.get() else { return Ok(()) };
    let Some(&(before, read)) = meter.read.get() else { return Ok(()) }; // called at the start
    let most = meter.serves.get().map_or(read, |serves| read.max(*serves));
    let need = needed((before, most.saturating_sub(meter.begin)), size);
    let found = manylane_pool::reserve::available(need);
    if found == need {
        return Ok(());
    }
    Err(format!(
        "The configuration is not built: beside the one that serves it needs about {} MB, and {} MB are \
         left; raise the limit of memory ('-m'), or start another process with '-sf {}'.",
        need.div_ceil(1 << 20),
        found >> 20,
        std::process::id()
    ))
}

/// Estimates the memory for files of `size`, from what files of another size took.
fn needed((before, took): (Size, usize), size: Size) -> usize {
    let sections = size.proxies.saturating_sub(before.proxies) * SECTION;
    match size.bytes.checked_sub(before.bytes) {
        Some(more) => took + more * EACH + sections,
        None => took / before.bytes * size.bytes + sections,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_grow_need_more_and_those_that_shrink_less() {
        let size = |bytes, proxies| Size { bytes, proxies };
        let before = (size(1000, 10), 400_000);
        assert_eq!(needed(before, size(1000, 10)), 400_000);
        assert_eq!(needed(before, size(1100, 10)), 400_000 + 100 * EACH);
        assert_eq!(needed(before, size(1100, 15)), 400_000 + 100 * EACH + 5 * SECTION);
        assert_eq!(needed(before, size(500, 5)), 200_000);
        assert_eq!(needed(before, size(500, 12)), 200_000 + 2 * SECTION);
        assert_eq!(needed((size(0, 0), 0), size(0, 0)), 0);
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
