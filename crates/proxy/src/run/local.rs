//! What a lane has of a generation.

use super::checks::Checks;
use super::event::Event;
use super::idle::Idle;
use super::listen::BoundListener;
use super::passwords::Passwords;
use super::shared_conns::SharedConns;
use super::streams::Streams;
use crate::generation::{Backend, Frontend, Generation, Server, inherit_late, set_now};
use crate::log::Room;
use crate::pages::PAGES_AT_ONCE;
use crate::rules::{LaneTables, Spare};
use crate::termination::Cause;
use manylane_balance::{IdlePool, Index};
use manylane_expr::{Type, Value};
use manylane_io::{ACCEPTS_PER_ROUND, EVENTS_PER_WAIT, Io, SPLICE_AT_ONCE};
use manylane_logs::{LaneLogs, Level};
use manylane_net::{Connector, Presence};
use manylane_sched::{BlockingPool, Class, Here, TaskKind, Time};
use manylane_sync::qsbr::Reader;
use manylane_sync::{Arc, LaneId};
use std::cell::{Cell, Ref, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

/// A lane's side of a generation: its driver, its hands on servers, its sessions.
pub struct Local {
    /// Its number among all that the lane has served: later ones have larger ones.
    pub(super) serial: u64,
    pub(crate) io: Io,
    pub(crate) generation: Arc<Generation>,
    /// By the servers' numbers.
    pub(crate) connectors: Box<[Rc<Connector>]>,
    /// Idle connections to servers, by the backends' numbers.
    pub(super) idle_pools: Box<[RefCell<IdlePool<Idle>>]>,
    /// Those that many requests share.
    pub(super) shared_conns: SharedConns,
    /// How many lie there.
    pub(super) idle: Cell<usize>,
    /// Descriptors in use on all lanes, and when they were looked at.
    pub(super) used: Cell<(Time, u64)>,
    /// How often other lanes were asked for one.
    pub(super) asked: Cell<usize>,
    /// Lanes that serve the generation.
    pub(super) lane_ids: RefCell<Box<[LaneId]>>,
    /// What those who accept have, as long as any of them does.
    pub(super) bound: RefCell<Weak<Vec<BoundListener>>>,
    /// Checks of servers, which others of the lane may have, too.
    pub(super) checks: Rc<Checks>,
    /// Its streams that are with servers.
    pub(crate) streams: Streams,
    /// The generation takes no more connections, and idle ones are closed.
    pub(crate) stopping: Event,
    /// The lane's access to what is published; one for all generations.
    reader: Rc<RefCell<Reader>>,
    /// The process, whose number each log line has: to ask for it is a call.
    pub(crate) pid: u32,
    /// Lines on their way.
    pub(crate) logs: LaneLogs,
    /// Where lines are written.
    pub(crate) room: RefCell<Room>,
    /// Where expressions write.
    pub(crate) memory: RefCell<manylane_expr::Lane>,
    /// What requests leave behind for their logs, between two requests.
    pub(crate) scopes: Spare,
    /// Stick tables of the generation.
    pub(crate) tables: Rc<LaneTables>,
    /// The soft stop at work: `close-spread-time`.
    spread: Cell<Option<Spread>>,
    /// What hashing passwords has told.
    pub(crate) passwords: Passwords,
    /// Pages that are served.
    pages: Cell<u32>,
    /// Requests so far, of all generations.
    numbers: Rc<Cell<u64>>,
    /// What must end before the lane is empty: sessions, and tasks that accept.
    pub(super) sessions: Cell<usize>,
    /// Its sessions end where they are.
    over: Cell<bool>,
    /// Called when the last session ends while it stops.
    emptied: Box<dyn Fn()>,
    /// Others give connections to this lane.
    _presence: Presence,
}

/// A soft stop that takes its time.
#[derive(Clone, Copy, Debug)]
struct Spread {
    begun: Time,
    /// Steps until all are closed.
    left: u32,
    seed: u64,
}

/// Steps in which idle connections are closed at a soft stop that takes its time. Each wakes all that are
/// left.
const SPREAD_STEPS: u32 = 32;

static SPREAD: TaskKind = TaskKind::new("soft stop");

/// Time between two looks at what nobody asks for.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// Rounds of housekeeping between two looks at what the lane's pools do not need any more: long beside the
/// bursts of usual load, and half of what is left goes each time, so nearly all has gone within half a
/// minute.
const TRIM: u32 = 5;

thread_local! {
    /// What this thread's lane serves; mostly one. The newest generation is the last.
    static SERVED: RefCell<Vec<Rc<Local>>> = const { RefCell::new(Vec::new()) };
    /// How many it served so far.
    static SERIAL: Cell<u64> = const { Cell::new(0) };
}

/// Threads that write to descriptors which may block: of the whole process, started when there is something
/// to write.
fn blocking() -> Arc<BlockingPool> {
    static POOL: OnceLock<Arc<BlockingPool>> = OnceLock::new();
    POOL.get_or_init(|| Arc::new(BlockingPool::default())).clone()
}

/// A thread that frees values which were replaced, a list of a million patterns perhaps, whenever it is
/// woken: a lane that did it would stop for as long. None: the system gave none.
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

/// How many values that were replaced wait for the lanes' housekeeping before they are freed sooner: rules
/// may replace many in a second.
const MANY_REPLACED: usize = 256;

/// A rule replaced a value.
pub(crate) fn replaced() {
    if manylane_sync::qsbr::replaced() % MANY_REPLACED == MANY_REPLACED - 1 {
        free_replaced();
    }
}

/// Has what was replaced be freed, as far as no lane holds it. It asks for no memory.
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

/// A page that is served.
pub(crate) struct PageServed(Rc<Local>);

impl Drop for PageServed {
    fn drop(&mut self) {
        self.0.pages.set(self.0.pages.get() - 1);
    }
}

impl Local {
    /// A page more is served; nothing when there are as many as may be.
    pub(crate) fn begin_page(self: &Rc<Self>) -> Option<PageServed> {
        let pages = self.pages.get();
        (pages < PAGES_AT_ONCE).then(|| {
            self.pages.set(pages + 1);
            PageServed(self.clone())
        })
    }

    /// The lane of `io` serves `generation` from now on. `emptied` is called when it has no sessions any more
    /// while it [stops](Self::stop), perhaps more than once.
    pub fn install(io: Io, generation: Arc<Generation>, emptied: impl Fn() + 'static) -> Rc<Self> {
        reclaimer(); // before a lane is bound to processors, which the thread would inherit
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
        let seed = (manylane_sync::lane::current().index() as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let targets = generation.logs.targets.iter().cloned();
        let zone = jiff::tz::TimeZone::system();
        let logs = LaneLogs::new(io.here(), io.clone(), blocking(), zone, targets);
        let local = Rc::new(Self {
            serial: SERIAL.replace(SERIAL.get() + 1),
            pid: std::process::id(),
            logs,
            room: RefCell::new(Room::new(&generation)),
            io,
            checks: checks.unwrap_or_else(|| Checks::new(generation.process.max_checks)),
            generation,
            connectors,
            idle_pools,
            shared_conns: SharedConns::default(),
            idle: Cell::new(0),
            used: Cell::new((Time::ZERO, 0)),
            asked: Cell::new(0),
            lane_ids: RefCell::default(),
            streams: Streams::default(),
            stopping: Event::default(),
            bound: RefCell::default(),
            reader,
            memory: RefCell::new(manylane_expr::Lane::new(seed)),
            scopes: Spare::default(),
            tables,
            spread: Cell::new(None),
            passwords: Passwords::default(),
            numbers,
            pages: Cell::new(0),
            sessions: Cell::new(0),
            over: Cell::new(false),
            emptied: Box::new(emptied),
            _presence: Presence::new(), // counted by lane
        });
        let first = SERVED.with_borrow_mut(|served| {
            served.push(local.clone());
            served.len() == 1
        });
        for server in &local.generation.logs.ring_servers {
            server.start(local.here(), &local.io);
        }
        if first {
            local.apply();
        }
        local
    }

    /// What the generation says of the lane itself: when it is the one that serves.
    pub(super) fn apply(&self) {
        let process = &self.generation.process;
        self.io.set_accepts_per_round(process.maxaccept.unwrap_or(ACCEPTS_PER_ROUND));
        self.io.set_events_per_wait(process.events_at_once.unwrap_or(EVENTS_PER_WAIT));
        self.io.set_pipe_size(process.pipe_size.unwrap_or(SPLICE_AT_ONCE));
        self.share_limits();
    }

    /// `maxpipes`, `tune.buffers.limit`: each lane has its share, at least one.
    pub(super) fn share_limits(&self) {
        let process = &self.generation.process;
        let share = |most: usize| (most / self.lane_ids.borrow().len().max(1)).max(1);
        self.io.set_most_pipes(process.most_pipes.map_or(usize::MAX, share));
        self.io.set_most_clusters(process.most_clusters.map_or(usize::MAX, |most| {
            // The reserve raises the limit. Messages that begin leave it to those that have begun, and at
            // least half of the share: each of these holds its head, and takes one at a time for its body.
            let most = share(most).max(process.reserved_clusters.saturating_add(1));
            (most - process.reserved_clusters).min(most.div_ceil(2))
        }));
    }

    /// What the calling lane has of `generation`; none before it was installed and after it was removed.
    pub fn of(generation: &Generation) -> Option<Rc<Self>> {
        SERVED.with_borrow(|served| {
            served.iter().find(|local| std::ptr::eq(&*local.generation, generation)).cloned()
        })
    }

    /// What the calling lane has of all generations that it serves, the newest last. One that comes meanwhile
    /// is among them, one that goes is not. Takes no memory.
    pub(super) fn all() -> impl Iterator<Item = Rc<Self>> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let local = SERVED.with_borrow(|served| {
                served.get(served.partition_point(|local| local.serial < next)).cloned()
            })?;
            next = local.serial + 1;
            Some(local)
        })
    }

    /// The lane.
    pub fn here(&self) -> Here {
        self.io.here()
    }

    /// What it is of.
    pub fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// The lanes that serve the generation.
    pub fn lane_ids(&self) -> Box<[LaneId]> {
        self.lane_ids.borrow().clone()
    }

    /// The lane's driver.
    pub fn io(&self) -> Io {
        self.io.clone()
    }

    /// The lane's access to what is published. Not held across a wait.
    pub(crate) fn reader(&self) -> Ref<'_, Reader> {
        self.reader.borrow()
    }

    /// What a variable of the process is now: its type and its value, as reports show it.
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

    /// Sets a variable of the process to what an expression or a format gives.
    ///
    /// # Errors
    /// A sentence: the text does not compile, the name is none, or commands have made too many.
    pub fn set_process_variable(&self, name: &[u8], text: &[u8], is_format: bool) -> Result<(), String> {
        set_now(&self.generation, &self.reader(), name, text, is_format)
    }

    /// Has the variables of the process that commands have made of `before` while this generation began.
    pub fn inherit_variables(&self, before: &Generation) {
        inherit_late(&self.generation.expressions, &before.expressions, &self.reader());
    }

    /// Lets go of what was replaced: once in a while, between two sessions.
    pub(crate) fn quiescent(&self) {
        if let Ok(mut reader) = self.reader.try_borrow_mut() {
            reader.quiescent();
        }
    }

    /// Takes no more connections, and closes those that are idle.
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
            // Without memory for the task all are closed at once.
            if self.here().spawn(&SPREAD, Class::Bulk, own.close_one_by_one(window)).is_err() {
                self.spread.set(None);
            }
        }
        self.stopping.happen();
        // Who waits for something with a generation that was replaced may have nothing to wait for now.
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

    /// The clients that are idle are woken again and again, and each time some of them are closed.
    async fn close_one_by_one(self: Rc<Self>, window: Duration) {
        for left in (0..SPREAD_STEPS).rev() {
            self.here().sleep(window / SPREAD_STEPS).await;
            self.spread.set(self.spread.get().map(|spread| Spread { left, ..spread }));
            self.stopping.happen();
        }
    }

    /// Whether a client that asks for nothing stays connected although the lane stops.
    pub(crate) fn keeps_idle(&self) -> bool {
        match self.generation.process.close_spread {
            None => false,
            Some(None) => true,
            // One of those that are left for each step that is left.
            Some(Some(_)) => self.spread.get().is_some_and(|spread| !self.draws(1, spread.left.into())),
        }
    }

    /// Whether a client's connection is closed behind its answer while the lane stops.
    pub(crate) fn closes_busy(&self) -> bool {
        match self.generation.process.close_spread {
            None => true,
            Some(None) => false,
            Some(Some(window)) => self.spread.get().is_none_or(|spread| {
                let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
                self.draws(micros(self.here().now().since(spread.begun)), micros(window))
            }),
        }
    }

    /// True so many times out of as many, by chance.
    fn draws(&self, times: u64, out_of: u64) -> bool {
        let Some(mut spread) = self.spread.get() else { return true };
        // Marsaglia's xorshift: nobody gains by guessing it.
        spread.seed ^= spread.seed << 13;
        spread.seed ^= spread.seed >> 7;
        spread.seed ^= spread.seed << 17;
        self.spread.set(Some(spread));
        out_of == 0 || spread.seed % out_of < times
    }

    /// A number that no other request of the process has: on a process of one lane they go one by one, else
    /// each lane has its own of every [`MOST_LANES`](crate::MOST_LANES).
    pub(crate) fn next_number(&self) -> u64 {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        match self.generation.process.lanes {
            Some(1) => number,
            _ => number * crate::MOST_LANES as u64 + self.here().lane().index() as u64,
        }
    }

    /// Lanes that serve the generation.
    pub(crate) fn lanes(&self) -> usize {
        self.lane_ids.borrow().len().max(1)
    }

    /// Sessions of this lane.
    pub fn sessions(&self) -> usize {
        self.sessions.get()
    }

    /// `hard-stop-after`: streams end as if an operator had shut them down.
    pub fn end_streams(&self) {
        self.streams.end_all(Cause::Killed);
    }

    /// The same for all generations of the calling lane.
    pub fn end_all_streams() {
        Self::all().for_each(|local| local.end_streams());
    }

    /// A line about a frontend, or about a backend without one, for its log targets and for standard error.
    pub fn warn(&self, frontend: Option<&Frontend>, backend: Option<&Backend>, text: &str) {
        match (frontend, backend) {
            (Some(frontend), _) => super::changes::warn(self, frontend, text),
            (None, Some(backend)) => super::changes::say(self, backend, Level::Warning, text),
            (None, None) => {}
        }
    }

    /// A line at level info for the targets of `global`.
    pub fn log_globally(&self, text: &str) {
        super::changes::log_globally(self, text);
    }

    /// Sessions end wherever they are, without a word.
    pub fn end_sessions(&self) {
        self.over.set(true);
        self.here().wake_kind(&super::listen::SESSION);
    }

    /// Whether they do.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }

    pub(crate) fn begun(&self) {
        self.sessions.set(self.sessions.get() + 1);
    }

    pub(crate) fn ended(&self) {
        self.quiescent();
        self.sessions.set(self.sessions.get() - 1);
        if self.sessions.get() == 0 && self.stopping.has_happened() {
            (self.emptied)();
        }
    }

    /// Looks after what nobody asks for: connections that were not needed, servers that warm up, values that
    /// were replaced. Until the lane stops.
    pub(crate) async fn housekeeping(self: Rc<Self>) {
        let here = self.here();
        for round in 1_u32.. {
            let mut sleep = here.sleep(HOUSEKEEPING);
            let mut stopping = self.stopping.waiter();
            let over = poll_fn(|context| match stopping.poll(context) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => Pin::new(&mut sleep).poll(context).map(|()| false),
            });
            if over.await {
                return;
            }
            self.purge_idle().await;
            for backend in &self.generation.backends {
                backend.balancer.tick(here.now());
            }
            self.quiescent();
            free_replaced();
            if manylane_pool::reserve::is_short() {
                manylane_pool::reserve::restore();
            } else if round.is_multiple_of(TRIM) {
                manylane_pool::trim();
            }
        }
    }

    /// The lane serves it no more. Sessions that are left keep what they need.
    pub fn remove(&self) {
        SERVED.with_borrow_mut(|served| served.retain(|local| !std::ptr::eq(&**local, self)));
    }

    /// Lines for logs that the calling lane has not sent yet.
    pub fn unsent_lines() -> usize {
        SERVED.with_borrow(|served| served.iter().map(|local| local.logs.unsent()).sum())
    }

    /// The calling thread's lane ends.
    pub fn remove_all() {
        drop(SERVED.take()); // outside of the borrow: what is dropped may look
    }

    /// What the calling lane has of the newest generation that goes on.
    pub(super) fn newest() -> Option<Rc<Self>> {
        SERVED.with_borrow(|served| served.iter().rev().find(|local| !local.stopping.has_happened()).cloned())
    }

    /// The same, if this one serves no more and that one has the same server: with the number of its backend
    /// there, and its own.
    pub(super) fn successor_with(&self, backend: &Backend, index: Index) -> Option<(Rc<Self>, usize, Index)> {
        let next = self.successor().filter(|_| self.stopping.has_happened())?;
        let own = next.generation.backend_named(&backend.name).filter(|own| own.mode == backend.mode)?;
        let index = own.balancer.servers().index(own.same_server(&backend.servers[index.get()])?.index)?;
        let number = own.number;
        Some((next, number, index))
    }

    /// The same, if it is not this one.
    pub(super) fn successor(&self) -> Option<Rc<Self>> {
        Self::newest().filter(|newest| !std::ptr::eq(&**newest, self))
    }
}

/// By the servers' numbers. Those of servers that `predecessor` has, too, are the same.
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
    all.into_iter().flatten().collect() // each number is a server's, of one that is gone too
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
        let (tell, told) = mpsc::channel();
        let tell = std::sync::Mutex::new(tell);
        let make = || std::sync::Mutex::new(Large(tell.lock().expect("nobody panics").clone()));
        let published = manylane_sync::Published::new(make());
        published.replace(make());
        // Readers of other tests may have to say that they hold nothing, which housekeeping also waits for by
        // coming again.
        let freed_by = loop {
            free_replaced();
            if let Ok(name) = told.recv_timeout(Duration::from_millis(10)) {
                break name;
            }
        };
        assert_eq!(freed_by.as_deref(), Some("reclaim"));
    }
}
