#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // one of the crates where `unsafe` is allowed by name (ARCHITECTURE.md)

mod abort;
mod blocking;
mod boxed;
mod busy;
mod chunks;
mod class;
mod error;
#[cfg(not(loom))]
mod faults;
mod here;
mod home;
mod inbox;
mod isolate;
mod kind;
mod lane;
mod late;
mod memory;
mod own;
mod placement;
mod poller;
#[cfg(not(loom))]
mod profile;
mod queue;
mod report;
mod round;
mod slot;
mod sums;
mod task;
mod time;
mod timer;
mod waker;
#[cfg(not(loom))]
mod watchdog;

pub use abort::{LONGEST_WRITE, abort_after};
pub use blocking::{BLOCKING_QUEUE, BLOCKING_THREADS, Blocking, BlockingPool, Refused};
pub use boxed::Boxed;
pub use class::{Class, RUNQUEUE_DEPTH};
pub use error::{LaneTaken, SpawnError};
#[cfg(not(loom))]
pub use faults::end_by_faults;
pub use here::{Here, NiceOutOfRange, Remote};
pub use isolate::isolate;
pub use kind::TaskKind;
pub use lane::{Config, Lane, Round};
pub use late::{Caller, LateWake};
pub use placement::{BadCpuList, Cpu, PinError, Placement, keep_to, parse_cpus, pin_to};
#[cfg(not(loom))]
pub use poller::ThreadPoller;
pub use poller::{Poller, Unpark};
#[cfg(not(loom))]
pub use profile::{KindReport, LATE, Profiling, profile, profiling, set_profiling};
pub use report::{LaneReport, idle, report};
#[cfg(loom)]
#[doc(hidden)]
pub use sums::{Reading, Sums}; // models make their own, since statics cannot hold loom's atomics
pub use time::Time;
pub use timer::{Elapsed, Sleep, TIMERS_PER_ROUND};
pub use waker::TaskId;
#[cfg(not(loom))]
pub use watchdog::{Limits, Watchdog};
