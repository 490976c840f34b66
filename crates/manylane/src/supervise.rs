//! The lanes of the process, and what happens to them: started, told to stop, waited for.
//!
//! The first lane runs on the main thread, and the supervisor is a task of it. Whoever has something to tell it, another lane or the
//! thread that waits for signals, sends it a task that puts an event into its list.

use crate::say;
use manylane_io::{Choice, Driver, Io};
use manylane_net::load;
use manylane_proxy::{BoundListener, Generation, Local, accept};
use manylane_sched::{Class, Config, Here, Lane, Remote, TaskKind};
use manylane_sync::{Arc, LaneId};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1};
use signal_hook::iterator::Signals;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

static TELL: TaskKind = TaskKind::new("event");
static ORDER: TaskKind = TaskKind::new("order");

/// What the supervisor is told.
#[derive(Debug)]
enum Event {
    /// A lane is there.
    Ready(LaneId),
    /// A lane accepts.
    Accepting,
    /// Something cannot go on.
    Failed(String),
    /// A lane that stops has no session left.
    Emptied,
    /// The system has sent a signal.
    Signal(i32),
}

#[derive(Debug, Default)]
struct Inbox {
    events: VecDeque<Event>,
    waker: Option<Waker>,
}

thread_local! {
    static INBOX: RefCell<Inbox> = RefCell::default();
}

/// Tells the supervisor. When it has ended already, nobody needs to know.
fn tell(supervisor: Remote, event: Event) {
    let _ = supervisor.spawn(&TELL, Class::Urgent, async move {
        let waker = INBOX.with_borrow_mut(|inbox| {
            inbox.events.push_back(event);
            inbox.waker.take()
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    });
}

async fn next_event() -> Event {
    poll_fn(|context| {
        INBOX.with_borrow_mut(|inbox| match inbox.events.pop_front() {
            Some(event) => Poll::Ready(event),
            None => {
                inbox.waker = Some(context.waker().clone());
                Poll::Pending
            }
        })
    })
    .await
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
    /// What else the first lane serves.
    pub(crate) services: Option<Services>,
}

/// Starts services on a lane.
pub(crate) type Services = Box<dyn FnOnce(&Io) -> Result<(), String>>;

fn config(generation: &Generation) -> Config {
    let process = &generation.process;
    let busy_poll = if process.busy_polling { Duration::MAX } else { Duration::ZERO };
    let config = Config::new().low_latency(process.low_latency).busy_poll(busy_poll);
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
    let supervisor = lane.remote();
    if let Err(error) = watch_signals(supervisor) {
        return Ending::Failed(format!("signals cannot be watched: {error}"));
    }
    let emptied = move || tell(supervisor, Event::Emptied);
    let local = Local::install(driver.io(), work.generation.clone(), emptied);
    if let Some(services) = work.services.take()
        && let Err(error) = services(&driver.io())
    {
        return Ending::Failed(error);
    }
    let mut threads = Vec::new();
    for number in 1..work.lanes {
        match start_lane(number, &work, supervisor) {
            Ok(thread) => threads.push(thread),
            Err(error) => return Ending::Failed(format!("lane {number} cannot be started: {error}")),
        }
    }
    place(&work.generation, 0); // now that there are the others, who would have inherited it
    let here = lane.here();
    let ending = lane.block_on(&mut driver, supervise(here, work, started));
    local.remove();
    drop(local);
    drop(lane); // its sessions end with it
    for thread in threads {
        let _ = thread.join(); // a panic there was told on its own
    }
    ending.unwrap_or_else(|error| Ending::Failed(format!("the first lane cannot go on: {error}")))
}

/// One more lane.
fn start_lane(number: usize, work: &Work, supervisor: Remote) -> std::io::Result<JoinHandle<()>> {
    let (generation, choice) = (work.generation.clone(), work.driver);
    std::thread::Builder::new().name(format!("lane {number}")).spawn(move || {
        let failed = |error: String| tell(supervisor, Event::Failed(format!("lane {number}: {error}")));
        place(&generation, number); // before it has memory
        let mut lane = match Lane::new(config(&generation)) {
            Ok(lane) => lane,
            Err(error) => return failed(error.to_string()),
        };
        let mut driver = match Driver::new(lane.here(), choice) {
            Ok(driver) => driver,
            Err(error) => return failed(error.to_string()),
        };
        let local = Local::install(driver.io(), generation, move || tell(supervisor, Event::Emptied));
        tell(supervisor, Event::Ready(lane.id()));
        if let Err(error) = lane.run(&mut driver) {
            failed(error.to_string());
        }
        local.remove();
    })
}

/// Keeps the calling thread, which is that lane's, on the processors that `cpu-map` gives it. Where that cannot be, it is told and the lane runs
/// anywhere.
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

/// A thread that waits for signals and tells them.
fn watch_signals(supervisor: Remote) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGTTOU, SIGTTIN])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            tell(supervisor, Event::Signal(signal));
        }
    })?;
    Ok(())
}

/// Has a lane do something to its side of a generation.
fn order(
    lane: LaneId,
    generation: &Arc<Generation>,
    what: impl FnOnce(&std::rc::Rc<Local>) + Send + 'static,
) {
    let generation = generation.clone();
    let _ = Remote::new(lane).spawn_with(&ORDER, Class::Urgent, move |_| async move {
        if let Some(local) = Local::of(&generation) {
            what(&local);
        }
    });
}

async fn supervise(here: Here, work: Work, started: impl FnOnce()) -> Ending {
    let Work { generation, bound, lanes: count, quiet, driver: _, services: _ } = work;
    let supervisor = here.remote();
    let mut lanes = vec![here.lane()];
    let ending = 'running: {
        while lanes.len() < count {
            match next_event().await {
                Event::Ready(lane) => lanes.push(lane),
                Event::Failed(error) => break 'running Ending::Failed(error),
                Event::Signal(signal @ (SIGTERM | SIGINT)) => break 'running Ending::Signal(signal),
                Event::Signal(_) | Event::Accepting | Event::Emptied => {}
            }
        }
        let bound = Arc::new(bound);
        let all: Arc<[LaneId]> = lanes.clone().into();
        for &lane in &lanes {
            let (bound, all) = (bound.clone(), all.clone());
            order(lane, &generation, move |local| {
                let event = match accept(local, &bound, &all) {
                    Ok(()) => Event::Accepting,
                    Err(error) => Event::Failed(error),
                };
                tell(supervisor, event);
            });
        }
        drop(bound); // the lanes' acceptors hold it
        let (mut accepting, mut started) = (0, Some(started));
        loop {
            match next_event().await {
                Event::Failed(error) => break 'running Ending::Failed(error),
                Event::Signal(signal @ (SIGTERM | SIGINT)) => break 'running Ending::Signal(signal),
                Event::Signal(SIGUSR1) => break,
                Event::Accepting => {
                    accepting += 1;
                    if accepting == count
                        && let Some(started) = started.take()
                    {
                        started();
                    }
                }
                // Ports are shared, so nobody has to make room; there is nothing to dump yet.
                Event::Signal(_) | Event::Ready(_) | Event::Emptied => {}
            }
        }
        stop(here, &generation, &lanes, quiet).await
    };
    for lane in lanes.into_iter().filter(|lane| *lane != here.lane()) {
        let _ = Remote::new(lane).stop();
    }
    ending
}

/// The soft stop: no new connections; those that are there may finish, within `hard-stop-after`.
async fn stop(here: Here, generation: &Arc<Generation>, lanes: &[LaneId], quiet: bool) -> Ending {
    if !generation.process.grace.is_zero() {
        here.sleep(generation.process.grace).await;
    }
    for &lane in lanes {
        order(lane, generation, |local| {
            // Processors are for the successor.
            if let Some(here) = Here::current() {
                here.set_busy_poll(Duration::ZERO);
            }
            local.stop();
        });
    }
    if !quiet {
        for frontend in &generation.frontends {
            let served = frontend.counts.read_cheap_one(|counts| &counts.connections);
            say::warning(format_args!("Proxy {} stopped (cumulated conns: FE: {served}).", frontend.name));
        }
    }
    let empty = async {
        loop {
            match next_event().await {
                // What is on its way from one lane to another counts, so this is the end.
                Event::Emptied if lanes.iter().all(|lane| load(*lane) == 0) => return Ending::Done,
                Event::Signal(signal @ (SIGTERM | SIGINT)) => return Ending::Signal(signal),
                Event::Failed(error) => return Ending::Failed(error),
                _ => {}
            }
        }
    };
    let most = generation.process.hard_stop_after.unwrap_or(Duration::MAX);
    match here.timeout(most, empty).await {
        Ok(ending) => ending,
        Err(_) => {
            say::warning("soft-stop running for too long, performing a hard-stop.");
            Ending::Done
        }
    }
}
