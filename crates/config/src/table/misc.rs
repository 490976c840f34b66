//! Sections other than proxies: users, error files, resolvers, certificates, and those that are not built.

use super::section::{SectionKind, SectionKinds};
use super::{Keyword, Timeout, int, own};
use crate::build::{Builder, Line, parse};
use crate::tree::{CrtLoad, Group, Password, ResolverHold, User};

pub(super) fn rows() -> Vec<Keyword> {
    let userlist = SectionKinds::of(&[SectionKind::Userlist]);
    let errors = SectionKinds::of(&[SectionKind::HttpErrors]);
    let resolvers = SectionKinds::of(&[SectionKind::Resolvers]);
    let store = SectionKinds::of(&[SectionKind::CrtStore]);
    let mut rows = vec![
        super::args("crt-base", store, [super::text("folder")], "where relative names of certificates begin")
            .built(|b, line| b.crt_store().crt_base = Some(line.set(line.word(0)))),
        super::args("key-base", store, [super::text("folder")], "where relative names of keys begin")
            .built(|b, line| b.crt_store().key_base = Some(line.set(line.word(0)))),
        own("load", store, "crt <file> [key <file>] [alias <name>]", 2, "a certificate, and its name")
            .adds()
            .built(load),
        own("group", userlist, "<name> [users <user>,...]", 1, "a group of users").adds().built(group),
        own("user", userlist, "<name> [password|insecure-password <text>] [groups <group>,...]", 1, "a user")
            .adds()
            .built(user),
        own("errorfile", errors, "<code> <file>", 2, "a file that is the answer to an error")
            .adds()
            .built(super::proxy::section_error_file),
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
    for (place, reason, names) in [
        (
            SectionKind::Cache,
            "the cache is not built yet",
            &["max-age", "max-object-size", "max-secondary-entries", "process-vary", "total-max-size"][..],
        ),
        (
            SectionKind::Program,
            "HAProxy has removed it in 3.3; have the service manager start programs",
            &["command", "group", "option start-on-reload", "user"],
        ),
        (
            SectionKind::FcgiApp,
            "FastCGI is not built: what uses it is refused",
            &[
                "acl",
                "docroot",
                "index",
                "log-stderr",
                "option get-values",
                "option keep-conn",
                "option max-reqs",
                "option mpxs-conns",
                "pass-header",
                "path-info",
                "set-param",
            ],
        ),
        (SectionKind::Traces, "traces are not built", &["trace"]),
        (
            SectionKind::Acme,
            super::ssl::TLS,
            &[
                "account-key",
                "acme-vars",
                "bits",
                "challenge",
                "challenge-ready",
                "contact",
                "curves",
                "directory",
                "dns-delay",
                "keytype",
                "map",
                "profile",
                "provider-name",
                "reuse-key",
            ],
        ),
    ] {
        for name in names {
            let row =
                own(name, SectionKinds::of(&[place]), "<value>...", 0, "a setting of this section").adds();
            rows.push(if place == SectionKind::FcgiApp { row.idle(reason) } else { row.refused(reason) });
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
            let message = manylane_expr::none_of("user", known, word.bytes());
            return b.found.alert(word.pos(), message);
        }
        let Some(value) = line.words.get(at + 1) else {
            return b.found.alert(word.pos(), format!("'user' : '{}' expects a value", word.shown()));
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
    let (mut at, mut ocsp_update) = (0, None);
    while let Some(word) = line.words.get(at) {
        let slot = match word.bytes() {
            b"ocsp-update" => {
                match line.words.get(at + 1).map(|word| word.bytes()) {
                    Some(b"on") => ocsp_update = Some(true),
                    Some(b"off") => ocsp_update = Some(false),
                    _ => {
                        let message = "'load' : 'ocsp-update' expects 'on' or 'off'".to_owned();
                        return b.found.alert(word.pos(), message);
                    }
                }
                at += 2;
                continue;
            }
            b"crt" => &mut crt,
            b"key" => &mut key,
            b"alias" => &mut alias,
            b"ocsp" => &mut ocsp,
            b"issuer" => &mut issuer,
            b"acme" | b"domains" | b"sctl" => {
                let message = format!(
                    "'load' : '{}' is an option of HAProxy that this program refuses: it is not built yet",
                    word.shown()
                );
                return b.found.alert(word.pos(), message);
            }
            other => {
                let message = manylane_expr::none_of(
                    "load",
                    ["crt", "key", "alias", "ocsp", "issuer", "ocsp-update"],
                    other,
                );
                return b.found.alert(word.pos(), message);
            }
        };
        let Some(value) = line.words.get(at + 1) else {
            return b.found.alert(word.pos(), format!("'load' : '{}' expects a value", word.shown()));
        };
        *slot = Some(value.clone());
        at += 2;
    }
    match crt {
        Some(crt) => {
            let pos = line.pos();
            b.crt_store().loads.push(CrtLoad { crt, key, alias, ocsp, issuer, ocsp_update, pos });
        }
        None => b.found.alert(line.pos(), "'load' expects 'crt <file>', found none"),
    }
}

fn hold(b: &mut Builder<'_>, line: &Line<'_>) {
    const KINDS: &[&str] = &["nx", "obsolete", "other", "refused", "timeout", "valid"];
    if let (Some(kind), Some(time)) = (line.own_choice(b, 0, KINDS), line.own_time(b, 1)) {
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
