//! Machines that try many patterns in one pass.
//!
//! A machine is immutable. A list that changes therefore has several, each for a run of its entries. A change
//! rebuilds small machines and keeps large ones (J. Bentley and J. Saxe, *Decomposable Searching Problems*,
//! 1980). Over many changes an entry is built into log(length) machines. A removed entry stays in its machine
//! until half of the machine's entries are removed; look-ups check that an entry still exists.

use super::entry::Entries;

/// The machines of a list, in the order of their entries.
#[derive(Clone, Debug)]
pub(super) struct Parts<M>(Vec<Part<M>>);

#[derive(Clone, Debug)]
pub(super) struct Part<M> {
    /// Numbers of its first and last entry.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Number of its entries, and of those that were removed.
    count: usize,
    gone: usize,
    pub(super) machine: M,
}

impl<M> Default for Parts<M> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<M> Part<M> {
    /// True if none of its entries was removed.
    pub(super) fn is_whole(&self) -> bool {
        self.gone == 0
    }
}

impl<M> Parts<M> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Part<M>> {
        self.0.iter()
    }

    /// Builds one machine for all entries.
    pub(super) fn all(entries: &Entries, make: &impl Fn(&[(u64, &[u8])]) -> M) -> Self {
        let mut parts = Self::default();
        parts.0.extend(Part::of(entries, 0, u64::MAX, make));
        parts
    }

    /// Adds the last entry of `entries`: merges it with preceding machines that have no more entries.
    pub(super) fn add(&mut self, id: u64, entries: &Entries, make: &impl Fn(&[(u64, &[u8])]) -> M) {
        let mut first = id;
        let mut count = 1;
        while let Some(part) = self.0.pop_if(|part| part.count - part.gone <= count) {
            first = part.first;
            count += part.count - part.gone;
        }
        self.0.extend(Part::of(entries, first, id, make));
    }

    /// Notes that an entry was removed.
    pub(super) fn remove(&mut self, id: u64, entries: &Entries, make: &impl Fn(&[(u64, &[u8])]) -> M) {
        let Some(at) = self.0.iter().position(|part| (part.first..=part.last).contains(&id)) else { return };
        let part = &mut self.0[at];
        part.gone += 1;
        if part.gone * 2 > part.count {
            let (first, last) = (part.first, part.last);
            let anew = Part::of(entries, first, last, make);
            self.0.splice(at..=at, anew);
        }
    }
}

impl<M> Part<M> {
    /// Builds a machine for the entries from `first` to `last`; `None` if there are none.
    fn of(entries: &Entries, first: u64, last: u64, make: &impl Fn(&[(u64, &[u8])]) -> M) -> Option<Self> {
        let all = entries.iter_from(&first).take_while(|(id, _)| **id <= last);
        let all: Vec<(u64, &[u8])> = all.map(|(id, entry)| (*id, entry.pattern())).collect();
        super::work::steps(all.len());
        let (first, last) = (all.first()?.0, all.last()?.0);
        Some(Self { first, last, count: all.len(), gone: 0, machine: make(&all) })
    }
}
