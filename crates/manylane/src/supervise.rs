//! The lanes of the process, and what happens to them: started, told to stop, waited for.
//!
//! The first lane runs on the main thread, and the supervisor is a task of it. Whoever has something to tell
//! it, another lane or the thread that waits for signals, puts an event into its list and wakes it. That
//! takes no memory of a pool: under `-m` an event that was lost would hold up a reload, or the end, for ever.

use crate::defect;
use crate::jobs::{JobThread, SMALL_STACK};
use crate::last_words::{SLOWEST, last_words, lines_sent};
use crate::reload::{Asker, Fresh, Outcome};
use crate::say;
use manylane_io::{Choice, Driver, Io};
use manylane_net::{Begun, load};
use manylane_proxy::generation::{
    Backend, Change, Changed, Changes, Frontend, FrontendGateState, MOST_BEHIND,
};
use manylane_proxy::{Beside, BoundListener, Generation, Local, accept};
use manylane_sched::{Class, Config, Here, Lane, Remote, TaskKind};
use manylane_sync::{Arc, LaneId, LockClass, Mutex};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

static ORDER: TaskKind = TaskKind::new("order");

/// What the supervisor is told.
enum Event {
    /// A lane is there.
    Ready(LaneId),
    /// A lane accepts for the generation of that number.
    Accepting(u64),
    /// It cannot.
    Refused(u64, String),
    /// Something cannot go on.
    Failed(String),
    /// A lane has let go of the generation of that number.
    Retired(u64),
    /// A lane has no session left of the generation of that number, which takes no more.
    Emptied(u64, LaneId),
    /// What is left of the generation of that number has had its time (`hard-stop-after`).
    Limit(u64),
    /// The streams of a lane have said what they had to say at the end.
    Silent,
    /// Somebody wants the configuration to be read again.
    ReloadWanted,
    /// It was.
    Read(Result<Box<Fresh>, String>),
    /// Somebody wants a server to come or go.
    AskedFor,
    /// A server is to be changed, of which nobody waits to hear.
    Wanted(Change),
    /// What is to serve then was made.
    Made(Result<Box<Changed>, String>),
    /// The system has sent a signal.
    Signal(i32),
}

struct Inbox {
    events: VecDeque<Event>,
    /// Of the supervisor's task, while it waits.
    waker: Option<Waker>,
}

static EVENTS: LockClass = LockClass::new("events for the supervisor", LockClass::LEAF);
static INBOX: Mutex<Inbox> = Mutex::new(&EVENTS, Inbox { events: VecDeque::new(), waker: None });

thread_local! {
    /// Who has asked for a reload, on the supervisor's lane.
    static ASKERS: RefCell<Vec<Asker>> = RefCell::default();
    /// Servers that are to come or go, and who asked for it, there too.
    static CHANGES: RefCell<VecDeque<(Change, Asker)>> = RefCell::default();
}

/// Asks for the configuration to be read again, on the supervisor's lane. What becomes of it.
pub(crate) async fn reload() -> Outcome {
    let asker = Asker::default();
    ASKERS.with_borrow_mut(|askers| askers.push(asker.clone()));
    tell(Event::ReloadWanted);
    asker.outcome().await
}

/// Has a server come or go, on the supervisor's lane. What is said of it.
pub(crate) async fn change(change: Change) -> Outcome {
    let asker = Asker::default();
    CHANGES.with_borrow_mut(|changes| changes.push_back((change, asker.clone())));
    tell(Event::AskedFor);
    asker.outcome().await
}

/// Tells the supervisor, from any thread. When it has ended already, nobody needs to know.
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

/// Whether the lanes are to end, and their wakers: one that waits for memory to be told would not end.
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

/// Tells the supervisor what agents want to be changed.
#[derive(Debug)]
pub(crate) struct Wishes;

impl Changes for Wishes {
    fn ask(&self, change: Change) {
        tell(Event::Wanted(change));
    }
}

/// How the process ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As it should.
    Done,
    /// By this signal, as if nobody had caught it.
    Signal(i32),
    /// It could not go on.
    Failed(String),
}

/// What the lanes need.
pub(crate) struct Work {
    pub(crate) generation: Arc<Generation>,
    pub(crate) bound: Vec<BoundListener>,
    pub(crate) lanes: usize,
    pub(crate) driver: Choice,
    /// No messages but errors.
    pub(crate) quiet: bool,
    /// Writes to standard error.
    pub(crate) says: JobThread,
    /// What else the first lane serves.
    pub(crate) services: Option<Services>,
    /// What others see of the sockets, until all lanes accept.
    pub(crate) begun: Option<Begun>,
    /// How the configuration is read again, if it can be.
    pub(crate) reload: Option<Reloads>,
}

/// Reads the configuration again, to replace what serves.
pub(crate) type Reread = dyn Fn((&Generation, &[BoundListener])) -> Result<Fresh, String> + Send + Sync;

/// What reloading needs.
pub(crate) struct Reloads {
    pub(crate) reread: Arc<Box<Reread>>,
    /// Where that is done, beside the lanes.
    pub(crate) files: Option<JobThread>,
    /// What the run-time interface works on.
    pub(crate) current: Rc<RefCell<Arc<Generation>>>,
}

/// Starts services on a lane.
pub(crate) type Services = Box<dyn FnOnce(&Io) -> Result<(), String>>;

fn config(generation: &Generation) -> Config {
    let process = &generation.process;
    let busy_poll = if process.busy_polling { Duration::MAX } else { Duration::ZERO };
    let config = Config::new().low_latency(process.low_latency).busy_poll(busy_poll).outlives_panics(true);
    match process.runqueue_depth {
        Some(depth) => config.runqueue_depth(depth),
        None => config,
    }
}

/// Runs until the process is told to end. `started` is called when all lanes accept.
pub(crate) fn run(mut work: Work, started: impl FnOnce() + 'static) -> Ending {
    let mut lane = match Lane::new(config(&work.generation)) {
        Ok(lane) => lane,
        Err(error) => return Ending::Failed(error.to_string()),
    };
    let mut driver = match Driver::new(lane.here(), work.driver) {
        Ok(driver) => driver,
        Err(error) => return Ending::Failed(error.to_string()),
    };
    if let Err(error) = watch_signals() {
        return Ending::Failed(format!("cannot watch signals: {error}"));
    }
    let first = lane.id();
    Local::install(driver.io(), work.generation.clone(), move || tell(Event::Emptied(0, first)));
    if let Some(services) = work.services.take()
        && let Err(error) = services(&driver.io())
    {
        return Ending::Failed(error);
    }
    let mut threads = Vec::new();
    for number in 1..work.lanes {
        match start_lane(number, &work) {
            Ok(thread) => threads.push(thread),
            Err(error) => return Ending::Failed(format!("cannot start lane {number}: {error}")),
        }
    }
    place(&work.generation, 0); // now that there are the others, who would have inherited it
    let here = lane.here();
    let ending = lane.block_on(&mut driver, supervise(here, work, started));
    Local::remove_all();
    drop(lane); // its sessions end with it
    for thread in threads {
        let _ = thread.join(); // a panic there was told on its own
    }
    ending.unwrap_or_else(|error| Ending::Failed(format!("the first lane cannot go on: {error}")))
}

/// One more lane.
fn start_lane(number: usize, work: &Work) -> std::io::Result<JoinHandle<()>> {
    let (generation, choice) = (work.generation.clone(), work.driver);
    std::thread::Builder::new().name(format!("lane {number}")).spawn(move || {
        let failed = |error: String| tell(Event::Failed(format!("lane {number}: {error}")));
        place(&generation, number); // before it has memory
        let mut lane = match Lane::new(config(&generation)) {
            Ok(lane) => lane,
            Err(error) => return failed(error.to_string()),
        };
        let mut driver = match Driver::new(lane.here(), choice) {
            Ok(driver) => driver,
            Err(error) => return failed(error.to_string()),
        };
        let id = lane.id();
        Local::install(driver.io(), generation, move || tell(Event::Emptied(0, id)));
        tell(Event::Ready(lane.id()));
        if let Err(error) = lane.block_on(&mut driver, the_end()) {
            failed(error.to_string());
        }
        Local::remove_all();
    })
}

/// Keeps the calling thread, which is that lane's, on the processors that `cpu-map` gives it. Where that
/// cannot be, it is told and the lane runs anywhere.
fn place(generation: &Generation, lane: usize) {
    if let Some(cpus) = generation.process.cpu_map.of(lane)
        && let Err(error) = manylane_sched::keep_to(cpus)
    {
        say::warning(format_args!(
            "thread {} cannot run on the processors that 'cpu-map' gives it: {error}.",
            lane + 1
        ));
    }
}

/// A thread that waits for signals and tells them. What SIGQUIT asks for, the use of memory, it says itself:
/// lanes do not wait for a terminal.
fn watch_signals() -> std::io::Result<()> {
    // SIGUSR2 is for masters, and often sent to all processes of a service: it is no end of this one.
    let mut signals = Signals::new([SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGTTOU, SIGTTIN, SIGQUIT])?;
    std::thread::Builder::new().name("signals".into()).stack_size(SMALL_STACK).spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGQUIT => eprint!("{}", manylane_control::pools()),
                signal => tell(Event::Signal(signal)),
            }
        }
    })?;
    Ok(())
}

/// Has a lane do something to its side of a generation. Whether there is memory to tell it.
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

/// Has a lane let go of its side of the generation of that number, by what `how` does. Where it has none,
/// since there was no memory when it was to begin, nothing is left of it. Whether there is memory to tell it.
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

/// What serves. Generations are counted from 0.
struct Serving {
    number: u64,
    generation: Arc<Generation>,
    /// The lanes' acceptors hold it, too: the last that lets go of it closes the sockets.
    bound: Arc<Vec<BoundListener>>,
}

/// A generation that was replaced, and the lanes where nothing accepts for it any more.
struct Retired {
    number: u64,
    generation: Arc<Generation>,
    emptied: Vec<LaneId>,
    /// Its `hard-stop-after` runs, or it has none.
    limited: bool,
}

/// What is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// The configuration, by what its files say.
    Files,
    /// The servers of a backend.
    Servers,
}

/// How far a reload is.
enum Reloading {
    No,
    /// The files are being read, or what is to serve with other servers is being made.
    Reads,
    /// The lanes begin to serve what was read. What was said of it, and how many of them accept; what served
    /// before.
    Begins {
        before: Serving,
        what: What,
        /// What happens when all of them do, and not before: so there is nothing to undo.
        effects: Box<dyn FnOnce() -> Option<String>>,
        said: String,
        accepting: usize,
    },
    /// They accept, and let go of what served before. How many have.
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
    /// Who waits for the reload that is under way, and for the next.
    askers: Vec<Asker>,
    next_askers: Vec<Asker>,
    /// There is to be a next.
    again: bool,
    /// The process ends: there is no next.
    stops: bool,
    /// The last number that a generation got.
    numbers: u64,
    /// Lanes that could not be told to begin with what serves.
    untold: Vec<LaneId>,
    /// Writes to standard error.
    says: JobThread,
    quiet: bool,
}

impl Supervisor {
    /// Has all lanes accept for what serves. Each tells.
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
            // On the first lane at once: a command that closes or opens a frontend there finds all whose gate
            // that is.
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
                let error = "cannot tell a lane to accept: its memory is used up".into();
                tell(Event::Refused(number, error));
            }
        }
    }

    /// Somebody wants the files to be read again.
    fn note(&mut self) {
        self.again = true;
        self.next_askers.extend(ASKERS.take());
    }

    /// Somebody wants a server to be changed, and may say so again until it is.
    fn want(&self, change: Change) {
        CHANGES.with_borrow_mut(|changes| {
            if changes.iter().all(|(other, _)| *other != change) {
                changes.push_back((change, Asker::default()));
            }
        });
    }

    /// Begins the next reload, if one is asked for and none is under way.
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
            drop((generation, bound)); // before the supervisor goes on
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

    /// Has the next server come or go, if one is to.
    fn make(&mut self) {
        // Those that are refused are answered one after the other: there may be as many as agents.
        while let Some((change, asker)) = CHANGES.with_borrow_mut(VecDeque::pop_front) {
            if self.retired.len() >= MOST_BEHIND {
                asker.answer(Err(format!(
                    "Streams of {MOST_BEHIND} changes before are not over: wait, or end them with 'shutdown \
                        session'."
                )));
                continue;
            }
            let generation = self.serving.generation.clone();
            // Beside the lanes: a backend may have very many servers.
            let thread = std::thread::Builder::new().name("servers".into()).spawn(move || {
                let made = defect::caught(|| generation.with(&change));
                drop(generation); // before the supervisor goes on
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

    /// What is to serve with other servers was made.
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

    /// The files were read.
    fn was_read(&mut self, outcome: Result<Box<Fresh>, String>) {
        let Fresh { mut generation, listeners, said } = match outcome {
            Ok(fresh) => *fresh,
            Err(error) => return self.over(What::Files, Err(error)),
        };
        generation.inherit(&self.serving.generation, self.here.now());
        self.numbers += 1;
        let generation = Arc::new(generation);
        let Beside { bound, backlogs, begun, .. } = listeners;
        manylane_proxy::listen_again(&generation, &bound);
        let fresh = Serving { number: self.numbers, generation: generation.clone(), bound: Arc::new(bound) };
        let before = std::mem::replace(&mut self.serving, fresh);
        self.begin(Some(&before.generation));
        let (predecessor, here) = (before.generation.clone(), self.here);
        let effects = Box::new(move || {
            generation.take_effect(&predecessor, here.now());
            backlogs.take_effect(&generation);
            begun.complete().map(|error| error.to_string())
        });
        self.reloading = Reloading::Begins { before, what: What::Files, effects, said, accepting: 0 };
    }

    /// A lane accepts for the newest generation.
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
            // The run-time interface worked on the one before until now.
            if let Some(local) = Local::of(&self.serving.generation) {
                local.inherit_variables(&before.generation);
            }
        }
        if let Some(Reloads { current, .. }) = &self.reloads {
            current.replace(self.serving.generation.clone());
        }
        self.reloading = Reloading::Retires { number: before.number, what, said, done: 0 };
        self.retire(before.number, before.generation, Local::retire);
        // Who is with a server that stays is not to end because another one came: so when the files were
        // read, all that were left since then are meant.
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

    /// What is left of a generation then is ended.
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

    /// The time of a generation is over. Its streams are told first; what is left a moment later ends where
    /// it is.
    fn over_time(&self, number: u64) {
        let Some(Retired { generation, .. }) = self.retired.iter().find(|retired| retired.number == number)
        else {
            return;
        };
        for &lane in &*self.lanes {
            let generation = generation.clone();
            let ends = move |here| async move {
                if let Some(local) = Local::of(&generation) {
                    local.end_streams();
                    last_words(here).await;
                    local.end_sessions();
                }
            };
            // Without memory they end when there is no session left.
            let _ = Remote::new(lane).spawn_with(&LIMIT, Class::Urgent, ends);
        }
    }

    /// A lane has let go of a generation.
    fn retired(&mut self, which: u64) {
        let Reloading::Retires { number, what, said, done } = &mut self.reloading else { return };
        *done += usize::from(*number == which);
        if *done == self.lanes.len() {
            let (what, said) = (*what, std::mem::take(said));
            self.over(what, Ok(said));
        }
    }

    /// A lane cannot: all goes on as before.
    fn refused(&mut self, number: u64, error: String) {
        if number != self.serving.number {
            return; // another lane could not either
        }
        if let Reloading::Begins { before, what, .. } = std::mem::replace(&mut self.reloading, Reloading::No)
        {
            let failed = std::mem::replace(&mut self.serving, before);
            self.serving.generation.settle_followers(self.here.now());
            self.retire(failed.number, failed.generation, Local::stop);
            self.over(what, Err(error));
        }
    }

    /// A generation serves no more, by what `how` does on each lane.
    fn retire(&mut self, number: u64, generation: Arc<Generation>, how: fn(&Local)) {
        for &lane in &*self.lanes {
            if !let_go(lane, (number, &generation), how) {
                tell(Event::Retired(number)); // it serves both, then
                if self.untold.contains(&lane) {
                    tell(Event::Emptied(number, lane)); // it never began
                }
            }
        }
        self.retired.push(Retired { number, generation, emptied: Vec::new(), limited: false });
    }

    /// On a lane nothing is left of a generation that retired, at this moment. Its lanes let go of it when it
    /// was so on each of them: nobody can give them a connection for it any more.
    fn emptied(&mut self, number: u64, lane: LaneId) {
        let Some(place) = self.retired.iter().position(|retired| retired.number == number) else { return };
        let retired = &mut self.retired[place];
        if !retired.emptied.contains(&lane) {
            retired.emptied.push(lane);
        }
        if retired.emptied.len() == self.lanes.len() {
            let Retired { generation, .. } = self.retired.swap_remove(place);
            for &lane in &*self.lanes {
                // Behind connections that were sent to that lane before.
                order(lane, Class::Bulk, &generation, |local| local.remove());
            }
        }
    }

    /// A reload is over.
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
            let _ = self.says.run(move || say::text(&text)); // it ends with the supervisor
        }
        let told = match outcome {
            Ok(said) => Ok(said + &end),
            Err(said) => Err(format!("{}\n{end}", said.trim_end())),
        };
        for asker in self.askers.drain(..) {
            asker.answer(told.clone());
        }
        self.read();
    }
}

async fn supervise(here: Here, work: Work, started: impl FnOnce()) -> Ending {
    let Work {
        generation,
        bound,
        lanes: count,
        quiet,
        says,
        driver: _,
        services: _,
        mut begun,
        reload: reloads,
    } = work;
    let mut lanes = vec![here.lane()];
    let ending = 'running: {
        // Each lane is waited for, also when the end is known by then: one that began later would not be told
        // of it.
        let (mut early, mut failed) = (None, 0);
        while lanes.len() + failed < count {
            match next_event().await {
                Event::Ready(lane) => lanes.push(lane),
                Event::Failed(error) => {
                    failed += 1;
                    early = Some(Ending::Failed(error));
                }
                Event::Signal(signal @ (SIGTERM | SIGINT)) => early = Some(Ending::Signal(signal)),
                Event::Signal(SIGUSR1) => _ = early.get_or_insert(Ending::Done), /* nothing serves, so */
                // there is nothing to
                // finish
                _ => {}
            }
        }
        if let Some(ending) = early {
            break 'running ending;
        }
        if let Some(Err(error)) = begun.as_mut().map(Begun::place_files) {
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
        if ASKERS.with_borrow(|askers| !askers.is_empty()) {
            supervisor.note();
        }
        // It stops when no reload is under way: what is being read holds the sockets, and lanes have to agree
        // on what serves.
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
                        if let Some(error) = begun.take().and_then(Begun::complete) {
                            say::alert(error);
                        }
                        started();
                        supervisor.read();
                    }
                }
                Event::Refused(0, error) => break 'running Ending::Failed(error),
                Event::Signal(SIGHUP) | Event::ReloadWanted => {
                    supervisor.note();
                    // Only where all lanes serve all can change.
                    if started.is_none() {
                        supervisor.read();
                    }
                }
                Event::AskedFor if started.is_none() => supervisor.read(),
                Event::AskedFor => {}
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
                Event::Limit(number) => supervisor.over_time(number),
                // Ports are shared, so nobody has to make room.
                Event::Signal(_) | Event::Ready(_) | Event::Silent => {}
            }
        }
        supervisor.note();
        supervisor.next_askers.drain(..).for_each(refuse);
        refuse_changes();
        let Serving { number, generation, bound } = supervisor.serving;
        drop(bound);
        stop(here, (number, &generation), &lanes, &supervisor.says).await
    };
    INBOX.lock().waker = None; // nobody waits for what is told from here on
    end_lanes();
    ending
}

fn refuse_changes() {
    CHANGES.take().into_iter().for_each(|(_, asker)| asker.answer(Err("The process ends.".into())));
}

fn refuse(asker: Asker) {
    asker.answer(Err("Not reloaded: the process ends.".into()));
}

/// When a lane is told again what there was no memory to tell it.
const AGAIN: Duration = Duration::from_millis(100);

/// The soft stop: no new connections; those that are there may finish, within `hard-stop-after`.
async fn stop(
    here: Here,
    (number, generation): (u64, &Arc<Generation>),
    lanes: &[LaneId],
    says: &JobThread,
) -> Ending {
    generation.process_stats.stop();
    if !generation.process.grace.is_zero() {
        here.sleep(generation.process.grace).await;
    }
    let stops = |lane| {
        order(lane, Class::Urgent, generation, |local| {
            // Processors are for the successor.
            if let Some(here) = Here::current() {
                here.set_busy_poll(Duration::ZERO);
            }
            local.stop();
        })
    };
    let untold = lanes.iter().copied().filter(|lane| !stops(*lane)).collect();
    announce(generation, |front, back| {
        // `shutdown frontend` has told it.
        let told = front.is_some_and(|frontend| frontend.gate.state() == FrontendGateState::Shut);
        (!told).then(|| manylane_proxy::stopped(front, back))
    });
    let mut empty = pin!(emptied(here, (lanes, number), (untold, stops)));
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
    // Clients are told, and lines written: each lane has its time for it.
    for &lane in lanes {
        let ends = move |here| async move {
            Local::end_all_streams();
            last_words(here).await;
            tell(Event::Silent);
        };
        if Remote::new(lane).spawn_with(&LIMIT, Class::Urgent, ends).is_err() {
            tell(Event::Silent); // there is no memory for it
        }
    }
    here.timeout(SLOWEST, empty).await.unwrap_or(Ending::Done)
}

/// Waits until what the process has said was written, by its lanes and on standard error: a reader that does
/// not read is waited for until [`SLOWEST`] is over.
async fn last_lines(here: Here, lanes: &[LaneId], says: &JobThread) -> Ending {
    for &lane in lanes {
        let ends = |here| async move {
            lines_sent(here).await;
            tell(Event::Silent);
        };
        if Remote::new(lane).spawn_with(&LIMIT, Class::Urgent, ends).is_err() {
            tell(Event::Silent); // there is no memory for it
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
                Event::Signal(signal @ (SIGTERM | SIGINT)) => return Ending::Signal(signal),
                Event::ReloadWanted => ASKERS.take().into_iter().for_each(refuse),
                Event::AskedFor => refuse_changes(),
                _ => {}
            }
        }
        Ending::Done
    };
    here.timeout(SLOWEST, all).await.unwrap_or(Ending::Done)
}

/// Says something of each proxy on standard error and to its log targets: `what` is given its frontend, and
/// the backend of the same name.
fn announce(
    generation: &Arc<Generation>,
    what: impl Fn(Option<&Frontend>, Option<&Backend>) -> Option<String>,
) {
    let fronts =
        generation.frontends.iter().map(|front| (Some(front), generation.backend_named(&front.name)));
    let names: HashSet<&str> = generation.frontends.iter().map(|front| &*front.name).collect();
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

/// How the process ends when all sessions are over, or when it is told to end before. `number` is the
/// generation's that stops. There was no memory to stop the lanes `untold`: `stops` tries again.
async fn emptied(
    here: Here,
    (lanes, number): (&[LaneId], u64),
    (mut untold, stops): (Vec<LaneId>, impl Fn(LaneId) -> bool),
) -> Ending {
    let (mut told, mut silent) = (Vec::new(), 0);
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
                // Until then it may have a connection in its hands that counts nowhere yet, because it has
                // not stopped to accept.
                if of == number && !told.contains(&lane) {
                    told.push(lane);
                }
                // What is on its way from one lane to another counts, so this is the end.
                if told.len() == lanes.len() && lanes.iter().all(|lane| load(*lane) == 0) {
                    return Ending::Done;
                }
            }
            Event::Signal(signal @ (SIGTERM | SIGINT)) => return Ending::Signal(signal),
            Event::Failed(error) => return Ending::Failed(error),
            Event::ReloadWanted => ASKERS.take().into_iter().for_each(refuse),
            Event::AskedFor => refuse_changes(),
            _ => {}
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

    /// Else what failed to begin would be kept, and count among those that are behind, to the end of the
    /// process.
    #[test]
    fn a_lane_that_has_nothing_of_a_generation_lets_go_of_it() {
        let mut loaded = manylane_config::load(&Sources::new(), &Build::bare(), Environment::new(), false);
        let wishes = manylane_proxy::generation::Wishes::default();
        let generation = Arc::new(Generation::build(&loaded.config, wishes, &mut loaded.found));
        let mut lane = Lane::new(Config::new()).expect("a new thread");
        assert!(let_go(lane.id(), (7, &generation), Local::stop));
        while INBOX.lock().events.len() < 2 {
            lane.round(Time::ZERO);
        }
        let told = std::mem::take(&mut INBOX.lock().events);
        assert!(matches!(told[0], Event::Emptied(7, own) if own == lane.id()));
        assert!(matches!(told[1], Event::Retired(7)));
    }
}
