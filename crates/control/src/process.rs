//! What commands say of the process as a whole.

use std::time::{Instant, SystemTime};

/// Facts that the program knows at its start.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its version.
    pub version: &'static str,
    /// Lanes that serve.
    pub lanes: usize,
    /// `-m`: megabytes that it may use.
    pub megabytes: Option<u64>,
    /// Descriptors that it may open.
    pub descriptors: u64,
    /// When it started.
    pub started: Instant,
    /// The same, as a date.
    pub since: SystemTime,
}
