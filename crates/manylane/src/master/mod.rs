//! The master: a process that serves nothing and runs another one, the worker, which serves (`-W`, `-Ws`,
//! `master-worker`).
//!
//! # Design
//! - The master reads the files once, to report errors before it starts anything. Then it starts this program
//!   again as the worker, which reads the files itself. So the master keeps its rights and its folder
//!   whatever `user` and `chroot` say, and a reload starts the program file that exists by then.
//! - A unix socket joins the two. Over it the worker reports that all of its lanes accept, or never will, and
//!   the messages of its start; later, how long its soft stop takes at most. The master passes connections
//!   over it, as to a `sockpair@`: they reach the worker's run-time interface with the level `admin`. The
//!   master CLI talks to workers this way, and a new worker takes the listening sockets of the one before
//!   (`-x sockpair@N`).
//! - A reload (SIGUSR2, SIGHUP, `reload`) starts another worker. Once that accepts, the master tells the one
//!   before to finish (SIGUSR1). A worker that fails before that changes nothing
//!   (`manylane_net::HandedOver::begin`).
//! - In the background (`-D`), the first process starts this program again, which becomes the master. The
//!   first process waits until a worker serves or none will.
//! - A worker ends with its master: the system sends it SIGTERM when the master has ended.
//! - Nothing here has to be fast, so everything is simple. Threads that wait send events to one loop on the
//!   main thread, which owns all state and alone starts processes: the system ties the worker's life to the
//!   thread that started it.

mod bridge;
mod client;
mod notify;
mod worker;

pub(crate) use client::run_time_sockets;
pub(crate) use worker::Joined;

use crate::arguments::Arguments;
use crate::background::Background;
use crate::channel::{Receiver, Sender, channel};
use crate::jobs::JobThread;
use crate::say;
use crate::system::PidFile;
use client::{Question, Target};
use manylane_config::tree::OnWorkerFailure;
use manylane_net::PendingChanges;
use manylane_plan::Generation;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};
use worker::{Worker, WorkerReport};

/// Event for the master's loop.
enum Event {
    /// The pause behind the crash with this number is over.
    Restart(u32),
    Signal(i32),
    /// The worker with this process number accepts, or never will.
    WorkerReport(u32, WorkerReport),
    /// The soft stop of the worker with this process number begins. It takes at most this time; `None` is
    /// without a limit.
    WorkerStops(u32, Option<Duration>),
    /// A client of the master CLI has a question or an order.
    Asks(Question),
}

struct Master {
    arguments: Arguments,
    /// Path of the program when the process started: the file may be another version later.
    program: PathBuf,
    events: Sender<Event>,
    began: Instant,
    current: Option<Worker>,
    /// Worker that does not accept yet, and its report if it never will.
    starting: Option<Worker>,
    last_words: Option<WorkerReport>,
    /// Workers that were told to finish.
    former: Vec<Worker>,
    /// Number of reloads that were asked for, and of failed ones since the last success.
    reloads: u32,
    failed: u32,
    /// Whether another reload is to follow, the clients that wait for it, and those that wait for the running
    /// one.
    again: bool,
    next: Vec<Sender<Outcome>>,
    waiting: Vec<Sender<Outcome>>,
    /// Messages since the last reload or the start began, and a copy of them when it was over.
    said: String,
    said_at_start: String,
    /// Addresses of the master CLI, for the workers.
    listens: String,
    /// What is done once a worker serves, so that a master whose first worker fails leaves a running one its
    /// files: the sockets of the master CLI get their paths, and the pidfile the number of this process.
    begins: Option<(PendingChanges, Option<PidFile>)>,
    /// The starter that waits for the first worker.
    background: Option<Background>,
    fails: OnWorkerFailure,
    /// A worker has served: later workers take nothing over from processes older than the master.
    served: bool,
    crashes: Crashes,
    /// The master pauses before it starts the next worker.
    pauses: bool,
    ends: bool,
    code: u8,
    quiet: bool,
}

/// First pause before the master replaces a crashed worker (`restart-on-crash`). It is short, so that clients
/// do not wait long the first time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause. The pause doubles with each consecutive crash: a file or a client that crashes each worker
/// must not keep the machine busy.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Time after which a worker's crash does not count as consecutive.
const LASTING: Duration = Duration::from_secs(60);

/// Counts of the workers' crashes.
#[derive(Debug, Default)]
struct Crashes {
    /// Number of consecutive crashes of workers that did not last for [`LASTING`].
    in_a_row: u32,
    /// Number of all crashes, by which the end of a pause finds out that its crash is the last one.
    all: u32,
}

impl Crashes {
    /// Forgets the consecutive crashes if the crashed worker lasted for [`LASTING`].
    fn lasted(&mut self, time: Duration) {
        if time >= LASTING {
            self.in_a_row = 0;
        }
    }

    /// Counts a crash, and returns the pause after it.
    fn add(&mut self) -> Duration {
        self.all = self.all.wrapping_add(1);
        self.in_a_row = self.in_a_row.saturating_add(1);
        FIRST_PAUSE
            .saturating_mul(1_u32.checked_shl(self.in_a_row - 1).unwrap_or(u32::MAX))
            .min(LONGEST_PAUSE)
    }
}

/// Result of a reload: whether the new worker serves, and the messages.
type Outcome = (bool, String);

/// Settings of a master.
pub(crate) struct Plan {
    arguments: Arguments,
    pidfile: Option<PathBuf>,
    fails: OnWorkerFailure,
    quiet: bool,
}

impl Plan {
    /// Takes the settings of a `generation`, of which nothing else is needed.
    pub(crate) fn new(arguments: &Arguments, generation: &Generation) -> Self {
        let process = &generation.process;
        Self {
            arguments: arguments.clone(),
            pidfile: arguments.pidfile.clone().or_else(|| process.pidfile.clone()),
            fails: process.master_worker.unwrap_or(OnWorkerFailure::Exit),
            quiet: arguments.quiet || process.quiet && !arguments.verbose,
        }
    }
}

/// Runs the master until its last worker has ended.
///
/// # Errors
/// The reason why the master could not begin.
pub(crate) fn run(plan: Plan) -> Result<ExitCode, String> {
    let Plan { arguments, pidfile, fails, quiet } = plan;
    let background = arguments.background.map(Background::new).transpose()?;
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find the program's own file: {error}"))?;
    let (events, receiver) = channel();
    let (sockets, pending) = client::bind(&arguments.master_sockets)?;
    let pidfile = pidfile.as_deref().map(PidFile::open).transpose()?;
    watch_signals(events.clone(), JobThread::to_say()?)
        .map_err(|error| format!("cannot watch signals: {error}"))?;
    let mut master = Master {
        arguments,
        program,
        events: events.clone(),
        began: Instant::now(),
        current: None,
        starting: None,
        former: Vec::new(),
        reloads: 0,
        failed: 0,
        again: false,
        next: Vec::new(),
        waiting: Vec::new(),
        last_words: None,
        said: String::new(),
        said_at_start: String::new(),
        listens: client::listens(&sockets),
        begins: Some((pending, pidfile)),
        background,
        fails,
        served: false,
        crashes: Crashes::default(),
        pauses: false,
        ends: false,
        code: 0,
        quiet,
    };
    master.start().map_err(|error| format!("cannot start the worker: {error}"))?;
    let _bound = client::serve(sockets, &events)?; // kept until the end
    master.run(&receiver);
    Ok(ExitCode::from(master.code))
}

/// Starts a thread that waits for signals and sends them as events. Signals that HAProxy's master ignores do
/// not end this master. On SIGQUIT each process itself reports its use of memory; `says` writes it, since the
/// reader of standard error may have stopped or left.
fn watch_signals(events: Sender<Event>, says: JobThread) -> std::io::Result<()> {
    let all = [SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGTTOU, SIGTTIN, SIGQUIT];
    let mut signals = Signals::new(all)?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGQUIT {
                let _ = says.run(|| say::text(&manylane_control::pools())); // `says` keeps it running
            } else if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

impl Master {
    fn run(&mut self, receiver: &Receiver<Event>) {
        loop {
            self.kill_overdue();
            let next = self.former.iter().filter_map(Worker::next_check).min();
            let Ok(event) = receiver.recv_until(next) else { return };
            let Some(event) = event else { continue };
            match event {
                Event::Signal(SIGUSR2 | SIGHUP) => self.reload(None),
                Event::Signal(SIGCHLD) => self.reap(),
                Event::Signal(SIGUSR1) => self.end(Signal::SIGUSR1),
                Event::Signal(SIGTERM) => self.end(Signal::SIGTERM),
                Event::Signal(SIGINT) => self.end(Signal::SIGINT),
                Event::Signal(_) => {}
                Event::WorkerReport(pid, report) => self.handle_report(pid, report),
                Event::WorkerStops(pid, longest) => {
                    let own = self.former.iter_mut().find(|worker| worker.pid() == pid);
                    own.into_iter().for_each(|worker| worker.stops(longest));
                }
                Event::Restart(crash) => self.restart(crash),
                Event::Asks(question) => self.answer(question),
            }
            if self.workers().next().is_none() && (self.ends || !self.pauses) {
                let code = self.code;
                self.say("WARNING", format_args!("All workers exited. Exiting... ({code})"));
                return;
            }
        }
    }

    fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.current.iter().chain(&self.starting).chain(&self.former)
    }

    fn say(&mut self, severity: &str, message: std::fmt::Arguments<'_>) {
        if !self.quiet || severity == "ALERT" {
            let line = say::line(severity, message);
            say::text(&line);
            say::add(&mut self.said, &line);
        }
    }

    fn notify(&self, tell: impl FnOnce()) {
        if self.arguments.master == Some(crate::arguments::Master::Notifies) {
            tell();
        }
    }

    /// Starts a worker, which takes over from the current one.
    fn start(&mut self) -> std::io::Result<()> {
        let mut environment = vec![("HAPROXY_STARTUP_VERSION", env!("CARGO_PKG_VERSION").into())];
        if !self.listens.is_empty() {
            environment.push(("HAPROXY_MASTER_CLI", self.listens.clone().into()));
        }
        let (before, first) = (self.current.as_ref(), !self.served);
        let events = self.events.clone();
        let worker = Worker::start(&self.program, &self.arguments, before, first, &environment, events)?;
        self.say("NOTICE", format_args!("New worker ({}) forked", worker.pid()));
        self.starting = Some(worker);
        self.pauses = false;
        Ok(())
    }

    /// Starts another worker after a pause, when a worker has crashed and none serves.
    fn crashed(&mut self) {
        let pause = self.crashes.add();
        let (crash, events) = (self.crashes.all, self.events.clone());
        let waits = std::thread::Builder::new().name("pause".into()).spawn(move || {
            std::thread::sleep(pause);
            let _ = events.send(Event::Restart(crash)); // the master may have ended
        });
        match waits {
            Ok(_) => {
                self.pauses = true;
                self.say(
                    "WARNING",
                    format_args!("restart-on-crash: another worker begins in {} ms", pause.as_millis()),
                );
            }
            Err(error) => {
                self.say("ALERT", format_args!("restart-on-crash: cannot start a thread that waits: {error}"))
            }
        }
    }

    /// Handles the end of the pause behind a crash.
    fn restart(&mut self, crash: u32) {
        // A reload may have come before.
        if !self.pauses || self.ends || crash != self.crashes.all {
            return;
        }
        self.pauses = false;
        self.said.clear();
        if let Err(error) = self.start() {
            self.say("ALERT", format_args!("cannot start the worker: {error}"));
            self.has_failed();
            self.crashed();
        }
    }

    /// Requests a reload.
    fn reload(&mut self, asker: Option<Sender<Outcome>>) {
        self.next.extend(asker);
        self.again = true;
        self.reload_next();
    }

    /// Begins the next reload, if one is requested and none is running.
    fn reload_next(&mut self) {
        if !self.again || self.starting.is_some() {
            return;
        }
        self.again = false;
        self.waiting.append(&mut self.next);
        self.said.clear();
        if self.ends {
            return self.over(false);
        }
        self.say("NOTICE", format_args!("Reloading"));
        self.notify(notify::reloading);
        self.reloads += 1;
        self.current.iter_mut().chain(&mut self.former).for_each(|worker| worker.reloads += 1);
        if let Err(error) = self.start() {
            self.say("ALERT", format_args!("cannot start the worker: {error}"));
            self.has_failed();
        }
    }

    /// Handles the report of a worker: the one that was started last takes over or ends.
    fn handle_report(&mut self, pid: u32, report: WorkerReport) {
        let Some(mut worker) = self.starting.take_if(|worker| worker.pid() == pid) else { return };
        if !report.accepts {
            (self.starting, self.last_words) = (Some(worker), Some(report));
            return self.reap(); // its end may have been signalled before
        }
        say::add(&mut self.said, &report.said);
        if !self.ends {
            self.begins(); // one that ends leaves the files of another master alone
        }
        self.say("NOTICE", format_args!("Loading success."));
        if let Some(background) = self.background.take() {
            background.leave();
        }
        let most = report.most_reloads;
        worker.report = report;
        if self.ends {
            // tell it to finish, since the request came before it could receive it
            worker.signal(Signal::SIGUSR1);
        }
        (self.failed, self.served) = (0, true);
        if !self.ends {
            self.code = 0; // drops the code of the worker that it replaces
        }
        if let Some(mut before) = self.current.replace(worker) {
            before.finish();
            self.former.push(before);
        }
        for worker in self.former.iter_mut().filter(|worker| most.is_some_and(|most| worker.reloads > most)) {
            worker.terminate();
        }
        self.notify(|| notify::ready("Ready."));
        self.over(true);
        self.reap(); // the worker may have ended since
    }

    /// Lets others know of this master, once its first worker serves. An error is reported, and the worker
    /// goes on.
    fn begins(&mut self) {
        let Some((pending, pidfile)) = self.begins.take() else { return };
        if let Some(error) = pending.complete() {
            self.say("ALERT", format_args!("Binding for the master CLI: {error}"));
        }
        if let Some(Err(error)) = pidfile.map(PidFile::write) {
            self.say("ALERT", format_args!("{error}"));
        }
    }

    /// Handles a started worker that will not accept.
    fn has_failed(&mut self) {
        self.failed += 1;
        self.say("WARNING", format_args!("Loading failure!"));
        if self.current.is_some() {
            self.notify(|| notify::ready("Reload failed!"));
        }
        self.over(false);
    }

    /// Ends a reload, or the start.
    fn over(&mut self, good: bool) {
        self.said_at_start.clone_from(&self.said);
        for asker in self.waiting.drain(..) {
            let _ = asker.send((good, self.said.clone())); // the client may have left
        }
        self.reload_next();
    }

    /// Kills the former workers that hang.
    fn kill_overdue(&mut self) {
        let mut killed = Vec::new();
        for worker in &mut self.former {
            if worker.take_overdue() {
                worker.signal(Signal::SIGKILL);
                killed.push(worker.pid());
            }
        }
        for pid in killed {
            self.say("WARNING", format_args!("Former worker ({pid}) hangs and was killed"));
        }
    }

    /// Reaps the workers that have ended.
    fn reap(&mut self) {
        let ended = |worker: &mut Worker| worker.child.try_wait().ok().flatten();
        let mut index = 0;
        while index < self.former.len() {
            match ended(&mut self.former[index]) {
                Some(status) => {
                    let worker = self.former.swap_remove(index);
                    self.tell_end("Former", worker.pid(), status);
                }
                None => index += 1,
            }
        }
        if let Some(status) = self.current.as_mut().and_then(ended) {
            let lasted = self.current.as_ref().map_or(Duration::ZERO, |worker| worker.began.elapsed());
            let pid = self.current.take().map_or(0, |worker| worker.pid());
            let code = self.tell_end("Current", pid, status);
            // The usual codes are 0 and that of SIGTERM; SIGINT is returned, as by HAProxy.
            if !matches!(code, 0 | 143) {
                self.code = code;
            }
            // A worker that a signal from outside ended has not failed.
            if !matches!(code, 0 | 130 | 143) && !self.ends {
                if self.fails == OnWorkerFailure::Restart {
                    self.crashes.lasted(lasted);
                    // A running reload brings the next worker; its failure is handled below.
                    if self.starting.is_none() {
                        self.crashed();
                    }
                } else if self.fails == OnWorkerFailure::Exit {
                    self.say("ALERT", format_args!("exit-on-failure: killing every processes with SIGTERM"));
                    self.ends = true;
                    self.workers().for_each(|worker| worker.signal(Signal::SIGTERM));
                }
            }
        }
        // Only once its report has arrived, so that clients get its messages.
        if self.last_words.is_some()
            && let Some(status) = self.starting.as_mut().and_then(ended)
        {
            say::add(&mut self.said, &self.last_words.take().unwrap_or_default().said);
            let pid = self.starting.take().map_or(0, |worker| worker.pid());
            let code = self.tell_end("New", pid, status);
            if self.current.is_none() && !self.ends {
                self.code = if code == 0 { 1 } else { code };
                if self.fails == OnWorkerFailure::Restart && self.served {
                    self.crashed();
                }
            }
            self.has_failed();
        }
        self.reap_others();
    }

    /// Reaps processes that the master did not start: as process 1 of a container it gets those whose parents
    /// have ended, such as what a check by a program has left.
    fn reap_others(&self) {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
        let ended = || waitid(Id::All, flags | WaitPidFlag::WNOWAIT).ok()?.pid();
        // A worker whose report has not arrived hides the others until its own turn.
        while let Some(pid) =
            ended().filter(|pid| self.workers().all(|own| own.pid() != pid.as_raw().cast_unsigned()))
            && waitid(Id::Pid(pid), flags).is_ok()
        {}
    }

    /// Logs how a worker ended, and returns a code for that.
    fn tell_end(&mut self, which: &str, pid: u32, status: ExitStatus) -> u8 {
        let signal = status.signal();
        let code = status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(1);
        let how =
            signal.map_or("Exit", |signal| signal_hook::low_level::signal_name(signal).unwrap_or("signal"));
        let severity = if code == 0 || which == "Former" { "WARNING" } else { "ALERT" };
        self.say(severity, format_args!("{which} worker ({pid}) exited with code {code} ({how})"));
        u8::try_from(code).unwrap_or(1)
    }

    /// Tells all workers to end.
    fn end(&mut self, signal: Signal) {
        self.say("WARNING", format_args!("Exiting Master process..."));
        self.notify(|| notify::notify("STOPPING=1\n"));
        self.ends = true;
        self.workers().for_each(|worker| worker.signal(signal));
    }

    /// Answers a client, which may have left.
    fn answer(&mut self, question: Question) {
        let _ = match question {
            Question::Reload(answer) => return self.reload(Some(answer)),
            Question::Processes(answer) => answer.send(self.processes()),
            Question::Failed(answer) => answer.send(self.failed > 0),
            Question::Said(answer) => answer.send(self.said_at_start.clone()),
            Question::Began(None, answer) => answer.send(Some(self.began)),
            Question::Began(Some(pid), answer) => {
                answer.send(self.workers().find(|worker| worker.pid() == pid).map(|worker| worker.began))
            }
            Question::Worker(target, answer) => {
                let mut serving = self.current.iter().chain(&self.former);
                let found = match target {
                    Target::Current => self.current.as_ref(),
                    Target::Pid(pid) => serving.find(|worker| worker.pid() == pid),
                };
                answer.send(found.and_then(|worker| Some((worker.pid(), worker.passage().ok()?))))
            }
        };
    }

    /// Returns the text of `show proc`.
    fn processes(&self) -> String {
        let own = std::process::id().to_string();
        let reloads = format!("{} [failed: {}]", self.reloads, self.failed);
        let mut text = row(["#<PID>", "<type>", "<reloads>", "<uptime>", "<version>"]);
        text += &row([&own, "master", &reloads, &uptime(self.began), env!("CARGO_PKG_VERSION")]);
        let of = |worker: &Worker| {
            let (pid, reloads) = (worker.pid().to_string(), worker.reloads.to_string());
            row([&pid, "worker", &reloads, &uptime(worker.began), &worker.report.version])
        };
        text += "# workers\n";
        text.extend(self.current.iter().map(of));
        if !self.former.is_empty() {
            text += "# old workers\n";
            text.extend(self.former.iter().map(of));
        }
        text + "# programs\n"
    }
}

/// Formats a row of `show proc`.
fn row([pid, kind, reloads, uptime, version]: [&str; 5]) -> String {
    format!("{pid:<15} {kind:<15} {reloads:<15} {uptime:<15} {version:<15}\n")
}

/// Formats an uptime as HAProxy does.
fn uptime(began: Instant) -> String {
    let seconds = began.elapsed().as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    format!("{days}d{hours:02}h{minutes:02}m{:02}s", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let pause = |before| Crashes { in_a_row: before, all: u32::MAX }.add().as_millis();
        assert_eq!([0, 1, 2, 8, 9, 32, u32::MAX].map(pause), [100, 200, 400, 25_600, 30_000, 30_000, 30_000]);
    }

    /// After the crash of a worker that lasted, the pause starts anew.
    #[test]
    fn the_pause_starts_anew_once_a_worker_lasted() {
        let mut crashes = Crashes::default();
        let nearly = LASTING - Duration::from_millis(1);
        let times = [Duration::ZERO, Duration::ZERO, nearly, LASTING, Duration::ZERO, LASTING * 2];
        let pauses = times.map(|time| {
            crashes.lasted(time);
            crashes.add().as_millis()
        });
        assert_eq!(pauses, [100, 200, 400, 100, 200, 100]);
        assert_eq!(LASTING, Duration::from_secs(60), "docs/operations.md says a minute");
        assert_eq!(crashes.all, 6);
    }
}
