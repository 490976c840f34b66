//! Checks that need all files: duplicate names, references to missing sections, settings that do not fit
//! together.

use super::{Builder, proposal};
use crate::Shown;
use crate::diag::Severity;
use crate::lex::Word;
use crate::source::Pos;
use crate::table::{Ruleset, Timeout};
use crate::tree::{
    Config, LogFormatOption, LogSink, LogTarget, Mode, Proxy, ProxyKind, Resolvers, Rule, Set, Settings,
    SwitchingRule, Userlist,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Most bytes of a GUID, as in HAProxy.
const LONGEST_GUID: usize = 127;

pub(super) fn check(b: &mut Builder<'_>) {
    let mut config = std::mem::take(&mut b.config);
    config.resolvers.extend(system_resolvers(&config));
    config.proxies.iter_mut().for_each(|proxy| sni_auto(b, proxy));
    let names = Names::new(b, &config.proxies);
    names.twins(b, &config.proxies);
    let switch: Vec<bool> =
        config.proxies.iter().map(|proxy| names.switches_mode(&config.proxies, proxy)).collect();
    config.proxies.iter_mut().zip(switch).for_each(|(proxy, switches)| proxy.switches_mode = switches);
    let http_errors = Sections::new("http-errors", config.http_errors.iter().map(|section| &section.name));
    let mailers = Sections::new("mailers", config.mailers.iter().map(|section| &section.name));
    let resolvers = Sections::new("resolvers", config.resolvers.iter().map(|section| &section.name));
    let profiles = Sections::new("log-profile", config.log_profiles.iter().map(|section| &section.name));
    let healthchecks = Sections::new("healthcheck", config.healthchecks.iter().map(|section| &section.name));
    let peers = Sections::new("peers", config.peers.iter().map(|section| &section.name));
    let acmes = Sections::new("acme", config.acmes.iter().map(|section| &section.name));
    let rings = Sections::new("ring", config.rings.iter().map(|section| &section.name));
    // Report an inherited setting once, at its line in `defaults`, and not for each proxy.
    let mut reported = HashSet::new();
    if let Some(set) = &config.global.tls.client_resolvers {
        resolvers.require(b, &mut reported, &set.value);
    }
    for name in config.crt_stores.iter().flat_map(|store| &store.loads).filter_map(|load| load.acme.as_ref())
    {
        acmes.require(b, &mut reported, name);
    }
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
        servers(b, &names, index, &config.proxies);
        if proxy.settings.disabled.is_none_or(|set| !set.value) {
            fit(b, proxy);
            timeouts(b, proxy);
        }
        never_run(b, &proxy.rules);
        misplaced(b, proxy);
        for name in proxy.settings.errorfiles.iter().filter_map(|statement| statement.words.first()) {
            http_errors.require(b, &mut reported, name);
        }
        if let Some(set) = &proxy.settings.email_alert.mailers {
            mailers.require(b, &mut reported, &set.value);
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
        if section.settings.is_refused("type") {
            continue;
        }
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
    config.userlists.iter().for_each(|list| userlist(b, &config, list));
    b.config = config;
}

/// `sni-auto` without `sni`: the servers of a proxy in HTTP mode get the expression that it stands for.
fn sni_auto(b: &mut Builder<'_>, proxy: &mut Proxy) {
    if proxy.kind == ProxyKind::Defaults {
        return;
    }
    let http = proxy.settings.mode() == Mode::Http;
    for tls in proxy.servers.iter_mut().map(|server| &mut server.options.tls) {
        match &tls.sni_auto {
            Some(set) if tls.sni.is_none() && !set.value.bytes().is_empty() => {
                if http {
                    tls.sni = tls.sni_auto.clone();
                } else {
                    let message = "'sni-auto' has no effect here: only requests of HTTP have a Host field";
                    b.found.push(Severity::Notice, Some(set.pos), message);
                }
            }
            _ => {}
        }
    }
}

/// Maximum number of names to compare for a suggestion. It bounds the cost of many mistakes among many names.
const MAX_PROPOSED: usize = 1000;

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
            let message = format!("unknown {} section '{}'", self.kind, name.shown());
            let known = self.names.iter().filter_map(|name| name.text()).take(MAX_PROPOSED);
            b.found.alert_with(name.pos(), message, || proposal(name, known));
        }
    }
}

/// Checks that the groups of users and the users of groups exist.
fn userlist(b: &mut Builder<'_>, config: &Config, list: &Userlist) {
    let groups: HashSet<&[u8]> = config.groups(list).collect();
    let users = list.users.iter().map(|user| user.name.bytes());
    let users: HashSet<&[u8]> = users.chain(config.refused(&list.name, "user")).collect();
    let mut expect =
        |[of, wanted]: [&'static str; 2], owner: &Word, names: &[Word], known: &HashSet<&[u8]>| {
            for name in names.iter().filter(|name| !known.contains(name.bytes())) {
                let message = format!(
                    "{of} '{}' expects {wanted}s of userlist '{}', found '{found}': add '{wanted} {found}'",
                    owner.shown(),
                    list.name.shown(),
                    found = name.shown()
                );
                b.found.alert(name.pos(), message);
            }
        };
    list.users.iter().for_each(|user| expect(["user", "group"], &user.name, &user.groups, &groups));
    list.groups.iter().for_each(|group| expect(["group", "user"], &group.name, &group.users, &users));
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
                    file_and_line(b, first.pos)
                );
                b.found.alert(proxy.name.pos(), message);
                names.repeated.push(index);
            }
            // Both sides of a proxy are in only one of the maps.
            let other = match proxy.kind {
                ProxyKind::Frontend => names.backends.get(name),
                ProxyKind::Backend => names.frontends.get(name),
                ProxyKind::Listen | ProxyKind::Defaults => None,
            };
            if let Some(other) = other.map(|index| &proxies[*index]).filter(|_| twin.is_none()) {
                let message = format!(
                    "{} '{}' has the same name as {} '{}' declared at {}; rename one of them: newer versions \
                     of HAProxy refuse this",
                    proxy.kind.name(),
                    proxy.name.shown(),
                    other.kind.name(),
                    other.name.shown(),
                    file_and_line(b, other.pos)
                );
                b.found.warning(proxy.name.pos(), message);
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
                let message = format!(
                    "'id' expects a number of its own, found {}, which {} has",
                    id.value,
                    file_and_line(b, first)
                );
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
                        format!("a GUID expects 1 to {most} letters, digits and . : _ -, found '{found}'");
                    b.found.alert(guid.pos, message);
                }
            }
            for guid in proxy.guid.iter().chain(servers) {
                if let Some(first) = guids.insert(guid.value.bytes(), guid.pos) {
                    let message = format!(
                        "a GUID expects a text of its own, found '{}', which {} has",
                        guid.value.shown(),
                        file_and_line(b, first)
                    );
                    b.found.alert(guid.pos, message);
                }
            }
        }
    }

    fn backend<'p>(&self, proxies: &'p [Proxy], name: &[u8]) -> Option<&'p Proxy> {
        self.backends.get(name).map(|index| &proxies[*index])
    }

    /// Returns true if connections of a frontend in TCP mode may change to HTTP. A name that is made at run
    /// time may be that of a backend in HTTP mode.
    fn switches_mode(&self, proxies: &[Proxy], proxy: &Proxy) -> bool {
        let inherited = proxy.defaults.map_or(&[][..], |index| &proxies[index].rules);
        let speaks_http = |name: &Word| {
            self.backend(proxies, name.bytes()).is_some_and(|backend| backend.settings.mode() == Mode::Http)
        };
        proxy.kind.is_frontend()
            && proxy.settings.mode() == Mode::Tcp
            && (inherited.iter().chain(&proxy.rules).any(|rule| rule.action == "switch-mode")
                || proxy.use_backend.iter().any(|choice| choice.is_dynamic() || speaks_http(&choice.target))
                || proxy.settings.default_backend.as_ref().is_some_and(|set| speaks_http(&set.value)))
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
                    let message = format!(
                        "'{keyword}' of {} '{}' expects the name of a backend, found '{}'",
                        proxy.kind.name(),
                        proxy.name.shown(),
                        name.shown(),
                    );
                    b.found.alert_with(name.pos(), message, || {
                        let known = self.backends.keys().filter_map(|name| std::str::from_utf8(name).ok());
                        let mut known: Vec<&str> = known.take(MAX_PROPOSED).collect();
                        known.sort_unstable();
                        proposal(name, known)
                    });
                }
                Some(backend)
                    if backend.settings.mode() != proxy.settings.mode()
                        && ![proxy, backend].iter().any(|side| side.settings.is_refused("mode"))
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
        let modes = match proxy.settings.mode() {
            Mode::Http => "'mode http'",
            Mode::Tcp | Mode::Log => "'mode tcp' or 'mode http'",
        };
        let message = format!(
            "'{keyword}' of {} '{}' expects a backend in {modes}, found '{}' ({}) in 'mode {}'",
            proxy.kind.name(),
            proxy.name.shown(),
            backend.name.shown(),
            file_and_line(b, backend.pos),
            backend.settings.mode().name(),
        );
        b.found.alert(name.pos(), message);
    }
}

fn file_and_line(b: &Builder<'_>, pos: Pos) -> String {
    format!("{}:{}", Shown(b.sources.name(pos.file)), pos.line)
}

fn servers(b: &mut Builder<'_>, names: &Names, index: usize, proxies: &[Proxy]) {
    let proxy = &proxies[index];
    let mut known: HashMap<&[u8], Pos> = HashMap::new();
    let mut ids: HashMap<u32, Pos> = HashMap::new();
    for server in &proxy.servers {
        if let Some(first) = known.insert(server.name.bytes(), server.pos) {
            let message = format!(
                "{} '{}' has a server named '{}' already at {}",
                proxy.kind.name(),
                proxy.name.shown(),
                server.name.shown(),
                file_and_line(b, first)
            );
            b.found.alert(server.name.pos(), message);
        }
        if let Some(id) = server.options.id
            && let Some(first) = ids.insert(id.value, id.pos)
        {
            let message = format!(
                "'id' expects a number of its own, found {}, which {} has",
                id.value,
                file_and_line(b, first)
            );
            b.found.alert(id.pos, message);
        }
        if let Some(track) = &server.options.track {
            tracked(b, names, index, proxies, &track.value);
        }
    }
    for choice in proxy.use_server.iter().filter(|choice| !choice.is_dynamic()) {
        if !known.contains_key(choice.target.bytes()) && !proxy.settings.has_refused_servers() {
            let message = format!(
                "'use-server' expects the name of a server of {} '{}', found '{}'",
                proxy.kind.name(),
                proxy.name.shown(),
                choice.target.shown(),
            );
            let known = proxy.servers.iter().filter_map(|server| server.name.text()).take(MAX_PROPOSED);
            b.found.alert_with(choice.target.pos(), message, || proposal(&choice.target, known));
        }
    }
}

fn tracked(b: &mut Builder<'_>, names: &Names, index: usize, proxies: &[Proxy], track: &Word) {
    let bytes = track.bytes();
    let (backend, server) = match bytes.iter().position(|byte| *byte == b'/') {
        Some(slash) => (names.backends.get(&bytes[..slash]).copied(), &bytes[slash + 1..]),
        None => (Some(index), bytes),
    };
    let is_known = |backend| {
        names.servers.contains(&(backend, server.to_vec())) || proxies[backend].settings.has_refused_servers()
    };
    if !backend.is_some_and(is_known) {
        b.found.alert(
            track.pos(),
            format!(
                "'track' expects <backend>/<server>, or a server of the same backend, found '{}'",
                track.shown()
            ),
        );
    }
}

/// Warns of settings that do not fit together.
fn fit(b: &mut Builder<'_>, proxy: &Proxy) {
    let settings = &proxy.settings;
    let kind = proxy.kind.name();
    let name = proxy.name.shown();
    let listens =
        !proxy.binds.is_empty() || proxy.forward.as_ref().is_some_and(|own| !own.dgram_binds.is_empty());
    if proxy.kind.is_frontend() && !listens && !settings.is_refused("bind") {
        let message = format!(
            "{kind} '{name}' has no 'bind' line, so no client reaches it; make it a backend if that is meant"
        );
        b.found.warning(proxy.pos, message);
    }
    if let Some(set) = &settings.default_backend
        && proxy.kind.is_frontend()
        && !proxy.servers.is_empty()
    {
        let message = format!(
            "'default_backend' takes precedence over the servers of {kind} '{name}', which get no requests"
        );
        b.found.warning(set.pos, message);
    }
    if let Settings { dispatch: Some(set), balance: Some(_), .. } = settings {
        let message = format!(
            "'dispatch' has no effect in {kind} '{name}', which has 'balance' too: remove one of the two"
        );
        b.found.warning(set.pos, message);
    }
    for server in &proxy.servers {
        if let (Some(min), Some(max)) = (server.options.minconn, server.options.maxconn)
            && max.value > 0
            && min.value > max.value
        {
            let message = format!("'minconn' expects at most 'maxconn', {}, found {}", max.value, min.value);
            b.found.warning(min.pos, message);
        }
    }
    let own = |pos: Pos| pos.file == proxy.pos.file && pos.line > proxy.pos.line || pos.file > proxy.pos.file;
    if settings.mode() == Mode::Tcp {
        if let Some(option) = &settings.log_option
            && option.value != LogFormatOption::Tcp
            && proxy.kind.is_frontend()
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
        let stats = settings.stats.iter().map(|line| line.pos).find(|pos| own(*pos));
        for (keyword, pos) in [
            ("stats", stats),
            ("cookie", cookie),
            ("option forwardfor", forwardfor),
            ("option originalto", originalto),
            ("option forwarded", forwarded),
            ("monitor-uri", uri),
        ] {
            if let Some(pos) = pos.filter(|pos| own(*pos) && !proxy.switches_mode) {
                b.found.warning(
                    pos,
                    format!("'{keyword}' will be ignored for {kind} '{name}' (needs 'mode http')"),
                );
            }
        }
        for server in &proxy.servers {
            if let Some(set) = &server.options.cookie {
                let message = format!(
                    "'cookie' of server '{}' will be ignored for {kind} '{name}' (needs 'mode http')",
                    server.name.shown()
                );
                b.found.warning(set.pos, message);
            }
        }
        let http_rules = proxy
            .rules
            .iter()
            .filter(|rule| rule.list.name().starts_with("http") || rule.list == Ruleset::Redirect);
        for rule in http_rules.filter(|_| !proxy.switches_mode) {
            let message = format!(
                "'{}' rules will be ignored for {kind} '{name}' (needs 'mode http')",
                rule.list.name()
            );
            b.found.warning(rule.pos, message);
        }
        let switches = proxy.rules.iter().find(|rule| rule.action == "switch-mode");
        if let Some(rule) = switches.filter(|_| {
            proxy.kind == ProxyKind::Listen
                && proxy.use_backend.is_empty()
                && settings.default_backend.is_none()
        }) {
            let message = format!(
                "'switch-mode http' ends connections of {kind} '{name}': HTTP does not go to servers in \
                    'mode tcp'; choose a backend in 'mode http' with 'default_backend' or 'use_backend'"
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
        "redirect" => matches!(list, Ruleset::HttpRequest | Ruleset::HttpResponse),
        "auth" | "tarpit" => list == Ruleset::HttpRequest,
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
    let of = |name: &'static str, choices: &[SwitchingRule]| -> Vec<(Pos, Option<usize>)> {
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
    let mut present = [false; STAGES.len()];
    for (pos, stage) in lines {
        if let Some(later) = (stage + 1..STAGES.len()).find(|later| present[*later]) {
            let (own, above) = (STAGES[stage], STAGES[later]);
            let message = format!("'{own}' rules run before the '{above}' rules above: move this one up");
            b.found.warning(pos, message);
        }
        present[stage] = true;
    }
}

/// Warns of missing timeouts, as HAProxy does: without them, stuck connections accumulate.
fn timeouts(b: &mut Builder<'_>, proxy: &Proxy) {
    let unset = |timeout: Timeout| {
        proxy.settings.timeout(timeout).is_none_or(|time| time == Duration::ZERO)
            && !proxy.settings.is_refused(timeout.name())
    };
    let front = proxy.kind.is_frontend() && unset(Timeout::Client);
    let back = proxy.kind.is_backend()
        && !proxy.servers.is_empty()
        && (unset(Timeout::Connect) || unset(Timeout::Server));
    // The timeouts limit waits for answers, and log lines have none.
    if proxy.settings.mode() == Mode::Log || !(front || back) {
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
