//! TLS options of `bind` and `server` lines, and their defaults in `global`.

use super::context::{BIND, SERVER};
use super::{Keyword, args, choice, flag, own, text};
use crate::lex::Word;
use crate::tree::Set;

/// TLS options of one side. `None` means not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `ssl` and `no-ssl`
    pub ssl: Option<Set<bool>>,
    /// `crt` in order.
    pub crt: Vec<Word>,
    /// `crt-list` in order.
    pub crt_list: Vec<Word>,
    /// `default-crt` in order.
    pub default_crt: Vec<Word>,
    /// `alpn`; an empty word means none.
    pub alpn: Option<Set<Word>>,
    /// `ciphers`
    pub ciphers: Option<Set<Word>>,
    /// `ciphersuites`
    pub ciphersuites: Option<Set<Word>>,
    /// `curves` and `ecdhe`
    pub curves: Option<Set<Word>>,
    /// `sigalgs`
    pub sigalgs: Option<Set<Word>>,
    /// `client-sigalgs`
    pub client_sigalgs: Option<Set<Word>>,
    /// `ca-ignore-err`
    pub ca_ignored: Option<Set<Word>>,
    /// `crt-ignore-err`
    pub crt_ignored: Option<Set<Word>>,
    /// `ca-verify-file`
    pub ca_verify_file: Option<Set<Word>>,
    /// `ca-file`
    pub ca_file: Option<Set<Word>>,
    /// `crl-file`
    pub crl_file: Option<Set<Word>>,
    /// `verify`
    pub verify: Option<Set<&'static str>>,
    /// `ssl-min-ver`
    pub oldest: Option<Set<&'static str>>,
    /// `ssl-max-ver`
    pub newest: Option<Set<&'static str>>,
    /// `tls-tickets` and `no-tls-tickets`
    pub tickets: Option<Set<bool>>,
    /// `tls-ticket-keys`
    pub ticket_keys: Option<Set<Word>>,
    /// `generate-certificates`
    pub generates: Option<Set<bool>>,
    /// `ca-sign-file`
    pub ca_sign_file: Option<Set<Word>>,
    /// `strict-sni` and `no-strict-sni`
    pub strict_sni: Option<Set<bool>>,
    /// `prefer-client-ciphers`
    pub client_ciphers: Option<Set<bool>>,
    /// `allow-0rtt`, of listeners and servers
    pub early_data: Option<Set<bool>>,
    /// `no-ca-names`
    pub no_ca_names: Option<Set<bool>>,
    /// `sni`: a sample expression.
    pub sni: Option<Set<Word>>,
    /// `sni-auto`: what stands in for `sni` in HTTP mode; empty with `no-sni-auto`.
    pub sni_auto: Option<Set<Word>>,
    /// `check-sni-auto` and `no-check-sni-auto`
    pub check_sni_auto: Option<Set<bool>>,
    /// `verifyhost`
    pub verifyhost: Option<Set<Word>>,
    /// `ssl-reuse` and `no-ssl-reuse`
    pub reuse: Option<Set<bool>>,
    /// `check-ssl` and `no-check-ssl`
    pub check_ssl: Option<Set<bool>>,
    /// `check-sni`
    pub check_sni: Option<Set<Word>>,
    /// `check-alpn`
    pub check_alpn: Option<Set<Word>>,
}

/// Names of TLS versions, the oldest first.
pub(super) const VERSIONS: &[&str] = &["SSLv3", "TLSv1.0", "TLSv1.1", "TLSv1.2", "TLSv1.3"];

pub(super) const OLD: &str = "TLS below 1.2 is broken (RFC 8996), and not supported";
const KERNEL: &str = "TLS in the kernel is not built yet";

/// An option that is refused: name, usage of its argument, description, reason.
type RefusedOption = (&'static str, &'static str, &'static str, &'static str);

/// Options that both sides refuse.
const REFUSED: &[RefusedOption] = &[
    ("force-sslv3", "", "SSL 3 and nothing else", OLD),
    ("force-tlsv10", "", "TLS 1.0 and nothing else", OLD),
    ("force-tlsv11", "", "TLS 1.1 and nothing else", OLD),
    (
        "npn",
        "<protocols>",
        "protocols that are offered by NPN, the predecessor of ALPN",
        "browsers have given it up for ALPN: use 'alpn'",
    ),
    (
        "renegotiate",
        "",
        "keys of a connection may be negotiated again (TLS 1.2)",
        "no connection is negotiated again, which TLS 1.3 has given up",
    ),
];

const REFUSED_BIND: &[RefusedOption] = &[
    (
        "acme",
        "<section>",
        "certificates are fetched from an authority by ACME",
        "set it on a 'load' line of a 'crt-store' section",
    ),
    (
        "ca-sign-pass",
        "<text>",
        "the passphrase of the key of ca-sign-file",
        "no key with a passphrase is read: write it without one, as 'openssl pkey -in <file>' does",
    ),
    ("ech", "<file>", "keys that decrypt hellos (ECH)", "encrypted hellos are not built yet"),
    ("ktls", "on|off", "the kernel encrypts and decrypts records", KERNEL),
    (
        "ocsp",
        "<file>",
        "the OCSP response that is shown with the certificate",
        "a response stands in a file beside its certificate, or is named by a 'crt-store' section",
    ),
    (
        "ocsp-update",
        "on|off",
        "OCSP responses are fetched again before they expire",
        "set it in 'crt-store', 'crt-list' or 'ocsp-update.mode'",
    ),
];

const REFUSED_SERVER: &[RefusedOption] =
    &[("ktls", "on|off", "the kernel encrypts and decrypts records", KERNEL)];

/// What `sni-auto` stands for.
const SNI_AUTO: &str = "req.hdr(host),host_only";

/// Rows of options that both sides have.
macro_rules! both {
    ($side:ident, $context:expr) => {{
        let of_list = |name: &'static str, usage: &'static str, help: &'static str| {
            args(name, $context, [text(usage)], help)
        };
        vec![
            flag("ssl", $context, "connections speak TLS")
                .built(|b, line| b.$side.tls.ssl = Some(line.set(true))),
            of_list("alpn", "protocols", "protocols that are offered within TLS, separated by commas")
                .built(|b, line| b.$side.tls.alpn = Some(line.argument(line.word(0)))),
            of_list("ca-file", "file", "authorities that certificates are verified with")
                .built(|b, line| b.$side.tls.ca_file = Some(line.argument(line.word(0)))),
            of_list("ciphers", "list", "ciphers of TLS 1.2, by OpenSSL's names")
                .built(|b, line| b.$side.tls.ciphers = Some(line.argument(line.word(0)))),
            of_list("ciphersuites", "list", "ciphers of TLS 1.3, by OpenSSL's names")
                .built(|b, line| b.$side.tls.ciphersuites = Some(line.argument(line.word(0)))),
            of_list("crl-file", "file", "certificates that were revoked")
                .built(|b, line| b.$side.tls.crl_file = Some(line.argument(line.word(0)))),
            of_list("sigalgs", "list", "algorithms that sign handshakes of the server's side")
                .built(|b, line| b.$side.tls.sigalgs = Some(line.argument(line.word(0)))),
            of_list("client-sigalgs", "list", "algorithms that sign with certificates of clients")
                .built(|b, line| b.$side.tls.client_sigalgs = Some(line.argument(line.word(0)))),
            of_list("curves", "list", "groups for the exchange of keys")
                .built(|b, line| b.$side.tls.curves = Some(line.argument(line.word(0)))),
            args("ssl-min-ver", $context, [choice("version", VERSIONS)], "the oldest version that is spoken")
                .built(|b, line| b.$side.tls.oldest = Some(line.argument(line.choice(0)))),
            args("ssl-max-ver", $context, [choice("version", VERSIONS)], "the newest version that is spoken")
                .built(|b, line| b.$side.tls.newest = Some(line.argument(line.choice(0)))),
            flag("force-tlsv12", $context, "TLS 1.2 and nothing else").built(|b, line| {
                b.$side.tls.oldest = Some(line.set("TLSv1.2"));
                b.$side.tls.newest = Some(line.set("TLSv1.2"));
            }),
            flag("force-tlsv13", $context, "TLS 1.3 and nothing else").built(|b, line| {
                b.$side.tls.oldest = Some(line.set("TLSv1.3"));
                b.$side.tls.newest = Some(line.set("TLSv1.3"));
            }),
            flag("no-tlsv12", $context, "no TLS 1.2")
                .built(|b, line| b.$side.tls.oldest = Some(line.set("TLSv1.3"))),
            flag("no-tlsv13", $context, "no TLS 1.3")
                .built(|b, line| b.$side.tls.newest = Some(line.set("TLSv1.2"))),
            flag("no-sslv3", $context, "no SSL 3, which is never used").built(|_, _| {}),
            flag("no-tlsv10", $context, "no TLS 1.0, which is never used").built(|_, _| {}),
            flag("no-tlsv11", $context, "no TLS 1.1, which is never used").built(|_, _| {}),
            flag("no-renegotiate", $context, "no connection is negotiated again, as without it")
                .built(|_, _| {}),
            flag("tls-tickets", $context, "sessions are resumed by tickets")
                .built(|b, line| b.$side.tls.tickets = Some(line.set(true))),
            flag("no-tls-tickets", $context, "sessions are resumed without tickets")
                .built(|b, line| b.$side.tls.tickets = Some(line.set(false))),
        ]
    }};
}

pub(super) fn bind_rows() -> Vec<Keyword> {
    let mut rows = both!(bind, BIND);
    rows.extend([
        args("crt", BIND, [text("file")], "a certificate with its chain and key, or a folder of them")
            .adds()
            .built(|b, line| b.bind.tls.crt.push(line.word(0))),
        args("crt-list", BIND, [text("file")], "a file with certificates and the names that each is for")
            .adds()
            .built(|b, line| b.bind.tls.crt_list.push(line.word(0))),
        args("default-crt", BIND, [text("file")], "a certificate for clients that no other one is for")
            .adds()
            .built(|b, line| b.bind.tls.default_crt.push(line.word(0))),
        args("tls-ticket-keys", BIND, [text("file")], "keys of tickets, which other processes may have, too")
            .built(|b, line| b.bind.tls.ticket_keys = Some(line.argument(line.word(0)))),
        flag("no-alpn", BIND, "no protocols are offered within TLS")
            .built(|b, line| b.bind.tls.alpn = Some(line.set(Word::plain("", line.pos())))),
        args("ecdhe", BIND, [text("curve")], "older form of curves")
            .built(|b, line| b.bind.tls.curves = Some(line.argument(line.word(0)))),
        args(
            "verify",
            BIND,
            [choice("how", &["none", "optional", "required"])],
            "whether clients show certificates",
        )
        .built(|b, line| b.bind.tls.verify = Some(line.argument(line.choice(0)))),
        flag(
            "generate-certificates",
            BIND,
            "a client that asks for an unknown name gets a certificate that is made for it",
        )
        .built(|b, line| b.bind.tls.generates = Some(line.set(true))),
        args(
            "ca-sign-file",
            BIND,
            [text("file")],
            "the authority that signs the certificates of generate-certificates, with its key",
        )
        .built(|b, line| b.bind.tls.ca_sign_file = Some(line.argument(line.word(0)))),
        flag("strict-sni", BIND, "clients that ask for no name of a certificate are refused")
            .built(|b, line| b.bind.tls.strict_sni = Some(line.set(true))),
        flag("no-strict-sni", BIND, "undoes strict-sni")
            .built(|b, line| b.bind.tls.strict_sni = Some(line.set(false))),
        flag("prefer-client-ciphers", BIND, "the client's order of ciphers counts")
            .built(|b, line| b.bind.tls.client_ciphers = Some(line.set(true))),
        args("ca-ignore-err", BIND, [text("errors")], "errors of clients' issuers that end no handshake")
            .built(|b, line| b.bind.tls.ca_ignored = Some(line.argument(line.word(0)))),
        args(
            "crt-ignore-err",
            BIND,
            [text("errors")],
            "errors of clients' certificates that end no handshake",
        )
        .built(|b, line| b.bind.tls.crt_ignored = Some(line.argument(line.word(0)))),
        args(
            "ca-verify-file",
            BIND,
            [text("file")],
            "authorities as in ca-file, whose names clients do not get",
        )
        .built(|b, line| b.bind.tls.ca_verify_file = Some(line.argument(line.word(0)))),
        flag(
            "allow-0rtt",
            BIND,
            "a resumed connection may begin with a request, which anybody may copy (TLS 1.3)",
        )
        .built(|b, line| b.bind.tls.early_data = Some(line.set(true))),
        flag("no-ca-names", BIND, "clients do not get the names of trusted authorities")
            .built(|b, line| b.bind.tls.no_ca_names = Some(line.set(true))),
    ]);
    rows.extend(refused(REFUSED.iter().chain(REFUSED_BIND), BIND));
    rows
}

pub(super) fn server_rows() -> Vec<Keyword> {
    let mut rows = both!(server, SERVER);
    rows.extend([
        flag(
            "allow-0rtt",
            SERVER,
            "a request may go together with the hello of a resumed session; anybody may copy it (TLS 1.3)",
        )
        .built(|b, line| b.server.tls.early_data = Some(line.set(true))),
        args("crt", SERVER, [text("file")], "the certificate that is shown to the server, with its key")
            .built(|b, line| b.server.tls.crt = vec![line.word(0)]),
        args("verify", SERVER, [choice("how", &["none", "required"])], "whether certificates are checked")
            .built(|b, line| b.server.tls.verify = Some(line.argument(line.choice(0)))),
        flag("no-ssl", SERVER, "undoes ssl").built(|b, line| b.server.tls.ssl = Some(line.set(false))),
        args("sni", SERVER, [text("expression")], "the name that is asked for within TLS")
            .built(|b, line| b.server.tls.sni = Some(line.argument(line.word(0)))),
        args("verifyhost", SERVER, [text("name")], "the name that the certificate must be for")
            .built(|b, line| b.server.tls.verifyhost = Some(line.argument(line.word(0)))),
        flag("ssl-reuse", SERVER, "sessions are resumed")
            .built(|b, line| b.server.tls.reuse = Some(line.set(true))),
        flag("no-ssl-reuse", SERVER, "sessions are not resumed")
            .built(|b, line| b.server.tls.reuse = Some(line.set(false))),
        flag("check-ssl", SERVER, "health checks speak TLS")
            .built(|b, line| b.server.tls.check_ssl = Some(line.set(true))),
        flag("no-check-ssl", SERVER, "undoes check-ssl")
            .built(|b, line| b.server.tls.check_ssl = Some(line.set(false))),
        args("check-sni", SERVER, [text("name")], "the name that health checks ask for within TLS")
            .built(|b, line| b.server.tls.check_sni = Some(line.argument(line.word(0)))),
        args("check-alpn", SERVER, [text("protocols")], "protocols that health checks offer within TLS")
            .built(|b, line| b.server.tls.check_alpn = Some(line.argument(line.word(0)))),
        flag(
            "sni-auto",
            SERVER,
            "in HTTP mode and without 'sni', the name is that of the request's Host field",
        )
        .built(|b, line| b.server.tls.sni_auto = Some(line.set(Word::plain(SNI_AUTO, line.pos())))),
        flag("no-sni-auto", SERVER, "undoes sni-auto")
            .built(|b, line| b.server.tls.sni_auto = Some(line.set(Word::plain("", line.pos())))),
        flag(
            "check-sni-auto",
            SERVER,
            "without 'check-sni', health checks ask for the name in their Host field",
        )
        .built(|b, line| b.server.tls.check_sni_auto = Some(line.set(true))),
        flag("no-check-sni-auto", SERVER, "undoes check-sni-auto")
            .built(|b, line| b.server.tls.check_sni_auto = Some(line.set(false))),
    ]);
    rows.extend(refused(REFUSED.iter().chain(REFUSED_SERVER), SERVER));
    rows
}

fn refused<'a>(
    list: impl Iterator<Item = &'a RefusedOption>,
    sections: super::KeywordContexts,
) -> impl Iterator<Item = Keyword> {
    list.map(move |&(name, usage, help, why)| {
        own(name, sections, usage, usize::from(!usage.is_empty()), help).refused(why)
    })
}
