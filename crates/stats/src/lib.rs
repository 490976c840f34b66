#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod counter;
mod gauge;
mod group;
mod histogram;

mod mem;
mod read;
mod registry;
mod sites;
mod tally;

pub use counter::Counter;
pub use gauge::Gauge;
pub use group::{CounterGroup, Counters};

pub use histogram::{Histogram, HistogramSnapshot};
pub use mem::{MemCounts, MemSlot, MemSource, MemType};
pub use read::{EXACT_ATTEMPTS, StillCounting};
pub use registry::{MemReport, register_mem, report_mem, report_mem_sites};
pub use sites::{CallSite, MAX_CALL_SITES, SiteTable};
pub use tally::Tally;

pub(crate) use manylane_sync::const_fn;
