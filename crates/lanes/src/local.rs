//! State that a lane has for a generation.

use super::checks::Checks;
use super::event::Event;
use super::idle::Idle;
use super::listen::BoundListener;
use super::passwords::Passwords;
use super::room::Room;
use super::shared_conns::SharedConns;
use super::streams::Streams;
use crate::scopes::{LaneTables, Spare};
use manylane_balance::{IdlePool, Index};
use manylane_config::tree::Mode;
use manylane_expr::{Type, Value};
use manylane_io::{ACCEPTS_PER_ROUND, EVENTS_PER_WAIT, Io, SPLICE_AT_ONCE};
use manylane_logs::{LaneLogs, LaneTls, Level};
use manylane_net::{AcceptingLane, Connector};
use manylane_plan::Cause;
use manylane_plan::generation::pages::PAGES_AT_ONCE;
use manylane_plan::generation::{Backend, Frontend, Generation, MOST_LANES, Server, inherit_late, set_now};
use manylane_sched::{BlockingPool, Class, Here, TaskKind, Time};
use manylane_sync::qsbr::Reader;
use manylane_sync::{Arc, LaneId, Published};
use manylane_tls::ServerContext;
use std::cell::{Cell, Ref, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

/// State of one lane for one generation: its driver, connectors, idle pools and sessions.
pub struct Local {
    /// Serial number among all states that the lane had; later ones have larger numbers.
    pub(crate) serial: u64,
    /// The lane's driver.
    pub io: Io,
    /// The generation that is served.
    pub generation: Arc<Generation>,
    /// Connectors by server number.
    pub connectors: Box<[Rc<Connector>]>,
    /// Idle connections to servers, by backend number.
    pub(crate) idle_pools: Box<[RefCell<IdlePool<Idle>>]>,
    /// Connections of HTTP/2 that many requests share.
    pub(crate) shared_conns: SharedConns,
    /// Number of connections in the idle pools.
    pub(crate) idle: Cell<usize>,
    /// Number of descriptors in use on all lanes, and when it was read.
    pub(crate) used: Cell<(Time, u64)>,
    /// How often other lanes were asked for a connection.
    pub(crate) transfer_requests: Cell<usize>,
    /// Lanes that serve the generation.
    pub lane_ids: RefCell<Box<[LaneId]>>,
    /// The listeners, as long as a task of this lane accepts from them.
    pub bound: RefCell<Weak<Vec<BoundListener>>>,
    /// Checks of servers, which other generations on the lane may share.
    pub checks: Rc<Checks>,
    /// Streams of this lane that are with servers.
    pub streams: Streams,
    /// Happens when the generation takes no more connections and closes idle ones.
    pub stopping: Event,
    /// Access to published values; all generations on the lane share it.
    reader: Rc<RefCell<Reader>>,
    /// Process number, which each log line has; asking the system for it is a system call.
    pub pid: u32,
    /// Log lines that are not sent yet.
    pub(crate) logs: LaneLogs,
    /// Buffer for log lines.
    pub room: RefCell<Room>,
    /// Scratch memory of `balance log-hash`, if there is any.
    pub(super) log_memory: RefCell<Option<manylane_expr::Lane>>,
    /// Scratch memory of expressions.
    pub memory: RefCell<manylane_expr::Lane>,
    /// Free list of [`Scopes`](crate::scopes::Scopes) between requests.
    pub scopes: Spare,
    /// Stick tables of the generation.
    pub tables: Rc<LaneTables>,
    /// State of a soft stop with `close-spread-time`.
    spread: Cell<Option<Spread>>,
    /// Results of hashed passwords.
    pub passwords: Passwords,
    /// Number of pages that are being served.
    pages: Cell<u32>,
    /// Number of requests so far, of all generations.
    numbers: Rc<Cell<u64>>,
    /// Number of sessions and accepting tasks; the lane is empty when all have ended.
    pub(crate) sessions: Cell<usize>,
    /// Sessions end wherever they are.
    over: Cell<bool>,
    /// Called when the last session ends while the generation stops.
    emptied: Box<dyn Fn()>,
    /// Makes other lanes give connections to this lane.
    _presence: AcceptingLane,
}

/// A soft stop that is spread over time.
#[derive(Clone, Copy, Debug)]
struct Spread {
    begun: Time,
    /// Steps until all idle connections are closed.
    left: u32,
    seed: u64,
}

/// Number of steps in which a spread soft stop closes idle connections. Each step wakes all remaining idle
/// sessions.
const SPREAD_STEPS: u32 = 32;

static SPREAD: TaskKind = TaskKind::new("soft stop");

/// Time between two rounds of housekeeping.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// Rounds of housekeeping between two trims of the lane's pools. The time is long beside usual bursts of
/// load. Each trim frees half of the unneeded memory, so nearly all is free within half a minute.
const TRIM: u32 = 5;

thread_local! {
    /// The states of this thread's lane, mostly one, the newest generation last.
    static SERVED: RefCell<Vec<Rc<Local>>> = const { RefCell::new(Vec::new()) };
    /// Number of states that the lane had so far.
    static SERIAL: Cell<u64> = const { Cell::new(0) };
}

/// Returns the process's pool of threads that write to descriptors which may block. The threads start when
/// there is something to write.
fn blocking() -> Arc<BlockingPool> {
    static POOL: OnceLock<Arc<BlockingPool>> = OnceLock::new();
    POOL.get_or_init(|| Arc::new(BlockingPool::default())).clone()
}

/// Returns the thread that frees replaced values whenever it is woken: freeing a list of a million patterns
/// would stop a lane for as long. `None` if the system has no thread.
fn reclaimer() -> Option<&'static std::thread::Thread> {
    static THREAD: OnceLock<Option<std::thread::Thread>> = OnceLock::new();
    let start = || {
        let frees = || loop {
            std::thread::park();
            manylane_sync::qsbr::reclaim();
        };
        let thread = std::thread::Builder::new().name("reclaim".into()).spawn(frees);
        thread.ok().map(|thread| thread.thread().clone())
    };
    THREAD.get_or_init(start).as_ref()
}

/// Runs the lane's wait for events. The lane holds no published value meanwhile, so a lane that sleeps does
/// not keep replaced values from being freed.
#[inline]
pub fn offline<R>(wait: impl FnOnce() -> R) -> R {
    let reader = SERVED.with_borrow(|served| served.first().map(|local| local.reader.clone()));
    // No task holds the reader across a wait; if one did, the lane would stay online.
    match reader.as_ref().and_then(|reader| reader.try_borrow_mut().ok()) {
        Some(mut reader) => reader.offline(wait),
        None => wait(),
    }
}

/// Number of replaced values at which they are freed before the lanes' next housekeeping: rules may replace
/// many in a second.
const MANY_REPLACED: usize = 256;

/// Counts a value that a rule replaced, and frees replaced values when there are many.
pub fn replaced() {
    if manylane_sync::qsbr::replaced() % MANY_REPLACED == MANY_REPLACED - 1 {
        free_replaced();
    }
}

/// Frees replaced values that no lane holds. Allocates only if there is no thread for it.
fn free_replaced() {
    if manylane_sync::qsbr::replaced() > 0 {
        match reclaimer() {
            Some(thread) => thread.unpark(),
            None => {
                manylane_sync::qsbr::reclaim();
            }
        }
    }
}

/// Frees memory that the lane does not need, in this round of housekeeping, and restores the reserve.
fn free_memory(round: u32) {
    manylane_pool::reserve::recheck();
    if manylane_pool::reserve::is_short() {
        manylane_pool::reserve::restore();
    } else if round.is_multiple_of(TRIM) && manylane_pool::trim() > 0 {
        manylane_pool::reserve::give_back();
    }
}

/// Counts a page while it is being served.
pub struct PageServed(Rc<Local>);

impl Drop for PageServed {
    fn drop(&mut self) {
        self.0.pages.set(self.0.pages.get() - 1);
    }
}

impl Local {
    /// Begins to serve a page; `None` if [`PAGES_AT_ONCE`] are being served.
    pub fn begin_page(self: &Rc<Self>) -> Option<PageServed> {
        let pages = self.pages.get();
        (pages < PAGES_AT_ONCE).then(|| {
            self.pages.set(pages + 1);
            PageServed(self.clone())
        })
    }

    /// Makes the lane of `io` serve `generation`. `emptied` is called, perhaps more than once, when the lane
    /// has no sessions of it while it [stops](Self::stop).
    pub fn install(io: Io, generation: Arc<Generation>, emptied: impl Fn() + 'static) -> Rc<Self> {
        manylane_plan::clock::uptime(); // it counts from here on
        reclaimer(); // started before the lane is bound to processors, which the thread would inherit
        let predecessor = SERVED.with_borrow(|served| {
            served.iter().rev().find(|before| before.generation.is_related(&generation)).cloned()
        });
        let tables = LaneTables::new(&generation.stick_tables);
        let connectors = connectors(&generation, predecessor.as_deref());
        let checks = Self::newest()
            .filter(|before| before.generation.process.max_checks == generation.process.max_checks)
            .map(|before| before.checks.clone());
        let idle_pools = generation
            .backends
            .iter()
            .map(|backend| RefCell::new(IdlePool::new(backend.idle_pools.clone())))
            .collect();
        let shared = SERVED
            .with_borrow(|served| served.first().map(|local| (local.reader.clone(), local.numbers.clone())));
        let (reader, numbers) =
            shared.unwrap_or_else(|| (Rc::new(RefCell::new(Reader::new())), Rc::default()));
        let targets = generation.logs.targets.iter().cloned();
        let hashes_lines = generation
            .backends
            .iter()
            .any(|backend| backend.mode == Mode::Log && backend.rules.balance.is_some());
        let zone = jiff::tz::TimeZone::system();
        let tls = LaneTls { reader: Rc::downgrade(&reader), report: super::changes::report };
        let logs = LaneLogs::new(io.here(), io.clone(), blocking(), zone, targets).with_tls(tls.clone());
        let local = Rc::new(Self {
            serial: SERIAL.replace(SERIAL.get() + 1),
            pid: std::process::id(),
            logs,
            room: RefCell::new(Room::new(&generation)),
            log_memory: RefCell::new(hashes_lines.then(manylane_expr::Lane::new)),
            io,
            checks: checks.unwrap_or_else(|| Checks::new(generation.process.max_checks)),
            generation,
            connectors,
            idle_pools,
            shared_conns: SharedConns::default(),
            idle: Cell::new(0),
            used: Cell::new((Time::ZERO, 0)),
            transfer_requests: Cell::new(0),
            lane_ids: RefCell::default(),
            streams: Streams::default(),
            stopping: Event::default(),
            bound: RefCell::default(),
            reader,
            memory: RefCell::new(manylane_expr::Lane::new()),
            scopes: Spare::default(),
            tables,
            spread: Cell::new(None),
            passwords: Passwords::default(),
            numbers,
            pages: Cell::new(0),
            sessions: Cell::new(0),
            over: Cell::new(false),
            emptied: Box::new(emptied),
            _presence: AcceptingLane::new(), // counted by lane
        });
        let first = SERVED.with_borrow_mut(|served| {
            served.push(local.clone());
            served.len() == 1
        });
        for server in &local.generation.logs.ring_servers {
            server.start(local.here(), &local.io, Some(tls.clone()));
        }
        if first {
            local.apply();
        }
        local
    }

    /// Applies the generation's settings of the lane itself, once it is the one that serves.
    pub(crate) fn apply(&self) {
        let process = &self.generation.process;
        self.io.set_accepts_per_round(process.maxaccept.unwrap_or(ACCEPTS_PER_ROUND));
        self.io.set_events_per_wait(process.events_at_once.unwrap_or(EVENTS_PER_WAIT));
        self.io.set_pipe_size(process.pipe_size.unwrap_or(SPLICE_AT_ONCE));
        self.share_limits();
    }

    /// Sets this lane's share of `maxpipes` and `tune.buffers.limit`, at least one each.
    pub fn share_limits(&self) {
        let process = &self.generation.process;
        let share = |most: usize| (most / self.lane_ids.borrow().len().max(1)).max(1);
        self.io.set_most_pipes(process.most_pipes.map_or(usize::MAX, share));
        self.io.set_most_clusters(process.most_clusters.map_or(usize::MAX, |most| {
            // The reserve raises the limit. Messages that begin leave it to those that have begun, and leave
            // at least half of the share: each message that has begun holds its head, and takes one cluster
            // at a time for its body.
            let most = share(most).max(process.reserved_clusters.saturating_add(1));
            (most - process.reserved_clusters).min(most.div_ceil(2))
        }));
    }

    /// Returns the calling lane's state of `generation`; `None` before `install` and after `remove`.
    pub fn of(generation: &Generation) -> Option<Rc<Self>> {
        SERVED.with_borrow(|served| {
            served.iter().find(|local| std::ptr::eq(&*local.generation, generation)).cloned()
        })
    }

    /// Iterates over the calling lane's states of all generations, the newest last. A generation that comes
    /// meanwhile is included, one that goes is not. Allocates nothing.
    pub fn all() -> impl Iterator<Item = Rc<Self>> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let local = SERVED.with_borrow(|served| {
                served.get(served.partition_point(|local| local.serial < next)).cloned()
            })?;
            next = local.serial + 1;
            Some(local)
        })
    }

    /// Returns the handle of the lane.
    pub fn here(&self) -> Here {
        self.io.here()
    }

    /// Returns the generation.
    pub fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// Returns the lanes that serve the generation.
    pub fn lane_ids(&self) -> Box<[LaneId]> {
        self.lane_ids.borrow().clone()
    }

    /// Returns the lane's driver.
    pub fn io(&self) -> Io {
        self.io.clone()
    }

    /// Returns access to published values. Callers must not hold it across a wait.
    pub fn reader(&self) -> Ref<'_, Reader> {
        self.reader.borrow()
    }

    /// Makes the server's side of TLS for a new connection.
    ///
    /// # Errors
    /// Those of [`manylane_tls::Connection::server`].
    pub fn tls(&self, context: &ServerContext) -> Result<manylane_tls::Connection, manylane_tls::Error> {
        manylane_tls::Connection::server(context, &self.reader())
    }

    /// Returns the type and the value of a process variable, in the form that reports show.
    pub fn process_variable(&self, name: &[u8]) -> Option<(Type, Vec<u8>)> {
        let own = &self.generation.expressions;
        let reader = self.reader();
        let value = own.process.get(own.commanded.get(name)?, &reader)?;
        let shown = match value {
            Value::Bool(value) => u8::from(value).to_string().into_bytes(),
            Value::Int(value) => value.to_string().into_bytes(),
            Value::Ipv4(address) => address.to_string().into_bytes(),
            Value::Ipv6(address) => address.to_string().into_bytes(),
            Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes) => bytes.to_vec(),
        };
        Some((value.kind(), shown))
    }

    /// Sets a process variable to the value of an expression or a format.
    ///
    /// # Errors
    /// A sentence: the text does not compile, the name is invalid, or commands have made too many variables.
    pub fn set_process_variable(&self, name: &[u8], text: &[u8], is_format: bool) -> Result<(), String> {
        set_now(&self.generation, &self.reader(), name, text, is_format)
    }

    /// Copies the process variables that commands made in `before` while this generation began.
    pub fn inherit_variables(&self, before: &Generation) {
        inherit_late(&self.generation.expressions, &before.expressions, &self.reader());
    }

    /// Announces that the lane holds no published value, so that replaced ones can be freed. Called between
    /// sessions.
    pub(crate) fn quiescent(&self) {
        if let Ok(mut reader) = self.reader.try_borrow_mut() {
            reader.quiescent();
        }
    }

    /// Stops the generation on this lane: it takes no more connections and closes idle ones.
    pub fn stop(&self) {
        if let Some(Some(window)) = self.generation.process.close_spread
            && self.spread.get().is_none()
            && let Some(own) = Self::of(&self.generation)
        {
            self.spread.set(Some(Spread {
                begun: self.here().now(),
                left: SPREAD_STEPS,
                seed: u64::from(self.pid) | 1,
            }));
            // Without memory for the task, all close at once.
            if self.here().spawn(&SPREAD, Class::Bulk, own.close_one_by_one(window)).is_err() {
                self.spread.set(None);
            }
        }
        self.stopping.happen();
        // Tasks of a replaced generation may now have nothing left to wait for.
        Self::all().filter(|local| local.stopping.has_happened()).for_each(|local| local.stopping.happen());
        self.leave_checks();
        self.close_idle();
        self.shared_conns.shutdown();
        if let Some(next) = Self::newest() {
            let kept = &next.generation.logs.ring_servers;
            let own = self.generation.logs.ring_servers.iter();
            own.filter(|own| !kept.iter().any(|kept| Arc::ptr_eq(own, kept))).for_each(|own| own.close());
        }
        if self.sessions.get() == 0 {
            (self.emptied)();
        }
    }

    /// Wakes the idle sessions in each step of a spread soft stop, so that some of them close.
    async fn close_one_by_one(self: Rc<Self>, window: Duration) {
        for left in (0..SPREAD_STEPS).rev() {
            self.here().sleep(window / SPREAD_STEPS).await;
            self.spread.set(self.spread.get().map(|spread| Spread { left, ..spread }));
            self.stopping.happen();
        }
    }

    /// Returns true if an idle client stays connected although the lane stops.
    pub fn keeps_idle(&self) -> bool {
        match self.generation.process.close_spread {
            None => false,
            Some(None) => true,
            // With n steps left, a connection stays with a chance of (n - 1)/n.
            Some(Some(_)) => self.spread.get().is_some_and(|spread| !self.draws(1, spread.left.into())),
        }
    }

    /// Returns true if a client's connection closes behind its response while the lane stops.
    pub fn closes_busy(&self) -> bool {
        match self.generation.process.close_spread {
            None => true,
            Some(None) => false,
            Some(Some(window)) => self.spread.get().is_none_or(|spread| {
                let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
                self.draws(micros(self.here().now().since(spread.begun)), micros(window))
            }),
        }
    }

    /// Returns true with a chance of `times` / `out_of`.
    fn draws(&self, times: u64, out_of: u64) -> bool {
        let Some(mut spread) = self.spread.get() else { return true };
        // Marsaglia's xorshift; a client gains nothing by guessing it.
        spread.seed ^= spread.seed << 13;
        spread.seed ^= spread.seed >> 7;
        spread.seed ^= spread.seed << 17;
        self.spread.set(Some(spread));
        out_of == 0 || spread.seed % out_of < times
    }

    /// Returns a number that no other request of the process has. In a process of one lane the numbers are
    /// consecutive; otherwise each lane has its own of every [`MOST_LANES`].
    #[inline]
    pub fn next_number(&self) -> u64 {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        match self.generation.process.lanes {
            Some(1) => number,
            _ => number * MOST_LANES as u64 + self.here().lane().index() as u64,
        }
    }

    /// Returns the number of lanes that serve the generation.
    pub fn lanes(&self) -> usize {
        self.lane_ids.borrow().len().max(1)
    }

    /// Returns the number of sessions and accepting tasks of the generation on this lane.
    pub fn sessions(&self) -> usize {
        self.sessions.get()
    }

    /// `hard-stop-after`: ends all streams as if an operator had shut them down.
    pub fn end_streams(&self) {
        self.streams.end_all(Cause::Killed);
    }

    /// Ends the streams of all generations of the calling lane.
    pub fn end_all_streams() {
        Self::all().for_each(|local| local.end_streams());
    }

    /// Writes a line about a frontend, or about a backend without one, to its log targets and to standard
    /// error.
    pub fn warn(&self, frontend: Option<&Frontend>, backend: Option<&Backend>, text: &str) {
        match (frontend, backend) {
            (Some(frontend), _) => super::changes::warn(self, frontend, text),
            (None, Some(backend)) => super::changes::say(self, backend, Level::Warning, text),
            (None, None) => {}
        }
    }

    /// Writes a line at level info to the log targets of `global`.
    pub fn log_globally(&self, text: &str) {
        super::changes::log_globally(self, Level::Info, text);
    }

    /// Ends all sessions wherever they are, without a response.
    pub fn end_sessions(&self) {
        self.over.set(true);
        self.here().wake_kind(&super::conn_guard::SESSION);
    }

    /// Returns true if [`end_sessions`](Self::end_sessions) was called.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Counts a session that begins.
    pub fn begun(&self) {
        self.sessions.set(self.sessions.get() + 1);
    }

    /// Counts a session that has ended. After the last one a stopping generation reports that it is empty.
    pub fn ended(&self) {
        self.quiescent();
        self.sessions.set(self.sessions.get() - 1);
        if self.sessions.get() == 0 && self.stopping.has_happened() {
            (self.emptied)();
        }
    }

    /// Closes connections that were not needed, warms up servers and frees replaced values and memory, once
    /// per [`HOUSEKEEPING`], until the generation stops. If no other generation serves on the lane then, goes
    /// on for its memory until the lane ends: sessions may last, and need what others leave.
    pub async fn housekeeping(self: Rc<Self>) {
        let here = self.here();
        let mut round = 0;
        let mut free = || {
            round += 1;
            self.quiescent();
            free_replaced();
            free_memory(round);
        };
        let mut stopping = self.stopping.waiter();
        while here.timeout(HOUSEKEEPING, poll_fn(|context| stopping.poll(context))).await.is_err() {
            self.purge_idle().await;
            for backend in &self.generation.backends {
                backend.balancer.tick(here.now());
            }
            free();
        }
        while Self::newest().is_none() {
            here.sleep(HOUSEKEEPING).await;
            free();
        }
    }

    /// Removes the state from the lane. Remaining sessions keep what they need.
    pub fn remove(&self) {
        SERVED.with_borrow_mut(|served| served.retain(|local| !std::ptr::eq(&**local, self)));
        // Freeing very many certificates would stop the lane that holds the generation last: so the thread
        // that frees replaced values holds it longer. A generation with fewer is freed at once: the next
        // reload may need its memory.
        if self.generation.has_many_certificates {
            Published::new(Some(self.generation.clone())).replace(None);
        }
    }

    /// Returns the number of log lines that the calling lane has not sent yet.
    pub fn unsent_lines() -> usize {
        SERVED.with_borrow(|served| served.iter().map(|local| local.logs.unsent()).sum())
    }

    /// Removes all states, when the calling thread's lane ends.
    pub fn remove_all() {
        drop(SERVED.take()); // dropped outside of the borrow, since destructors may read `SERVED`
    }

    /// Returns the calling lane's state of the newest generation that does not stop.
    pub(crate) fn newest() -> Option<Rc<Self>> {
        SERVED.with_borrow(|served| served.iter().rev().find(|local| !local.stopping.has_happened()).cloned())
    }

    /// Returns the state that serves in place of this one once this one has stopped, if it has the same
    /// server: with the numbers of the backend and the server there.
    pub(crate) fn successor_with(&self, backend: &Backend, index: Index) -> Option<(Rc<Self>, usize, Index)> {
        if !self.stopping.has_happened() {
            return None;
        }
        let next = self.successor()?;
        let own = next.generation.backend_named(&backend.name).filter(|own| own.mode == backend.mode)?;
        let index = own.balancer.servers().index(own.same_server(&backend.servers[index.get()])?.index)?;
        let number = own.number;
        Some((next, number, index))
    }

    /// Returns the newest state of the lane that does not stop, unless it is this one.
    pub fn successor(&self) -> Option<Rc<Self>> {
        Self::newest().filter(|newest| !std::ptr::eq(&**newest, self))
    }
}

/// Returns the connectors by server number. Servers that `predecessor` has, too, keep their connectors.
fn connectors(generation: &Generation, predecessor: Option<&Local>) -> Box<[Rc<Connector>]> {
    let connector = |server: &Server| Some(Rc::new(Connector::new(server.connect.clone())));
    let mut all: Vec<Option<Rc<Connector>>> = match predecessor {
        Some(predecessor) => predecessor.connectors.iter().cloned().map(Some).collect(),
        None => Vec::new(),
    };
    all.resize(generation.servers, None);
    match predecessor {
        Some(predecessor) => generation
            .others_than(&predecessor.generation)
            .for_each(|(_, server)| all[server.number] = connector(server)),
        None => generation
            .backends
            .iter()
            .flat_map(|backend| &backend.servers)
            .for_each(|server| all[server.number] = connector(server)),
    }
    all.into_iter().flatten().collect() // each number belongs to a server, even if the server is gone
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Local({:?}, {} sessions)", self.here(), self.sessions())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_was_replaced_is_freed_beside_the_lane() {
        struct Large(mpsc::Sender<Option<String>>);
        impl Drop for Large {
            fn drop(&mut self) {
                let _ = self.0.send(std::thread::current().name().map(str::to_owned));
            }
        }
        let (tell, receiver) = mpsc::channel();
        let tell = std::sync::Mutex::new(tell);
        let make = || std::sync::Mutex::new(Large(tell.lock().expect("nobody panics").clone()));
        let published = manylane_sync::Published::new(make());
        published.replace(make());
        // Readers of other tests may still have to announce that they hold nothing. Housekeeping, too, waits
        // for that by coming again.
        let begun = std::time::Instant::now();
        let freed_by = loop {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing frees it");
            free_replaced();
            if let Ok(name) = receiver.recv_timeout(Duration::from_millis(10)) {
                break name;
            }
        };
        assert_eq!(freed_by.as_deref(), Some("reclaim"));
    }
}
