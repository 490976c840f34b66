//! Keywords that are not built, as a whole or in part. The reader, `--help` and the reference all use these
//! lists. Building a keyword only removes its row from here.

use super::{Keyword, Status};

/// Family, name, reason.
type Row = (&'static str, &'static str, &'static str);

const DRIVER: &str = "the IO driver uses a fixed value";
const GLITCHES: &str = "glitches are not counted: an invalid HTTP/1 message is refused at once";
pub(super) const COPIES: &str = "bytes go from one side to the other without being copied, whatever it says";

/// Refused keywords.
const REFUSED: &[Row] = &[
    ("Logs", "backing-file", "a ring is in memory only; log to a server or a file to keep lines"),
    (
        "Process",
        "cpu-affinity",
        "use 'cpu-policy' or 'cpu-map' to bind lanes to processors; HAProxy 3.2 does not have it either",
    ),
];

/// Keywords without effect.
const IDLE: &[Row] = &[
    ("Process", "tune.disable-zero-copy-forwarding", COPIES),
    ("Process", "tune.disable-fast-forward", "bytes are forwarded in one way only"),
    ("Statistics", "stats show-modules", "there are no counters of modules; the tables show all counters"),
    ("Process", "numa-cpu-mapping", "'cpu-policy first-usable-node' keeps lanes to one node"),
    ("Process", "profiling.memory", "the use of memory is always counted: see 'show pools'"),
    ("Tuning", "tune.bufsize.large", DRIVER),
    ("Tuning", "tune.bufsize.small", DRIVER),
    ("Tuning", "tune.events.max-events-at-once", DRIVER),
    ("Tuning", "tune.fail-alloc", "allocations fail on purpose only in the program's own tests"),
    ("Tuning", "tune.h1.be.glitches-threshold", GLITCHES),
    ("Tuning", "tune.h1.fe.glitches-threshold", GLITCHES),
    ("Tuning", "tune.h1.zero-copy-fwd-recv", COPIES),
    ("Tuning", "tune.h1.zero-copy-fwd-send", COPIES),
    ("Tuning", "tune.h2.zero-copy-fwd-send", COPIES),
    ("Tuning", "tune.pattern.cache-size", "patterns are found by tables and trees that need no cache"),
    ("Tuning", "tune.rcvbuf.backend", "no datagrams are received from servers"),
    ("Tuning", "tune.recv_enough", DRIVER),
    (
        "Tuning",
        "tune.sndbuf.backend",
        "log lines are the only datagrams, and the usual buffer holds a lane's batch of them",
    ),
    ("Tuning", "tune.sndbuf.frontend", "no datagrams are sent to clients"),
    ("Tuning", "tune.takeover-other-tg-connections", "groups keep no idle connections from each other"),
];

/// Keywords that are refused in part.
const PARTLY: &[Row] = &[
    (
        "Bind options",
        "mss",
        "negative sizes have no effect, since Linux does not change the segments of connections that exist: \
            a warning says so",
    ),
    (
        "Other sections",
        "user",
        "passwords as hashes of DES and other methods than MD5, SHA-256, SHA-512, bcrypt, yescrypt and \
            scrypt are refused",
    ),
    ("Process", "cpu-set", "rules by core and by cluster are refused"),
    ("Process", "set-dumpable", "'libs' is refused: the program has no library that could change below it"),
    ("Proxies", "filter", "cache, compression, fcgi-app, opentracing and spoe are refused"),
    ("Proxies", "mode", "modes other than tcp, http and log are refused"),
    (
        "Tuning",
        "tune.bufsize",
        "the head of a message has at most 65,535 bytes, also where this is larger; what is kept of bodies \
            and contents grows with it",
    ),
    (
        "Tuning",
        "tune.listener.multi-queue",
        "'fair' is as 'on': connections go to the least loaded lane, and to equally loaded ones in turns",
    ),
];

/// Values that HAProxy has and this program refuses: keyword, value, reason.
const CHOICES: &[Row] = &[
    ("filter", "cache", "the cache is not built yet"),
    ("filter", "compression", "compression is not built yet"),
    ("filter", "fcgi-app", "FastCGI is not built"),
    ("filter", "opentracing", "OpenTracing is not built: HAProxy gives it up, too"),
    ("filter", "spoe", "SPOE is not built yet"),
    ("mode", "haterm", "it is not built"),
    ("mode", "spop", "SPOE is not built yet"),
    ("proto", "fcgi", "FastCGI is not built"),
    ("proto", "quic", "QUIC is not built yet"),
    ("proto", "spop", "SPOE is not built yet"),
];

/// Why a value is refused, if HAProxy has it and this program does not.
pub(crate) fn choice(keyword: &str, value: &[u8]) -> Option<&'static str> {
    CHOICES
        .iter()
        .find(|(name, known, _)| *name == keyword && known.as_bytes() == value)
        .map(|(.., why)| *why)
}

/// What follows "found '{value}'" for a value that no version of HAProxy has but that a reader may try.
pub(crate) fn hint(keyword: &str, value: &[u8]) -> Option<&'static str> {
    (keyword == "proto" && value == b"h3").then_some(": HTTP/3 is not built")
}

/// The row with its status from these lists.
pub(super) fn settled(mut row: Keyword) -> Keyword {
    let of = |list: &[Row]| {
        list.iter().find(|(family, name, _)| *family == row.family && *name == row.name).map(|(.., why)| *why)
    };
    let (refused, idle, partly) = (of(REFUSED), of(IDLE), of(PARTLY));
    if let Some(why) = refused {
        row.status = Status::Refused(why);
    } else if let Some(why) = idle {
        row.status = Status::Idle(why);
    } else if let Some(what) = partly {
        row.limitation = what;
    }
    row
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;

    #[test]
    fn every_entry_is_of_a_row_that_is_read_and_stands_in_one_list() {
        let mut unique = std::collections::HashSet::new();
        for (family, name, why) in [REFUSED, IDLE, PARTLY].into_iter().flatten() {
            assert!(unique.insert((family, name)), "{name}");
            let mut rows = Table::get().named(name).filter(|row| row.family == *family);
            let row = rows.next().unwrap_or_else(|| panic!("there is no {name} among {family}"));
            assert!(row.status.reason().unwrap_or(row.limitation) == *why, "{name}");
        }
    }
}
