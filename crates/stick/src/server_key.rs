//! Names and addresses of servers, which entries keep by number (`server_key`). A text has the same number in
//! all tables of the process, for good.

use manylane_sync::{LockClass, Mutex};
use std::collections::HashMap;
use std::sync::OnceLock;

static CLASS: LockClass = LockClass::new("keys of servers in stick tables", LockClass::LEAF);

/// Texts of a chunk, allocated together.
const CHUNK: usize = 1024;

/// Most texts. They are never freed, and DNS may return new addresses forever. Further texts get no number,
/// and entries find their server by its id only.
pub const MAX_SERVER_KEYS: usize = 64 * CHUNK;

/// Texts up to which those of peers get numbers, too. The rest is for the servers of this process, whatever
/// its peers send.
const MAX_PEER_KEYS: usize = MAX_SERVER_KEYS / 2;

/// Each text is written once, so a reader with its number takes no lock.
type Texts = Box<[OnceLock<Box<str>>]>;

/// The texts by number, starting at 1.
static TEXTS: [OnceLock<Texts>; MAX_SERVER_KEYS / CHUNK] =
    [const { OnceLock::new() }; MAX_SERVER_KEYS / CHUNK];

manylane_sync::lazy_static! {
    /// Numbers by text.
    static NUMBERS: Mutex<HashMap<&'static str, u32>> = Mutex::new(&CLASS, HashMap::new());
}

/// The number of a text; assigns one if necessary. `None` if there are too many. Takes a lock, so keep the
/// number.
pub fn server_key(text: &str) -> Option<u32> {
    number_within(text, MAX_SERVER_KEYS)
}

/// As [`server_key`], for a text from a peer: `None` for a new one if more than half of the numbers are used.
pub fn peer_server_key(text: &str) -> Option<u32> {
    number_within(text, MAX_PEER_KEYS)
}

/// The number of a text; assigns one if there are fewer than `most` texts.
fn number_within(text: &str, most: usize) -> Option<u32> {
    let mut numbers = NUMBERS.lock();
    if let Some(number) = numbers.get(text) {
        return Some(*number);
    }
    let index = Some(numbers.len()).filter(|index| *index < most)?;
    let chunk = TEXTS.get(index / CHUNK)?.get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
    let kept = chunk[index % CHUNK].get_or_init(|| text.into());
    let number = u32::try_from(index + 1).ok()?;
    numbers.insert(kept, number);
    Some(number)
}

/// The text of a number, without a lock.
pub fn server_key_text(number: u64) -> Option<&'static str> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    TEXTS.get(index / CHUNK)?.get()?[index % CHUNK].get().map(|text| &**text)
}
