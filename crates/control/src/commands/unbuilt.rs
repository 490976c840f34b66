//! HAProxy's commands that are refused, and why.

/// First words and why. The first row that fits holds.
const REFUSED: &[(&str, &str)] = &[
    ("abort ssl", TLS),
    ("add server", SERVERS),
    ("add ssl", TLS),
    ("clear table", TABLES),
    ("commit ssl", TLS),
    ("debug", "it is not built yet"),
    ("del server", SERVERS),
    ("del ssl", TLS),
    ("disable dynamic-cookie", COOKIES),
    ("disable frontend", FRONTENDS),
    ("enable dynamic-cookie", COOKIES),
    ("enable frontend", FRONTENDS),
    ("mcli-debug-mode", "there is no master process"),
    ("new ssl", TLS),
    ("set anon", "answers are not made anonymous"),
    ("set dynamic-cookie-key", COOKIES),
    ("set ssl", TLS),
    ("set table", TABLES),
    ("show activity", "use 'show lanes' and 'show contention'"),
    ("show anon", "answers are not made anonymous"),
    ("show cache", "the cache is not built yet"),
    ("show dev", "it is not built yet"),
    ("show fd", "it is not built yet"),
    ("show libs", "the program is one file"),
    ("show peers", TABLES),
    ("show proc", "there is no master process"),
    ("show quic", "QUIC is not built yet"),
    ("show schema json", "it is not built yet"),
    ("show ssl", TLS),
    ("show table", TABLES),
    ("show tasks", "use 'show profiling'"),
    ("show threads", "use 'show lanes'"),
    ("show tls-keys", TLS),
    ("show trace", "traces are not built"),
    ("shutdown frontend", FRONTENDS),
    ("trace", "traces are not built"),
    ("wait", SERVERS),
];

const TLS: &str = "TLS is not built yet";
const SERVERS: &str = "servers are set by the file only, so far";
const TABLES: &str = "stick tables are not built yet";
const COOKIES: &str = "dynamic cookies are not built yet";
const FRONTENDS: &str = "frontends are not changed at run time yet";

/// Why a command is refused, in a sentence; `None` for one that is not HAProxy's.
pub(super) fn reason(words: &[String]) -> Option<String> {
    let fits = |known: &str| {
        let mut own = words.iter();
        known.split(' ').all(|word| own.next().is_some_and(|own| own == word))
    };
    REFUSED
        .iter()
        .find(|(known, _)| fits(known))
        .map(|(known, why)| format!("'{known}' is a command of HAProxy that this program refuses: {why}."))
}
