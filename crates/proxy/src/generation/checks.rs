//! Health checks of servers: what the file says of them.

use super::bind::text;
use super::refuse::Refuse;
use super::server::{SendHeader, Server, ServerPlace};
use super::Process;
use manylane_check::{
    Board, Expect, Health, HttpRequest, Init, Pace, Pattern, Script, StatusRanges, Step, http, redis, tcp,
};
use manylane_config::lex::Word;
use manylane_config::table::{ServerOptions, Timeout, Toggle};
use manylane_config::tree::{Proxy, Set, Statement};
use manylane_expr::Regex;
use manylane_net::address::{Host, Place, Port};
use manylane_net::{Address, ConnectOptions, Endpoint, Present, Rules};
use manylane_sched::Time;
use manylane_sync::Arc;
use std::time::Duration;

/// How a server is checked, and what came of it.
#[derive(Debug)]
pub struct ServerCheck {
    /// What is said and expected.
    pub script: Arc<Script>,
    /// Where its connections go.
    pub place: ServerPlace,
    /// Options of its connections.
    pub connect: ConnectOptions,
    /// What its connections begin with.
    pub header: Option<SendHeader>,
    /// When.
    pub pace: Pace,
    /// How long.
    pub patience: Patience,
    /// `option log-health-checks`
    pub log: bool,
    /// The latest.
    pub board: Board,
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

/// Gives the servers of a backend their checks.
pub(super) fn checks(proxy: &Proxy, process: &Process, servers: &mut [Server], refuse: &mut Refuse<'_>) {
    let script = Arc::new(script(proxy, refuse));
    for (line, server) in proxy.servers.iter().zip(servers) {
        let ServerOptions { check, check_send_proxy, addr, port, inter, fastinter, downinter, rise, fall, init_state, .. } =
            &line.options;
        if !check.is_some_and(|set| set.value) {
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
        server.check = Some(ServerCheck {
            script: script.clone(),
            place: place(server, addr.as_ref(), port.map(|set| set.value), &script, line.pos, refuse),
            connect: options,
            // What is checked elsewhere is not the service, so it is not spoken to like it, unless the file says so.
            header: match check_send_proxy.map(|set| set.value) {
                Some(true) => server.header.or(Some(SendHeader { v2: false, checksum: false })),
                Some(false) => None,
                None => server.header.filter(|_| !elsewhere),
            },
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
            board: Board::new(health, Time::now().since(Time::ZERO)),
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
    let (own_ip, own_port) = match &server.place {
        ServerPlace::At(Endpoint::Ip(address)) => (Some(address.ip()), Some(address.port()).filter(|port| *port != 0)),
        ServerPlace::OfClient(Address { place: Place::Ip { host, .. }, .. }) => match host {
            Host::V4(ip) => (Some((*ip).into()), None),
            Host::V6(ip) => (Some((*ip).into()), None),
            Host::Name { .. } => (None, None),
        },
        _ => (None, None),
    };
    let ip = match &other {
        Some(Address { place: Place::Ip { host: Host::V4(ip), .. }, .. }) => Some((*ip).into()),
        Some(Address { place: Place::Ip { host: Host::V6(ip), .. }, .. }) => Some((*ip).into()),
        Some(other) => return other.endpoints().map_or(ServerPlace::Nowhere, |mut all| ServerPlace::At(all.swap_remove(0))),
        None => own_ip,
    };
    let Some(ip) = ip else {
        if port.is_some() || script.steps().iter().any(|step| matches!(step, Step::Connect { port: Some(_), .. })) {
            let message = format!("server '{}' has no IP address, so its checks have no port; leave it out, or say 'addr'", server.name);
            refuse.found.alert(pos, message);
        }
        return server.place.clone();
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
        "option tcp-check" => tcp_script(of(wanted), refuse),
        _ => http_script(kind, of(wanted), settings.disable_on_404.is_some(), refuse),
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
                    words.wrong(value, "log formats in checks are not built yet; write %% for a percent sign", refuse);
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

/// `http-check expect` and `tcp-check expect`
fn expect(
    words: &mut Words<'_>,
    number: usize,
    named: &Option<Box<str>>,
    http: bool,
    refuse: &mut Refuse<'_>,
) -> Option<Expect> {
    let (mut comment, mut negated) = (named.clone(), false);
    loop {
        let word = words.value("a pattern", refuse)?;
        let name = match word.bytes() {
            b"comment" => {
                comment = words.value("comment", refuse).map(text);
                continue;
            }
            b"!" => {
                negated = !negated;
                continue;
            }
            [b'!', name @ ..] => {
                negated = !negated;
                name
            }
            name => name,
        };
        let known: &[&[u8]] =
            if http { &[b"status", b"rstatus", b"string", b"rstring"] } else { &[b"string", b"rstring", b"binary", b"rbinary"] };
        if !known.contains(&name) {
            words.unknown(word, refuse);
            return None;
        }
        let value = words.value(word.text().unwrap_or_default(), refuse)?;
        if let Some(extra) = words.next() {
            words.wrong(extra, "one word is the pattern; put quotes around it, or backslashes before spaces", refuse);
        }
        let bytes = value.bytes();
        let pattern = match name {
            b"status" => StatusRanges::read(bytes).map(Pattern::Status),
            b"rstatus" => Regex::new(bytes, false).map(Pattern::StatusRegex),
            b"rstring" => Regex::new(bytes, false).map(Pattern::Regex),
            b"binary" => tcp::from_hex(bytes).map(|bytes| Pattern::Bytes(bytes, text(value))),
            // Matched against the answer in hexadecimal, as HAProxy has it.
            b"rbinary" => Err("'rbinary' is not built yet".into()),
            _ if bytes.is_empty() => Err("an empty pattern is everywhere".into()),
            _ => Ok(Pattern::Bytes(bytes.into(), text(value))),
        };
        return match pattern {
            Ok(pattern) => Some(Expect { pattern, negated, comment, number }),
            Err(why) => {
                words.wrong(value, &why, refuse);
                None
            }
        };
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
