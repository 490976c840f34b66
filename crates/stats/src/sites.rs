//! Call sites (R-C3): allocations by the place in the source that requested them.

use crate::tally::Tally;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::sync::OnceLock;

/// Maximum number of call sites in one lane's slot of one memory type: 8 KiB a slot. Allocations of further
/// sites are counted together.
pub const MAX_CALL_SITES: usize = if cfg!(loom) { 2 } else { 256 };

/// Number of places for a site, counted from its hash, so that an allocation by the 257th site does not
/// search the whole table.
const PROBES: usize = if cfg!(loom) { 2 } else { 16 };

/// Call sites of one lane's slot. Only the owning lane records; any thread reads.
///
/// # Cost
/// `record`: a hash, one probe in an uncrowded table, two additions.
#[derive(Debug)]
pub struct SiteTable {
    /// Open addressing by the hash of the location's address; entries are never removed.
    sites: Box<[SiteCounters]>,
    others: SiteCounters,
}

#[derive(Debug, Default)]
struct SiteCounters {
    location: OnceLock<&'static Location<'static>>,
    allocs: Tally,
    bytes: Tally,
}

impl SiteTable {
    /// Counts an allocation of `bytes` bytes by `location`.
    #[inline]
    pub fn record(&self, location: &'static Location<'static>, bytes: usize) {
        let site = self.find(location);
        site.allocs.add(1);
        site.bytes.add(bytes as u64);
    }

    fn find(&self, location: &'static Location<'static>) -> &SiteCounters {
        // Fibonacci hashing: the upper bits are well mixed.
        let hash = (std::ptr::from_ref(location).addr() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let first = (hash >> (u64::BITS - MAX_CALL_SITES.trailing_zeros())) as usize;
        for probe in 0..PROBES {
            let site = &self.sites[(first + probe) % MAX_CALL_SITES];
            if std::ptr::eq(*site.location.get_or_init(|| location), location) {
                return site;
            }
        }
        &self.others
    }

    /// Calls `each` with every site that allocated.
    pub fn visit(&self, each: &mut dyn FnMut(CallSite)) {
        for site in self.sites.iter().chain([&self.others]) {
            let location = site.location.get().copied();
            let (allocs, bytes) = (site.allocs.get(), site.bytes.get());
            if allocs > 0 {
                each(CallSite { location, allocs, bytes });
            }
        }
    }
}

impl Default for SiteTable {
    fn default() -> Self {
        Self {
            sites: (0..MAX_CALL_SITES).map(|_| SiteCounters::default()).collect(),
            others: SiteCounters::default(),
        }
    }
}

/// Allocations of one place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// The place; none for all places that found their slot's table full.
    pub location: Option<&'static Location<'static>>,
    /// Number of objects.
    pub allocs: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl CallSite {
    /// Returns one entry for each place (compilers may duplicate a location), most bytes first.
    pub(crate) fn merge(all: Vec<Self>) -> Vec<Self> {
        let mut sites = BTreeMap::new();
        for site in all {
            let sum = sites.entry(site.location).or_insert(Self { allocs: 0, bytes: 0, ..site });
            sum.allocs += site.allocs;
            sum.bytes += site.bytes;
        }
        let mut merged: Vec<_> = sites.into_values().collect();
        merged.sort_by_key(|site| std::cmp::Reverse((site.bytes, site.allocs)));
        merged
    }
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.location {
            Some(location) => write!(f, "{location}")?,
            None => f.write_str("other lines")?,
        }
        write!(f, ": {} allocations, {} bytes", self.allocs, self.bytes)
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    fn sum(table: &SiteTable) -> Vec<CallSite> {
        let mut all = Vec::new();
        table.visit(&mut |site| all.push(site));
        CallSite::merge(all)
    }

    #[test]
    fn sites_are_distinguished_and_sorted_by_bytes() {
        let table = SiteTable::default();
        let small = Location::caller();
        let large = Location::caller();
        table.record(small, 10);
        table.record(large, 100);
        table.record(small, 10);
        assert_eq!(
            sum(&table),
            [
                CallSite { location: Some(large), allocs: 1, bytes: 100 },
                CallSite { location: Some(small), allocs: 2, bytes: 20 },
            ]
        );
    }

    #[test]
    fn sites_beyond_the_bound_are_counted_together_and_nothing_is_lost() {
        let table = SiteTable::default();
        // Distinct addresses stand for distinct places.
        let sites: Vec<Location<'static>> = vec![*Location::caller(); MAX_CALL_SITES * 3];
        let locations: &'static [Location<'static>] = sites.leak();
        for location in locations {
            table.record(location, 1);
        }
        let mut count = (0, 0);
        table.visit(&mut |site| {
            count.0 += site.allocs;
            count.1 += u64::from(site.location.is_none());
        });
        assert_eq!(count, (locations.len() as u64, 1));
    }
}
