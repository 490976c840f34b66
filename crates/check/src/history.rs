//! History of a server: the time of its last change, and its downtime. Written when its state changes;
//! reports read it.

use manylane_sync::{LockClass, Mutex, SeqLatch};
use std::time::Duration;

static HISTORIES: LockClass = LockClass::new("check history of a server", LockClass::LEAF);

/// History of a server in reports. Times are by the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Time of the last change; of the start, if there was none.
    pub changed: Duration,
    /// True if the server has been down since then.
    pub is_down: bool,
    /// Total time that the server was down before that.
    pub down_for: Duration,
    /// Number of times that the server went down.
    pub downs: u64,
}

impl History {
    fn words(&self) -> [u64; 4] {
        // 64 bits of nanoseconds last for five centuries.
        [self.changed.as_nanos() as u64, self.is_down.into(), self.down_for.as_nanos() as u64, self.downs]
    }

    /// Returns the total time that the server was down.
    pub fn downtime(&self, now: Duration) -> Duration {
        let now_down = if self.is_down { now.saturating_sub(self.changed) } else { Duration::ZERO };
        self.down_for + now_down
    }
}

/// Holder of one server's history. Writers take turns under the lock; reports read it without a lock.
#[derive(Debug)]
pub struct HistoryCell {
    state: Mutex<History>,
    /// The fields of [`History`], in order.
    published: SeqLatch<4>,
}

impl HistoryCell {
    /// Begins a history.
    pub fn new(now: Duration) -> Self {
        let since = History { changed: now, is_down: false, down_for: Duration::ZERO, downs: 0 };
        Self { state: Mutex::new(&HISTORIES, since), published: SeqLatch::new(since.words()) }
    }

    fn edit(&self, edit: impl FnOnce(&mut History)) {
        let mut since = self.state.lock();
        edit(&mut since);
        self.published.write(since.words());
    }

    /// Records a change: whether the server serves now.
    pub fn change(&self, serves: bool, now: Duration) {
        self.edit(|past| {
            let down_for = past.downtime(now);
            let downs = past.downs + u64::from(!serves && !past.is_down);
            *past = History { changed: now, is_down: !serves, down_for, downs };
        });
    }

    /// Restores the state that another process left: the time of the change, and whether the server serves.
    pub fn restore(&self, serves: bool, changed: Duration) {
        self.edit(|past| (past.changed, past.is_down) = (changed, !serves));
    }

    /// Sets the number of times that it went down.
    pub fn set_downs(&self, downs: u64) {
        self.edit(|past| past.downs = downs);
    }

    /// Returns the history until now.
    pub fn read(&self) -> History {
        let [changed, is_down, down_for, downs] = self.published.read();
        let (changed, down_for) = (Duration::from_nanos(changed), Duration::from_nanos(down_for));
        History { changed, is_down: is_down != 0, down_for, downs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_server_is_down_is_counted_until_it_serves_again() {
        let second = Duration::from_secs;
        let past = HistoryCell::new(second(10));
        past.change(false, second(12));
        past.change(false, second(15)); // down, and then in maintenance
        assert_eq!(past.read().downtime(second(20)), second(8));
        past.change(true, second(20));
        assert_eq!(past.read().downtime(second(99)), second(8));
        assert_eq!((past.read().changed, past.read().downs), (second(20), 1));
        let changing = past.state.lock();
        assert_eq!(past.read().downs, 1, "a report waits for nobody");
        drop(changing);
        past.set_downs(0);
        assert_eq!(
            (past.read().changed, past.read().downtime(second(99)), past.read().downs),
            (second(20), second(8), 0)
        );
    }
}
