//! A ring: the last lines of all lanes, kept in memory for whoever reads them.
//!
//! # Protocol
//! 1. One lock guards the bytes. Lanes put a batch of lines under it; readers copy a part of bounded size
//!    under it, and do with it what they like without it.
//! 2. Lines have offsets that only grow. A reader has the offset of the line that it reads next: where that
//!    was overwritten, it goes on with the oldest line that is there, and is told how many it missed.
//! 3. A reader that has read all leaves its waker with the ring. Whoever puts lines takes the wakers out, and
//!    wakes them without the lock.
//! 4. Rings of the same name share their bytes from one generation of a configuration to the next; the size
//!    is that of the one that serves.

use crate::outbox::Batch;
use manylane_sync::{Arc, LockClass, Mutex};
use std::fmt;
use std::future::poll_fn;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

static RING: LockClass = LockClass::new("ring", 72);

/// The fewest bytes of a ring.
pub const MIN_RING: usize = 16_384;
/// The most: what the system gives for it page by page, as lines come.
pub const MAX_RING: usize = 1 << 30;
/// Bytes that a reader copies at once, while lanes with lines wait.
pub const RING_PART: usize = 16_384;
/// Bytes before each line, for its length.
pub const RING_OVERHEAD: usize = 4;

/// The last lines that were logged to it, up to a size. Lanes bring theirs a batch at a time.
#[derive(Debug)]
pub struct Ring {
    name: Box<str>,
    description: Box<str>,
    size: usize,
    /// Made when it is first asked for, or taken over from the ring before.
    store: OnceLock<Arc<Store>>,
}

#[derive(Debug)]
struct Store(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    /// Each line with its length before it and its line end behind it; the byte at an offset stands at the
    /// remainder of the division by the size.
    bytes: Vec<u8>,
    /// The offset of the oldest line, and the one behind the newest. `end - oldest <= bytes.len()`.
    oldest: u64,
    end: u64,
    /// Their numbers.
    first: u64,
    next: u64,
    /// Who waits for lines, by the readers' numbers.
    waiting: Vec<(u64, Waker)>,
    /// Readers so far.
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
    /// Where `length` bytes from `offset` stand: behind the end of the memory they go on at its beginning.
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

    /// Lets the oldest lines go until what is left and `more` bytes fit into `size`.
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

    /// Another size: the newest lines that fit stay.
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
    /// An empty one of `size` bytes, each line's [`RING_OVERHEAD`] included. Out of [`MIN_RING`] to
    /// [`MAX_RING`] the next size that is within.
    pub fn new(name: &str, description: &str, size: usize) -> Self {
        let size = size.clamp(MIN_RING, MAX_RING);
        Self { name: name.into(), description: description.into(), size, store: OnceLock::new() }
    }

    /// Whether the process can have memory of that size now.
    pub fn fits(size: usize) -> bool {
        Vec::<u8>::new().try_reserve_exact(size).is_ok()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for, as the file says.
    pub fn description(&self) -> &str {
        &self.description
    }

    fn store(&self) -> &Arc<Store> {
        // Zeroes of the system's: pages come when lines do.
        let lines = || Lines { bytes: vec![0; self.size], ..Lines::default() };
        self.store.get_or_init(|| Arc::new(Store(Mutex::new(&RING, lines()))))
    }

    /// Puts a batch behind what is there; the oldest lines make room. How many lines had any.
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

    /// Shares the lines of the ring that this one takes the place of: those who still log to that one log to
    /// this one. Before anybody uses `self`.
    pub fn follow(&self, before: &Self) {
        let _ = self.store.set(before.store().clone());
    }

    /// The ring serves: its size is what it says.
    pub fn take_effect(&self) {
        self.store().0.lock().resize(self.size);
    }

    /// Who reads from the oldest line that is there, or from the first that comes after now.
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

/// Reads a ring's lines, one after the other.
#[derive(Debug)]
pub struct RingReader {
    store: Arc<Store>,
    /// The offset and the number of the next line.
    at: u64,
    line: u64,
    /// Its own number.
    number: u64,
}

/// What a reader got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingRead {
    /// Lines.
    pub lines: u64,
    /// Lines before them that are gone.
    pub missed: u64,
    /// Lines that are there behind them.
    pub left: u64,
}

impl RingReader {
    /// Gives each next line to `take`, without its line end and in two pieces, the second mostly empty: at
    /// least one if there is any, and no more when they have [`RING_PART`] bytes together. `take` runs
    /// under the ring's lock: it copies, and no more.
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

    /// Puts the next lines behind `into`, each with its line end: at least one if there is any, and about
    /// [`RING_PART`] bytes at most.
    pub fn read(&mut self, into: &mut Vec<u8>) -> RingRead {
        self.lines(|first, second| {
            into.extend_from_slice(first);
            into.extend_from_slice(second);
            into.push(b'\n');
        })
    }

    /// Whether there are lines to read; if not, the task is woken when some may be.
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

    /// Waits until there are lines to read.
    pub async fn wait(&self) {
        poll_fn(|context| self.poll_lines(context)).await;
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        let mut lines = self.store.0.lock();
        let place = lines.waiting.iter().position(|(number, _)| *number == self.number);
        let waker = place.map(|place| lines.waiting.swap_remove(place));
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

    /// All that is left to read.
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

    /// Lines of 1,020 bytes, so that sixteen fill the smallest ring.
    fn numbered(numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| format!("{number:01019}")).collect()
    }

    fn expected(numbers: std::ops::Range<usize>) -> String {
        numbered(numbers).iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn the_oldest_lines_make_room_and_readers_are_told() {
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
