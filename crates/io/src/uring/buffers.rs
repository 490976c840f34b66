//! A ring of clusters from which the kernel takes room for received bytes.
//!
//! A ring is an array that the kernel and the driver share, with a tail that the driver moves; an entry names
//! a cluster's room. A completion returns a filled cluster by its number. In between, only the kernel writes
//! to the room.

use crate::limits::SMALL_READ;
use io_uring::types::BufRingEntry;
use io_uring::{IoUring, cqueue};
use manylane_buf::{Cluster, Segment};
use manylane_sync::atomic::{Ordering, fence};
use rustix::io::Errno;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Number of entries of a lane's ring, of [`SMALL_READ`] each: 512 KiB. If a round has more reads than that,
/// the operations begin again in the next round.
pub(crate) const ENTRIES: u16 = 256;
/// Number of the ring.
pub(crate) const BUFFERS: u16 = 0;
/// The kernel requires rings to begin on a page.
const PAGE: usize = 4096;

/// The ring of a lane.
pub(crate) struct Buffers {
    ring: Option<Ring>,
    /// True once something was received with it.
    used: bool,
}

impl Buffers {
    /// Creates a ring with this many entries, a power of two. The first receive fills it.
    pub(crate) fn new(uring: &IoUring, entries: u16) -> Result<Self, Errno> {
        Ok(Self { ring: Some(Ring::new(uring, BUFFERS, entries, SMALL_READ)?), used: false })
    }

    pub(crate) fn none() -> Self {
        Self { ring: None, used: false }
    }

    /// Returns the bytes of a completion: `len` bytes in the buffer that it names, if any. A new cluster
    /// takes the buffer's place.
    pub(crate) fn take(&mut self, flags: u32, len: usize) -> Option<Segment> {
        let number = cqueue::buffer_select(flags)?;
        self.ring.as_mut()?.take(number, len)
    }

    /// Refills places for which there was no memory.
    pub(crate) fn refill(&mut self) {
        if let Some(ring) = &mut self.ring
            && self.used
            && !ring.vacant.is_empty()
        {
            ring.refill();
        }
    }

    /// Returns the number of clusters whose room the kernel has.
    pub(crate) fn len(&self) -> usize {
        self.ring.as_ref().map_or(0, |ring| ring.clusters.len() - ring.vacant.len())
    }

    /// Called before a receive: true if the ring is empty for lack of memory.
    pub(crate) fn is_dry(&mut self) -> bool {
        if !self.used {
            self.used = true;
            self.refill();
        }
        self.len() == 0
    }
}

struct Ring {
    entries: NonNull<BufRingEntry>,
    clusters: Box<[Option<Cluster>]>,
    tail: u16,
    size: usize,
    vacant: Vec<u16>,
}

impl Ring {
    fn layout(entries: u16) -> Layout {
        Layout::array::<BufRingEntry>(usize::from(entries))
            .and_then(|layout| layout.align_to(PAGE))
            .expect("a few kilobytes")
    }

    fn new(uring: &IoUring, group: u16, entries: u16, size: usize) -> Result<Self, Errno> {
        let layout = Self::layout(entries);
        // SAFETY: the layout has a size.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        let ring = Self {
            entries: memory.cast(),
            clusters: (0..entries).map(|_| None).collect(),
            tail: 0,
            size,
            vacant: (0..entries).rev().collect(),
        };
        let address = memory.as_ptr().expose_provenance() as u64;
        // SAFETY: this many zeroed entries begin there, and live until after the uring (rule 6 of the
        // driver).
        unsafe { uring.submitter().register_buf_ring_with_flags(address, entries, group, 0) }
            .map_err(super::errno)?;
        Ok(ring)
    }

    fn refill(&mut self) {
        while let Some(number) = self.vacant.pop() {
            if !self.offer(number) {
                self.vacant.push(number);
                return;
            }
        }
    }

    /// Puts a new cluster in the place of that number, and gives the kernel its room.
    fn offer(&mut self, number: u16) -> bool {
        let Ok(mut cluster) = Cluster::alloc(self.size) else { return false };
        let room = cluster.spare_mut();
        let mask = self.clusters.len() as u16 - 1;
        // SAFETY: the index is within the array, whose length is a power of two, and the kernel reads only
        // entries before the tail. Each field is set separately, since a word of the first entry is the tail.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(usize::from(self.tail & mask));
            entry.set_addr(room.as_mut_ptr().expose_provenance() as u64);
            entry.set_len(room.len() as u32);
            entry.set_bid(number);
        }
        self.clusters[usize::from(number)] = Some(cluster);
        self.tail = self.tail.wrapping_add(1);
        // Pairs with the kernel's acquire of the tail: the entry is written before it.
        fence(Ordering::Release);
        // SAFETY: the first entry is initialised, and its spare word is the tail, which only this driver
        // writes. Aligned words of two bytes are written whole; volatile, since the kernel reads it.
        unsafe { BufRingEntry::tail(self.entries.as_ptr()).cast_mut().write_volatile(self.tail) };
        true
    }

    fn take(&mut self, number: u16, len: usize) -> Option<Segment> {
        let mut cluster = self.clusters.get_mut(usize::from(number))?.take()?;
        let len = len.min(cluster.spare_len());
        // SAFETY: the kernel has written this many bytes from the start of the room, and is done with it.
        unsafe { cluster.commit(len) };
        if !self.offer(number) {
            self.vacant.push(number);
        }
        Some(cluster.into_segment())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the driver has ended all operations (rule 6), and fields are
        // dropped in order: the uring itself before its buffers, so the kernel has forgotten the
        // ring.
        unsafe { dealloc(self.entries.as_ptr().cast(), Self::layout(self.clusters.len() as u16)) };
    }
}
