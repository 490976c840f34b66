//! Errors: invalid options of a pool, and failed allocations.

use crate::options::{MAX_ALIGN, MAX_OBJECT_BYTES};
use std::fmt;

/// Options that are out of range. The caller is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// Objects of zero bytes.
    ZeroSize {
        /// The pool's name.
        pool: String,
    },
    /// Objects of more than [`MAX_OBJECT_BYTES`].
    TooLarge {
        /// The pool's name.
        pool: String,
        /// The requested size in bytes.
        size: usize,
    },
    /// An alignment that is no power of two, or larger than a page.
    BadAlign {
        /// The pool's name.
        pool: String,
        /// The requested alignment.
        align: usize,
    },
    /// More global lists than lanes can use.
    #[cfg(feature = "global-pools")]
    TooManyLists {
        /// The pool's name.
        pool: String,
        /// The requested number of lists.
        lists: usize,
    },
    /// A limit of zero objects.
    ZeroLimit {
        /// The pool's name.
        pool: String,
    },
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroSize { pool } => {
                write!(f, "pool `{pool}` cannot have objects of 0 bytes; give the size of an object")
            }
            Self::TooLarge { pool, size } => {
                write!(f, "pool `{pool}` cannot have objects of {size} bytes; the most is {MAX_OBJECT_BYTES}")
            }
            Self::BadAlign { pool, align } => write!(
                f,
                "pool `{pool}` cannot align objects to {align} bytes; give a power of two up to {MAX_ALIGN}"
            ),
            #[cfg(feature = "global-pools")]
            Self::TooManyLists { pool, lists } => write!(
                f,
                "pool `{pool}` cannot have {lists} global lists; the most is {}, one for each lane",
                manylane_sync::lane::MAX_LANES
            ),
            Self::ZeroLimit { pool } => {
                write!(f, "pool `{pool}` cannot be limited to 0 objects; leave the limit out or raise it")
            }
        }
    }
}

impl std::error::Error for PoolError {}

/// An allocation failed. The caller may try again after objects were freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AllocError(pub(crate) &'static Failure);

/// All data of an [`AllocError`] behind one pointer, so that a result fits into two registers.
#[derive(PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) pool: &'static str,
    pub(crate) size: usize,
    pub(crate) cause: Cause,
}

/// Cause of a failed allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The allocator has no memory.
    Memory,
    /// The pool's limit of objects is reached.
    Limit,
    /// A test injected the failure ([`inject`](crate::inject)).
    Injected,
}

impl AllocError {
    /// Returns the cause of the failure.
    pub fn cause(self) -> Cause {
        self.0.cause
    }

    /// Returns the pool's name.
    pub fn pool(self) -> &'static str {
        self.0.pool
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { pool, size, cause } = self.0;
        match cause {
            Cause::Memory => write!(f, "pool `{pool}`: the system has no memory for {size} bytes"),
            Cause::Limit => write!(f, "pool `{pool}`: its limit of objects is reached"),
            Cause::Injected => write!(f, "pool `{pool}`: a failure was injected"),
        }
    }
}

impl fmt::Debug for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AllocError({self})")
    }
}

impl std::error::Error for AllocError {}
