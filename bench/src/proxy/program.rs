//! The compared programs, started with our configuration on ports chosen by the kernel.

use super::usage::Processes;
use std::fmt;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A compared program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Haproxy,
    Nginx,
    /// Manylane over epoll; the next one, over io_uring.
    Epoll,
    Uring,
}

impl Kind {
    /// True for Manylane.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Epoll | Self::Uring)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Epoll => "manylane epoll",
            Self::Uring => "manylane io_uring",
        })
    }
}

/// Paths of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) manylane: PathBuf,
    pub(crate) haproxy: PathBuf,
    pub(crate) nginx: PathBuf,
    /// Folder of configurations.
    pub(crate) folder: PathBuf,
}

impl Programs {
    /// Name and version of `kind`.
    ///
    /// # Errors
    /// A sentence if it cannot be started.
    pub(crate) fn version(&self, kind: Kind) -> Result<String, String> {
        let output =
            Command::new(self.path(kind)).arg("-v").output().map_err(|error| self.absent(kind, &error))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().next().unwrap_or_default().split(" - ").next().unwrap_or_default().to_string())
    }

    fn path(&self, kind: Kind) -> &Path {
        match kind {
            Kind::Haproxy => &self.haproxy,
            Kind::Nginx => &self.nginx,
            Kind::Epoll | Kind::Uring => &self.manylane,
        }
    }

    fn absent(&self, kind: Kind, error: &std::io::Error) -> String {
        format!(
            "cannot start {kind} ({}): {error}; `scripts/setup bench` installs the peers",
            self.path(kind).display()
        )
    }

    /// Starts `kind` with a configuration, and waits until it listens on `port`.
    ///
    /// # Errors
    /// A sentence with its output if it does not.
    pub(crate) fn start(&self, kind: Kind, port: u16, configuration: &str) -> Result<Program, String> {
        self.start_with(kind, port, configuration, &[])
    }

    /// As [`start`](Self::start), with further arguments.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub(crate) fn start_with(
        &self,
        kind: Kind,
        port: u16,
        configuration: &str,
        arguments: &[String],
    ) -> Result<Program, String> {
        let name = format!("{kind}-{port}").replace(' ', "-");
        let file = self.folder.join(format!("{name}.cfg"));
        std::fs::write(&file, configuration)
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        let said = self.folder.join(format!("{name}.log"));
        let log = std::fs::File::create(&said)
            .map_err(|error| format!("cannot write {}: {error}", said.display()))?;
        let mut command = Command::new(self.path(kind));
        match kind {
            Kind::Nginx => command.arg("-p").arg(&self.folder).arg("-c").arg(&file),
            Kind::Haproxy => command.args(["-q", "-db", "-f"]).arg(&file),
            Kind::Epoll => command.args(["-q", "-db", "-f"]).arg(&file).env("MANYLANE_DRIVER", "epoll"),
            Kind::Uring => command.args(["-q", "-db", "-f"]).arg(&file).env("MANYLANE_DRIVER", "io_uring"),
        };
        let child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let mut program = Program { child: child.map_err(|error| self.absent(kind, &error))?, port };
        let begun = Instant::now();
        while TcpStream::connect(program.address()).is_err() {
            let ended = program.child.try_wait().ok().flatten().is_some();
            if ended || begun.elapsed() > Duration::from_secs(10) {
                let words = std::fs::read_to_string(&said).unwrap_or_default();
                return Err(format!("{kind} does not start: {words}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(program)
    }
}

/// A running program, ended on drop.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    port: u16,
}

impl Program {
    /// The program's address.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The program's processes.
    pub(crate) fn processes(&self) -> Processes {
        Processes::of(self.child.id())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        // the first process of nginx ends the others
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let begun = Instant::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if begun.elapsed() > Duration::from_secs(3) {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A port that is free now. If another process takes it before the program does, the program reports that.
pub(crate) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no port is free: {error}"))?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}
