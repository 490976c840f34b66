//! Rates that are read while the counters are looked at: every interleaving. A reader may lose its processor
//! for as long as two looks take.
#![cfg(loom)]

use manylane_proxy::meter::{Counted, Metered};
use manylane_sched::Time;
use manylane_stats::Tally;
use manylane_sync::{Arc, model, thread};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

manylane_stats::counters! {
    struct Few { begun, ended }
}

impl Metered for Few {
    const RATES: [&'static str; 2] = ["begun", "ended"];
    const LEVEL: (&'static str, &'static str) = ("begun", "ended");
    const MEANS: &'static [(&'static str, &'static str)] = &[];

    fn rated(&self, which: usize) -> &Tally {
        [&self.begun, &self.ended][which]
    }
}

/// The place of a look is written again two looks later: what is read is all of one look, and never more than
/// there was.
#[test]
fn a_rate_is_of_one_look() {
    static SEEN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    model(|| {
        let counted: Arc<Counted<Few>> = Arc::new(Counted::default());
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        counted.own().begun.add(1);
        counted.look(at(1));
        let looking = {
            let counted = counted.clone();
            thread::spawn(move || {
                for (second, events) in [(2, 10), (3, 100)] {
                    counted.own().begun.add(events);
                    counted.look(at(second));
                }
            })
        };
        let reading = {
            let counted = counted.clone();
            thread::spawn(move || counted.rate(0, at(3)))
        };
        looking.join().expect("no assertion failed");
        let rate = reading.join().expect("no assertion failed");
        SEEN.lock().expect("no panic").insert(rate);
    });
    // Two seconds behind the first look: nothing, or 10 in both together. One behind the second: nothing,
    // since its 10 are older than a second, or the next 100. At the third: these.
    assert_eq!(*SEEN.lock().expect("no panic"), BTreeSet::from([0, 5, 100]));
}
