//! All commands of the interface.

use super::patterns::Kind;
use super::{
    Call, certificates, client, descriptors, errors, events, help, info, inside, lanes, limits, members,
    patterns, pools, process, profiling, resolvers, schema, server, sessions, stat, state, variables, wait,
};
use crate::level::Level::{self, Admin, Operator, User};
use crate::reply::Gone;
use crate::row::{Mode, Row, row};
use Run::{Long, Now, Waits};
use manylane_proxy::generation::FrontendGateState;
use manylane_tls::Kind as SslKind;
use std::pin::Pin;

type Running<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Who runs a command.
#[derive(Clone, Copy)]
pub(super) enum Run {
    /// Answers at once.
    Now(fn(&mut Call<'_, '_>)),
    /// Waits for others before it answers.
    Waits(for<'a> fn(&'a mut Call<'_, '_>) -> Running<'a, ()>),
    /// Sends a long answer, in slices.
    Long(for<'a> fn(&'a mut Call<'_, '_>) -> Running<'a, Result<(), Gone>>),
}

/// In order of their words; those without words of their own at the end, as `help` shows them.
#[rustfmt::skip]
pub(super) static TABLE: &[Row<Run>] = &[
    row("abort ssl ca-file", "<file>", Admin, "end the transaction about a file of authorities",
        Waits(|call| Box::pin(certificates::abort(call, SslKind::Authorities)))),
    row("abort ssl cert", "<file>", Admin, "end the transaction about a certificate",
        Waits(|call| Box::pin(certificates::abort(call, SslKind::Certificate)))),
    row("abort ssl crl-file", "<file>", Admin, "end the transaction about a file of revoked certificates",
        Waits(|call| Box::pin(certificates::abort(call, SslKind::Revoked)))),
    row("add acl", "[@<ver>] <acl> <pattern>", Admin, "add a pattern to an ACL's list (or a payload of them)",
        Waits(|call| Box::pin(patterns::add(call, Kind::Acl)))),
    row("add server", "<bk>/<srv> <addr> [option]*", Admin,
        "a new server of a backend, in maintenance until it is enabled",
        Waits(|call| Box::pin(members::add(call)))),
    row("add map", "[@<ver>] <map> <key> <val>", Admin, "add an entry to a map (or a payload of them)",
        Waits(|call| Box::pin(patterns::add(call, Kind::Map)))),
    row("add ssl ca-file", "<file> <payload>", Admin, "add authorities to a file of them, in a transaction",
        Waits(|call| Box::pin(certificates::set(call, SslKind::Authorities, true)))),
    row("add ssl crt-list", "<list> <cert> | <list> <payload>", Admin, "add a certificate to a list",
        Waits(|call| Box::pin(certificates::add_line(call)))),
    row("clear acl", "[@<ver>] <acl>", Admin, "remove all patterns of an ACL's list",
        Waits(|call| Box::pin(patterns::clear(call, Kind::Acl)))),
    row("clear counters all", "", Admin, "begin all counters anew",
        Waits(|call| Box::pin(limits::clear(call, true)))),
    row("clear counters server", "<bk>/<srv> [force]", Admin, "begin a server's counters anew",
        Waits(|call| Box::pin(limits::clear_server(call)))),
    row("clear counters", "", Operator, "forget the most that there was of each",
        Waits(|call| Box::pin(limits::clear(call, false)))),
    row("clear map", "[@<ver>] <map>", Admin, "remove all entries of a map",
        Waits(|call| Box::pin(patterns::clear(call, Kind::Map)))),
    row("commit acl", "@<ver> <acl>", Admin,
        "have a version that was prepared take the place of an ACL's list",
        Waits(|call| Box::pin(patterns::commit(call, Kind::Acl)))),
    row("commit map", "@<ver> <map>", Admin, "have a version that was prepared take the place of a map",
        Waits(|call| Box::pin(patterns::commit(call, Kind::Map)))),
    row("commit ssl ca-file", "<file>", Admin, "use the authorities of the transaction",
        Waits(|call| Box::pin(certificates::commit(call, SslKind::Authorities)))),
    row("commit ssl cert", "<file>", Admin, "use the certificate of the transaction",
        Waits(|call| Box::pin(certificates::commit(call, SslKind::Certificate)))),
    row("commit ssl crl-file", "<file>", Admin, "use the revoked certificates of the transaction",
        Waits(|call| Box::pin(certificates::commit(call, SslKind::Revoked)))),
    row("debug dev log", "<word>...", Admin, "write a line to the log targets of 'global' (expert)",
        Now(process::log)).only_in(Mode::Expert),
    row("debug dev memstats", "[all|match <prefix>]", Admin,
        "memory by type, and by who asked for it (expert)", Now(pools::memory)).only_in(Mode::Expert),
    row("debug dev panic", "<id>", Admin,
        "have a stream that 'show sess' shows end as by a defect of the program (expert)",
        Waits(|call| Box::pin(sessions::panic(call)))).only_in(Mode::Expert),
    row("del acl", "<acl> [<key>|#<ref>]", Admin, "remove a pattern of an ACL's list",
        Waits(|call| Box::pin(patterns::delete(call, Kind::Acl)))),
    row("del server", "<bk>/<srv>", Admin, "take away a server in maintenance that serves nobody",
        Waits(|call| Box::pin(members::delete(call)))),
    row("del map", "<map> [<key>|#<ref>]", Admin, "remove an entry of a map",
        Waits(|call| Box::pin(patterns::delete(call, Kind::Map)))),
    row("del ssl ca-file", "<file>", Admin, "forget a file of authorities that nothing uses",
        Waits(|call| Box::pin(certificates::delete(call, SslKind::Authorities)))),
    row("del ssl cert", "<file>", Admin, "forget a certificate that nothing uses",
        Waits(|call| Box::pin(certificates::delete(call, SslKind::Certificate)))),
    row("del ssl crl-file", "<file>", Admin, "forget a file of revoked certificates that nothing uses",
        Waits(|call| Box::pin(certificates::delete(call, SslKind::Revoked)))),
    row("del ssl crt-list", "<list> <cert>[:<line>]", Admin, "remove a certificate from a list or folder",
        Waits(|call| Box::pin(certificates::remove_line(call)))),
    row("disable agent", "<bk>/<srv>", Admin, "ask a server's agent no more",
        Now(|call| server::enable_agent(call, false))),
    row("disable frontend", "<frontend>", Admin, "have a frontend take no connections for a while",
        Now(|call| limits::set_gate(call, FrontendGateState::Paused))),
    row("disable health", "<bk>/<srv>", Admin, "make no more checks of a server",
        Now(|call| server::enable_health(call, false))),
    row("disable server", "<bk>/<srv>", Admin, "put a server into maintenance",
        Now(|call| server::enable(call, false))),
    row("enable agent", "<bk>/<srv>", Admin, "ask a server's agent again",
        Now(|call| server::enable_agent(call, true))),
    row("enable frontend", "<frontend>", Admin, "have a frontend take connections again",
        Now(|call| limits::set_gate(call, FrontendGateState::Open))),
    row("enable health", "<bk>/<srv>", Admin, "make checks of a server again",
        Now(|call| server::enable_health(call, true))),
    row("enable server", "<bk>/<srv>", Admin, "take a server out of maintenance",
        Now(|call| server::enable(call, true))),
    row("experimental-mode", "[on|off]", Admin, "allow this client what may change or go again",
        Now(|call| client::set_mode(call, "experimental-mode", |own| &mut own.experimental))),
    row("expert-mode", "[on|off]", Admin, "allow this client what is for experts",
        Now(|call| client::set_mode(call, "expert-mode", |own| &mut own.expert))),
    row("get acl", "<acl> <value>", Admin, "which pattern of an ACL's list matches a text",
        Waits(|call| Box::pin(patterns::get(call, Kind::Acl)))),
    row("get map", "<map> <value>", Admin, "what a map has for a text",
        Waits(|call| Box::pin(patterns::get(call, Kind::Map)))),
    row("get var", "<name>", Operator, "a variable of the process", Now(variables::get)),
    row("get weight", "<bk>/<srv>", User, "a server's weight, and what the file gave it",
        Now(server::get_weight)),
    row("new ssl ca-file", "<file>", Admin, "a file of authorities with nothing inside",
        Waits(|call| Box::pin(certificates::create(call, SslKind::Authorities)))),
    row("new ssl cert", "<file>", Admin, "a certificate with nothing inside",
        Waits(|call| Box::pin(certificates::create(call, SslKind::Certificate)))),
    row("new ssl crl-file", "<file>", Admin, "a file of revoked certificates with nothing inside",
        Waits(|call| Box::pin(certificates::create(call, SslKind::Revoked)))),
    row("operator", "", Operator, "lower this client's level to operator",
        Now(|call| call.settings.level = Level::Operator)),
    row("prepare acl", "<acl>", Admin, "begin a new version of an ACL's list",
        Waits(|call| Box::pin(patterns::prepare(call, Kind::Acl)))),
    row("prepare map", "<map>", Admin, "begin a new version of a map",
        Waits(|call| Box::pin(patterns::prepare(call, Kind::Map)))),
    row("reload", "", Admin,
        "read the configuration again; what is as before stays, and nobody is disconnected",
        Waits(|call| Box::pin(process::reload(call)))),
    row("set map", "<map> [<key>|#<ref>] <value>", Admin, "change the value of an entry of a map",
        Waits(|call| Box::pin(patterns::set(call)))),
    row("set maxconn frontend", "<frontend> <value>", Admin, "how many connections a frontend takes",
        Now(limits::set_maxconn_frontend)),
    row("set maxconn global", "<value>", Admin, "how many connections the process takes; 0: as at the start",
        Now(limits::set_maxconn_global)),
    row("set maxconn server", "<bk>/<srv> <value>", Admin,
        "how many requests a server serves at once; 0: any number",
        Waits(|call| Box::pin(server::set_maxconn(call)))),
    row("set profiling", "<what> {auto|on|off}", Admin, "measure the tasks of all lanes, or stop it",
        Now(profiling::set)),
    row("set rate-limit", "{connections|sessions} global <value>", Admin,
        "how many connections or sessions a second the process takes; 0: any number",
        Now(limits::set_rate_limit)),
    row("set server", "<bk>/<srv> [opts]", Admin,
        "change a server's address, name, state, weight, health, or where its checks go",
        Now(server::set_server)),
    row("set severity-output", "[none|number|string]", User, "what stands before messages",
        Now(client::set_severity)),
    row("set ssl ca-file", "<file> <payload>", Admin, "put other authorities into a transaction",
        Waits(|call| Box::pin(certificates::set(call, SslKind::Authorities, false)))),
    row("set ssl cert", "<file> <payload>", Admin, "put another certificate into a transaction",
        Waits(|call| Box::pin(certificates::set(call, SslKind::Certificate, false)))),
    row("set ssl crl-file", "<file> <payload>", Admin, "put other revoked certificates into a transaction",
        Waits(|call| Box::pin(certificates::set(call, SslKind::Revoked, false)))),
    row("set timeout cli", "<delay>", User, "how long this client may be silent", Now(client::set_timeout)),
    row("set var", "<name> [fmt|expr] {<fmt>|<expr>}", Admin, "set a variable of the process (experimental)",
        Now(variables::set)).only_in(Mode::Experimental),
    row("set weight", "<bk>/<srv> <weight>", Admin,
        "change a server's weight (number, or percentage of the file's)", Now(server::set_weight)),
    row("show acl", "[[@<ver>] <acl>]", Admin, "lists of patterns, or what is in one",
        Long(|call| Box::pin(patterns::show(call, Kind::Acl)))),
    row("show activity", "", Operator, "what the lanes count of themselves", Now(inside::activity)),
    row("show backend", "", User, "names of the backends",
        Long(|call| Box::pin(process::show_backends(call)))),
    row("show cli level", "", User, "this client's level", Now(|call| call.info(call.settings.level.name()))),
    row("show cli sockets", "", User, "sockets of this interface", Now(process::show_sockets)),
    row("show contention", "", User, "locks that made lanes wait, by class", Now(lanes::contention)),
    row("show env", "[var]", Operator, "the process's environment",
        Long(|call| Box::pin(process::show_environment(call)))),
    row("show errors", "[<px>] [request|response]", Operator, "the last messages that broke the protocol",
        Long(|call| Box::pin(errors::show(call)))),
    row("show events", "[<ring> [-w] [-n]]", Operator,
        "the rings, or what one holds; -w: what comes, too; -n: only that",
        Long(|call| Box::pin(events::show(call)))),
    row("show fd", "[<number>]", Operator, "the process's descriptors, or one",
        Long(|call| Box::pin(descriptors::show(call)))),
    row("show info", "[desc|float|json|typed]*", User, "the process and its limits", Now(info::show)),
    row("show lanes", "", User, "each lane's tasks, rounds and wake-ups",
        Long(|call| Box::pin(lanes::show(call)))),
    row("show map", "[[@<ver>] <map>]", Admin, "maps, or what is in one",
        Long(|call| Box::pin(patterns::show(call, Kind::Map)))),
    row("show pools", "[byname|bysize|byusage] [detailed] [match <prefix>] [<nb>]", User, "memory pools",
        Now(pools::show)),
    row("show profiling", "[<what>|<nb>|byaddr|bytime]*", User, "time of tasks by kind, if it was measured",
        Now(profiling::show)),
    row("show resolvers", "[<section>]", User, "what came of questions to name servers",
        Now(resolvers::show)),
    row("show schema json", "", User, "the schema of 'show info json' and 'show stat json'",
        Now(|call| call.reply.put(&schema::text()))),
    row("show servers conn", "[<backend>]", User, "connections to servers, used and idle",
        Long(|call| Box::pin(state::connections(call)))),
    row("show servers state", "[<backend>]", User, "what is known of servers, one line each",
        Long(|call| Box::pin(state::states(call)))),
    row("show sess", "[<id>|all|older <age>|frontend <fe>|backend <be>|server <bk>/<srv>]", Operator,
        "streams at work, or all of one", Long(|call| Box::pin(sessions::show(call)))),
    row("show ssl ca-file", "[[*]<file>[:<index>]]", Operator, "authorities by file, or those of one",
        Long(|call| Box::pin(certificates::show(call, SslKind::Authorities)))),
    row("show ssl cert", "[[*]<file>]", Operator, "certificates, or what one says",
        Long(|call| Box::pin(certificates::show(call, SslKind::Certificate)))),
    row("show ssl crl-file", "[[*]<file>[:<index>]]", Operator,
        "revoked certificates by file, or those of one",
        Long(|call| Box::pin(certificates::show(call, SslKind::Revoked)))),
    row("show ssl crt-list", "[-n] [<list>]", Operator, "lists of certificates, or what is in one",
        Long(|call| Box::pin(certificates::show_list(call)))),
    row("show startup-logs", "", Operator, "what was said of the files that are served",
        Now(|call| call.reply.put(&call.generation.said))),
    row("show stat", "[domain {proxy|resolvers}] [desc|json|no-maint|typed|up]*", User,
        "counters of frontends, servers and backends", Long(|call| Box::pin(stat::show(call)))),
    row("show tasks", "", Operator, "tasks that wait for their turn", Now(inside::tasks)),
    row("show threads", "", Operator, "what each lane does", Long(|call| Box::pin(inside::threads(call)))),
    row("show version", "", User, "the program's version",
        Now(|call| call.info(call.control.process().facts.version))),
    row("shutdown frontend", "<frontend>", Admin, "have a frontend take no connections any more",
        Now(|call| limits::set_gate(call, FrontendGateState::Shut))),
    row("shutdown session", "<id>", Admin, "end a stream that 'show sess' shows",
        Waits(|call| Box::pin(sessions::shutdown(call)))),
    row("shutdown sessions server", "<bk>/<srv>", Admin, "end what a server serves",
        Now(server::shutdown_sessions)),
    row("user", "", User, "lower this client's level to user", Now(|call| call.settings.level = Level::User)),
    row("wait", "<delay> [srv-removable <bk>/<srv>]", User,
        "wait for so long, or until a server in maintenance serves nobody",
        Waits(|call| Box::pin(wait::wait(call)))),
    row("help", "[<command>]", User, "all commands, or those that begin so", Now(help::help)),
    row("prompt", "", User, "keep the connection and ask for the next line, or stop that",
        Now(|call| call.settings.interactive = !call.settings.interactive)),
    row("quit", "", User, "disconnect", Now(|call| call.settings.over = true)),
];

#[cfg(test)]
mod tests {
    use super::super::unbuilt;
    use super::*;

    #[test]
    fn no_command_hides_another_and_none_is_also_refused() {
        for row in TABLE {
            let words: Vec<String> = row.words.split(' ').map(str::to_owned).collect();
            let (found, count) = Row::find(TABLE, &words).expect("itself");
            assert_eq!((found.words, count), (row.words, words.len()));
            assert_eq!(unbuilt::reason(&words), None, "{}", row.words);
        }
    }

    #[test]
    fn the_readme_tells_each_level() {
        let line = |row: &Row<Run>| format!("| `{}` | {} |\n", row.words, row.level.name());
        let table: String = TABLE.iter().map(line).collect();
        let told = include_str!("../../README.md").contains(&format!("|---|---|\n{table}\n"));
        assert!(told, "it should have:\n{table}");
    }
}
