//! Pages that the program generates from its state, such as counters for a monitoring system. Crates above
//! this one generate them; the background reporter, a thread beside the lanes, writes them.
//!
//! # Protocol
//! 1. A page is generated part by part. The reporter alternates between pages and works in slices of
//!    `SLICE` with pauses of `PAUSE` between them: a scrape of 50,000 servers delays a request by a
//!    slice.
//! 2. The reporter reads without locks: counters belong to their lanes, and results of checks and settings of
//!    operators are published (`SeqLatch`, `Published`). So a reporter that loses its processor delays no
//!    lane.
//! 3. The lane sends the head and the first part. From then on the reporter writes to the client's socket
//!    itself as long as the socket takes everything. The lane sends the bytes that the socket did not take,
//!    before the next turn.

use super::{Generation, StatsPage};
use manylane_io::BlockingWriter;
use manylane_net::Connection;
use manylane_sched::{Blocking, BlockingPool, Refused};
use manylane_sync::{Arc, Reader};
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Most pages that a lane serves at once: each page keeps its state until its client has read it.
pub const PAGES_AT_ONCE: u32 = 16;

/// Approximate size of a part in bytes: any page makes it in less than a slice.
pub const PART: usize = 16_384;

/// Generator of pages.
pub trait Pages: Send + Sync + fmt::Debug {
    /// Returns the metrics of `generation` for Prometheus: `http-request use-service prometheus-exporter`.
    /// `query` is the part of the request's target behind the question mark.
    ///
    /// # Errors
    /// The status of the response for a query that selects nothing known.
    fn metrics(&self, generation: &Arc<Generation>, query: &[u8]) -> Result<Page, u16>;

    /// Returns the statistics page: `stats uri`. `query` is the rest of the request's target behind that URI;
    /// `admin` says whether the client may change servers.
    fn statistics(
        &self,
        generation: &Arc<Generation>,
        page: &Arc<StatsPage>,
        query: &[u8],
        admin: bool,
    ) -> Page;
}

/// A page that is generated in parts.
pub struct Page {
    /// Value of the `content-type` field.
    pub content_type: &'static str,
    /// Value of the `refresh` field: seconds after which a browser loads the page again.
    pub refresh: Option<u64>,
    /// Generator of the parts. The reporter also frees it when a client wants only the head or leaves early.
    parts: Owned<Box<dyn Parts>>,
}

impl Page {
    /// Returns a page that `parts` generates.
    pub fn new(content_type: &'static str, refresh: Option<u64>, parts: impl Parts + 'static) -> Self {
        Self { content_type, refresh, parts: Owned(Some(Box::new(parts))) }
    }

    /// Starts to write the page, in chunks or as it is.
    pub fn writer(self, chunked: bool) -> PageWriter<Box<dyn Parts>> {
        PageWriter { parts: self.parts, chunked, socket: None }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({})", self.content_type)
    }
}

impl<P: Parts + ?Sized> Parts for Box<P> {
    fn next(&mut self, text: &mut String, reader: &Reader) -> bool {
        (**self).next(text, reader)
    }
}

/// Generates the parts of a page, one after another, on the reporter's thread.
pub trait Parts: Send {
    /// Appends the next part, of about [`PART`] bytes, or fewer if these would take longer than about 100
    /// microseconds. Returns true if more parts follow. Takes no lock that a lane takes (rule 2).
    fn next(&mut self, text: &mut String, reader: &Reader) -> bool;
}

/// Longest work of the reporter between two pauses, and so the longest wait of a lane on the same processor.
const SLICE: Duration = Duration::from_micros(100);

/// Length of a pause: three slices, so that the reporter takes at most a quarter of a processor.
const PAUSE: Duration = Duration::from_micros(300);

/// Time after which the reporter turns to the next page, so that many pages progress together and a small one
/// waits for one turn of each large one. A turn ends earlier if the client does not read.
const TURN: Duration = Duration::from_millis(20);

/// Bytes reserved before a part for the size of its chunk.
const SIZE: usize = 10;

/// Returns the pool with the reporter's thread. There is one thread: two would take both processors of a
/// small machine from the lanes.
fn reporter() -> &'static BlockingPool {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    POOL.get_or_init(|| BlockingPool::named("reporter", 1, PAGES_AT_ONCE as usize * super::MOST_LANES))
}

/// A page while it is sent. The reporter generates it and writes it to the client's socket, since copying it
/// into the kernel takes as long as generating it.
#[derive(Debug)]
pub struct PageWriter<P: Parts + 'static> {
    parts: Owned<P>,
    /// Each part is a chunk.
    chunked: bool,
    socket: Option<BlockingWriter>,
}

/// Result of a turn.
#[derive(Debug)]
pub struct PageProgress<P: Parts + 'static> {
    /// The writer, if more parts follow; otherwise the reporter has freed it.
    pub left: Option<PageWriter<P>>,
    /// Number of bytes that the socket took.
    pub sent: u64,
    /// Bytes that the socket did not take, from `begin` on. The lane sends them before the next turn.
    pub rest: Vec<u8>,
    /// Start of the unsent bytes in `rest`.
    pub begin: usize,
    /// The client has left.
    pub gone: bool,
}

/// Owns the generator of a page. It may hold a row for each of many thousands of servers, which takes a lane
/// too long to free: wherever it is dropped, the reporter frees it.
#[derive(Debug)]
struct Owned<P: Send + 'static>(Option<P>);

impl<P: Send + 'static> Drop for Owned<P> {
    fn drop(&mut self) {
        // If no thread takes the job, it is freed here.
        drop(self.0.take().map(|parts| reporter().run(move || drop(parts))));
    }
}

impl<P: Parts> PageWriter<P> {
    /// Returns a writer of the page that `parts` generates, in chunks or as it is.
    pub fn new(parts: P, chunked: bool) -> Self {
        Self { parts: Owned(Some(parts)), chunked, socket: None }
    }

    /// Lets the reporter write to the socket from now on, in turns with the lane. Before that, the lane sends
    /// the result of each turn: one part, or nothing.
    pub fn write_to(&mut self, connection: &Connection) {
        if self.socket.is_none() {
            // Without a free descriptor the lane writes.
            self.socket = connection.stream().and_then(|stream| stream.beside().ok());
        }
    }

    /// Lets the reporter generate and write parts until the socket takes no more or the turn is over.
    ///
    /// # Errors
    /// There is no thread, or too many jobs wait for it.
    pub fn turn(self) -> Result<Blocking<PageProgress<P>>, Refused> {
        reporter().run(move || self.run_slices())
    }

    /// Runs a turn, in slices.
    fn run_slices(mut self) -> PageProgress<P> {
        let (mut sent, mut room) = (0, Vec::new());
        let mut reader = Reader::new();
        let begun = Instant::now();
        let mut slice = begun;
        loop {
            let (more, mut begin);
            (more, begin, room) = self.part(room, &reader);
            if let Some(socket) = &self.socket {
                let Ok(written) = socket.write(&room[begin..]) else {
                    return PageProgress { left: None, sent, rest: Vec::new(), begin: 0, gone: true };
                };
                begin += written;
                sent += written as u64;
            }
            if !more {
                drop(self.parts.0.take()); // freed on this thread
            }
            let now = Instant::now();
            if !more || begin < room.len() || now - begun >= TURN {
                return PageProgress { left: more.then_some(self), sent, rest: room, begin, gone: false };
            }
            if now - slice >= SLICE {
                reader.offline(|| std::thread::sleep(PAUSE));
                slice = Instant::now();
            }
        }
    }

    /// Generates a part in the buffer of the one before. Returns whether more parts follow, the start of the
    /// part, and the buffer.
    fn part(&mut self, mut room: Vec<u8>, reader: &Reader) -> (bool, usize, Vec<u8>) {
        room.clear();
        let mut text = String::from_utf8(room).unwrap_or_default();
        text.reserve(PART + PART / 4);
        let before = if self.chunked { SIZE } else { 0 };
        text.extend(std::iter::repeat_n(' ', before));
        let more = self.parts.0.as_mut().is_some_and(|parts| parts.next(&mut text, reader));
        let length = text.len() - before;
        if !self.chunked {
            return (more, 0, text.into_bytes());
        }
        let mut begin = before;
        let size = if length == 0 { String::new() } else { format!("{length:x}\r\n") };
        if length > 0 {
            text.push_str("\r\n");
            begin -= size.len();
        }
        if !more {
            text.push_str("0\r\n\r\n");
        }
        let mut room = text.into_bytes();
        room[begin..before].copy_from_slice(size.as_bytes());
        (more, begin, room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    /// Parts that each repeat one letter.
    struct Letters(Vec<(u8, usize)>);

    impl Parts for Letters {
        fn next(&mut self, text: &mut String, _: &Reader) -> bool {
            let (letter, length) = self.0.remove(0);
            text.extend(std::iter::repeat_n(char::from(letter), length));
            !self.0.is_empty()
        }
    }

    fn written(parts: &[(u8, usize)], chunked: bool) -> Vec<u8> {
        let (mut left, mut all) = (Some(PageWriter::new(Letters(parts.to_vec()), chunked)), Vec::new());
        while let Some(page) = left {
            let turn = page.run_slices();
            assert!(turn.sent == 0 && !turn.gone, "there is no socket");
            all.extend_from_slice(&turn.rest[turn.begin..]);
            left = turn.left;
        }
        all
    }

    #[test]
    fn parts_are_chunks_or_stand_as_they_are() {
        assert_eq!(
            written(&[(b'a', 3), (b'b', 0), (b'c', 17)], true),
            b"3\r\naaa\r\n11\r\nccccccccccccccccc\r\n0\r\n\r\n"
        );
        assert_eq!(written(&[(b'a', 1), (b'b', 0)], true), b"1\r\na\r\n0\r\n\r\n");
        assert_eq!(written(&[(b'a', 0)], true), b"0\r\n\r\n");
        assert_eq!(written(&[(b'a', 3), (b'b', 0), (b'c', 2)], false), b"aaacc");
        let large = written(&[(b'a', 3 * PART)], true);
        assert!(large.starts_with(b"c000\r\na") && large.ends_with(b"a\r\n0\r\n\r\n"));
        assert_eq!(large.len(), 6 + 3 * PART + 7);
    }

    /// Endless parts of one letter, each of which takes this long.
    struct Slow(Duration);

    impl Parts for Slow {
        fn next(&mut self, text: &mut String, _: &Reader) -> bool {
            let begun = Instant::now();
            while begun.elapsed() < self.0 {}
            text.push('a');
            true
        }
    }

    #[test]
    fn a_turn_ends_when_it_has_had_its_time_or_the_socket_is_full() {
        let (mut client, socket) = UnixStream::pair().unwrap();
        let mut page = PageWriter::new(Slow(TURN / 4), false);
        page.socket = Some(BlockingWriter::from(OwnedFd::from(socket)));
        let turn = page.run_slices();
        let left = turn.left.unwrap();
        assert!((1..=4).contains(&turn.sent) && turn.rest[turn.begin..].is_empty() && !turn.gone);
        let mut letters = vec![0; 5];
        assert_eq!(client.read(&mut letters).unwrap() as u64, turn.sent);
        drop(client);
        assert!(left.run_slices().gone);
        let (_client, socket) = UnixStream::pair().unwrap();
        let mut page = PageWriter::new(Letters(vec![(b'a', PART); 1_000]), false);
        page.socket = Some(BlockingWriter::from(OwnedFd::from(socket)));
        let mut sent = 0;
        let full = loop {
            let turn = page.run_slices();
            sent += turn.sent;
            page = turn.left.unwrap();
            if turn.begin < turn.rest.len() {
                break turn.rest.len() - turn.begin;
            }
        };
        assert!(full <= PART && sent > 0 && (sent + full as u64).is_multiple_of(PART as u64));
    }

    /// Measures the reporter's share of a processor while it works on a page.
    #[test]
    fn the_reporter_has_half_a_processor_at_most() {
        let used = || {
            let own = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            Duration::from_nanos(own.split(' ').next().unwrap().parse().unwrap())
        };
        let (_client, socket) = UnixStream::pair().unwrap();
        let mut page = PageWriter::new(Slow(SLICE / 10), false);
        page.socket = Some(BlockingWriter::from(OwnedFd::from(socket)));
        let (before, begun) = (used(), Instant::now());
        drop(page.run_slices());
        let (ran, took) = (used() - before, begun.elapsed());
        assert!(ran * 10 <= took * 7, "{ran:?} of {took:?}"); // the system counts in ticks of its own
    }

    /// Reports the thread that frees it.
    struct Heavy(std::sync::mpsc::Sender<std::thread::ThreadId>);

    impl Parts for Heavy {
        fn next(&mut self, text: &mut String, _: &Reader) -> bool {
            text.push('a');
            true
        }
    }

    impl Drop for Heavy {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::current().id());
        }
    }

    #[test]
    fn what_is_left_is_freed_on_a_thread_wherever_it_is_dropped() {
        let (sender, freed) = std::sync::mpsc::channel();
        let own = std::thread::current().id();
        drop(Page::new("text/plain", None, Heavy(sender.clone())));
        assert_ne!(freed.recv().unwrap(), own);
        drop(PageWriter::new(Heavy(sender.clone()), true));
        assert_ne!(freed.recv().unwrap(), own);
        drop(PageWriter::new(Heavy(sender.clone()), true).run_slices());
        assert_ne!(freed.recv().unwrap(), own);
        drop(PageWriter::new(Heavy(sender), true).turn().unwrap());
        assert_ne!(freed.recv().unwrap(), own);
    }
}
