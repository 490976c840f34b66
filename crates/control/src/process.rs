//! What the program provides for commands: facts of the process, and functions that change it.

use manylane_plan::generation::Change;
use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

/// Reads the configuration again and replaces the generation. Resolves to a message for the client; with
/// `Err`, the old generation stays.
pub type Reload = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<String, String>>>>>;

/// Adds or removes a server. Resolves to a message for the client; with `Err`, nothing has changed.
pub type ChangeServers = Box<dyn Fn(Change) -> Pin<Box<dyn Future<Output = Result<String, String>>>>>;

/// Values that are known when the process starts.
#[derive(Clone, Debug)]
pub struct ProcessInfo {
    /// The program's version.
    pub version: &'static str,
    /// The version's date: `2026/11/22`.
    pub released: &'static str,
    /// Number of lanes.
    pub lanes: usize,
    /// `-m`: the memory limit, in megabytes.
    pub megabytes: Option<u64>,
    /// The limit of open descriptors.
    pub descriptors: u64,
    /// Time from the process's beginning until it started to serve.
    pub boot: Duration,
    /// When the process started to serve.
    pub started: Instant,
    /// When the process started to serve, by the system clock.
    pub since: SystemTime,
}

/// What the program provides for commands.
pub struct Process {
    /// Values that are known when the process starts.
    pub info: ProcessInfo,
    /// `reload`
    pub reload: Reload,
    /// `add server`, `del server`
    pub change: ChangeServers,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({}, {} lanes)", self.info.version, self.info.lanes)
    }
}
