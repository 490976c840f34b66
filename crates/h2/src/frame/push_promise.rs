//! PUSH_PROMISE (RFC 9113, 6.6): refused. A client of this crate disables pushes before a server could send
//! one, and clients may not send one.

use crate::error::Problem;

pub(crate) const KIND: u8 = 0x5;

/// The problem of every such frame.
pub(crate) const PROBLEM: Problem = Problem::Push;
