//! Answers that the program makes of what it knows, such as its counters for a monitoring system: who makes
//! them is above this room.

use crate::generation::{Generation, StatsPage};
use manylane_io::Beside;
use manylane_net::Connection;
use manylane_sched::{Blocking, BlockingPool, Refused};
use manylane_sync::Arc;
use manylane_sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Threads of each pool that makes pages, of the whole process.
const PAGE_THREADS: usize = 2;
/// Pages that a lane serves at once: each remembers what it shows until its client has read it.
pub(crate) const PAGES_AT_ONCE: u32 = 16;

/// Bytes of a part of a page, about: for each, a lane asks a thread, is woken and calls the system once.
pub const PART: usize = 65_536;

/// Rows of which a part reads at once what lanes write under locks: some ten microseconds.
pub const READ_AT_ONCE: usize = 32;

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
    /// What is in it.
    pub parts: Box<dyn Parts>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({})", self.content_type)
    }
}

impl<P: Parts + ?Sized> Parts for Box<P> {
    fn reads(&self) -> bool {
        (**self).reads()
    }

    fn next(&mut self, text: &mut String) -> bool {
        (**self).next(text)
    }
}

/// Makes the parts of a page, one after another, on a thread for what takes long.
pub trait Parts: Send {
    /// Whether the next part reads what lanes write under a lock, such as how healthy a server is. A thread
    /// for idle times may lose its processor for seconds, and would keep such a lock: it makes only what
    /// is not read so. Such a part takes no longer than a lane may wait for a processor, [`READ_AT_ONCE`]
    /// rows; the first one takes more, since somebody waits for it.
    fn reads(&self) -> bool;

    /// Appends the next part, of about [`PART`] bytes, or fewer where these would take longer than a
    /// millisecond or so. Whether there are more.
    fn next(&mut self, text: &mut String) -> bool;
}

/// Bytes after which a thread gives a page back to its lane, about: others may wait for a thread, and the
/// lane knows whether anybody wants the rest.
const TURN: u64 = 1 << 20;

/// For so long a page waits for idle processors, its work included: a fifth of that is enough for 160
/// megabytes where there are some, and a monitoring system waits for ten seconds. The rest goes to threads
/// that have a share of the processors.
const LATE: Duration = Duration::from_secs(2);

/// For so long no processor counts as idle behind a page that was late: each scrape would be late again on a
/// machine that has too much to do.
const BUSY: Duration = Duration::from_secs(60);

/// The end of that time, as [`since_first`]; 0: none was late so far. Of the whole process.
static BUSY_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Milliseconds since it was first asked.
fn since_first() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    u64::try_from(FIRST.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Whether turns are not to wait for an idle processor. Relaxed: it is a guess, which nothing goes with.
fn are_processors_busy() -> bool {
    let until = BUSY_UNTIL.load(Ordering::Relaxed);
    until != 0 && since_first() < until
}

/// The same, of a page that has waited so long.
fn is_late(waited: Duration) -> bool {
    if waited >= LATE {
        BUSY_UNTIL.store(since_first() + BUSY.as_millis() as u64, Ordering::Relaxed);
    }
    are_processors_busy()
}

/// Between parts that read, the thread sleeps so long: a lane that has had more than its share of the
/// processor, as a busy one has, would wait for it until all was read.
const PAUSE: Duration = Duration::from_micros(50);

/// Bytes before a part where the size of its chunk fits in.
const SIZE: usize = 10;

/// For what a page takes that has more than one part. Of the whole process, as what follows.
fn idle() -> &'static BlockingPool {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    POOL.get_or_init(|| BlockingPool::when_idle(PAGE_THREADS, PAGES_AT_ONCE as usize * crate::MOST_LANES))
}

/// The same where processors are never idle, for what reads under locks of lanes, and to free what is left of
/// a page.
fn aside() -> &'static BlockingPool {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    POOL.get_or_init(|| BlockingPool::giving_way(PAGE_THREADS, PAGES_AT_ONCE as usize * crate::MOST_LANES))
}

/// For the first part, which most pages have no more than: somebody waits for it.
fn soon() -> &'static BlockingPool {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    POOL.get_or_init(|| BlockingPool::new(PAGE_THREADS, PAGES_AT_ONCE as usize * crate::MOST_LANES))
}

/// A page on its way to a client. A thread makes it, and writes it to the client's socket by itself: to copy
/// it into the kernel takes as long as to make it.
#[derive(Debug)]
pub struct Telling<P: Parts + 'static> {
    parts: Owned<P>,
    /// Each part is a chunk.
    chunked: bool,
    socket: Option<Beside>,
    /// No part was made yet.
    new: bool,
    /// How long its turns took that waited for idle processors; not those of a client that reads slowly.
    waited: Duration,
}

/// What came of a turn.
#[derive(Debug)]
pub struct Turn<P: Parts + 'static> {
    /// There is more to tell. What has none left is freed on a thread.
    pub left: Option<Telling<P>>,
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
/// lane has: wherever it is dropped, a thread frees it.
#[derive(Debug)]
struct Owned<P: Send + 'static>(Option<P>);

impl<P: Send + 'static> Drop for Owned<P> {
    fn drop(&mut self) {
        // If no thread takes it, it is freed by that.
        drop(self.0.take().map(|parts| aside().run(move || drop(parts))));
    }
}

impl<P: Parts> Telling<P> {
    /// What `parts` makes, in chunks or as it is.
    pub fn new(parts: P, chunked: bool) -> Self {
        Self { parts: Owned(Some(parts)), chunked, socket: None, new: true, waited: Duration::ZERO }
    }

    /// From now on the thread writes to that socket, by turns with the lane. Before that, the lane sends what
    /// a turn has made, which ends with a part that has a byte, or is the first.
    pub fn write_to(&mut self, connection: &Connection) {
        if self.socket.is_none() {
            // Without a descriptor to spare it is the lane that writes.
            self.socket = connection.stream().and_then(|stream| stream.beside().ok());
        }
    }

    /// Has a thread make parts and write them, until the socket takes no more for now, or there are about
    /// `TURN` bytes of them.
    ///
    /// # Errors
    /// There is no thread, or too much to do for those that there are.
    pub fn turn(self) -> Result<Blocking<Turn<P>>, Refused> {
        match &self.socket {
            None if self.new => soon().run(move || self.told(None)),
            // What is left of a page goes there from the threads for idle times, which must not have to start
            // one.
            _ if self.reads() || are_processors_busy() || !aside().start() => {
                aside().run(move || self.told(None))
            }
            _ => {
                let asked = Instant::now();
                idle().run(move || self.told(Some(asked)))
            }
        }
    }

    fn reads(&self) -> bool {
        self.parts.0.as_ref().is_some_and(Parts::reads)
    }

    /// A turn. One that waits for an idle processor, since then, ends before its next part when it is late.
    /// With a part that reads, or with what was made of that, it ends, too: others go on.
    fn told(mut self, idle: Option<Instant>) -> Turn<P> {
        let (mut sent, mut room, reads) = (0, Vec::new(), self.reads());
        loop {
            let waited = self.waited + idle.map_or(Duration::ZERO, |asked| asked.elapsed());
            if idle.is_some() && is_late(waited) {
                self.waited = waited;
                return Turn { left: Some(self), sent, rest: Vec::new(), begin: 0, gone: false };
            }
            if idle.is_some() {
                // Where somebody wants the processor, who has it until the system looks again waits the
                // longer for its next: nine seconds for four milliseconds.
                std::thread::yield_now();
            }
            let only = std::mem::replace(&mut self.new, false);
            let (more, mut begin);
            (more, begin, room) = self.part(room);
            if let Some(socket) = &self.socket {
                let Ok(written) = socket.write(&room[begin..]) else {
                    return Turn { left: None, sent, rest: Vec::new(), begin: 0, gone: true };
                };
                begin += written;
                sent += written as u64;
            }
            if !more && only {
                drop(self.parts.0.take()); // a small page, here and now; of others see `Owned`
            }
            if !more
                || begin < room.len()
                || sent >= TURN
                || reads != self.reads()
                || (only && self.socket.is_none())
            {
                self.waited += idle.map_or(Duration::ZERO, |asked| asked.elapsed());
                return Turn { left: more.then_some(self), sent, rest: room, begin, gone: false };
            }
            if reads {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Makes a part, in the room of the one before it: whether there are more, and where it begins.
    fn part(&mut self, mut room: Vec<u8>) -> (bool, usize, Vec<u8>) {
        room.clear();
        let mut text = String::from_utf8(room).unwrap_or_default();
        text.reserve(PART + PART / 4);
        let before = if self.chunked { SIZE } else { 0 };
        text.extend(std::iter::repeat_n(' ', before));
        let more = self.parts.0.as_mut().is_some_and(|parts| parts.next(&mut text));
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
        fn reads(&self) -> bool {
            false
        }

        fn next(&mut self, text: &mut String) -> bool {
            let (letter, length) = self.0.remove(0);
            text.extend(std::iter::repeat_n(char::from(letter), length));
            !self.0.is_empty()
        }
    }

    fn told(parts: &[(u8, usize)], chunked: bool) -> Vec<u8> {
        let (mut left, mut all) = (Some(Telling::new(Letters(parts.to_vec()), chunked)), Vec::new());
        while let Some(page) = left {
            let turn = page.told(None);
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
        assert!(large.starts_with(b"30000\r\na") && large.ends_with(b"a\r\n0\r\n\r\n"));
        assert_eq!(large.len(), 7 + 3 * PART + 7);
    }

    /// The policy by which the thread is scheduled that makes a part, as the system tells it: 3 is
    /// `SCHED_BATCH`, 5 `SCHED_IDLE`.
    struct Policies {
        reads: bool,
    }

    impl Parts for Policies {
        fn reads(&self) -> bool {
            self.reads
        }

        fn next(&mut self, text: &mut String) -> bool {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            text.push_str(stat.rsplit(") ").next().unwrap().split(' ').nth(38).unwrap());
            true
        }
    }

    /// By which policy the first part of a turn is made. Nobody waits for that: it goes on until the socket
    /// is full. Nothing, if it was late.
    fn policy(reads: bool) -> Option<u8> {
        let (mut client, socket) = UnixStream::pair().unwrap();
        let mut page = Telling::new(Policies { reads }, false);
        page.socket = Some(Beside::from(OwnedFd::from(socket)));
        drop(page.turn().unwrap());
        let mut letter = [0];
        (client.read(&mut letter).unwrap() > 0).then_some(letter[0])
    }

    #[test]
    fn a_page_is_made_in_idle_times_until_there_are_none() {
        assert_eq!(policy(true), Some(b'3'), "what reads under locks is not for these threads");
        // A machine that has no processor for it until it is late says so by making none.
        assert!(matches!(policy(false), Some(b'5') | None));
        let late = Instant::now().checked_sub(LATE).unwrap();
        let turn = Telling::new(Policies { reads: false }, false).told(Some(late));
        assert_eq!((turn.sent, turn.rest.len(), turn.gone), (0, 0, false));
        assert!(turn.left.is_some(), "the next turn has it all");
        assert_eq!(policy(false), Some(b'3'), "those of other pages, too");
    }

    /// Tells the thread that frees it.
    struct Heavy(std::sync::mpsc::Sender<std::thread::ThreadId>);

    impl Parts for Heavy {
        fn reads(&self) -> bool {
            false
        }

        fn next(&mut self, text: &mut String) -> bool {
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
        drop(Telling::new(Heavy(sender.clone()), true));
        assert_ne!(freed.recv().unwrap(), own);
        drop(Telling::new(Heavy(sender.clone()), true).told(None));
        assert_ne!(freed.recv().unwrap(), own);
        drop(Telling::new(Heavy(sender), true).turn().unwrap());
        assert_ne!(freed.recv().unwrap(), own);
    }
}
