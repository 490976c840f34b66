//! Answers that the program makes of what it knows, such as its counters for a monitoring system: who makes
//! them is above this room. The background reporter, a thread beside the lanes, writes them.
//!
//! # Protocol
//! 1. A page is made part by part. The reporter works on it by turns with the pages of others, in slices of
//!    [`SLICE`] with pauses of [`PAUSE`] between: a scrape of 50,000 servers delays a request by a slice.
//! 2. It reads without locks: counters are the lanes' own, and what checks and operators write is published
//!    (`SeqLatch`, `Published`). A thread that loses its processor there holds up nobody.
//! 3. The lane sends the head and the first part. From then on the reporter writes to the client's socket by
//!    itself as long as that takes all; what it does not take is the lane's to send before the next turn.

use crate::generation::{Generation, StatsPage};
use manylane_io::Beside;
use manylane_net::Connection;
use manylane_sched::{Blocking, BlockingPool, Refused};
use manylane_sync::{Arc, Reader};
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Pages that a lane serves at once: each remembers what it shows until its client has read it.
pub(crate) const PAGES_AT_ONCE: u32 = 16;

/// Bytes of a part of a page, about: less than a slice's work, for all pages.
pub const PART: usize = 16_384;

/// Makes pages.
pub trait Pages: Send + Sync + fmt::Debug {
    /// What counters say of `generation`, for Prometheus: `http-request use-service prometheus-exporter`.
    /// `query` is what follows the question mark of the request.
    ///
    /// # Errors
    /// The status of the answer in its place, for a query that asks for nothing that there is.
    fn metrics(&self, generation: &Arc<Generation>, query: &[u8]) -> Result<Page, u16>;

    /// The page of counters: `stats uri`. `asked` is what follows that in the request's target; `admin` tells
    /// whether who asks may change servers.
    fn statistics(
        &self,
        generation: &Arc<Generation>,
        page: &Arc<StatsPage>,
        asked: &[u8],
        admin: bool,
    ) -> Page;
}

/// A page, which is made in parts.
pub struct Page {
    /// `content-type`
    pub content_type: &'static str,
    /// `refresh`: seconds after which a browser asks again.
    pub refresh: Option<u64>,
    /// What is in it. Who asks for the head alone, or breaks off, has it freed by the reporter, too.
    parts: Owned<Box<dyn Parts>>,
}

impl Page {
    /// One that `parts` makes.
    pub fn new(content_type: &'static str, refresh: Option<u64>, parts: impl Parts + 'static) -> Self {
        Self { content_type, refresh, parts: Owned(Some(Box::new(parts))) }
    }

    /// On its way to a client, in chunks or as it is.
    pub(crate) fn writer(self, chunked: bool) -> PageWriter<Box<dyn Parts>> {
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

/// Makes the parts of a page, one after another, on the reporter's thread.
pub trait Parts: Send {
    /// Appends the next part, of about [`PART`] bytes, or fewer where these would take longer than 100
    /// microseconds or so. Whether there are more. It takes no lock that a lane takes (rule 2).
    fn next(&mut self, text: &mut String, reader: &Reader) -> bool;
}

/// Work of the reporter between two pauses: a lane that wants its processor waits no longer than that.
const SLICE: Duration = Duration::from_micros(250);

/// A pause: as long as a slice, so that the reporter has half a processor at most.
const PAUSE: Duration = Duration::from_micros(250);

/// After that time the reporter turns to the next page: many pages go on side by side, and a small one waits
/// for a turn of each large one. It ends earlier where the client does not read.
const TURN: Duration = Duration::from_millis(20);

/// Bytes before a part where the size of its chunk fits in.
const SIZE: usize = 10;

/// The reporter's thread. One: two would take a processor of two from lanes.
fn reporter() -> &'static BlockingPool {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    POOL.get_or_init(|| BlockingPool::named("reporter", 1, PAGES_AT_ONCE as usize * crate::MOST_LANES))
}

/// A page on its way to a client. The reporter makes it, and writes it to the client's socket by itself: to
/// copy it into the kernel takes as long as to make it.
#[derive(Debug)]
pub struct PageWriter<P: Parts + 'static> {
    parts: Owned<P>,
    /// Each part is a chunk.
    chunked: bool,
    socket: Option<Beside>,
}

/// What came of a turn.
#[derive(Debug)]
pub struct Turn<P: Parts + 'static> {
    /// There is more to tell. What has none left is freed on a thread.
    pub left: Option<PageWriter<P>>,
    /// Bytes that the socket took.
    pub sent: u64,
    /// What it did not take, from `begin` on: the lane's to send, before the next turn.
    pub rest: Vec<u8>,
    /// Where that begins.
    pub begin: usize,
    /// The client has gone.
    pub gone: bool,
}

/// What makes a page may hold a row for each of many thousands of servers, which takes longer to free than a
/// lane has: wherever it is dropped, the reporter frees it.
#[derive(Debug)]
struct Owned<P: Send + 'static>(Option<P>);

impl<P: Send + 'static> Drop for Owned<P> {
    fn drop(&mut self) {
        // If no thread takes it, it is freed by that.
        drop(self.0.take().map(|parts| reporter().run(move || drop(parts))));
    }
}

impl<P: Parts> PageWriter<P> {
    /// What `parts` makes, in chunks or as it is.
    pub fn new(parts: P, chunked: bool) -> Self {
        Self { parts: Owned(Some(parts)), chunked, socket: None }
    }

    /// From now on the reporter writes to that socket, by turns with the lane. Before that, the lane sends
    /// what a turn has made: a part, or nothing yet.
    pub fn write_to(&mut self, connection: &Connection) {
        if self.socket.is_none() {
            // Without a descriptor to spare it is the lane that writes.
            self.socket = connection.stream().and_then(|stream| stream.beside().ok());
        }
    }

    /// Has the reporter make parts and write them, until the socket takes no more for now or its turn is
    /// over.
    ///
    /// # Errors
    /// There is no thread, or too much to do for it.
    pub fn turn(self) -> Result<Blocking<Turn<P>>, Refused> {
        reporter().run(move || self.told())
    }

    /// A turn, in slices.
    fn told(mut self) -> Turn<P> {
        let (mut sent, mut room) = (0, Vec::new());
        let mut reader = Reader::new();
        let begun = Instant::now();
        let mut slice = begun;
        loop {
            let (more, mut begin);
            (more, begin, room) = self.part(room, &reader);
            if let Some(socket) = &self.socket {
                let Ok(written) = socket.write(&room[begin..]) else {
                    return Turn { left: None, sent, rest: Vec::new(), begin: 0, gone: true };
                };
                begin += written;
                sent += written as u64;
            }
            if !more {
                drop(self.parts.0.take()); // on this thread
            }
            let now = Instant::now();
            if !more || begin < room.len() || now - begun >= TURN {
                return Turn { left: more.then_some(self), sent, rest: room, begin, gone: false };
            }
            if now - slice >= SLICE {
                reader.offline(|| std::thread::sleep(PAUSE));
                slice = Instant::now();
            }
        }
    }

    /// Makes a part, in the room of the one before it: whether there are more, and where it begins.
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

    /// So many parts, each of one letter.
    struct Letters(Vec<(u8, usize)>);

    impl Parts for Letters {
        fn next(&mut self, text: &mut String, _: &Reader) -> bool {
            let (letter, length) = self.0.remove(0);
            text.extend(std::iter::repeat_n(char::from(letter), length));
            !self.0.is_empty()
        }
    }

    fn told(parts: &[(u8, usize)], chunked: bool) -> Vec<u8> {
        let (mut left, mut all) = (Some(PageWriter::new(Letters(parts.to_vec()), chunked)), Vec::new());
        while let Some(page) = left {
            let turn = page.told();
            assert!(turn.sent == 0 && !turn.gone, "there is no socket");
            all.extend_from_slice(&turn.rest[turn.begin..]);
            left = turn.left;
        }
        all
    }

    #[test]
    fn parts_are_chunks_or_stand_as_they_are() {
        assert_eq!(
            told(&[(b'a', 3), (b'b', 0), (b'c', 17)], true),
            b"3\r\naaa\r\n11\r\nccccccccccccccccc\r\n0\r\n\r\n"
        );
        assert_eq!(told(&[(b'a', 1), (b'b', 0)], true), b"1\r\na\r\n0\r\n\r\n");
        assert_eq!(told(&[(b'a', 0)], true), b"0\r\n\r\n");
        assert_eq!(told(&[(b'a', 3), (b'b', 0), (b'c', 2)], false), b"aaacc");
        let large = told(&[(b'a', 3 * PART)], true);
        assert!(large.starts_with(b"c000\r\na") && large.ends_with(b"a\r\n0\r\n\r\n"));
        assert_eq!(large.len(), 6 + 3 * PART + 7);
    }

    /// Parts of a letter, each of which takes that long, without end.
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
        page.socket = Some(Beside::from(OwnedFd::from(socket)));
        let turn = page.told();
        let left = turn.left.unwrap();
        assert!((1..=4).contains(&turn.sent) && turn.rest[turn.begin..].is_empty() && !turn.gone);
        let mut letters = vec![0; 5];
        assert_eq!(client.read(&mut letters).unwrap() as u64, turn.sent);
        drop(client);
        assert!(left.told().gone);
        let (_client, socket) = UnixStream::pair().unwrap();
        let mut page = PageWriter::new(Letters(vec![(b'a', PART); 1_000]), false);
        page.socket = Some(Beside::from(OwnedFd::from(socket)));
        let mut sent = 0;
        let full = loop {
            let turn = page.told();
            sent += turn.sent;
            page = turn.left.unwrap();
            if turn.begin < turn.rest.len() {
                break turn.rest.len() - turn.begin;
            }
        };
        assert!(full <= PART && sent > 0 && (sent + full as u64).is_multiple_of(PART as u64));
    }

    /// How much of a processor the reporter takes of the time that it works on a page.
    #[test]
    fn the_reporter_has_half_a_processor_at_most() {
        let used = || {
            let own = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            Duration::from_nanos(own.split(' ').next().unwrap().parse().unwrap())
        };
        let (_client, socket) = UnixStream::pair().unwrap();
        let mut page = PageWriter::new(Slow(SLICE / 10), false);
        page.socket = Some(Beside::from(OwnedFd::from(socket)));
        let (before, begun) = (used(), Instant::now());
        drop(page.told());
        let (ran, took) = (used() - before, begun.elapsed());
        assert!(ran * 10 <= took * 7, "{ran:?} of {took:?}"); // the system counts in ticks of its own
    }

    /// Tells the thread that frees it.
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
        drop(PageWriter::new(Heavy(sender.clone()), true).told());
        assert_ne!(freed.recv().unwrap(), own);
        drop(PageWriter::new(Heavy(sender), true).turn().unwrap());
        assert_ne!(freed.recv().unwrap(), own);
    }
}
