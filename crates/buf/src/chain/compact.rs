//! Compact chains: bytes that wait take memory in proportion to their number, however small the pieces were
//! in which they came.
//!
//! A read puts its bytes into a cluster of their own, so a peer that sends single bytes uses a cluster for
//! each. Code that keeps such bytes (an incomplete message, a queue) adds them with
//! [`push_compact`](Chain::push_compact).
//!
//! Rule, for a chain that grows only by these functions: every segment except the first and the last fills at
//! least half of its cluster's memory, header included, alone or together with the segment behind it. A last
//! segment that was copied is in a small cluster. So the chain takes at most twice its bytes and two
//! clusters, one of which is small if the bytes were cut out of larger reads; it is only one cluster as long
//! as nothing is removed from the front. Code that removes bytes there, such as a parser, calls
//! [`gather`](Chain::gather) on what it leaves.
//!
//! A segment that is marked *zero on free* moves by reference, however small it is. A copy would lie in
//! memory that nobody zeroes. Code that marks segments bounds their number.

use super::Chain;
use crate::error::{Error, PushError};
use crate::segment::Segment;
use crate::store::MAX_CLUSTER;

impl Chain {
    /// Appends a segment that is to be kept: by reference if it fills half of its cluster or is marked [zero
    /// on free](Segment::zero_on_free); otherwise copies its bytes behind the last byte and frees its
    /// cluster.
    ///
    /// Does not release a cluster of the chain, or write below its `filled` mark, so bytes of the chain may
    /// be in use elsewhere, for example in a system call.
    ///
    /// Cost: as [`push_back`](Self::push_back) for an empty chain; otherwise at most one copy of the segment.
    ///
    /// # Errors
    /// [`PushError`], with the segment, if there is no memory; the chain is then unchanged (R-B6).
    #[inline]
    pub fn push_compact(&mut self, segment: Segment) -> Result<(), PushError> {
        match self.back() {
            Some(back) if segment.is_sparse() || back.is_sparse() => self.push_copied(segment),
            _ => self.push_back(segment),
        }
    }

    fn push_copied(&mut self, segment: Segment) -> Result<(), PushError> {
        let Some(back) = self.segments.back_mut() else { return self.push_back(segment) };
        let len = segment.len();
        let segment = match back.join(segment) {
            Ok(()) => {
                self.len += len;
                return Ok(());
            }
            Err(segment) => segment,
        };
        if segment.is_zero_on_free() {
            return self.push_back(segment);
        }
        let taken = back.append(&segment);
        // SAFETY: at most its length was taken.
        let rest = unsafe { segment.view(taken, len - taken) };
        let added = if rest.is_empty() {
            Ok(())
        } else if rest.is_sparse() {
            self.append_clusters(&rest)
        } else {
            self.push_back(rest).map_err(|failed| failed.error)
        };
        match added {
            Ok(()) => {
                self.len += taken;
                Ok(())
            }
            Err(error) => {
                if let Some(back) = self.segments.back_mut() {
                    back.take_back(taken);
                }
                Err(PushError { segment, error })
            }
        }
    }

    /// Moves all segments of `other` behind this chain, as [`push_compact`](Self::push_compact) does with
    /// each. But a small segment before a large one, such as a frame's header before its data, moves by
    /// reference if the two together fill half of their clusters. O(segments of `other`).
    ///
    /// # Errors
    /// If there is no memory; then a part of `other` is moved, and `other` has the rest.
    pub fn append_compact(&mut self, other: &mut Self) -> Result<(), Error> {
        if self.is_empty() && other.segment_count() == 1 {
            std::mem::swap(self, other);
            return Ok(());
        }
        while let Some(segment) = other.pop_front() {
            let behind_full = !self.back().is_some_and(Segment::is_sparse);
            if behind_full
                && other.front().is_some_and(|next| segment.is_sparse() && segment.fills_with(next))
            {
                self.push_back(segment).map_err(|failed| failed.back_into(other))?;
                let Some(next) = other.pop_front() else { break };
                self.push_back(next).map_err(|failed| failed.back_into(other))?;
            } else {
                self.push_compact(segment).map_err(|failed| failed.back_into(other))?;
            }
        }
        Ok(())
    }

    /// Copies a chain whose bytes fit one cluster into one, if they lie in several and those of the first
    /// fill less than half of theirs. So what a parser leaves takes at most twice its bytes and one cluster;
    /// beyond [`MAX_CLUSTER`] bytes it is two clusters, as above.
    ///
    /// Releases clusters of the chain, so its bytes must not be in use elsewhere without a view of their own.
    ///
    /// Cost: nothing for a single segment; otherwise at most one copy of the bytes.
    ///
    /// # Errors
    /// [`Error::Alloc`] if there is no memory; the chain is then unchanged.
    #[inline]
    pub fn gather(&mut self) -> Result<(), Error> {
        if self.segment_count() > 1
            && self.len() <= MAX_CLUSTER
            && self.front().is_some_and(Segment::is_sparse)
        {
            self.pull_up(self.len())?;
        }
        Ok(())
    }
}
