//! The rules of a generation in the order in which they are evaluated, for reports: what each looks at, what
//! it waits for, and how it can end a request. Nothing here is used while requests are served.

mod effects;

pub(crate) use effects::{Effects, of_key};

use manylane_config::source::Pos;
use manylane_config::tree::{Config, Mode, Proxy, ProxyKind};
use manylane_expr::{Direction, Needs, VariableId};
use manylane_plan::generation::{Backend, Frontend, Generation, Rule, Rules, Target};

/// The place of a line in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file as it was named.
    pub file: String,
    /// The line, from 1.
    pub number: u32,
}

/// A rule, or a setting that takes part as one.
#[derive(Clone, Debug)]
pub struct Outline {
    /// Its line; `None` for a setting without one.
    pub line: Option<Line>,
    /// What it looks at.
    pub needs: Needs,
    /// It applies under a condition only.
    pub conditional: bool,
    /// What requests wait for here.
    pub waits: Option<&'static str>,
    /// How it can end a list, a request or a connection, or where it sends a request.
    pub ends: Option<String>,
}

/// Rules that are evaluated one after another.
#[derive(Clone, Debug)]
pub struct List {
    /// The keyword of the rules.
    pub keyword: &'static str,
    /// The rules.
    pub rules: Vec<Outline>,
}

/// The rules of a frontend or of a backend.
#[derive(Clone, Debug)]
pub struct ProxyOutline {
    /// Name of the proxy.
    pub name: Box<str>,
    /// `frontend`, `backend` or `listen`.
    pub kind: &'static str,
    /// `http` or `tcp`.
    pub mode: &'static str,
    /// Addresses of a frontend, as written.
    pub listeners: Vec<Box<str>>,
    /// Lists for connections and requests, in order.
    pub request: Vec<List>,
    /// Lists for responses, in order. Those of a backend come before those of its frontend.
    pub response: Vec<List>,
}

/// Where the requests of a frontend can go.
#[derive(Clone, Debug, Default)]
pub struct RouteOutline {
    /// Numbers of backends, each once, in the order in which rules name them.
    pub backends: Vec<usize>,
    /// A rule chooses by a name that is made for each request, so that every backend of the mode may be
    /// reached.
    pub by_name: bool,
}

/// Returns the backends that a frontend can reach.
pub fn reached(generation: &Generation, frontend: &Frontend) -> RouteOutline {
    let mut reached = RouteOutline::default();
    let rules = frontend.rules.use_backend.iter().map(|rule| match &rule.action {
        Target::Fixed(number) => Some(*number),
        Target::Named(_) => None,
    });
    let mut put = |number| {
        if !reached.backends.contains(&number) {
            reached.backends.push(number);
        }
    };
    for target in rules.chain(frontend.default_backend.map(Some)) {
        match target {
            Some(number) => put(number),
            None => reached.by_name = true,
        }
    }
    if reached.by_name {
        let all = generation.backends.iter().filter(|backend| backend.mode == frontend.mode);
        all.for_each(|backend| {
            if !reached.backends.contains(&backend.number) {
                reached.backends.push(backend.number);
            }
        });
    }
    reached
}

/// Makes the lists of one proxy.
struct Explainer<'a> {
    generation: &'a Generation,
    config: &'a Config,
    /// The proxy in the file.
    proxy: Option<&'a Proxy>,
    mode: Mode,
    lists: Vec<List>,
}

/// Returns the rules of a frontend. `config` is what the generation was built from.
pub fn frontend(generation: &Generation, config: &Config, frontend: &Frontend) -> ProxyOutline {
    let rules = &*frontend.rules;
    let http = frontend.mode == Mode::Http || frontend.switches_mode;
    let mut explainer = Explainer::new(generation, config, &frontend.name, frontend.mode);
    explainer.list("tcp-request connection", &rules.connection, Direction::Request);
    if frontend.listeners.iter().any(|listener| listener.accept_proxy) {
        explainer.fixed("accept-proxy", None, Needs::PROXY_HEADER, Some("the header of the PROXY protocol"));
    }
    if frontend.listeners.iter().any(|listener| listener.netscaler.is_some()) {
        let waits = Some("the header of NetScaler");
        explainer.fixed("accept-netscaler-cip", None, Needs::PROXY_HEADER, waits);
    }
    if frontend.listeners.iter().any(|listener| listener.tls.is_some()) {
        explainer.fixed("ssl", None, Needs::NONE, Some("the TLS handshake"));
    }
    explainer.list("tcp-request session", &rules.session, Direction::Request);
    if frontend.mode == Mode::Http {
        explainer.fixed("mode http", None, Needs::HEAD, Some("the request's head"));
    }
    explainer.content("tcp-request content", rules, false);
    if frontend.switches_mode {
        explainer.fixed(
            "mode http",
            None,
            Needs::HEAD,
            Some("the request's head, if the connection switches"),
        );
    }
    if http {
        if frontend.http.monitor.is_some() {
            let pos = explainer.setting(|settings| Some(settings.monitor_uri.as_ref()?.pos));
            let ends = "answers 200, or 503 where 'monitor fail' holds";
            explainer.ending("monitor-uri", pos, Needs::HEAD, ends.into());
        }
        explainer.buffered(frontend.http.buffer_request);
        explainer.list("http-request", &rules.request, Direction::Request);
        explainer.page(&frontend.http, rules);
    }
    explainer.list("use_backend", &rules.use_backend, Direction::Request);
    if let Some(number) = frontend.default_backend {
        let pos = explainer.setting(|settings| Some(settings.default_backend.as_ref()?.pos));
        let name = &generation.backends[number].name;
        explainer.ending("default_backend", pos, Needs::NONE, format!("goes to backend '{name}'"));
    } else {
        let ends = if frontend.mode == Mode::Http { "answers 503" } else { "closes the connection" };
        explainer.ending("default_backend", None, Needs::NONE, format!("there is none: {ends}"));
    }
    let request = explainer.take();
    if http {
        explainer.list("http-response", &rules.response, Direction::Response);
        explainer.list("http-after-response", &rules.after_response, Direction::Response);
    }
    ProxyOutline {
        name: frontend.name.clone(),
        kind: explainer.kind("frontend"),
        mode: frontend.mode.name(),
        listeners: frontend.listeners.iter().map(|listener| listener.written.clone()).collect(),
        request,
        response: explainer.take(),
    }
}

/// Returns the rules of a backend, without those that a `listen` runs in its frontend.
pub fn backend(generation: &Generation, config: &Config, backend: &Backend) -> ProxyOutline {
    let rules = &*backend.rules;
    let http = backend.mode == Mode::Http;
    let mut explainer = Explainer::new(generation, config, &backend.name, backend.mode);
    let listens = explainer.proxy.is_some_and(|proxy| proxy.kind == ProxyKind::Listen);
    explainer.list("force-persist", &rules.persist, Direction::Request);
    if !listens {
        if http {
            explainer.buffered(backend.http.buffer_request);
        }
        explainer.content("tcp-request content", rules, false);
        if http {
            explainer.list("http-request", &rules.request, Direction::Request);
            explainer.page(&backend.http, rules);
        }
    }
    explainer.list("use-server", &rules.use_server, Direction::Request);
    if let Some(cookie) = &backend.http.cookie {
        let pos = explainer.setting(|settings| Some(settings.cookie.as_ref()?.pos));
        let name = String::from_utf8_lossy(&cookie.name);
        explainer.ending(
            "cookie",
            pos,
            Needs::HEAD,
            format!("goes to the server that cookie '{name}' names"),
        );
    }
    if let Some(cookie) = &rules.persist_rdp {
        let pos = explainer.setting(|settings| Some(settings.persist_rdp.as_ref()?.pos));
        let needs = cookie.needs(&|_| Needs::VARIABLE).of(Direction::Request);
        let ends = "goes to the server whose address the cookie has".to_owned();
        explainer.ending("persist rdp-cookie", pos, needs, ends);
    }
    explainer.list("stick", &rules.stick, Direction::Request);
    let pos = explainer.setting(|settings| Some(settings.balance.as_ref()?.pos));
    let algorithm = backend.algorithm.name;
    let needs = rules.balance.as_ref().map_or(Needs::NONE, |key| key.needs(&|_| Needs::VARIABLE));
    let needs = needs.of(Direction::Request) | of_key(&backend.key);
    let ends = match (backend.servers.is_empty(), http) {
        (false, _) => format!("goes to a server by {algorithm}"),
        (true, true) => "there is no server: answers 503".into(),
        (true, false) => "there is no server: closes the connection".into(),
    };
    explainer.ending("balance", pos, needs, ends);
    let request = explainer.take();
    explainer.content("tcp-response content", rules, true);
    explainer.list("stick store-response", &rules.store_response, Direction::Response);
    if http && !listens {
        explainer.list("http-response", &rules.response, Direction::Response);
        explainer.list("http-after-response", &rules.after_response, Direction::Response);
    }
    ProxyOutline {
        name: backend.name.clone(),
        kind: explainer.kind("backend"),
        mode: backend.mode.name(),
        listeners: Vec::new(),
        request,
        response: explainer.take(),
    }
}

/// Returns the place of a rule.
pub(crate) fn line_of<A>(generation: &Generation, rule: &Rule<A>) -> Option<Line> {
    let (file, line) = generation.expressions.lines.get(rule.line? as usize)?;
    Some(Line { file: String::from_utf8_lossy(file).into_owned(), number: *line })
}

impl<'a> Explainer<'a> {
    fn new(generation: &'a Generation, config: &'a Config, name: &str, mode: Mode) -> Self {
        let own =
            |proxy: &&Proxy| proxy.kind != ProxyKind::Defaults && *proxy.name.bytes() == *name.as_bytes();
        let mut named = config.proxies.iter().filter(own);
        // A frontend and a backend may share a name; their settings have the mode in common.
        let proxy = named.find(|proxy| proxy.settings.mode() == mode);
        Self { generation, config, proxy, mode, lists: Vec::new() }
    }

    fn kind(&self, usual: &'static str) -> &'static str {
        self.proxy.filter(|proxy| proxy.kind == ProxyKind::Listen).map_or(usual, |proxy| proxy.kind.name())
    }

    fn take(&mut self) -> Vec<List> {
        std::mem::take(&mut self.lists)
    }

    fn setting(&self, pos: impl FnOnce(&manylane_config::tree::Settings) -> Option<Pos>) -> Option<Pos> {
        pos(&self.proxy?.settings)
    }

    fn line(&self, pos: Option<Pos>) -> Option<Line> {
        let (file, number) = self.config.file_and_line(pos?)?;
        Some(Line { file: String::from_utf8_lossy(file).into_owned(), number })
    }

    fn put(&mut self, keyword: &'static str, rules: Vec<Outline>) {
        if !rules.is_empty() {
            self.lists.push(List { keyword, rules });
        }
    }

    /// Adds a step that is not a rule and that requests may wait for.
    fn fixed(&mut self, keyword: &'static str, pos: Option<Pos>, needs: Needs, waits: Option<&'static str>) {
        let line = self.line(pos);
        self.put(keyword, vec![Outline { line, needs, conditional: false, waits, ends: None }]);
    }

    /// Adds a step that is not a rule and ends a request or sends it on.
    fn ending(&mut self, keyword: &'static str, pos: Option<Pos>, needs: Needs, ends: String) {
        let line = self.line(pos);
        self.put(keyword, vec![Outline { line, needs, conditional: false, waits: None, ends: Some(ends) }]);
    }

    fn buffered(&mut self, buffers: bool) {
        if buffers {
            self.fixed("option http-buffer-request", None, Needs::BODY, Some("the body"));
        }
    }

    fn page(&mut self, http: &manylane_plan::generation::Http, rules: &Rules) {
        if http.stats.is_some() {
            self.list("stats http-request", &rules.stats_request, Direction::Request);
            let pos = self.setting(|settings| Some(settings.stats.first()?.pos));
            self.ending("stats", pos, Needs::HEAD, "answers with the page of counters".into());
        }
    }

    /// Adds `tcp-request content` or `tcp-response content` rules, which wait for bytes in TCP mode.
    fn content(&mut self, keyword: &'static str, rules: &Rules, of_response: bool) {
        let (list, direction) = match of_response {
            true => (&rules.response_content, Direction::Response),
            false => (&rules.content, Direction::Request),
        };
        self.list(keyword, list, direction);
        if self.mode == Mode::Tcp
            && let Some(list) = self.lists.last_mut().filter(|list| list.keyword == keyword)
        {
            let bytes = Needs::HEAD | Needs::BODY | Needs::RESPONSE;
            for rule in list.rules.iter_mut().filter(|rule| !rule.needs.and(bytes).is_none()) {
                rule.waits = rule.waits.or(Some("bytes, for 'inspect-delay' at most"));
            }
        }
    }

    fn list<A: Effects>(&mut self, keyword: &'static str, rules: &[Rule<A>], direction: Direction) {
        let generation = self.generation;
        let outline = |rule: &Rule<A>| {
            let variables = |_: VariableId| Needs::VARIABLE;
            let when = rule.condition.as_ref().map_or(Needs::NONE, |when| when.needs(&variables));
            let needs = (when | rule.action.needs(&variables)).of(direction);
            let hashes = generation.hashes_passwords && !needs.and(Needs::USERS).is_none();
            Outline {
                line: line_of(generation, rule),
                needs,
                conditional: rule.condition.is_some(),
                waits: rule.action.waits().or(hashes.then_some("another thread that hashes passwords")),
                ends: rule.action.ends(),
            }
        };
        self.put(keyword, rules.iter().map(outline).collect());
    }
}
