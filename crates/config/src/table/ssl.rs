//! TLS settings of the process.

use super::section::GLOBAL;
use super::tls::{TlsOptions, VERSIONS};
use super::{Keyword, args, choice, int, own, seconds, switch, text};
use crate::build::{Builder, Line};
use crate::lex::Word;
use crate::tree::Set;
use std::time::Duration;

const MANY: i64 = i32::MAX as i64;

/// Thirty days, in seconds.
const DAYS: i64 = 30 * 24 * 60 * 60;

/// Reason for refusing TLS keywords that are not built.
pub(super) const TLS: &str = "it is not built yet";

const FINITE: &str = "keys are exchanged over elliptic curves only";
const LIBRARY: &str = "the arithmetic is that of aws-lc-rs, which is a part of the program";
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
    /// `tune.ssl.cachesize`
    pub sessions: Option<Set<u32>>,
    /// `tune.ssl.lifetime`
    pub lifetime: Option<Set<Duration>>,
    /// `tune.ssl.keylog`
    pub keylog: Option<Set<bool>>,
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
        args("tune.ssl.lifetime", GLOBAL, [seconds("time")], "how long a session can be resumed")
            .default("300s")
            .built(|b, line| b.config.global.tls.lifetime = Some(line.set(line.time(0)))),
        args(
            "tune.ssl.keylog",
            GLOBAL,
            [switch("state")],
            "connections keep their secrets, which samples tell",
        )
        .default("off")
        .built(|b, line| b.config.global.tls.keylog = Some(line.set(line.switch(0)))),
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
        ("acme.scheduler", "on|off", "renews certificates by itself", "ACME is not built yet"),
        ("httpclient.ssl.ca-file", "<file>", "authorities that the internal client trusts", NOT_YET),
        (
            "httpclient.ssl.verify",
            "none|required",
            "whether the internal client checks certificates",
            NOT_YET,
        ),
        ("issuers-chain-path", "<folder>", "issuers' certificates that complete chains", NOT_YET),
        ("ssl-dh-param-file", "<file>", "Diffie-Hellman parameters", FINITE),
        ("ssl-engine", "<name>", "engine that does the arithmetic", LIBRARY),
        ("ssl-load-extra-del-ext", "", "extensions are removed before extra files are looked for", NOT_YET),
        (
            "ssl-load-extra-files",
            "<kind>...",
            "files that are loaded beside certificates",
            "a key, an issuer and a response of OCSP are looked for beside certificates, and nothing else",
        ),
        ("ssl-mode-async", "", "handshakes wait for engines without blocking", LIBRARY),
        ("ssl-passphrase-cmd", "<command>", "program that tells the passphrase of keys", NOT_YET),
        ("ssl-propquery", "<query>", "properties of the implementation to use", LIBRARY),
        ("ssl-provider", "<name>", "provider of algorithms", LIBRARY),
        ("ssl-provider-path", "<folder>", "where providers are found", LIBRARY),
        ("ssl-security-level", "<level>", "lowest strength of algorithms", "all that there are, are strong"),
        ("ssl-skip-self-issued-ca", "", "self-issued authorities are left out of chains", NOT_YET),
    ]
    .map(|(name, usage, help, why)| own(name, GLOBAL, usage, 0, help).idle(why));
    let tuned = [
        ("tune.ssl.capture-buffer-size", "<bytes>", "bytes of a hello that are kept", NOT_YET),
        ("tune.ssl.capture-cipherlist-size", "<bytes>", "bytes of a list of ciphers that are kept", NOT_YET),
        ("tune.ssl.certificate-compression", "auto|off", "certificates are sent compressed", NOT_YET),
        ("tune.ssl.default-dh-param", "<bits>", "size of Diffie-Hellman parameters", FINITE),
        (
            "tune.ssl.force-private-cache",
            "",
            "sessions are cached by process",
            "there is one process, and its lanes share sessions",
        ),
        ("tune.ssl.hard-maxrecord", "<bytes>", "largest record", "records have up to 16 KiB"),
        (
            "tune.ssl.maxrecord",
            "<bytes>",
            "largest record at the beginning of a connection",
            "records have up to 16 KiB",
        ),
        ("tune.ssl.ssl-ctx-cache-size", "<number>", "generated certificates in the cache", NOT_YET),
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
