//! From the command line to running lanes.

use crate::arguments::{self, Arguments, Master, usage};
use crate::background::{Background, to_background};
use crate::jobs::JobThread;
use crate::master::{self, Joined};
use crate::supervise::{self, Ending, Reloads, Services, StopServices, Work};
use crate::system::PidFile;
use crate::{environment, exists, memory, reload, say, system, version, watchdog};
use manylane_config::cond::evaluate_option;
use manylane_config::diag::{Check, ExitCode as Code, Outcome, Severity};
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_control::{BoundSockets, Control, Metrics, ProcessInfo};
use manylane_io::{DriverChoice, Io, Kind};
use manylane_lanes::BoundListener;
use manylane_net::hand_over::NotHandedOver;
use manylane_net::{Address, Bound, Endpoint, HandedOver, Rules};
use manylane_plan::Generation;
use manylane_plan::generation::{Process, RuntimeSocket, StartOptions};
use manylane_sync::Arc;
use manylane_sync::atomic::{AtomicBool, Ordering};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// When the program began.
static BEGAN: OnceLock<Instant> = OnceLock::new();

/// Does what the arguments ask for.
pub(crate) fn start(arguments: &Arguments) -> ExitCode {
    BEGAN.get_or_init(Instant::now);
    let Some(joined) = arguments.worker else { return run(arguments) };
    joined.keep();
    say::keep();
    let code = run(arguments);
    // A worker that has served has reported already, and the master ignores this.
    joined.tell(false, None, None);
    code
}

fn run(arguments: &Arguments) -> ExitCode {
    if arguments.version || arguments.build {
        print!("{}", if arguments.build { version::long(arguments) } else { version::short() });
        return ExitCode::SUCCESS;
    }
    if let Some(words) = &arguments.help {
        return help(words);
    }
    if let Some(condition) = &arguments.condition {
        return self::condition(condition.as_bytes(), arguments);
    }
    // The process that started this one in the background has changed the folder already.
    if let Some(folder) = arguments.folder.as_ref().filter(|_| arguments.background.is_none())
        && let Err(error) = std::env::set_current_dir(folder)
    {
        alert(arguments, format_args!("Could not change to directory {} : {error}", folder.display()));
        return ExitCode::from(1);
    }
    if arguments.files.is_empty() {
        if *arguments == Arguments::default() {
            eprint!("{}", usage());
        } else {
            say::introduced();
            alert(arguments, "expected a configuration, found none: name a file or a folder by '-f <path>'");
        }
        return ExitCode::from(1);
    }
    let generation = match read_first(arguments) {
        Ok(generation) => generation,
        Err(code) => return code,
    };
    let alone = arguments.worker.is_none();
    let wants_master = alone && (arguments.master.is_some() || generation.process.master_worker.is_some());
    // What a pipe has given is lost for another process.
    let starts_another =
        arguments.background.is_none() && (wants_master || reload::pipe(arguments).is_none());
    let outcome = if !arguments.master_sockets.is_empty() && alone && !wants_master {
        Err("'-S' expects a master, found none: add '-W', '-Ws' or 'master-worker'".to_owned())
    } else if alone && is_for_background(arguments, &generation.process) && starts_another {
        drop(generation);
        to_background().map_err(|error| format!("Cannot go to the background: {error}"))
    } else if wants_master {
        let plan = master::Plan::new(arguments, &generation);
        drop(generation); // the worker reads its own
        master::run(plan)
    } else {
        begin(arguments, generation)
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            alert(arguments, format_args!("[manylane.main()] {error}"));
            ExitCode::from(1)
        }
    }
}

/// Writes the error that ends the start. With `-q` only the exit code tells it.
fn alert(arguments: &Arguments, message: impl Display) {
    if !arguments.quiet {
        say::alert(message);
    }
}

/// Returns true if only fatal errors are written.
fn is_quiet(arguments: &Arguments, process: &Process) -> bool {
    arguments.quiet || process.quiet && !arguments.verbose
}

/// Returns true if the process, or its master, is to go to the background. With `-Ws` it stays, as in
/// HAProxy: a service manager follows the process that it has started.
fn is_for_background(arguments: &Arguments, process: &Process) -> bool {
    let stays = arguments.foreground || arguments.master == Some(Master::Notifies);
    (arguments.daemon || process.daemon) && !stays
}

fn help(words: &[std::ffi::OsString]) -> ExitCode {
    if words.is_empty() {
        print!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let name: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let name = name.join(" ");
    match if name.starts_with('-') { arguments::help(&name) } else { manylane_config::help::help(&name) } {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("{text}");
            ExitCode::from(1)
        }
    }
}

fn condition(text: &[u8], arguments: &Arguments) -> ExitCode {
    let environment = environment::before(&Sources::new(), arguments.local_peer.as_deref());
    match evaluate_option(text, &environment, &version::in_use(arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(Code::Error as u8),
        Err(error) => {
            say::alert(format_args!("config : Failed to evaluate condition: {error}"));
            ExitCode::from(Code::Unusable as u8)
        }
    }
}

/// A configuration that was read.
pub(crate) struct Read {
    pub(crate) generation: Generation,
    pub(crate) outcome: Outcome,
    /// Messages about it, one per line.
    pub(crate) said: String,
    alerts: usize,
}

/// Refuses folders without files. `what` names them.
///
/// # Errors
/// A sentence.
pub(crate) fn has_files(sources: &Sources, what: &str) -> Result<(), String> {
    match sources.files().next() {
        Some(_) => Ok(()),
        None => Err(format!("{what} expects files whose names end in .cfg in its folders, found none")),
    }
}

/// Reads and checks the files that the arguments name, to replace `before`.
///
/// # Errors
/// A file could not be read.
pub(crate) fn read_files(arguments: &Arguments, before: Option<&Generation>) -> Result<Read, String> {
    let mut sources = Sources::new();
    for path in &arguments.files {
        sources.load(path).map_err(|error| error.to_string())?;
    }
    has_files(&sources, "option '-f'")?;
    let size = memory::Size { bytes: sources.bytes(), proxies: sources.proxies() };
    memory::has_room_for(size)?;
    let mut environment = environment::before(&sources, arguments.local_peer.as_deref());
    environment::tell_master(&mut environment, arguments);
    let mut loaded = load(&sources, &version::in_use(arguments), environment, arguments.diagnose);
    environment::tell_sockets(&mut loaded.config);
    // A later worker learns of the one before by the pair of sockets that the master gives it: the master
    // itself tells that one to finish.
    let of_master = |sockets: &OsString| sockets.as_bytes().starts_with(b"sockpair@");
    let replaces_a_worker =
        arguments.worker.is_some() && arguments.predecessor.as_ref().is_some_and(of_master);
    let wishes = StartOptions {
        ignore_unresolved: arguments.ignore_unresolved,
        no_splice: arguments.no_splice,
        no_reuse_port: arguments.no_reuse_port,
        no_lookups: false,
        follows: !arguments.finish.is_empty() || replaces_a_worker,
    };
    let mut generation = Generation::build_after(&loaded.config, wishes, before, &mut loaded.found);
    exists::check(&loaded.config, &mut loaded.found);
    memory::read(size);
    let strict = arguments.warnings_are_errors || generation.process.zero_warning;
    let check =
        Check { warnings_are_errors: strict, has_listener: generation.listens(), verbose: arguments.verbose };
    let pid = std::process::id();
    let outcome = loaded.found.outcome(&sources, pid, check);
    let (said, alerts) = (loaded.found.render(&sources, pid), loaded.found.count(Severity::Alert));
    generation.said = said.as_str().into();
    // In the background standard error has no reader.
    if !is_for_background(arguments, &generation.process) && !is_quiet(arguments, &generation.process) {
        generation.logs.open_console();
    }
    Ok(Read { generation, outcome, said, alerts })
}

/// Calls [`read`] at the start. If memory is limited, it runs on a thread of its own: the allocator gives a
/// thread's remaining memory to others, so the next generation but one reuses the memory of this one.
fn read_first(arguments: &Arguments) -> Result<Generation, ExitCode> {
    if !manylane_pool::reserve::is_plain() {
        return read(arguments);
    }
    memory::measure();
    let reader = std::thread::Builder::new().name("files".into());
    std::thread::scope(|scope| match reader.spawn_scoped(scope, || read(arguments)) {
        Ok(thread) => thread.join().unwrap_or(Err(ExitCode::FAILURE)), // the panic hook has reported it
        Err(_) => read(arguments),
    })
}

/// Reads and checks the configuration. The error is the exit code, if the arguments ask only for a check or
/// the configuration is unusable.
fn read(arguments: &Arguments) -> Result<Generation, ExitCode> {
    let Read { generation, outcome, said, alerts } = read_files(arguments, None).map_err(|error| {
        alert(arguments, format_args!("config : {error}"));
        ExitCode::from(1)
    })?;
    let quiet = is_quiet(arguments, &generation.process);
    // With `-q` nothing is written; the exit code tells the result.
    // The process that started this one in the background has written the messages.
    let reported = arguments.background.is_some() && outcome.code == Code::Ok;
    if !reported && (!quiet || !arguments.quiet && (alerts > 0 || outcome.code == Code::Error)) {
        say::text(&format!("{said}{}", outcome.errors));
    }
    if arguments.check {
        if !quiet {
            print!("{}", outcome.summary);
        }
        return Err(ExitCode::from(outcome.code as u8));
    }
    match outcome.code {
        Code::Ok => Ok(generation),
        Code::Error => Err(ExitCode::from(1)),
        Code::Unusable => {
            alert(
                arguments,
                "[manylane.main()] No enabled listener found (check for 'bind' directives) ! Exiting.",
            );
            Err(ExitCode::from(1))
        }
    }
}

/// Binds the run-time socket of a worker that its master uses.
fn for_master(joined: Joined) -> Result<(Arc<[RuntimeSocket]>, Vec<Bound>), String> {
    let named = master::run_time_sockets(&[joined.socket()])?;
    let bound = manylane_control::bind(&named, system::owner, &mut HandedOver::default());
    Ok((named, bound.map_err(|failures| failures.join("; "))?))
}

/// Asks another process for its sockets.
fn take_over(at: &OsStr) -> Result<HandedOver, String> {
    let failed = |error: &dyn Display| {
        format!("Failed to get the sockets from the old process at '{}': {error}.", at.to_string_lossy())
    };
    let text = at.to_string_lossy();
    let endpoints = match text.contains('@') {
        true => {
            let address = Address::parse(&text, &Rules::SERVER).map_err(|error| failed(&error))?;
            address.endpoints().map_err(|error| failed(&error))?
        }
        false => vec![Endpoint::Unix(at.into())], // a path, wherever it begins
    };
    let Some(endpoint) = endpoints.first() else { return Err(failed(&NotHandedOver::NotUnix)) };
    let handed_over = match HandedOver::ask(endpoint) {
        // A worker that hangs has to be replaceable: the sockets are bound beside its own.
        Err(error @ (NotHandedOver::Silent(_) | NotHandedOver::Behind))
            if matches!(endpoint, Endpoint::SocketPair(_)) =>
        {
            say::warning(format_args!("{} Its addresses are bound anew.", failed(&error)));
            HandedOver::default()
        }
        answer => answer.map_err(|error| failed(&error))?,
    };
    // The descriptor was inherited only for this; it gives all rights on that process.
    if let Endpoint::SocketPair(number) = endpoint {
        let _ = nix::unistd::close(*number);
    }
    Ok(handed_over)
}

/// Binds sockets, changes the identity of the process, and runs.
fn begin(arguments: &Arguments, mut generation: Generation) -> Result<ExitCode, String> {
    let process = generation.process.clone();
    let background = arguments.background.map(Background::new).transpose()?;
    let lanes = process.lane_count().map_err(|error| format!("cannot count the processors: {error}"))?;
    system::renice("startup", process.nice_at_start);
    if let Some(megabytes) = arguments.megabytes {
        system::memory(megabytes, lanes)?;
    }
    system::keep_memory()?;
    generation.set_maxconn(system::limits(&generation, lanes, arguments.maxconn)?);
    generation.descriptors = system::descriptors();
    let mut handed_over = match &arguments.predecessor {
        Some(at) => take_over(at)?,
        None => HandedOver::default(),
    };
    let bound =
        manylane_lanes::bind(&generation, lanes, system::owner, &mut handed_over).map_err(|failures| {
            for failure in &failures {
                alert(arguments, failure);
            }
            "Some protocols failed to start their listeners! Exiting.".to_owned()
        })?;
    let sockets = manylane_control::bind(&generation.process.stats_sockets, system::owner, &mut handed_over)
        .map_err(|failures| {
            for failure in &failures {
                alert(arguments, failure);
            }
            "Some sockets of the run-time interface could not be opened! Exiting.".to_owned()
        })?;
    let of_master = match arguments.worker {
        Some(joined) => Some(for_master(joined)?),
        None => None,
    };
    manylane_sched::set_profiling(process.profiling);
    let identity = system::Identity::new(&process)?;
    generation.acme.make_account_keys(identity.owner())?; // while the process has the rights of its start
    let driver = if arguments.no_epoll {
        DriverChoice::Only(Kind::IoUring)
    } else {
        DriverChoice::from_environment().map_err(|error| error.to_string())?
    };
    // A master has these files itself.
    let alone = arguments.worker.is_none();
    let pidfile = arguments.pidfile.as_ref().or(process.pidfile.as_ref()).filter(|_| alone);
    let pidfile = pidfile.map(|path| PidFile::open(path)).transpose()?;
    // A worker of a master in the background keeps the terminal until it serves.
    let silent = !alone && is_for_background(arguments, &process);
    let nowhere = silent.then(system::nowhere).transpose()?;
    // Everything is bound and checked; from here on other processes see changes.
    let begun = handed_over.begin(identity.gives_rights_up(process.chroot.is_some()));
    let begun = begun.map_err(|error| error.to_string())?;
    // Its files are pipes, so no other process has started this one.
    if alone && is_for_background(arguments, &process) && background.is_none() {
        nix::unistd::daemon(true, false).map_err(|error| format!("Cannot go to the background: {error}"))?;
    }
    system::renice("runtime", process.nice); // while it is permitted; lanes inherit it
    // A thread, so it cannot start before the process goes to the background.
    let files = JobThread::for_files(process.chroot.is_some(), !process.insecure_setuid);
    system::keep_descriptors_from_children();
    identity.assume(process.chroot.as_deref())?;
    if !process.insecure_setuid {
        system::no_new_rights();
    }
    if process.dumpable {
        system::dumpable();
    }
    if let Some(joined) = arguments.worker {
        joined.end_with_master()?;
    }
    let quiet = is_quiet(arguments, &process);
    // Chosen with the rights and under the system-call filters that the lanes will have.
    let or_epoll = driver == DriverChoice::Auto;
    let (driver, unsuitable) = driver.settle();
    if let Some(unsuitable) = unsuitable.filter(|_| !quiet) {
        say::notice(format_args!("{unsuitable}; the driver is {driver}"));
    }
    // Threads, so they cannot start before the process goes to the background.
    let says = JobThread::to_say()?;
    // The watchdog itself writes nothing: while standard error is not read, it would check no lane and delay
    // the end. One warning waits at a time.
    let (tells, waits) = (says.clone(), Arc::new(AtomicBool::new(false)));
    // The process also serves without a watchdog, for instance under a debugger that keeps the signal for
    // itself.
    let _watchdog = watchdog::start(process.warn_blocked, move |stuck| {
        manylane_control::stuck();
        if quiet || waits.swap(true, Ordering::Relaxed) {
            return;
        }
        let (stuck, waits) = (stuck.trim_end().to_owned(), waits.clone());
        let _ = tells.run(move || {
            say::warning(stuck);
            waits.store(false, Ordering::Relaxed);
        });
    })
    .inspect_err(|error| say::warning(format_args!("The watchdog does not run: {error}")))
    .ok();
    let (verbose, joined, most_reloads) = (arguments.verbose, arguments.worker, process.most_reloads);
    let longest_stop = process.longest_stop();
    let (finish, terminate) = (arguments.finish.clone(), arguments.terminate.clone());
    let started = move || {
        memory::serves();
        // Whoever reads the number may send a signal, which is handled by now.
        if let Some(Err(error)) = pidfile.map(PidFile::write) {
            say::alert(error);
        }
        for (list, signal) in [(finish, Signal::SIGUSR1), (terminate, Signal::SIGTERM)] {
            for pid in list {
                let _ = kill(Pid::from_raw(pid), signal); // the process may have ended already
            }
        }
        say::introduced();
        if verbose {
            say::notice(format_args!("{lanes} lanes are ready"));
        }
        if let Some(joined) = joined {
            joined.tell(true, most_reloads, longest_stop);
        }
        nowhere.iter().for_each(system::leave_the_terminal);
        if let Some(background) = background {
            background.leave();
        }
    };
    let info = ProcessInfo {
        version: env!("CARGO_PKG_VERSION"),
        released: crate::version::RELEASED,
        lanes,
        megabytes: arguments.megabytes,
        descriptors: system::descriptors(),
        boot: BEGAN.get().map_or(Duration::ZERO, Instant::elapsed),
        started: Instant::now(),
        since: SystemTime::now(),
    };
    generation.changes = Some(Arc::new(supervise::StartOptions));
    generation.pages = Some(Arc::new(Metrics::new(info.clone())));
    let generation = Arc::new(generation);
    let current = Rc::new(RefCell::new(generation.clone()));
    let process = || manylane_control::Process {
        info: info.clone(),
        reload: Box::new(|| Box::pin(supervise::reload())),
        change: Box::new(|change| Box::pin(supervise::change(change))),
    };
    let sockets = BoundSockets::from(sockets);
    let control = Control::new(current.clone(), process()).hands_over(sockets.clone());
    let of_master = of_master.map(|(named, bound)| {
        let control = Control::over(current.clone(), process(), named);
        (control.hands_over(sockets.clone()), bound)
    });
    let services = Some(Box::new(move |io: &Io| {
        if let Some((control, bound)) = of_master {
            control.serve(io, bound.into())?;
        }
        control.serve(io, sockets.clone())?;
        Ok(Box::new(move || sockets.close()) as StopServices)
    }) as Services);
    let again = arguments.clone();
    let reread = Box::new(move |before: (&Generation, &[BoundListener])| reload::read(&again, lanes, before));
    let work = Work {
        generation,
        bound,
        lanes,
        driver: DriverChoice::Only(driver),
        or_epoll,
        quiet,
        says,
        services,
        begun: Some(begun),
        reload: Some(Reloads { reread: Arc::new(reread), files, current }),
        joined,
    };
    match supervise::run(work, started) {
        Ending::Done => Ok(ExitCode::SUCCESS),
        Ending::Failed(error) => Err(error),
        Ending::Signal(signal) => {
            // The process ends as if it had not caught the signal, so that its parent sees the signal.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            Ok(ExitCode::SUCCESS)
        }
    }
}
