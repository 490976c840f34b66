//! Every interleaving of a reader of rates and the updates. A reader may be preempted for as long as two
//! updates take.
#![cfg(loom)]

use manylane_plan::meter::{Meter, MeteredCounters};
use manylane_sched::Time;
use manylane_stats::Tally;
use manylane_sync::{Arc, model, thread};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

manylane_stats::counters! {
    struct Few { begun, ended }
}

impl MeteredCounters for Few {
    const RATES: [&'static str; 2] = ["begun", "ended"];
    const LEVEL: (&'static str, &'static str) = ("begun", "ended");
    const MEANS: &'static [(&'static str, &'static str)] = &[];

    fn rated(&self, which: usize) -> &Tally {
        [&self.begun, &self.ended][which]
    }
}

/// The second update overwrites the snapshot that the reader may be reading. A rate must come from one
/// snapshot, and never exceed the events of a second.
#[test]
fn a_rate_is_of_one_sample() {
    static SEEN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    model(|| {
        let counted: Arc<Meter<Few>> = Arc::new(Meter::default());
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        counted.own().begun.add(1);
        counted.sample(at(1));
        let sampling = {
            let counted = counted.clone();
            thread::spawn(move || {
                for (second, events) in [(2, 10), (3, 100)] {
                    counted.own().begun.add(events);
                    counted.sample(at(second));
                }
            })
        };
        let reading = {
            let counted = counted.clone();
            thread::spawn(move || counted.rate(0, at(3)))
        };
        sampling.join().expect("no assertion failed");
        let rate = reading.join().expect("no assertion failed");
        SEEN.lock().expect("no panic").insert(rate);
    });
    // Two seconds after the first snapshot the rate is 0, or 5 for 10 events in two seconds. One second after
    // the second snapshot it is 0, since its 10 events are older than a second, or 100 with the next events.
    // At the third snapshot it is 100.
    assert_eq!(*SEEN.lock().expect("no panic"), BTreeSet::from([0, 5, 100]));
}
