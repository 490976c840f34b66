//! A chain that is mostly absent.
//!
//! A descriptor has two chains: bytes received ahead of a request, and bytes that its socket has not accepted
//! yet. An idle descriptor has neither, and most connections are idle. A chain takes 128 bytes, so it is in
//! an object of the lane's pool while there are bytes.

use manylane_buf::{Chain, Error};
use manylane_pool::{Pool, Pooled};
use std::sync::LazyLock;

static CHAINS: LazyLock<Pool<Chain>> =
    LazyLock::new(|| Pool::new("io chain").expect("the size is a constant below the bound"));

/// Optional bytes: the object exists only while there are bytes, except during a call.
#[derive(Default)]
pub(crate) struct Held(Option<Pooled<Chain>>);

impl Held {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |chain| chain.len())
    }

    /// Returns the bytes for reading.
    #[inline]
    pub(crate) fn chain(&self) -> Option<&Chain> {
        self.0.as_deref()
    }

    /// Calls `change` to add or remove bytes.
    ///
    /// # Errors
    /// If there is no memory for the chain; then `change` is not called.
    #[inline]
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Chain) -> T) -> Result<T, Error> {
        let mut chain = match self.0.take() {
            Some(chain) => chain,
            None => CHAINS.alloc_with(Chain::new).map_err(Error::Alloc)?,
        };
        let outcome = change(&mut chain);
        if !chain.is_empty() {
            self.0 = Some(chain);
        }
        Ok(outcome)
    }

    /// Appends all bytes of `chain`; copies small pieces behind the last byte, so that bytes that wait for a
    /// slow peer take memory in proportion to their number.
    ///
    /// # Errors
    /// No memory, or too many segments; then a part may have been moved.
    #[inline]
    pub(crate) fn append(&mut self, chain: &mut Chain) -> Result<(), Error> {
        if chain.is_empty() {
            return Ok(());
        }
        self.change(|held| held.append_compact(chain))?
    }

    /// Appends all bytes of `behind`.
    ///
    /// # Errors
    /// As [`append`](Self::append); `behind` is then lost.
    #[inline]
    pub(crate) fn append_held(&mut self, behind: Self) -> Result<(), Error> {
        match behind.0 {
            None => Ok(()),
            Some(chain) if self.0.is_none() => {
                self.0 = Some(chain);
                Ok(())
            }
            Some(mut chain) => self.append(&mut chain),
        }
    }

    /// Takes all bytes.
    pub(crate) fn take(&mut self) -> Chain {
        self.0.take().map_or_else(Chain::new, Pooled::into_inner)
    }
}
