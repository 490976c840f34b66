//! Cache lines: their holders, and their transfers.
//!
//! Lines are found by page in the order of first access, so that nothing depends on absolute addresses.

use crate::cost::Picoseconds;
use crate::topology::{Distance, MAX_CORES};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;

const PAGE_SHIFT: u32 = 12;

/// Index of a line in [`Lines`].
pub(crate) type LineId = u32;

/// A set of cores.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Cores([u64; MAX_CORES / 64]);

impl Cores {
    pub(crate) fn only(core: usize) -> Self {
        let mut set = Self::default();
        set.insert(core);
        set
    }
    pub(crate) fn insert(&mut self, core: usize) {
        self.0[core / 64] |= 1 << (core % 64);
    }
    pub(crate) fn has(&self, core: usize) -> bool {
        self.0[core / 64] & (1 << (core % 64)) != 0
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; MAX_CORES / 64]
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(word, &bits)| {
            std::iter::successors((bits != 0).then_some(bits), |b| Some(b & (b - 1)).filter(|&b| b != 0))
                .map(move |b| word * 64 + b.trailing_zeros() as usize)
        })
    }
}

/// A store in some core's buffer whose request for the line is in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    /// When the request reaches the owner.
    pub(crate) at: Picoseconds,
    pub(crate) core: usize,
    /// The thread that counts it, if measured.
    pub(crate) thread: Option<usize>,
    pub(crate) site: &'static Location<'static>,
    /// Its place in the line's order of transfers, known from `at` on.
    pub(crate) journey: Option<Journey>,
}

/// A transfer that is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Journey {
    /// When the line leaves its holder of that time.
    pub(crate) leaves: Picoseconds,
    pub(crate) arrives: Picoseconds,
    /// `None`: from memory.
    pub(crate) distance: Option<Distance>,
}

/// The state of one line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// Cores that have a copy. Empty: invalid everywhere.
    pub(crate) holders: Cores,
    /// True if the only holder may write (modified or exclusive). Otherwise shared.
    pub(crate) owned: bool,
    /// When the last decided transfer will end; `goes_to` is its destination.
    pub(crate) arrives: Picoseconds,
    pub(crate) goes_to: usize,
    /// True if the line will be shared then.
    pub(crate) goes_shared: bool,
    /// When the last locked instruction ends.
    pub(crate) locked_until: Picoseconds,
    /// In order of time.
    pub(crate) posted: Vec<Posted>,
    /// Number of transfers in the measured part.
    pub(crate) transfers: u64,
    /// Line in the source that caused the first of them.
    pub(crate) site: Option<&'static Location<'static>>,
}

impl Line {
    pub(crate) fn is_owned_by(&self, core: usize) -> bool {
        self.owned && self.holders.has(core)
    }
}

#[derive(Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(byte.into()));
    }
    fn write_usize(&mut self, page: usize) {
        self.0 = (self.0 ^ page as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

/// All lines accessed so far.
pub(crate) struct Lines {
    shift: u32,
    pages: HashMap<usize, u32, BuildHasherDefault<PageHasher>>,
    /// Pages in order of first access.
    addresses: Vec<usize>,
    /// The lines of page 0, of page 1, ...
    lines: Vec<Line>,
    /// Recent pages, by the low bits of their number.
    recent: [(usize, u32); 64],
}

impl Lines {
    /// Creates the table without lines; each will have `1 << shift` bytes.
    pub(crate) fn new(shift: u32) -> Self {
        Self {
            shift,
            pages: HashMap::default(),
            addresses: Vec::new(),
            lines: Vec::new(),
            recent: [(usize::MAX, 0); 64],
        }
    }

    /// Iterates over the addresses of the lines that `bytes` bytes from `address` on span.
    pub(crate) fn spanned(&self, address: usize, bytes: usize) -> impl Iterator<Item = usize> + use<> {
        let shift = self.shift;
        (address >> shift..=(address + bytes - 1) >> shift).map(move |number| number << shift)
    }

    #[inline]
    pub(crate) fn find(&mut self, address: usize) -> LineId {
        let page = address >> PAGE_SHIFT;
        let (known, index) = self.recent[page % 64];
        let index = if known == page { index } else { self.find_page(page) };
        let in_page = (address >> self.shift) & ((1 << (PAGE_SHIFT - self.shift)) - 1);
        (index << (PAGE_SHIFT - self.shift)) + in_page as u32
    }

    #[cold]
    fn find_page(&mut self, page: usize) -> u32 {
        let per_page = 1 << (PAGE_SHIFT - self.shift);
        let index = *self.pages.entry(page).or_insert_with(|| {
            let index = u32::try_from(self.addresses.len()).expect("fewer than 2^32 pages fit into memory");
            self.addresses.push(page << PAGE_SHIFT);
            self.lines.resize(self.lines.len() + per_page, Line::default());
            index
        });
        self.recent[page % 64] = (page, index);
        index
    }

    #[inline]
    pub(crate) fn get(&mut self, line: LineId) -> &mut Line {
        &mut self.lines[line as usize]
    }

    /// Resets the counts, not the holders.
    pub(crate) fn reset_counts(&mut self) {
        for line in &mut self.lines {
            line.transfers = 0;
            line.site = None;
        }
    }

    /// Iterates over the lines with transfers, in order of first access to their page, with their addresses.
    pub(crate) fn travelled(&self) -> impl Iterator<Item = (usize, &Line)> {
        let per_page = 1 << (PAGE_SHIFT - self.shift);
        self.lines.iter().enumerate().filter(|(_, line)| line.transfers > 0).map(move |(index, line)| {
            (self.addresses[index / per_page] + ((index % per_page) << self.shift), line)
        })
    }

    /// Returns the bytes of a line.
    pub(crate) fn line_bytes(&self) -> usize {
        1 << self.shift
    }

    /// Returns the number of lines.
    pub(crate) fn count(&self) -> LineId {
        self.lines.len() as LineId
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_cores_holds_each_core_once() {
        let mut set = Cores::only(3);
        for core in [255, 64, 3, 0] {
            set.insert(core);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 64, 255]);
        assert!(set.has(255) && !set.has(254) && !set.is_empty());
        assert!(Cores::default().is_empty() && Cores::default().iter().next().is_none());
    }

    #[test]
    fn lines_keep_their_offset_in_the_page_wherever_the_page_is() {
        let mut lines = Lines::new(6);
        let a = lines.find(0x7000_1000);
        let b = lines.find(0x1000_0FC0);
        assert_eq!((a, b), (0, 64 + 63));
        assert_eq!(lines.find(0x7000_103F), a);
        assert_eq!(lines.find(0x7000_1040), a + 1);
        assert_eq!(lines.spanned(0x103F, 2).collect::<Vec<_>>(), [0x1000, 0x1040]);
        assert_eq!(lines.spanned(0x1000, 64).collect::<Vec<_>>(), [0x1000]);
    }
}
