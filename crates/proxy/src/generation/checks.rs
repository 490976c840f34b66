//! Health checks of servers: what the file says of them.

use super::bind::text;
use super::refuse::Refuse;
use super::server::{SendHeader, Server, ServerPlace};
use super::site::Site;
use super::Process;
use super::agent::Aims;
use super::bell::Bell;
use super::observe::Observed;
use manylane_check::{
    Board, Expect, Health, HttpRequest, Init, MOST_BYTES, Pace, Pattern, Script, Status, StatusRanges, Step, Text, http, ldap, mysql, pgsql,
    redis, smtp, tcp, tls,
};
use manylane_config::lex::Word;
use manylane_config::table::{ServerOptions, Timeout, Toggle};
use manylane_config::tree::{Proxy, Set, Statement};
use manylane_expr::Regex;
use manylane_net::address::{Host, Place, Port};
use manylane_net::{Address, ConnectOptions, Endpoint, Present, Rules};
use manylane_sched::Time;
use manylane_sync::Arc;
use manylane_sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a server is checked, and what came of it.
#[derive(Debug)]
pub struct ServerCheck {
    /// What is said and expected.
    pub script: Arc<Script>,
    /// Where its connections go, unless it follows the server.
    pub place: ServerPlace,
    /// They go where the server is.
    pub follows: Option<Follows>,
    /// Its line says at which address: `addr`, `agent-addr`.
    pub has_address: bool,
    /// Options of its connections.
    pub connect: ConnectOptions,
    /// What its connections begin with.
    pub header: Option<SendHeader>,
    /// A header of version 2 says that it relays for somebody, which is itself: for servers that know nothing else.
    pub relays: bool,
    /// When.
    pub pace: Pace,
    /// How long.
    pub patience: Patience,
    /// `option log-health-checks`
    pub log: bool,
    /// `observe`
    pub observed: Option<Observed>,
    /// The latest.
    pub board: Board,
    /// What was set at run time.
    pub aims: Aims,
    /// Wakes who checks it: something else is to be done than to wait.
    pub bell: Bell,
    /// When it is made next.
    pub due: Due,
}

/// A check that goes where its server is.
#[derive(Clone, Debug)]
pub struct Follows {
    /// Where that is.
    pub site: Arc<Site>,
    /// `port`
    pub port: Option<u16>,
}

impl PartialEq for Follows {
    fn eq(&self, other: &Self) -> bool {
        self.port == other.port
    }
}

impl Follows {
    /// There.
    pub(crate) fn place(&self, first: &ServerPlace) -> ServerPlace {
        if self.site.word() >> 1 == 0 {
            return first.clone(); // it has not moved
        }
        let known = self.site.read();
        let port = match known.port {
            Port::One(port) => Some(port),
            _ => None,
        };
        match (known.ip(), self.port.or(port)) {
            (Some(ip), Some(port)) => ServerPlace::At(Endpoint::Ip((ip, port).into())),
            (Some(ip), None) => match first {
                ServerPlace::At(Endpoint::Ip(was)) => ServerPlace::At(Endpoint::Ip((ip, was.port()).into())),
                _ => ServerPlace::Nowhere,
            },
            (None, _) => ServerPlace::Nowhere,
        }
    }
}

/// How long a check may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// All of it: `inter`.
    Whole(Duration),
    /// With `timeout check`: until it is connected, and each answer.
    Parts {
        /// The shorter of `timeout connect` and `inter`.
        connect: Duration,
        /// `timeout check`
        answer: Duration,
    },
}

/// When the next check of a server is due: a generation that takes another's place with the same server goes on there.
#[derive(Debug, Default)]
pub struct Due(AtomicU64);

impl Due {
    pub(crate) fn set(&self, at: Time) {
        self.0.store(at.as_nanos().max(1), Ordering::Relaxed); // one lane checks the server
    }

    /// How long that is from `now`; nothing when no check was made yet.
    pub(crate) fn wait(&self, now: Time) -> Option<Duration> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            due => Some(Time::from_nanos(due).since(now)),
        }
    }
}

/// Gives the servers of a backend their checks.
pub(super) fn checks(proxy: &Proxy, process: &Process, servers: &mut [Server], refuse: &mut Refuse<'_>) {
    let script = Arc::new(script(proxy, refuse));
    for (line, server) in proxy.servers.iter().zip(servers) {
        let ServerOptions { check, check_send_proxy, addr, port, inter, fastinter, downinter, rise, fall, init_state, .. } =
            &line.options;
        if !check.is_some_and(|set| set.value) {
            refuse.idle(&line.options.observe, "observe", "the server is not checked, so its errors do not count");
            continue;
        }
        let settings = &proxy.settings;
        let time = |set: &Option<Set<Duration>>| set.map(|set| set.value);
        let inter = time(inter).unwrap_or(Pace::USUAL).max(Pace::SHORTEST);
        let connect = settings.timeout(Timeout::Connect).filter(|time| !time.is_zero()).unwrap_or(inter).min(inter);
        let elsewhere = addr.is_some() || port.is_some();
        let init = match init_state.map(|set| set.value) {
            Some("fully-up") => Init::FullyUp,
            Some("down") => Init::Down,
            Some("fully-down") => Init::FullyDown,
            _ => Init::Up,
        };
        let count = |set: &Option<Set<u32>>, usual| set.map_or(usual, |set| set.value);
        let health = Health::new(count(rise, 2), count(fall, 3), init);
        let mut options = server.connect.clone();
        options.fast_open = false; // it would say that it is connected before it is
        if let Some(source) = &mut options.source {
            // There is no client whose address could be shown.
            source.present = source.present.filter(|present| matches!(present, Present::Address(_)));
        }
        let port = port.map(|set| set.value);
        server.check = Some(ServerCheck {
            script: script.clone(),
            has_address: addr.is_some(),
            place: place(server, addr.as_ref(), port, &script, line.pos, refuse),
            follows: (addr.is_none() && !matches!(server.stays, Some("it is no IP address"))).then(|| Follows { site: server.site.clone(), port }),
            connect: options,
            // What is checked elsewhere is not the service, so it is not spoken to like it, unless the file says so.
            header: match check_send_proxy.map(|set| set.value) {
                Some(true) => server.header.or(Some(SendHeader::default())),
                Some(false) => None,
                None => server.header.filter(|_| !elsewhere),
            },
            relays: process.never_local,
            pace: Pace {
                inter,
                fast: time(fastinter).unwrap_or(inter),
                down: time(downinter).unwrap_or(inter),
                spread: process.spread_checks,
            },
            patience: match settings.timeout(Timeout::Check).filter(|time| !time.is_zero()) {
                Some(answer) => Patience::Parts { connect, answer },
                None => Patience::Whole(inter),
            },
            log: settings.option(Toggle::LOG_HEALTH_CHECKS),
            observed: Observed::new(&line.options, settings.mode(), refuse),
            board: Board::new(health),
            aims: Aims::default(),
            bell: Bell::default(),
            due: Due::default(),
        });
    }
}

/// Where the checks of `server` go.
fn place(
    server: &Server,
    addr: Option<&Set<Word>>,
    port: Option<u16>,
    script: &Script,
    pos: manylane_config::source::Pos,
    refuse: &mut Refuse<'_>,
) -> ServerPlace {
    let other = addr.and_then(|set| match set.value.text().map(|text| Address::parse(text, &Rules::SERVER)) {
        Some(Ok(address)) => match address.resolve() {
            Ok(address) => Some(address),
            Err(error) => {
                refuse.found.alert(set.value.pos(), format!("'addr' : {error}"));
                None
            }
        },
        Some(Err(error)) => {
            let message = format!("'addr' : {} in '{}', {}", error.wrong(), set.value.shown(), error.remedy());
            refuse.found.alert(set.value.pos_at(error.span().start), message);
            None
        }
        None => {
            refuse.found.alert(set.value.pos(), format!("'addr' : '{}' is not UTF-8", set.value.shown()));
            None
        }
    });
    // The service's own port, where it has one.
    let known = server.site.read();
    let own_ip = known.ip();
    let own_port = match known.port {
        Port::One(port) => Some(port).filter(|port| *port != 0),
        _ => None,
    };
    let ip = match &other {
        Some(Address { place: Place::Ip { host: Host::V4(ip), .. }, .. }) => Some((*ip).into()),
        Some(Address { place: Place::Ip { host: Host::V6(ip), .. }, .. }) => Some((*ip).into()),
        Some(other) => return other.endpoints().map_or(ServerPlace::Nowhere, |mut all| ServerPlace::At(all.swap_remove(0))),
        None => own_ip,
    };
    let Some(ip) = ip else {
        if known.place == ServerPlace::Nowhere {
            return known.place; // it is checked when it has an address
        }
        if port.is_some() || script.steps().iter().any(|step| matches!(step, Step::Connect { port: Some(_), .. })) {
            let message = format!("server '{}' has no IP address, so its checks have no port; leave it out, or say 'addr'", server.name);
            refuse.found.alert(pos, message);
        }
        return known.place;
    };
    let written = match &other {
        Some(Address { place: Place::Ip { port: Port::One(port), .. }, .. }) => Some(*port),
        _ => None,
    };
    let by_script = script.steps().iter().all(|step| !matches!(step, Step::Connect { port: None, .. }));
    match port.or(written).or(own_port) {
        Some(port) => ServerPlace::At(Endpoint::Ip((ip, port).into())),
        None if by_script => ServerPlace::At(Endpoint::Ip((ip, 0).into())),
        None => {
            let message = format!(
                "server '{}' has no port, and its checks have none either; say 'port' behind 'check', or 'tcp-check connect port'",
                server.name
            );
            refuse.found.alert(pos, message);
            ServerPlace::Nowhere
        }
    }
}

/// What `option httpchk` and its like, and the steps, come to.
fn script(proxy: &Proxy, refuse: &mut Refuse<'_>) -> Script {
    let settings = &proxy.settings;
    let kind = settings.check_kind.as_ref();
    let of = |family: &'static str| settings.check_steps.iter().filter(move |step| step.keyword.starts_with(family));
    let (wanted, unused) = match kind.map_or("", |kind| kind.keyword) {
        "option httpchk" => ("http-check", Some("tcp-check")),
        "option tcp-check" => ("tcp-check", Some("http-check")),
        _ => ("", None),
    };
    // Those from `defaults` may be for others.
    let idle = settings.check_steps.iter().filter(|step| match unused {
        Some(unused) => step.keyword.starts_with(unused),
        None => true,
    });
    for step in idle.filter(|step| step.pos >= proxy.pos) {
        let option = if step.keyword.starts_with("http-check") { "option httpchk" } else { "option tcp-check" };
        let message = format!("'{}' has no effect here: there is no '{option}', or another kind of check after it", step.keyword);
        refuse.found.warning(step.pos, message);
    }
    if let Some(set) = &settings.disable_on_404
        && set.pos >= proxy.pos
        && wanted != "http-check"
    {
        refuse.idle(&settings.disable_on_404, "http-check disable-on-404", "there is no 'option httpchk', or another kind of check after it");
    }
    let Some(kind) = kind else { return Script::connect() };
    match kind.keyword {
        "option redis-check" => redis::script(),
        "option mysql-check" => mysql_script(kind, refuse),
        "option pgsql-check" => pgsql_script(kind, refuse),
        "option smtpchk" => smtp_script(kind),
        "option ldap-check" => ldap::script(),
        "option ssl-hello-chk" => tls::script(),
        "option tcp-check" => tcp_script(of(wanted), refuse),
        _ => http_script(kind, of(wanted), settings.disable_on_404.is_some(), refuse),
    }
}

/// The user that `kind` has behind the word `user`.
fn user<'w>(kind: &'w Statement, most: usize, refuse: &mut Refuse<'_>) -> &'w [u8] {
    let mut wrong = |pos, why: String| refuse.found.alert(pos, format!("'{}' {why}", kind.keyword));
    match &kind.words[..] {
        [word, user, ..] if *word == "user" => {
            let name = user.bytes();
            if name.is_empty() || name.len() > most || name.contains(&0) {
                wrong(user.pos(), format!(": a user's name has 1 to {most} bytes, and no zero among them"));
                return b"";
            }
            name
        }
        [word, ..] if *word != "user" => {
            wrong(word.pos(), format!("expects 'user' and a name and got '{}'", word.shown()));
            b""
        }
        _ => {
            wrong(kind.pos, "expects 'user' and a name".into());
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
            let message = format!("'{}' expects 'post-41' or 'pre-41' and got '{}'", kind.keyword, word.shown());
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

/// Anything but a greeting and a name is the usual greeting, as HAProxy has it.
fn smtp_script(kind: &Statement) -> Script {
    match &kind.words[..] {
        [hello, name] if (*hello == "HELO" || *hello == "EHLO") && !name.bytes().iter().any(u8::is_ascii_control) => {
            smtp::script(hello.bytes(), name.bytes())
        }
        _ => smtp::script(b"HELO", b"localhost"),
    }
}

/// Arguments of a step, one after the other.
struct Words<'w> {
    step: &'w Statement,
    at: usize,
}

impl<'w> Words<'w> {
    fn new(step: &'w Statement) -> Self {
        Self { step, at: 0 }
    }

    fn next(&mut self) -> Option<&'w Word> {
        let word = self.step.words.get(self.at);
        self.at += 1;
        word
    }

    /// What must follow.
    fn value(&mut self, of: &str, refuse: &mut Refuse<'_>) -> Option<&'w Word> {
        let word = self.next();
        if word.is_none() {
            let pos = self.step.words.last().map_or(self.step.pos, |word| word.pos_at(usize::MAX));
            refuse.found.alert(pos, format!("'{}' expects a value for '{of}'", self.step.keyword));
        }
        word
    }

    fn wrong(&self, word: &Word, why: &str, refuse: &mut Refuse<'_>) {
        refuse.found.alert(word.pos(), format!("'{}' : {why}", self.step.keyword));
    }

    fn unknown(&self, word: &Word, refuse: &mut Refuse<'_>) {
        let message = format!("'{} {}' is not built yet, or no word of it", self.step.keyword, word.shown());
        refuse.found.alert(word.pos(), message);
    }
}

fn tcp_script<'p>(steps: impl Iterator<Item = &'p Statement>, refuse: &mut Refuse<'_>) -> Script {
    let (mut made, mut named): (Vec<Step>, Option<Box<str>>) = (Vec::new(), None);
    for (number, step) in steps.enumerate() {
        let mut words = Words::new(step);
        match step.keyword {
            "tcp-check comment" => named = words.next().map(text),
            "tcp-check connect" => {
                let (mut port, mut own) = (None, false);
                while let Some(word) = words.next() {
                    match word.bytes() {
                        b"default" => own = true,
                        b"comment" => drop(words.value("comment", refuse)),
                        b"port" => {
                            let Some(value) = words.value("port", refuse) else { break };
                            port = value.text().and_then(|text| text.parse().ok()).filter(|port| *port != 0);
                            if port.is_none() {
                                words.wrong(value, "'port' expects a number from 1 to 65535", refuse);
                            }
                        }
                        _ => words.unknown(word, refuse),
                    }
                }
                made.push(Step::Connect { port, own });
            }
            "tcp-check expect" => {
                if let Some(expect) = expect(&mut words, number + 1, &named, false, refuse) {
                    made.push(Step::Expect(expect));
                }
            }
            "tcp-check send" | "tcp-check send-binary" => {
                let Some(word) = words.next() else { continue };
                let bytes = if step.keyword == "tcp-check send" { Ok(word.bytes().into()) } else { tcp::from_hex(word.bytes()) };
                match bytes {
                    Ok(bytes) => made.push(Step::Send(bytes)),
                    Err(why) => words.wrong(word, &why, refuse),
                }
                while let Some(word) = words.next() {
                    match word.bytes() {
                        b"comment" => drop(words.value("comment", refuse)),
                        _ => words.unknown(word, refuse),
                    }
                }
            }
            _ => {} // refused by its row
        }
    }
    Script::new(made)
}

fn http_script<'p>(kind: &Statement, steps: impl Iterator<Item = &'p Statement>, disable_on_404: bool, refuse: &mut Refuse<'_>) -> Script {
    let mut first = HttpRequest::default();
    match &kind.words[..] {
        [] => {}
        [uri] => first.uri = uri.bytes().into(),
        [method, uri, version @ ..] => {
            (first.method, first.uri) = (method.bytes().into(), uri.bytes().into());
            if let Some(version) = version.first()
                && let Err(why) = first.set_version(version.bytes())
            {
                refuse.found.alert(version.pos(), format!("'option httpchk' : {why}"));
            }
        }
    }
    check_line(&first, kind, refuse);
    let (mut made, mut named): (Vec<Step>, Option<Box<str>>) = (Vec::new(), None);
    // The first request is that of the option, to which `http-check send` adds.
    let mut implied = Some(first);
    for (number, step) in steps.enumerate() {
        let mut words = Words::new(step);
        match step.keyword {
            "http-check comment" => named = words.next().map(text),
            "http-check send" => {
                let request = request(&mut words, implied.take().unwrap_or_default(), refuse);
                check_line(&request, step, refuse);
                made.push(Step::Send(request.bytes()));
            }
            "http-check expect" => {
                if let Some(request) = implied.take() {
                    made.push(Step::Send(request.bytes()));
                }
                if let Some(expect) = expect(&mut words, number + 1, &named, true, refuse) {
                    made.push(Step::Expect(expect));
                }
            }
            _ => {} // refused by its row
        }
    }
    if let Some(request) = implied {
        made.push(Step::Send(request.bytes()));
    }
    http::script(made, disable_on_404)
}

/// A request's line is one line of three words.
fn check_line(request: &HttpRequest, step: &Statement, refuse: &mut Refuse<'_>) {
    let bad = |bytes: &[u8]| bytes.is_empty() || bytes.iter().any(|byte| *byte <= b' ' || *byte == 0x7f);
    if bad(&request.method) || bad(&request.uri) {
        let message = format!("'{}' : method and URI must not be empty, and have neither spaces nor control characters", step.keyword);
        refuse.found.alert(step.pos, message);
    }
}

const FORMATS: &str = "log formats in checks are not built yet; write %% for a percent sign";

/// A log format that is only text: a sign of its own is written twice.
fn literal(format: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = format.iter();
    let mut plain = Vec::new();
    while let Some(&byte) = bytes.next() {
        if byte == b'%' && bytes.next() != Some(&b'%') {
            return None;
        }
        plain.push(byte);
    }
    Some(plain)
}

/// `http-check send`
fn request(words: &mut Words<'_>, mut request: HttpRequest, refuse: &mut Refuse<'_>) -> HttpRequest {
    while let Some(word) = words.next() {
        match word.bytes() {
            b"meth" => request.method = words.value("meth", refuse).map_or(request.method, |word| word.bytes().into()),
            b"uri" => request.uri = words.value("uri", refuse).map_or(request.uri, |word| word.bytes().into()),
            b"body" => request.body = words.value("body", refuse).map_or(request.body, |word| word.bytes().into()),
            b"comment" => drop(words.value("comment", refuse)),
            b"ver" => {
                if let Some(value) = words.value("ver", refuse)
                    && let Err(why) = request.set_version(value.bytes())
                {
                    words.wrong(value, &why, refuse);
                }
            }
            b"hdr" => {
                let (Some(name), Some(value)) = (words.value("hdr", refuse), words.value("hdr", refuse)) else { break };
                let Some(plain) = literal(value.bytes()) else {
                    words.wrong(value, FORMATS, refuse);
                    continue;
                };
                if let Err(why) = request.add(name.bytes(), &plain) {
                    words.wrong(name, &why, refuse);
                }
            }
            _ => words.unknown(word, refuse),
        }
    }
    request
}

/// What statuses an option of `expect` may name.
const OK_STATUSES: &[Status] = &[Status::L7Ok, Status::L7OkC, Status::L6Ok, Status::L4Ok];
const ERROR_STATUSES: &[Status] = &[Status::L7OkC, Status::L7Rsp, Status::L7Sts, Status::L6Rsp, Status::L4Con];
const TIMEOUT_STATUSES: &[Status] = &[Status::L7Tout, Status::L6Tout, Status::L4Tout];

/// `http-check expect` and `tcp-check expect`
fn expect(
    words: &mut Words<'_>,
    number: usize,
    named: &Option<Box<str>>,
    http: bool,
    refuse: &mut Refuse<'_>,
) -> Option<Expect> {
    let mut made = Expect { comment: named.clone(), ..Expect::new(Pattern::Bytes(Box::default(), Box::default()), number) };
    let (word, name) = loop {
        let word = words.value("a pattern", refuse)?;
        match word.bytes() {
            b"comment" => made.comment = words.value("comment", refuse).map(text),
            b"min-recv" => made.least = least(words, refuse),
            b"ok-status" => made.ok = status(words, "ok-status", OK_STATUSES, refuse),
            b"error-status" => made.error = status(words, "error-status", ERROR_STATUSES, refuse),
            b"tout-status" => made.timeout = status(words, "tout-status", TIMEOUT_STATUSES, refuse),
            b"on-success" => made.on_success = told(words, "on-success", refuse),
            b"on-error" => made.on_error = told(words, "on-error", refuse),
            b"!" => made.negated = !made.negated,
            [b'!', name @ ..] => {
                made.negated = !made.negated;
                break (word, name);
            }
            name => break (word, name),
        }
    };
    let known: &[&[u8]] = if http {
        &[b"status", b"rstatus", b"string", b"rstring", b"hdr", b"fhdr"]
    } else {
        &[b"string", b"rstring", b"binary", b"rbinary"]
    };
    if !known.contains(&name) {
        words.unknown(word, refuse);
        return None;
    }
    if let b"hdr" | b"fhdr" = name {
        made.pattern = field(words, name == b"fhdr", refuse)?;
    } else {
        let value = words.value(word.text().unwrap_or_default(), refuse)?;
        let bytes = value.bytes();
        let pattern = match name {
            b"status" => StatusRanges::read(bytes).map(Pattern::Status),
            b"rstatus" => Regex::new(bytes, false).map(Pattern::StatusRegex),
            b"rstring" => Regex::new(bytes, false).map(Pattern::Regex),
            b"binary" => tcp::from_hex(bytes).map(|bytes| Pattern::Bytes(bytes, text(value))),
            b"rbinary" => Regex::new(bytes, false).map(Pattern::HexRegex),
            _ if bytes.is_empty() => Err("an empty pattern is everywhere".into()),
            _ => Ok(Pattern::Bytes(bytes.into(), text(value))),
        };
        match pattern {
            Ok(pattern) => made.pattern = pattern,
            Err(why) => {
                words.wrong(value, &why, refuse);
                return None;
            }
        }
    }
    if let Some(extra) = words.next() {
        words.wrong(extra, "one word is the pattern; put quotes around it, or backslashes before spaces", refuse);
    }
    Some(made)
}

/// `min-recv`; -1 is as if it were not there.
fn least(words: &mut Words<'_>, refuse: &mut Refuse<'_>) -> Option<usize> {
    let value = words.value("min-recv", refuse)?;
    match value.text().and_then(|text| text.parse::<i64>().ok()) {
        Some(-1) => None,
        Some(bytes) if (0..=MOST_BYTES as i64).contains(&bytes) => Some(bytes as usize),
        _ => {
            words.wrong(value, &format!("'min-recv' expects -1, or a number of bytes up to {MOST_BYTES}"), refuse);
            None
        }
    }
}

/// A status of those.
fn status(words: &mut Words<'_>, of: &str, some: &[Status], refuse: &mut Refuse<'_>) -> Option<Status> {
    let value = words.value(of, refuse)?;
    let status = Status::by_name(value.bytes()).filter(|status| some.contains(status));
    if status.is_none() {
        let names: Vec<&str> = some.iter().map(|status| status.name()).collect();
        words.wrong(value, &format!("'{of}' expects one of {} and got '{}'", names.join(", "), value.shown()), refuse);
    }
    status
}

/// What is told of an answer.
fn told(words: &mut Words<'_>, of: &str, refuse: &mut Refuse<'_>) -> Option<Box<str>> {
    let value = words.value(of, refuse)?;
    let plain = literal(value.bytes());
    if plain.is_none() {
        words.wrong(value, FORMATS, refuse);
    }
    Some(String::from_utf8_lossy(&plain?).into())
}

/// `hdr` and `fhdr`: the header field that is looked for.
fn field(words: &mut Words<'_>, whole: bool, refuse: &mut Refuse<'_>) -> Option<Pattern> {
    let word = words.value("name", refuse)?;
    if *word != "name" {
        words.unknown(word, refuse);
        return None;
    }
    let name = compared(words, "name", true, refuse)?;
    let value = match words.next() {
        None => None,
        Some(word) if *word == "value" => Some(compared(words, "value", false, refuse)?),
        Some(word) => {
            words.unknown(word, refuse);
            return None;
        }
    };
    Some(Pattern::Field { name, value, whole })
}

/// What a name or a value is compared with. Letters of names are all the same in both cases.
fn compared(words: &mut Words<'_>, of: &str, is_name: bool, refuse: &mut Refuse<'_>) -> Option<Text> {
    let mut word = words.value(of, refuse)?;
    let mut how = None;
    if *word == "-m" {
        how = Some(words.value("-m", refuse)?);
        word = words.value(of, refuse)?;
    }
    if word.bytes().is_empty() {
        words.wrong(word, &format!("'{of}' expects a pattern, and it is empty"), refuse);
        return None;
    }
    let bytes = || if is_name { word.bytes().to_ascii_lowercase().into() } else { word.bytes().into() };
    match how.map_or(&b"str"[..], |how| how.bytes()) {
        b"str" => Some(Text::Is(bytes())),
        b"beg" => Some(Text::Begins(bytes())),
        b"end" => Some(Text::Ends(bytes())),
        b"sub" => Some(Text::Has(bytes())),
        b"reg" => match Regex::new(word.bytes(), is_name) {
            Ok(regex) => Some(Text::Matches(regex)),
            Err(why) => {
                words.wrong(word, &why, refuse);
                None
            }
        },
        _ => {
            words.wrong(how.unwrap_or(word), "'-m' expects str, beg, end, sub or reg", refuse);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::literal;

    #[test]
    fn a_percent_sign_is_written_twice_and_all_else_that_begins_with_one_is_an_expression() {
        for (format, plain) in
            [("100%%", Some("100%")), ("%%a%%", Some("%a%")), ("%[date]%%", None), ("%", None), ("%%%", None), ("", Some(""))]
        {
            assert_eq!(literal(format.as_bytes()).as_deref(), plain.map(str::as_bytes), "{format}");
        }
    }
}
