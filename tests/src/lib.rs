#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // for tests: a failed setup ends the test

use std::time::Duration;

pub mod case;
pub mod cli;
pub mod client;
pub mod compare;
#[path = "../common/dns.rs"] // shared with the tests of the program
pub mod dns;
pub mod http2;
pub mod message;
pub mod origin;
pub mod program;
pub mod run;
pub mod sockets;
pub mod syslog;
pub mod talker;
pub mod tls;

/// Timeout of an event that should happen. A test that reaches it fails.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Sleeps for 500 us: the pause of a loop that polls, such as for a counter of the program. A loop without it
/// takes the processor on which the program should run.
pub fn look_again() {
    std::thread::sleep(Duration::from_micros(500));
}
