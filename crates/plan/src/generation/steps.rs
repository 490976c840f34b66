//! Compiles health checks: `option httpchk` and similar options, and the steps of `http-check` and
//! `tcp-check`.

use super::bind::text;
use super::refuse::Refuse;
use manylane_check::{
    Connect, ConnectTls, Expect, HttpRequest, MOST_BYTES, Pattern, PortSource, Script, Send, SendSource,
    Setting, Status, StatusRanges, Step, Text, Value, http, ldap, mysql, pgsql, redis, smtp, spop, tcp, tls,
};
use manylane_config::lex::Word;
use manylane_config::table::OptionSwitch;
use manylane_config::tree::{Proxy, Settings, Statement};
use manylane_expr::{
    Compiler, EvalPoints, Expression, Format, Regex, Scope, SetConditions, Use, choice, guess, none_of,
    regex_fault,
};
use manylane_h1::Leniency;
use manylane_net::address::{Host, Location, Port};
use manylane_net::{Address, Rules};
use std::net::{IpAddr, SocketAddr};

/// Compiles the health check of a proxy.
pub(super) fn script(proxy: &Proxy, compiler: &mut Compiler<'_>, refuse: &mut Refuse<'_>) -> Script {
    let settings = &proxy.settings;
    let kind = settings.check_kind.as_ref();
    let of = |family: &'static str| {
        settings.check_steps.iter().filter(move |step| step.keyword.starts_with(family))
    };
    let (wanted, unused) = match kind.map_or("", |kind| kind.keyword) {
        "option httpchk" => ("http-check", Some("tcp-check")),
        "option tcp-check" => ("tcp-check", Some("http-check")),
        _ => ("", None),
    };
    // Steps of `defaults` may be for other proxies: no warning.
    let idle = settings.check_steps.iter().filter(|step| match unused {
        Some(unused) => step.keyword.starts_with(unused),
        None => true,
    });
    let idle: Vec<&Statement> = idle.filter(|step| step.pos >= proxy.pos).collect();
    // They are compiled for their errors.
    let [http, tcp]: [Vec<&Statement>; 2] = ["http-check", "tcp-check"]
        .map(|of| idle.iter().filter(|step| step.keyword.starts_with(of)).copied().collect());
    http_steps(HttpRequest::default(), http.into_iter(), None, compiler, refuse);
    tcp_script(tcp.into_iter(), compiler, refuse);
    for step in &idle {
        let option =
            if step.keyword.starts_with("http-check") { "option httpchk" } else { "option tcp-check" };
        if settings.is_refused(option) || refuse.found.has_error_in_line(step.pos) {
            continue;
        }
        let message = format!(
            "'{}' has no effect here: '{option}' is missing, or a later line sets another kind of check",
            step.keyword
        );
        refuse.found.warning(step.pos, message);
    }
    if let Some(set) = &settings.disable_on_404
        && set.pos >= proxy.pos
        && wanted != "http-check"
    {
        refuse.idle(
            &settings.disable_on_404,
            "http-check disable-on-404",
            "'option httpchk' is missing, or a later line sets another kind of check",
        );
    }
    let Some(kind) = kind else { return Script::connect() };
    match kind.keyword {
        "option redis-check" => redis::script(),
        "option mysql-check" => mysql_script(kind, refuse),
        "option pgsql-check" => pgsql_script(kind, refuse),
        "option smtpchk" => smtp_script(kind),
        "option ldap-check" => ldap::script(),
        "option spop-check" => spop::script(),
        "option ssl-hello-chk" => tls::script(),
        "option external-check" => Script::connect(), // the program runs in its place
        "option tcp-check" => tcp_script(of(wanted), compiler, refuse),
        _ => {
            let with = OfHttp {
                send_state: settings.send_state.is_some(),
                disable_on_404: settings.disable_on_404.is_some(),
                lenient: super::http::leniency(settings, settings.option(OptionSwitch::UNSAFE_RESPONSES)),
            };
            http_script(kind, of(wanted), &with, compiler, refuse)
        }
    }
}

/// Serializes the configuration of the check. Equal results mean equal scripts.
pub(super) fn wording(settings: &Settings) -> Vec<u8> {
    let mut wording = Vec::new();
    for line in settings.check_kind.iter().chain(&settings.check_steps) {
        for word in std::iter::once(line.keyword.as_bytes()).chain(line.words.iter().map(Word::bytes)) {
            wording.extend(word.len().to_ne_bytes());
            wording.extend(word);
        }
        wording.push(b'\n');
    }
    let switches = [
        settings.send_state.is_some(),
        settings.disable_on_404.is_some(),
        settings.option(OptionSwitch::UNSAFE_RESPONSES),
        settings.option(OptionSwitch::HTTP_STRICT_FRAMING),
    ];
    wording.extend(switches.map(u8::from));
    wording
}

/// Returns the name behind the word `user`.
fn user<'w>(kind: &'w Statement, most: usize, refuse: &mut Refuse<'_>) -> &'w [u8] {
    let mut wrong = |pos, why: String| refuse.found.alert(pos, format!("'{}' {why}", kind.keyword));
    match &kind.words[..] {
        [word, user, ..] if *word == "user" => {
            let name = user.bytes();
            if name.is_empty() || name.len() > most || name.contains(&0) {
                wrong(
                    user.pos(),
                    format!(
                        "expects a user's name of 1 to {most} bytes without a zero byte, found '{}'",
                        user.shown()
                    ),
                );
                return b"";
            }
            name
        }
        [word, ..] if *word != "user" => {
            wrong(word.pos(), format!("expects user <name>, found '{}'", word.shown()));
            b""
        }
        _ => {
            wrong(
                kind.pos,
                format!(
                    "expects user <name>, found {}",
                    if kind.words.is_empty() { "none" } else { "1 argument" }
                ),
            );
            b""
        }
    }
}

fn mysql_script(kind: &Statement, refuse: &mut Refuse<'_>) -> Script {
    if kind.words.is_empty() {
        return mysql::script(None);
    }
    let login = match kind.words.get(2) {
        Some(word) if *word == "pre-41" => mysql::Login::Pre41,
        Some(word) if *word != "post-41" => {
            let message =
                format!("'{}' expects 'post-41' or 'pre-41', found '{}'", kind.keyword, word.shown());
            refuse.found.alert(word.pos(), message);
            mysql::Login::Post41
        }
        _ => mysql::Login::Post41,
    };
    mysql::script(Some((user(kind, mysql::LONGEST_USER, refuse), login)))
}

fn pgsql_script(kind: &Statement, refuse: &mut Refuse<'_>) -> Script {
    pgsql::script(user(kind, pgsql::LONGEST_USER, refuse))
}

/// As in HAProxy, invalid arguments select the default greeting.
fn smtp_script(kind: &Statement) -> Script {
    match &kind.words[..] {
        [hello, name]
            if (*hello == "HELO" || *hello == "EHLO") && !name.bytes().iter().any(u8::is_ascii_control) =>
        {
            smtp::script(hello.bytes(), name.bytes())
        }
        _ => smtp::script(b"HELO", b"localhost"),
    }
}

/// Settings of HTTP checks outside of their steps.
struct OfHttp {
    send_state: bool,
    disable_on_404: bool,
    lenient: Leniency,
}

/// Reads the arguments of a step in order.
struct TextSource<'w, 'r, 'c, 'f> {
    step: &'w Statement,
    at: usize,
    compiler: &'r mut Compiler<'c>,
    refuse: &'r mut Refuse<'f>,
}

impl<'w, 'r, 'c, 'f> TextSource<'w, 'r, 'c, 'f> {
    fn new(step: &'w Statement, compiler: &'r mut Compiler<'c>, refuse: &'r mut Refuse<'f>) -> Self {
        Self { step, at: 0, compiler, refuse }
    }

    fn next(&mut self) -> Option<&'w Word> {
        let word = self.step.words.get(self.at);
        self.at += 1;
        word
    }

    /// Returns the next word; reports an error if there is none.
    fn value(&mut self, of: &str) -> Option<&'w Word> {
        let word = self.next();
        if word.is_none() {
            let pos = self.step.words.last().map_or(self.step.pos, |word| word.pos_at(usize::MAX));
            let message = format!("'{}' : '{of}' expects a value, found none", self.step.keyword);
            self.refuse.found.alert(pos, message);
        }
        word
    }

    fn wrong(&mut self, word: &Word, why: &str) {
        self.wrong_at(word, 0, why);
    }

    /// Reports an error at a byte of a word.
    fn wrong_at(&mut self, word: &Word, at: usize, why: &str) {
        self.refuse.found.alert(word.pos_at(at), format!("'{}' : {why}", self.step.keyword));
    }

    /// Reports that option `of` expects `what`.
    fn expects(&mut self, word: &Word, of: &str, what: &str) {
        self.wrong(word, &format!("'{of}' expects {what}, found '{}'", word.shown()));
    }

    /// Reports a word that is none of the arguments `known`.
    fn unknown(&mut self, word: &Word, known: &[&str]) {
        let message = none_of(self.step.keyword, known.iter().copied(), word.bytes());
        self.refuse.found.alert(word.pos(), message);
    }

    /// Reports a word behind a text to send that is none of the arguments `known`. The word is shown only if
    /// it is a misspelt argument: it may belong to a text with blanks, which may be a secret.
    fn further(&mut self, word: &Word, known: &[&str]) {
        if !guess(word.bytes(), known.iter().copied()).is_empty() {
            return self.unknown(word, known);
        }
        let known = choice(known);
        self.wrong(word, &format!("expected {known}, found another word: a text with blanks needs quotes"));
    }

    fn comment(&mut self) -> Option<Box<str>> {
        self.value("comment").map(text)
    }

    /// Compiles the next word as a format.
    fn format(&mut self, of: &str, usage: Use) -> Option<Format> {
        let word = self.value(of)?;
        self.format_of(word, usage)
    }

    fn format_of(&mut self, word: &Word, usage: Use) -> Option<Format> {
        match Format::compile(word.bytes(), usage, EvalPoints::CHECK, self.compiler) {
            Ok(format) => Some(format),
            Err(error) => {
                self.refuse.found.alert(word.pos_at(error.at), format!("'{}' : {error}", self.step.keyword));
                None
            }
        }
    }

    /// Compiles the next word as a format; constant formats become text.
    fn words(&mut self, of: &str, usage: Use) -> Option<manylane_check::TextSource> {
        let format = self.format(of, usage)?;
        Some(match format.constant() {
            Some(text) => text.into(),
            None => manylane_check::TextSource::Format(format),
        })
    }

    /// Compiles an expression: the next word, or all remaining words.
    fn expression(&mut self, of: &str, all: bool) -> Option<Expression> {
        let first = self.value(of)?;
        let whole =
            if all { Word::join(&self.step.words[self.at - 1..], first.pos()) } else { first.clone() };
        match Expression::compile(whole.bytes(), EvalPoints::CHECK, self.compiler) {
            Ok(expression) => Some(expression),
            Err(error) => {
                self.refuse.found.alert(whole.pos_at(error.at), format!("'{}' : {error}", self.step.keyword));
                None
            }
        }
    }

    /// Reads `connect`.
    fn connect(&mut self, number: usize) -> Connect {
        let http = self.step.keyword.starts_with("http");
        let mut made = Connect { number, ..Connect::default() };
        let (mut tls, mut of_tls) = (None::<ConnectTls>, None);
        while let Some(word) = self.next() {
            match word.bytes() {
                b"default" => made.own = true,
                b"send-proxy" => made.header = true,
                b"linger" => made.linger = true,
                b"comment" => made.comment = self.comment(),
                b"port" => made.port = self.port(),
                b"addr" => made.address = self.address(),
                b"proto" => {
                    let Some(value) = self.value("proto") else { break };
                    match (value.bytes(), http) {
                        (b"h1", true) => made.http2 = Some(false),
                        (b"h2", true) => made.http2 = Some(true),
                        (b"none", false) => {}
                        _ => self.expects(value, "proto", if http { "h1 or h2" } else { "none" }),
                    }
                }
                b"ssl" => drop(tls.get_or_insert_default()),
                b"sni" | b"alpn" => {
                    let of = if *word == *"sni" { "sni" } else { "alpn" };
                    let Some(value) = self.value(of) else { break };
                    let value = Some(text(value));
                    let (own, slot): (&mut ConnectTls, _) = (of_tls.get_or_insert_default(), of == "sni");
                    if slot { own.name = value } else { own.protocols = value }
                }
                b"via-socks4" => made.via_socks4 = true,
                _ => {
                    self.unknown(word, CONNECT_OPTIONS);
                    break;
                }
            }
        }
        // As in HAProxy, they have no effect without 'ssl'.
        made.tls = tls.map(|none| of_tls.unwrap_or(none));
        made
    }

    /// Reads a port: a number, or an expression.
    fn port(&mut self) -> Option<PortSource> {
        let value = self.value("port")?;
        if value.bytes().iter().all(u8::is_ascii_digit) {
            let port = value.text().and_then(|text| text.parse().ok()).filter(|port| *port != 0);
            if port.is_none() {
                self.expects(value, "port", "a number from 1 to 65535, or an expression");
            }
            return port.map(PortSource::Fixed);
        }
        self.at -= 1;
        self.expression("port", false).map(|expression| PortSource::Of(Box::new(expression)))
    }

    /// Reads an IP address with an optional port.
    fn address(&mut self) -> Option<SocketAddr> {
        let value = self.value("addr")?;
        let address = value
            .text()
            .and_then(|text| Address::parse(text, &Rules::SERVER).ok())
            .and_then(|address| address.resolve().ok());
        let found = match address {
            Some(Address { location: Location::Ip { host, port }, .. }) => {
                let ip: Option<IpAddr> = match host {
                    Host::V4(ip) => Some(ip.into()),
                    Host::V6(ip) => Some(ip.into()),
                    _ => None,
                };
                let port = if let Port::One(port) = port { port } else { 0 };
                ip.map(|ip| (ip, port).into())
            }
            _ => None,
        };
        if found.is_none() {
            self.expects(value, "addr", "<ip>[:<port>]");
        }
        found
    }

    /// Reads `set-var(name,condition...)`, `set-var-fmt` or `unset-var`.
    fn setting(&mut self) -> Option<Setting> {
        let head = self.next()?;
        let open = head.bytes().iter().position(|byte| *byte == b'(')? + 1;
        let Some(inside) = head.bytes()[open..].strip_suffix(b")") else {
            self.wrong(head, &format!("expected a variable in parentheses, found '{}'", head.shown()));
            return None;
        };
        let mut parts = inside.split(|byte| *byte == b',');
        let id = match self.compiler.variables.resolve(parts.next().unwrap_or_default()) {
            Ok(id) => id,
            Err(error) => {
                self.refuse
                    .found
                    .alert(head.pos_at(open + error.at), format!("'{}' : {error}", self.step.keyword));
                return None;
            }
        };
        if !matches!(id.scope, Scope::Check | Scope::Process | Scope::Session) {
            // As in HAProxy.
            let message = format!(
                "'{}' has no effect here: checks have variables of the scopes check, sess and proc, found \
                    '{}'",
                self.step.keyword,
                manylane_config::Shown(inside)
            );
            self.refuse.note(head.pos(), message);
        }
        let mut when = SetConditions::ALWAYS;
        for part in parts {
            when = match when.with(part) {
                Ok(when) => when,
                Err(why) => {
                    self.wrong(head, &why);
                    return None;
                }
            };
        }
        let to = if self.step.keyword.ends_with("unset-var") {
            Value::Nothing
        } else if self.step.keyword.ends_with("-fmt") {
            Value::Format(self.format("a format", Use::Text)?)
        } else {
            let expression = self.expression("an expression", true)?;
            self.at = self.step.words.len();
            Value::Of(Box::new(expression))
        };
        self.end();
        Some(Setting { id, when, to })
    }

    /// Reports an error if a word follows.
    fn end(&mut self) {
        if let Some(word) = self.next() {
            let (name, found) = (self.step.keyword, word.shown());
            let message = format!("'{name}' expects no further argument, found '{found}'");
            self.refuse.found.alert(word.pos(), message);
        }
    }

    /// Reads `tcp-check send` and its variants.
    fn send(&mut self, number: usize) -> Option<Step> {
        let what = match self.step.keyword {
            "tcp-check send-lf" => SendSource::Format(self.format("a format", Use::Text)?),
            "tcp-check send-binary-lf" => SendSource::Hex(self.format("a format", Use::Text)?),
            keyword => {
                let word = self.value("data")?;
                let bytes = if keyword == "tcp-check send" {
                    Ok(word.bytes().into())
                } else {
                    tcp::from_hex(word.bytes())
                };
                match bytes {
                    Ok(bytes) => SendSource::Bytes(bytes),
                    Err(why) => {
                        self.wrong(word, &why);
                        return None;
                    }
                }
            }
        };
        let mut comment = None;
        while let Some(word) = self.next() {
            match word.bytes() {
                b"comment" => comment = self.comment(),
                _ => {
                    self.further(word, &["comment"]);
                    break;
                }
            }
        }
        Some(Step::Send(Send { what, comment, number }))
    }

    /// Reads `http-check send`.
    fn request(&mut self, mut request: HttpRequest) -> HttpRequest {
        while let Some(word) = self.next() {
            match word.bytes() {
                b"meth" => {
                    request.method = self.value("meth").map_or(request.method, |word| word.bytes().into())
                }
                b"uri" => request.uri = self.value("uri").map_or(request.uri, |word| word.bytes().into()),
                b"body" => request.body = self.value("body").map_or(request.body, |word| word.bytes().into()),
                b"uri-lf" => request.uri = self.words("uri-lf", Use::Header).unwrap_or(request.uri),
                b"body-lf" => request.body = self.words("body-lf", Use::Bytes).unwrap_or(request.body),
                b"comment" => drop(self.value("comment")),
                b"ver" => {
                    if let Some(value) = self.value("ver")
                        && let Err(why) = request.set_version(value.bytes())
                    {
                        self.wrong(value, &why);
                    }
                }
                b"hdr" => {
                    let Some(name) = self.value("hdr") else { break };
                    let Some(value) = self.words("hdr", Use::Header) else { break };
                    let added = match value.fixed() {
                        Some(text) => request.add(name.bytes(), text),
                        None => request.add_words(name.bytes(), value),
                    };
                    if let Err(why) = added {
                        self.wrong(name, &why);
                    }
                }
                _ => {
                    self.further(word, SEND_OPTIONS);
                    break;
                }
            }
        }
        request
    }

    /// Reads `http-check expect` or `tcp-check expect`.
    fn expect(&mut self, number: usize, named: &Option<Box<str>>) -> Option<Expect> {
        let http = self.step.keyword.starts_with("http");
        let mut made =
            Expect { comment: named.clone(), ..Expect::new(Pattern::Bytes(Box::default()), number) };
        let known = if http {
            &["status", "rstatus", "string", "rstring", "string-lf", "hdr", "fhdr"][..]
        } else {
            &["string", "rstring", "string-lf", "binary", "rbinary", "binary-lf"]
        };
        let mut pattern = None;
        // Options may stand before or after the pattern.
        while pattern.is_none() || self.at < self.step.words.len() {
            let word = self.value("a pattern")?;
            match word.bytes() {
                b"comment" => made.comment = self.comment(),
                b"min-recv" => made.least = self.least(),
                b"ok-status" => made.ok = self.status("ok-status", OK_STATUSES),
                b"error-status" => made.error = self.status("error-status", ERROR_STATUSES),
                b"tout-status" => made.timeout = self.status("tout-status", TIMEOUT_STATUSES),
                b"on-success" => made.on_success = self.words("on-success", Use::Text),
                b"on-error" => made.on_error = self.words("on-error", Use::Text),
                b"status-code" => made.code = self.expression("status-code", false).map(Box::new),
                b"!" if pattern.is_none() => made.negated = !made.negated,
                whole => {
                    let name = match whole.strip_prefix(b"!") {
                        Some(name) if pattern.is_none() => {
                            made.negated = !made.negated;
                            name
                        }
                        _ => whole,
                    };
                    if pattern.is_some() {
                        let message = format!(
                            "expected one word as the pattern, found '{}' behind it; quote the pattern, or \
                                put \
                                backslashes before its spaces",
                            word.shown()
                        );
                        self.wrong(word, &message);
                        return None;
                    }
                    if !known.iter().any(|known| known.as_bytes() == name) {
                        let known = known.iter().copied();
                        let message = none_of(self.step.keyword, known, name);
                        self.refuse.found.alert(word.pos(), message);
                        return None;
                    }
                    pattern = Some(match name {
                        b"hdr" | b"fhdr" => self.field(name == b"fhdr")?,
                        b"string-lf" => Pattern::Made(self.format("string-lf", Use::Text)?),
                        b"binary-lf" => Pattern::MadeHex(self.format("binary-lf", Use::Text)?),
                        _ => self.pattern(word, name)?,
                    });
                }
            }
        }
        made.pattern = pattern?;
        Some(made)
    }

    /// Reads a pattern that is one word.
    fn pattern(&mut self, word: &Word, name: &[u8]) -> Option<Pattern> {
        let value = self.value(word.text().unwrap_or_default())?;
        let bytes = value.bytes();
        let pattern = match name {
            b"status" => StatusRanges::read(bytes).map(Pattern::Status),
            b"rstatus" => Regex::new(bytes, false).map(Pattern::StatusRegex),
            b"rstring" => Regex::new(bytes, false).map(Pattern::Regex),
            b"binary" => tcp::from_hex(bytes).map(Pattern::Binary),
            b"rbinary" => Regex::new(bytes, false).map(Pattern::HexRegex),
            _ if bytes.is_empty() => {
                Err("expected a pattern, found an empty one, which would match everything".into())
            }
            _ => Ok(Pattern::Bytes(bytes.into())),
        };
        let at = if matches!(name, b"rstatus" | b"rstring" | b"rbinary") { regex_fault(bytes) } else { 0 };
        pattern.map_err(|why| self.wrong_at(value, at, &why)).ok()
    }

    /// Reads `min-recv`; -1 means that it is not set.
    fn least(&mut self) -> Option<usize> {
        let value = self.value("min-recv")?;
        match value.text().and_then(|text| text.parse::<i64>().ok()) {
            Some(-1) => None,
            Some(bytes) if (0..=MOST_BYTES as i64).contains(&bytes) => Some(bytes as usize),
            _ => {
                self.expects(value, "min-recv", &format!("-1, or a number of bytes up to {MOST_BYTES}"));
                None
            }
        }
    }

    /// Reads one of the statuses `some`.
    fn status(&mut self, of: &str, some: &[Status]) -> Option<Status> {
        let value = self.value(of)?;
        let status = Status::by_name(value.bytes()).filter(|status| some.contains(status));
        if status.is_none() {
            let names: Vec<&str> = some.iter().map(|status| status.name()).collect();
            self.expects(value, of, &format!("one of {}", names.join(", ")));
        }
        status
    }

    /// Reads the pattern of `hdr` or `fhdr`.
    fn field(&mut self, whole: bool) -> Option<Pattern> {
        let word = self.value("name")?;
        let name = match word.bytes() {
            b"name" => self.compared("name", true, false)?,
            b"name-lf" => self.compared("name-lf", true, true)?,
            _ => {
                self.expects(word, if whole { "fhdr" } else { "hdr" }, "name or name-lf");
                return None;
            }
        };
        let value = match self.step.words.get(self.at) {
            Some(word) if *word == "value" || *word == "value-lf" => {
                self.at += 1;
                let is_format = *word == "value-lf";
                Some(self.compared(if is_format { "value-lf" } else { "value" }, false, is_format)?)
            }
            _ => None,
        };
        Some(Pattern::Field { name, value, whole })
    }

    /// Reads a pattern of a name or value. Names are compared without case.
    fn compared(&mut self, of: &str, is_name: bool, is_format: bool) -> Option<Text> {
        let mut how = None;
        if self.step.words.get(self.at).is_some_and(|word| *word == "-m") {
            self.at += 1;
            how = Some(self.value("-m")?);
        }
        let method = how.map_or(&b"str"[..], |how| how.bytes());
        let word = self.value(of)?;
        if word.bytes().is_empty() {
            self.expects(word, of, "a pattern");
            return None;
        }
        if method == b"reg" && !is_format {
            return Regex::new(word.bytes(), is_name)
                .map_err(|why| self.wrong_at(word, regex_fault(word.bytes()), &why))
                .ok()
                .map(Text::Matches);
        }
        let words = if is_format {
            self.at -= 1;
            self.words(of, Use::Text)?
        } else {
            word.bytes().into()
        };
        match method {
            b"str" => Some(Text::Is(words)),
            b"beg" => Some(Text::Begins(words)),
            b"end" => Some(Text::Ends(words)),
            b"sub" => Some(Text::Has(words)),
            b"reg" => {
                let plain = &of[..of.len() - 3];
                self.expects(
                    how.unwrap_or(word),
                    "-m",
                    &format!("str, beg, end or sub before a format (or '{plain}')"),
                );
                None
            }
            _ => {
                self.expects(how.unwrap_or(word), "-m", "str, beg, end, sub or reg");
                None
            }
        }
    }
}

/// Options of `connect`.
const CONNECT_OPTIONS: &[&str] = &[
    "addr",
    "alpn",
    "comment",
    "default",
    "linger",
    "port",
    "proto",
    "send-proxy",
    "sni",
    "ssl",
    "via-socks4",
];

/// Options of `http-check send`.
const SEND_OPTIONS: &[&str] = &["body", "body-lf", "comment", "hdr", "meth", "uri", "uri-lf", "ver"];

/// Statuses that each option of `expect` accepts.
const OK_STATUSES: &[Status] = &[Status::L7Ok, Status::L7OkC, Status::L6Ok, Status::L4Ok];
const ERROR_STATUSES: &[Status] =
    &[Status::L7OkC, Status::L7Rsp, Status::L7Sts, Status::L6Rsp, Status::L4Con];
const TIMEOUT_STATUSES: &[Status] = &[Status::L7Tout, Status::L6Tout, Status::L4Tout];

/// Reports an error and returns true if `step` connects, but the first step other than `set-var` does not:
/// then an implicit connection comes before the first explicit one.
fn connects_late(step: &Statement, made: &[Step], refuse: &mut Refuse<'_>) -> bool {
    let first = made.iter().find(|step| !matches!(step, Step::Set(_)));
    let late =
        step.keyword.ends_with(" connect") && first.is_some_and(|first| !matches!(first, Step::Connect(_)));
    if late {
        let message = format!("'{0}' expects '{0}' as the first step, found another one", step.keyword);
        refuse.found.alert(step.pos, message);
    }
    late
}

/// Applies a comment to the next steps, up to one that connects or sets a variable.
fn commented(step: &mut Step, named: &mut Option<Box<str>>) {
    match step {
        Step::Connect(connect) => connect.comment = connect.comment.take().or_else(|| named.take()),
        Step::Send(send) => send.comment = send.comment.take().or_else(|| named.clone()),
        Step::Expect(_) => {} // set by `expect`
        Step::Set(_) => *named = None,
    }
}

fn tcp_script<'p>(
    steps: impl Iterator<Item = &'p Statement>,
    compiler: &mut Compiler<'_>,
    refuse: &mut Refuse<'_>,
) -> Script {
    let (mut made, mut named): (Vec<Step>, Option<Box<str>>) = (Vec::new(), None);
    for (number, step) in steps.enumerate() {
        if connects_late(step, &made, refuse) {
            continue;
        }
        let mut words = TextSource::new(step, compiler, refuse);
        let step = match step.keyword {
            "tcp-check comment" => {
                named = words.next().map(text);
                None
            }
            "tcp-check connect" => Some(Step::Connect(words.connect(number + 1))),
            "tcp-check expect" => words.expect(number + 1, &named).map(Step::expect),
            "tcp-check set-var" | "tcp-check set-var-fmt" | "tcp-check unset-var" => {
                words.setting().map(Step::Set)
            }
            _ => words.send(number + 1),
        };
        if let Some(mut step) = step {
            commented(&mut step, &mut named);
            made.push(step);
        }
    }
    Script::new(made)
}

fn http_script<'p>(
    kind: &Statement,
    steps: impl Iterator<Item = &'p Statement>,
    with: &OfHttp,
    compiler: &mut Compiler<'_>,
    refuse: &mut Refuse<'_>,
) -> Script {
    let mut first = HttpRequest { state: with.send_state, ..HttpRequest::default() };
    match &kind.words[..] {
        [] => {}
        [uri] => first.uri = uri.bytes().into(),
        [method, uri, more @ ..] => {
            (first.method, first.uri) = (method.bytes().into(), uri.bytes().into());
            if let Some(version) = more.first()
                && let Err(why) = first.set_version(version.bytes())
            {
                refuse.found.alert(version.pos(), format!("'option httpchk' : {why}"));
            }
            if let Some(host) = more.get(1) {
                let mut words = TextSource::new(kind, compiler, refuse);
                let made = words.format_of(host, Use::Header).map(|format| match format.constant() {
                    Some(text) => first.add(b"host", text),
                    None => first.add_words(b"host", manylane_check::TextSource::Format(format)),
                });
                if let Some(Err(why)) = made {
                    words.wrong(host, &why);
                }
            }
        }
    }
    check_line(&first, kind, refuse);
    let made = http_steps(first, steps, Some(with), compiler, refuse);
    http::script(made, with.disable_on_404, with.lenient)
}

/// Compiles `http-check` steps behind the request of the option, which `http-check send` may change. Without
/// the option, steps are only parsed: as in HAProxy, those that are missing are no error.
fn http_steps<'p>(
    first: HttpRequest,
    steps: impl Iterator<Item = &'p Statement>,
    with: Option<&OfHttp>,
    compiler: &mut Compiler<'_>,
    refuse: &mut Refuse<'_>,
) -> Vec<Step> {
    let new = || HttpRequest { state: with.is_some_and(|with| with.send_state), ..HttpRequest::default() };
    let (mut made, mut named): (Vec<Step>, Option<Box<str>>) = (Vec::new(), None);
    let mut implied = Some(first);
    for (number, step) in steps.enumerate() {
        // The last step that is not `set-var`.
        let before = made.iter().rev().find(|step| !matches!(step, Step::Set(_)));
        let sequence = match (step.keyword, before) {
            ("http-check connect", Some(Step::Connect(_) | Step::Send(_))) => Some("expect"),
            // A connection carries one request.
            ("http-check send", Some(Step::Send(_) | Step::Expect(_))) => Some("connect"),
            // `expect` after `expect` looks at the same response.
            ("http-check expect", Some(Step::Connect(_))) => Some("send"),
            _ => None,
        };
        if let Some(missing) = sequence.filter(|_| with.is_some()) {
            let message =
                format!("'{}' expects an 'http-check {missing}' before it, found none", step.keyword);
            refuse.found.alert(step.pos, message);
            continue;
        }
        if connects_late(step, &made, refuse) {
            continue;
        }
        let mut words = TextSource::new(step, compiler, refuse);
        let made_of = match step.keyword {
            "http-check comment" => {
                named = words.next().map(text);
                None
            }
            "http-check connect" => Some(Step::Connect(words.connect(number + 1))),
            "http-check set-var" | "http-check set-var-fmt" | "http-check unset-var" => {
                words.setting().map(Step::Set)
            }
            "http-check send" => {
                let request = words.request(implied.take().unwrap_or_else(new));
                if with.is_some() {
                    check_line(&request, step, words.refuse);
                }
                Some(request.step())
            }
            _ => {
                if let Some(request) = implied.take() {
                    made.push(request.step());
                }
                words.expect(number + 1, &named).map(Step::expect)
            }
        };
        if let Some(mut step) = made_of {
            commented(&mut step, &mut named);
            made.push(step);
        }
    }
    if let Some(request) = implied {
        let connects = made.iter().position(|step| matches!(step, Step::Connect(_)));
        made.insert(connects.map_or(made.len(), |at| at + 1), request.step());
    }
    made
}

/// Reports an error if method or URI would break the request line.
fn check_line(request: &HttpRequest, step: &Statement, refuse: &mut Refuse<'_>) {
    let bad = |bytes: &[u8]| bytes.is_empty() || bytes.iter().any(|byte| *byte <= b' ' || *byte == 0x7f);
    if bad(&request.method) || request.uri.fixed().is_some_and(bad) {
        let message = format!(
            "'{}' expects a method and a URI without spaces and control characters, found '{}'",
            step.keyword,
            manylane_config::Shown(if bad(&request.method) {
                &request.method
            } else {
                request.uri.fixed().unwrap_or_default()
            })
        );
        refuse.found.alert(step.pos, message);
    }
}
