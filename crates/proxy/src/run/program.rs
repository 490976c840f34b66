//! Health checks by programs: `option external-check`.
//!
//! # Protocol
//! 1. A program is started and waited for by a thread of a pool of its own, so that no lane waits for the
//!    system, and files and names that others wait for are not behind programs that take long. At most
//!    [`PROGRAMS`] run at once; [`WAITING`] checks wait for their turn.
//! 2. One that is not done in its time is told to end, and is killed when it has not done so within
//!    [`GRACE`]. It is waited for in any case, so none is left behind for nobody.
//! 3. A check that is given up, since its lane stops, leaves its program to rule 2.

use super::local::Local;
use crate::generation::{Backend, CheckTimeouts, Program, Server, ServerCheck};
use manylane_balance::Index;
use manylane_check::{CheckResult, Status};
use manylane_net::Endpoint;
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

/// Programs that run at once.
const PROGRAMS: usize = 16;

/// Checks that wait for their turn.
const WAITING: usize = 4096;

/// How long a program has to end when its time is over.
const GRACE: Duration = Duration::from_secs(1);

fn programs() -> &'static BlockingPool {
    static POOL: OnceLock<Arc<BlockingPool>> = OnceLock::new();
    POOL.get_or_init(|| Arc::new(BlockingPool::new(PROGRAMS, WAITING)))
}

/// One check by a program.
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
            Ok(ended) => verdict(ended),
            Err(error) => failed(error.to_string()),
        },
        Err(refused) => failed(refused.to_string()),
    }
}

/// What its end means; none when its time was over.
fn verdict(ended: Option<ExitStatus>) -> CheckResult {
    let told = |status, code| CheckResult { code: Some(code), ..CheckResult::new(status, "") };
    match ended.map(|status| status.code()) {
        Some(Some(0)) => told(Status::ProcOk, 0),
        Some(Some(code)) => told(Status::ProcErr, code.into()),
        Some(None) => told(Status::ProcErr, -1), // a signal
        None => told(Status::ProcTout, 0),
    }
}

/// Starts the program and waits for its end; nothing when it was too late.
fn wait(mut command: Command, time: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + time;
    let mut child = match command.spawn() {
        Ok(child) => child,
        // As of a program that could be started, and found nothing to be executed.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            return Ok(Some(ExitStatus::from_raw(NOT_EXECUTED << 8)));
        }
        Err(error) => return Err(error),
    };
    let ended = ends_by(&child, deadline);
    if !matches!(ended, Ok(true)) {
        let _ = kill_process(Pid::from_child(&child), Signal::TERM); // it may have ended
        // Without descriptors nobody knows whether it ends.
        if !ends_by(&child, Instant::now() + GRACE).unwrap_or(false) {
            let _ = child.kill();
        }
    }
    let status = child.wait()?;
    Ok(ended?.then_some(status))
}

/// The exit status of what could not be executed.
const NOT_EXECUTED: i32 = 255;

/// Whether it ends in time. It is not waited for.
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

/// The program with its arguments and its environment, which are HAProxy's; looked for in its folders where
/// it is started.
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
        use std::os::unix::process::CommandExt;
        let unused = || OsString::from("NOT_USED");
        let mut command = Command::new(resolved(&program));
        command.arg0(&program.command).stdin(Stdio::null());
        command.arg(proxy_ip.unwrap_or_else(unused)).arg(proxy_port.unwrap_or_else(unused));
        command.arg(ip).arg(port.unwrap_or_else(unused));
        if !program.preserves_environment {
            command.env_clear();
        }
        command.envs(environment);
        command
    }
}

/// The file: by its path, or in the folders of `external-check path`.
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

/// The first address of the proxy, if it is a frontend, too: a unix socket has no port.
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
