//! TLS settings of the process.

use super::context::GLOBAL;
use super::tls::{OLD, TlsOptions, VERSIONS};
use super::{Keyword, args, choice, int, own, seconds, switch, text, time};
use crate::build::{Builder, Line};
use crate::lex::Word;
use crate::tree::Set;
use std::time::Duration;

const MANY: i64 = i32::MAX as i64;

/// Thirty days, in seconds.
const DAYS: i64 = 30 * 24 * 60 * 60;

const FINITE: &str = "keys are exchanged over elliptic curves only";
const LIBRARY: &str = "the arithmetic is that of aws-lc-rs, which is a part of the program";
/// Help of `tune.ssl.capture-buffer-size`.
const CAPTURE: &str = "bytes of the lists in clients' hellos that are kept for samples";
const NOT_YET: &str = "it is not built yet";

/// TLS settings of the process. `None` means not given.
#[derive(Clone, Debug, Default)]
pub struct TlsProcess {
    /// `ca-base`
    pub ca_base: Option<Set<Word>>,
    /// `crt-base`
    pub crt_base: Option<Set<Word>>,
    /// `key-base`
    pub key_base: Option<Set<Word>>,
    /// `ssl-default-bind-*`
    pub bind: TlsOptions,
    /// `ssl-default-server-*`
    pub server: TlsOptions,
    /// `ssl-server-verify`
    pub server_verify: Option<Set<&'static str>>,
    /// `issuers-chain-path`
    pub issuers: Option<Set<Word>>,
    /// `ssl-load-extra-del-ext`
    pub drops_extension: Option<Set<bool>>,
    /// `ssl-skip-self-issued-ca`
    pub skips_self_issued: Option<Set<bool>>,
    /// `tune.ssl.cachesize`
    pub sessions: Option<Set<u32>>,
    /// `tune.ssl.ssl-ctx-cache-size`
    pub generated: Option<Set<u32>>,
    /// `tune.ssl.lifetime`
    pub lifetime: Option<Set<Duration>>,
    /// `tune.ssl.hard-maxrecord`, in bytes.
    pub most_record: Option<Set<u32>>,
    /// `tune.ssl.maxrecord`, in bytes.
    pub first_record: Option<Set<u32>>,
    /// `tune.ssl.keylog`
    pub keylog: Option<Set<bool>>,
    /// `tune.ssl.capture-buffer-size`
    pub hello_bytes: Option<Set<u32>>,
    /// `ocsp-update.disable`
    pub ocsp_disabled: Option<Set<bool>>,
    /// `ocsp-update.mode`
    pub ocsp_mode: Option<Set<bool>>,
    /// `ocsp-update.mindelay`, in seconds.
    pub ocsp_mindelay: Option<Set<u32>>,
    /// `ocsp-update.maxdelay`, in seconds.
    pub ocsp_maxdelay: Option<Set<u32>>,
    /// `ocsp-update.httpproxy`: an address.
    pub ocsp_proxy: Option<Set<Word>>,
    /// `acme.scheduler`: false if certificates are ordered by commands alone.
    pub acme_scheduler: Option<Set<bool>>,
    /// `httpclient.ssl.ca-file`
    pub client_authorities: Option<Set<Word>>,
    /// `httpclient.timeout.connect`
    pub client_connect: Option<Set<Duration>>,
    /// `httpclient.retries`
    pub client_retries: Option<Set<u32>>,
    /// `httpclient.resolvers.id`
    pub client_resolvers: Option<Set<Word>>,
    /// `httpclient.resolvers.prefer`
    pub client_family: Option<Set<&'static str>>,
    /// `httpclient.resolvers.disabled`
    pub client_no_names: Option<Set<bool>>,
    /// `httpclient.ssl.verify`: false with `none`.
    pub client_verify: Option<Set<bool>>,
    /// `maxsslconn`
    pub connections: Option<Set<u32>>,
    /// `maxsslrate`
    pub rate: Option<Set<u32>>,
}

/// Rows that exist once for `bind` lines and once for `server` lines.
macro_rules! defaults {
    ($side:ident, $ciphers:literal, $suites:literal, $curves:literal, $sigalgs:literal, $client:literal) => {
        [
            args($ciphers, GLOBAL, [text("list")], "what 'ciphers' is without")
                .built(|b, line| b.config.global.tls.$side.ciphers = Some(line.set(line.word(0)))),
            args($suites, GLOBAL, [text("list")], "what 'ciphersuites' is without")
                .built(|b, line| b.config.global.tls.$side.ciphersuites = Some(line.set(line.word(0)))),
            args($curves, GLOBAL, [text("list")], "what 'curves' is without")
                .built(|b, line| b.config.global.tls.$side.curves = Some(line.set(line.word(0)))),
            args($sigalgs, GLOBAL, [text("list")], "what 'sigalgs' is without")
                .built(|b, line| b.config.global.tls.$side.sigalgs = Some(line.set(line.word(0)))),
            args($client, GLOBAL, [text("list")], "what 'client-sigalgs' is without")
                .built(|b, line| b.config.global.tls.$side.client_sigalgs = Some(line.set(line.word(0)))),
        ]
    };
}

/// A row of a time in seconds without a unit.
macro_rules! delay {
    ($name:literal, $field:ident, $default:literal, $help:literal) => {
        args($name, GLOBAL, [int("seconds", 1, DAYS)], $help)
            .default($default)
            .built(|b, line| b.config.global.tls.$field = Some(line.set(line.int(0) as u32)))
    };
}

pub(super) fn rows() -> Vec<Keyword> {
    let mut rows = vec![
        args("ca-base", GLOBAL, [text("folder")], "where relative names of authorities' files begin")
            .built(|b, line| b.config.global.tls.ca_base = Some(line.set(line.word(0)))),
        args("crt-base", GLOBAL, [text("folder")], "where relative names of certificates begin")
            .built(|b, line| b.config.global.tls.crt_base = Some(line.set(line.word(0)))),
        args("key-base", GLOBAL, [text("folder")], "where relative names of keys of 'crt-store' begin")
            .built(|b, line| b.config.global.tls.key_base = Some(line.set(line.word(0)))),
        args(
            "maxsslconn",
            GLOBAL,
            [int("number", 0, MANY)],
            "connections at once that speak TLS, with clients and with servers; 0 for no bound",
        )
        .default("0")
        .built(|b, line| b.config.global.tls.connections = Some(line.set(line.int(0) as u32))),
        args(
            "maxsslrate",
            GLOBAL,
            [int("number", 0, MANY)],
            "connections with TLS accepted a second; 0 for no bound",
        )
        .default("0")
        .built(|b, line| b.config.global.tls.rate = Some(line.set(line.int(0) as u32))),
        args(
            "ssl-server-verify",
            GLOBAL,
            [choice("how", &["none", "required"])],
            "whether servers' certificates are checked where no 'verify' says it",
        )
        .default("required")
        .built(|b, line| b.config.global.tls.server_verify = Some(line.set(line.choice(0)))),
        args(
            "tune.ssl.cachesize",
            GLOBAL,
            [int("number", 0, 1 << 22)],
            "sessions without tickets that are kept at once",
        )
        .default("20000")
        .built(|b, line| b.config.global.tls.sessions = Some(line.set(line.int(0) as u32))),
        args(
            "tune.ssl.ssl-ctx-cache-size",
            GLOBAL,
            [int("number", 0, 1 << 20)],
            "generated certificates that a listener keeps",
        )
        .default("1000")
        .built(|b, line| b.config.global.tls.generated = Some(line.set(line.int(0) as u32))),
        args("tune.ssl.lifetime", GLOBAL, [seconds("time")], "how long a session can be resumed")
            .default("300s")
            .built(|b, line| b.config.global.tls.lifetime = Some(line.set(line.time(0)))),
        args(
            "tune.ssl.hard-maxrecord",
            GLOBAL,
            [int("bytes", 0, MANY)],
            "most bytes of data that a record is sent with; 0 for 16384, which TLS allows",
        )
        .default("0")
        .built(|b, line| b.config.global.tls.most_record = Some(line.set(line.int(0) as u32))),
        args(
            "tune.ssl.maxrecord",
            GLOBAL,
            [int("bytes", 0, MANY)],
            "as tune.ssl.hard-maxrecord, for what is sent first, and first after 'tune.idletimer'",
        )
        .default("0")
        .built(|b, line| b.config.global.tls.first_record = Some(line.set(line.int(0) as u32))),
        args(
            "tune.ssl.keylog",
            GLOBAL,
            [switch("state")],
            "connections keep their secrets, which samples tell",
        )
        .default("off")
        .built(|b, line| b.config.global.tls.keylog = Some(line.set(line.switch(0)))),
        args("tune.ssl.capture-buffer-size", GLOBAL, [int("bytes", 0, MANY)], CAPTURE)
            .default("0")
            .built(|b, line| b.config.global.tls.hello_bytes = Some(line.set(line.int(0) as u32))),
        args("tune.ssl.capture-cipherlist-size", GLOBAL, [int("bytes", 0, MANY)], CAPTURE)
            .default("0")
            .built(|b, line| b.config.global.tls.hello_bytes = Some(line.set(line.int(0) as u32))),
        args("ocsp-update.disable", GLOBAL, [switch("state")], "no OCSP response is renewed")
            .default("off")
            .built(|b, line| b.config.global.tls.ocsp_disabled = Some(line.set(line.switch(0)))),
        args(
            "ocsp-update.mode",
            GLOBAL,
            [switch("state")],
            "whether OCSP responses are renewed by themselves",
        )
        .default("off")
        .built(|b, line| b.config.global.tls.ocsp_mode = Some(line.set(line.switch(0)))),
        args(
            "ocsp-update.httpproxy",
            GLOBAL,
            [text("address")],
            "the HTTP proxy that responders of OCSP are asked through",
        )
        .built(|b, line| b.config.global.tls.ocsp_proxy = Some(line.set(line.word(0)))),
        args(
            "acme.scheduler",
            GLOBAL,
            [choice("state", &["auto", "off"])],
            "whether certificates of 'acme' sections are renewed without a command",
        )
        .default("auto")
        .built(|b, line| b.config.global.tls.acme_scheduler = Some(line.set(line.choice(0) == "auto"))),
        args(
            "httpclient.resolvers.disabled",
            GLOBAL,
            [switch("state")],
            "names of hosts that the process itself asks are not resolved",
        )
        .default("off")
        .built(|b, line| b.config.global.tls.client_no_names = Some(line.set(line.switch(0)))),
        args(
            "httpclient.resolvers.id",
            GLOBAL,
            [text("section")],
            "the 'resolvers' section that these names are asked of",
        )
        .default("the system's resolver")
        .built(|b, line| b.config.global.tls.client_resolvers = Some(line.set(line.word(0)))),
        args(
            "httpclient.resolvers.prefer",
            GLOBAL,
            [choice("family", &["ipv4", "ipv6"])],
            "the family of addresses that these hosts are asked at first",
        )
        .default("ipv6, or the order of the system's resolver")
        .built(|b, line| b.config.global.tls.client_family = Some(line.set(line.choice(0)))),
        args(
            "httpclient.retries",
            GLOBAL,
            [int("number", 0, MANY)],
            "how often these hosts are connected to again, a second later",
        )
        .default("3")
        .built(|b, line| b.config.global.tls.client_retries = Some(line.set(line.int(0) as u32))),
        args(
            "httpclient.timeout.connect",
            GLOBAL,
            [time("delay")],
            "how long one of their addresses may take to accept",
        )
        .default("5s")
        .built(|b, line| b.config.global.tls.client_connect = Some(line.set(line.time(0)))),
        args(
            "httpclient.ssl.ca-file",
            GLOBAL,
            [text("file")],
            "authorities that the directories of 'acme' sections are verified against",
        )
        .default("@system-ca")
        .built(|b, line| b.config.global.tls.client_authorities = Some(line.set(line.word(0)))),
        args(
            "httpclient.ssl.verify",
            GLOBAL,
            [choice("state", &["none", "required"])],
            "whether the directories of 'acme' sections are verified",
        )
        .default("required")
        .built(|b, line| b.config.global.tls.client_verify = Some(line.set(line.choice(0) == "required"))),
        delay!(
            "ocsp-update.mindelay",
            ocsp_mindelay,
            "300",
            "shortest time between two renewals of a response"
        ),
        delay!(
            "ocsp-update.maxdelay",
            ocsp_maxdelay,
            "3600",
            "longest time between two renewals of a response"
        ),
        delay!("tune.ssl.ocsp-update.mindelay", ocsp_mindelay, "300", "older name of ocsp-update.mindelay"),
        delay!("tune.ssl.ocsp-update.maxdelay", ocsp_maxdelay, "3600", "older name of ocsp-update.maxdelay"),
        args(
            "issuers-chain-path",
            GLOBAL,
            [text("folder")],
            "chains of issuers, for certificates whose files have none",
        )
        .built(|b, line| b.config.global.tls.issuers = Some(line.set(line.word(0)))),
        args("ssl-load-extra-del-ext", GLOBAL, [], "files beside '<name>.crt' are '<name>.key' and so on")
            .built(|b, line| b.config.global.tls.drops_extension = Some(line.set(true))),
        args("ssl-skip-self-issued-ca", GLOBAL, [], "self-issued authorities are left out of chains")
            .built(|b, line| b.config.global.tls.skips_self_issued = Some(line.set(true))),
        own("ssl-default-bind-options", GLOBAL, "<option>...", 1, "options of all bind lines with TLS")
            .built(|b, line| {
                let mut options = std::mem::take(&mut b.config.global.tls.bind);
                default_options(b, line, &mut options);
                b.config.global.tls.bind = options;
            }),
        own("ssl-default-server-options", GLOBAL, "<option>...", 1, "options of all servers with TLS").built(
            |b, line| {
                let mut options = std::mem::take(&mut b.config.global.tls.server);
                default_options(b, line, &mut options);
                b.config.global.tls.server = options;
            },
        ),
    ];
    rows.extend(defaults!(
        bind,
        "ssl-default-bind-ciphers",
        "ssl-default-bind-ciphersuites",
        "ssl-default-bind-curves",
        "ssl-default-bind-sigalgs",
        "ssl-default-bind-client-sigalgs"
    ));
    rows.extend(defaults!(
        server,
        "ssl-default-server-ciphers",
        "ssl-default-server-ciphersuites",
        "ssl-default-server-curves",
        "ssl-default-server-sigalgs",
        "ssl-default-server-client-sigalgs"
    ));
    let settings = [
        ("ssl-dh-param-file", "<file>", "Diffie-Hellman parameters", FINITE),
        ("ssl-engine", "<name>", "engine that does the arithmetic", LIBRARY),
        (
            "ssl-load-extra-files",
            "<kind>...",
            "files that are loaded beside certificates",
            "a bundle, a key, an issuer and a response of OCSP are always looked for, and nothing else",
        ),
        ("ssl-mode-async", "", "handshakes wait for engines without blocking", LIBRARY),
        ("ssl-passphrase-cmd", "<command>", "program that tells the passphrase of keys", NOT_YET),
        ("ssl-propquery", "<query>", "properties of the implementation to use", LIBRARY),
        ("ssl-provider", "<name>", "provider of algorithms", LIBRARY),
        ("ssl-provider-path", "<folder>", "where providers are found", LIBRARY),
        ("ssl-security-level", "<level>", "lowest strength of algorithms", "all that there are, are strong"),
    ]
    .map(|(name, usage, help, why)| own(name, GLOBAL, usage, 0, help).idle(why));
    let tuned = [
        ("tune.ssl.certificate-compression", "auto|off", "certificates are sent compressed", NOT_YET),
        ("tune.ssl.default-dh-param", "<bits>", "size of Diffie-Hellman parameters", FINITE),
        (
            "tune.ssl.force-private-cache",
            "",
            "sessions are cached by process",
            "there is one process, and its lanes share sessions",
        ),
    ]
    .map(|(name, usage, help, why)| own(name, GLOBAL, usage, usize::from(!usage.is_empty()), help).idle(why));
    rows.into_iter().chain(settings).chain(tuned).collect()
}

/// `ssl-default-bind-options` and `ssl-default-server-options`.
fn default_options(b: &mut Builder<'_>, line: &Line<'_>, options: &mut TlsOptions) {
    let mut at = 0;
    while let Some(word) = line.words.get(at) {
        at += 1;
        let mut versions = |oldest: Option<&'static str>, newest: Option<&'static str>| {
            options.oldest = oldest.map(|version| line.set(version)).or(options.oldest);
            options.newest = newest.map(|version| line.set(version)).or(options.newest);
        };
        match word.bytes() {
            b"ssl-min-ver" | b"ssl-max-ver" => {
                if line.words.get(at).is_none() {
                    let message = format!("'{}' : '{}' expects a version", line.keyword.name, word.shown());
                    return b.found.alert(line.end(), message);
                }
                let version = line.own_choice(b, at, VERSIONS);
                at += 1;
                match *word == *"ssl-min-ver" {
                    true => versions(version, None),
                    false => versions(None, version),
                }
            }
            b"force-sslv3" | b"force-tlsv10" | b"force-tlsv11" => {
                let message = format!("'{}' : '{}' : {OLD}", line.keyword.name, word.shown());
                b.found.alert(word.pos(), message);
            }
            b"force-tlsv12" => versions(Some("TLSv1.2"), Some("TLSv1.2")),
            b"force-tlsv13" => versions(Some("TLSv1.3"), Some("TLSv1.3")),
            b"no-tlsv12" => versions(Some("TLSv1.3"), None),
            b"no-tlsv13" => versions(None, Some("TLSv1.2")),
            b"no-sslv3" | b"no-tlsv10" | b"no-tlsv11" | b"no-renegotiate" => {}
            b"tls-tickets" => options.tickets = Some(line.set(true)),
            b"no-tls-tickets" => options.tickets = Some(line.set(false)),
            b"prefer-client-ciphers" => options.client_ciphers = Some(line.set(true)),
            b"strict-sni" => options.strict_sni = Some(line.set(true)),
            b"no-strict-sni" => options.strict_sni = Some(line.set(false)),
            _ => {
                const KNOWN: [&str; 14] = [
                    "ssl-min-ver",
                    "ssl-max-ver",
                    "force-tlsv12",
                    "force-tlsv13",
                    "no-sslv3",
                    "no-tlsv10",
                    "no-tlsv11",
                    "no-tlsv12",
                    "no-tlsv13",
                    "tls-tickets",
                    "no-tls-tickets",
                    "prefer-client-ciphers",
                    "strict-sni",
                    "no-strict-sni",
                ];
                let message = manylane_expr::none_of(line.keyword.name, KNOWN, word.bytes());
                b.found.alert(word.pos(), message);
            }
        }
    }
}
