//! HAProxy's commands that are refused, and why.

/// Beginnings of commands, and the reason. The first row that fits applies.
const REFUSED: &[(&str, &str)] = &[
    ("add backend", PROXIES),
    ("debug counters", "it counts lines of HAProxy's own source; 'show activity' and 'show info' count here"),
    ("debug dev check", DEBUG),
    ("debug dev close", DEBUG),
    ("debug dev fd", DEBUG),
    ("debug dev exit", DEBUG),
    ("debug dev hex", DEBUG),
    ("debug dev loop", DEBUG),
    ("debug dev sched", DEBUG),
    ("debug dev stream", DEBUG),
    ("debug dev sym", DEBUG),
    ("del backend", PROXIES),
    ("disable dynamic-cookie", COOKIES),
    ("enable dynamic-cookie", COOKIES),
    ("httpclient", "commands send no requests; use a client of HTTP such as curl"),
    ("mcli-debug-mode", "the master has no commands but those that its own 'help' shows"),
    ("set anon", "answers are not made anonymous"),
    ("set dynamic-cookie-key", COOKIES),
    ("show anon", "answers are not made anonymous"),
    ("show cache", "the cache is not built yet"),
    ("show default-server", "servers have no named sets of settings; HAProxy 3.2 does not have it either"),
    ("show defaults", PROXIES),
    ("show proc", "it is a command of the master: use the socket of its option -S"),
    ("show quic", "QUIC is not built yet"),
    ("show ssl providers", "the only provider is aws-lc-rs, which is built in"),
    ("show trace", "traces are not built"),
    ("trace", "traces are not built"),
];

const DEBUG: &str =
    "of these 'debug dev log', 'debug dev memstats' and 'debug dev panic' are all that is built";
const PROXIES: &str = "proxies come from files alone; HAProxy 3.2 does not have it either";
const COOKIES: &str = "dynamic cookies are not built yet";

/// The sentence that refuses a command; `None` if it is not one of HAProxy's.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_haproxy_are_refused_by_name() {
        let reason = |line: &str| reason(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for command in [
            "add backend b from d",
            "show defaults",
            "show default-server",
            "debug counters",
            "debug counters all",
            "httpclient GET http://127.0.0.1/",
        ] {
            let said = reason(command).unwrap_or_default();
            assert!(said.contains("is a command of HAProxy"), "{command}: {said}");
        }
        assert_eq!(reason("debug"), None);
    }
}
