//! What a backend of a generation that was replaced was told of its servers.
//!
//! # Protocol
//! 1. Who changes a server that serves takes a number for the news behind the change. Every lane that has
//!    older generations is sent them.
//! 2. Of the lanes that come with news of a server one goes on, unless another has come with later ones: who
//!    came first *will* read what the server is, and numbers order what is behind them, so that he finds this
//!    change, too.
//! 3. Who goes on takes the backend's turn, reads all of what the server is, and has the older one be so,
//!    before he gives the turn back. So the last one has read last, and what he has read no other overwrites
//!    with what was before.
//!
//! # Cost
//! Nothing for requests. Of a server 8 bytes for each balancer that has it; news cost each lane a locked
//! operation for each of those.

use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::{LockClass, Mutex, const_fn};

/// What the lock is held for takes locks of the balancer and of places.
static TURN: LockClass = LockClass::new("who has an older server be as the one that serves", 49);

/// Numbers news of servers.
#[derive(Debug)]
pub struct ServerVersion(AtomicU64);

impl ServerVersion {
    const_fn! {
        /// None yet.
        #[allow(clippy::new_without_default)] // it is a static
        pub fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// The number of news of what the caller has changed.
    pub fn next(&self) -> u64 {
        // Rule 2: who knows a number knows the changes that were there before any smaller one was given.
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// What one backend was told.
#[derive(Debug)]
pub struct Epoch {
    /// The last news of each server.
    last: Box<[AtomicU64]>,
    turn: Mutex<()>,
}

impl Epoch {
    /// Nothing, of so many servers.
    pub fn nothing(servers: usize) -> Self {
        Self { last: (0..servers).map(|_| AtomicU64::new(0)).collect(), turn: Mutex::new(&TURN, ()) }
    }

    /// Calls `follow`, which reads what the server is and has the one here be so, unless somebody does who
    /// came with these news or later ones. Whether it was called.
    pub fn tell(&self, server: usize, news: u64, follow: impl FnOnce()) -> bool {
        // Relaxed: what is to be read is known to whoever has the number.
        let is_new = self.last[server].fetch_max(news, Ordering::Relaxed) < news;
        if is_new {
            let _turn = self.turn.lock();
            follow();
        }
        is_new
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn news_of_one_server_hide_none_of_another() {
        let (news, told) = (ServerVersion::new(), Epoch::nothing(2));
        let (first, second) = (news.next(), news.next());
        assert!(told.tell(1, second, || ()));
        assert!(told.tell(0, first, || ()), "nobody has told anything of this one");
        assert!(!told.tell(1, first, || unreachable!()), "who has told later ones has read behind these");
        assert!(!told.tell(1, second, || unreachable!()), "another lane has told them");
        assert!(told.tell(1, news.next(), || ()));
    }
}
