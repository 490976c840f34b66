//! Rules and conditions, compiled when a generation is built.

use super::missing;
use super::refuse::Refuse;
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::table::Ruleset;
use manylane_config::tree::{self, Choice, Config, Mode, Proxy};
use manylane_expr::{
    Acls, Compiler, Condition, Error, Expression, Format, Names, Places, ProcessVariables, ProxyId, ProxySide,
    References, ServerId, Use, UserlistId, VariableId, VariableNames,
};
use std::collections::HashMap;

/// What the expressions of a generation share.
#[derive(Debug)]
pub struct Expressions {
    /// Names of variables.
    pub names: VariableNames,
    /// Maps and files of patterns.
    pub references: References,
    /// Variables of the process.
    pub process: ProcessVariables,
}

/// The rules of a proxy.
#[derive(Debug, Default)]
pub struct Rules {
    /// `tcp-request connection` and `tcp-request session`.
    pub connection: Vec<Rule<ConnectionAction>>,
    /// `http-request`, and `redirect` behind them.
    pub request: Vec<Rule<Action>>,
    /// `http-response`
    pub response: Vec<Rule<Action>>,
    /// `use_backend`
    pub use_backend: Vec<Rule<Target>>,
    /// `use-server`: the servers' numbers in their backend.
    pub use_server: Vec<Rule<Target>>,
}

/// An action, and when it applies.
#[derive(Debug)]
pub struct Rule<A> {
    /// None applies always.
    pub condition: Option<Condition>,
    /// What is done.
    pub action: A,
}

/// What is done with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionAction {
    /// No further rule is looked at.
    Accept,
    /// It is closed.
    Reject,
}

/// Which backend or server.
#[derive(Debug)]
pub enum Target {
    /// This one.
    Fixed(usize),
    /// The one that has this name, if there is one.
    Named(Format),
}

/// What is done with a request or a response.
#[derive(Debug)]
#[allow(missing_docs)] // the words of the rules
pub enum Action {
    Allow,
    Reply(Box<Reply>),
    /// `deny` without more: the answer with this status.
    Deny(u16),
    Redirect(Box<Redirect>),
    SetHeader(Box<[u8]>, Format),
    AddHeader(Box<[u8]>, Format),
    DelHeader(Box<[u8]>),
    SetMethod(Format),
    SetPath(Format),
    SetPathq(Format),
    SetQuery(Format),
    SetUri(Format),
    SetStatus(u16, Option<Box<[u8]>>),
    SetVar(VariableId, Expression),
    SetVarFmt(VariableId, Format),
    UnsetVar(VariableId),
}

/// `return`, or `deny` with an answer of its own.
#[derive(Debug)]
pub struct Reply {
    /// `status`
    pub status: u16,
    /// `content-type`
    pub content_type: Box<[u8]>,
    /// `string`, `lf-string`
    pub body: Option<Format>,
    /// `hdr`
    pub fields: Vec<(Box<[u8]>, Format)>,
}

/// `redirect`
#[derive(Debug)]
pub struct Redirect {
    /// How the target is made.
    pub kind: RedirectKind,
    /// Of what.
    pub target: Format,
    /// `code`
    pub code: u16,
    /// `drop-query`
    pub drop_query: bool,
    /// `append-slash`
    pub append_slash: bool,
    /// `ignore-empty`
    pub ignore_empty: bool,
    /// `set-cookie`, `clear-cookie`: the value of `Set-Cookie`.
    pub cookie: Option<Box<[u8]>>,
}

/// How a redirection's target is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectKind {
    /// As it is.
    Location,
    /// Before the request's path.
    Prefix,
    /// Before the request's host and path.
    Scheme,
}

/// Names of the file.
pub(super) struct Directory<'c> {
    config: &'c Config,
    frontends: HashMap<&'c [u8], u32>,
    /// With the first number of its servers.
    backends: HashMap<&'c [u8], (u32, u32, &'c Proxy)>,
    /// The proxy at work.
    current: Option<&'c Proxy>,
}

impl<'c> Directory<'c> {
    pub(super) fn new(config: &'c Config, started: impl Fn(&&'c Proxy) -> bool) -> Self {
        let mut directory =
            Self { config, frontends: HashMap::new(), backends: HashMap::new(), current: None };
        let mut servers = 0;
        for proxy in config.proxies.iter().filter(started) {
            if proxy.kind.is_frontend() {
                let number = directory.frontends.len() as u32;
                directory.frontends.insert(proxy.name.bytes(), number);
            }
            if proxy.kind.is_backend() {
                let number = directory.backends.len() as u32;
                directory.backends.insert(proxy.name.bytes(), (number, servers, proxy));
                servers += proxy.servers.len() as u32;
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
        let index = proxy.servers.iter().position(|server| server.name.bytes() == name)?;
        Some(ServerId(first + index as u32))
    }

    fn userlist(&self, name: &[u8]) -> Option<UserlistId> {
        let index = self.config.userlists.iter().position(|list| list.name.bytes() == name)?;
        Some(UserlistId(index as u32))
    }

    fn environment(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.config.environment.get(name).map(<[u8]>::to_vec)
    }

    fn file(&self, name: &[u8]) -> std::io::Result<Vec<u8>> {
        use std::io::Read;
        use std::os::unix::ffi::OsStrExt;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(std::ffi::OsStr::from_bytes(name))?;
        file.take(manylane_expr::MAX_REFERENCE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Compiles the rules of all proxies of a configuration.
pub(super) struct RuleReader<'c> {
    directory: Directory<'c>,
    names: VariableNames,
    references: References,
}

impl<'c> RuleReader<'c> {
    pub(super) fn new(directory: Directory<'c>) -> Self {
        Self { directory, names: VariableNames::default(), references: References::default() }
    }

    /// What is left when all rules are read.
    pub(super) fn finish(self) -> Expressions {
        Expressions {
            process: ProcessVariables::new(&self.names),
            names: self.names,
            references: self.references,
        }
    }

    /// A format of the file.
    pub(super) fn log_format(&mut self, word: &Word, mode: Mode, refuse: &mut Refuse<'_>) -> Option<Format> {
        let mut compiler = Compiler::new(&self.directory, &mut self.names, &mut self.references);
        compiler.missing = missing::in_logs(mode);
        match Format::compile(word.bytes(), Use::Log, Places::LOG, &mut compiler) {
            Ok(format) => Some(format),
            Err(error) => {
                refuse.found.alert(word.pos_at(error.at), format!("log format : {error}"));
                None
            }
        }
    }

    /// A format of the program's own.
    pub(super) fn own_format(&mut self, text: &str) -> Format {
        let mut compiler = Compiler::new(&self.directory, &mut self.names, &mut self.references);
        Format::compile(text.as_bytes(), Use::Log, Places::LOG, &mut compiler)
            .expect("the usual formats are written by the same hand as their reader")
    }

    /// The rules of a proxy; those of a named `defaults` section come before its own.
    pub(super) fn rules(&mut self, proxy: &'c Proxy, refuse: &mut Refuse<'_>) -> Rules {
        self.directory.current = Some(proxy);
        let config = self.directory.config;
        let defaults = proxy.defaults.map(|index| &config.proxies[index]);
        let defaults = defaults.filter(|defaults| !defaults.name.bytes().is_empty());
        let all = || defaults.into_iter().chain([proxy]);
        let mut compiler = Compiler::new(&self.directory, &mut self.names, &mut self.references);
        compiler.missing = missing::in_rules(proxy.settings.mode());
        let mut acls = Acls::new();
        for acl in all().flat_map(|proxy| &proxy.acls) {
            let words: Vec<&[u8]> = acl.words.iter().map(Word::bytes).collect();
            if let Err(error) = acls.add(acl.name.bytes(), &words, &mut compiler) {
                report(refuse, &acl.words, acl.pos, &format!("acl '{}'", acl.name.shown()), &error);
            }
        }
        let mut reader = Reader { compiler: &mut compiler, acls: &mut acls, refuse };
        let front = proxy.kind.is_frontend();
        let http = proxy.settings.mode() == Mode::Http;
        let mut rules = Rules::default();
        let mut redirects = Vec::new();
        for rule in all().flat_map(|proxy| &proxy.rules) {
            match rule.list {
                Ruleset::TcpRequestConnection | Ruleset::TcpRequestSession if front => {
                    let place = match rule.list {
                        Ruleset::TcpRequestConnection => Places::CONNECTION,
                        _ => Places::SESSION,
                    };
                    rules.connection.extend(reader.connection(rule, place));
                }
                Ruleset::HttpRequest | Ruleset::Redirect if http => {
                    let place = if front { Places::FRONT_REQUEST } else { Places::BACK_REQUEST };
                    let list = if rule.list == Ruleset::Redirect { &mut redirects } else { &mut rules.request };
                    list.extend(reader.rule(rule, place));
                }
                Ruleset::HttpResponse if http => {
                    let place = if front { Places::FRONT_RESPONSE } else { Places::BACK_RESPONSE };
                    rules.response.extend(reader.rule(rule, place));
                }
                // Rules for messages mean nothing to bytes, of which the file's reader warns.
                list if !http && (list.name().starts_with("http") || list == Ruleset::Redirect) => {}
                list => reader.refuse.keyword(rule.pos, list.name(), "it is not built yet"),
            }
        }
        rules.request.extend(redirects);
        for choice in &proxy.use_backend {
            rules.use_backend.extend(reader.choice(choice, Places::USE_BACKEND, |name| {
                self.directory.backends.get(name).map(|(number, ..)| *number as usize)
            }));
        }
        for choice in &proxy.use_server {
            rules.use_server.extend(reader.choice(choice, Places::USE_SERVER, |name| {
                proxy.servers.iter().position(|server| server.name.bytes() == name)
            }));
        }
        for warning in compiler.take_warnings() {
            refuse.found.warning(proxy.pos, format!("{} '{}' : {warning}", proxy.kind.name(), proxy.name.shown()));
        }
        rules
    }
}

/// Reports what is wrong with words at its place.
fn report(refuse: &mut Refuse<'_>, words: &[Word], pos: Pos, what: &str, error: &Error) {
    let at = words.get(error.word).map_or(pos, |word| word.pos_at(error.at));
    refuse.found.alert(at, format!("{what} : {error}"));
}

struct Reader<'r, 'c, 'f> {
    compiler: &'r mut Compiler<'c>,
    acls: &'r mut Acls,
    refuse: &'r mut Refuse<'f>,
}

impl Reader<'_, '_, '_> {
    /// None: it was wrong, and was reported.
    fn condition(&mut self, condition: &Option<tree::Condition>, place: Places) -> Option<Option<Condition>> {
        let Some(tree::Condition { unless, words, pos }) = condition else { return Some(None) };
        let bytes: Vec<&[u8]> = words.iter().map(Word::bytes).collect();
        match Condition::compile(*unless, &bytes, self.acls, place, self.compiler) {
            Ok(condition) => Some(Some(condition)),
            Err(error) => {
                report(self.refuse, words, *pos, "condition", &error);
                None
            }
        }
    }

    fn format(&mut self, word: &Word, usage: Use, place: Places) -> Option<Format> {
        match Format::compile(word.bytes(), usage, place, self.compiler) {
            Ok(format) => Some(format),
            Err(error) => {
                self.refuse.found.alert(word.pos_at(error.at), format!("log format : {error}"));
                None
            }
        }
    }

    fn connection(&mut self, rule: &tree::Rule, place: Places) -> Option<Rule<ConnectionAction>> {
        let action = match rule.action {
            "accept" => ConnectionAction::Accept,
            "reject" => ConnectionAction::Reject,
            _ => return self.not_built(rule),
        };
        let condition = self.condition(&rule.condition, place)?;
        Some(Rule { condition, action })
    }

    fn choice(
        &mut self,
        choice: &Choice,
        place: Places,
        find: impl Fn(&[u8]) -> Option<usize>,
    ) -> Option<Rule<Target>> {
        let condition = self.condition(&choice.condition, place)?;
        let action = if choice.is_dynamic() {
            Target::Named(self.format(&choice.target, Use::Text, place)?)
        } else {
            Target::Fixed(find(choice.target.bytes())?) // a name that nobody has was reported before
        };
        Some(Rule { condition, action })
    }

    fn rule(&mut self, rule: &tree::Rule, place: Places) -> Option<Rule<Action>> {
        let condition = self.condition(&rule.condition, place);
        let action = self.action(rule, place)?;
        Some(Rule { condition: condition?, action })
    }

    fn action(&mut self, rule: &tree::Rule, place: Places) -> Option<Action> {
        let tree::Rule { list, action, words, condition: _, pos } = rule;
        let [name, arguments @ ..] = &words[..] else { return None };
        let request = *list != Ruleset::HttpResponse;
        let mut wrong = |pos: Pos, message: &str| {
            let keyword = format!("{} {}", list.name(), action.trim_end_matches('('));
            self.refuse.found.alert(pos, format!("'{keyword}' {message}"));
        };
        let header = |word: &Word| -> Box<[u8]> { word.bytes().into() };
        match (*action, arguments) {
            ("allow", []) => Some(Action::Allow),
            ("deny", []) => Some(Action::Deny(if request { 403 } else { 502 })),
            ("deny" | "return", _) => self.reply(rule, arguments, place),
            ("redirect", _) => {
                // The keyword of its own has no action in front.
                let arguments = if *list == Ruleset::Redirect { &words[..] } else { arguments };
                self.redirect(rule, arguments, place)
            }
            ("set-header", [name, value]) => {
                Some(Action::SetHeader(header(name), self.format(value, Use::Header, place)?))
            }
            ("add-header", [name, value]) => {
                Some(Action::AddHeader(header(name), self.format(value, Use::Header, place)?))
            }
            ("del-header", [name]) => Some(Action::DelHeader(header(name))),
            ("set-method", [value]) => Some(Action::SetMethod(self.format(value, Use::Header, place)?)),
            ("set-path", [value]) => Some(Action::SetPath(self.format(value, Use::Header, place)?)),
            ("set-pathq", [value]) => Some(Action::SetPathq(self.format(value, Use::Header, place)?)),
            ("set-query", [value]) => Some(Action::SetQuery(self.format(value, Use::Header, place)?)),
            ("set-uri", [value]) => Some(Action::SetUri(self.format(value, Use::Header, place)?)),
            ("set-status", [code, rest @ ..]) => {
                let Some(code) = code.text().and_then(|text| text.parse().ok()).filter(|c| (200..=599).contains(c))
                else {
                    wrong(code.pos(), "expects a status from 200 to 599");
                    return None;
                };
                match rest {
                    [] => Some(Action::SetStatus(code, None)),
                    [word, reason] if *word == *"reason" => Some(Action::SetStatus(code, Some(header(reason)))),
                    [word, ..] => {
                        wrong(word.pos(), "expects 'reason' and a text behind the status");
                        None
                    }
                }
            }
            ("set-var(" | "set-var-fmt(" | "unset-var(", _) => self.variable(rule, name, arguments, place),
            ("set-header" | "add-header" | "set-method" | "set-path" | "set-pathq" | "set-query" | "set-uri", _) => {
                wrong(*pos, "has not the number of arguments that it takes");
                None
            }
            _ => self.not_built(rule),
        }
    }

    /// `set-var(name) expression`, `set-var-fmt(name) format`, `unset-var(name)`
    fn variable(&mut self, rule: &tree::Rule, head: &Word, arguments: &[Word], place: Places) -> Option<Action> {
        let open = rule.action.len();
        let inside = head.bytes().get(open..).and_then(|rest| rest.strip_suffix(b")"));
        let Some(inside) = inside.filter(|inside| !inside.contains(&b',')) else {
            self.refuse.keyword(head.pos(), &format!("{} with conditions", head.shown()), "it is not built yet");
            return None;
        };
        let id = match self.compiler.variables.resolve(inside) {
            Ok(id) => id,
            Err(error) => {
                self.refuse.found.alert(head.pos_at(open + error.at), error.to_string());
                return None;
            }
        };
        match (rule.action, arguments) {
            ("unset-var(", []) => Some(Action::UnsetVar(id)),
            ("set-var-fmt(", [format]) => Some(Action::SetVarFmt(id, self.format(format, Use::Text, place)?)),
            ("set-var(", [first, ..]) => {
                let whole = Word::join(arguments, first.pos());
                // Converters may stand apart from the fetch; commas hold them together.
                let text: Vec<u8> = whole.bytes().to_vec();
                match Expression::compile(&text, place, self.compiler) {
                    Ok(expression) => Some(Action::SetVar(id, expression)),
                    Err(error) => {
                        self.refuse.found.alert(whole.pos_at(error.at), format!("expression : {error}"));
                        None
                    }
                }
            }
            _ => {
                self.refuse.found.alert(rule.pos, "a variable is set to one expression or format");
                None
            }
        }
    }

    /// `[status code] [content-type type] [string text|lf-string format] [hdr name format]...`
    fn reply(&mut self, rule: &tree::Rule, arguments: &[Word], place: Places) -> Option<Action> {
        let deny = rule.action == "deny";
        let usual = match (deny, rule.list) {
            (false, _) => 200,
            (true, Ruleset::HttpResponse) => 502,
            (true, _) => 403,
        };
        let mut reply = Reply { status: usual, content_type: Box::default(), body: None, fields: Vec::new() };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let Some(value) = words.next() else {
                self.refuse.found.alert(word.pos(), format!("'{}' expects a value", word.shown()));
                return None;
            };
            match word.bytes() {
                b"status" | b"deny_status" => {
                    let status = value.text().and_then(|text| text.parse().ok()).filter(|s| (200..=599).contains(s));
                    let Some(status) = status else {
                        self.refuse.found.alert(value.pos(), "a status is a number from 200 to 599");
                        return None;
                    };
                    reply.status = status;
                }
                b"content-type" => reply.content_type = value.bytes().into(),
                b"string" => {
                    let escaped = String::from_utf8_lossy(value.bytes()).replace('%', "%%");
                    let plain = Word::plain(escaped.into_bytes(), value.pos());
                    reply.body = Some(self.format(&plain, Use::Text, place)?);
                }
                b"lf-string" => reply.body = Some(self.format(value, Use::Text, place)?),
                b"hdr" => {
                    let Some(format) = words.next() else {
                        self.refuse.found.alert(word.pos(), "'hdr' expects a name and a format");
                        return None;
                    };
                    reply.fields.push((value.bytes().into(), self.format(format, Use::Header, place)?));
                }
                _ => {
                    let keyword = format!("{} {} {}", rule.list.name(), rule.action, word.shown());
                    self.refuse.keyword(word.pos(), &keyword, "it is not built yet");
                    return None;
                }
            }
        }
        if deny && reply.body.is_none() && reply.fields.is_empty() {
            return Some(Action::Deny(reply.status));
        }
        Some(Action::Reply(Box::new(reply)))
    }

    fn redirect(&mut self, rule: &tree::Rule, arguments: &[Word], place: Places) -> Option<Action> {
        let mut kind = None;
        let (mut code, mut drop_query, mut append_slash, mut ignore_empty) = (302, false, false, false);
        let mut cookie: Option<Box<[u8]>> = None;
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = |refuse: &mut Refuse<'_>| {
                let next = words.next();
                if next.is_none() {
                    refuse.found.alert(word.pos(), format!("'{}' expects a value", word.shown()));
                }
                next
            };
            match word.bytes() {
                b"location" | b"prefix" | b"scheme" => {
                    let how = match word.bytes() {
                        b"location" => RedirectKind::Location,
                        b"prefix" => RedirectKind::Prefix,
                        _ => RedirectKind::Scheme,
                    };
                    let target = value(self.refuse)?;
                    kind = Some((how, self.format(target, Use::Header, place)?));
                }
                b"code" => {
                    let word = value(self.refuse)?;
                    match word.text() {
                        Some(text @ ("301" | "302" | "303" | "307" | "308")) => code = text.parse().unwrap_or(302),
                        _ => {
                            self.refuse.found.alert(word.pos(), "'code' expects 301, 302, 303, 307 or 308");
                            return None;
                        }
                    }
                }
                b"drop-query" => drop_query = true,
                b"append-slash" => append_slash = true,
                b"ignore-empty" => ignore_empty = true,
                b"set-cookie" => {
                    let value = value(self.refuse)?;
                    cookie = Some([value.bytes(), b"; path=/;"].concat().into());
                }
                b"clear-cookie" => {
                    let value = value(self.refuse)?;
                    cookie = Some([value.bytes(), b"; path=/; Max-Age=0;"].concat().into());
                }
                _ => {
                    let keyword = format!("redirect {}", word.shown());
                    self.refuse.keyword(word.pos(), &keyword, "it is not built yet");
                    return None;
                }
            }
        }
        let Some((kind, target)) = kind else {
            self.refuse.found.alert(rule.pos, "'redirect' expects 'location', 'prefix' or 'scheme' and its target");
            return None;
        };
        let redirect = Redirect { kind, target, code, drop_query, append_slash, ignore_empty, cookie };
        Some(Action::Redirect(Box::new(redirect)))
    }

    fn not_built<T>(&mut self, rule: &tree::Rule) -> Option<T> {
        let action = rule.action.trim_end_matches('(');
        self.refuse.keyword(rule.pos, &format!("{} {action}", rule.list.name()), "it is not built yet");
        None
    }
}
