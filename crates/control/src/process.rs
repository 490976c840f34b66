//! What commands say of the process as a whole, and ask of it.

use manylane_proxy::generation::Change;
use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

/// Reads the configuration again and has the new generation serve: what it says of that, or why everything is
/// as before.
pub type Reload = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<String, String>>>>>;

/// Has a server come or go: what is said of it, or why everything is as before.
pub type ChangeServers = Box<dyn Fn(Change) -> Pin<Box<dyn Future<Output = Result<String, String>>>>>;

/// ProcessInfo that the program knows at its start.
#[derive(Clone, Debug)]
pub struct ProcessInfo {
    /// Its version.
    pub version: &'static str,
    /// The day of that version: `2026/11/22`.
    pub released: &'static str,
    /// Lanes that serve.
    pub lanes: usize,
    /// How they reach their sockets: `epoll` or `io_uring`.
    pub driver: &'static str,
    /// `-m`: megabytes that it may use.
    pub megabytes: Option<u64>,
    /// Descriptors that it may open.
    pub descriptors: u64,
    /// How long it took from the program's beginning until it started.
    pub boot: Duration,
    /// When it started.
    pub started: Instant,
    /// The same, as a date.
    pub since: SystemTime,
}

/// ProcessInfo that the program knows at its start, and what it can be asked for.
pub struct Process {
    /// The facts.
    pub facts: ProcessInfo,
    /// `reload`
    pub reload: Reload,
    /// `add server`, `del server`
    pub change: ChangeServers,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({}, {} lanes)", self.facts.version, self.facts.lanes)
    }
}
