//! ServerVersion of servers: whichever lanes change a server and hear of it, and in whatever order, the older
//! one is in the end as the one that serves.
#![cfg(loom)]

use manylane_proxy::{Epoch, ServerVersion};
use manylane_sync::atomic::{AtomicU32, Ordering};
use manylane_sync::{Arc, model, thread};

/// A server in two generations: where it is, and whether it is up, which are changed one by one.
struct Server {
    news: ServerVersion,
    told: Epoch,
    serving: [AtomicU32; 2],
    older: [AtomicU32; 2],
}

impl Server {
    fn new() -> Arc<Self> {
        let nothing = || [AtomicU32::new(0), AtomicU32::new(0)];
        Arc::new(Self {
            news: ServerVersion::new(),
            told: Epoch::nothing(1),
            serving: nothing(),
            older: nothing(),
        })
    }

    /// A lane changes one thing and numbers that.
    fn change(&self, thing: usize, value: u32) -> u64 {
        self.serving[thing].store(value, Ordering::Relaxed);
        self.news.next()
    }

    /// A lane hears of it.
    fn hear(&self, news: u64) {
        self.told.tell(0, news, || {
            // As of a server: its numbers by themselves, one after another.
            let known = [0, 1].map(|thing| self.serving[thing].load(Ordering::Relaxed));
            (0..2).for_each(|thing| self.older[thing].store(known[thing], Ordering::Relaxed));
        });
    }

    fn is_up_to_date(&self) {
        let all = |of: &[AtomicU32; 2]| [0, 1].map(|thing| of[thing].load(Ordering::Relaxed));
        assert_eq!(all(&self.older), all(&self.serving));
    }
}

/// Two lanes change it at the same time, each another thing, and hear of what they have changed.
#[test]
fn two_changes_at_the_same_time_are_both_heard() {
    model(|| {
        let server = Server::new();
        let other = {
            let server = server.clone();
            thread::spawn(move || server.hear(server.change(0, 1)))
        };
        server.hear(server.change(1, 2));
        other.join().expect("no assertion failed");
        server.is_up_to_date();
    });
}

/// One lane changes it twice; a second one hears of the first change late, and of the other not at all.
#[test]
fn who_comes_late_with_what_was_before_does_not_overwrite_what_is() {
    model(|| {
        let server = Server::new();
        let first = server.change(0, 1);
        let late = {
            let server = server.clone();
            thread::spawn(move || server.hear(first))
        };
        server.hear(server.change(1, 2));
        late.join().expect("no assertion failed");
        server.is_up_to_date();
    });
}
