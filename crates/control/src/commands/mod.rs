//! The commands: one table of words, levels and helps; who runs each is in the files beside.

pub(crate) mod columns;
mod descriptors;
mod errors;
pub(crate) mod events;
mod help;
pub(crate) mod info;
mod inside;
mod lanes;
mod limits;
mod members;
mod patterns;
pub(crate) mod pools;
mod profiling;
pub(crate) mod resolvers;
pub(crate) mod schema;
mod server;
mod sessions;
pub(crate) mod stat;
mod state;
mod unbuilt;
pub(crate) mod values;
mod variables;
mod wait;

use crate::level::{Level, Marks, Severity};
use crate::reply::{Gone, Reply};
use crate::serve::Control;
use crate::session::Settings;
use manylane_config::value::Unit;
use manylane_net::Endpoint;
use manylane_proxy::Generation;
use manylane_proxy::generation::FrontendGateState;
use manylane_sched::Here;
use manylane_sync::Arc;
use patterns::Kind;
use std::fmt::Write;
use std::time::Duration;

/// A command that is being run.
pub(crate) struct Call<'c, 'r> {
    pub(crate) control: &'c Control,
    /// What serves when the command begins.
    pub(crate) generation: &'c Arc<Generation>,
    pub(crate) settings: &'c mut Settings,
    pub(crate) words: &'c [String],
    /// What follows `<<`.
    pub(crate) payload: Option<String>,
    pub(crate) reply: &'c mut Reply<'r>,
    pub(crate) here: Here,
}

impl Call<'_, '_> {
    /// The word at that place; empty where there is none.
    fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    fn message(&mut self, severity: Severity, text: &str) {
        self.reply.put(severity.mark(self.settings.marks));
        self.reply.put(text);
        self.reply.put("\n");
    }

    /// It could not be done.
    fn error(&mut self, text: &str) {
        self.message(Severity::Error, text);
    }

    /// What was asked for.
    fn info(&mut self, text: &str) {
        self.message(Severity::Info, text);
    }
}

/// Who runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Add(Kind),
    AddServer,
    Clear(Kind),
    ClearCounters { all: bool },
    Commit(Kind),
    DebugMemory,
    DebugPanic,
    Delete(Kind),
    DeleteServer,
    FrontendGate(FrontendGateState),
    DisableAgent,
    DisableHealth,
    DisableServer,
    EnableAgent,
    EnableHealth,
    EnableServer,
    ExperimentalMode,
    ExpertMode,
    Get(Kind),
    GetVariable,
    GetWeight,
    Help,
    Lower(Level),
    Prepare(Kind),
    Prompt,
    Quit,
    Reload,
    SetMap,
    SetMaxconnFrontend,
    SetMaxconnGlobal,
    SetMaxconnServer,
    SetProfiling,
    SetRateLimit,
    SetServer,
    SetSeverity,
    SetTimeout,
    SetVariable,
    SetWeight,
    Show(Kind),
    ShowActivity,
    ShowBackend,
    ShowCliLevel,
    ShowCliSockets,
    ShowContention,
    ShowEnv,
    ShowErrors,
    ShowEvents,
    ShowDescriptors,
    ShowInfo,
    ShowLanes,
    ShowPools,
    ShowProfiling,
    ShowResolvers,
    ShowSchema,
    ShowServersConn,
    ShowServersState,
    ShowSessions,
    ShowStartupLogs,
    ShowStat,
    ShowTasks,
    ShowThreads,
    ShowVersion,
    ShutdownSession,
    ShutdownSessions,
    Wait,
}

/// A command.
struct Row {
    /// The words that it begins with.
    words: &'static str,
    /// What follows them.
    arguments: &'static str,
    level: Level,
    help: &'static str,
    action: Action,
}

const fn row(
    words: &'static str,
    arguments: &'static str,
    level: Level,
    action: Action,
    help: &'static str,
) -> Row {
    Row { words, arguments, level, help, action }
}

/// All commands, in order of their words; those without words of their own at the end, as `help` shows them.
#[rustfmt::skip]
static TABLE: &[Row] = &[
    row("add acl", "[@<ver>] <acl> <pattern>", Level::Admin, Action::Add(Kind::Acl), "add a pattern to an \
        ACL's list (or a payload of them)"),
    row("add server", "<bk>/<srv> <addr> [option]*", Level::Admin, Action::AddServer, "a new server of a \
        backend, in maintenance until it is enabled"),
    row("add map", "[@<ver>] <map> <key> <val>", Level::Admin, Action::Add(Kind::Map), "add an entry to a \
        map (or a payload of them)"),
    row("clear acl", "[@<ver>] <acl>", Level::Admin, Action::Clear(Kind::Acl), "remove all patterns of an \
        ACL's list"),
    row("clear counters all", "", Level::Admin, Action::ClearCounters { all: true }, "begin all counters \
        anew"),
    row("clear counters", "", Level::Operator, Action::ClearCounters { all: false }, "forget the most that \
        there was of each"),
    row("clear map", "[@<ver>] <map>", Level::Admin, Action::Clear(Kind::Map), "remove all entries of a map"),
    row("commit acl", "@<ver> <acl>", Level::Admin, Action::Commit(Kind::Acl), "have a version that was \
        prepared take the place of an ACL's list"),
    row("commit map", "@<ver> <map>", Level::Admin, Action::Commit(Kind::Map), "have a version that was \
        prepared take the place of a map"),
    row("debug dev memstats", "[all|match <prefix>]", Level::Admin, Action::DebugMemory, "memory by type, \
        and by who asked for it (expert)"),
    row("debug dev panic", "<id>", Level::Admin, Action::DebugPanic, "have a stream that 'show sess' shows \
        end as by a defect of the program (expert)"),
    row("del acl", "<acl> [<key>|#<ref>]", Level::Admin, Action::Delete(Kind::Acl), "remove a pattern of an \
        ACL's list"),
    row("del server", "<bk>/<srv>", Level::Admin, Action::DeleteServer, "take away a server in maintenance \
        that serves nobody"),
    row("del map", "<map> [<key>|#<ref>]", Level::Admin, Action::Delete(Kind::Map), "remove an entry of a \
        map"),
    row("disable agent", "<bk>/<srv>", Level::Admin, Action::DisableAgent, "ask a server's agent no more"),
    row("disable frontend", "<frontend>", Level::Admin, Action::FrontendGate(FrontendGateState::Paused),
        "have a frontend take no connections for a while"),
    row("disable health", "<bk>/<srv>", Level::Admin, Action::DisableHealth, "make no more checks of a \
        server"),
    row("disable server", "<bk>/<srv>", Level::Admin, Action::DisableServer, "put a server into maintenance"),
    row("enable agent", "<bk>/<srv>", Level::Admin, Action::EnableAgent, "ask a server's agent again"),
    row("enable frontend", "<frontend>", Level::Admin, Action::FrontendGate(FrontendGateState::Open), "have \
        a frontend take connections again"),
    row("enable health", "<bk>/<srv>", Level::Admin, Action::EnableHealth, "make checks of a server again"),
    row("enable server", "<bk>/<srv>", Level::Admin, Action::EnableServer, "take a server out of \
        maintenance"),
    row("experimental-mode", "[on|off]", Level::Admin, Action::ExperimentalMode, "allow this client what may \
        change or go again"),
    row("expert-mode", "[on|off]", Level::Admin, Action::ExpertMode, "allow this client what is for experts"),
    row("get acl", "<acl> <value>", Level::Admin, Action::Get(Kind::Acl), "which pattern of an ACL's list \
        matches a text"),
    row("get map", "<map> <value>", Level::Admin, Action::Get(Kind::Map), "what a map has for a text"),
    row("get var", "<name>", Level::Operator, Action::GetVariable, "a variable of the process"),
    row("get weight", "<bk>/<srv>", Level::User, Action::GetWeight, "a server's weight, and what the file \
        gave it"),
    row("operator", "", Level::Operator, Action::Lower(Level::Operator), "lower this client's level to \
        operator"),
    row("prepare acl", "<acl>", Level::Admin, Action::Prepare(Kind::Acl), "begin a new version of an ACL's \
        list"),
    row("prepare map", "<map>", Level::Admin, Action::Prepare(Kind::Map), "begin a new version of a map"),
    row("reload", "", Level::Admin, Action::Reload, "read the configuration again; what is as before stays, \
        and nobody is disconnected"),
    row("set map", "<map> [<key>|#<ref>] <value>", Level::Admin, Action::SetMap, "change the value of an \
        entry of a map"),
    row("set maxconn frontend", "<frontend> <value>", Level::Admin, Action::SetMaxconnFrontend, "how many \
        connections a frontend takes"),
    row("set maxconn global", "<value>", Level::Admin, Action::SetMaxconnGlobal, "how many connections the \
        process takes; 0: as at the start"),
    row("set maxconn server", "<bk>/<srv> <value>", Level::Admin, Action::SetMaxconnServer, "how many \
        requests a server serves at once; 0: any number"),
    row("set profiling", "<what> {auto|on|off}", Level::Admin, Action::SetProfiling, "measure the tasks of \
        all lanes, or stop it"),
    row("set rate-limit", "{connections|sessions} global \
        <value>", Level::Admin, Action::SetRateLimit, "how many connections or sessions a second the process \
            takes; 0: any number"),
    row("set server", "<bk>/<srv> [opts]", Level::Admin, Action::SetServer, "change a server's address, \
        name, state, weight, health, or where its checks go"),
    row("set severity-output", "[none|number|string]", Level::User, Action::SetSeverity, "what stands before \
        messages"),
    row("set timeout cli", "<delay>", Level::User, Action::SetTimeout, "how long this client may be silent"),
    row("set var", "<name> [fmt|expr] {<fmt>|<expr>}", Level::Admin, Action::SetVariable, "set a variable of \
        the process (experimental)"),
    row("set weight", "<bk>/<srv> <weight>", Level::Admin, Action::SetWeight, "change a server's weight \
        (number, or percentage of the file's)"),
    row("show acl", "[[@<ver>] <acl>]", Level::Admin, Action::Show(Kind::Acl), "lists of patterns, or what \
        is in one"),
    row("show activity", "", Level::Operator, Action::ShowActivity, "what the lanes count of themselves"),
    row("show backend", "", Level::User, Action::ShowBackend, "names of the backends"),
    row("show cli level", "", Level::User, Action::ShowCliLevel, "this client's level"),
    row("show cli sockets", "", Level::User, Action::ShowCliSockets, "sockets of this interface"),
    row("show contention", "", Level::User, Action::ShowContention, "locks that made lanes wait, by class"),
    row("show env", "[var]", Level::Operator, Action::ShowEnv, "the process's environment"),
    row("show errors", "[<px>] [request|response]", Level::Operator, Action::ShowErrors, "the last messages \
        that broke the protocol"),
    row("show events", "[<ring> [-w] [-n]]", Level::Operator, Action::ShowEvents, "the rings, or what one \
        holds; -w: what comes, too; -n: only that"),
    row("show fd", "[<number>]", Level::Operator, Action::ShowDescriptors, "the process's descriptors, or \
        one"),
    row("show info", "[desc|float|json|typed]*", Level::User, Action::ShowInfo, "the process and its limits"),
    row("show lanes", "", Level::User, Action::ShowLanes, "each lane's tasks, rounds and wake-ups"),
    row("show map", "[[@<ver>] <map>]", Level::Admin, Action::Show(Kind::Map), "maps, or what is in one"),
    row("show pools", "[byname|bysize|byusage] [detailed] [match <prefix>] \
        [<nb>]", Level::User, Action::ShowPools, "memory pools"),
    row("show profiling", "[<what>|<nb>|byaddr|bytime]*", Level::User, Action::ShowProfiling, "time of tasks \
        by kind, if it was measured"),
    row("show resolvers", "[<section>]", Level::User, Action::ShowResolvers, "what came of questions to name \
        servers"),
    row("show schema json", "", Level::User, Action::ShowSchema, "the schema of 'show info json' and 'show \
        stat json'"),
    row("show servers conn", "[<backend>]", Level::User, Action::ShowServersConn, "connections to servers, \
        used and idle"),
    row("show servers state", "[<backend>]", Level::User, Action::ShowServersState, "what is known of \
        servers, one line each"),
    row("show sess", "[<id>|all|older <age>|frontend <fe>|backend <be>|server \
        <bk>/<srv>]", Level::Operator, Action::ShowSessions, "streams at work, or all of one"),
    row("show startup-logs", "", Level::Operator, Action::ShowStartupLogs, "what was said of the files that \
        are served"),
    row("show stat", "[domain {proxy|resolvers}] \
        [desc|json|no-maint|typed|up]*", Level::User, Action::ShowStat, "counters of frontends, servers and \
            backends"),
    row("show tasks", "", Level::Operator, Action::ShowTasks, "tasks that wait for their turn"),
    row("show threads", "", Level::Operator, Action::ShowThreads, "what each lane does"),
    row("show version", "", Level::User, Action::ShowVersion, "the program's version"),
    row("shutdown frontend", "<frontend>", Level::Admin, Action::FrontendGate(FrontendGateState::Shut),
        "have a frontend take no connections any more"),
    row("shutdown session", "<id>", Level::Admin, Action::ShutdownSession, "end a stream that 'show sess' \
        shows"),
    row("shutdown sessions server", "<bk>/<srv>", Level::Admin, Action::ShutdownSessions, "end what a server \
        serves"),
    row("user", "", Level::User, Action::Lower(Level::User), "lower this client's level to user"),
    row("wait", "<delay> [srv-removable <bk>/<srv>]", Level::User, Action::Wait, "wait for so long, or until \
        a server in maintenance serves nobody"),
    row("help", "[<command>]", Level::User, Action::Help, "all commands, or those that begin so"),
    row("prompt", "", Level::User, Action::Prompt, "keep the connection and ask for the next line, or stop \
        that"),
    row("quit", "", Level::User, Action::Quit, "disconnect"),
];

/// The row whose words `words` begins with.
fn find(words: &[String]) -> Option<(&'static Row, usize)> {
    TABLE.iter().find_map(|row| {
        let count = row.words.split(' ').count();
        let fits = words.len() >= count && row.words.split(' ').zip(words).all(|(own, word)| own == word);
        fits.then_some((row, count))
    })
}

/// Runs a command. The answer's last line end, and the empty line behind it, are the caller's.
pub(crate) async fn run(call: &mut Call<'_, '_>) -> Result<(), Gone> {
    let Some((row, count)) = find(call.words) else {
        match unbuilt::reason(call.words) {
            Some(sentence) => call.error(&sentence),
            None => help::unknown(call),
        }
        return Ok(());
    };
    if row.action == Action::SetVariable && !call.settings.experimental {
        call.error("This command is restricted to experimental mode only.");
        return Ok(());
    }
    if call.settings.level < row.level {
        call.error("Permission denied");
        return Ok(());
    }
    call.words = &call.words[count..];
    match row.action {
        Action::Add(kind) => patterns::add(call, kind).await,
        Action::AddServer => members::add(call).await,
        Action::DeleteServer => members::delete(call).await,
        Action::Clear(kind) => patterns::clear(call, kind).await,
        Action::ClearCounters { all } => limits::clear(call, all).await,
        Action::Commit(kind) => patterns::commit(call, kind).await,
        Action::DebugMemory => pools::memory(call),
        Action::DebugPanic => sessions::panic(call).await,
        Action::Delete(kind) => patterns::delete(call, kind).await,
        Action::FrontendGate(to) => limits::set_gate(call, to),
        Action::DisableAgent => server::enable_agent(call, false),
        Action::EnableAgent => server::enable_agent(call, true),
        Action::DisableHealth => server::enable_health(call, false),
        Action::EnableHealth => server::enable_health(call, true),
        Action::DisableServer => server::enable(call, false),
        Action::EnableServer => server::enable(call, true),
        Action::Get(kind) => patterns::get(call, kind).await,
        Action::ExperimentalMode => mode(call, "experimental-mode", |settings| &mut settings.experimental),
        Action::ExpertMode => mode(call, "expert-mode", |settings| &mut settings.expert),
        Action::GetVariable => variables::get(call),
        Action::GetWeight => server::get_weight(call),
        Action::Help => help::help(call),
        Action::Lower(level) => call.settings.level = level,
        Action::Prepare(kind) => patterns::prepare(call, kind).await,
        Action::Prompt => call.settings.interactive = !call.settings.interactive,
        Action::Quit => call.settings.over = true,
        Action::Reload => match (call.control.process().reload)().await {
            Ok(text) => call.info(text.trim_end()),
            Err(text) => call.error(text.trim_end()),
        },
        Action::SetMap => patterns::set(call).await,
        Action::SetMaxconnFrontend => limits::set_maxconn_frontend(call),
        Action::SetMaxconnServer => server::set_maxconn(call).await,
        Action::SetMaxconnGlobal => limits::set_maxconn_global(call),
        Action::SetProfiling => profiling::set(call),
        Action::SetRateLimit => limits::set_rate_limit(call),
        Action::SetServer => server::set_server(call),
        Action::SetSeverity => match Marks::named(call.word(0)) {
            Some(marks) => call.settings.marks = marks,
            None => call.error("one of 'none', 'number', 'string' is a required argument"),
        },
        Action::SetTimeout => set_timeout(call),
        Action::SetVariable => variables::set(call),
        Action::SetWeight => server::set_weight(call),
        Action::Show(kind) => patterns::show(call, kind).await?,
        Action::ShowActivity => inside::activity(call),
        Action::ShowBackend => {
            call.reply.put("# name\n");
            for backend in &call.generation.backends {
                call.reply.put(&backend.name);
                call.reply.put("\n");
                call.reply.breathe().await?;
            }
        }
        Action::ShowCliLevel => {
            let level = call.settings.level.name();
            call.info(level);
        }
        Action::ShowCliSockets => {
            call.reply.put("# socket lvl processes\n");
            for socket in call.control.sockets() {
                let family = match &socket.listener.endpoint {
                    Endpoint::Ip(address) if address.is_ipv4() => "ipv4@",
                    Endpoint::Ip(_) => "ipv6@",
                    Endpoint::Unix(path) if path.is_absolute() => "unix@",
                    _ => "", // it is there already
                };
                let _ = writeln!(call.reply, "{family}{} {} all", socket.listener.written, socket.level);
            }
        }
        Action::ShowContention => lanes::contention(call),
        Action::ShowEnv => env(call).await?,
        Action::ShowDescriptors => descriptors::show(call).await?,
        Action::ShowErrors => errors::show(call).await?,
        Action::ShowEvents => events::show(call).await?,
        Action::ShowInfo => info::show(call),
        Action::ShowLanes => lanes::show(call).await?,
        Action::ShowPools => pools::show(call),
        Action::ShowProfiling => profiling::show(call),
        Action::ShowServersConn => state::connections(call).await?,
        Action::ShowResolvers => resolvers::show(call),
        Action::ShowSchema => call.reply.put(&schema::text()),
        Action::ShowServersState => state::states(call).await?,
        Action::ShowSessions => sessions::show(call).await?,
        Action::ShowStartupLogs => call.reply.put(&call.generation.said),
        Action::ShowStat => stat::show(call).await?,
        Action::ShowTasks => inside::tasks(call),
        Action::ShowThreads => inside::threads(call).await?,
        Action::Wait => wait::wait(call).await,
        Action::ShutdownSession => sessions::shutdown(call).await,
        Action::ShutdownSessions => server::shutdown_sessions(call),
        Action::ShowVersion => {
            let version = call.control.process().facts.version;
            call.info(version);
        }
    }
    Ok(())
}

/// Turns a mode of the client on or off, or tells which.
fn mode(call: &mut Call<'_, '_>, name: &str, of: impl FnOnce(&mut Settings) -> &mut bool) {
    let word = call.word(0).to_owned();
    let mode = of(call.settings);
    match &*word {
        "" => {
            let now = if *mode { "ON" } else { "OFF" };
            call.info(&format!("{name} is {now}"));
        }
        "on" => *mode = true,
        "off" => *mode = false,
        _ => call.error(&format!("'{name}' takes 'on' or 'off', or nothing to tell which it is.")),
    }
}

async fn env(call: &mut Call<'_, '_>) -> Result<(), Gone> {
    if let Some(name) = call.words.first() {
        match call.generation.environment.get(name.as_bytes()) {
            Some(value) => {
                let _ = writeln!(call.reply, "{name}={}", String::from_utf8_lossy(value));
            }
            None => call.error("Variable not found"),
        }
        return Ok(());
    }
    let generation = call.generation;
    for (name, value) in generation.environment.iter() {
        let _ = writeln!(call.reply, "{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        call.reply.breathe().await?;
    }
    Ok(())
}

/// Longest `set timeout cli`.
const LONGEST_SILENCE: Duration = Duration::from_secs(86_400);

fn set_timeout(call: &mut Call<'_, '_>) {
    match manylane_config::value::time(call.word(0).as_bytes(), Unit::S) {
        Ok(time) if !time.is_zero() && time <= LONGEST_SILENCE => call.settings.timeout = time,
        _ => call.error("Invalid timeout value: use a number of seconds, or one with a unit, up to 24h."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_hides_another_and_none_is_also_refused() {
        for row in TABLE {
            let words: Vec<String> = row.words.split(' ').map(str::to_owned).collect();
            let (found, count) = find(&words).expect("itself");
            assert_eq!((found.words, count), (row.words, words.len()));
            assert_eq!(unbuilt::reason(&words), None, "{}", row.words);
        }
    }

    #[test]
    fn the_readme_tells_each_level() {
        let line = |row: &Row| format!("| `{}` | {} |\n", row.words, row.level.name());
        let table: String = TABLE.iter().map(line).collect();
        let told = include_str!("../../README.md").contains(&format!("|---|---|\n{table}\n"));
        assert!(told, "it should have:\n{table}");
    }
}
