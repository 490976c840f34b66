//! Sections other than proxies: users, error files, resolvers, certificates, and those that are not built.

use super::context::{KeywordContext, KeywordContexts};
use super::{Keyword, Timeout, choice, int, own};
use crate::build::{Builder, Line, parse};
use crate::tree::{CrtLoad, Group, Password, ResolverHold, User};
use crate::value::{self, Unit};

/// Keywords of a section that is not built: the section, the reason, and name, usage and description of each.
type OfSection = (KeywordContext, &'static str, &'static [(&'static str, &'static str, &'static str)]);

const OF_UNBUILT_SECTIONS: &[OfSection] = &[
    (
        KeywordContext::Cache,
        "the cache is not built yet",
        &[
            ("max-age", "<seconds>", "how long a response is kept at most"),
            ("max-object-size", "<bytes>", "size of the largest response that is kept"),
            ("max-secondary-entries", "<number>", "responses of one address that differ by 'Vary'"),
            ("process-vary", "on|off", "responses with 'Vary' are kept, too"),
            ("total-max-size", "<megabytes>", "memory of the cache"),
        ],
    ),
    (
        KeywordContext::Program,
        "HAProxy has removed it in 3.3; have the service manager start programs",
        &[
            ("command", "<command> [<argument>...]", "the program that the master starts"),
            ("group", "<name>", "the group that the program runs as"),
            ("option start-on-reload", "", "a reload starts the program again"),
            ("user", "<name>", "the user that the program runs as"),
        ],
    ),
    (
        KeywordContext::FcgiApp,
        "FastCGI is not built: what uses it is refused",
        &[
            ("acl", "<name> <criterion> [<value>...]", "a condition for rules of this section"),
            ("docroot", "<folder>", "the folder of the application's scripts, on its server"),
            ("index", "<name>", "the script for addresses that end with a slash"),
            ("log-stderr", "global|<address>...", "where error messages of the application are logged"),
            ("option get-values", "", "the application is asked how many connections it takes"),
            ("option keep-conn", "", "the application keeps connections open"),
            ("option max-reqs", "<number>", "requests on a connection at once"),
            ("option mpxs-conns", "", "requests share a connection"),
            ("pass-header", "<name> [<condition>]", "a header field that the application gets, too"),
            ("path-info", "<expression>", "how a path is split into script and rest"),
            ("set-param", "<name> <format> [<condition>]", "a parameter that the application gets"),
        ],
    ),
    (KeywordContext::Traces, "traces are not built", &[("trace", "<source> <option>...", "what is traced")]),
    (
        KeywordContext::Acme,
        "no program is run; the log says what record to set",
        &[
            ("acme-vars", "<text>", "variables for the program that sets records of names"),
            ("provider-name", "<name>", "the program that sets records of names"),
        ],
    ),
    (
        KeywordContext::Acme,
        "each certificate has a key of its own",
        &[("reuse-key", "on|off", "a new certificate keeps the key of the one before")],
    ),
    (
        KeywordContext::Acme,
        "HAProxy 3.2 does not have it either",
        &[
            ("challenge-ready", "<condition>[,...]", "what has to be true before the authority is asked"),
            ("dns-delay", "<delay>", "time before a record is looked for"),
            ("profile", "<name>", "the profile that certificates are ordered with"),
        ],
    ),
];

/// Rows of an `acme` section.
fn acme() -> Vec<Keyword> {
    let acme = KeywordContexts::of(&[KeywordContext::Acme]);
    vec![
        super::args("directory", acme, [super::text("url")], "the address of the authority, of https://")
            .built(|b, line| b.acme().directory = Some(line.argument(line.word(0)))),
        super::args("contact", acme, [super::text("address")], "the address that the authority writes to")
            .built(|b, line| b.acme().contact = Some(line.argument(line.word(0)))),
        super::args("account-key", acme, [super::text("file")], "the key of the account at the authority")
            .default("the name of the section and .account.key")
            .built(|b, line| b.acme().account_key = Some(line.argument(line.word(0)))),
        super::args("bits", acme, [choice("number", &["2048", "3072", "4096"])], "length of RSA keys")
            .default("4096")
            .built(|b, line| b.acme().bits = Some(line.argument(line.choice(0)))),
        super::args("curves", acme, [choice("name", &["P-256", "P-384"])], "curve of ECDSA keys")
            .default("P-384")
            .built(|b, line| b.acme().curves = Some(line.argument(line.choice(0)))),
        super::args("keytype", acme, [choice("kind", &["RSA", "ECDSA"])], "kind of keys")
            .default("ECDSA")
            .built(|b, line| b.acme().keytype = Some(line.argument(line.choice(0)))),
        super::args(
            "challenge",
            acme,
            [choice("kind", &["http-01", "dns-01", "tls-alpn-01"])],
            "how the authority verifies that a name is ours",
        )
        .default("http-01")
        .built(|b, line| b.acme().challenge = Some(line.argument(line.choice(0)))),
        super::args(
            "eab-key-id",
            acme,
            [super::text("id")],
            "the name of the account that the authority knows outside ACME",
        )
        .built(|b, line| b.acme().eab_key_id = Some(line.argument(line.word(0)))),
        super::args(
            "eab-mac-key",
            acme,
            [super::text("file|key")],
            "the key of the account that the authority knows outside ACME: a file, by a name with '/' or \
             '.', else the key itself in base64url",
        )
        .built(|b, line| b.acme().eab_mac_key = Some(line.argument(line.word(0)))),
        super::args(
            "eab-mac-alg",
            acme,
            [choice("name", &["HS256", "HS384", "HS512"])],
            "the algorithm that eab-mac-key signs with",
        )
        .default("HS256")
        .built(|b, line| b.acme().eab_mac_alg = Some(line.argument(line.choice(0)))),
        super::args("map", acme, [super::text("map")], "the map with the answers to challenges")
            .built(|b, line| b.acme().map = Some(line.argument(line.word(0)))),
    ]
}

pub(super) fn rows() -> Vec<Keyword> {
    let userlist = KeywordContexts::of(&[KeywordContext::Userlist]);
    let errors = KeywordContexts::of(&[KeywordContext::HttpErrors]);
    let resolvers = KeywordContexts::of(&[KeywordContext::Resolvers]);
    let mailers = KeywordContexts::of(&[KeywordContext::Mailers]);
    let store = KeywordContexts::of(&[KeywordContext::CrtStore]);
    let mut rows = vec![
        super::args("crt-base", store, [super::text("folder")], "where relative names of certificates begin")
            .built(|b, line| b.crt_store().crt_base = Some(line.set(line.word(0)))),
        super::args("key-base", store, [super::text("folder")], "where relative names of keys begin")
            .built(|b, line| b.crt_store().key_base = Some(line.set(line.word(0)))),
        own(
            "load",
            store,
            "crt <file> [key <file>] [alias <name>] [watch] [acme <section> domains <name>[,...]]",
            2,
            "a certificate, and its name",
        )
        .adds()
        .built(load),
        own("group", userlist, "<name> [users <user>,...]", 1, "a group of users").adds().built(group),
        own("user", userlist, "<name> [password|insecure-password <text>] [groups <group>,...]", 1, "a user")
            .adds()
            .built(user),
        own("errorfile", errors, "<code> <file>", 2, "a file that is the answer to an error")
            .adds()
            .built(super::proxy::section_error_file),
        own("mailer", mailers, "<name> <address>:<port>", 2, "a mail server").adds().built(parse::mailer),
        super::args("timeout mail", mailers, [super::time("delay")], "how long a mail may take")
            .default("10s")
            .built(|b, line| b.mailers().timeout = Some(line.set(line.time(0)))),
        own("nameserver", resolvers, "<name> <address>:<port> [<option>...]", 2, "a name server")
            .adds()
            .built(parse::nameserver),
        own(
            "parse-resolv-conf",
            resolvers,
            "",
            0,
            "the name servers of the system's resolv.conf are used, too",
        )
        .built(|b, line| {
            b.resolvers().system = true;
            line.no_more(b, 0);
        }),
        own("hold", resolvers, "<kind> <time>", 2, "how long an answer of a kind holds").adds().built(hold),
        super::args("accepted_payload_size", resolvers, [int("bytes", 512, 65_535)], "bytes of an answer")
            .default("512")
            .built(|b, line| {
                b.resolvers().payload = Some(line.set(line.int(0) as u16));
            }),
        super::args(
            "resolve_retries",
            resolvers,
            [int("number", 1, 65_535)],
            "tries before a name counts as lost",
        )
        .default("3")
        .built(|b, line| {
            b.resolvers().retries = Some(line.set(line.int(0) as u32));
        }),
    ];
    rows.extend(acme());
    for (section, reason, keywords) in OF_UNBUILT_SECTIONS {
        for (name, usage, help) in *keywords {
            let row = own(name, KeywordContexts::of(&[*section]), usage, 0, help).adds();
            rows.push(if *section == KeywordContext::FcgiApp {
                row.idle(reason)
            } else {
                row.refused(reason)
            });
        }
    }
    rows
}

fn names(b: &mut Builder<'_>, line: &Line<'_>, index: usize) -> Vec<crate::lex::Word> {
    let word = &line.words[index];
    let mut names = Vec::new();
    let mut start = 0;
    for part in word.bytes().split(|byte| *byte == b',') {
        if part.is_empty() {
            b.found.alert(
                word.pos_at(start),
                format!("'{}' : a name is missing in '{}'", line.keyword.name, word.shown()),
            );
        } else {
            names.push(word.slice(start..start + part.len()));
        }
        start += part.len() + 1;
    }
    names
}

fn group(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = line.word(0);
    let mut users = Vec::new();
    match line.words.get(1) {
        None => {}
        Some(word) if *word == "users" && line.words.len() > 2 => {
            users = names(b, line, 2);
            line.no_more(b, 3);
        }
        Some(word) => {
            let message = format!("'group' expects 'users' and a list of names, found '{}'", word.shown());
            return b.found.alert(word.pos(), message);
        }
    }
    if !b.takes_name(b'g', &name) {
        let message =
            format!("group '{}' is already in userlist '{}'", name.shown(), b.userlist().name.shown());
        return b.found.warning(name.pos(), message);
    }
    b.userlist().groups.push(Group { name, users });
}

fn user(b: &mut Builder<'_>, line: &Line<'_>) {
    let mut user = User { name: line.word(0), password: None, groups: Vec::new() };
    let mut at = 1;
    while let Some(word) = line.words.get(at) {
        let known = ["password", "insecure-password", "groups"];
        if !known.iter().any(|name| *word == **name) {
            // A word that looks like none of them may be the password.
            let message = match manylane_expr::nearest(word.bytes(), known) {
                Some(_) => manylane_expr::none_of("user", known, word.bytes()),
                None => "'user' expects password, insecure-password or groups, found another word".to_owned(),
            };
            return b.found.alert(word.pos(), message);
        }
        let Some(value) = line.words.get(at + 1) else {
            return b
                .found
                .alert(word.pos(), format!("'user' : '{}' expects a value, found none", word.shown()));
        };
        match word.bytes() {
            b"groups" => user.groups = names(b, line, at + 1),
            b"password" => user.password = Some(Password::Hash(value.clone())),
            _ => user.password = Some(Password::Plain(value.clone())),
        }
        at += 2;
    }
    if !b.takes_name(b'u', &user.name) {
        let message =
            format!("user '{}' is already in userlist '{}'", user.name.shown(), b.userlist().name.shown());
        return b.found.warning(user.name.pos(), message);
    }
    b.userlist().users.push(user);
}

/// `load` of a `crt-store` section.
fn load(b: &mut Builder<'_>, line: &Line<'_>) {
    let (mut crt, mut key, mut alias, mut ocsp, mut issuer) = (None, None, None, None, None);
    let (mut acme, mut domains) = (None, Vec::new());
    let (mut at, mut ocsp_update, mut watched) = (0, None, None);
    while let Some(word) = line.words.get(at) {
        let slot = match word.bytes() {
            b"ocsp-update" => {
                let value = line.words.get(at + 1);
                match value.map(|word| word.bytes()) {
                    Some(b"on") => ocsp_update = Some(true),
                    Some(b"off") => ocsp_update = Some(false),
                    _ => {
                        let found = value.map_or("none".to_owned(), |word| format!("'{}'", word.shown()));
                        let message = format!("'load' : 'ocsp-update' expects 'on' or 'off', found {found}");
                        return b.found.alert(word.pos(), message);
                    }
                }
                at += 2;
                continue;
            }
            b"watch" => {
                watched = Some(word.pos());
                at += 1;
                continue;
            }
            b"crt" => &mut crt,
            b"key" => &mut key,
            b"alias" => &mut alias,
            b"ocsp" => &mut ocsp,
            b"issuer" => &mut issuer,
            b"acme" => &mut acme,
            b"domains" => {
                if at + 1 == line.words.len() {
                    return b.found.alert(word.pos(), "'load' : 'domains' expects a value, found none");
                }
                domains = names(b, line, at + 1);
                at += 2;
                continue;
            }
            b"sctl" => {
                let message = format!(
                    "'load' : '{}' is an option of HAProxy that this program refuses: it is not built yet",
                    word.shown()
                );
                return b.found.alert(word.pos(), message);
            }
            other => {
                let message = manylane_expr::none_of(
                    "load",
                    ["crt", "key", "alias", "ocsp", "issuer", "ocsp-update", "watch", "acme", "domains"],
                    other,
                );
                return b.found.alert(word.pos(), message);
            }
        };
        let Some(value) = line.words.get(at + 1) else {
            return b
                .found
                .alert(word.pos(), format!("'load' : '{}' expects a value, found none", word.shown()));
        };
        *slot = Some(value.clone());
        at += 2;
    }
    if acme.is_some() && domains.is_empty() {
        return b.found.alert(line.pos(), "'load' : 'acme' expects 'domains <name>[,...]' in the same line");
    }
    if let (Some(pos), Some(_)) = (watched, &acme) {
        let message =
            "'load' : 'watch' and 'acme' exclude each other: ACME replaces the certificate by itself";
        return b.found.alert(pos, message);
    }
    if let (None, Some(domain)) = (&acme, domains.first()) {
        b.found.warning(domain.pos(), "'load' : 'domains' has no effect without 'acme'");
    }
    match crt {
        Some(crt) => {
            let pos = line.pos();
            b.crt_store().loads.push(CrtLoad {
                crt,
                key,
                alias,
                ocsp,
                issuer,
                ocsp_update,
                acme,
                is_watched: watched.is_some(),
                domains,
                pos,
            });
        }
        None => b.found.alert(line.pos(), "'load' expects 'crt <file>', found none"),
    }
}

fn hold(b: &mut Builder<'_>, line: &Line<'_>) {
    const KINDS: &[&str] = &["nx", "obsolete", "other", "refused", "timeout", "valid"];
    let time = line.own(b, 1, |bytes| value::time(bytes, Unit::Ms));
    if let (Some(kind), Some(time)) = (line.own_choice(b, 0, KINDS), time) {
        b.doubtful_time(&format!("hold {kind}"), &line.words[1], Unit::Ms);
        line.no_more(b, 2);
        b.resolvers().holds.push(ResolverHold { kind, time });
    }
}

pub(super) fn resolver_timeout(b: &mut Builder<'_>, line: &Line<'_>) {
    let value = line.set(line.time(0));
    let section = b.resolvers();
    if line.keyword.name == "timeout retry" {
        section.timeout_retry = Some(value)
    } else {
        section.timeout_resolve = Some(value)
    }
}

pub(super) fn ring_timeout(b: &mut Builder<'_>, line: &Line<'_>) {
    let value = line.set(line.time(0));
    let ring = b.ring();
    if line.keyword.name == Timeout::Connect.name() {
        ring.timeout_connect = Some(value)
    } else {
        ring.timeout_server = Some(value)
    }
}
