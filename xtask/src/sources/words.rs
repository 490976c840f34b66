//! Finds names that were replaced by the word of HAProxy's manual, the RFCs or other libraries. One idea has
//! one word, so that a search finds one thing.

use super::Check;
use proc_macro2::Ident;

/// Replaced names, and the names to use. Names that contain one as a part are accepted.
const GIVEN_UP: [(&str, &str); 41] = [
    ("Aims", "CheckTarget"),
    ("Asked", "Request, of a transfer between lanes"),
    ("Bell", "Notify"),
    ("Chances", "RetryBudget"),
    ("Facts", "EvalContext, or what they are about"),
    ("Gift", "the thing that is given"),
    ("Giver", "Reply, of a transfer between lanes"),
    ("Going", "Upload"),
    ("Hold", "ServerPermit"),
    ("Look", "BodyPeek"),
    ("Looked", "Sample or Snapshot"),
    ("Moment", "EvalPhase, or the point in time"),
    ("News", "ServerVersion or Epoch"),
    ("Pains", "ConnectTimings"),
    ("Patience", "Timeouts"),
    ("Place", "ConnGuard, or the index"),
    ("Places", "ConnLimit, or indexes"),
    ("Rest", "IdleSession"),
    ("Seat", "LaneGuard"),
    ("Seats", "SharedLimit"),
    ("Seen", "what was received or read"),
    ("Shelved", "IdleConn"),
    ("Site", "ServerAddr"),
    ("Ticket", "ConnGuard"),
    ("Told", "ServerVersion or Epoch"),
    ("Vain", "Failure"),
    ("Watch", "StreamTimeouts"),
    ("Way", "Direction"),
    ("beat", "sample"),
    ("depot", "idle_pool"),
    ("gift", "the thing that is given"),
    ("giver", "reply"),
    ("heir", "successor"),
    ("kin", "predecessor"),
    ("pains", "timings"),
    ("resting", "idle"),
    ("seat", "guard"),
    ("shelf", "idle_pool"),
    ("soil", "saved configuration"),
    ("telling", "report"),
    ("vitals", "process_stats"),
];

impl Check<'_> {
    pub(super) fn name(&mut self, name: &Ident) {
        if let Some((_, instead)) = GIVEN_UP.iter().find(|(given_up, _)| name == given_up) {
            self.find(
                name.span(),
                format!("`{name}` is a name that was given up; call it what others do: {instead}"),
            );
        }
    }
}
