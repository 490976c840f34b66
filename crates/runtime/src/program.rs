//! Health checks by programs: `option external-check`.
//!
//! # Protocol
//! 1. A thread of a separate pool starts a program and waits for it. So no lane waits for the system, and
//!    slow programs do not delay jobs for files and names. At most [`PROGRAMS`] run at once; [`WAITING`]
//!    checks can wait.
//! 2. A program that exceeds its time gets SIGTERM, and SIGKILL after [`GRACE`]. The thread always waits for
//!    it, so no zombie remains.
//! 3. When a check is abandoned because its lane stops, rule 2 still ends its program.

use manylane_balance::Index;
use manylane_check::{CheckResult, Status};
use manylane_lanes::Local;
use manylane_net::Endpoint;
use manylane_plan::generation::{Backend, CheckTimeouts, Program, Server, ServerCheck};
use manylane_sched::BlockingPool;
use manylane_sync::Arc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Most programs that run at once.
const PROGRAMS: usize = 16;

/// Most checks that wait for a thread.
const WAITING: usize = 4096;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(1);

fn programs() -> &'static BlockingPool {
    static POOL: OnceLock<Arc<BlockingPool>> = OnceLock::new();
    POOL.get_or_init(|| Arc::new(BlockingPool::new(PROGRAMS, WAITING)))
}

/// Makes one check by a program.
pub(super) async fn run(
    local: &Local,
    backend: &Backend,
    index: Index,
    check: &ServerCheck,
    program: &Program,
) -> CheckResult {
    let server = &backend.servers[index.get()];
    let time = match check.timeouts {
        CheckTimeouts::Whole(whole) => whole,
        CheckTimeouts::Parts { connect, .. } => connect,
    };
    let command = command(local, backend, server, index, program);
    let failed = |why: String| CheckResult::new(Status::SockErr, why);
    match programs().run(move || wait(command(), time)) {
        Ok(result) => match result.await {
            Ok(ended) => result_of(ended),
            Err(error) => failed(error.to_string()),
        },
        Err(refused) => failed(refused.to_string()),
    }
}

/// Returns the result for an exit status; `None` means that the time was over.
fn result_of(ended: Option<ExitStatus>) -> CheckResult {
    let result = |status, code| CheckResult { code: Some(code), ..CheckResult::new(status, "") };
    match ended.map(|status| status.code()) {
        Some(Some(0)) => result(Status::ProcOk, 0),
        Some(Some(code)) => result(Status::ProcErr, code.into()),
        Some(None) => result(Status::ProcErr, -1), // a signal ended the program
        None => result(Status::ProcTout, 0),
    }
}

/// Starts the program and waits for its end. Returns `None` if it exceeded its time.
fn wait(mut command: Command, time: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + time;
    let mut child = match command.spawn() {
        Ok(child) => child,
        // As if the program had started and failed to execute the file.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            return Ok(Some(ExitStatus::from_raw(NOT_EXECUTED << 8)));
        }
        Err(error) => return Err(error),
    };
    let ended = ends_by(&child, deadline);
    if !matches!(ended, Ok(true)) {
        let _ = kill_process(Pid::from_child(&child), Signal::TERM); // the program may have ended already
        // Without a descriptor for the process, its end cannot be seen.
        if !ends_by(&child, Instant::now() + GRACE).unwrap_or(false) {
            let _ = child.kill();
        }
    }
    let status = child.wait()?;
    Ok(ended?.then_some(status))
}

/// Exit status of a program that cannot be executed.
const NOT_EXECUTED: i32 = 255;

/// Returns true if the process ends before the deadline. Does not reap it.
fn ends_by(child: &Child, deadline: Instant) -> io::Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Ok(count) => return Ok(count == 1),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the command with HAProxy's arguments and environment. The file is looked up when the command
/// starts.
fn command(
    local: &Local,
    backend: &Backend,
    server: &Server,
    index: Index,
    program: &Program,
) -> impl FnOnce() -> Command + Send + 'static {
    let (proxy_ip, proxy_port) = listens(local, backend);
    let (ip, port) = match server.addr.read().endpoint() {
        Some(Endpoint::Ip(address)) => {
            (address.ip().to_string().into(), Some(OsString::from(address.port().to_string())))
        }
        Some(Endpoint::Unix(path)) => (path.clone().into_os_string(), None),
        _ => (OsString::new(), None),
    };
    let text = |number: u64| OsString::from(number.to_string());
    let load = backend.balancer.load(index).saturating_sub(backend.balancer.waiting(index).into());
    let environment = [
        ("PATH", program.path.clone().unwrap_or_default()),
        ("HAPROXY_PROXY_NAME", OsString::from(&*backend.name)),
        ("HAPROXY_PROXY_ID", text(backend.id.into())),
        ("HAPROXY_PROXY_ADDR", proxy_ip.clone().unwrap_or_default()),
        ("HAPROXY_PROXY_PORT", proxy_port.clone().unwrap_or_default()),
        ("HAPROXY_SERVER_NAME", OsString::from(&*server.name)),
        ("HAPROXY_SERVER_ID", text(server.id.into())),
        ("HAPROXY_SERVER_ADDR", ip.clone()),
        ("HAPROXY_SERVER_PORT", port.clone().unwrap_or_default()),
        ("HAPROXY_SERVER_MAXCONN", text(server.maxconn.into())),
        ("HAPROXY_SERVER_CURCONN", text(load)),
        ("HAPROXY_SERVER_SSL", if server.tls.is_some() { "1" } else { "0" }.into()),
        (
            "HAPROXY_SERVER_PROTO",
            if backend.mode == manylane_config::tree::Mode::Http { "h1" } else { "tcp" }.into(),
        ),
    ];
    let program = program.clone();
    move || {
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::process::CommandExt;
        let unused = || OsString::from("NOT_USED");
        let mut command = Command::new(resolved(&program));
        command.arg0(&program.command).stdin(Stdio::null());
        command.arg(proxy_ip.unwrap_or_else(unused)).arg(proxy_port.unwrap_or_else(unused));
        command.arg(ip).arg(port.unwrap_or_else(unused));
        if !program.preserves_environment {
            command.env_clear();
        } else if manylane_pool::reserve::is_plain() {
            use manylane_pool::reserve::{ONE_ARENA, PLAIN};
            command.env_remove(OsStr::from_bytes(PLAIN.to_bytes())); // they are for this program alone
            if std::env::var_os(ONE_ARENA.0).is_some_and(|value| value == ONE_ARENA.1) {
                command.env_remove(ONE_ARENA.0);
            }
        }
        command.envs(environment);
        command
    }
}

/// Returns the program's file: a path as it is, else from the folders of `external-check path`.
fn resolved(program: &Program) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    if program.command.as_bytes().contains(&b'/') {
        return program.command.clone();
    }
    let folders = program.path.as_deref().unwrap_or(OsStr::new(""));
    let found = std::env::split_paths(folders)
        .map(|folder| folder.join(&program.command))
        .find(|file| file.is_file());
    found.map_or_else(|| program.command.clone(), Into::into)
}

/// Returns the first address of the proxy, if it is also a frontend. A unix socket has no port.
fn listens(local: &Local, backend: &Backend) -> (Option<OsString>, Option<OsString>) {
    let generation = &local.generation;
    let frontend = generation.frontends.iter().find(|frontend| frontend.name == backend.name);
    for listener in frontend.into_iter().flat_map(|frontend| &frontend.listeners) {
        match &listener.endpoint {
            Endpoint::Ip(address) => {
                return (Some(address.ip().to_string().into()), Some(address.port().to_string().into()));
            }
            Endpoint::Unix(path) => return (Some(path.clone().into_os_string()), None),
            _ => {}
        }
    }
    (None, None)
}
