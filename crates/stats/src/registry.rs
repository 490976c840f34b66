//! The registry of all memory types of the program, and their reports.

use crate::mem::{MemCounts, MemSource};
use crate::read::{self, StillCounting};
use crate::sites::CallSite;
use manylane_sync::LaneId;
#[cfg(not(any(loom, manylane_sim)))]
use manylane_sync::{LockClass, Mutex};
use std::fmt;

// Statics cannot hold loom's locks, and the memory of a simulation ends with it: neither machine lists
// sources.
#[cfg(not(any(loom, manylane_sim)))]
static CLASS: LockClass = LockClass::new("memory types", LockClass::REGISTRY);
#[cfg(not(any(loom, manylane_sim)))]
static SOURCES: Mutex<Vec<&'static dyn MemSource>> = Mutex::new(&CLASS, Vec::new());

/// Adds `source` to [`report_mem`]. Each source registers once; a [`MemType`](crate::MemType) registers
/// itself.
pub fn register_mem(source: &'static dyn MemSource) {
    #[cfg(not(any(loom, manylane_sim)))]
    SOURCES.lock().push(source);
    #[cfg(any(loom, manylane_sim))]
    let _ = source;
}

/// Returns a cheap reading of every memory type in use, in order of name, without stopping the lanes (R-C2).
pub fn report_mem() -> Vec<MemReport> {
    report_mem_sites().into_iter().map(|(report, _)| report).collect()
}

/// As [`report_mem`], with the call sites of each type (R-C3), most bytes first. No call sites without the
/// feature `call-sites`.
pub fn report_mem_sites() -> Vec<(MemReport, Vec<CallSite>)> {
    #[cfg(not(any(loom, manylane_sim)))]
    let sources = SOURCES.lock().clone();
    #[cfg(any(loom, manylane_sim))]
    let sources: Vec<&'static dyn MemSource> = Vec::new();
    let mut all: Vec<_> = sources
        .into_iter()
        .map(|source| (MemReport::read_cheap(source), MemReport::call_sites(source)))
        .collect();
    all.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    all
}

/// Counts of one memory type: each lane's slot, and the sum (R-C2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemReport {
    /// The type's name.
    pub name: String,
    /// Lanes that ever allocated or freed memory of the type, in order.
    pub lanes: Vec<(LaneId, MemCounts)>,
    /// The sum over [`lanes`](Self::lanes).
    pub sum: MemCounts,
}

impl MemReport {
    /// Copies the slots while the lanes go on.
    ///
    /// Includes all counts before the call, and possibly some during it. The sum never shows more frees than
    /// allocations, nor more bytes out than in: all frees are read before any allocation (rule 3). A single
    /// lane's line may, even at rest: lanes free objects of other lanes.
    pub fn read_cheap(source: &dyn MemSource) -> Self {
        let frees = slots_of(source);
        let mut lanes = slots_of(source);
        let mut earlier = frees.into_iter().peekable();
        for (lane, counts) in &mut lanes {
            // A lane that appeared between the two passes had freed nothing at the first.
            let (frees, bytes_out) = match earlier.next_if(|(l, _)| l == lane) {
                Some((_, then)) => (then.frees, then.bytes_out),
                None => (0, 0),
            };
            *counts = MemCounts { frees, bytes_out, ..*counts };
        }
        Self::new(source, lanes)
    }

    /// Returns the counts of all lanes at one moment during the call.
    ///
    /// # Errors
    /// [`StillCounting`] if lanes kept counting at every attempt.
    pub fn read_exact(source: &dyn MemSource) -> Result<Self, StillCounting> {
        Ok(Self::new(source, read::exact(|| slots_of(source))?))
    }

    fn new(source: &dyn MemSource, lanes: Vec<(LaneId, MemCounts)>) -> Self {
        let sum = lanes.iter().map(|(_, counts)| *counts).sum();
        Self { name: source.name().to_owned(), lanes, sum }
    }

    /// Returns the call sites that allocated memory of this type (R-C3), most bytes first. Empty without the
    /// feature `call-sites`.
    pub fn call_sites(source: &dyn MemSource) -> Vec<CallSite> {
        let mut all = Vec::new();
        source.visit_sites(&mut |site| all.push(site));
        CallSite::merge(all)
    }
}

fn slots_of(source: &dyn MemSource) -> Vec<(LaneId, MemCounts)> {
    let mut slots = Vec::new();
    source.visit(&mut |lane, counts| slots.push((lane, counts)));
    slots
}

/// Writes a line for the sum and a line for each lane.
impl fmt::Display for MemReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, head: fmt::Arguments<'_>, c: &MemCounts| {
            writeln!(
                f,
                "{head} in use {} ({} bytes), allocs {} ({} bytes), frees {} ({} bytes), sizes{}",
                c.live(),
                c.live_bytes(),
                c.allocs,
                c.bytes_in,
                c.frees,
                c.bytes_out,
                SizeList(c.size_classes)
            )
        };
        line(f, format_args!("{}:", self.name), &self.sum)?;
        for (lane, counts) in &self.lanes {
            line(f, format_args!("  {lane:?}:"), counts)?;
        }
        Ok(())
    }
}

/// Prints size classes as their largest sizes.
struct SizeList(u64);

impl fmt::Display for SizeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str(" none");
        }
        (0..u64::BITS).filter(|k| self.0 >> k & 1 == 1).try_for_each(|k| write!(f, " {}", 1u64 << k))
    }
}
