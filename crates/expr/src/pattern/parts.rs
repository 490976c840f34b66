//! Machines that try many patterns in one pass. Such a machine cannot be changed, so that a list that changes
//! has several, each for a run of its entries, and those of a few entries are made anew while those of many
//! stay (J. Bentley and J. Saxe, *Decomposable Searching Problems*, 1980): over many changes each entry is
//! built into a machine a number of times that is the logarithm of the list's length. An entry that is gone
//! stays in its machine, and who finds it looks whether it is still there, until half of the machine is gone.

use super::entry::Entries;

/// A list's machines, in order of their entries.
#[derive(Clone, Debug)]
pub(super) struct Parts<M>(Vec<Part<M>>);

#[derive(Clone, Debug)]
pub(super) struct Part<M> {
    /// Numbers of the first and the last entry that it was made of.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Entries that it was made of, and those of them that are gone.
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
    /// Whether all entries that it finds are still there.
    pub(super) fn is_whole(&self) -> bool {
        self.gone == 0
    }
}

impl<M> Parts<M> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Part<M>> {
        self.0.iter()
    }

    /// One machine for all.
    pub(super) fn all(entries: &Entries, make: &impl Fn(&[(u64, &[u8])]) -> M) -> Self {
        let mut parts = Self::default();
        parts.0.extend(Part::of(entries, 0, u64::MAX, make));
        parts
    }

    /// The entry behind all others was added: a machine for it, and for those in front of it that are as few.
    pub(super) fn add(&mut self, id: u64, entries: &Entries, make: &impl Fn(&[(u64, &[u8])]) -> M) {
        let mut first = id;
        let mut count = 1;
        while let Some(part) = self.0.pop_if(|part| part.count - part.gone <= count) {
            first = part.first;
            count += part.count - part.gone;
        }
        self.0.extend(Part::of(entries, first, id, make));
    }

    /// An entry was removed.
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
    /// Of the entries with these numbers; none when there are none.
    fn of(entries: &Entries, first: u64, last: u64, make: &impl Fn(&[(u64, &[u8])]) -> M) -> Option<Self> {
        let all = entries.iter_from(&first).take_while(|(id, _)| **id <= last);
        let all: Vec<(u64, &[u8])> = all.map(|(id, entry)| (*id, entry.pattern())).collect();
        super::work::steps(all.len());
        let (first, last) = (all.first()?.0, all.last()?.0);
        Some(Self { first, last, count: all.len(), gone: 0, machine: make(&all) })
    }
}
