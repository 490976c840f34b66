//! Keywords of `bind` and `server` lines and their defaults in `global`, compared with HAProxy: which
//! versions, ciphers, names and protocols the two ends agree on.

use crate::tls::{Authority, openssl, text};

use crate::common::DEFAULTS;
use crate::common::watch::{Played, Syslog, both, until};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Ciphers of listeners: the first is theirs, the second that of the clients here.
const CIPHERS: [&str; 2] = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"];

/// Returns what a client with these arguments agrees on with the listener at a path.
fn agreed(front: &str, more: &[&str]) -> String {
    until(|| UnixStream::connect(front).is_ok());
    let output = openssl(&[&["s_client", "-unix", front, "-brief"], more].concat(), "");
    let said = text(&output.stderr);
    let value = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    match value("Protocol version: ") {
        "" => "refused".to_owned(),
        version => format!("{version} {}", value("Ciphersuite: ")),
    }
}

#[test]
fn listeners_take_the_versions_and_ciphers_that_they_take_in_haproxy() {
    const USUAL: &str = "TLS_AES_128_GCM_SHA256";
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let [first, second] = CIPHERS;
    let [old, new] = [format!("TLSv1.2 {first}"), format!("TLSv1.3 {USUAL}")];
    let (old, new, of_clients, none) = (&*old, &*new, &*format!("TLSv1.2 {second}"), "refused");
    // Options of all listeners and of one; with clients of TLS 1.2 and 1.3.
    let cases = [
        ("", "", old, new),
        ("", "force-tlsv12", old, none),
        ("", "force-tlsv13", none, new),
        ("", "no-tlsv12", none, new),
        ("", "no-tlsv13", old, none),
        ("", "ssl-min-ver TLSv1.3", none, new),
        ("", "ssl-max-ver TLSv1.2", old, none),
        ("", "no-sslv3 no-tlsv10 no-tlsv11", old, new),
        ("", "prefer-client-ciphers", of_clients, new),
        ("prefer-client-ciphers", "", of_clients, new),
        ("force-tlsv12", "", old, none),
        ("force-tlsv13", "", none, new),
        ("no-tlsv12", "", none, new),
        ("no-tlsv13", "", old, none),
        ("no-tlsv13 prefer-client-ciphers", "ciphers ECDHE-ECDSA-AES128-GCM-SHA256", old, none),
    ];
    let globals: BTreeSet<&str> = cases.iter().map(|(global, ..)| *global).collect();
    for global in globals {
        let own = || cases.iter().enumerate().filter(|(_, case)| case.0 == global);
        let config = |_: &Syslog, socket: &Path| {
            let shown = socket.display();
            let options = if global.is_empty() {
                String::new()
            } else {
                format!(" ssl-default-bind-options {global}\n")
            };
            let listeners: String = own()
                .map(|(n, (_, options, ..))| {
                    format!(
                        "frontend f{n}\n bind unix@{shown}.{n} ssl crt {} ciphersuites {USUAL} ciphers \
                         {first}:{second} {options}\n",
                        certificate.display()
                    )
                })
                .collect();
            format!("global\n stats socket {shown} level admin\n{options}{DEFAULTS} mode http\n{listeners}")
        };
        let play = |played: Played| {
            let agreed = |n: usize, more: &[&str]| agreed(&format!("{}.{n}", played.socket.display()), more);
            let clients = format!("{second}:{first}");
            own()
                .map(|(n, _)| [agreed(n, &["-tls1_2", "-cipher", &clients]), agreed(n, &["-tls1_3"])])
                .collect::<Vec<_>>()
        };
        let (ours, theirs) = both(config, play);
        let expected: Vec<_> = own().map(|(_, case)| [case.2.to_owned(), case.3.to_owned()]).collect();
        assert_eq!(ours, expected, "{global}");
        if let Some(theirs) = theirs {
            assert_eq!(ours, theirs, "{global}");
        }
    }
}

#[test]
fn servers_are_offered_the_versions_and_ciphers_that_they_are_offered_in_haproxy() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let [old, other] = CIPHERS.map(|cipher| format!("TLSv1.2 {cipher} "));
    let (old, other, new) = (&*old, &*other, "TLSv1.3 TLS_AES_128_GCM_SHA256 ");
    let of_old = " ssl-default-server-options force-tlsv12\n ssl-default-server-ciphers \
                  ECDHE-ECDSA-AES256-GCM-SHA384\n";
    let of_new = " ssl-default-server-options no-tlsv12\n ssl-default-server-ciphersuites \
                  TLS_CHACHA20_POLY1305_SHA256\n ssl-default-server-curves P-384\n \
                  ssl-default-server-sigalgs ECDSA+SHA256\n";
    type Cases<'a> = &'a [(&'a str, &'a str)]; // options of a server, and what it is spoken to with
    let all: [(&str, &str, Cases<'_>); 3] = [
        (
            "",
            "",
            &[
                ("", new),
                ("force-tlsv12", old),
                ("force-tlsv13", new),
                ("no-tlsv12", new),
                ("no-tlsv13", old),
                ("ssl-max-ver TLSv1.2", old),
                ("ssl-min-ver TLSv1.3", new),
            ],
        ),
        (of_old, "", &[("", other), ("ciphers ECDHE-ECDSA-AES128-GCM-SHA256", old)]),
        (
            of_new,
            "%[ssl_fc_curve] %[ssl_fc_sigalgs_bin,hex]",
            &[
                ("", "TLSv1.3 TLS_CHACHA20_POLY1305_SHA256 P-384 0403"),
                ("ciphersuites TLS_AES_128_GCM_SHA256", "TLSv1.3 TLS_AES_128_GCM_SHA256 P-384 0403"),
            ],
        ),
    ];
    for (global, more, servers) in all {
        let config = |_: &Syslog, socket: &Path| {
            let shown = socket.display();
            let backends: String = servers
                .iter()
                .enumerate()
                .map(|(n, (options, _))| format!("backend b{n}\n server s unix@{shown}.tls ssl {options}\n"))
                .collect();
            // No server has an authority: they are not verified.
            format!(
                "global\n stats socket {shown} level admin\n ssl-server-verify none\n \
                 tune.ssl.capture-buffer-size 96\n{global}{DEFAULTS} mode http\n\
                 frontend f\n bind unix@{shown}.f\n use_backend %[path,field(2,/)]\n{backends}\
                 frontend g\n bind unix@{shown}.tls ssl crt {} ciphers {}:{} ciphersuites \
                 TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256\n http-request return status 200 \
                 content-type text/plain lf-string \"%[ssl_fc_protocol] %[ssl_fc_cipher] {more}\"\n",
                certificate.display(),
                CIPHERS[0],
                CIPHERS[1],
            )
        };
        let play = |played: Played| {
            let front = format!("{}.f", played.socket.display());
            until(|| UnixStream::connect(&front).is_ok());
            let ask = |n: usize| {
                let mut client = UnixStream::connect(&front).unwrap();
                write!(client, "GET /b{n} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
                let mut answer = String::new();
                client.read_to_string(&mut answer).unwrap();
                // Curves have the names of the library.
                answer.rsplit("\r\n\r\n").next().unwrap().replace("SECP384R1", "P-384")
            };
            (0..servers.len()).map(ask).collect::<Vec<_>>()
        };
        let (ours, theirs) = both(config, play);
        let expected: Vec<&str> = servers.iter().map(|(_, expected)| *expected).collect();
        assert_eq!(ours, expected, "{global}");
        if let Some(theirs) = theirs {
            assert_eq!(ours, theirs, "{global}");
        }
    }
}

/// Without `check-alpn`, checks offer what the server is offered otherwise.
#[test]
fn checks_use_tls_names_and_protocols_as_in_haproxy() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    // Options, those of `default-server`, and whether the server speaks TLS; TLS, name, protocol and version
    // of the check.
    let all = [
        ("ssl", "", true, "1 - - HTTP/1.1"),
        ("ssl check-sni one.example", "", true, "1 one.example - HTTP/1.1"),
        ("ssl sni str(two.example)", "", true, "1 - - HTTP/1.1"),
        ("ssl check-alpn http/1.1", "", true, "1 - http/1.1 HTTP/1.1"),
        ("ssl check-alpn h2", "", true, "1 - h2 HTTP/2.0"),
        ("ssl alpn h2,http/1.1", "", true, "1 - h2 HTTP/2.0"),
        ("ssl alpn h2,http/1.1 check-alpn http/1.1", "", true, "1 - http/1.1 HTTP/1.1"),
        ("check-ssl", "", true, "1 - - HTTP/1.1"),
        ("check-ssl alpn h2", "", true, "1 - h2 HTTP/2.0"),
        ("ssl no-check-ssl", "", false, "0 - - HTTP/1.1"),
        ("no-check-ssl", "check-ssl", false, "0 - - HTTP/1.1"),
        ("", "check-ssl", true, "1 - - HTTP/1.1"),
    ];
    let config = |log: &Syslog, socket: &Path| {
        let shown = socket.display();
        let format = "log global\n http-request set-var(txn.path) path\n log-format \"seen \
                      %[var(txn.path)] %[ssl_fc] %[ssl_fc_sni] %[ssl_fc_alpn] %HV\"\n http-request return";
        let backends: String = all
            .iter()
            .enumerate()
            .map(|(n, (options, usual, secure, _))| {
                let to = if *secure { "tls" } else { "clear" };
                format!(
                    "backend b{n}\n option httpchk\n http-check send uri /b{n} ver HTTP/1.1 hdr host a\n \
                     default-server verify none check inter 1s {usual}\n server s unix@{shown}.{to} \
                     {options}\n"
                )
            })
            .collect();
        format!(
            "global\n stats socket {shown} level admin\n max-spread-checks 100ms\n log {} local0\n{DEFAULTS} \
             mode http\nfrontend f\n bind unix@{shown}.tls ssl crt {} alpn h2,http/1.1\n {format}\n\
             frontend g\n bind unix@{shown}.clear\n {format}\n{backends}",
            log.address(),
            certificate.display()
        )
    };
    let play = |played: Played| {
        let mut observed = BTreeSet::new();
        while observed.len() < all.len() {
            observed.insert(played.log.wait("seen ").split_once("seen ").unwrap().1.to_owned());
        }
        observed
    };
    let (ours, theirs) = both(config, play);
    let expected = all.iter().enumerate().map(|(n, (.., observed))| format!("/b{n} {observed}")).collect();
    assert_eq!(ours, expected);
    if let Some(theirs) = theirs {
        assert_eq!(ours, theirs);
    }
}
