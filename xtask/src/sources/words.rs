//! Finds names that were replaced by the word of HAProxy's manual, the RFCs or other libraries. One idea has
//! one word, so that a search finds one thing.

use super::Check;
use proc_macro2::Ident;

/// Replaced names, and the names to use. Names that contain one as a part are accepted.
const GIVEN_UP: [(&str, &str); 44] = [
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
    ("asked", "request, query or what was requested"),
    ("beat", "sample"),
    ("depot", "idle_pool"),
    ("gift", "the thing that is given"),
    ("giver", "reply"),
    ("heir", "successor"),
    ("kin", "predecessor"),
    ("pains", "timings"),
    ("resting", "idle"),
    ("seat", "guard"),
    ("seen", "what was received, read or observed"),
    ("shelf", "idle_pool"),
    ("soil", "saved configuration"),
    ("telling", "report"),
    ("told", "report, or what was reported"),
    ("vitals", "process_stats"),
];

/// Invented words that no part of a name may be: they have no other meaning that the code needs.
const GIVEN_UP_PARTS: [(&str, &str); 8] = [
    ("bell", "notify"),
    ("depot", "idle_pool"),
    ("giver", "reply"),
    ("heir", "successor"),
    ("patience", "timeout"),
    ("shelf", "idle_pool"),
    ("soil", "saved configuration"),
    ("vitals", "process_stats"),
];

/// Words with many meanings, which no part of a longer name may be, also in names of tests. `in_place` is
/// accepted: it has one meaning.
const GIVEN_UP_PARTS_OF_LONGER: [(&str, &str); 3] = [
    ("pace", "rate or interval"),
    ("place", "permit, position, slot, offset or address"),
    ("places", "permits, positions, slots, offsets or addresses"),
];

/// Words with many meanings, which no part of a name may be, except in test code: names of tests are
/// sentences.
const GIVEN_UP_PARTS_OF_PRODUCT: [(&str, &str); 6] = [
    ("asked", "requested, queried or named"),
    ("looked", "read, visited or checked"),
    ("news", "update, or what changed"),
    ("seen", "received, read or known"),
    ("told", "reported, sent or known"),
    ("vain", "failed"),
];

/// Words with many meanings, which no field or function, and outside of test code no local variable or
/// parameter, may have as its whole name, and names to use.
const GIVEN_UP_VALUES: [(&str, &str); 13] = [
    ("aim", "check_target"),
    ("facts", "what they are about"),
    ("hand", "reply, or what is passed on"),
    ("look", "read, peek or sample"),
    ("looked", "what was read, or when it was sampled"),
    ("looks", "checks, reads or attempts"),
    ("news", "update, or what changed"),
    ("pace", "rate or interval"),
    ("place", "index, slot, offset, position or address"),
    ("places", "slots, points or indexes"),
    ("verdict", "result or outcome"),
    ("watch", "timeouts, or what is waited for"),
    ("way", "direction, delivery or path"),
];

impl Check<'_> {
    /// Checks the name of a field, a function, a local variable or a parameter.
    pub(super) fn value_name(&mut self, name: &Ident) {
        // `name` reports it once.
        let reported = !self.test && GIVEN_UP_PARTS_OF_PRODUCT.iter().any(|(given_up, _)| name == given_up);
        let found = GIVEN_UP_VALUES.iter().find(|(given_up, _)| name == given_up && !reported);
        if let Some((_, instead)) = found {
            self.find(
                name.span(),
                format!("`{name}` has many meanings as the name of a value; say which: {instead}"),
            );
        }
    }

    pub(super) fn name(&mut self, name: &Ident) {
        let text = name.to_string();
        let parts: Vec<_> = parts(&text).collect();
        let whole = GIVEN_UP.iter().find(|(given_up, _)| text == *given_up);
        let part = || GIVEN_UP_PARTS.iter().find(|(given_up, _)| parts.iter().any(|part| part == given_up));
        let part_of_longer = || {
            let in_place = |n: usize| n > 0 && parts[n - 1] == "in" && parts[n] == "place";
            let has = |word: &str| parts.iter().enumerate().any(|(n, part)| part == word && !in_place(n));
            GIVEN_UP_PARTS_OF_LONGER.iter().find(|(given_up, _)| parts.len() > 1 && has(given_up))
        };
        let part_of_product = || {
            let mut all = GIVEN_UP_PARTS_OF_PRODUCT.iter().filter(|_| !self.test);
            all.find(|(given_up, _)| parts.iter().any(|part| part == given_up))
        };
        if let Some((given_up, instead)) =
            whole.or_else(part).or_else(part_of_longer).or_else(part_of_product)
        {
            let what = if text == *given_up { "is a name" } else { "contains a word" };
            self.find(
                name.span(),
                format!("`{name}` {what} that was given up; call it what others do: {instead}"),
            );
        }
    }
}

/// The words of a name, in lower case: `set_timeout`, `SetTimeout` and `SET_TIMEOUT` have the same two.
fn parts(name: &str) -> impl Iterator<Item = String> {
    let capitals_only = !name.contains(char::is_lowercase);
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || (letter.is_uppercase() && !capitals_only) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter != '_') {
            word.extend(letter.to_lowercase());
        }
    }
    words.into_iter().filter(|word| !word.is_empty())
}
