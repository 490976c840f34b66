//! Streams of a lane, listed so that reports can show them (`show sess`) and other parties can end them: a
//! server that goes down (`on-marked-down`), an active server that comes back (`on-marked-up`), or an
//! operator (`shutdown sessions server`, `shutdown session`).
//!
//! # Protocol
//! 1. A stream (a session in TCP mode, a request in HTTP mode) has an entry on its lane from its start to its
//!    end. An idle connection has none. Only the lane reads and writes the entry: an update costs a few
//!    stores, and allocates nothing once the lane has had as many streams at a time.
//! 2. To end streams, the caller sends a task to each serving lane ([`end_streams`], [`end_stream`]). The
//!    lane marks the entries of all its generations and wakes their tasks.
//! 3. A stream checks its mark whenever it is woken while it waits in a queue, for its server, for its
//!    client, or for a rule. A marked stream ends with the mark's cause, as if the server had closed: HTTP
//!    responds with 502 or 503 if nothing was sent yet, or with the tarpit's response, and retries nothing.
//!    While the client receives a response of the proxy's own, the stream ends behind that response. A mark
//!    for a server is removed when the stream leaves that server: a stream that failed there before it saw
//!    the mark may be retried elsewhere.
//! 4. To show streams, the caller asks one lane after another for slices ([`slice`]): no lane waits for the
//!    caller, and one slice at a time delays a lane. Streams that begin or end meanwhile may be missing
//!    (R-G3; ending by these lists is R-G4).

use super::local::Local;
use manylane_plan::Cause;
use manylane_plan::generation::notify::Notify;
use manylane_plan::generation::{Generation, Server, ServerNumber};
use manylane_sched::{Class, Remote, TaskKind, Time};
use manylane_sync::{Arc, LaneId, LockClass, Mutex};
use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

static END: TaskKind = TaskKind::new("end of streams");
static SHOW: TaskKind = TaskKind::new("slice of streams");

/// Lock class of answers between lanes.
static ANSWERS: LockClass = LockClass::new("answers about streams", LockClass::LEAF);

/// Most streams in a slice.
const SLICE: usize = 256;
/// Most entries that a lane reads for a slice.
const MAX_VISITED: usize = 16_384;

/// Streams of one generation on a lane.
#[derive(Debug, Default)]
pub struct Streams(RefCell<Entries>);

#[derive(Debug, Default)]
struct Entries {
    all: Vec<Entry>,
    /// First entry of the free list, which is linked by `server`.
    free: u32,
}

#[derive(Debug)]
struct Entry {
    /// Number of the server among all servers, or [`NONE`]. In a free entry, the next free one.
    server: u32,
    /// Number of the backend; [`NONE`] before it is chosen.
    backend: u32,
    state: State,
    begun: StreamStart,
}

/// No server, or no backend.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
enum State {
    Free,
    /// The stream has not waited yet.
    New,
    Waits(Waker),
    Ended(Cause, Mark),
    /// The stream is to panic, so that an operator can test the consequences.
    Panics,
}

/// Reason for the mark of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// The stream's server ends: a stream that has left the server before it saw the mark continues with
    /// another.
    Server,
    /// The stream itself ends.
    Stream,
}

/// Data of a stream that is known from its start.
#[derive(Clone, Copy, Debug)]
pub struct StreamStart {
    /// Number that no other stream of the process has.
    pub number: u64,
    /// Number of the frontend in its generation.
    pub frontend: u32,
    /// Number of the listener in the frontend.
    pub listener: u32,
    /// The client's address, if it has one.
    pub source: Option<SocketAddr>,
    /// When the stream began, by the lane's clock.
    pub at: Time,
}

/// A running stream; dropping it removes its entry.
#[derive(Debug)]
pub struct Streaming {
    local: Rc<Local>,
    entry: u32,
}

impl Streaming {
    /// Adds an entry to the lane's list.
    #[inline]
    pub fn begin(local: &Rc<Local>, begun: StreamStart) -> Self {
        Self { local: local.clone(), entry: local.streams.begin(begun) }
    }

    /// Returns the entry in the lane's list of streams.
    #[inline]
    pub fn entry(&self) -> Option<u32> {
        Some(self.entry)
    }

    /// Sets the backend of the stream.
    #[inline]
    pub fn goes_to(&self, backend: usize) {
        self.local.streams.0.borrow_mut().all[self.entry as usize].backend = backend as u32;
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.local.streams.leave(self.entry);
    }
}

impl Streams {
    /// Adds an entry for a stream, and returns its index.
    fn begin(&self, begun: StreamStart) -> u32 {
        let mut entries = self.0.borrow_mut();
        let entry = Entry { server: NONE, backend: NONE, state: State::New, begun };
        let index = entries.free as usize;
        match entries.all.get_mut(index) {
            Some(free) => {
                let next = std::mem::replace(free, entry).server;
                entries.free = next;
            }
            None => {
                entries.all.push(entry);
                entries.free = entries.all.len() as u32;
            }
        }
        index as u32
    }

    /// Frees an entry.
    fn leave(&self, entry: u32) {
        let mut entries = self.0.borrow_mut();
        let next = std::mem::replace(&mut entries.free, entry);
        let left = &mut entries.all[entry as usize];
        (left.server, left.state) = (next, State::Free);
    }

    /// Sets the server of which the stream has a [permit](crate::ServerPermit), or none.
    pub(crate) fn has_server(&self, entry: u32, server: Option<usize>) {
        let entry = &mut self.0.borrow_mut().all[entry as usize];
        entry.server = server.map_or(NONE, |server| server as u32);
        if matches!(entry.state, State::Ended(_, Mark::Server)) {
            entry.state = State::New;
        }
    }

    /// Returns the cause for which the stream has to end, if there is one. Otherwise `waker` is woken once
    /// there is.
    pub(crate) fn poll(&self, entry: u32, waker: &Waker) -> Option<Cause> {
        match &mut self.0.borrow_mut().all[entry as usize].state {
            State::Ended(cause, _) => Some(*cause),
            // A session is one task from its start to its end.
            State::Waits(_) | State::Free => None,
            panics @ State::Panics => {
                *panics = State::New; // only once
                panic!("a stream was told to, by 'debug dev panic'")
            }
            new @ State::New => {
                *new = State::Waits(waker.clone());
                None
            }
        }
    }

    /// Runs `work`, unless something else ends the stream first. Without an entry, nothing does. The caller
    /// pins `work`: each move of a future takes memory of its own in the session's task.
    pub async fn unless_ended<W: Future>(
        &self,
        entry: Option<u32>,
        mut work: Pin<&mut W>,
    ) -> Result<W::Output, Cause> {
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => entry
                .and_then(|entry| self.poll(entry, context.waker()))
                .map_or(Poll::Pending, |cause| Poll::Ready(Err(cause))),
        })
        .await
    }

    /// Ends all streams with a server. Returns their number.
    pub(crate) fn end(&self, server: usize, cause: Cause) -> usize {
        self.end_those((cause, Mark::Server), |entry| entry.server == server as u32)
    }

    /// Ends all streams.
    pub(crate) fn end_all(&self, cause: Cause) {
        self.end_those((cause, Mark::Stream), |_| true);
    }

    /// Ends the stream with this number. Returns true if it exists.
    fn end_one(&self, number: u64, cause: Cause) -> bool {
        self.end_those((cause, Mark::Stream), |entry| entry.begun.number == number) > 0
    }

    /// Makes the stream with this number panic. Returns true if it exists.
    fn panic_one(&self, number: u64) -> bool {
        self.mark_those(|| State::Panics, |entry| entry.begun.number == number) > 0
    }

    fn end_those(&self, (cause, mark): (Cause, Mark), which: impl Fn(&Entry) -> bool) -> usize {
        self.mark_those(|| State::Ended(cause, mark), which)
    }

    fn mark_those(&self, state: impl Fn() -> State, which: impl Fn(&Entry) -> bool) -> usize {
        let mut woken = Vec::new();
        let mut entries = self.0.borrow_mut();
        let of = |entry: &&mut Entry| matches!(entry.state, State::New | State::Waits(_)) && which(entry);
        let mut count = 0;
        for entry in entries.all.iter_mut().filter(of) {
            count += 1;
            if let State::Waits(waker) = std::mem::replace(&mut entry.state, state()) {
                woken.push(waker);
            }
        }
        drop(entries); // woken tasks may read the entries
        woken.into_iter().for_each(Waker::wake);
        count
    }

    /// Passes streams to `put`, from entry `from` on, until `put` returns false or `most` entries were read.
    /// Returns the entry where it stopped, unless that was the end.
    fn show(&self, from: usize, most: &mut usize, mut put: impl FnMut(&Entry) -> bool) -> Option<usize> {
        let entries = self.0.borrow();
        for (index, entry) in entries.all.iter().enumerate().skip(from) {
            if *most == 0 || !matches!(entry.state, State::Free) && !put(entry) {
                return Some(index);
            }
            *most -= 1;
        }
        None
    }
}

/// A stream as reports show it.
#[derive(Clone, Debug)]
pub struct StreamReport {
    /// Number that no other stream of the process has.
    pub number: u64,
    /// The generation that the numbers refer to.
    pub generation: Arc<Generation>,
    /// Number of the frontend in the generation, and of the listener in the frontend.
    pub frontend: usize,
    /// See `frontend`.
    pub listener: usize,
    /// Number of the backend, if it was chosen.
    pub backend: Option<usize>,
    /// Index of the server in the backend, while the stream has a permit of it.
    pub server: Option<usize>,
    /// The client's address, if it has one.
    pub source: Option<SocketAddr>,
    /// When the stream began, by the lanes' clock.
    pub begun: Time,
}

/// Where the next slice of a lane begins: the serial number of the lane's state, since earlier ones may end
/// meanwhile, and the entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(u64, usize);

/// Some streams of a lane, and where the next slice begins; `None` behind the last stream.
pub type Slice = (Vec<StreamReport>, Option<Cursor>);

/// Returns a slice of the calling lane's streams.
fn slice_here(Cursor(first, entry): Cursor) -> Slice {
    let mut rows = Vec::with_capacity(SLICE);
    let mut most = MAX_VISITED;
    // The newest generation is the last.
    for of in Local::all().filter(|of| of.serial >= first) {
        let from = if of.serial == first { entry } else { 0 };
        let generation = &of.generation;
        let stopped = of.streams.show(from, &mut most, |entry| {
            let is_room = rows.len() < SLICE;
            if is_room {
                let StreamStart { number, frontend, listener, source, at } = entry.begun;
                let known = |index: u32| (index != NONE).then_some(index as usize);
                let backend = known(entry.backend);
                let server = known(entry.server).zip(backend).and_then(|(server, backend)| {
                    let servers = &generation.backends[backend].servers;
                    // Servers of the configuration have consecutive numbers; servers that were added have
                    // any.
                    let position = servers.first().and_then(|first| server.checked_sub(first.number));
                    let is_there =
                        |candidate: &usize| servers.get(*candidate).is_some_and(|own| own.number == server);
                    position.filter(is_there).or_else(|| servers.iter().position(|own| own.number == server))
                });
                let (frontend, listener) = (frontend as usize, listener as usize);
                rows.push(StreamReport {
                    number,
                    generation: generation.clone(),
                    frontend,
                    listener,
                    backend,
                    server,
                    source,
                    begun: at,
                });
            }
            is_room
        });
        if let Some(next) = stopped {
            return (rows, Some(Cursor(of.serial, next)));
        }
    }
    (rows, None)
}

/// An answer of another lane.
struct Answer<T> {
    given: Mutex<Option<T>>,
    notify: Notify,
}

/// Runs `work` on another lane between its other tasks, and returns the result. `None` if that lane has ended
/// or has no memory.
async fn ask<T: Send + 'static>(lane: LaneId, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    /// Notifies also if the lane ends before it answers.
    struct Ring<T>(Arc<Answer<T>>);
    impl<T> Drop for Ring<T> {
        fn drop(&mut self) {
            self.0.notify.notify_one();
        }
    }
    let answer = Arc::new(Answer { given: Mutex::new(&ANSWERS, None), notify: Notify::default() });
    let ring = Ring(answer.clone());
    let make = move |_| async move {
        let given = work();
        *ring.0.given.lock() = Some(given);
    };
    Remote::new(lane).spawn_with(&SHOW, Class::Bulk, make).ok()?;
    answer.notify.or(std::future::pending()).await;
    answer.given.lock().take()
}

/// Returns a slice of the streams of a lane; `None` if the lane has ended.
pub async fn slice(lane: LaneId, from: Cursor) -> Option<Slice> {
    ask(lane, move || slice_here(from)).await
}

/// Ends the stream with this number. Returns true if it exists.
pub async fn end_stream(lane: LaneId, number: u64, cause: Cause) -> bool {
    let end = move || Local::all().any(|local| local.streams.end_one(number, cause));
    ask(lane, end).await.unwrap_or(false)
}

/// Makes the stream with this number panic. Returns true if it exists.
pub async fn panic_stream(lane: LaneId, number: u64) -> bool {
    let panic = move || Local::all().any(|local| local.streams.panic_one(number));
    ask(lane, panic).await.unwrap_or(false)
}

/// Ends the streams of all lanes with a server of `local`'s generation, and with the same server in earlier
/// generations.
pub fn end_streams(local: &Local, server: ServerNumber, cause: Cause) {
    for &lane in local.lane_ids.borrow().iter() {
        let generation = local.generation.clone();
        let make = move |_| async move { end_here(&generation, server, cause) };
        // A lane that has ended has no streams.
        let _ = Remote::new(lane).spawn_with(&END, Class::Urgent, make);
    }
}

fn end_here(generation: &Arc<Generation>, server: ServerNumber, cause: Cause) {
    let (backend, wanted) = generation.server(server);
    for local in Local::all() {
        let same: Option<&Server> = if std::ptr::eq(&*local.generation, &**generation) {
            Some(wanted)
        } else {
            let own = local.generation.backend_named(&backend.name).filter(|own| own.mode == backend.mode);
            own.and_then(|own| own.same_server(wanted)).map(|own| &**own)
        };
        if let Some(server) = same {
            local.streams.end(server.number, cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_config::cond::Build;
    use manylane_config::lex::Environment;
    use manylane_config::load;
    use manylane_config::source::Sources;
    use manylane_io::{Driver, DriverChoice, Kind};
    use manylane_plan::generation::StartOptions;
    use manylane_sched::{Config, Lane};
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counted(AtomicUsize);

    impl std::task::Wake for Counted {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn begin(streams: &Streams, number: u64, server: usize) -> u32 {
        let entry =
            streams.begin(StreamStart { number, frontend: 0, listener: 0, source: None, at: Time::ZERO });
        streams.has_server(entry, Some(server));
        entry
    }

    #[test]
    fn streams_of_one_server_end_and_the_others_go_on() {
        let counted = std::sync::Arc::new(Counted(AtomicUsize::new(0)));
        let waker = Waker::from(counted.clone());
        let streams = Streams::default();
        let entries: Vec<u32> =
            (0..).zip([7, 8, 7, 7, 7]).map(|(number, server)| begin(&streams, number, server)).collect();
        streams.leave(entries[0]);
        streams.has_server(entries[4], None);
        for entry in &entries[1..3] {
            assert_eq!(streams.poll(*entry, &waker), None);
        }
        assert_eq!(
            streams.end(7, Cause::ServerDown),
            2,
            "one was left, one is another's, one has no server any more"
        );
        assert_eq!(counted.0.load(Ordering::Relaxed), 1, "one of them waits");
        let ended: Vec<_> = entries[1..].iter().map(|entry| streams.poll(*entry, &waker)).collect();
        assert_eq!(ended, [None, Some(Cause::ServerDown), Some(Cause::ServerDown), None]);
        assert_eq!(streams.end(7, Cause::Killed), 0, "the first cause holds");
        assert_eq!(begin(&streams, 9, 9), entries[0], "places are used again");
        assert_eq!(streams.poll(entries[0], &waker), None);
        assert_eq!(begin(&streams, 10, 9), 5);
        assert!(streams.end_one(4, Cause::Killed) && !streams.end_one(4, Cause::Killed));
        assert_eq!(streams.poll(entries[4], &waker), Some(Cause::Killed), "without a server, too");
    }

    /// The stream's work failed and its server's end was marked at the same moment; the stream is retried
    /// elsewhere.
    #[test]
    fn a_stream_that_left_its_server_does_not_end_with_it_but_with_what_ends_itself() {
        let counted = std::sync::Arc::new(Counted(AtomicUsize::new(0)));
        let waker = Waker::from(counted.clone());
        let streams = Streams::default();
        let (retried, killed) = (begin(&streams, 0, 7), begin(&streams, 1, 7));
        assert_eq!((streams.poll(retried, &waker), streams.poll(killed, &waker)), (None, None));
        assert!(streams.end_one(1, Cause::Killed));
        assert_eq!(streams.end(7, Cause::ServerDown), 1);
        for entry in [retried, killed] {
            streams.has_server(entry, None);
            streams.has_server(entry, Some(8));
        }
        assert_eq!(
            (streams.poll(retried, &waker), streams.poll(killed, &waker)),
            (None, Some(Cause::Killed))
        );
        let woken = counted.0.load(Ordering::Relaxed);
        assert_eq!(streams.end(8, Cause::ServerDown), 1, "the next server's end is seen");
        assert_eq!(counted.0.load(Ordering::Relaxed), woken + 1);
        assert_eq!(streams.poll(retried, &waker), Some(Cause::ServerDown));
    }

    fn lane_with_a_driver() -> (Lane, Driver) {
        let lane = Lane::new(Config::new()).unwrap();
        let driver = Driver::new(lane.here(), DriverChoice::Only(Kind::Epoll)).unwrap();
        (lane, driver)
    }

    fn install(driver: &Driver) -> Rc<Local> {
        let mut loaded = load(&Sources::new(), &Build::bare(), Environment::new(), false);
        let generation = Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
        Local::install(driver.io(), Arc::new(generation), || {})
    }

    /// R-G3: the lane runs other tasks between two slices.
    #[test]
    fn a_dump_of_a_hundred_thousand_streams_holds_their_lane_for_a_slice_at_a_time() {
        const STREAMS: usize = 100_000;
        let (_lane, driver) = lane_with_a_driver();
        let local = install(&driver);
        for number in 0..STREAMS as u64 {
            begin(&local.streams, number, 1);
        }
        let (mut shown, mut slices, mut from) = (0, 0, Some(Cursor::default()));
        while let Some(cursor) = from {
            let (rows, next) = slice_here(cursor);
            assert!(rows.len() <= SLICE);
            (shown, slices, from) = (shown + rows.len(), slices + 1, next);
        }
        assert_eq!((shown, slices), (STREAMS, STREAMS.div_ceil(SLICE)));
        // Free entries are read without being shown, and count towards the limit.
        (0..STREAMS as u32).for_each(|entry| local.streams.leave(entry));
        let (mut slices, mut from) = (0, Some(Cursor::default()));
        while let Some(cursor) = from {
            let (rows, next) = slice_here(cursor);
            assert!(rows.is_empty());
            (slices, from) = (slices + 1, next);
        }
        assert_eq!(slices, STREAMS.div_ceil(MAX_VISITED));
        Local::remove_all();
    }

    #[test]
    fn a_generation_that_ends_between_two_slices_takes_no_streams_of_others_along() {
        let (_lane, driver) = lane_with_a_driver();
        let (first, second, third) = (install(&driver), install(&driver), install(&driver));
        let streams = SLICE as u64 + 1;
        for number in 0..streams {
            begin(&second.streams, number, 1);
        }
        begin(&third.streams, streams, 1);
        let (shown, next) = slice_here(Cursor::default());
        assert_eq!(shown.len(), SLICE);
        first.remove();
        let (shown, next) = slice_here(next.unwrap());
        assert_eq!(shown.iter().map(|stream| stream.number).collect::<Vec<_>>(), [streams - 1, streams]);
        assert_eq!(next, None);
        Local::remove_all();
    }

    #[test]
    fn streams_are_shown_in_slices_that_leave_none_out() {
        let streams = Streams::default();
        let entries: Vec<u32> = (0..100).map(|number| begin(&streams, number, 1)).collect();
        entries.iter().step_by(3).for_each(|entry| streams.leave(*entry));
        let (mut shown, mut from, mut slices) = (Vec::new(), Some(0), 0);
        while let Some(index) = from {
            let mut most = 20;
            let before = shown.len();
            from = streams.show(index, &mut most, |entry| {
                let is_room = shown.len() < before + 8;
                if is_room {
                    shown.push(entry.begun.number);
                }
                is_room
            });
            slices += 1;
        }
        assert_eq!(shown, (0..100).filter(|number| number % 3 != 0).collect::<Vec<u64>>());
        assert!((9..=13).contains(&slices), "{slices}");
    }
}
