//! A view of a run of bytes of one cluster.

use crate::error::{Error, OutOfRange};
use crate::header::{Header, Ref};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, Range};
use std::ptr::NonNull;

/// A counted view of a run of bytes of one cluster. 24 bytes, no allocation of its own.
///
/// Cloning shares the cluster. A segment belongs to its lane (`!Send`); to send it to another lane, put it
/// into a [`Chain`](crate::Chain) and the chain into a [`Parcel`](crate::Parcel).
///
/// ```
/// # fn main() -> Result<(), manylane_buf::Error> {
/// use manylane_buf::Cluster;
/// let mut head = Cluster::with(b"GET / HTTP/1.1")?.into_segment();
/// let method = head.split_to(3)?;
/// assert_eq!((&*method, &*head), (&b"GET"[..], &b" / HTTP/1.1"[..]));
/// # Ok(()) }
/// ```
///
/// The compiler refuses to send it to another lane by itself:
/// ```compile_fail
/// fn send<T: Send>(_: T) {}
/// send(manylane_buf::Cluster::with(b"x").unwrap().into_segment());
/// ```
pub struct Segment {
    hold: Ref,
    view: View,
}

/// Position of the bytes. The third field, without a value, makes it 16 bytes that are copied as one: a clone
/// then needs one load and one store fewer than with two fields, and its time depends on those.
#[derive(Clone, Copy)]
#[repr(C)]
struct View {
    start: NonNull<u8>,
    len: u32,
    rest: MaybeUninit<u32>,
}

impl View {
    #[inline]
    fn new(start: NonNull<u8>, len: u32) -> Self {
        Self { start, len, rest: MaybeUninit::uninit() }
    }
}

#[cfg(not(any(loom, manylane_sim)))]
const _: () = assert!(size_of::<Segment>() == 24 && size_of::<Option<Segment>>() == 24);

impl Segment {
    /// Makes a segment of `len` bytes from `start` on, of the cluster of `hold`.
    ///
    /// # Safety
    /// The bytes are inside the cluster's payload and initialised. For a group handle they end at or below
    /// `filled` (rule 9).
    #[inline]
    pub(crate) unsafe fn over(hold: Ref, start: u32, len: u32) -> Self {
        debug_assert!(start as usize + len as usize <= hold.capacity(), "inside the payload");
        // SAFETY: inside the payload, by contract.
        let start = unsafe { hold.data().add(start as usize) };
        Self { hold, view: View::new(start, len) }
    }

    /// Returns the bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: initialised (see `over`), and no thread writes them: a writer is either sole (rule 8),
        // which is impossible while this handle exists, or writes from `filled` on, above this view (rule 9).
        unsafe { std::slice::from_raw_parts(self.view.start.as_ptr(), self.view.len as usize) }
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.view.len as usize
    }

    /// True if there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.view.len == 0
    }

    /// Returns the offset of the first byte in the payload.
    #[inline]
    fn offset(&self) -> u32 {
        // SAFETY: both point into the payload, or one behind it.
        (unsafe { self.view.start.offset_from(self.hold.data()) }) as u32
    }

    /// Returns the offset behind the last byte in the payload.
    #[inline]
    fn end(&self) -> u32 {
        self.offset() + self.view.len
    }

    /// Returns a second view, over `range` of this one. Shares the cluster.
    ///
    /// # Errors
    /// [`OutOfRange`] if the range ends beyond this segment; a range that ends before it starts is empty.
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Result<Self, OutOfRange> {
        OutOfRange::check("slice up to", "segment", range.end, self.len())?;
        let start = range.start.min(range.end);
        // SAFETY: checked: inside this view.
        Ok(unsafe { self.view(start, range.end - start) })
    }

    /// # Safety
    /// `start + len` is at most `self.len()`.
    #[inline]
    pub(crate) unsafe fn view(&self, start: usize, len: usize) -> Self {
        debug_assert!(start + len <= self.len(), "inside the view");
        // SAFETY: by contract: inside this view, whose bytes are in the payload and initialised.
        let start = unsafe { self.view.start.add(start) };
        Self { hold: self.hold.clone(), view: View::new(start, len as u32) }
    }

    /// Cuts the view in two: keeps the bytes before `at`, and returns the rest.
    ///
    /// # Errors
    /// [`OutOfRange`] if `at` is beyond the end.
    #[inline]
    pub fn split_off(&mut self, at: usize) -> Result<Self, OutOfRange> {
        OutOfRange::check("split at", "segment", at, self.len())?;
        // SAFETY: checked.
        let tail = unsafe { self.view(at, self.len() - at) };
        self.view.len = at as u32;
        Ok(tail)
    }

    /// Cuts the view in two: returns the bytes before `at`, and keeps the rest.
    ///
    /// # Errors
    /// [`OutOfRange`] if `at` is beyond the end.
    #[inline]
    pub fn split_to(&mut self, at: usize) -> Result<Self, OutOfRange> {
        OutOfRange::check("split at", "segment", at, self.len())?;
        // SAFETY: checked, twice.
        let head = unsafe { self.view(0, at) };
        // SAFETY: as above.
        unsafe { self.skip(at) };
        Ok(head)
    }

    /// # Safety
    /// `n` is at most `self.len()`.
    #[inline]
    pub(crate) unsafe fn skip(&mut self, n: usize) {
        debug_assert!(n <= self.len(), "inside the view");
        // SAFETY: by contract: inside the view.
        self.view.start = unsafe { self.view.start.add(n) };
        self.view.len -= n as u32;
    }

    /// Drops the first `n` bytes of the view.
    ///
    /// # Errors
    /// [`OutOfRange`] if there are fewer.
    #[inline]
    pub fn trim_front(&mut self, n: usize) -> Result<(), OutOfRange> {
        OutOfRange::check("trim of the first", "segment", n, self.len())?;
        // SAFETY: checked.
        unsafe { self.skip(n) };
        Ok(())
    }

    /// Drops the bytes of the view behind the first `len`; does nothing if the view is not longer.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.view.len = len as u32;
        }
    }

    /// True if this is the only handle on the cluster.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.hold.is_sole()
    }

    /// Returns the bytes for writing if this is the only handle and the memory is writable. It never copies
    /// silently: the caller decides what to do after `None`.
    #[inline]
    pub fn try_unique(&mut self) -> Option<&mut [u8]> {
        if self.hold.is_writable() && self.hold.is_sole() {
            // SAFETY: rule 8: no other handle sees the bytes as long as `self` is borrowed.
            Some(unsafe { std::slice::from_raw_parts_mut(self.view.start.as_ptr(), self.view.len as usize) })
        } else {
            None
        }
    }

    /// Marks the cluster *zero on free* (R-B5): the lane that drops the last handle zeroes the whole payload
    /// before its memory can be reused. The mark covers the cluster, not just this view, and cannot be
    /// removed.
    ///
    /// # Errors
    /// [`ReadOnly`] for foreign bytes that were not declared writable: they cannot be zeroed.
    #[inline]
    pub fn zero_on_free(&self) -> Result<(), ReadOnly> {
        if !self.hold.is_writable() {
            return Err(ReadOnly);
        }
        self.hold.mark_zero();
        Ok(())
    }

    /// True if a holder has marked the cluster, as far as this lane knows.
    pub fn is_zero_on_free(&self) -> bool {
        self.hold.is_marked()
    }

    /// True if both are views of one cluster.
    #[inline]
    pub fn shares_with(&self, other: &Self) -> bool {
        self.hold.same(&other.hold)
    }

    /// True if the bytes are foreign (see [`External`](crate::External)).
    pub fn is_external(&self) -> bool {
        self.hold.is_external()
    }

    /// Merges `next` into this view if it continues the view in the same cluster; otherwise returns it.
    #[inline]
    pub(crate) fn join(&mut self, next: Self) -> Result<(), Self> {
        let adjacent = self.hold.same(&next.hold) && self.end() == next.offset();
        if !adjacent {
            return Err(next);
        }
        self.view.len += next.view.len; // both lie in one payload, whose size is a u32
        Ok(())
    }

    /// Merges `before` into this view if the view continues it in the same cluster; otherwise returns it.
    #[inline]
    pub(crate) fn join_front(&mut self, before: Self) -> Result<(), Self> {
        let adjacent = self.hold.same(&before.hold) && before.end() == self.offset();
        if !adjacent {
            return Err(before);
        }
        self.view.start = before.view.start;
        self.view.len += before.view.len;
        Ok(())
    }

    /// Returns the number of bytes that this handle may write behind this view now (rule 9).
    #[inline]
    pub(crate) fn spare(&mut self) -> usize {
        let end = self.end();
        self.hold.spare(end)
    }

    /// Returns the size of the cluster's memory in bytes, header included, minus twice the length of the
    /// view: positive if the bytes fill less than half. The memory of foreign bytes belongs to their owner,
    /// so only the header counts.
    #[inline]
    pub fn excess(&self) -> isize {
        let payload = if self.is_external() { 0 } else { self.hold.capacity() };
        (size_of::<Header>() + payload) as isize - 2 * self.len() as isize
    }

    /// True if the bytes fill less than half of their cluster's memory.
    #[inline]
    pub fn is_sparse(&self) -> bool {
        self.excess() > 0
    }

    /// True if the bytes of both fill at least half of the memory of their two clusters.
    pub(crate) fn fills_with(&self, next: &Self) -> bool {
        self.excess() + next.excess() <= 0
    }

    /// Copies as many of `bytes` behind the view as fit into the spare room, and returns their number.
    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) -> usize {
        let n = self.spare().min(bytes.len());
        if n > 0 {
            let end = self.end();
            // SAFETY: rule 9: this handle may claim the spare bytes, and no other handle sees them.
            unsafe {
                let to = self.view.start.add(self.view.len as usize);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), n);
            }
            self.hold.set_filled(end + n as u32);
            self.view.len += n as u32;
        }
        n
    }

    /// Removes the last `n` bytes, which [`append`](Self::append) has just added, so that their room is free
    /// again.
    pub(crate) fn take_back(&mut self, n: usize) {
        if n > 0 {
            self.view.len -= n as u32;
            let end = self.end();
            self.hold.set_filled(end); // `append` has made it a group handle, or it was one
        }
    }

    /// Claims all spare bytes behind the view (rule 9). `None` if there are none.
    #[inline]
    pub(crate) fn claim(&mut self) -> Option<Claim<'_>> {
        if self.spare() == 0 {
            return None;
        }
        let capacity = self.hold.capacity() as u32;
        self.hold.set_filled(capacity);
        Some(Claim { segment: self })
    }

    /// Copies the last bytes of `bytes` in front of the view, as many as fit into room that no other handle
    /// sees (rule 8), and returns their number.
    pub(crate) fn prepend(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.offset() as usize);
        if n == 0 || !self.hold.is_writable() || !self.hold.is_sole() {
            return 0;
        }
        // SAFETY: rule 8: all bytes of the cluster belong to this handle; there are `n` before the view.
        unsafe {
            let to = self.view.start.sub(n);
            std::ptr::copy_nonoverlapping(bytes[bytes.len() - n..].as_ptr(), to.as_ptr(), n);
            self.view.start = to;
        }
        self.view.len += n as u32;
        n
    }

    /// Returns the number of bytes in front of the view that [`prepend`](Self::prepend) may use now.
    pub(crate) fn headroom(&self) -> usize {
        if self.hold.is_writable() && self.hold.is_sole() { self.offset() as usize } else { 0 }
    }

    #[cfg(all(test, not(any(loom, manylane_sim))))]
    pub(crate) fn hold(&self) -> &Ref {
        &self.hold
    }

    /// Packs the handle: rule 5.
    #[inline]
    pub(crate) fn pack(&mut self) {
        self.hold.pack();
    }

    /// Opens the handle: rules 6 and 7.
    #[inline]
    pub(crate) fn unpack(&mut self) {
        let end = self.end();
        self.hold.unpack(end);
    }
}

impl Clone for Segment {
    /// Shares the cluster: a plain add on the lane that owns the cluster, a locked one on another.
    #[inline]
    fn clone(&self) -> Self {
        Self { hold: self.hold.clone(), view: self.view }
    }
}

impl Deref for Segment {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Segment {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("offset", &self.offset())
            .field("len", &self.view.len)
            .finish_non_exhaustive()
    }
}

/// Claimed spare bytes: while this lives, or if it is leaked, no other handle can claim them.
pub(crate) struct Claim<'a> {
    segment: &'a mut Segment,
}

impl Claim<'_> {
    #[inline]
    pub(crate) fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        let end = self.segment.end() as usize;
        // SAFETY: rule 9: from the end of the view to the end of the payload, claimed by this value alone.
        unsafe {
            let from = self.segment.hold.data().add(end).cast::<MaybeUninit<u8>>();
            std::slice::from_raw_parts_mut(from.as_ptr(), self.segment.hold.capacity() - end)
        }
    }

    /// Adds the first `n` spare bytes to the view.
    ///
    /// # Safety
    /// They are initialised, and there are at least `n`.
    #[inline]
    pub(crate) unsafe fn commit(self, n: usize) {
        debug_assert!(n + self.segment.end() as usize <= self.segment.hold.capacity(), "so many were lent");
        self.segment.view.len += n as u32; // `drop` returns the rest
    }
}

impl Drop for Claim<'_> {
    #[inline]
    fn drop(&mut self) {
        let end = self.segment.end();
        self.segment.hold.set_filled(end);
    }
}

/// Error: the bytes were not declared writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOnly;

impl fmt::Display for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "zero on free of foreign bytes that are read-only: declare them writable when they join a chain, \
                or \
             let their free function zero them",
        )
    }
}

impl std::error::Error for ReadOnly {}

/// Lets `?` work where both errors can happen.
impl From<ReadOnly> for std::io::Error {
    fn from(error: ReadOnly) -> Self {
        Self::new(std::io::ErrorKind::PermissionDenied, error)
    }
}

impl From<OutOfRange> for std::io::Error {
    fn from(error: OutOfRange) -> Self {
        Error::from(error).into()
    }
}
