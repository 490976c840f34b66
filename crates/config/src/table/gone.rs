//! Keywords that HAProxy has removed from proxies. The error for each names its replacement.

use super::context::DFLB;
use super::{Keyword, own};

/// Name, former meaning, replacement.
const GONE: &[(&str, &str, &str)] = &[
    (
        "appsession",
        "a server was kept by a cookie of the application",
        "use 'cookie ... insert' or 'balance hash'",
    ),
    ("block", "requests were refused", "use 'http-request deny', with the same condition"),
    ("cliexp", "requests were edited", "use 'http-request replace-header' or 'http-request replace-path'"),
    (
        "monitor-net",
        "requests from a network were answered by the proxy",
        "use 'http-request return status 200 if { src ... }'",
    ),
    (
        "option forceclose",
        "connections were closed after each response",
        "use 'option httpclose', or leave it out",
    ),
    ("option http-tunnel", "only the first request was looked at", "leave it out"),
    (
        "option http_proxy",
        "the request's target was the server",
        "use 'http-request set-dst' and 'http-request set-uri'",
    ),
    ("redisp", "a server that cannot be reached was given up", "use 'option redispatch'"),
    ("redispatch", "a server that cannot be reached was given up", "use 'option redispatch'"),
    ("reqadd", "requests were edited", "use 'http-request add-header'"),
    ("reqallow", "requests were taken", "use 'http-request allow'"),
    ("reqdel", "requests were edited", "use 'http-request del-header'"),
    ("reqdeny", "requests were refused", "use 'http-request deny'"),
    ("reqiallow", "requests were taken", "use 'http-request allow'"),
    ("reqidel", "requests were edited", "use 'http-request del-header'"),
    ("reqideny", "requests were refused", "use 'http-request deny'"),
    ("reqipass", "requests were left alone", "use 'http-request' rules with conditions"),
    ("reqirep", "requests were edited", "use 'http-request replace-header' or 'http-request replace-path'"),
    ("reqitarpit", "requests were kept waiting", "use 'http-request tarpit'"),
    ("reqpass", "requests were left alone", "use 'http-request' rules with conditions"),
    ("reqrep", "requests were edited", "use 'http-request replace-header' or 'http-request replace-path'"),
    ("reqtarpit", "requests were kept waiting", "use 'http-request tarpit'"),
    ("rspadd", "responses were edited", "use 'http-response add-header'"),
    ("rspdel", "responses were edited", "use 'http-response del-header'"),
    ("rspdeny", "responses were refused", "use 'http-response deny'"),
    ("rspidel", "responses were edited", "use 'http-response del-header'"),
    ("rspideny", "responses were refused", "use 'http-response deny'"),
    ("rspirep", "responses were edited", "use 'http-response replace-header'"),
    ("rsprep", "responses were edited", "use 'http-response replace-header'"),
    ("srvexp", "responses were edited", "use 'http-response replace-header'"),
];

pub(super) fn rows() -> Vec<Keyword> {
    let row = |(name, help, instead): &(&'static str, &'static str, &'static str)| {
        own(name, DFLB, "<argument>...", 0, help).refused(instead)
    };
    GONE.iter().map(row).collect()
}
