//! Flow-control windows (RFC 9113, 5.2 and 6.9).

use crate::error::Problem;
use crate::frame::settings::MAX_WINDOW;

/// Window for what this side sends. A change of settings can make it negative (RFC 9113, 6.9.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWindow(i64);

impl SendWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self(i64::from(size))
    }

    /// Returns the number of bytes that may be sent now.
    pub(crate) fn room(self) -> usize {
        self.0.max(0) as usize
    }

    pub(crate) fn sent(&mut self, n: usize) {
        self.0 -= n as i64;
    }

    /// Changes the window as the peer says.
    pub(crate) fn change(&mut self, by: i64) -> Result<(), Problem> {
        let changed = self.0 + by;
        if changed > i64::from(MAX_WINDOW) {
            return Err(Problem::WindowOverflow);
        }
        self.0 = changed;
        Ok(())
    }
}

/// Window for what the peer sends. Each byte of `size` is in one of three places: the peer may send it
/// (`open`), it came and is not consumed, or it was consumed and not announced (`owed`).
///
/// ```text
///   |<------------------- size ------------------->|
///   [ open            | not consumed      | owed   ]      owed >= size / 2: WINDOW_UPDATE, open += owed
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    open: i64,
    owed: u32,
    size: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self { open: i64::from(size), owed: 0, size }
    }

    /// Returns how many bytes the peer may send now.
    pub(crate) fn open(&self) -> u32 {
        u32::try_from(self.open).unwrap_or(0)
    }

    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Counts a received frame of `n` bytes. Returns false if the peer sent more than it may. A frame without
    /// bytes is allowed even if the window is negative (RFC 9113, 6.9.1), as a change of settings can make
    /// it.
    #[inline]
    pub(crate) fn came(&mut self, n: usize) -> bool {
        self.open -= n as i64;
        n == 0 || self.open >= 0
    }

    /// Counts `n` consumed bytes. Returns the amount to announce now: all of `owed` once it is half of the
    /// window. Below that, a peer whose data is all consumed still has half of the window to use.
    #[inline]
    pub(crate) fn consumed(&mut self, n: usize) -> Option<u32> {
        self.owed += n as u32;
        self.announced()
    }

    fn announced(&mut self) -> Option<u32> {
        if self.owed < (self.size / 2).max(1) {
            return None;
        }
        self.open += i64::from(self.owed);
        Some(std::mem::take(&mut self.owed))
    }

    /// Sets another size, which the peer knows. Returns the amount to announce now: `owed` below half of a
    /// large window may be all of a small one, and then the peer could send nothing more to be consumed.
    pub(crate) fn resize(&mut self, size: u32) -> Option<u32> {
        self.open += i64::from(size) - i64::from(self.size);
        self.size = size;
        if self.owed == 0 { None } else { self.announced() }
    }

    /// Enlarges the window, and returns the amount to announce.
    pub(crate) fn enlarge(&mut self, size: u32) -> Option<u32> {
        let more = size.checked_sub(self.size).filter(|&more| more > 0)?;
        Some(more + self.resize(size).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_may_become_negative_and_overflow_is_refused() {
        let mut window = SendWindow::new(100);
        window.sent(100);
        window.change(-60).expect("allowed");
        assert_eq!(window.room(), 0);
        window.change(70).expect("allowed");
        assert_eq!(window.room(), 10);
        assert_eq!(window.change(i64::from(MAX_WINDOW) - 9), Err(Problem::WindowOverflow));
        window.change(i64::from(MAX_WINDOW) - 10).expect("just fits");
    }

    #[test]
    fn half_a_window_is_announced_and_no_byte_is_lost() {
        let mut window = ReceiveWindow::new(10);
        assert!(window.came(10) && !window.came(1));
        let mut window = ReceiveWindow::new(10);
        assert!(window.came(9));
        assert_eq!([4, 1, 4].map(|n| window.consumed(n)), [None, Some(5), None]);
        assert!(window.came(6) && !window.came(1));
        let mut window = ReceiveWindow::new(1);
        assert!(window.came(1));
        assert_eq!(window.consumed(1), Some(1));
        assert_eq!(window.resize(0), None);
        assert!(window.came(0) && !window.came(1));
        let mut window = ReceiveWindow::new(100);
        assert!(window.came(30));
        assert_eq!((window.consumed(30), window.resize(20)), (None, Some(30)));
        assert!(window.came(20) && !window.came(1));
    }
}
