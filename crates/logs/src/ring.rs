//! A ring keeps the last lines of all lanes in memory, for readers.
//!
//! # Protocol
//! 1. One lock guards the bytes. Lanes put batches of lines under it. Readers copy a part of bounded size
//!    under it and process the copy without it.
//! 2. Lines have offsets that only grow. A reader keeps the offset of its next line. If that line was
//!    overwritten, the reader continues with the oldest line and learns how many it missed.
//! 3. A reader that has read everything leaves its waker with the ring. Putting lines takes all wakers out
//!    and wakes them without the lock.
//! 4. Rings of the same name share their bytes across generations; the size is that of the current
//!    generation.

use crate::outbox::Batch;
use manylane_sync::{Arc, LockClass, Mutex};
use std::fmt;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

static RING: LockClass = LockClass::new("ring", 72);

/// Smallest size of a ring, in bytes.
pub const MIN_RING: usize = 16_384;
/// Largest size of a ring, in bytes. The kernel provides its pages as lines arrive.
pub const MAX_RING: usize = 1 << 30;
/// Bytes that a reader copies under the lock at a time, while lanes with lines wait.
pub const RING_PART: usize = 16_384;
/// Bytes before each line, for its length.
pub const RING_OVERHEAD: usize = 4;

/// The last lines that were logged, up to a size. Lanes bring theirs in batches.
#[derive(Debug)]
pub struct Ring {
    name: Box<str>,
    description: Box<str>,
    size: usize,
    /// Made at the first use, or shared with the previous ring.
    store: OnceLock<Arc<Store>>,
}

#[derive(Debug)]
struct Store(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    /// Each line has its length before it and its line end after it. The byte at an offset is stored at the
    /// offset modulo the size.
    bytes: Vec<u8>,
    /// Offset of the oldest line, and the end of the newest. `end - oldest <= bytes.len()`.
    oldest: u64,
    end: u64,
    /// Numbers of the oldest line and of the next one.
    first: u64,
    next: u64,
    /// Wakers of readers that wait for lines, by the reader's number.
    waiting: Vec<(u64, Waker)>,
    /// Number of readers created so far.
    readers: u64,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Lines({} in {} of {} bytes)",
            self.next - self.first,
            self.end - self.oldest,
            self.bytes.len()
        )
    }
}

impl Lines {
    /// The position of `length` bytes from `offset`, in two parts: at the end of the memory they continue at
    /// its beginning.
    fn range(&self, offset: u64, length: usize) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let begin = (offset % self.bytes.len() as u64) as usize;
        let end = (begin + length).min(self.bytes.len());
        (begin..end, 0..length - (end - begin))
    }

    fn at(&self, offset: u64, length: usize) -> (&[u8], &[u8]) {
        let (first, second) = self.range(offset, length);
        (&self.bytes[first], &self.bytes[second])
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (first, second) = self.range(offset, bytes.len());
        let (before, behind) = bytes.split_at(first.len());
        self.bytes[first].copy_from_slice(before);
        self.bytes[second].copy_from_slice(behind);
    }

    /// The length of the line at an offset.
    fn length(&self, offset: u64) -> usize {
        let mut length = [0; RING_OVERHEAD];
        let (first, second) = self.at(offset, RING_OVERHEAD);
        length[..first.len()].copy_from_slice(first);
        length[first.len()..].copy_from_slice(second);
        u32::from_le_bytes(length) as usize
    }

    /// Drops the oldest lines until the rest and `more` bytes fit into `size`.
    fn make_room(&mut self, more: usize, size: usize) {
        while (self.end - self.oldest) as usize + more > size {
            self.oldest += (RING_OVERHEAD + self.length(self.oldest)) as u64;
            self.first += 1;
        }
    }

    fn push(&mut self, line: &[u8]) -> bool {
        let (needed, size) = (RING_OVERHEAD + line.len(), self.bytes.len());
        let Ok(length) = u32::try_from(line.len()) else { return false };
        if needed > size {
            return false;
        }
        self.make_room(needed, size);
        self.write(self.end, &length.to_le_bytes());
        self.write(self.end + RING_OVERHEAD as u64, line);
        self.end += needed as u64;
        self.next += 1;
        true
    }

    /// Changes the size, keeping the newest lines that fit.
    fn resize(&mut self, size: usize) {
        if size == self.bytes.len() {
            return;
        }
        self.make_room(0, size);
        let mut fresh = Self { bytes: vec![0; size], ..Self::default() };
        let (first, second) = self.at(self.oldest, (self.end - self.oldest) as usize);
        fresh.write(self.oldest, first);
        fresh.write(self.oldest + first.len() as u64, second);
        self.bytes = fresh.bytes;
    }
}

impl Ring {
    /// Creates an empty ring of `size` bytes, including [`RING_OVERHEAD`] for each line. The size is clamped
    /// to [`MIN_RING`] to [`MAX_RING`].
    pub fn new(name: &str, description: &str, size: usize) -> Self {
        let size = size.clamp(MIN_RING, MAX_RING);
        Self { name: name.into(), description: description.into(), size, store: OnceLock::new() }
    }

    /// True if the process can allocate that size now, without the [reserve](manylane_pool::reserve) for
    /// others: a ring that is too large must not make memory short.
    pub fn fits(size: usize) -> bool {
        manylane_pool::check_block(size).is_ok() && Vec::<u8>::new().try_reserve_exact(size).is_ok()
    }

    /// The ring's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The description in the configuration.
    pub fn description(&self) -> &str {
        &self.description
    }

    fn store(&self) -> &Arc<Store> {
        // Zeroed by the kernel: pages are provided as lines arrive.
        let lines = || Lines { bytes: vec![0; self.size], ..Lines::default() };
        self.store.get_or_init(|| Arc::new(Store(Mutex::new(&RING, lines()))))
    }

    /// Appends a batch; the oldest lines make room. Returns the number of lines that fit.
    pub(crate) fn put(&self, batch: &Batch) -> usize {
        let store = self.store();
        let (put, waiting) = {
            let mut lines = store.0.lock();
            let put = batch.lines().filter(|line| lines.push(line)).count();
            (put, std::mem::take(&mut lines.waiting))
        };
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
        put
    }

    /// Shares the lines of the ring that this one replaces; lanes that still log to that one log to this one.
    /// Call before the first use of `self`.
    pub fn follow(&self, before: &Self) {
        let _ = self.store.set(before.store().clone());
    }

    /// Applies this ring's size; call when its generation begins to serve.
    pub fn take_effect(&self) {
        self.store().0.lock().resize(self.size);
    }

    /// Creates a reader, which begins with the oldest line, or with the next new line if `new_only`.
    pub fn reader(&self, new_only: bool) -> RingReader {
        let store = self.store().clone();
        let (at, line, number) = {
            let mut lines = store.0.lock();
            lines.readers += 1;
            let (at, line) = if new_only { (lines.end, lines.next) } else { (lines.oldest, lines.first) };
            (at, line, lines.readers)
        };
        RingReader { store, at, line, number }
    }
}

/// Reads a ring's lines in order.
#[derive(Debug)]
pub struct RingReader {
    store: Arc<Store>,
    /// Offset and number of the next line.
    at: u64,
    line: u64,
    /// The reader's own number.
    number: u64,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingRead {
    /// Number of lines read.
    pub lines: u64,
    /// Number of lines before them that were overwritten.
    pub missed: u64,
    /// Number of lines after them.
    pub left: u64,
}

impl RingReader {
    /// Passes each next line to `take`, without its line end and in two parts, the second mostly empty.
    /// Passes at least one line if there is any, and stops once they have [`RING_PART`] bytes. `take` runs
    /// under the ring's lock, so it should only copy.
    pub(crate) fn lines(&mut self, mut take: impl FnMut(&[u8], &[u8])) -> RingRead {
        let lines = self.store.0.lock();
        let mut read = RingRead { missed: lines.first.saturating_sub(self.line), ..RingRead::default() };
        if read.missed > 0 {
            (self.at, self.line) = (lines.oldest, lines.first);
        }
        let mut bytes = 0;
        while self.at < lines.end {
            let length = lines.length(self.at);
            bytes += length;
            if bytes > RING_PART && read.lines > 0 {
                break;
            }
            let (first, second) = lines.at(self.at + RING_OVERHEAD as u64, length.saturating_sub(1));
            take(first, second);
            self.at += (RING_OVERHEAD + length) as u64;
            self.line += 1;
            read.lines += 1;
        }
        read.left = lines.next - self.line;
        read
    }

    /// Appends the next lines to `into`, each with its line end: at least one if there is any, and about
    /// [`RING_PART`] bytes at most.
    pub fn read(&mut self, into: &mut Vec<u8>) -> RingRead {
        self.lines(|first, second| {
            into.extend_from_slice(first);
            into.extend_from_slice(second);
            into.push(b'\n');
        })
    }

    /// Ready if there are lines to read. Otherwise the task is woken when there may be some.
    pub fn poll_lines(&self, context: &Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let mut lines = self.store.0.lock();
        if self.at < lines.end {
            return Poll::Ready(());
        }
        match lines.waiting.iter_mut().find(|(number, _)| *number == self.number) {
            Some((_, waiting)) => *waiting = waker,
            None => lines.waiting.push((self.number, waker)),
        }
        Poll::Pending
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        let mut lines = self.store.0.lock();
        let index = lines.waiting.iter().position(|(number, _)| *number == self.number);
        let waker = index.map(|position| lines.waiting.swap_remove(position));
        drop(lines);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(lines: &[String]) -> Batch {
        let mut batch = Batch::default();
        for line in lines {
            batch.bytes.extend(line.as_bytes());
            batch.bytes.push(b'\n');
            batch.ends.push(batch.bytes.len());
        }
        batch
    }

    /// All remaining lines.
    fn rest(reader: &mut RingReader) -> (String, u64) {
        let (mut bytes, mut missed) = (Vec::new(), 0);
        loop {
            let read = reader.read(&mut bytes);
            missed += read.missed;
            if read.left == 0 {
                return (String::from_utf8(bytes).expect("text"), missed);
            }
        }
    }

    /// Lines of 1,020 bytes; sixteen fill the smallest ring.
    fn numbered(numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| format!("{number:01019}")).collect()
    }

    fn expected(numbers: std::ops::Range<usize>) -> String {
        numbered(numbers).iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn the_oldest_lines_make_room_and_readers_are_informed() {
        let ring = Ring::new("r", "", MIN_RING);
        let mut first = ring.reader(false);
        assert_eq!(ring.put(&batch(&numbered(0..10))), 10);
        assert_eq!(rest(&mut first), (expected(0..10), 0));
        let mut new = ring.reader(true);
        assert_eq!(ring.put(&batch(&["x".repeat(MIN_RING)])), 0, "it does not fit");
        assert_eq!(ring.put(&batch(&numbered(10..40))), 30);
        assert_eq!(rest(&mut first), (expected(24..40), 14));
        assert_eq!(rest(&mut new), (expected(24..40), 14));
        assert_eq!(rest(&mut ring.reader(false)), (expected(24..40), 0));
        assert_eq!(rest(&mut ring.reader(true)), (String::new(), 0));
    }

    #[test]
    fn lines_of_all_lengths_come_out_as_they_went_in_wherever_the_memory_ends() {
        let ring = Ring::new("r", "", MIN_RING);
        let mut reader = ring.reader(false);
        let mut length = 0;
        for _ in 0..1_000 {
            let line = vec!["y".repeat(length)];
            ring.put(&batch(&line));
            assert_eq!(rest(&mut reader), (format!("{}\n", line[0]), 0));
            length = (length * 31 + 7) % 700;
        }
    }

    #[test]
    fn a_part_is_bounded_and_has_a_line_at_least() {
        let ring = Ring::new("r", "", 10 * MIN_RING);
        ring.put(&batch(&numbered(0..40)));
        ring.put(&batch(&["z".repeat(2 * RING_PART)]));
        let mut reader = ring.reader(false);
        let part = |reader: &mut RingReader| {
            let mut bytes = Vec::new();
            let read = reader.read(&mut bytes);
            (bytes.len(), read)
        };
        let read = |lines, left| RingRead { lines, missed: 0, left };
        assert_eq!(part(&mut reader), (16 * 1020, read(16, 25)));
        assert_eq!(part(&mut reader), (16 * 1020, read(16, 9)));
        assert_eq!(part(&mut reader), (8 * 1020, read(8, 1)));
        assert_eq!(part(&mut reader), (2 * RING_PART + 1, read(1, 0)));
        assert_eq!(part(&mut reader), (0, read(0, 0)));
    }

    #[test]
    fn the_next_ring_has_the_lines_and_its_own_size_once_it_serves() {
        let before = Ring::new("r", "", 2 * MIN_RING);
        before.put(&batch(&numbered(0..30)));
        let mut reader = before.reader(false);
        let next = Ring::new("r", "", MIN_RING);
        next.follow(&before);
        assert_eq!(rest(&mut next.reader(false)).0, expected(0..30));
        next.take_effect();
        assert_eq!(rest(&mut next.reader(false)).0, expected(14..30));
        before.put(&batch(&numbered(30..31)));
        assert_eq!(rest(&mut reader), (expected(15..31), 15));
        let larger = Ring::new("r", "", 3 * MIN_RING);
        larger.follow(&next);
        larger.take_effect();
        larger.put(&batch(&numbered(31..51)));
        assert_eq!(rest(&mut reader), (expected(31..51), 0));
        assert_eq!(rest(&mut larger.reader(false)), (expected(15..51), 0));
    }

    #[test]
    fn who_waits_is_woken_by_lines_and_by_no_reader_that_is_gone() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = std::sync::Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(count.clone());
        let context = Context::from_waker(&waker);
        let ring = Ring::new("r", "", MIN_RING);
        let mut reader = ring.reader(true);
        assert!(reader.poll_lines(&context).is_pending() && reader.poll_lines(&context).is_pending());
        let gone = ring.reader(true);
        assert!(gone.poll_lines(&context).is_pending());
        drop(gone);
        ring.put(&batch(&numbered(0..1)));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(reader.poll_lines(&context).is_ready());
        assert_eq!(rest(&mut reader).0, expected(0..1));
        assert!(reader.poll_lines(&context).is_pending());
    }
}
