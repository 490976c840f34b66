//! Supervises the lanes of the process: starts them, tells them to stop, and waits for them.
//!
//! The first lane runs on the main thread, and the supervisor is a task of it. Other lanes and the thread
//! that waits for signals queue events for it and wake it. That takes no memory of a pool: under `-m` a lost
//! event would block a reload, or the end, forever.

use crate::defect;
use crate::jobs::{JobThread, SMALL_STACK};
use crate::last_words::{SLOWEST, last_words, lines_sent};
use crate::master::Joined;
use crate::reload::{NewGeneration, Outcome, ReloadWaiter};
use crate::say;
use manylane_io::{Driver, DriverChoice, DriverError, Io, IoUringUnavailable, Kind};
use manylane_lanes::{BoundListener, ListenersBeside, Local};
use manylane_net::{PendingChanges, load};
use manylane_plan::Generation;
use manylane_plan::generation::{
    Backend, Change, Changed, Changes, Frontend, FrontendGateState, MOST_BEHIND,
};
use manylane_runtime::accept;
use manylane_sched::{Class, Config, Here, Lane, Poller, Remote, TaskKind, Unpark};
use manylane_sync::{Arc, LaneId, LockClass, Mutex};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Once;
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

static ORDER: TaskKind = TaskKind::new("order");

/// Event for the supervisor.
enum Event {
    /// A lane has started.
    Ready(LaneId),
    /// A lane accepts for the generation with this number.
    Accepting(u64),
    /// A lane cannot accept for the generation with this number.
    Refused(u64, String),
    /// A lane or the process cannot continue.
    Failed(String),
    /// A lane has retired the generation with this number.
    Retired(u64),
    /// A lane has no session left of the generation with this number, which accepts no new ones.
    Emptied(u64, LaneId),
    /// The `hard-stop-after` of the generation with this number is over.
    Limit(u64),
    /// The streams of a lane have sent their last bytes.
    Silent,
    /// A client or a signal asks for a reload.
    ReloadWanted,
    /// The configuration was read.
    Read(Result<Box<NewGeneration>, String>),
    /// A client asks to add or remove a server.
    ChangeRequested,
    /// An agent asks for a change of a server, and does not wait for the result.
    Wanted(Change),
    /// The generation with the change was made.
    Made(Result<Box<Changed>, String>),
    /// The system has sent a signal.
    Signal(i32),
}

struct Inbox {
    events: VecDeque<Event>,
    /// Waker of the supervisor's task while it waits.
    waker: Option<Waker>,
}

static EVENTS: LockClass = LockClass::new("events for the supervisor", LockClass::LEAF);
static INBOX: Mutex<Inbox> = Mutex::new(&EVENTS, Inbox { events: VecDeque::new(), waker: None });

thread_local! {
    /// Tasks that wait for a reload, on the supervisor's lane.
    static ASKERS: RefCell<Vec<ReloadWaiter>> = RefCell::default();
    /// Requested changes of servers with the waiting tasks, on the supervisor's lane.
    static CHANGES: RefCell<VecDeque<(Change, ReloadWaiter)>> = RefCell::default();
}

/// Asks for a reload, on the supervisor's lane. Returns its result.
pub(crate) async fn reload() -> Outcome {
    let asker = ReloadWaiter::default();
    ASKERS.with_borrow_mut(|askers| askers.push(asker.clone()));
    tell(Event::ReloadWanted);
    asker.outcome().await
}

/// Asks for a change of servers, on the supervisor's lane. Returns the answer.
pub(crate) async fn change(change: Change) -> Outcome {
    let asker = ReloadWaiter::default();
    CHANGES.with_borrow_mut(|changes| changes.push_back((change, asker.clone())));
    tell(Event::ChangeRequested);
    asker.outcome().await
}

/// Queues an event for the supervisor, from any thread. Events after its end are ignored.
fn tell(event: Event) {
    let waker = {
        let mut inbox = INBOX.lock();
        inbox.events.push_back(event);
        inbox.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

async fn next_event() -> Event {
    poll_fn(|context| {
        let mut inbox = INBOX.lock();
        match inbox.events.pop_front() {
            Some(event) => Poll::Ready(event),
            None => {
                inbox.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

/// Whether the lanes are to end, and their wakers: a message to a lane needs memory, and without it the lane
/// would never end.
struct End {
    is_near: bool,
    wakers: Vec<Waker>,
}

static END: Mutex<End> = Mutex::new(&EVENTS, End { is_near: false, wakers: Vec::new() });

/// Ends the lanes that wait for [`the_end`].
fn end_lanes() {
    let wakers = {
        let mut end = END.lock();
        end.is_near = true;
        std::mem::take(&mut end.wakers)
    };
    wakers.into_iter().for_each(Waker::wake);
}

async fn the_end() {
    poll_fn(|context| {
        let mut end = END.lock();
        if end.is_near {
            return Poll::Ready(());
        }
        end.wakers.push(context.waker().clone());
        Poll::Pending
    })
    .await;
}

/// Passes the changes that agents ask for to the supervisor.
#[derive(Debug)]
pub(crate) struct StartOptions;

impl Changes for StartOptions {
    fn ask(&self, change: Change) {
        tell(Event::Wanted(change));
    }
}

/// How the process ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Normally.
    Done,
    /// By this signal, as if the process had not caught it.
    Signal(i32),
    /// With an error.
    Failed(String),
}

/// Inputs of the lanes.
pub(crate) struct Work {
    pub(crate) generation: Arc<Generation>,
    pub(crate) bound: Vec<BoundListener>,
    pub(crate) lanes: usize,
    pub(crate) driver: DriverChoice,
    /// A lane to which the kernel refuses this driver uses epoll.
    pub(crate) or_epoll: bool,
    /// Write only errors.
    pub(crate) quiet: bool,
    /// Thread that writes to standard error.
    pub(crate) says: JobThread,
    /// Other services on the first lane.
    pub(crate) services: Option<Services>,
    /// Changes to sockets that other processes see, until all lanes accept.
    pub(crate) begun: Option<PendingChanges>,
    /// How to reload, if that is possible.
    pub(crate) reload: Option<Reloads>,
    /// Socket of the master, to report that the soft stop begins.
    pub(crate) joined: Option<Joined>,
}

/// Reads the configuration again, to replace the serving one.
pub(crate) type Reread =
    dyn Fn((&Generation, &[BoundListener])) -> Result<NewGeneration, String> + Send + Sync;

/// Inputs of reloads.
pub(crate) struct Reloads {
    pub(crate) reread: Arc<Box<Reread>>,
    /// Thread beside the lanes that reads the files.
    pub(crate) files: Option<JobThread>,
    /// The generation that the run-time interface works on.
    pub(crate) current: Rc<RefCell<Arc<Generation>>>,
}

/// Starts services on a lane. Returns what ends accepting for them, in the soft stop.
pub(crate) type Services = Box<dyn FnOnce(&Io) -> Result<StopServices, String>>;

/// Ends accepting for the services. Clients that are served stay.
pub(crate) type StopServices = Box<dyn FnOnce()>;

fn config(generation: &Generation) -> Config {
    let process = &generation.process;
    let busy_poll = if process.busy_polling { Duration::MAX } else { Duration::ZERO };
    let config = Config::new().low_latency(process.low_latency).busy_poll(busy_poll).outlives_panics(true);
    match process.runqueue_depth {
        Some(depth) => config.runqueue_depth(depth),
        None => config,
    }
}

/// A lane's driver, for lanes that read published values: see [`offline`](manylane_lanes::offline).
struct Quiescent(Driver);

impl Poller for Quiescent {
    fn unparker(&self) -> Arc<dyn Unpark> {
        self.0.unparker()
    }

    fn poll(&mut self, here: Here, timeout: Option<Duration>) -> std::io::Result<()> {
        // A lane that has work does not wait.
        if timeout == Some(Duration::ZERO) {
            return self.0.poll(here, timeout);
        }
        manylane_lanes::offline(|| self.0.poll(here, timeout))
    }

    fn has_work(&self) -> bool {
        self.0.has_work()
    }
}

/// Runs until the process is told to end. Calls `started` when all lanes accept.
pub(crate) fn run(mut work: Work, started: impl FnOnce() + 'static) -> Ending {
    let mut lane = match Lane::new(config(&work.generation)) {
        Ok(lane) => lane,
        Err(error) => return Ending::Failed(error.to_string()),
    };
    let driver = match driver_of(lane.here(), (work.driver, work.or_epoll), work.quiet) {
        Ok(driver) => driver,
        Err(error) => return Ending::Failed(error.to_string()),
    };
    if let Err(error) = watch_signals(work.says.clone()) {
        return Ending::Failed(format!("cannot watch signals: {error}"));
    }
    let first = lane.id();
    Local::install(driver.io(), work.generation.clone(), move || tell(Event::Emptied(0, first)));
    let stop_services = match work.services.take().map(|services| services(&driver.io())).transpose() {
        Ok(stop) => stop,
        Err(error) => return Ending::Failed(error),
    };
    let mut threads = Vec::new();
    for number in 1..work.lanes {
        match start_lane(number, &work) {
            Ok(thread) => threads.push(thread),
            Err(error) => return Ending::Failed(format!("cannot start lane {number}: {error}")),
        }
    }
    keep_to_cpus(&work.generation, 0); // after the other lanes have started, which would have inherited it
    let here = lane.here();
    let mut driver = Quiescent(driver);
    let ending = lane.block_on(&mut driver, supervise(here, work, stop_services, started));
    Local::remove_all();
    drop(lane); // its sessions end with it
    for thread in threads {
        let _ = thread.join(); // the panic hook has reported a panic there
    }
    ending.unwrap_or_else(|error| Ending::Failed(format!("the first lane cannot go on: {error}")))
}

/// Creates a lane's driver. With `or_epoll`, a lane uses epoll if the kernel refuses its ring: a trial of one
/// ring does not show that there is memory for those of all lanes. One message tells of all such lanes.
fn driver_of(
    here: Here,
    (choice, or_epoll): (DriverChoice, bool),
    quiet: bool,
) -> Result<Driver, DriverError> {
    static WARNED: Once = Once::new();
    match Driver::new(here, choice) {
        Err(DriverError::Refused { kind: Kind::IoUring, errno }) if or_epoll => {
            let unavailable = IoUringUnavailable::of_a_lane(errno);
            if !quiet {
                WARNED.call_once(|| {
                    say::warning(format_args!("{unavailable}; lanes without a ring use epoll"))
                });
            }
            Driver::new(here, DriverChoice::Only(Kind::Epoll))
        }
        made => made,
    }
}

/// Starts one more lane.
fn start_lane(number: usize, work: &Work) -> std::io::Result<JoinHandle<()>> {
    let (generation, choice, quiet) = (work.generation.clone(), (work.driver, work.or_epoll), work.quiet);
    std::thread::Builder::new().name(format!("lane {number}")).spawn(move || {
        let failed = |error: String| tell(Event::Failed(format!("lane {number}: {error}")));
        keep_to_cpus(&generation, number); // placed before it allocates memory
        let mut lane = match Lane::new(config(&generation)) {
            Ok(lane) => lane,
            Err(error) => return failed(error.to_string()),
        };
        let driver = match driver_of(lane.here(), choice, quiet) {
            Ok(driver) => driver,
            Err(error) => return failed(error.to_string()),
        };
        let id = lane.id();
        Local::install(driver.io(), generation, move || tell(Event::Emptied(0, id)));
        tell(Event::Ready(lane.id()));
        let mut driver = Quiescent(driver);
        if let Err(error) = lane.block_on(&mut driver, the_end()) {
            failed(error.to_string());
        }
        Local::remove_all();
    })
}

/// Binds the calling thread, which is that lane's, to the processors of `cpu-map`. If that fails, it writes a
/// warning and the lane runs anywhere.
fn keep_to_cpus(generation: &Generation, lane: usize) {
    if let Some(cpus) = generation.process.cpu_map.of(lane)
        && let Err(error) = manylane_sched::keep_to(cpus)
    {
        say::warning(format_args!(
            "thread {} cannot run on the processors that 'cpu-map' gives it: {error}.",
            lane + 1
        ));
    }
}

/// Starts a thread that waits for signals and queues them as events. On SIGQUIT `says` writes the use of
/// memory: neither lanes nor later signals wait for the reader of standard error, which may also have left.
fn watch_signals(says: JobThread) -> std::io::Result<()> {
    // SIGUSR2 is for masters, and often sent to all processes of a service: it must not end this one.
    let mut signals = Signals::new([SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGTTOU, SIGTTIN, SIGQUIT])?;
    std::thread::Builder::new().name("signals".into()).stack_size(SMALL_STACK).spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGQUIT => {
                    let _ = says.run(|| say::text(&manylane_control::pools())); // `says` keeps it running
                }
                signal => tell(Event::Signal(signal)),
            }
        }
    })?;
    Ok(())
}

/// Runs `what` on a lane's state of a generation. Returns false if there is no memory for the message.
fn order(
    lane: LaneId,
    class: Class,
    generation: &Arc<Generation>,
    what: impl FnOnce(&Rc<Local>) + Send + 'static,
) -> bool {
    let generation = generation.clone();
    let ordered = Remote::new(lane).spawn_with(&ORDER, class, move |_| async move {
        if let Some(local) = Local::of(&generation) {
            what(&local);
        }
    });
    ordered.is_ok()
}

/// Ends a lane's state of a generation by `how`. If the lane has none, because it had no memory when the
/// generation began, it reports that nothing is left. Returns false if there is no memory for the message.
fn let_go(lane: LaneId, (number, generation): (u64, &Arc<Generation>), how: fn(&Local)) -> bool {
    let generation = generation.clone();
    let ordered = Remote::new(lane).spawn_with(&ORDER, Class::Urgent, move |_| async move {
        match Local::of(&generation) {
            Some(local) => how(&local),
            None => tell(Event::Emptied(number, lane)),
        }
        tell(Event::Retired(number));
    });
    ordered.is_ok()
}

static LIMIT: TaskKind = TaskKind::new("hard stop");

/// The serving generation. Generations are numbered from 0.
struct Serving {
    number: u64,
    generation: Arc<Generation>,
    /// The lanes' acceptors hold it, too: the last holder closes the sockets.
    bound: Arc<Vec<BoundListener>>,
}

/// A replaced generation, and the lanes on which nothing accepts for it any more.
struct Retired {
    number: u64,
    generation: Arc<Generation>,
    emptied: Vec<LaneId>,
    /// Its `hard-stop-after` is running, or it has none.
    limited: bool,
}

/// Kind of a replacement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// A new configuration from the files.
    Files,
    /// Other servers in a backend.
    Servers,
}

/// State of a reload.
enum Reloading {
    No,
    /// The files are being read, or the generation with a change is being made.
    Reads,
    /// The lanes begin to serve the new generation. Holds the messages, the number of accepting lanes, and
    /// the former generation.
    Begins {
        before: Serving,
        what: What,
        /// Changes that are made once all lanes accept and not before, so there is nothing to undo.
        effects: Box<dyn FnOnce() -> Option<String>>,
        said: String,
        accepting: usize,
    },
    /// All lanes accept, and retire the former generation. Holds the number of lanes that have done so.
    Retires {
        number: u64,
        what: What,
        said: String,
        done: usize,
    },
}

struct Supervisor {
    here: Here,
    lanes: Arc<[LaneId]>,
    serving: Serving,
    retired: Vec<Retired>,
    reloading: Reloading,
    reloads: Option<Reloads>,
    /// Tasks that wait for the running reload, and for the next.
    askers: Vec<ReloadWaiter>,
    next_askers: Vec<ReloadWaiter>,
    /// Another reload is requested.
    again: bool,
    /// The process ends, so there is no next reload.
    stops: bool,
    /// Number of the newest generation.
    numbers: u64,
    /// Lanes that did not get the message to begin with the serving generation.
    untold: Vec<LaneId>,
    /// Thread that writes to standard error.
    says: JobThread,
    quiet: bool,
}

impl Supervisor {
    /// Makes all lanes accept for the serving generation. Each lane reports the result.
    fn begin(&mut self, before: Option<&Arc<Generation>>) {
        self.untold.clear();
        for &lane in &*self.lanes {
            let Serving { number, generation, bound } = &self.serving;
            let (number, fresh, bound, all) =
                (*number, generation.clone(), bound.clone(), self.lanes.clone());
            let begin = move |local: &Rc<Local>| {
                let own = if Arc::ptr_eq(local.generation(), &fresh) {
                    local.clone()
                } else {
                    Local::install(local.io(), fresh, move || tell(Event::Emptied(number, lane)))
                };
                let event = match accept(&own, &bound, &all) {
                    Ok(()) => Event::Accepting(number),
                    Err(error) => Event::Refused(number, error),
                };
                tell(event);
            };
            let serves = before.unwrap_or(generation);
            // The first lane begins at once, so that a command there that opens or closes a frontend reaches
            // all owners of the gate.
            let here = (lane == self.here.lane()).then(|| Local::of(serves)).flatten();
            let ordered = match here {
                Some(local) => {
                    begin(&local);
                    true
                }
                None => order(lane, Class::Urgent, serves, begin),
            };
            if !ordered {
                self.untold.push(lane);
                let error = "a lane has no memory for the order to accept connections".into();
                tell(Event::Refused(number, error));
            }
        }
    }

    /// Notes a request for a reload.
    fn note(&mut self) {
        self.again = true;
        self.next_askers.extend(ASKERS.take());
    }

    /// Notes a change that an agent asks for; the agent may ask again until it is made.
    fn want(&self, change: Change) {
        CHANGES.with_borrow_mut(|changes| {
            if changes.iter().all(|(other, _)| *other != change) {
                changes.push_back((change, ReloadWaiter::default()));
            }
        });
    }

    /// Begins the next reload, if one is requested and none is running.
    fn read(&mut self) {
        if self.stops || !matches!(self.reloading, Reloading::No) {
            return;
        }
        if !self.again {
            return self.make();
        }
        self.again = false;
        self.askers = std::mem::take(&mut self.next_askers);
        let Some(Reloads { reread, files, .. }) = &self.reloads else { return };
        if let Some(folder) = self.serving.generation.process.chroot.as_ref().filter(|_| files.is_none()) {
            let text = format!(
                "The files cannot be read from inside of 'chroot {}', and the system has refused \
                 a thread outside of it; start another process with '-sf {}'.",
                folder.display(),
                std::process::id()
            );
            return self.over(What::Files, Err(text));
        }
        let reread = reread.clone();
        let (generation, bound) = (self.serving.generation.clone(), self.serving.bound.clone());
        let read = move || {
            let outcome = defect::caught(|| reread((&generation, &bound)));
            drop((generation, bound)); // dropped before the supervisor continues
            tell(Event::Read(outcome.map(Box::new)));
        };
        let begun = match files {
            Some(files) => files.run(read),
            None => std::thread::Builder::new().name("reload".into()).spawn(read).map(drop),
        };
        match begun {
            Ok(()) => self.reloading = Reloading::Reads,
            Err(error) => {
                self.over(What::Files, Err(format!("cannot start a thread to read the files: {error}")));
            }
        }
    }

    /// Makes the next requested change of servers, if there is one.
    fn make(&mut self) {
        // A loop and not recursion: there may be as many refused changes as agents.
        while let Some((change, asker)) = CHANGES.with_borrow_mut(VecDeque::pop_front) {
            if self.retired.len() >= MOST_BEHIND {
                asker.answer(Err(format!(
                    "Streams of {MOST_BEHIND} changes before are not over: wait, or end them with 'shutdown \
                        session'."
                )));
                continue;
            }
            let generation = self.serving.generation.clone();
            // Beside the lanes, since a backend may have very many servers.
            let thread = std::thread::Builder::new().name("servers".into()).spawn(move || {
                let made = defect::caught(|| generation.with(&change));
                drop(generation); // dropped before the supervisor continues
                tell(Event::Made(made.map(Box::new)));
            });
            match thread {
                Ok(_) => {
                    self.askers = vec![asker];
                    self.reloading = Reloading::Reads;
                    return;
                }
                Err(error) => asker.answer(Err(format!("Cannot start a thread for it: {error}."))),
            }
        }
    }

    /// Handles the generation with a change.
    fn was_made(&mut self, made: Result<Box<Changed>, String>) {
        let changed = match made {
            Ok(changed) => *changed,
            Err(error) => return self.over(What::Servers, Err(error)),
        };
        let said = changed.answer.to_owned();
        let (generation, effect) = changed.begin();
        self.numbers += 1;
        let generation = Arc::new(generation);
        let bound = self.serving.bound.clone();
        let fresh = Serving { number: self.numbers, generation: generation.clone(), bound };
        let before = std::mem::replace(&mut self.serving, fresh);
        self.begin(Some(&before.generation));
        let effects = Box::new(move || {
            effect.take(&generation);
            None
        });
        self.reloading = Reloading::Begins { before, what: What::Servers, effects, said, accepting: 0 };
    }

    /// Handles the configuration that was read.
    fn was_read(&mut self, outcome: Result<Box<NewGeneration>, String>) {
        let NewGeneration { mut generation, listeners, limit, said } = match outcome {
            Ok(fresh) => *fresh,
            Err(error) => return self.over(What::Files, Err(error)),
        };
        generation.inherit(&self.serving.generation, self.here.now());
        self.numbers += 1;
        let generation = Arc::new(generation);
        let ListenersBeside { bound, backlogs, begun, .. } = listeners;
        manylane_lanes::listen_again(&generation, &bound);
        let fresh = Serving { number: self.numbers, generation: generation.clone(), bound: Arc::new(bound) };
        let before = std::mem::replace(&mut self.serving, fresh);
        self.begin(Some(&before.generation));
        let (predecessor, here) = (before.generation.clone(), self.here);
        let effects = Box::new(move || {
            generation.take_effect(&predecessor, here.now());
            backlogs.take_effect(&generation);
            limit.keep();
            begun.complete().map(|error| error.to_string())
        });
        self.reloading = Reloading::Begins { before, what: What::Files, effects, said, accepting: 0 };
    }

    /// Handles a lane that accepts for the newest generation.
    fn accepts(&mut self, number: u64) {
        let Reloading::Begins { accepting, .. } = &mut self.reloading else { return };
        *accepting += usize::from(number == self.serving.number);
        if *accepting < self.lanes.len() {
            return;
        }
        let Reloading::Begins { before, what, effects, mut said, .. } =
            std::mem::replace(&mut self.reloading, Reloading::No)
        else {
            return;
        };
        said.extend(effects().map(|error| error + "\n"));
        if what == What::Files {
            // Until now the run-time interface worked on the former generation.
            if let Some(local) = Local::of(&self.serving.generation) {
                local.inherit_variables(&before.generation);
            }
        }
        if let Some(Reloads { current, .. }) = &self.reloads {
            current.replace(self.serving.generation.clone());
        }
        self.reloading = Reloading::Retires { number: before.number, what, said, done: 0 };
        self.retire(before.number, before.generation, Local::retire);
        // An added server must not end streams of other servers. So the limit starts only when files were
        // read, and then for all generations that were replaced since.
        if what == What::Files {
            let mut limits = Vec::new();
            for Retired { number, generation, limited, .. } in &mut self.retired {
                if !std::mem::replace(limited, true) {
                    limits.extend(generation.process.hard_stop_after.map(|most| (*number, most)));
                }
            }
            limits.into_iter().for_each(|(number, most)| self.limit(number, most));
        }
    }

    /// Starts the time after which the rest of a generation is ended.
    fn limit(&self, number: u64, after: Duration) {
        let here = self.here;
        let waiting = async move {
            here.sleep(after).await;
            tell(Event::Limit(number));
        };
        if here.spawn(&LIMIT, Class::Normal, waiting).is_err() {
            tell(Event::Limit(number)); // there is no memory to wait
        }
    }

    /// Handles a lane that has retired a generation.
    fn retired(&mut self, which: u64) {
        let Reloading::Retires { number, what, said, done } = &mut self.reloading else { return };
        *done += usize::from(*number == which);
        if *done == self.lanes.len() {
            let (what, said) = (*what, std::mem::take(said));
            self.over(what, Ok(said));
        }
    }

    /// Handles a lane that cannot accept: the former generation continues.
    fn refused(&mut self, number: u64, error: String) {
        if number != self.serving.number {
            return; // another lane has failed before
        }
        let begins = std::mem::replace(&mut self.reloading, Reloading::No);
        if let Reloading::Begins { before, what, effects, .. } = begins {
            drop(effects); // and with them the limit of the refused one, before another reload reads its own
            let failed = std::mem::replace(&mut self.serving, before);
            self.serving.generation.settle_followers(self.here.now());
            self.retire(failed.number, failed.generation, Local::stop);
            self.over(what, Err(error));
        }
    }

    /// Ends a generation by `how` on each lane.
    fn retire(&mut self, number: u64, generation: Arc<Generation>, how: fn(&Local)) {
        for &lane in &*self.lanes {
            if !let_go(lane, (number, &generation), how) {
                tell(Event::Retired(number)); // the lane then serves both
                if self.untold.contains(&lane) {
                    tell(Event::Emptied(number, lane)); // the generation never began there
                }
            }
        }
        self.retired.push(Retired { number, generation, emptied: Vec::new(), limited: false });
    }

    /// Handles a lane on which nothing is left of a retired generation at this moment. When that was so on
    /// each lane, the lanes remove the generation: no lane can give them a connection for it any more.
    fn emptied(&mut self, number: u64, lane: LaneId) {
        let Some(index) = self.retired.iter().position(|retired| retired.number == number) else { return };
        let retired = &mut self.retired[index];
        if !retired.emptied.contains(&lane) {
            retired.emptied.push(lane);
        }
        if retired.emptied.len() == self.lanes.len() {
            let Retired { generation, .. } = self.retired.swap_remove(index);
            for &lane in &*self.lanes {
                // Behind the connections that were sent to that lane before.
                order(lane, Class::Bulk, &generation, |local| local.remove());
            }
        }
    }

    /// Ends a reload, and answers the waiting tasks.
    fn over(&mut self, what: What, outcome: Outcome) {
        self.reloading = Reloading::No;
        if what == What::Servers {
            self.askers.drain(..).for_each(|asker| asker.answer(outcome.clone()));
            return self.read();
        }
        let number = self.serving.number;
        let (end, severity) = match outcome {
            Ok(_) => (format!("Reloaded: generation {number} serves."), "NOTICE"),
            Err(_) => (format!("Not reloaded: generation {number} goes on."), "ALERT"),
        };
        if !self.quiet || outcome.is_err() {
            let (Ok(said) | Err(said)) = &outcome;
            let (said, end) = (said.trim_end().to_owned(), end.clone());
            let text = say::lines(&said, severity, &end);
            let _ = self.says.run(move || say::text(&text)); // `says` keeps it running
        }
        let answer = match outcome {
            Ok(said) => Ok(said + &end),
            Err(said) => Err(format!("{}\n{end}", said.trim_end())),
        };
        for asker in self.askers.drain(..) {
            asker.answer(answer.clone());
        }
        self.read();
    }
}

/// Ends the rest of a replaced generation whose time is over: its streams at first, and the remaining
/// sessions a moment later, wherever they are.
fn over_time(retired: &[Retired], lanes: &[LaneId], number: u64) {
    let Some(Retired { generation, .. }) = retired.iter().find(|retired| retired.number == number) else {
        return;
    };
    for &lane in lanes {
        let generation = generation.clone();
        let ends = move |here| async move {
            if let Some(local) = Local::of(&generation) {
                local.end_streams();
                last_words(here).await;
                local.end_sessions();
            }
        };
        // Without memory for this, the generation ends with its last session.
        let _ = Remote::new(lane).spawn_with(&LIMIT, Class::Urgent, ends);
    }
}

async fn supervise(
    here: Here,
    work: Work,
    stop_services: Option<StopServices>,
    started: impl FnOnce(),
) -> Ending {
    let Work {
        generation,
        bound,
        lanes: count,
        quiet,
        says,
        driver: _,
        or_epoll: _,
        services: _,
        mut begun,
        reload: reloads,
        joined,
    } = work;
    let mut lanes = vec![here.lane()];
    let ending = 'running: {
        // Waits for each lane, even if the process is to end by then: a lane that begins later would not be
        // told to end.
        let (mut early, mut failed, mut reloads_next) = (None, 0, false);
        while lanes.len() + failed < count {
            match next_event().await {
                Event::Ready(lane) => lanes.push(lane),
                Event::Failed(error) => {
                    failed += 1;
                    early = Some(Ending::Failed(error));
                }
                Event::Signal(signal @ (SIGTERM | SIGINT)) => early = Some(Ending::Signal(signal)),
                // Nothing serves, so there is nothing to finish.
                Event::Signal(SIGUSR1) => _ = early.get_or_insert(Ending::Done),
                // The file may have changed since it was read.
                Event::Signal(SIGHUP) => reloads_next = true,
                _ => {}
            }
        }
        if let Some(ending) = early {
            break 'running ending;
        }
        if let Some(Err(error)) = begun.as_mut().map(PendingChanges::rename_files) {
            break 'running Ending::Failed(error.to_string());
        }
        let mut supervisor = Supervisor {
            here,
            lanes: lanes.clone().into(),
            serving: Serving { number: 0, generation, bound: Arc::new(bound) },
            retired: Vec::new(),
            reloading: Reloading::No,
            reloads,
            askers: Vec::new(),
            next_askers: Vec::new(),
            again: false,
            stops: false,
            numbers: 0,
            untold: Vec::new(),
            says,
            quiet,
        };
        supervisor.begin(None);
        let (mut accepting, mut started) = (0, Some(started));
        if reloads_next || ASKERS.with_borrow(|askers| !askers.is_empty()) {
            supervisor.note();
        }
        // The supervisor stops only while no reload is running: the reading thread holds the sockets, and the
        // lanes have to agree on the serving generation.
        while !supervisor.stops || !matches!(supervisor.reloading, Reloading::No) {
            match next_event().await {
                Event::Failed(error) => break 'running Ending::Failed(error),
                Event::Signal(signal @ (SIGTERM | SIGINT)) => break 'running Ending::Signal(signal),
                Event::Signal(SIGUSR1) => supervisor.stops = true,
                Event::Accepting(0) => {
                    accepting += 1;
                    if accepting == count
                        && let Some(started) = started.take()
                    {
                        if let Some(error) = begun.take().and_then(PendingChanges::complete) {
                            say::alert(error);
                        }
                        started();
                        supervisor.read();
                    }
                }
                Event::Refused(0, error) => break 'running Ending::Failed(error),
                Event::Signal(SIGHUP) | Event::ReloadWanted => {
                    supervisor.note();
                    // A change is possible only once all lanes serve.
                    if started.is_none() {
                        supervisor.read();
                    }
                }
                Event::ChangeRequested if started.is_none() => supervisor.read(),
                Event::ChangeRequested => {}
                Event::Wanted(change) => {
                    supervisor.want(change);
                    if started.is_none() {
                        supervisor.read();
                    }
                }
                Event::Made(_) if supervisor.stops => {
                    supervisor.over(What::Servers, Err("The process ends.".into()));
                }
                Event::Made(made) => supervisor.was_made(made),
                Event::Read(_) if supervisor.stops => {
                    supervisor.over(What::Files, Err("The process ends.".into()));
                }
                Event::Read(outcome) => supervisor.was_read(outcome),
                Event::Accepting(number) => supervisor.accepts(number),
                Event::Refused(number, error) => supervisor.refused(number, error),
                Event::Retired(number) => supervisor.retired(number),
                Event::Emptied(number, lane) => supervisor.emptied(number, lane),
                Event::Limit(number) => over_time(&supervisor.retired, &lanes, number),
                // Ports are shared, so no process has to release one.
                Event::Signal(_) | Event::Ready(_) | Event::Silent => {}
            }
        }
        supervisor.note();
        supervisor.next_askers.drain(..).for_each(refuse);
        refuse_changes();
        let Serving { number, generation, bound } = supervisor.serving;
        drop(bound);
        if let Some(joined) = joined {
            joined.tell_stop(generation.process.longest_stop());
        }
        let lanes = (&lanes[..], stop_services);
        stop(here, (number, &generation), lanes, &supervisor.retired, &supervisor.says).await
    };
    INBOX.lock().waker = None; // nothing waits for events from here on
    end_lanes();
    ending
}

fn refuse_changes() {
    CHANGES.take().into_iter().for_each(|(_, asker)| asker.answer(Err("The process ends.".into())));
}

fn refuse(asker: ReloadWaiter) {
    asker.answer(Err("Not reloaded: the process ends.".into()));
}

/// Time after which a message to a lane is sent again, when there was no memory for it.
const AGAIN: Duration = Duration::from_millis(100);

/// The soft stop: takes no new connections; existing ones may finish, within `hard-stop-after` of their
/// generation: the serving one, or one of `retired`.
async fn stop(
    here: Here,
    (number, generation): (u64, &Arc<Generation>),
    (lanes, stop_services): (&[LaneId], Option<StopServices>),
    retired: &[Retired],
    says: &JobThread,
) -> Ending {
    generation.process_stats.stop();
    let grace = generation.process.grace;
    if !grace.is_zero()
        && let Ok(ending) = here.timeout(grace, ends(lanes, retired)).await
    {
        return ending;
    }
    if let Some(stop) = stop_services {
        stop();
    }
    let stops = |lane| {
        order(lane, Class::Urgent, generation, |local| {
            // Busy polling would take processors from the successor.
            if let Some(here) = Here::current() {
                here.set_busy_poll(Duration::ZERO);
            }
            local.stop();
        })
    };
    let untold = lanes.iter().copied().filter(|lane| !stops(*lane)).collect();
    announce(generation, |front, back| {
        // `shutdown frontend` has logged it already.
        let logged = front.is_some_and(|frontend| frontend.gate.state() == FrontendGateState::Shut);
        (!logged).then(|| manylane_lanes::stopped(front, back))
    });
    let mut empty = pin!(emptied(here, (lanes, number), retired, (untold, stops)));
    let most = generation.process.hard_stop_after.unwrap_or(Duration::MAX);
    match here.timeout(most, empty.as_mut()).await {
        Ok(Ending::Done) => return last_lines(here, lanes, says).await,
        Ok(ending) => return ending,
        Err(_) => {}
    }
    let _ = says.run(|| say::warning("soft-stop running for too long, performing a hard-stop."));
    announce(generation, |front, _| {
        let counts = &front?.counts;
        let ended = counts.read_cheap_one(|counts| &counts.connections_ended);
        let left = counts.read_cheap_one(|counts| &counts.connections).saturating_sub(ended);
        (left > 0).then(|| format!("hard-stopped ({left} remaining conns will be closed)."))
    });
    // Clients get last responses, and log lines are written: each lane has time for that.
    for &lane in lanes {
        let ends = move |here| async move {
            Local::end_all_streams();
            last_words(here).await;
            tell(Event::Silent);
        };
        if Remote::new(lane).spawn_with(&LIMIT, Class::Urgent, ends).is_err() {
            tell(Event::Silent); // there is no memory for the message
        }
    }
    here.timeout(SLOWEST, empty).await.unwrap_or(Ending::Done)
}

/// Waits for an event that ends the process at once.
async fn ends(lanes: &[LaneId], retired: &[Retired]) -> Ending {
    loop {
        if let Some(ending) = while_it_stops(next_event().await, lanes, retired) {
            return ending;
        }
    }
}

/// Handles the events that mean the same in each phase of the soft stop. Returns an ending if the event ends
/// the process at once.
fn while_it_stops(event: Event, lanes: &[LaneId], retired: &[Retired]) -> Option<Ending> {
    match event {
        Event::Signal(signal @ (SIGTERM | SIGINT)) => return Some(Ending::Signal(signal)),
        Event::Failed(error) => return Some(Ending::Failed(error)),
        Event::ReloadWanted => ASKERS.take().into_iter().for_each(refuse),
        Event::ChangeRequested => refuse_changes(),
        Event::Limit(number) => over_time(retired, lanes, number),
        _ => {}
    }
    None
}

/// Waits until the lanes have written their log lines and the messages are on standard error, at most for
/// [`SLOWEST`]: a reader may have stopped.
async fn last_lines(here: Here, lanes: &[LaneId], says: &JobThread) -> Ending {
    for &lane in lanes {
        let ends = |here| async move {
            lines_sent(here).await;
            tell(Event::Silent);
        };
        if Remote::new(lane).spawn_with(&LIMIT, Class::Urgent, ends).is_err() {
            tell(Event::Silent); // there is no memory for the message
        }
    }
    if says.run(|| tell(Event::Silent)).is_err() {
        tell(Event::Silent);
    }
    let all = async {
        let mut silent = 0;
        while silent <= lanes.len() {
            match next_event().await {
                Event::Silent => silent += 1,
                event => {
                    if let Some(ending) = while_it_stops(event, lanes, &[]) {
                        return ending;
                    }
                }
            }
        }
        Ending::Done
    };
    here.timeout(SLOWEST, all).await.unwrap_or(Ending::Done)
}

/// Writes a line about each proxy to standard error and to its log targets. `what` gets the frontend and the
/// backend of the same name.
fn announce(
    generation: &Arc<Generation>,
    what: impl Fn(Option<&Frontend>, Option<&Backend>) -> Option<String>,
) {
    let listed = || generation.frontends.iter().filter(|front| front.forward.is_none());
    let fronts = listed().map(|front| (Some(front), generation.backend_named(&front.name)));
    let names: HashSet<&str> = listed().map(|front| &*front.name).collect();
    let backs = generation
        .backends
        .iter()
        .filter(|back| !names.contains(&*back.name))
        .map(|back| (None, Some(&**back)));
    let own = Local::of(generation);
    for (front, back) in fronts.chain(backs) {
        let name = front.map(|front| &front.name).or(back.map(|back| &back.name));
        let (Some(name), Some(text)) = (name, what(front, back)) else { continue };
        let text = format!("Proxy {name} {text}");
        if let Some(local) = &own {
            local.warn(front, back, &text);
        }
    }
}

/// Waits until all sessions have ended or the process is told to end, and returns how it ends. `number` is
/// that of the stopping generation; the `retired` ones were replaced before. The lanes `untold` could not be
/// stopped for lack of memory: `stops` tries again.
async fn emptied(
    here: Here,
    (lanes, number): (&[LaneId], u64),
    retired: &[Retired],
    (mut untold, stops): (Vec<LaneId>, impl Fn(LaneId) -> bool),
) -> Ending {
    let (mut notified, mut silent) = (Vec::new(), 0);
    loop {
        let wait = if untold.is_empty() { Duration::MAX } else { AGAIN };
        let Ok(event) = here.timeout(wait, next_event()).await else {
            manylane_pool::reserve::restore();
            untold.retain(|lane| !stops(*lane));
            continue;
        };
        match event {
            Event::Silent => {
                silent += 1;
                if silent == lanes.len() {
                    return Ending::Done;
                }
            }
            Event::Emptied(of, lane) => {
                // Before that, the lane may hold an accepted connection that is not counted yet, because it
                // still accepts.
                if of == number && !notified.contains(&lane) {
                    notified.push(lane);
                }
                // Connections on their way between lanes are counted, so this is the end.
                if notified.len() == lanes.len() && lanes.iter().all(|lane| load(*lane) == 0) {
                    return Ending::Done;
                }
            }
            event => {
                if let Some(ending) = while_it_stops(event, lanes, retired) {
                    return ending;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_config::cond::Build;
    use manylane_config::lex::Environment;
    use manylane_config::source::Sources;
    use manylane_sched::Time;

    /// Otherwise a generation that failed to begin would be kept until the end of the process, and count
    /// among those that are behind.
    #[test]
    fn a_lane_that_has_nothing_of_a_generation_lets_go_of_it() {
        let mut loaded = manylane_config::load(&Sources::new(), &Build::bare(), Environment::new(), false);
        let wishes = manylane_plan::generation::StartOptions::default();
        let generation = Arc::new(Generation::build(&loaded.config, wishes, &mut loaded.found));
        let mut lane = Lane::new(Config::new()).expect("a new thread");
        assert!(let_go(lane.id(), (7, &generation), Local::stop));
        while INBOX.lock().events.len() < 2 {
            lane.round(Time::ZERO);
        }
        let events = std::mem::take(&mut INBOX.lock().events);
        assert!(matches!(events[0], Event::Emptied(7, own) if own == lane.id()));
        assert!(matches!(events[1], Event::Retired(7)));
    }
}
