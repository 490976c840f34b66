//! The master: a process that serves nothing, and has another one, the worker, do it (`-W`, `-Ws`,
//! `master-worker`).
//!
//! # Design
//! - The master reads the files once, to tell what is wrong before anything is started, and then starts this
//!   program again as the worker, which reads them itself. So the master keeps its rights and its folder
//!   whatever `user` and `chroot` say, and a reload starts the program that is there by then.
//! - A unix socket joins the two. The worker tells over it that all of its lanes accept, or never will, and
//!   what it said meanwhile. The master passes connections over it, as to a `sockpair@`: they reach the
//!   worker's run-time interface, with the level `admin`. That is how the master CLI talks to workers, and
//!   how a new worker takes the listening sockets of the one before (`-x sockpair@N`).
//! - A reload (SIGUSR2, SIGHUP, `reload`) starts another worker. Once that accepts, the one before is told to
//!   finish (SIGUSR1). One that fails before that changes nothing (`manylane_net::HandedOver::begin`).
//! - In the background (`-D`): the process that was started starts this program again, which becomes the
//!   master, and waits until a worker serves or none will.
//! - A worker ends with its master: the system sends it SIGTERM when the master is gone.
//! - Nothing here is fast, so everything is simple: threads that wait tell one loop, which owns all state and
//!   alone starts processes, on the main thread: the system ties the worker's life to the thread that started
//!   it.

mod background;
mod bridge;
mod channel;
mod client;
mod notify;
mod worker;

pub(crate) use background::to_background;
pub(crate) use channel::{Sender, channel};
pub(crate) use client::run_time_sockets;
pub(crate) use worker::Joined;

use crate::arguments::Arguments;
use crate::say;
use background::Background;
use channel::Receiver;
use client::{Question, Target};
use manylane_config::tree::WorkerFails;
use manylane_proxy::Generation;
use nix::sys::signal::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};
use worker::{Worker, WorkerReport};

/// What the master is told.
enum Event {
    /// The pause behind the crash of that number is over.
    Restart(u32),
    Signal(i32),
    /// The worker of that number accepts, or never will.
    WorkerReport(u32, WorkerReport),
    /// A client of the master CLI wants to know or to have something.
    Asks(Question),
}

struct Master {
    arguments: Arguments,
    /// Found when the process started: what is there later may be another version.
    program: PathBuf,
    events: Sender<Event>,
    began: Instant,
    current: Option<Worker>,
    /// Does not accept yet; what it told when it never will.
    starting: Option<Worker>,
    last_words: Option<WorkerReport>,
    /// Were told to finish.
    former: Vec<Worker>,
    /// Reloads that were asked for, and those that failed since the last that did not.
    reloads: u32,
    failed: u32,
    /// There is to be another reload, and who waits for it; who waits for the one that is under way.
    again: bool,
    next: Vec<Sender<Outcome>>,
    waiting: Vec<Sender<Outcome>>,
    /// What was said since the last reload, or the start, began; what had been said when it was over.
    said: String,
    said_at_start: String,
    /// Where the master CLI listens, for its workers.
    listens: String,
    /// Who waits for the first worker.
    background: Option<Background>,
    fails: WorkerFails,
    /// A worker has served: those that follow take nothing over from processes of before the master.
    served: bool,
    /// Crashes in a row, of workers that did not last for [`LASTING`], and their number since the master
    /// began.
    in_a_row: u32,
    crashes: u32,
    /// There is a pause before the next worker is started.
    pauses: bool,
    ends: bool,
    code: u8,
    quiet: bool,
}

/// How long the master pauses before it replaces a worker that crashed (`restart-on-crash`): clients shall
/// not wait long for the first time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The pause doubles with each crash in a row up to this: a file or a client that brings each worker down
/// must not keep the machine busy.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A worker that served for so long does not crash in a row with the one before.
const LASTING: Duration = Duration::from_secs(60);

/// The pause behind that many crashes in a row.
fn pause(in_a_row: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(1_u32.checked_shl(in_a_row.saturating_sub(1)).unwrap_or(u32::MAX))
        .min(LONGEST_PAUSE)
}

/// Whether a reload has brought a worker that serves, and what was said meanwhile.
type Outcome = (bool, String);

/// What a master goes by.
pub(crate) struct Plan {
    arguments: Arguments,
    pidfile: Option<PathBuf>,
    fails: WorkerFails,
    quiet: bool,
}

impl Plan {
    /// By the files of `generation`, of which nothing else is needed.
    pub(crate) fn new(arguments: &Arguments, generation: &Generation) -> Self {
        let process = &generation.process;
        Self {
            arguments: arguments.clone(),
            pidfile: arguments.pidfile.clone().or_else(|| process.pidfile.clone()),
            fails: process.master_worker.unwrap_or(WorkerFails::Exit),
            quiet: arguments.quiet || process.quiet && !arguments.verbose,
        }
    }
}

/// Runs the master until its last worker has ended.
///
/// # Errors
/// Why it could not begin.
pub(crate) fn run(plan: Plan) -> Result<ExitCode, String> {
    let Plan { arguments, pidfile, fails, quiet } = plan;
    let background = arguments.background.map(Background::new).transpose()?;
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find the program's own file: {error}"))?;
    let (events, told) = channel();
    let sockets = client::bind(&arguments.master_sockets)?;
    if let Some(path) = &pidfile {
        std::fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|error| format!("Cannot create pidfile {}: {error}", path.display()))?;
    }
    watch_signals(events.clone()).map_err(|error| format!("cannot watch signals: {error}"))?;
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
        background,
        fails,
        served: false,
        in_a_row: 0,
        crashes: 0,
        pauses: false,
        ends: false,
        code: 0,
        quiet,
    };
    master.start().map_err(|error| format!("cannot start the worker: {error}"))?;
    let _bound = client::serve(sockets, &events)?; // until the end
    master.run(&told);
    Ok(ExitCode::from(master.code))
}

/// A thread that waits for signals and tells them. Those that HAProxy's master leaves alone are no end of
/// this one; of what SIGQUIT asks for, the use of memory, each process tells its own.
fn watch_signals(events: Sender<Event>) -> std::io::Result<()> {
    let all = [SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGTTOU, SIGTTIN, SIGQUIT];
    let mut signals = Signals::new(all)?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGQUIT {
                eprint!("{}", manylane_control::pools());
            } else if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

impl Master {
    fn run(&mut self, told: &Receiver<Event>) {
        while let Ok(event) = told.recv() {
            match event {
                Event::Signal(SIGUSR2 | SIGHUP) => self.reload(None),
                Event::Signal(SIGCHLD) => self.reap(),
                Event::Signal(SIGUSR1) => self.end(Signal::SIGUSR1),
                Event::Signal(SIGTERM) => self.end(Signal::SIGTERM),
                Event::Signal(SIGINT) => self.end(Signal::SIGINT),
                Event::Signal(_) => {}
                Event::WorkerReport(pid, told) => self.told(pid, told),
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

    /// Starts a worker, which takes over from the one there is.
    fn start(&mut self) -> std::io::Result<()> {
        let events = self.events.clone();
        let told = move |pid, told| {
            let _ = events.send(Event::WorkerReport(pid, told)); // the master may have ended
        };
        let mut environment = vec![("HAPROXY_STARTUP_VERSION", env!("CARGO_PKG_VERSION").into())];
        if !self.listens.is_empty() {
            environment.push(("HAPROXY_MASTER_CLI", self.listens.clone().into()));
        }
        let (before, first) = (self.current.as_ref(), !self.served);
        let worker = Worker::start(&self.program, &self.arguments, before, first, &environment, told)?;
        self.say("NOTICE", format_args!("New worker ({}) forked", worker.pid()));
        self.starting = Some(worker);
        self.pauses = false;
        Ok(())
    }

    /// A worker has crashed, and nobody serves: another one is started, after a pause.
    fn crashed(&mut self) {
        self.crashes = self.crashes.wrapping_add(1);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let (pause, crash, events) = (pause(self.in_a_row), self.crashes, self.events.clone());
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

    /// The pause behind that crash is over.
    fn restart(&mut self, crash: u32) {
        // A reload may have come before.
        if !self.pauses || self.ends || crash != self.crashes {
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

    /// Another worker is wanted.
    fn reload(&mut self, asker: Option<Sender<Outcome>>) {
        self.next.extend(asker);
        self.again = true;
        self.reload_next();
    }

    /// Begins the next reload, if one is wanted and none is under way.
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

    /// A worker tells: if it is the one that was started last, it takes over, or it ends.
    fn told(&mut self, pid: u32, told: WorkerReport) {
        let Some(mut worker) = self.starting.take_if(|worker| worker.pid() == pid) else { return };
        if !told.accepts {
            (self.starting, self.last_words) = (Some(worker), Some(told));
            return self.reap(); // its end may have been told before
        }
        say::add(&mut self.said, &told.said);
        self.say("NOTICE", format_args!("Loading success."));
        if let Some(background) = self.background.take() {
            background.leave();
        }
        let most = told.most_reloads;
        worker.told = told;
        if self.ends {
            worker.signal(Signal::SIGUSR1); // who is told to finish before it can hear that
        }
        (self.failed, self.served) = (0, true);
        if !self.ends {
            self.code = 0; // of a worker whose place it takes
        }
        if let Some(before) = self.current.replace(worker) {
            before.signal(Signal::SIGUSR1);
            self.former.push(before);
        }
        for worker in self.former.iter().filter(|worker| most.is_some_and(|most| worker.reloads > most)) {
            worker.signal(Signal::SIGTERM);
        }
        self.notify(|| notify::ready("Ready."));
        self.over(true);
        self.reap(); // it may have ended since
    }

    /// The worker that was started does not accept.
    fn has_failed(&mut self) {
        self.failed += 1;
        self.say("WARNING", format_args!("Loading failure!"));
        if self.current.is_some() {
            self.notify(|| notify::ready("Reload failed!"));
        }
        self.over(false);
    }

    /// A reload, or the start, is over.
    fn over(&mut self, good: bool) {
        self.said_at_start.clone_from(&self.said);
        for asker in self.waiting.drain(..) {
            let _ = asker.send((good, self.said.clone())); // it may be gone
        }
        self.reload_next();
    }

    /// Looks which workers have ended.
    fn reap(&mut self) {
        let ended = |worker: &mut Worker| worker.child.try_wait().ok().flatten();
        let mut place = 0;
        while place < self.former.len() {
            match ended(&mut self.former[place]) {
                Some(status) => {
                    let worker = self.former.swap_remove(place);
                    self.tell_end("Former", worker.pid(), status);
                }
                None => place += 1,
            }
        }
        if let Some(status) = self.current.as_mut().and_then(ended) {
            let lasted = self.current.as_ref().is_some_and(|worker| worker.began.elapsed() >= LASTING);
            let pid = self.current.take().map_or(0, |worker| worker.pid());
            let code = self.tell_end("Current", pid, status);
            // The usual ends are 0 and SIGTERM; SIGINT is told, as by HAProxy.
            if !matches!(code, 0 | 143) {
                self.code = code;
            }
            // That somebody ended it is no failure of its own.
            if !matches!(code, 0 | 130 | 143) && !self.ends {
                if self.fails == WorkerFails::Restart {
                    if lasted {
                        self.in_a_row = 0;
                    }
                    // A reload that is under way brings the next; should it fail, that is told below.
                    if self.starting.is_none() {
                        self.crashed();
                    }
                } else if self.fails == WorkerFails::Exit {
                    self.say("ALERT", format_args!("exit-on-failure: killing every processes with SIGTERM"));
                    self.ends = true;
                    self.workers().for_each(|worker| worker.signal(Signal::SIGTERM));
                }
            }
        }
        // Once it has told, too: nobody who asks why shall miss its words.
        if self.last_words.is_some()
            && let Some(status) = self.starting.as_mut().and_then(ended)
        {
            say::add(&mut self.said, &self.last_words.take().unwrap_or_default().said);
            let pid = self.starting.take().map_or(0, |worker| worker.pid());
            let code = self.tell_end("New", pid, status);
            if self.current.is_none() && !self.ends {
                self.code = if code == 0 { 1 } else { code };
                if self.fails == WorkerFails::Restart && self.served {
                    self.crashed();
                }
            }
            self.has_failed();
        }
    }

    /// Says how a worker ended; as a code of its own.
    fn tell_end(&mut self, which: &str, pid: u32, status: ExitStatus) -> u8 {
        let signal = status.signal();
        let code = status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(1);
        let how =
            signal.map_or("Exit", |signal| signal_hook::low_level::signal_name(signal).unwrap_or("signal"));
        let severity = if code == 0 || which == "Former" { "WARNING" } else { "ALERT" };
        self.say(severity, format_args!("{which} worker ({pid}) exited with code {code} ({how})"));
        u8::try_from(code).unwrap_or(1)
    }

    /// All workers are told to end.
    fn end(&mut self, signal: Signal) {
        self.say("WARNING", format_args!("Exiting Master process..."));
        self.notify(|| notify::notify("STOPPING=1\n"));
        self.ends = true;
        self.workers().for_each(|worker| worker.signal(signal));
    }

    /// Answers a client, which may be gone.
    fn answer(&mut self, question: Question) {
        let _ = match question {
            Question::Reload(answer) => return self.reload(Some(answer)),
            Question::Processes(answer) => answer.send(self.processes()),
            Question::Failed(answer) => answer.send(self.failed > 0),
            Question::Said(answer) => answer.send(self.said_at_start.clone()),
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

    /// `show proc`
    fn processes(&self) -> String {
        let own = std::process::id().to_string();
        let reloads = format!("{} [failed: {}]", self.reloads, self.failed);
        let mut text = row(["#<PID>", "<type>", "<reloads>", "<uptime>", "<version>"]);
        text += &row([&own, "master", &reloads, &uptime(self.began), env!("CARGO_PKG_VERSION")]);
        let of = |worker: &Worker| {
            let (pid, reloads) = (worker.pid().to_string(), worker.reloads.to_string());
            row([&pid, "worker", &reloads, &uptime(worker.began), &worker.told.version])
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

/// A row of `show proc`.
fn row([pid, kind, reloads, uptime, version]: [&str; 5]) -> String {
    format!("{pid:<15} {kind:<15} {reloads:<15} {uptime:<15} {version:<15}\n")
}

/// As HAProxy writes it.
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
        let all: Vec<u128> =
            [1, 2, 3, 9, 10, 33, u32::MAX].map(|crashes| pause(crashes).as_millis()).to_vec();
        assert_eq!(all, [100, 200, 400, 25_600, 30_000, 30_000, 30_000]);
    }
}
