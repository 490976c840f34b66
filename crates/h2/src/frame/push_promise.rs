//! PUSH_PROMISE (RFC 9113, 6.6): refused. As a client we switch pushes off before a server could send one,
//! and no client may send one.

use crate::error::Problem;

pub(crate) const KIND: u8 = 0x5;

/// What it always is.
pub(crate) const PROBLEM: Problem = Problem::Push;
