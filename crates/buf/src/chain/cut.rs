//! Cuts and shares chains without copying bytes.

use super::Chain;
use crate::error::{Error, OutOfRange};
use std::ops::{Bound, RangeBounds};

impl Chain {
    /// Returns the position `at` as the index of a segment and the offset in it; for the end, the number of
    /// segments and 0.
    fn find(&self, at: usize) -> (usize, usize) {
        let mut before = 0;
        for (index, segment) in self.segments().enumerate() {
            if at < before + segment.len() {
                return (index, at - before);
            }
            before += segment.len();
        }
        (self.segment_count(), 0)
    }

    /// Cuts the chain in two: keeps the bytes before `at`, and returns the rest.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] beyond the end; [`Error::Alloc`] if there is no memory for the ring of the
    /// returned part. The chain is then unchanged (R-B6).
    pub fn split_off(&mut self, at: usize) -> Result<Self, Error> {
        OutOfRange::check("split at", "chain", at, self.len)?;
        let (index, offset) = self.find(at);
        let mut tail = Self::new();
        tail.segments.reserve(self.segment_count() - index)?;
        while self.segment_count() > index + usize::from(offset > 0) {
            let segment = self.pop_back().expect("the loop has counted");
            tail.push_front_reserved(segment);
        }
        if offset > 0
            && let Some(cut) = self.segments.back_mut()
        {
            // SAFETY: `find` returned an offset inside this segment.
            let part = unsafe { cut.view(offset, cut.len() - offset) };
            cut.truncate(offset);
            self.len -= part.len();
            tail.push_front_reserved(part);
        }
        Ok(tail)
    }

    /// Cuts the chain in two: returns the bytes before `at`, and keeps the rest.
    ///
    /// # Errors
    /// As [`split_off`](Self::split_off).
    pub fn split_to(&mut self, at: usize) -> Result<Self, Error> {
        OutOfRange::check("split at", "chain", at, self.len)?;
        let (index, offset) = self.find(at);
        let mut head = Self::new();
        head.segments.reserve(index + usize::from(offset > 0))?;
        for _ in 0..index {
            let segment = self.pop_front().expect("`find` has counted");
            head.push_back_reserved(segment);
        }
        if offset > 0
            && let Some(cut) = self.segments.front_mut()
        {
            // SAFETY: `find` returned an offset inside this segment.
            let part = unsafe { cut.view(0, offset) };
            // SAFETY: as above.
            unsafe { cut.skip(offset) };
            self.len -= offset;
            head.push_back_reserved(part);
        }
        Ok(head)
    }

    /// Returns a chain over the bytes in `range`; both chains share the clusters.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] beyond the end; [`Error::Alloc`] if there is no memory for the ring.
    pub fn copy_range(&self, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        OutOfRange::check("copy of a range up to", "chain", end, self.len)?;
        let mut copy = Self::new();
        if start >= end {
            return Ok(copy);
        }
        let (first, offset) = self.find(start);
        let (last, into_last) = self.find(end);
        let after = last + usize::from(into_last > 0);
        copy.segments.reserve(after - first)?;
        let (mut skip, mut left) = (offset, end - start);
        for index in first..after {
            let segment = self.segments.get(index).expect("`find` has counted");
            let n = left.min(segment.len() - skip);
            // SAFETY: inside the segment: at most the rest of it behind `skip`.
            copy.push_back_reserved(unsafe { segment.view(skip, n) });
            (skip, left) = (0, left - n);
        }
        Ok(copy)
    }

    /// Returns a second chain over the same bytes: [`copy_range`](Self::copy_range) of all.
    ///
    /// # Errors
    /// [`Error::Alloc`] if there is no memory for the ring.
    pub fn share(&self) -> Result<Self, Error> {
        self.copy_range(..)
    }

    /// Drops the first `n` bytes. Needs no memory.
    ///
    /// # Errors
    /// [`OutOfRange`] if the chain is shorter; then nothing is dropped.
    #[inline]
    pub fn trim_front(&mut self, n: usize) -> Result<(), OutOfRange> {
        OutOfRange::check("trim of the first", "chain", n, self.len)?;
        self.skip(n);
        Ok(())
    }

    /// Drops the first `n` bytes. The chain has that many.
    #[inline]
    pub(super) fn skip(&mut self, mut n: usize) {
        debug_assert!(n <= self.len, "the caller has checked");
        while let Some(front) = self.segments.front_mut() {
            if n < front.len() {
                // SAFETY: checked.
                unsafe { front.skip(n) };
                self.len -= n;
                return;
            }
            n -= front.len();
            // Keeps rule 1 before each drop, which may run foreign code that panics.
            drop(self.pop_front());
            if n == 0 {
                return;
            }
        }
    }

    /// Drops all bytes behind the first `len`; does nothing if the chain is not longer.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        while self.len > len
            && let Some(back) = self.segments.back_mut()
        {
            let excess = self.len - len;
            if excess < back.len() {
                back.truncate(back.len() - excess);
                self.len = len;
                return;
            }
            self.len -= back.len();
            self.segments.pop_back();
        }
    }
}
