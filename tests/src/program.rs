//! The program under test, as a child process.

use crate::TIMEOUT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{DupFlags, dup3};
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

/// One of the programs that read HAProxy's configuration files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// HAProxy 3.2, the version for which differences are listed.
    Haproxy,
    /// This program.
    Manylane,
    /// Another build of it, with another driver: `MANYLANE_CHECKED=<driver>:<path>` names it.
    Checked,
}

impl Which {
    /// The other program.
    pub fn other(&self) -> Self {
        match self {
            Self::Haproxy => Self::Manylane,
            Self::Manylane | Self::Checked => Self::Haproxy,
        }
    }

    /// Path of the program; `None` without HAProxy 3.2, or without another build.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Manylane => Some(manylane().to_path_buf()),
            Self::Checked => checked().map(|(_, path)| path.into()),
            Self::Haproxy => haproxy().map(Path::to_path_buf),
        }
    }
}

/// Driver and path of another build of this program, if there is one.
pub fn checked() -> Option<(String, String)> {
    let named = std::env::var("MANYLANE_CHECKED").ok()?;
    let (driver, path) = named.split_once(':').expect("a driver, a colon and a path");
    Some((driver.to_owned(), path.to_owned()))
}

/// Path of the HAProxy that `MANYLANE_HAPROXY` names (`.cargo/config.toml`, `scripts/peers`), if it is
/// version 3.2.
pub fn haproxy() -> Option<&'static Path> {
    static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let path = PathBuf::from(std::env::var_os("MANYLANE_HAPROXY")?);
        let version = Command::new(&path).arg("-v").stdin(Stdio::null()).output().ok()?;
        String::from_utf8_lossy(&version.stdout).contains("version 3.2.").then_some(path)
    };
    PATH.get_or_init(find).as_deref()
}

/// Path of this program, built with the profile of the test; `MANYLANE_PROGRAM` names another one.
///
/// # Panics
/// If it cannot be built, or if `scripts/full-speed.toml` has changed the profile of the test: the program
/// would be built without that file.
pub fn manylane() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(path) = std::env::var_os("MANYLANE_PROGRAM") {
            return path.into();
        }
        // The test is <target>/<profile>/deps/<name>.
        let test = std::env::current_exe().unwrap();
        let folder = test.parent().and_then(Path::parent).expect("a test is in a folder of its profile");
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let plain = cfg!(debug_assertions) || profile != "dev";
        assert!(plain, "expected the path of a program at full speed in MANYLANE_PROGRAM, found none");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "manylane", "--profile", profile, "--target-dir"])
            .arg(folder.parent().expect("a profile is in the target folder"))
            .status()
            .unwrap();
        assert!(built.success(), "manylane could not be built");
        folder.join("manylane")
    })
}

/// Most listeners that a program inherits.
const MOST_LISTENERS: usize = 16;

/// Descriptors that were opened early and so have low numbers: HAProxy refuses a number above those that its
/// `maxconn` needs, and a test that runs many cases has more. Held while they are inheritable, so that only
/// the intended child gets them.
static LOW: LazyLock<Mutex<Vec<OwnedFd>>> =
    LazyLock::new(|| Mutex::new((0..MOST_LISTENERS).map(|_| nothing()).collect()));

fn nothing() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

/// A running program, killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    errors: Option<JoinHandle<String>>,
}

impl Program {
    /// Starts `path` with `arguments`, `environment`, and `listeners` as inherited descriptors, each passed
    /// in the variable that it is paired with. Closes the listeners here.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(
        path: &Path,
        arguments: &[&str],
        environment: &[(String, String)],
        listeners: Vec<(String, TcpListener)>,
    ) -> Self {
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let mut all = LOW.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(listeners.len() <= MOST_LISTENERS, "a program inherits at most {MOST_LISTENERS} listeners");
        let low = &mut all[..listeners.len()];
        for ((name, socket), own) in listeners.iter().zip(&mut *low) {
            dup3(socket, own, DupFlags::empty()).unwrap();
            command.env(name, own.as_raw_fd().to_string());
        }
        let child = command.spawn();
        low.iter_mut().for_each(|own| dup3(nothing(), own, DupFlags::CLOEXEC).unwrap());
        drop(all);
        drop(listeners);
        let mut child = child.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut pipe = child.stderr.take().expect("it was asked for");
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.read_to_end(&mut text); // shows what arrived
            String::from_utf8_lossy(&text).into_owned()
        });
        Self { child, errors: Some(errors) }
    }

    /// Process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(id, signal); // it may have ended
    }

    /// Waits for its end. Returns its status and its standard error.
    ///
    /// # Panics
    /// If it does not end within [`TIMEOUT`].
    pub fn wait(mut self) -> (ExitStatus, String) {
        let id = rustix::process::Pid::from_child(&self.child);
        let process = rustix::process::pidfd_open(id, rustix::process::PidfdFlags::empty()).unwrap();
        let mut ends = [PollFd::new(&process, PollFlags::IN)];
        let timeout = Timespec::try_from(TIMEOUT).unwrap();
        assert!(poll(&mut ends, Some(&timeout)).unwrap() == 1, "the program does not end");
        let status = self.child.wait().unwrap();
        let errors = self.errors.take().map(|errors| errors.join().unwrap_or_default());
        (status, errors.unwrap_or_default())
    }

    /// Stops it as an operator would (SIGINT); returns its status and its standard error.
    pub fn stop(self) -> (ExitStatus, String) {
        self.signal(rustix::process::Signal::INT);
        self.wait()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
        if let (true, Some(errors)) = (thread::panicking(), self.errors.take()) {
            eprintln!("the program wrote:\n{}", errors.join().unwrap_or_default());
        }
    }
}
