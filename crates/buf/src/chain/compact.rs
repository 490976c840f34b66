//! Bytes that wait in a chain: in memory that is bounded by the bytes, however small the pieces were in which
//! they came.
//!
//! A read puts what it gets into a cluster of its own, so a peer that sends single bytes fills a cluster with
//! each. Whoever keeps such bytes (an incomplete message, a queue) adds them with
//! [`push_compact`](Chain::push_compact).
//!
//! Rule: in a chain that grows by these functions alone, every segment but the first and the last fills at
//! least half of its cluster's memory, header included, or does so together with the one behind it, and a
//! last one that was copied lies in a small cluster. So the chain holds at most twice its bytes and two
//! clusters, of which one is small where the bytes were cut out of larger reads; one cluster, as long as
//! nothing is taken from its front.

use super::Chain;
use crate::error::{Error, PushError};
use crate::segment::Segment;

impl Chain {
    /// Puts a segment that is to be kept behind all others: by reference if it fills half of its cluster,
    /// else its bytes are copied behind the last byte and its cluster is free again.
    ///
    /// No cluster of the chain is let go or written below its `filled` mark, so the bytes that were there may
    /// be in use elsewhere, in a system call for example.
    ///
    /// Cost: as [`push_back`](Self::push_back) for an empty chain; else at most one copy of the segment.
    ///
    /// # Errors
    /// [`PushError`], with the segment, when there is no memory; the chain is then as it was (R-B6).
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
        let taken = back.append(&segment);
        // SAFETY: no more was taken than it has.
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

    /// Moves all of `other` behind this, as [`push_compact`](Self::push_compact) does with each segment; but
    /// a small piece before a large one, as a frame's header before its data, goes by reference where the
    /// two together fill half of their clusters. O(segments of `other`).
    ///
    /// # Errors
    /// When there is no memory; then a part of `other` was moved.
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
                self.push_back(segment).map_err(|failed| failed.error)?;
                let Some(next) = other.pop_front() else { break };
                self.push_back(next).map_err(|failed| failed.error)?;
            } else {
                self.push_compact(segment).map_err(|failed| failed.error)?;
            }
        }
        Ok(())
    }
}
