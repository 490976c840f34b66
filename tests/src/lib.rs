#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // it is for tests: what cannot be set up ends the test

use std::time::Duration;

pub mod case;
pub mod cli;
pub mod client;
pub mod compare;
#[path = "../common/dns.rs"] // the tests of the program alone have it, too
pub mod dns;
pub mod http2;
pub mod message;
pub mod origin;
pub mod program;
pub mod run;
pub mod syslog;
pub mod talker;

/// Longest wait for an event that should come. A test that meets it fails.
pub const PATIENCE: Duration = Duration::from_secs(20);
