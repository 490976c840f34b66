//! Checks that need all files: duplicate names, references to missing sections, settings that do not fit
//! together.

use super::Builder;
use crate::Shown;
use crate::diag::Severity;
use crate::lex::Word;
use crate::source::Pos;
use crate::table::{Ruleset, Timeout};
use crate::tree::{
    Choice, Config, LogFormatOption, LogSink, LogTarget, Mode, Proxy, ProxyKind, Resolvers, Rule, Set,
    Settings, Userlist,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Most bytes of a GUID, as in HAProxy.
const LONGEST_GUID: usize = 127;

pub(super) fn check(b: &mut Builder<'_>) {
    let mut config = std::mem::take(&mut b.config);
    config.resolvers.extend(system_resolvers(&config));
    let names = Names::new(b, &config.proxies);
    names.twins(b, &config.proxies);
    let http_errors = Sections::new("http-errors", config.http_errors.iter().map(|section| &section.name));
    let resolvers = Sections::new("resolvers", config.resolvers.iter().map(|section| &section.name));
    let profiles = Sections::new("log-profile", config.log_profiles.iter().map(|section| &section.name));
    let healthchecks = Sections::new("healthcheck", config.healthchecks.iter().map(|section| &section.name));
    let peers = Sections::new("peers", config.peers.iter().map(|section| &section.name));
    let rings = Sections::new("ring", config.rings.iter().map(|section| &section.name));
    // Report an inherited setting once, at its line in `defaults`, and not for each proxy.
    let mut reported = HashSet::new();
    for (index, proxy) in config.proxies.iter().enumerate() {
        super::log_backends::require(b, &proxy.settings.log, |name| names.backend(&config.proxies, name));
        for name in rings_of(&proxy.settings.log) {
            rings.require(b, &mut reported, name);
        }
        for name in profiles_of(&proxy.settings.log) {
            profiles.require(b, &mut reported, name);
        }
        if proxy.kind == ProxyKind::Defaults {
            continue;
        }
        if let Some(name) = proxy.stick_table.as_ref().and_then(|table| table.peers.as_ref()) {
            peers.require(b, &mut reported, name);
        }
        names.backends(b, &config.proxies, proxy);
        super::log_backends::fit(b, proxy);
        if let Settings { dispatch: Some(set), balance: Some(_), .. } = &proxy.settings {
            let message = format!(
                "dispatch address of {} '{}' will be ignored in balance mode.",
                proxy.kind.name(),
                proxy.name.shown()
            );
            b.found.warning(set.pos, message);
        }
        servers(b, &names, index, proxy);
        fit(b, proxy);
        timeouts(b, proxy);
        never_run(b, &proxy.rules);
        misplaced(b, proxy);
        for name in proxy.settings.errorfiles.iter().filter_map(|statement| statement.words.first()) {
            http_errors.require(b, &mut reported, name);
        }
        for set in proxy.servers.iter().filter_map(|server| server.options.resolvers.as_ref()) {
            resolvers.require(b, &mut reported, &set.value);
        }
        for set in proxy.servers.iter().filter_map(|server| server.options.healthcheck.as_ref()) {
            healthchecks.require(b, &mut reported, &set.value);
        }
    }
    super::log_backends::require(b, &config.global.log, |name| names.backend(&config.proxies, name));
    for name in rings_of(&config.global.log) {
        rings.require(b, &mut reported, name);
    }
    for name in profiles_of(&config.global.log) {
        profiles.require(b, &mut reported, name);
    }
    for section in config.healthchecks.iter().filter(|section| section.settings.check_kind.is_none()) {
        let message = format!("'healthcheck {}' expects a 'type' line, found none", section.name.shown());
        b.found.alert(section.pos, message);
    }
    super::inherit::check(b, &config.proxies);
    // Later steps find proxies by name and continue after this error to find others. Disable the duplicates
    // so that they do not confuse them.
    for index in names.repeated {
        let proxy = &mut config.proxies[index];
        proxy.settings.disabled = Some(Set { value: true, pos: proxy.name.pos() });
    }
    config.userlists.iter().for_each(|list| userlist(b, list));
    b.config = config;
}

/// Maximum number of names to compare for a suggestion. It bounds the cost of many mistakes among many names.
const MAX_PROPOSED: usize = 1000;

/// `; did you mean 'x'?` with the nearest name in `known`. Empty once findings are only counted.
fn proposal<'a, N: IntoIterator<Item = &'a str>>(
    b: &Builder<'_>,
    name: &Word,
    known: impl FnOnce() -> N,
) -> String {
    if b.found.is_full() { String::new() } else { super::proposal(name, known()) }
}

/// The `resolvers` section `default`, which uses the name servers of the system. It exists without being
/// written if a setting refers to it.
fn system_resolvers(config: &Config) -> Option<Resolvers> {
    const NAME: &[u8] = b"default";
    if config.resolvers.iter().any(|section| section.name.bytes() == NAME) {
        return None;
    }
    let servers = config.proxies.iter().flat_map(|proxy| &proxy.servers);
    let mut servers = servers.filter_map(|server| server.options.resolvers.as_ref());
    let of_server = servers.find(|set| set.value.bytes() == NAME).map(|set| set.value.pos());
    let of_rule = || {
        let rules = config.proxies.iter().flat_map(|proxy| &proxy.rules);
        let mut lookups =
            rules.filter(|rule| rule.action == "do-resolve(").filter_map(|rule| rule.words.first());
        let names = |head: &&Word| head.bytes().split(|byte| b",)".contains(byte)).nth(1) == Some(NAME);
        lookups.find(names).map(Word::pos)
    };
    Some(Resolvers {
        name: Word::plain(NAME, of_server.or_else(of_rule)?),
        nameservers: Vec::new(),
        system: true,
        holds: Vec::new(),
        payload: None,
        retries: None,
        timeout_resolve: None,
        timeout_retry: None,
    })
}

fn rings_of(log: &[LogTarget]) -> impl Iterator<Item = &Word> {
    log.iter().filter_map(|target| match target {
        LogTarget::Own(line) => match &line.sink {
            LogSink::Ring(name) => Some(name),
            _ => None,
        },
        LogTarget::Global(_) => None,
    })
}

fn profiles_of(log: &[LogTarget]) -> impl Iterator<Item = &Word> {
    log.iter().filter_map(|target| match target {
        LogTarget::Own(line) => line.profile.as_ref(),
        LogTarget::Global(_) => None,
    })
}

/// Names of the sections of one kind.
struct Sections<'c> {
    kind: &'static str,
    names: Vec<&'c Word>,
    bytes: HashSet<&'c [u8]>,
}

impl<'c> Sections<'c> {
    fn new(kind: &'static str, names: impl Iterator<Item = &'c Word>) -> Self {
        let names: Vec<&Word> = names.collect();
        let bytes = names.iter().map(|name| name.bytes()).collect();
        Self { kind, names, bytes }
    }

    /// Reports a name that no section has, once per position.
    fn require(&self, b: &mut Builder<'_>, reported: &mut HashSet<Pos>, name: &Word) {
        if !self.bytes.contains(name.bytes()) && reported.insert(name.pos()) {
            let proposal =
                proposal(b, name, || self.names.iter().filter_map(|name| name.text()).take(MAX_PROPOSED));
            let message = format!("unknown {} section '{}'{proposal}", self.kind, name.shown());
            b.found.alert(name.pos(), message);
        }
    }
}

/// Checks that the groups of users and the users of groups exist.
fn userlist(b: &mut Builder<'_>, list: &Userlist) {
    let groups: HashSet<&[u8]> = list.groups.iter().map(|group| group.name.bytes()).collect();
    let users: HashSet<&[u8]> = list.users.iter().map(|user| user.name.bytes()).collect();
    let title = list.name.shown();
    for user in &list.users {
        for group in user.groups.iter().filter(|group| !groups.contains(group.bytes())) {
            let message = format!(
                "userlist '{title}' : no such group '{}' specified in user '{}'",
                group.shown(),
                user.name.shown()
            );
            b.found.alert(group.pos(), message);
        }
    }
    for group in &list.groups {
        for user in group.users.iter().filter(|user| !users.contains(user.bytes())) {
            let message = format!(
                "userlist '{title}' : no such user '{}' specified in group '{}'",
                user.shown(),
                group.name.shown()
            );
            b.found.alert(user.pos(), message);
        }
    }
}

/// Names of proxies and servers. A name belongs to the first proxy that has it.
struct Names {
    frontends: HashMap<Vec<u8>, usize>,
    backends: HashMap<Vec<u8>, usize>,
    /// Names of servers, each with the index of its proxy.
    servers: HashSet<(usize, Vec<u8>)>,
    /// Proxies with a name that an earlier one has.
    repeated: Vec<usize>,
}

impl Names {
    fn new(b: &mut Builder<'_>, proxies: &[Proxy]) -> Self {
        let mut names = Self {
            frontends: HashMap::new(),
            backends: HashMap::new(),
            servers: HashSet::new(),
            repeated: Vec::new(),
        };
        for (index, proxy) in proxies.iter().enumerate() {
            names.servers.extend(proxy.servers.iter().map(|server| (index, server.name.bytes().to_vec())));
            let name = proxy.name.bytes();
            if name.is_empty() {
                continue;
            }
            let mut twin = None;
            if proxy.kind.is_frontend() {
                let first = *names.frontends.entry(name.to_vec()).or_insert(index);
                twin = twin.or((first != index).then_some(first));
            }
            if proxy.kind.is_backend() {
                let first = *names.backends.entry(name.to_vec()).or_insert(index);
                twin = twin.or((first != index).then_some(first));
            }
            if let Some(first) = twin.map(|index| &proxies[index]) {
                let message = format!(
                    "{} '{}' has the same name as {} '{}' declared at {}",
                    proxy.kind.name(),
                    proxy.name.shown(),
                    first.kind.name(),
                    first.name.shown(),
                    place(b, first.pos)
                );
                b.found.alert(proxy.name.pos(), message);
                names.repeated.push(index);
            }
        }
        names
    }

    /// Reports duplicate numbers and GUIDs of proxies.
    fn twins(&self, b: &mut Builder<'_>, proxies: &[Proxy]) {
        let mut ids: HashMap<u32, Pos> = HashMap::new();
        let mut guids: HashMap<&[u8], Pos> = HashMap::new();
        for proxy in proxies {
            if let Some(id) = proxy.id
                && let Some(first) = ids.insert(id.value, id.pos)
            {
                let message = format!("the number {} is taken already at {}", id.value, place(b, first));
                b.found.alert(id.pos, message);
            }
            let servers = proxy.servers.iter().filter_map(|server| server.options.guid.as_ref());
            let prefixes = proxy.binds.iter().filter_map(|bind| bind.options.guid_prefix.as_ref());
            for guid in proxy.guid.iter().chain(servers.clone()).chain(prefixes) {
                let bytes = guid.value.bytes();
                let bad = super::parse::bad_name_byte(bytes).is_some();
                if bad || !(1..=LONGEST_GUID).contains(&bytes.len()) {
                    let (most, found) = (LONGEST_GUID, guid.value.shown());
                    let message =
                        format!("a GUID has 1 to {most} letters, digits and . : _ -, found '{found}'");
                    b.found.alert(guid.pos, message);
                }
            }
            for guid in proxy.guid.iter().chain(servers) {
                if let Some(first) = guids.insert(guid.value.bytes(), guid.pos) {
                    let message =
                        format!("the GUID '{}' is taken already at {}", guid.value.shown(), place(b, first));
                    b.found.alert(guid.pos, message);
                }
            }
        }
    }

    fn backend<'p>(&self, proxies: &'p [Proxy], name: &[u8]) -> Option<&'p Proxy> {
        self.backends.get(name).map(|index| &proxies[*index])
    }

    /// Checks the backends that a frontend refers to.
    fn backends(&self, b: &mut Builder<'_>, proxies: &[Proxy], proxy: &Proxy) {
        // Backends ignore these settings, which they can inherit.
        if !proxy.kind.is_frontend() {
            return;
        }
        let fixed = proxy
            .use_backend
            .iter()
            .filter(|choice| !choice.is_dynamic())
            .map(|choice| ("use_backend", &choice.target));
        let default = proxy.settings.default_backend.iter().map(|set| ("default_backend", &set.value));
        for (keyword, name) in fixed.chain(default) {
            match self.backend(proxies, name.bytes()) {
                None => {
                    let proposal = proposal(b, name, || {
                        let known = self.backends.keys().filter_map(|name| std::str::from_utf8(name).ok());
                        let mut known: Vec<&str> = known.take(MAX_PROPOSED).collect();
                        known.sort_unstable();
                        known
                    });
                    let message = format!(
                        "proxy '{}' : unable to find required {keyword} '{}'{proposal}",
                        proxy.name.shown(),
                        name.shown(),
                    );
                    b.found.alert(name.pos(), message);
                }
                Some(backend)
                    if backend.settings.mode() != proxy.settings.mode()
                        && ![proxy, backend].iter().any(|side| side.settings.refused.contains(&"mode"))
                        && backend.settings.mode() != Mode::Http =>
                {
                    self.mode_mismatch(b, proxy, backend, keyword, name);
                }
                // A TCP frontend can upgrade a connection for an HTTP backend.
                Some(_) => {}
            }
        }
    }

    fn mode_mismatch(&self, b: &mut Builder<'_>, proxy: &Proxy, backend: &Proxy, keyword: &str, name: &Word) {
        let message = format!(
            "{} {} '{}' ({}) tries to use incompatible {} {} '{}' ({}) in '{keyword}' (see 'mode')",
            proxy.settings.mode().name(),
            proxy.kind.name(),
            proxy.name.shown(),
            place(b, proxy.pos),
            backend.settings.mode().name(),
            backend.kind.name(),
            backend.name.shown(),
            place(b, backend.pos),
        );
        b.found.alert(name.pos(), message);
    }
}

fn place(b: &Builder<'_>, pos: Pos) -> String {
    format!("{}:{}", Shown(b.sources.name(pos.file)), pos.line)
}

fn servers(b: &mut Builder<'_>, names: &Names, index: usize, proxy: &Proxy) {
    let mut known: HashMap<&[u8], Pos> = HashMap::new();
    let mut ids: HashMap<u32, Pos> = HashMap::new();
    for server in &proxy.servers {
        if let Some(first) = known.insert(server.name.bytes(), server.pos) {
            let message = format!(
                "{} '{}' has a server named '{}' already at {}",
                proxy.kind.name(),
                proxy.name.shown(),
                server.name.shown(),
                place(b, first)
            );
            b.found.alert(server.name.pos(), message);
        }
        if let Some(id) = server.options.id
            && let Some(first) = ids.insert(id.value, id.pos)
        {
            let message = format!("the number {} is taken already at {}", id.value, place(b, first));
            b.found.alert(id.pos, message);
        }
        if let (Some(min), Some(max)) = (server.options.minconn, server.options.maxconn)
            && max.value > 0
            && min.value > max.value
        {
            b.found
                .warning(min.pos, format!("server '{}' : 'minconn' is above 'maxconn'", server.name.shown()));
        }
        if let Some(track) = &server.options.track {
            tracked(b, names, index, &track.value);
        }
    }
    for choice in proxy.use_server.iter().filter(|choice| !choice.is_dynamic()) {
        if !known.contains_key(choice.target.bytes()) {
            let proposal = proposal(b, &choice.target, || {
                proxy.servers.iter().filter_map(|server| server.name.text()).take(MAX_PROPOSED)
            });
            let message = format!(
                "{} '{}' : unable to find server '{}' referenced in a 'use-server' rule{proposal}",
                proxy.kind.name(),
                proxy.name.shown(),
                choice.target.shown(),
            );
            b.found.alert(choice.target.pos(), message);
        }
    }
}

fn tracked(b: &mut Builder<'_>, names: &Names, index: usize, track: &Word) {
    let bytes = track.bytes();
    let (backend, server) = match bytes.iter().position(|byte| *byte == b'/') {
        Some(slash) => (names.backends.get(&bytes[..slash]).copied(), &bytes[slash + 1..]),
        None => (Some(index), bytes),
    };
    if !backend.is_some_and(|backend| names.servers.contains(&(backend, server.to_vec()))) {
        b.found
            .alert(track.pos(), format!("unable to find server '{}' required for tracking", track.shown()));
    }
}

/// Warns of settings that do not fit together.
fn fit(b: &mut Builder<'_>, proxy: &Proxy) {
    let settings = &proxy.settings;
    let kind = proxy.kind.name();
    let name = proxy.name.shown();
    let listens =
        !proxy.binds.is_empty() || proxy.forward.as_ref().is_some_and(|own| !own.dgram_binds.is_empty());
    if proxy.kind.is_frontend() && !listens && settings.disabled.is_none_or(|set| !set.value) {
        let message = format!(
            "{kind} '{name}' has no 'bind' directive. Please declare it as a backend if this was intended"
        );
        b.found.warning(proxy.pos, message);
    }
    let own = |pos: Pos| pos.file == proxy.pos.file && pos.line > proxy.pos.line || pos.file > proxy.pos.file;
    if settings.mode() == Mode::Tcp {
        if let Some(option) = &settings.log_option
            && option.value != LogFormatOption::Tcp
            && (proxy.kind.is_frontend() || own(option.pos))
        {
            let message = format!(
                "'option httplog' not usable with {kind} '{name}' (needs 'mode http'). Falling back to \
                    'option tcplog'"
            );
            b.found.warning(option.pos, message);
        }
        let cookie = settings.cookie.as_ref().map(|set| set.pos);
        let forwardfor = settings.forwardfor.as_ref().map(|set| set.pos);
        let originalto = settings.originalto.as_ref().map(|set| set.pos);
        let forwarded = settings.forwarded.as_ref().map(|set| set.pos);
        let uri = settings.monitor_uri.as_ref().map(|set| set.pos);
        for (keyword, pos) in [
            ("cookie", cookie),
            ("option forwardfor", forwardfor),
            ("option originalto", originalto),
            ("option forwarded", forwarded),
            ("monitor-uri", uri),
        ] {
            if let Some(pos) = pos.filter(|pos| own(*pos)) {
                b.found.warning(
                    pos,
                    format!("'{keyword}' will be ignored for {kind} '{name}' (needs 'mode http')"),
                );
            }
        }
        for rule in proxy.rules.iter().filter(|rule| rule.list.name().starts_with("http")) {
            let message = format!(
                "'{}' rules will be ignored for {kind} '{name}' (needs 'mode http')",
                rule.list.name()
            );
            b.found.warning(rule.pos, message);
        }
    }
}

/// Warns of the first rule after an unconditional one that ends its ruleset.
fn never_run(b: &mut Builder<'_>, rules: &[Rule]) {
    for list in [Ruleset::HttpRequest, Ruleset::HttpResponse, Ruleset::HttpAfterResponse] {
        let mut own = rules.iter().filter(|rule| rule.list == list);
        let Some(last) = own.find(|rule| rule.condition.is_none() && ends(list, rule.action)) else {
            continue;
        };
        let Some(next) = own.next() else { continue };
        let message = format!(
            "this rule and those behind it never run: '{} {}' in line {} ends the list and has no condition",
            list.name(),
            last.action,
            last.pos.line
        );
        b.found.warning(next.pos, message);
    }
}

/// True if the action ends its ruleset. The list is that of HAProxy's warning.
fn ends(list: Ruleset, action: &str) -> bool {
    match action {
        "allow" => true,
        "deny" | "return" => list != Ruleset::HttpAfterResponse,
        "auth" | "redirect" | "tarpit" => list == Ruleset::HttpRequest,
        _ => false,
    }
}

/// Warns of rules that run before the rules above them.
fn misplaced(b: &mut Builder<'_>, proxy: &Proxy) {
    const STAGES: [&str; 8] = [
        "tcp-request connection",
        "tcp-request session",
        "tcp-request content",
        "monitor fail",
        "http-request",
        "redirect",
        "use_backend",
        "use-server",
    ];
    let stage = |name: &str| STAGES.iter().position(|known| *known == name);
    let rules = proxy.rules.iter().map(|rule| (rule.pos, stage(rule.list.name())));
    let of = |name: &'static str, choices: &[Choice]| -> Vec<(Pos, Option<usize>)> {
        choices.iter().map(|choice| (choice.pos, stage(name))).collect()
    };
    let monitors = proxy.monitor_fail.iter().map(|condition| (condition.pos, stage("monitor fail")));
    let mut lines: Vec<(Pos, usize)> = rules
        .chain(monitors)
        .chain(of("use_backend", &proxy.use_backend))
        .chain(of("use-server", &proxy.use_server))
        .filter_map(|(pos, stage)| Some((pos, stage?)))
        .collect();
    lines.sort_unstable();
    let mut seen = [false; STAGES.len()];
    for (pos, stage) in lines {
        if let Some(later) = (stage + 1..STAGES.len()).find(|later| seen[*later]) {
            let (own, above) = (STAGES[stage], STAGES[later]);
            let message = format!("'{own}' rules run before '{above}' rules, and this one stands behind one");
            b.found.warning(pos, message);
        }
        seen[stage] = true;
    }
}

/// Warns of missing timeouts, as HAProxy does: without them, stuck connections accumulate.
fn timeouts(b: &mut Builder<'_>, proxy: &Proxy) {
    let unset = |timeout: Timeout| {
        proxy.settings.timeout(timeout).is_none_or(|time| time == Duration::ZERO)
            && !proxy.settings.refused.contains(&timeout.name())
    };
    let front = proxy.kind.is_frontend() && unset(Timeout::Client);
    let back = proxy.kind.is_backend()
        && !proxy.servers.is_empty()
        && (unset(Timeout::Connect) || unset(Timeout::Server));
    // Of log lines nobody waits for an answer.
    let disabled = proxy.settings.disabled.is_some_and(|set| set.value) || proxy.settings.mode() == Mode::Log;
    if disabled || !(front || back) {
        return;
    }
    let of = |side: bool, timeouts: &[Timeout]| {
        let missing = timeouts.iter().filter(|timeout| side && unset(**timeout));
        missing.map(|timeout| format!("'{}'", timeout.name())).collect::<Vec<_>>()
    };
    let missing = [of(front, &[Timeout::Client]), of(back, &[Timeout::Connect, Timeout::Server])].concat();
    let message = format!(
        "missing timeouts ({}): clients or servers that fall silent keep their connections for ever",
        missing.join(", ")
    );
    b.found.push(Severity::Warning, Some(proxy.pos), message);
}
