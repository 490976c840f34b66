//! A master process and its worker: `-W`, `-Ws`, `-S`, `master-worker`.

use crate::common;

use common::watch::{Haproxy, until};
use common::{Ended, Folder, TIMEOUT, Traffic, command, held_pipe, own_address, status_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A master, the output of it and its workers, and the path of its socket.
struct Master {
    child: Ended,
    folder: Folder,
    said: Receiver<String>,
}

impl Master {
    /// Starts it with this configuration and waits until its worker serves.
    fn start(config: &str, change: impl FnOnce(&mut Command)) -> Self {
        let master = Self::begin(config, change);
        master.hears("Loading success.");
        master
    }

    fn begin(config: &str, change: impl FnOnce(&mut Command)) -> Self {
        Self::begin_program(command(), config, change)
    }

    fn begin_program(mut program: Command, config: &str, change: impl FnOnce(&mut Command)) -> Self {
        let folder = Folder::new();
        program.arg("-f").arg(folder.file("test.cfg", config)).arg("-S").arg(folder.0.join("master"));
        change(&mut program);
        let mut child = Ended(program.stderr(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(child.0.stderr.take().unwrap()).lines();
        let (tell, said) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                eprintln!("{line}");
                let _ = tell.send(line); // the receiver may be gone
            }
        });
        Self { child, folder, said }
    }

    /// Waits for a line.
    fn hears(&self, what: &str) -> String {
        loop {
            let line = self.said.recv().unwrap_or_else(|_| panic!("nobody said '{what}'"));
            if line.contains(what) {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.0.id() as i32), signal).unwrap();
    }

    fn write(&self, config: &str) {
        self.folder.file("test.cfg", config);
    }

    /// Returns the response to lines.
    fn ask(&self, lines: &str) -> String {
        answer_at(&self.folder.0.join("master"), lines)
    }

    /// Reloads; `well` says whether that succeeds. Returns the messages.
    fn reloads(&self, well: bool) -> String {
        let answer = self.ask("reload");
        let said = answer.strip_prefix(if well { "Success=1\n--\n" } else { "Success=0\n--\n" });
        said.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Rows of a part of `show proc`, as words.
    fn rows(&self, title: &str) -> Vec<Vec<String>> {
        let text = self.ask("show proc");
        let rows = text.lines().skip_while(|line| !line.starts_with(title)).skip(1);
        rows.take_while(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect()
    }

    /// PID of the serving worker.
    fn worker(&self) -> i32 {
        self.rows("# workers")[0][0].parse().unwrap()
    }

    /// Waits for its end and returns the exit code.
    fn ends(mut self) -> Option<i32> {
        until(|| self.child.0.try_wait().unwrap().is_some());
        self.child.0.wait().unwrap().code()
    }
}

/// Returns the response to lines at a socket.
fn answer_at(socket: &Path, lines: &str) -> String {
    let mut client = UnixStream::connect(socket).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(format!("{lines}\n").as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// With `noreuseport`, a new worker must get its sockets from the one before.
fn answering(address: SocketAddr, status: u16, global: &str) -> String {
    format!(
        "global\n noreuseport\n nbthread 2\n{global}defaults\n mode http\n timeout client 30s\n timeout \
            server 30s\n timeout connect 5s\n\
         frontend f\n bind {address}\n http-request return status {status}\n"
    )
}

/// Waits for the end of a connection, which may be a reset.
fn has_ended(client: &mut TcpStream) -> bool {
    let end = client.read_to_end(&mut Vec::new());
    end.is_ok() || end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

/// `debug dev log` of a worker, through the master's socket; only in expert mode.
#[test]
fn a_line_can_be_written_to_the_log_through_the_master() {
    let log = common::watch::Syslog::new();
    let global = format!(" log {} local0\n", log.address());
    let master = Master::start(&answering(own_address(), 200, &global), with_master);
    assert!(master.ask("@1 debug dev log not written: these words").contains("expert-mode"));
    assert_eq!(master.ask("expert-mode on; @1 debug dev log these words").trim(), "");
    let line = log.wait("these words");
    assert!(line.starts_with("<134>") && line.ends_with("]: these words"), "{line}"); // local0.info
}

/// Ten clients are served at once. The next is, when one leaves.
#[test]
fn as_many_clients_as_the_bound_says_are_served_at_once() {
    let master = Master::start(&answering(own_address(), 200, ""), with_master);
    let path = master.folder.0.join("master");
    let connects = || {
        let client = UnixStream::connect(&path).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client
    };
    let asks = |client: &mut UnixStream| client.write_all(b"prompt\nshow version\n").unwrap();
    // With a prompt the connection stays.
    let is_answered = |client: &mut UnixStream| {
        let mut got = Vec::new();
        while !String::from_utf8_lossy(&got).contains(env!("CARGO_PKG_VERSION")) {
            let mut part = [0; 4096];
            let n = client.read(&mut part).unwrap();
            assert!(n > 0, "the connection ended: {:?}", String::from_utf8_lossy(&got));
            got.extend_from_slice(&part[..n]);
        }
    };
    let mut served: Vec<_> = (0..10).map(|_| connects()).collect();
    served.iter_mut().for_each(asks);
    served.iter_mut().for_each(is_answered);
    let mut next = connects();
    asks(&mut next);
    for client in &mut served {
        client.write_all(b"show version\n").unwrap();
        is_answered(client);
    }
    next.set_nonblocking(true).unwrap();
    assert_eq!(next.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    next.set_nonblocking(false).unwrap();
    served.pop();
    is_answered(&mut next);
}

/// A process that continues when its test ends.
struct Stopped(i32);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0), Signal::SIGCONT);
    }
}

/// A client that leaves while its worker hangs makes room for the next one.
#[test]
fn clients_that_leave_a_worker_that_hangs_make_room_for_others() {
    let master = Master::start(&answering(own_address(), 200, ""), with_master);
    let worker = master.worker();
    kill(Pid::from_raw(worker), Signal::SIGSTOP).unwrap();
    let stopped = Stopped(worker);
    let lines = ["@1 show info", "operator; @1 show info", "@@1 show info", "@@1", "@1; show info"];
    let clients: Vec<_> = (lines.iter().cycle().take(10))
        .map(|line| {
            let mut client = UnixStream::connect(master.folder.0.join("master")).unwrap();
            client.write_all(format!("{line}\n").as_bytes()).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client
        })
        .collect();
    drop(clients);
    assert_eq!(master.ask("show version"), format!("{}\n\n", env!("CARGO_PKG_VERSION")));
    // Those that sent more than the worker takes leave, too.
    let fill = |mut client: UnixStream| {
        client.write_all(b"@@1\n").unwrap();
        client.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        while client.write(&[b'\n'; 8192]).is_ok() {}
        client
    };
    let full: Vec<_> = (0..10)
        .map(|_| UnixStream::connect(master.folder.0.join("master")).unwrap())
        .map(|client| std::thread::spawn(move || fill(client)))
        .collect();
    drop(full.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>());
    assert_eq!(master.ask("show version"), format!("{}\n\n", env!("CARGO_PKG_VERSION")));
    drop(stopped);
    // A worker that does not hang obeys a client that does not wait for the answer.
    let mut client = UnixStream::connect(master.folder.0.join("master")).unwrap();
    client.write_all(b"expert-mode on; @1 disable frontend f\n").unwrap();
    drop(client);
    until(|| master.ask("@1 show stat f 1 -1").contains(",PAUSED,"));
}

fn with_master(program: &mut Command) {
    program.arg("-W");
}

#[test]
fn workers_replace_each_other_under_traffic_and_nobody_is_lost() {
    let address = own_address();
    let master = Master::start(&answering(address, 200, ""), with_master);
    let traffic = Traffic::start(address, |_| true);
    let (reloads, mut workers) = (common::reloads(4), vec![master.worker()]);
    let mut descriptors = None;
    for turn in 0..reloads {
        traffic.goes_on();
        let status = 401 + turn as u16 % 3 * 2;
        master.write(&answering(address, status, ""));
        // By its CLI and by a signal, in turns.
        if turn % 2 == 0 {
            master.reloads(true);
        } else {
            master.signal(Signal::SIGUSR2);
        }
        master.hears("Former worker");
        assert_eq!(status_of(address), Ok(status));
        workers.push(master.worker());
        // Descriptors of ended workers and clients are closed.
        let most = *descriptors.get_or_insert_with(|| common::descriptors(master.child.0.id()) + 2);
        until(|| common::descriptors(master.child.0.id()) <= most);
    }
    traffic.ends_well();
    workers.dedup();
    assert_eq!(workers.len(), reloads + 1);
    assert!(master.ask("show proc").contains(&format!(" master          {reloads} [failed: 0] ")));
    assert!(master.rows("# old workers").is_empty());
    master.signal(Signal::SIGUSR1);
    assert_eq!(master.ends(), Some(0));
}

#[test]
fn a_bad_file_leaves_the_worker_that_there_is() {
    let address = own_address();
    let master = Master::start(&answering(address, 200, ""), with_master);
    let worker = master.worker();
    master.write("global\n nonsense\n");
    let said = master.reloads(false);
    for what in [
        "[NOTICE]",
        "Reloading\n",
        "unknown keyword 'nonsense'",
        "exited with code 1 (Exit)",
        "Loading failure!\n",
    ] {
        assert!(said.contains(what), "{what}: {said}");
    }
    assert_eq!(master.ask("show startup-logs"), said);
    master.hears("unknown keyword 'nonsense'");
    assert_eq!((master.worker(), status_of(address)), (worker, Ok(200)));
    assert!(master.ask("show proc").contains(" master          1 [failed: 1] "));
    assert_eq!(master.ask("prompt"), "master[ReloadFailed]> ");
    // A signal does the same; a corrected file is served.
    master.write(&answering(address, 404, ""));
    for (signal, reloads) in [(Signal::SIGUSR2, 2), (Signal::SIGHUP, 3)] {
        master.signal(signal);
        master.hears("Former worker");
        assert!(master.ask("show proc").contains(&format!(" master          {reloads} [failed: 0] ")));
        assert_eq!(status_of(address), Ok(404));
    }
    assert_ne!(master.worker(), worker);
    master.signal(Signal::SIGTERM);
    assert_eq!(master.ends(), Some(0));
}

#[test]
fn the_end_of_a_worker_is_the_masters_and_the_masters_that_of_its_worker() {
    let config = answering(own_address(), 200, " master-worker\n");
    let master = Master::start(&config, |_| {});
    kill(Pid::from_raw(master.worker()), Signal::SIGKILL).unwrap();
    master.hears("exited with code 137 (SIGKILL)");
    master.hears("exit-on-failure: killing every processes with SIGTERM");
    master.hears("All workers exited. Exiting... (137)");
    assert_eq!(master.ends(), Some(137));
    // A worker that a signal stops has not failed.
    for signal in [Signal::SIGTERM, Signal::SIGUSR1] {
        let master = Master::start(&config, |_| {});
        // SIGUSR2 is for masters, and is often sent to all processes.
        kill(Pid::from_raw(master.worker()), Signal::SIGUSR2).unwrap();
        kill(Pid::from_raw(master.worker()), signal).unwrap();
        assert_eq!(master.ends(), Some(0));
    }
    // SIGINT is passed on, and its code is reported, whichever process gets it.
    for to_master in [true, false] {
        let master = Master::start(&config, |_| {});
        match to_master {
            true => master.signal(Signal::SIGINT),
            false => kill(Pid::from_raw(master.worker()), Signal::SIGINT).unwrap(),
        }
        master.hears("exited with code 130 (SIGINT)");
        master.hears("All workers exited. Exiting... (130)");
        assert_eq!(master.ends(), Some(130));
    }
    // A worker that cannot start.
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let master = Master::begin(&answering(taken.local_addr().unwrap(), 200, ""), with_master);
    master.hears("Loading failure!");
    assert_eq!(master.ends(), Some(1));
    // Without a master there is nothing to notify.
    let address = own_address();
    let mut master = Master::start(&answering(address, 200, ""), with_master);
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 8]).unwrap();
    master.child.0.kill().unwrap();
    assert!(has_ended(&mut client));
}

/// Set in the process that becomes the master.
const ADOPTS: &str = "MANYLANE_TEST_ADOPTS";

/// Runs the program as one that gets the processes whose parents have ended, as process 1 does.
fn adopt(words: &str) -> ! {
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let error = command().args(words.split('\n')).env_remove(ADOPTS).exec();
    panic!("{error}");
}

/// A check leaves a process behind. As process 1 of a container the master becomes its parent.
#[test]
fn a_master_reaps_processes_that_others_have_left() {
    if let Ok(words) = std::env::var(ADOPTS) {
        adopt(&words);
    }
    let folder = Folder::new();
    let (left, new, pipe) = (folder.0.join("left"), folder.0.join("new"), folder.0.join("pipe"));
    let _held = held_pipe(&pipe);
    let script = folder.script(
        "check.sh",
        &format!(
            "[ -e {left} ] && exit\ncat {pipe} > /dev/null 2>&1 &\necho $! > {new}\nmv {new} {left}",
            left = left.display(),
            new = new.display(),
            pipe = pipe.display()
        ),
    );
    let config = format!(
        "{}global\n external-check\nbackend b\n option external-check\n \
            external-check command {}\n server s 127.0.0.9:99 check inter 60s\n",
        answering(own_address(), 200, ""),
        script.display()
    );
    let (file, socket) = (folder.file("test.cfg", &config), folder.0.join("master"));
    let words = ["-W", "-f", file.to_str().unwrap(), "-S", socket.to_str().unwrap()].join("\n");
    let mut starter = Command::new(std::env::current_exe().unwrap());
    starter.args(["--exact", "--nocapture", "master::a_master_reaps_processes_that_others_have_left"]);
    let child = Ended(starter.env(ADOPTS, words).stdout(Stdio::null()).stdin(Stdio::null()).spawn().unwrap());
    let (_tell, said) = channel();
    let master = Master { child, folder, said };
    until(|| left.exists());
    let pid: i32 = std::fs::read_to_string(&left).unwrap().trim().parse().unwrap();
    // The check has ended when the master is the parent.
    let parent = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(status.lines().find_map(|line| line.strip_prefix("PPid:\t"))?.to_owned())
    };
    until(|| parent().is_some_and(|parent| parent == master.child.0.id().to_string()));
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    until(|| parent().is_none());
    // Checks may run before the master listens.
    until(|| UnixStream::connect(master.folder.0.join("master")).is_ok());
    assert_eq!(master.rows("# workers").len(), 1);
}

/// The master reports its memory use and continues.
#[test]
fn a_master_lives_through_sigquit() {
    let master = Master::start(&answering(own_address(), 200, ""), with_master);
    let worker = master.worker();
    master.signal(Signal::SIGQUIT);
    master.hears("Total: ");
    assert_eq!(master.worker(), worker);
}

/// The master has no reader of its messages, and hears later signals.
#[test]
fn a_master_hears_signals_after_sigquit_although_nobody_reads_its_messages() {
    let folder = Folder::new();
    let (socket, file) =
        (folder.0.join("master"), folder.file("test.cfg", &answering(own_address(), 200, "")));
    let (reader, writer) = std::io::pipe().unwrap();
    let mut program = command();
    program.arg("-W").arg("-S").arg(&socket).arg("-f").arg(file).stderr(writer);
    let child = Ended(program.spawn().unwrap());
    drop(program); // and with it this process's end of the pipe
    let mut lines = BufReader::new(reader).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("Loading success.")));
    drop(lines);
    let (_tell, said) = channel();
    let master = Master { child, folder, said };
    master.signal(Signal::SIGQUIT);
    master.signal(Signal::SIGTERM);
    assert_eq!(master.ends(), Some(0));
}

#[test]
fn a_worker_that_survives_too_many_reloads_is_ended() {
    let address = own_address();
    let config = format!(
        "global\n nbthread 1\n mworker-max-reloads 1\ndefaults\n timeout client 60s\n timeout server 60s\n \
            timeout connect 5s\n\
         listen l\n bind {address}\n server s {}\n",
        common::echo()
    );
    let master = Master::start(&config, with_master);
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let echoed = |client: &mut TcpStream| {
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
    };
    echoed(&mut client);
    let worker = master.worker().to_string();
    master.reloads(true);
    let old = master.rows("# old workers");
    assert_eq!((&*old[0][0], &*old[0][2], old.len()), (&*worker, "1", 1));
    echoed(&mut client);
    assert!(master.ask(&format!("@!{worker} show info")).contains(&format!("\nPid: {worker}\n")));
    master.reloads(true);
    master.hears(&format!("Former worker ({worker}) exited with code 143 (SIGTERM)"));
    assert!(has_ended(&mut client));
}

/// It follows the process that it has started, which stays in the foreground with `daemon`, too.
#[test]
fn the_service_manager_is_informed() {
    let folder = Folder::new();
    let path = folder.0.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let hears = || {
        let mut bytes = [0; 512];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let config = format!("global\n daemon\n{}", answering(own_address(), 200, ""));
    let master = Master::start(&config, |program| {
        program.arg("-Ws").env("NOTIFY_SOCKET", &path);
    });
    let ready = format!("READY=1\nMAINPID={}\nSTATUS=Ready.\n", master.child.0.id());
    assert_eq!(hears(), ready);
    master.signal(Signal::SIGUSR2);
    let reloading = hears();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(hears(), ready);
    master.write("nonsense\n");
    master.reloads(false);
    assert!(hears().starts_with("RELOADING=1\n"));
    assert!(hears().ends_with("STATUS=Reload failed!\n"));
    master.signal(Signal::SIGTERM);
    assert_eq!(hears(), "STOPPING=1\n");
    assert_eq!(master.ends(), Some(0));
}

#[test]
fn commands_go_to_the_process_that_they_name() {
    let config = answering(own_address(), 200, "") + " http-after-response set-header x %[var(proc.x)]\n";
    let folder = Folder::new();
    let low = folder.0.join("low");
    let master = Master::start(&config, |program| {
        program.args(["-W", "-S", &format!("{},level,user,mode,600", low.display())]);
        program.env("MANYLANE_TEST", "here");
    });
    let places = format!("unix@{};unix@{}", master.folder.0.join("master").display(), low.display());
    let (own, worker) = (master.child.0.id().to_string(), master.worker().to_string());
    let version = format!("{}\n\n", env!("CARGO_PKG_VERSION"));
    for (requested, answer) in [
        ("show version", &*version),
        ("@master show version", &version),
        ("@1 show version", &version),
        ("@1; show version; @; show version", &format!("{version}{version}")),
        ("@2 show version", "Can't find the target PID matching the prefix '@2'\n"),
        ("@!1 show version", "Can't find the target PID matching the prefix '@!1'\n"),
        (
            &format!("@!{own} show version"),
            &format!("Can't find the target PID matching the prefix '@!{own}'\n"),
        ),
        ("show cli level; operator; show cli level; user; show cli level", "admin\n\noperator\n\nuser\n\n"),
        ("operator; @1 show cli level", "operator\n\n"),
        ("user; reload", "Permission denied\n\n"),
        (
            "@1 experimental-mode; experimental-mode on; @1 experimental-mode",
            "experimental-mode is OFF\n\nexperimental-mode is ON\n\n",
        ),
        ("prompt\nexpert-mode on\n@1\nquit", &format!("master> master(e)> {worker}(e)> ")),
        ("prompt\nprompt i\nprompt p\nprompt\nshow version", &format!("master> master> {version}")),
        ("prompt timed i\nshow version", &version),
        ("echo a  b; show version; echo; @1 echo c", &format!("a b\n\n{version}\nc\n\n")),
        ("prompt n\nshow version", "'prompt [help | i | p | timed]*' changes"),
        ("prompt bogus\nshow version", "'prompt [help | i | p | timed]*' changes"),
        ("@1 show env HAPROXY_MWORKER", "HAPROXY_MWORKER=1\n\n"),
        ("@1 show env HAPROXY_STARTUP_VERSION", &format!("HAPROXY_STARTUP_VERSION={version}")),
        ("@1 show env HAPROXY_MASTER_CLI", &format!("HAPROXY_MASTER_CLI={places}\n\n")),
        ("@1 set var proc.x str(a\\;b)", "This command is restricted to experimental mode only."),
        ("experimental-mode on; @1 set var proc.x str(a\\;b)\n@1 get var proc.x", "a;b"),
        ("@1 add map nothing <<\na b\n\n", "Unknown map"),
        ("@@1 show version", &version),
        ("operator; @@1 show cli level", "operator\n\n"),
        ("@@1\nshow version\nquit", &format!("\n> {version}> ")),
        ("@@7 show version", "Can't find the target PID matching the prefix '@@7'\n"),
        ("@@master", "'@@' expects a worker, such as '@@1', or '@@!' and its pid.\n"),
        (
            "mcli-debug-mode; mcli-debug-mode on; mcli-debug-mode",
            "mcli-debug-mode is OFF\n\nmcli-debug-mode is ON\n\n",
        ),
        ("mcli-debug-mode on; show env MANYLANE_TEST", "MANYLANE_TEST=here\n\n"),
        ("mcli-debug-mode on; help", "show env [<name>...]"),
        ("user; mcli-debug-mode on", "Permission denied\n\n"),
        ("show env", "Unknown command"),
        ("show proc debug", " master          0 [failed: 0] "),
        ("show cli sockets", "# socket lvl processes\n"),
        ("show startup-logs", "Loading success.\n"),
        ("nonsense", "Unknown command"),
        // As in HAProxy: arguments of a command that takes none are ignored, at any prefix.
        ("show version x", &*version),
        ("@1; quit x; show version", ""),
        ("expert-mode x", "'expert-mode' expects 'on', 'off', or nothing to show the mode.\n\n"),
        ("help", "The following commands are valid at this level:\n"),
    ] {
        let said = master.ask(requested);
        let is_all = !["help", "show cli sockets", "show startup-logs"].contains(&requested);
        if answer.ends_with('\n') && is_all || answer.ends_with("> ") {
            assert_eq!(said, answer, "{requested}");
        } else {
            assert!(said.contains(answer), "{requested}: {said}");
        }
    }
    // The time since the start of the process that the prompt names.
    let timed = master.ask("prompt timed\n@1\nprompt timed");
    let parts: Vec<&str> = timed.split("[0:00:").collect();
    let [before, own_prompt, rest] = *parts else { panic!("{timed}") };
    assert_eq!((before, own_prompt.get(5..)), ("", Some("] master> ")), "{timed}");
    assert_eq!(rest.get(5..), Some(&*format!("] {worker}> {worker}> ")), "{timed}");
    assert_eq!(answer_at(&low, "show cli level;reload"), "user\n\nPermission denied\n\n");
    // 'help' omits commands that the level refuses, and those with another prefix.
    let help = |at: &str, words: &str| {
        let all = if at == "low" { answer_at(&low, words) } else { master.ask(words) };
        ["  reload", "  show proc", "  show version"].map(|line| all.contains(line))
    };
    assert_eq!(help("high", "help"), [true, true, true]);
    assert_eq!(help("low", "help"), [false, false, true]);
    assert_eq!(help("high", "help show proc"), [false, true, false]);
    assert_eq!(answer_at(&low, "@1 show cli level"), "user\n\n");
    assert_eq!(std::fs::metadata(&low).unwrap().mode() & 0o777, 0o600);
    // An incomplete line is not run, and an incomplete payload changes nothing, nor does one that is too
    // long.
    assert!(master.ask("@1 add map x <<\na b").contains("nothing was done"));
    // The empty line counts.
    for (bytes, fits) in [(65_535, true), (65_537, false)] {
        let answer = master.ask(&format!("@1 add map x <<\n{}", crate::control::lines(bytes)));
        assert_eq!(answer.contains("nothing was done"), !fits, "{bytes}: {answer}");
        assert_eq!(answer.contains("Unknown map"), fits, "{bytes}: {answer}");
    }
    for level in ["user", "operator"] {
        for command in ["show map", "get acl x y", "prepare map x"] {
            let answer = master.ask(&format!("{level}; @1 expert-mode on; @1 {command}"));
            assert_eq!(answer.matches("Permission denied").count(), 2, "{level}, {command}: {answer}");
        }
    }
    let mut client = UnixStream::connect(master.folder.0.join("master")).unwrap();
    client.write_all(&[b'x'; 20_000]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut said = Vec::new();
    let _ = client.read_to_end(&mut said); // or a reset, since not everything was read
    assert_eq!(master.worker().to_string(), worker);
}

/// Levels of clients, from the lowest one.
const LEVELS: [&str; 3] = ["user", "operator", "admin"];

/// Arguments for a master with a socket for each of [`LEVELS`], which has its name.
fn with_levels(program: &mut Command, folder: &Path) {
    program.arg("-W");
    for level in LEVELS {
        program.arg("-S").arg(format!("{},level,{level}", folder.join(level).display()));
    }
}

/// Whether the master denies a command at each of [`LEVELS`].
fn denies(folder: &Path, before: &str, command: &str) -> [bool; 3] {
    let is_denied = |client: UnixStream, lines: String| {
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        (&client).write_all(lines.as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (mut said, mut part) = (Vec::new(), [0; 4096]);
        // HAProxy sometimes keeps a connection after this.
        let denied = |said: &[u8]| String::from_utf8_lossy(said).contains("Permission denied");
        while !denied(&said) {
            match (&client).read(&mut part) {
                Ok(0) => break,
                // HAProxy's master may end a connection by a reset when it begins anew.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                length => said.extend_from_slice(&part[..length.unwrap()]),
            }
        }
        denied(&said)
    };
    let connect = |level| UnixStream::connect(folder.join(level)).unwrap();
    std::array::from_fn(|level| {
        let lowered = is_denied(
            connect("admin"),
            match LEVELS[level] {
                "admin" => format!("{before}{command}\n"),
                lower => format!("{before}{lower};{command}\n"),
            },
        );
        if before.is_empty() {
            let of_socket = is_denied(connect(LEVELS[level]), format!("{command}\n"));
            assert_eq!(of_socket, lowered, "{command} at {}", LEVELS[level]);
        }
        lowered
    })
}

/// Each command of the master itself is denied exactly at the levels that docs/operations.md and HAProxy say.
#[test]
fn each_command_of_the_master_needs_its_level() {
    let (folder, theirs) = (Folder::new(), Folder::new());
    let master = Master::start(&answering(own_address(), 200, ""), |program| with_levels(program, &folder.0));
    let table = include_str!("../docs/operations.md").split_once("The lowest level of each").unwrap().1;
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows: Vec<(&str, usize)> = rows
        .map_while(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "))
        .map(|(command, needs)| (command, LEVELS.iter().position(|level| *level == needs).unwrap()))
        .collect();
    let haproxy = Haproxy::program().map(|program| {
        let config = answering(own_address(), 200, "").replace(" noreuseport\n", "");
        let haproxy = Master::begin_program(Command::new(program), &config, |program| {
            with_levels(program, &theirs.0);
        });
        haproxy.hears("Loading success.");
        haproxy
    });
    let help = answer_at(&folder.0.join("admin"), "mcli-debug-mode on; help");
    let mut observed = Vec::new();
    for line in help.lines().skip(1).filter(|line| !line.is_empty()) {
        let words = line.split_whitespace().take_while(|word| !word.starts_with(['[', '<', ':', '@']));
        let command = words.collect::<Vec<_>>().join(" ");
        if command.is_empty() {
            continue; // a prefix, before commands of any level
        }
        let needs = rows.iter().find(|(name, _)| *name == command).map_or(0, |(_, level)| *level);
        // HAProxy needs no mode for it.
        let before = if command == "show env" { "mcli-debug-mode on;" } else { "" };
        let expected = [0, 1, 2].map(|level| level < needs);
        assert_eq!(denies(&folder.0, before, &command), expected, "{command}");
        if haproxy.is_some() {
            assert_eq!(denies(&theirs.0, "", &command), expected, "HAProxy: {command}");
        }
        observed.push(command);
    }
    assert!(observed.len() > 12, "{observed:?}");
    for (command, _) in rows {
        assert!(observed.iter().any(|name| name == command), "no '{command}' in {observed:?}");
    }
    for master in [Some(master), haproxy].into_iter().flatten() {
        master.signal(Signal::SIGTERM);
        assert_eq!(master.ends(), Some(0));
    }
}

/// More commands and responses than the sockets between them hold: without care each side would wait for the
/// other to read.
#[test]
fn a_long_script_for_a_worker_is_answered_to_its_end() {
    const COMMANDS: usize = 20_000;
    let master = Master::start(&answering(own_address(), 200, ""), |program| {
        program.arg("-W");
    });
    let mut client = UnixStream::connect(master.folder.0.join("master")).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut writes = client.try_clone().unwrap();
    let script = std::thread::spawn(move || {
        writes.write_all(b"@@1\n").unwrap();
        for _ in 0..COMMANDS / 100 {
            writes.write_all("show version\n".repeat(100).as_bytes()).unwrap();
        }
        writes.write_all(b"quit\n").unwrap();
    });
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    script.join().unwrap();
    assert_eq!(said.matches(env!("CARGO_PKG_VERSION")).count(), COMMANDS);
}

#[test]
fn what_a_master_cannot_be_is_reported() {
    let refused = |arguments: &[&str], why: &str| {
        let folder = Folder::new();
        let file = folder.file("test.cfg", &answering(own_address(), 200, ""));
        let output = command().arg("-f").arg(file).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{said}");
    };
    refused(&["-S", "/nowhere"], "'-S' expects a master");
    refused(&["-W", "-S", "/nowhere/socket"], "Binding for the master CLI: ");
    refused(&["-W", "-S", "/nowhere,nonsense"], "nonsense");
}

/// Files and sockets of a listener are the old worker's until the new one is ready.
#[test]
fn a_reload_that_fails_leaves_files_and_sockets_alone() {
    let address = own_address();
    let folder = Folder::new();
    let (web, control) = (folder.0.join("web"), folder.0.join("control"));
    let good = answering(address, 200, &format!(" stats socket {}\n", control.display()));
    let good = format!("{good} bind unix@{}\n", web.display());
    let master = Master::start(&good, with_master);
    let inodes = || [&web, &control].map(|file| std::fs::metadata(file).unwrap().ino());
    let (before, worker) = (inodes(), master.worker());
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    master.write(&format!("{good} bind {} defer-accept\n", taken.local_addr().unwrap()));
    let said = master.reloads(false);
    assert!(said.contains("Some protocols failed to start their listeners"), "{said}");
    assert_eq!((inodes(), master.worker()), (before, worker));
    assert!(answer_at(&control, "show info").contains(&format!("\nPid: {worker}\n")));
    let mut client = UnixStream::connect(&web).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let names = |folder: &Path| {
        let all = std::fs::read_dir(folder).unwrap();
        let mut all: Vec<_> = all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    };
    assert_eq!(names(&folder.0), ["control", "web"]);
    master.write(&good);
    master.reloads(true);
    assert_ne!(inodes(), before);
}

#[test]
fn what_goes_on_in_a_worker_is_shown_until_the_client_says_something() {
    let config = answering(own_address(), 200, "") + "ring events\n format rfc3164\n";
    let master = Master::start(&config, with_master);
    let mut client = UnixStream::connect(master.folder.0.join("master")).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"prompt\n@1 show events events -w\n").unwrap();
    let mut prompt = vec![0; "master> ".len()];
    client.read_exact(&mut prompt).unwrap();
    // The command waits; input ends that, and is the next command.
    client.write_all(b"show version\nquit\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(&format!("master> {}\n\nmaster> ", env!("CARGO_PKG_VERSION"))), "{answer}");
}

/// A process that is not a child of the test, killed at its end.
pub(crate) struct Elsewhere(pub(crate) i32);

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0), Signal::SIGTERM); // it may have ended
    }
}

/// Sockets of the run-time interface that cannot be bound twice go along. The former worker has a client that
/// stays, and accepts no other one, not even of this interface.
#[test]
fn a_new_worker_takes_the_sockets_of_the_run_time_interface() {
    let (address, tcp) = (own_address(), own_address());
    let name = format!("manylane-stats-{}", std::process::id());
    let global = format!(" stats socket {tcp} level admin\n stats socket abns@{name}\n");
    let master = Master::start(&answering(address, 200, &global), with_master);
    let answering_worker = || -> i32 {
        let mut client = TcpStream::connect(tcp).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client.write_all(b"show info\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let pid = answer.lines().find_map(|line| line.strip_prefix("Pid: "));
        pid.unwrap_or_else(|| panic!("{answer}")).parse::<i32>().unwrap()
    };
    for _ in 0..2 {
        let mut stays = common::connect(address);
        stays.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET").unwrap();
        assert!(stays.read(&mut [0; 512]).unwrap() > 0, "a worker serves it");
        master.reloads(true);
        let worker = master.worker();
        // Lanes of the former one may still be about to stop.
        until(|| (0..20).all(|_| answering_worker() == worker));
        drop(stays);
        master.hears("Former worker");
    }
}

/// The files of a running master are its own until another one serves.
#[test]
fn a_master_that_cannot_begin_leaves_the_files_of_another() {
    let address = own_address();
    let folder = Folder::new();
    let (pidfile, socket) = (folder.0.join("pid"), folder.0.join("cli"));
    let named = |program: &mut Command| {
        program.arg("-W").arg("-p").arg(&pidfile).arg("-S").arg(&socket);
    };
    let master = Master::start(&answering(address, 200, ""), named);
    let number = || std::fs::read_to_string(&pidfile).unwrap();
    let own = format!("{}\n", master.child.0.id());
    assert_eq!(number(), own);
    let inode = || std::fs::metadata(&socket).unwrap().ino();
    let before = inode();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let other = Master::begin(&answering(taken.local_addr().unwrap(), 200, ""), named);
    other.hears("Loading failure!");
    assert_eq!(other.ends(), Some(1));
    assert_eq!((number(), inode()), (own.clone(), before));
    assert!(answer_at(&socket, "show proc").contains(&format!("\n{} ", own.trim())));
    let all = std::fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(all, 2, "what the other one has made is gone");
    // One that serves takes their places.
    let next = Master::start(&answering(own_address(), 200, ""), named);
    let own = next.child.0.id().to_string();
    assert_eq!(number(), format!("{own}\n"));
    assert!(answer_at(&socket, "show proc").contains(&format!("\n{own} ")));
}

#[test]
fn a_master_goes_to_the_background_once_it_serves() {
    let folder = Folder::new();
    let (address, pidfile, socket) = (own_address(), folder.0.join("pid"), folder.0.join("master"));
    let start = |config: &str, more: &[&str]| {
        let mut program = command();
        program.arg("-f").arg(folder.file("test.cfg", config)).arg("-p").arg(&pidfile).arg("-S").arg(&socket);
        program.args(more).output().unwrap() // until both have closed their output
    };
    let output = start(&answering(address, 200, ""), &["-W", "-D"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("Loading success."), "{said}");
    let pid: i32 = std::fs::read_to_string(&pidfile).unwrap().trim().parse().unwrap();
    let elsewhere = Elsewhere(pid);
    assert_eq!(status_of(address), Ok(200));
    assert!(answer_at(&socket, "show proc").contains(&format!("\n{pid} ")));
    folder.file("test.cfg", &answering(address, 404, " daemon\n"));
    assert!(answer_at(&socket, "reload").starts_with("Success=1\n--\n"));
    // Until the old worker has closed its sockets it may respond, too.
    while answer_at(&socket, "show proc").contains("# old workers") {
        manylane_tests::look_again();
    }
    assert_eq!(status_of(address), Ok(404));
    let mut watching = UnixStream::connect(&socket).unwrap();
    drop(elsewhere);
    assert_eq!(watching.read_to_string(&mut String::new()).unwrap_or(0), 0, "it ends");
    // A start in the background that fails reports that.
    let output = start("global\n master-worker\n daemon\n nonsense\n", &[]);
    assert_eq!(output.status.code(), Some(1));
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let config = answering(taken.local_addr().unwrap(), 200, " master-worker\n daemon\n");
    let output = start(&config, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("Loading failure!"), "{said}");
}

/// Commands of the systemd unit, with this program and paths of the test.
#[test]
fn the_unit_for_systemd_starts_and_reloads() {
    let unit =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/manylane.service")).unwrap();
    let commands = |key: &str| -> Vec<Vec<String>> {
        let lines = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
    };
    let address = own_address();
    let folder = Folder::new();
    let (config, socket) = (folder.file("test.cfg", &answering(address, 200, "")), folder.0.join("socket"));
    let place = |word: &String| match &**word {
        "${CONFIG}" => config.display().to_string(),
        "${MASTER}" => socket.display().to_string(),
        word => word.to_owned(),
    };
    let starts = commands("ExecStart");
    let [start] = &starts[..] else { panic!("{unit}") };
    assert_eq!(start[0], "/usr/sbin/manylane");
    let master = Master::start(&answering(self::own_address(), 200, ""), |program| {
        let mut own = command();
        own.args(start[1..].iter().map(place));
        *program = own;
    });
    let reloads = commands("ExecReload");
    let [check, signal] = &reloads[..] else { panic!("{unit}") };
    assert_eq!(check[0], "/usr/sbin/manylane");
    let checked = || command().args(check[1..].iter().map(place)).output().unwrap();
    let good = std::fs::read(&config).unwrap();
    std::fs::write(&config, "global\n nonsense\n").unwrap();
    let refused = checked();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("nonsense"), "{said}"); // the journal has it
    std::fs::write(&config, good).unwrap();
    assert!(checked().status.success());
    assert_eq!(signal.join(" "), "/bin/kill -USR2 $MAINPID");
    master.signal(Signal::SIGUSR2);
    master.hears("Former worker");
    assert!(answer_at(&socket, "show proc").contains(" master          1 [failed: 0] "));
    assert_eq!(status_of(address), Ok(200));
}

/// Status of a response after a worker was killed. The kernel closes the sockets of an io_uring only after
/// the process has ended; connections until then are closed.
fn status_behind_a_kill(address: SocketAddr) -> u16 {
    let began = std::time::Instant::now();
    loop {
        match status_of(address) {
            Ok(status) => return status,
            Err(error) => assert!(began.elapsed() < common::TIMEOUT, "{error}"),
        }
    }
}

/// Status of the first response to one of many clients. A worker that hangs has its share of them.
fn first_status(address: SocketAddr) -> u16 {
    let (answered, first) = channel();
    for _ in 0..20 {
        let answered = answered.clone();
        // A client of a worker that hangs ends with it.
        std::thread::spawn(move || status_of(address).map(|status| answered.send(status)));
    }
    first.recv_timeout(common::TIMEOUT).unwrap()
}

/// Words of a worker that waited for the sockets of one that hangs. The time is the one that it waited for; a
/// process that is no worker has 10 s.
const GIVES_UP: &str = ": it did not answer within 1 s. Its addresses are bound anew.";

/// A worker that hangs is replaced without its cooperation, and its end does not end the master.
#[test]
fn a_worker_that_hangs_is_replaced() {
    let address = own_address();
    let config = |status| answering(address, status, "").replace(" noreuseport\n", "");
    let master = Master::start(&config(200), with_master);
    let hangs = Pid::from_raw(master.worker());
    kill(hangs, Signal::SIGSTOP).unwrap();
    master.write(&config(403));
    // After 10 s a reload fails. The new worker waits for one, and says so.
    let said = master.reloads(true);
    assert!(said.contains(GIVES_UP), "{said}");
    assert_ne!(master.worker(), hangs.as_raw());
    assert_eq!(master.rows("# old workers")[0][0], hangs.to_string());
    assert_eq!(first_status(address), 403);
    kill(hangs, Signal::SIGKILL).unwrap();
    master.hears("Former worker");
    // By a signal, without a reload in between.
    assert_eq!(status_behind_a_kill(address), 403);
    let hangs = Pid::from_raw(master.worker());
    kill(hangs, Signal::SIGSTOP).unwrap();
    master.signal(Signal::SIGUSR2);
    master.hears(GIVES_UP);
    master.hears("Loading success.");
    kill(hangs, Signal::SIGKILL).unwrap();
    master.hears("Former worker");
    assert_eq!(status_behind_a_kill(address), 403);
    master.signal(Signal::SIGTERM);
    assert_eq!(master.ends(), Some(0));
}

/// A worker that hangs does not obey; otherwise it would keep its share of new connections.
#[test]
fn the_master_kills_a_former_worker_that_hangs() {
    for limit in [" grace 10ms\n hard-stop-after 10ms\n", " mworker-max-reloads 0\n"] {
        let config = answering(own_address(), 200, limit).replace(" noreuseport\n", "");
        let master = Master::start(&config, with_master);
        let hangs = master.worker();
        kill(Pid::from_raw(hangs), Signal::SIGSTOP).unwrap();
        master.reloads(true);
        master.hears(&format!("Former worker ({hangs}) hangs and was killed"));
        master.hears(&format!("Former worker ({hangs}) exited with code 137"));
    }
}

/// A reload in place changes how long the soft stop may take. The worker stops when it has reported that.
#[test]
fn a_former_worker_has_the_time_of_the_configuration_that_it_serves() {
    let address = own_address();
    let config = |limit| answering(address, 200, limit).replace(" noreuseport\n", "");
    let master = Master::start(&config(" hard-stop-after 1h\n"), with_master);
    let hangs = master.worker();
    master.write(&config(" grace 10s\n hard-stop-after 10ms\n"));
    let reloaded = master.ask("@1 reload");
    assert!(reloaded.contains("Reloaded: generation 1 serves."), "{reloaded}");
    master.reloads(true);
    until(|| master.ask(&format!("@!{hangs} show info")).contains("Stopping: 1"));
    kill(Pid::from_raw(hangs), Signal::SIGSTOP).unwrap();
    let killed = format!("Former worker ({hangs}) hangs and was killed");
    while !master.said.recv_timeout(TIMEOUT * 2).expect("it has its time").contains(&killed) {}
}

/// The first signal is enough.
#[test]
fn a_fault_that_another_process_sends_ends_a_worker() {
    for signal in [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGILL, Signal::SIGABRT, Signal::SIGFPE] {
        let master = Master::start(&answering(own_address(), 200, ""), with_master);
        kill(Pid::from_raw(master.worker()), signal).unwrap();
        assert_eq!(master.ends(), Some(128 + signal as i32));
    }
}

/// The packaged configuration with an address and a run-time socket of the test.
fn packaged(address: SocketAddr, socket: &Path) -> String {
    let packaged = concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/debian/manylane.cfg");
    let packaged = std::fs::read_to_string(packaged).unwrap();
    packaged
        .replace("127.0.0.1:8404", &address.to_string())
        .replace("/run/manylane.sock", &socket.display().to_string())
}

/// The packaged configuration, with paths and rights of the test: a crashed worker is replaced.
#[test]
fn the_packaged_configuration_survives_a_crash() {
    let (address, folder) = (own_address(), Folder::new());
    let of_root = ["user ", "group ", "chroot "];
    let config: String = packaged(address, &folder.0.join("stats"))
        .split_inclusive('\n')
        .filter(|line| !of_root.iter().any(|word| line.trim_start().starts_with(word)))
        .collect();
    let master = Master::start(&config, |program| {
        program.arg("-Ws");
    });
    kill(Pid::from_raw(master.worker()), Signal::SIGSEGV).unwrap();
    master.hears("another worker begins");
    master.hears("Loading success.");
    assert_eq!(status_behind_a_kill(address), 200);
}

/// The packaged configuration with its `chroot` and without the rights of root: the worker reads the file
/// again when it is told to reload, also from the empty folder that is its root.
#[test]
fn the_packaged_configuration_is_reloaded_in_its_chroot() {
    if !nix::unistd::Uid::effective().is_root() {
        return println!("NOT SHOWN HERE: only root enters a chroot");
    }
    let (address, folder) = (own_address(), Folder::new());
    let (socket, empty) = (folder.0.join("stats"), folder.0.join("empty"));
    std::fs::create_dir(&empty).unwrap();
    let mut config = packaged(address, &socket);
    for (line, of_test) in [
        ("    user manylane\n", "    uid 65534\n".to_owned()),
        ("    group manylane\n", "    gid 65534\n".to_owned()),
        ("    chroot /var/lib/manylane\n", format!("    chroot {}\n", empty.display())),
    ] {
        assert!(config.contains(line), "the packaged file has no line '{}'", line.trim());
        config = config.replace(line, &of_test);
    }
    let master = Master::start(&config, |program| {
        program.arg("-Ws");
    });
    let root = std::fs::read_link(format!("/proc/{}/root", master.worker())).unwrap();
    assert!(root.ends_with("empty"), "{}", root.display());
    assert_eq!(status_of(address).unwrap(), 200);
    let page = "    stats uri /\n";
    assert!(config.contains(page), "{config}");
    master.write(&config.replace(page, "    http-request return status 403\n"));
    let answer = answer_at(&socket, "reload");
    assert!(answer.contains("Reloaded: generation 1 serves."), "{answer}");
    assert_eq!(status_of(address).unwrap(), 403);
}

/// `restart-on-crash`: a crashed worker is replaced; one that was stopped on purpose is not.
#[test]
fn a_worker_that_crashes_is_replaced_where_that_is_wished() {
    let address = own_address();
    let config = |status| {
        answering(address, status, " master-worker restart-on-crash\n").replace(" noreuseport\n", "")
    };
    let master = Master::start(&config(200), |_| {});
    for (signal, pause) in [(Signal::SIGKILL, 100), (Signal::SIGSEGV, 200)] {
        let crashes = master.worker();
        kill(Pid::from_raw(crashes), signal).unwrap();
        master.hears(&format!("another worker begins in {pause} ms"));
        master.hears("Loading success.");
        assert_ne!(master.worker(), crashes);
        assert_eq!(status_behind_a_kill(address), 200);
    }
    // A worker that cannot start is retried, and a corrected file is served.
    master.write("global\n nonsense\n");
    kill(Pid::from_raw(master.worker()), Signal::SIGKILL).unwrap();
    master.hears("another worker begins in 400 ms");
    master.hears("another worker begins in 800 ms");
    master.write(&config(403));
    master.hears("Loading success.");
    assert_eq!(status_behind_a_kill(address), 403);
    // The delay before a restart does not keep the master from ending.
    kill(Pid::from_raw(master.worker()), Signal::SIGKILL).unwrap();
    master.hears("another worker begins");
    master.signal(Signal::SIGTERM);
    assert_eq!(master.ends(), Some(137));
    let master = Master::start(&config(200), |_| {});
    kill(Pid::from_raw(master.worker()), Signal::SIGTERM).unwrap();
    assert_eq!(master.ends(), Some(0));
}
