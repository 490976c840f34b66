//! Rules and conditions, compiled when a generation is built.

mod action;
mod captures;
mod forwarded;
mod kinds;
mod lists;
mod lookup;
mod normalize;
mod page;
mod reply;
mod setting;
mod sticking;
mod tracking;

pub use captures::Captures;
use captures::Slots;
pub use forwarded::Forwarded;
pub(crate) use forwarded::{Node, Source};
pub use kinds::{
    Action, AddressPart, DropMode, Edit, End, GeneralCounter, ListChange, NameMatch, NumberSource, Packets,
    Preamble, Redirect, RedirectCookie, RedirectKind, Reply, ReplyBody, SetBandwidth, Setting, SharedKey,
    TargetPart, TimeSource, TimeoutOf, Track, TrackCounts, ValueSource,
};
pub use lookup::Lookup;
pub use normalize::NoTarget;
pub use normalize::Normalizer;
pub use sticking::Stick;

use super::filters::Filters;
use super::missing;
use super::refuse::Refuse;
use super::server::{Server, has_stand_in};
use super::tls::SniName;
use super::variables::{self, MOST_COMMANDED, ProcessVariableNames};
use super::{files, stick};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::tree::{self, AlgorithmKey, Config, FieldSource, Mode, Proxy, SwitchingRule};
use manylane_expr::{
    Acls, Compiler, Condition, Error, EvalPoints, Expression, Format, NamedTable, Names, ProcessVariables,
    ProxyId, ProxySide, References, ServerId, Use, UserlistId, VariableNames, Zone,
};
use manylane_sync::Arc;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

/// Limit of different `pool-conn-name` and `sni` expressions in a backend.
pub const MOST_POOL_NAMES: usize = 4;

/// State that all expressions of a generation share.
#[derive(Debug)]
pub struct Expressions {
    /// Names of variables.
    pub names: VariableNames,
    /// Maps and pattern files.
    pub references: References,
    /// Variables of the process.
    pub process: ProcessVariables,
    /// Names of process variables that commands have made.
    pub commanded: ProcessVariableNames,
    /// Files and lines of rules, by number.
    pub lines: Vec<(Arc<[u8]>, u32)>,
}

/// The rules of a proxy.
#[derive(Debug, Default)]
pub struct Rules {
    /// `tcp-request connection`: runs before a PROXY protocol header is read.
    pub connection: Vec<Rule>,
    /// `tcp-request session`: runs after it.
    pub session: Vec<Rule>,
    /// `tcp-request content`
    pub content: Vec<Rule>,
    /// `tcp-response content`
    pub response_content: Vec<Rule>,
    /// True if any of these reads bytes of a body.
    pub reads_data: bool,
    /// `http-request`, followed by `redirect`.
    pub request: Vec<Rule>,
    /// `http-response`
    pub response: Vec<Rule>,
    /// `http-after-response`
    pub after_response: Vec<Rule>,
    /// `monitor fail`: one is enough.
    pub monitor_fail: Vec<Condition>,
    /// `stats admin`: one is enough.
    pub stats_admin: Vec<Condition>,
    /// `stats http-request`
    pub stats_request: Vec<Rule>,
    /// `force-persist` and `ignore-persist`: the first match applies.
    pub persist: Vec<Rule<Persist>>,
    /// `force-be-switch`: any of them.
    pub force_switch: Vec<Condition>,
    /// `use_backend`
    pub use_backend: Vec<Rule<Target>>,
    /// `use-server`; targets are numbers of servers in their backend.
    pub use_server: Vec<Rule<Target>>,
    /// Runs `stick match`, `stick on` and `stick store-request`.
    pub stick: Vec<Rule<Stick>>,
    /// `stick store-response`
    pub store_response: Vec<Rule<Stick>>,
    /// `balance hash`, `balance maglev` and `balance rdp-cookie`: expression of the key.
    pub balance: Option<Expression>,
    /// `persist rdp-cookie`: the cookie, whose value is the address of a server.
    pub persist_rdp: Option<Expression>,
}

impl Rules {
    /// Returns true if a backend with these rules has to process streams in TCP mode.
    pub fn processes_streams(&self) -> bool {
        !(self.content.is_empty()
            && self.response_content.is_empty()
            && self.use_server.is_empty()
            && self.stick.is_empty()
            && self.store_response.is_empty()
            && self.persist.is_empty())
            || self.balance.is_some()
            || self.persist_rdp.is_some()
    }
}

/// An action and its condition.
#[derive(Debug)]
pub struct Rule<A = Action> {
    /// `None` is always true.
    pub condition: Option<Condition>,
    /// The action.
    pub action: A,
    /// Position in the file: an index of [`Expressions::lines`].
    pub line: Option<u32>,
}

/// How a cookie that names a server is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// Use it even if the server is down.
    Force,
    /// Ignore it.
    Ignore,
}

/// Target of `use_backend` or `use-server`.
#[derive(Debug)]
pub enum Target {
    /// This number.
    Fixed(usize),
    /// The backend or server with this name, if it exists.
    Named(Format),
}

/// Looks up names of the configuration for the compiler.
pub(super) struct Directory<'c> {
    config: &'c Config,
    frontends: HashMap<&'c [u8], u32>,
    /// Number, number of the first server, and section.
    backends: HashMap<&'c [u8], (u32, u32, &'c Proxy)>,
    /// The proxy that is compiled.
    current: Option<&'c Proxy>,
    /// The line that is compiled.
    at: Cell<Option<Pos>>,
    /// Numbers of servers that were looked up by name.
    named: RefCell<HashSet<u32>>,
}

impl<'c> Directory<'c> {
    pub(super) fn new(config: &'c Config, started: impl Fn(&&'c Proxy) -> bool) -> Self {
        let mut directory = Self {
            config,
            frontends: HashMap::new(),
            backends: HashMap::new(),
            current: None,
            at: Cell::new(None),
            named: RefCell::default(),
        };
        let mut servers = 0;
        for proxy in config.proxies.iter().filter(started) {
            if proxy.kind.is_frontend() {
                let number = directory.frontends.len() as u32;
                directory.frontends.insert(proxy.name.bytes(), number);
            }
            if proxy.kind.is_backend() {
                let number = directory.backends.len() as u32;
                directory.backends.insert(proxy.name.bytes(), (number, servers, proxy));
                let stands_in = has_stand_in(&proxy.settings);
                servers += proxy.servers.len() as u32 + u32::from(stands_in);
            }
        }
        directory
    }
}

impl Names for Directory<'_> {
    fn proxy(&self, name: &[u8], side: ProxySide) -> Option<ProxyId> {
        match side {
            ProxySide::Front => self.frontends.get(name).map(|number| ProxyId(*number)),
            ProxySide::Back => self.backends.get(name).map(|(number, ..)| ProxyId(*number)),
        }
    }

    fn current(&self, side: ProxySide) -> Option<ProxyId> {
        self.proxy(self.current?.name.bytes(), side)
    }

    fn server(&self, backend: ProxyId, name: &[u8]) -> Option<ServerId> {
        let (_, first, proxy) = self.backends.values().find(|(number, ..)| *number == backend.0)?;
        let Some(index) = proxy.servers.iter().position(|server| server.name.bytes() == name) else {
            return proxy.settings.has_refused_servers().then_some(ServerId(*first));
        };
        self.named.borrow_mut().insert(first + index as u32);
        Some(ServerId(first + index as u32))
    }

    fn userlist(&self, name: &[u8]) -> Option<UserlistId> {
        let index = self.config.userlists.iter().position(|list| list.name.bytes() == name)?;
        Some(UserlistId(index as u32))
    }

    fn has_group(&self, list: UserlistId, name: &[u8]) -> bool {
        let list = self.config.userlists.get(list.0 as usize);
        list.is_some_and(|list| self.config.groups(list).any(|group| group == name))
    }

    fn table(&self, name: &[u8]) -> Option<NamedTable> {
        stick::named(self.config, name)
    }

    fn own_table(&self) -> Option<NamedTable> {
        stick::named(self.config, self.current?.name.bytes())
    }

    fn environment(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.config.environment.get(name).map(<[u8]>::to_vec)
    }

    fn file(&self, name: &[u8]) -> std::io::Result<Vec<u8>> {
        use std::io::Read;
        use std::os::unix::ffi::OsStrExt;
        let mut bytes = Vec::new();
        let path = match self.at.get() {
            Some(pos) => self.config.path(name, pos),
            None => std::path::PathBuf::from(std::ffi::OsStr::from_bytes(name)),
        };
        let file = files::open(&path)?;
        file.take(manylane_expr::MAX_REFERENCE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Features of expressions and formats that cost time at run time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsedFeatures {
    /// Some use addresses of connections to servers.
    pub(super) links: bool,
    /// Some rules use what is logged about their stream. Log formats do not count: log lines have it anyway.
    pub(super) course: bool,
}

impl UsedFeatures {
    fn add(&mut self, compiler: &Compiler<'_>) {
        self.links |= compiler.reads_connections;
        self.course |= compiler.reads_stream_record;
    }
}

/// Compiles the rules of all proxies of a configuration.
pub(super) struct RuleReader<'c> {
    directory: Directory<'c>,
    names: VariableNames,
    references: References,
    used_features: UsedFeatures,
    lines: Vec<(Arc<[u8]>, u32)>,
}

impl<'c> RuleReader<'c> {
    pub(super) fn new(directory: Directory<'c>) -> Self {
        Self {
            directory,
            names: VariableNames::default(),
            references: References::default(),
            used_features: UsedFeatures::default(),
            lines: Vec::new(),
        }
    }

    /// Returns the numbers of servers that rules and expressions name.
    pub(super) fn named_servers(&self) -> HashSet<u32> {
        self.directory.named.borrow().clone()
    }

    /// Returns the shared state after all rules are compiled.
    pub(super) fn finish(mut self, zone: &Zone, refuse: &mut Refuse<'_>) -> (Expressions, UsedFeatures) {
        let mut compiler = Compiler::new(&self.directory, &mut self.names, &mut self.references);
        compiler.missing = missing::in_rules(Mode::Tcp);
        let set = variables::read(&self.directory.config.global.variables, &mut compiler, refuse);
        let process = ProcessVariables::with_room(&self.names, MOST_COMMANDED);
        let commanded = ProcessVariableNames::new(self.names.clone());
        variables::set(&set, &process, zone);
        (
            Expressions {
                process,
                commanded,
                names: self.names,
                references: self.references,
                lines: self.lines,
            },
            self.used_features,
        )
    }

    /// Compiles a log format of the file.
    pub(super) fn log_format(&mut self, word: &Word, mode: Mode, refuse: &mut Refuse<'_>) -> Option<Format> {
        self.directory.at.set(Some(word.pos()));
        let mut compiler = Compiler::new(&self.directory, &mut self.names, &mut self.references);
        compiler.missing = missing::in_logs(mode);
        compiler.position = self.directory.config.file_and_line(word.pos());
        let compiled = Format::compile(word.bytes(), Use::Log, EvalPoints::LOG, &mut compiler);
        self.used_features.links |= compiler.reads_connections;
        match compiled {
            Ok(format) => Some(format),
            Err(error) => {
                refuse.found.alert(word.pos_at(error.at), format!("log format : {error}"));
                None
            }
        }
    }

    /// `unique-id-format`
    pub(super) fn unique_id(
        &mut self,
        word: &Word,
        proxy: &'c Proxy,
        refuse: &mut Refuse<'_>,
    ) -> Option<Format> {
        self.directory.current = Some(proxy);
        self.directory.at.set(Some(word.pos()));
        let mut compiler = Compiler::new(&self.directory, &mut self.names, &mut self.references);
        compiler.missing = missing::in_rules(proxy.mode_of_rules());
        compiler.position = self.directory.config.file_and_line(word.pos());
        let compiled = Format::compile(
            word.bytes(),
            Use::Id,
            EvalPoints::FRONT_REQUEST | EvalPoints::LOG,
            &mut compiler,
        );
        self.used_features.add(&compiler);
        match compiled {
            Ok(format) => Some(format),
            Err(error) => {
                refuse.found.alert(word.pos_at(error.at), format!("unique-id-format : {error}"));
                None
            }
        }
    }

    /// `option forwarded`
    pub(super) fn forwarded(
        &mut self,
        set: &tree::Forwarded,
        proxy: &'c Proxy,
        refuse: &mut Refuse<'_>,
    ) -> Forwarded {
        self.directory.current = Some(proxy);
        let mut compiler = Compiler::new(&self.directory, &mut self.names, &mut self.references);
        compiler.missing = missing::in_rules(proxy.mode_of_rules());
        let mut source = |source: &Option<FieldSource>| match source.as_ref()? {
            FieldSource::Usual => Some(Source::Usual),
            FieldSource::Expression(word) => {
                self.directory.at.set(Some(word.pos()));
                match Expression::compile(word.bytes(), EvalPoints::USE_SERVER, &mut compiler) {
                    Ok(expression) => Some(Source::Sample(Box::new(expression))),
                    Err(error) => {
                        refuse.found.alert(word.pos_at(error.at), format!("'option forwarded' : {error}"));
                        None
                    }
                }
            }
        };
        let mut node = |name, port| source(name).map(|name| Node { name, port: source(port) });
        let (by, from) = (node(&set.proxy, &set.proxy_port), node(&set.client, &set.client_port));
        let host = source(&set.host);
        self.used_features.add(&compiler);
        Forwarded { proto: set.proto, host, proxy: by, client: from }
    }

    /// Compiles the expressions of `server` lines: the formats of `set-proxy-v2-tlv-fmt`, and the distinct
    /// expressions of `pool-conn-name` and `sni`, which it returns.
    pub(super) fn servers(
        &mut self,
        proxy: &'c Proxy,
        built: &mut [Server],
        refuse: &mut Refuse<'_>,
    ) -> Vec<Expression> {
        self.directory.current = Some(proxy);
        let mut compiler = Compiler::new(&self.directory, &mut self.names, &mut self.references);
        compiler.missing = missing::in_rules(proxy.mode_of_rules());
        let (mut names, mut texts) = (Vec::new(), Vec::<&[u8]>::new());
        for (line, server) in proxy.servers.iter().zip(built) {
            for (kind, word) in &line.options.proxy_tlvs {
                match Format::compile(word.bytes(), Use::Text, EvalPoints::USE_SERVER, &mut compiler) {
                    Ok(format) => server.tlvs.push((*kind, format)),
                    Err(error) => {
                        refuse
                            .found
                            .alert(word.pos_at(error.at), format!("'set-proxy-v2-tlv-fmt' : {error}"));
                    }
                }
            }
            let mut number = |word: &'c Word, keyword: &str| {
                if let Some(known) = texts.iter().position(|text| *text == word.bytes()) {
                    return Some(known);
                }
                match Expression::compile(word.bytes(), EvalPoints::USE_SERVER, &mut compiler) {
                    Ok(_) if names.len() == MOST_POOL_NAMES => {
                        let message = format!(
                            "'{keyword}' : a backend has at most {MOST_POOL_NAMES} different expressions, \
                                since all are evaluated for each request"
                        );
                        refuse.found.alert(word.pos(), message);
                        None
                    }
                    Ok(expression) => {
                        names.push(expression);
                        texts.push(word.bytes());
                        Some(names.len() - 1)
                    }
                    Err(error) => {
                        refuse.found.alert(word.pos_at(error.at), format!("'{keyword}' : {error}"));
                        None
                    }
                }
            };
            if let Some(set) = &line.options.pool_conn_name {
                server.pool_name = number(&set.value, "pool-conn-name");
            }
            if let (Some(set), Some(tls)) = (&line.options.tls.sni, &mut server.tls)
                && matches!(tls.name, SniName::None)
                && let Some(number) = number(&set.value, "sni")
            {
                tls.name = SniName::Evaluated(number);
            }
        }
        self.used_features.add(&compiler);
        names
    }

    /// Compiles expressions of health checks.
    pub(super) fn compile<R>(&mut self, proxy: &'c Proxy, work: impl FnOnce(&mut Compiler<'_>) -> R) -> R {
        self.directory.current = Some(proxy);
        self.directory.at.set(Some(proxy.pos));
        work(&mut Compiler::new(&self.directory, &mut self.names, &mut self.references))
    }

    /// Compiles a format that is part of the program.
    pub(super) fn own_format(&mut self, text: &str) -> Format {
        let mut compiler = Compiler::new(&self.directory, &mut self.names, &mut self.references);
        Format::compile(text.as_bytes(), Use::Log, EvalPoints::LOG, &mut compiler)
            .expect("the usual formats are written together with their reader")
    }

    /// Compiles the rules of a proxy. Rules of a named `defaults` section come first.
    pub(super) fn rules(
        &mut self,
        proxy: &'c Proxy,
        filters: &Filters,
        refuse: &mut Refuse<'_>,
    ) -> (Rules, Captures) {
        self.directory.at.set(Some(proxy.pos));
        let longest = self.directory.config.global.tune.http_cookielen.map(|set| set.value);
        self.directory.current = Some(proxy);
        let config = self.directory.config;
        let defaults = proxy.defaults.map(|index| &config.proxies[index]);
        let all = || defaults.into_iter().chain([proxy]);
        let slots = Slots::new(all(), longest, refuse);
        let mut compiler = Compiler::new(&self.directory, &mut self.names, &mut self.references);
        compiler.missing = missing::in_rules(proxy.mode_of_rules());
        // ACLs of a section are visible in this section only.
        let mut read_acls = |section: &Proxy| {
            compiler.acls = Acls::default();
            config.refused(&section.name, "acl").for_each(|name| compiler.declare_acl(name));
            // As in HAProxy, the stricter checks for `defaults` apply only if the section has rules that can
            // use its ACLs.
            compiler.in_defaults = section.kind == tree::ProxyKind::Defaults && !section.rules.is_empty();
            for acl in &section.acls {
                self.directory.at.set(Some(acl.pos));
                compiler.position = config.file_and_line(acl.pos);
                let words: Vec<&[u8]> = acl.words.iter().map(Word::bytes).collect();
                if let Err(error) = compiler.add_acl(acl.name.bytes(), &words) {
                    report(refuse, &acl.words, acl.pos, &format!("acl '{}'", acl.name.shown()), &error);
                }
                warn(refuse, &mut compiler, &acl.words, acl.pos);
            }
            std::mem::take(&mut compiler.acls)
        };
        let (of_defaults, own) = (defaults.map(&mut read_acls).unwrap_or_default(), read_acls(proxy));
        compiler.acls = of_defaults;
        let (front, back) = (proxy.kind.is_frontend(), proxy.kind.is_backend());
        let mut reader = Reader {
            compiler: &mut compiler,
            refuse,
            config,
            slots: &slots,
            filters,
            proxy,
            front,
            back,
            lines: &mut self.lines,
            at: &self.directory.at,
        };
        let mut rules = Rules::default();
        let mut redirects = Vec::new();
        let http = proxy.mode_of_rules() == Mode::Http;
        let inherited = defaults.map_or(&[][..], |defaults| &defaults.rules);
        reader.compiler.in_defaults = true;
        inherited.iter().for_each(|rule| reader.put(rule, http, &mut rules, &mut redirects));
        reader.compiler.in_defaults = false;
        reader.compiler.acls = own;
        proxy.rules.iter().for_each(|rule| reader.put(rule, http, &mut rules, &mut redirects));
        self.directory.at.set(Some(proxy.pos));
        rules.request.extend(redirects);
        for choice in &proxy.use_backend {
            rules.use_backend.extend(reader.choice(choice, EvalPoints::USE_BACKEND, |name| {
                self.directory.backends.get(name).map(|(number, ..)| *number as usize)
            }));
        }
        if !proxy.use_server.is_empty() {
            // A map, since there may be a rule for each of very many servers.
            let named = proxy.servers.iter().enumerate().map(|(index, server)| (server.name.bytes(), index));
            let servers: HashMap<&[u8], usize> = named.rev().collect(); // the first of equal names stays
            for choice in &proxy.use_server {
                let first = self.directory.backends.get(proxy.name.bytes()).map(|(_, first, _)| *first);
                let find = |name: &[u8]| {
                    let found = servers.get(name).copied();
                    self.directory
                        .named
                        .borrow_mut()
                        .extend(first.zip(found).map(|(first, index)| first + index as u32));
                    found
                };
                rules.use_server.extend(reader.choice(choice, EvalPoints::USE_SERVER, find));
            }
        }
        for rule in &proxy.stick_rules {
            let list = match rule.kind {
                tree::StickKind::StoreResponse => &mut rules.store_response,
                _ => &mut rules.stick,
            };
            list.extend(reader.stick(rule));
        }
        for condition in &proxy.monitor_fail {
            let condition = Some(condition.clone());
            rules.monitor_fail.extend(reader.condition(&condition, EvalPoints::FRONT_REQUEST).flatten());
        }
        for condition in &proxy.force_switch {
            let condition = Some(condition.clone());
            rules.force_switch.extend(reader.condition(&condition, EvalPoints::USE_BACKEND).flatten());
        }
        (rules.stats_admin, rules.stats_request) = reader.page(proxy);
        let forced = proxy.force_persist.iter().map(|condition| (Persist::Force, condition));
        let ignored = proxy.ignore_persist.iter().map(|condition| (Persist::Ignore, condition));
        let mut persist: Vec<_> = forced.chain(ignored).collect();
        persist.sort_by_key(|(_, condition)| condition.pos);
        for (action, condition) in persist {
            let line = reader.line(condition.pos);
            let condition = reader.condition(&Some(condition.clone()), EvalPoints::USE_SERVER);
            rules.persist.extend(condition.map(|condition| Rule { condition, action, line }));
        }
        if back {
            rules.balance = reader.balance(&proxy.settings);
            rules.persist_rdp =
                proxy.settings.persist_rdp.as_ref().and_then(|name| reader.rdp_cookie(&name.value));
        }
        rules.reads_data = compiler.reads_data;
        self.used_features.add(&compiler);
        (rules, slots.captures)
    }

    /// Compiles the `http-error` lines of a proxy.
    pub(super) fn http_errors(&mut self, proxy: &'c Proxy, refuse: &mut Refuse<'_>) -> Vec<Reply> {
        self.directory.current = Some(proxy);
        self.directory.at.set(Some(proxy.pos));
        let config = self.directory.config;
        let mut compiler = Compiler::new(&self.directory, &mut self.names, &mut self.references);
        compiler.missing = missing::in_rules(proxy.mode_of_rules());
        let mut reader = Reader {
            compiler: &mut compiler,
            refuse,
            config,
            slots: &Slots::default(),
            filters: &Filters::default(),
            proxy,
            front: proxy.kind.is_frontend(),
            back: proxy.kind.is_backend(),
            lines: &mut self.lines,
            at: &self.directory.at,
        };
        let errors =
            proxy.settings.http_errors.iter().filter_map(|statement| reader.http_error(statement)).collect();
        self.used_features.add(&compiler);
        errors
    }
}

/// Returns true if some rule, condition or format contains `text` in one of its words. May be true too often,
/// but is never wrongly false.
pub(super) fn mentions(config: &Config, text: &[u8]) -> bool {
    config.proxies.iter().any(|proxy| mentioned_by(proxy, text))
}

/// As [`mentions`], for one proxy.
pub(super) fn mentioned_by(proxy: &Proxy, text: &[u8]) -> bool {
    let has =
        |words: &[Word]| words.iter().any(|word| word.bytes().windows(text.len()).any(|part| part == text));
    let when = |condition: &Option<tree::Condition>| {
        condition.as_ref().is_some_and(|condition| has(&condition.words))
    };
    let choices = proxy.use_backend.iter().chain(&proxy.use_server);
    proxy.acls.iter().any(|acl| has(&acl.words))
        || proxy.rules.iter().any(|rule| has(&rule.words) || when(&rule.condition))
        || choices
            .into_iter()
            .any(|choice| has(std::slice::from_ref(&choice.target)) || when(&choice.condition))
        || proxy.stick_rules.iter().any(|rule| has(&rule.key) || when(&rule.condition))
        || proxy.filters.iter().any(|filter| {
            matches!(filter, tree::Filter::Bandwidth(limit)
                if limit.shared.as_ref().is_some_and(|shared| has(&shared.key)))
        })
        || proxy.settings.http_errors.iter().any(|statement| has(&statement.words))
        || proxy.settings.stats.iter().any(|statement| has(&statement.words))
        || proxy.settings.unique_id_format.iter().any(|set| has(std::slice::from_ref(&set.value)))
        || proxy
            .settings
            .forwarded
            .iter()
            .flat_map(|set| set.value.expressions())
            .any(|word| has(std::slice::from_ref(word)))
}

/// Reports an error at its word.
fn report(refuse: &mut Refuse<'_>, words: &[Word], pos: Pos, what: &str, error: &Error) {
    let at = words.get(error.word).map_or(pos, |word| word.pos_at(error.at));
    refuse.found.alert(at, format!("{what} : {error}"));
}

/// Reports the warnings of a compiled line, each at its word.
fn warn(refuse: &mut Refuse<'_>, compiler: &mut Compiler<'_>, words: &[Word], pos: Pos) {
    for warning in compiler.take_warnings() {
        let at = words.get(warning.word).map_or(pos, |word| word.pos_at(warning.at));
        refuse.found.warning(at, warning.to_string());
    }
}

struct Reader<'r, 'c, 'f> {
    compiler: &'r mut Compiler<'c>,
    refuse: &'r mut Refuse<'f>,
    config: &'c Config,
    slots: &'r Slots,
    filters: &'r Filters,
    proxy: &'r Proxy,
    /// The proxy is a frontend.
    front: bool,
    /// The proxy is a backend.
    back: bool,
    lines: &'r mut Vec<(Arc<[u8]>, u32)>,
    /// The line that is compiled.
    at: &'r Cell<Option<Pos>>,
}

impl Reader<'_, '_, '_> {
    /// Compiles a condition. Returns `None` after an error was reported.
    fn condition(
        &mut self,
        condition: &Option<tree::Condition>,
        points: EvalPoints,
    ) -> Option<Option<Condition>> {
        let Some(tree::Condition { unless, words, pos }) = condition else { return Some(None) };
        let bytes: Vec<&[u8]> = words.iter().map(Word::bytes).collect();
        self.compiler.position = self.config.file_and_line(*pos);
        let compiled = Condition::compile(*unless, &bytes, points, self.compiler);
        warn(self.refuse, self.compiler, words, *pos);
        match compiled {
            Ok(condition) => Some(Some(condition)),
            Err(error) => {
                report(self.refuse, words, *pos, "condition", &error);
                None
            }
        }
    }

    fn format(&mut self, word: &Word, usage: Use, points: EvalPoints) -> Option<Format> {
        self.compiler.position = self.config.file_and_line(word.pos());
        match Format::compile(word.bytes(), usage, points, self.compiler) {
            Ok(format) => Some(format),
            Err(error) => {
                self.refuse.found.alert(word.pos_at(error.at), format!("log format : {error}"));
                None
            }
        }
    }

    fn choice(
        &mut self,
        choice: &SwitchingRule,
        points: EvalPoints,
        find: impl Fn(&[u8]) -> Option<usize>,
    ) -> Option<Rule<Target>> {
        let condition = self.condition(&choice.condition, points)?;
        let action = if choice.is_dynamic() {
            Target::Named(self.format(&choice.target, Use::Text, points)?)
        } else {
            Target::Fixed(find(choice.target.bytes())?) // an unknown name was reported before
        };
        Some(Rule { condition, action, line: self.line(choice.target.pos()) })
    }

    fn rule(&mut self, rule: &tree::Rule, points: EvalPoints) -> Option<Rule> {
        let condition = self.condition(&rule.condition, points);
        let (action, condition) = (self.action(rule, points)?, condition?);
        if let Action::Set(Setting::Track(track)) = &action {
            self.check_level(rule, track, condition.as_ref());
        }
        Some(Rule { condition, action, line: self.line(rule.pos) })
    }

    /// Stores the position of a rule and returns its number.
    fn line(&mut self, pos: Pos) -> Option<u32> {
        let (file, line) = self.config.file_and_line(pos)?;
        let same = self.lines.last().map(|(last, _)| last).filter(|last| ***last == *file);
        self.lines.push((same.map_or_else(|| file.into(), Arc::clone), line));
        u32::try_from(self.lines.len() - 1).ok()
    }

    /// Compiles the expression of `balance hash`, `balance maglev` or `balance rdp-cookie`.
    fn balance(&mut self, settings: &tree::Settings) -> Option<Expression> {
        let balance = &settings.balance.as_ref()?.value;
        match (balance.algorithm.key, &balance.words[..]) {
            (AlgorithmKey::Expression | AlgorithmKey::SourceOrExpression, [expression]) => {
                self.expression(std::slice::from_ref(expression), EvalPoints::USE_SERVER)
            }
            (AlgorithmKey::LogLine, [converters]) if settings.mode() == tree::Mode::Log => {
                // The line's text stands where the bytes of a connection would.
                let text = [b"req.payload(0,0),", converters.bytes()].concat();
                self.expression(&[Word::plain(text, converters.pos())], EvalPoints::USE_SERVER)
            }
            (AlgorithmKey::RdpCookie, [name, ..]) => self.rdp_cookie(name),
            (AlgorithmKey::Expression | AlgorithmKey::SourceOrExpression, [_, more, ..]) => {
                let message = format!(
                    "'balance' expects one expression without blanks, found '{}' behind it",
                    more.shown()
                );
                self.refuse.found.alert(more.pos(), message);
                None
            }
            _ => None,
        }
    }

    fn rdp_cookie(&mut self, name: &Word) -> Option<Expression> {
        let quoted = [b"req.rdp_cookie('", name.bytes(), b"')"].concat();
        self.expression(&[Word::plain(quoted, name.pos())], EvalPoints::USE_SERVER)
    }

    fn not_built<T>(&mut self, rule: &tree::Rule) -> Option<T> {
        let action = rule.action.trim_end_matches('(');
        self.refuse.keyword(rule.pos, &format!("{} {action}", rule.list.name()), "it is not built yet");
        None
    }
}
