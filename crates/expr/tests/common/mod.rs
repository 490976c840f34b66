//! Test data for expressions: a request and a response, two proxies, a server, files.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // each test uses a part; helpers of tests

use manylane_buf::Chain;
use manylane_expr::*;
use manylane_http::{Head, Version};
use manylane_sync::Reader;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;

/// Resolves the frontend `f`, the backend `b` with the server `s1`, and the user list `users`.
#[derive(Default)]
pub struct TestNames {
    pub files: HashMap<Vec<u8>, Vec<u8>>,
}

impl Names for TestNames {
    fn proxy(&self, name: &[u8], side: ProxySide) -> Option<ProxyId> {
        match (name, side) {
            (b"f", ProxySide::Front) => Some(ProxyId(1)),
            (b"b", ProxySide::Back) => Some(ProxyId(2)),
            _ => None,
        }
    }

    fn current(&self, side: ProxySide) -> Option<ProxyId> {
        (side == ProxySide::Front).then_some(ProxyId(1))
    }

    fn server(&self, backend: ProxyId, name: &[u8]) -> Option<ServerId> {
        (backend == ProxyId(2) && name == b"s1").then_some(ServerId(7))
    }

    fn userlist(&self, name: &[u8]) -> Option<UserlistId> {
        (name == b"users").then_some(UserlistId(0))
    }

    fn has_group(&self, _: UserlistId, name: &[u8]) -> bool {
        matches!(name, b"one" | b"two" | b"three")
    }

    fn environment(&self, name: &[u8]) -> Option<Vec<u8>> {
        (name == b"HOME").then(|| b"/home/test".to_vec())
    }

    fn file(&self, name: &[u8]) -> std::io::Result<Vec<u8>> {
        self.files.get(name).cloned().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

pub struct TestHost;

/// An HTTP/1 connection to a client, and a failed HTTP/2 connection to a server.
struct TestLinks;

impl Links for TestLinks {
    fn front(&self) -> LinkInfo {
        LinkInfo::default()
    }

    fn back(&self) -> Option<LinkInfo> {
        let error = LinkError { code: 47, name: "NAME", sentence: "It is broken" };
        let stream = LinkStream { id: 5, reset: Some(8) };
        Some(LinkInfo { streams: 2, streams_limit: 100, glitches: Some(3), error: Some(error), stream })
    }

    fn front_tcp(&self) -> Option<TcpInfo> {
        Some(TcpInfo {
            rtt: 1500,
            rtt_variance: 750,
            unacknowledged: 1,
            selective: 2,
            lost: 3,
            retransmitted: 4,
            forward: 5,
            reordering: 6,
        })
    }

    fn back_tcp(&self) -> Option<TcpInfo> {
        None
    }
}

/// A frontend with a timeout, and no backend.
struct TestSettings;

impl Settings for TestSettings {
    fn of_proxy(&self, which: StreamSetting) -> Option<i64> {
        (which == StreamSetting::ClientTimeout).then_some(2000)
    }

    fn of_stream(&self, which: StreamSetting) -> Option<i64> {
        self.of_proxy(which)
    }
}

impl Host for TestHost {
    fn number(&self, which: Number) -> Option<i64> {
        Some(match which {
            Number::NbSrv(ProxyId(2)) => 3,
            Number::SrvIsUp(ServerId(7)) => 1,
            Number::SrvQueue(ServerId(7)) => 11,
            Number::Thread | Number::Stopping => 0,
            Number::ListenerConn(..) => 1,
            _ => 42,
        })
    }

    fn backend(&self, name: &[u8]) -> Option<ProxyId> {
        (name == b"b").then_some(ProxyId(2))
    }

    fn server(&self, backend: ProxyId, name: &[u8]) -> Option<ServerId> {
        (backend == ProxyId(2) && name == b"s1").then_some(ServerId(7))
    }

    fn authenticate(&self, _: UserlistId, user: &[u8], password: &[u8]) -> bool {
        user == b"user" && password == b"pa:ss"
    }

    fn group(&self, _: UserlistId, user: &[u8], number: usize) -> Option<&[u8]> {
        [&b"one"[..], b"two"].get(number).copied().filter(|_| user == b"user")
    }

    fn is_local(&self, addr: IpAddr) -> bool {
        addr.is_loopback()
    }

    fn hostname(&self) -> &[u8] {
        b"here"
    }

    fn verify_error(&self, code: i64) -> Option<&'static str> {
        (code == 10).then_some("CERT_HAS_EXPIRED")
    }

    fn debug(&self, _: &[u8], _: &[u8], _: Option<Value<'_>>) {}
}

/// Captures of up to 9 bytes, first those of requests.
#[derive(Debug, Default)]
pub struct TestCaptures([RefCell<Vec<Option<Vec<u8>>>>; 2]);

impl TestCaptures {
    /// Makes the slots of a direction.
    pub fn set(&self, direction: Direction, texts: &[Option<&str>]) {
        *self.of(direction).borrow_mut() = texts.iter().map(|text| text.map(|text| text.into())).collect();
    }

    fn of(&self, direction: Direction) -> &RefCell<Vec<Option<Vec<u8>>>> {
        &self.0[usize::from(direction == Direction::Response)]
    }
}

impl Captures for TestCaptures {
    fn slots(&self, direction: Direction) -> usize {
        self.of(direction).borrow().len()
    }

    fn read(&self, direction: Direction, slot: usize, work: &mut dyn FnMut(Option<&[u8]>)) {
        work(self.of(direction).borrow().get(slot).and_then(Option::as_deref));
    }

    fn store(&self, direction: Direction, slot: usize, text: &[u8]) -> bool {
        match self.of(direction).borrow_mut().get_mut(slot) {
            Some(place) => *place = Some(text[..text.len().min(9)].to_vec()),
            None => return false,
        }
        true
    }
}

/// Owns all parts of an [`Env`].
pub struct World {
    pub names: TestNames,
    pub variable_names: VariableNames,
    pub references: References,
    pub warnings: Vec<Error>,
    pub lane: Lane,
    pub zone: Zone,
    pub request: Option<Head>,
    pub response: Option<Head>,
    pub request_bytes: Chain,
    pub response_bytes: Chain,
    pub complete: bool,
    pub is_final: bool,
    pub direction: Direction,
    pub client: ClientInfo<'static>,
    pub server: ServerInfo<'static>,
    pub stream: StreamInfo<'static>,
    pub captures: TestCaptures,
    pub log: Option<LogInfo<'static>>,
    pub session: RefCell<Variables>,
    pub transaction: RefCell<Variables>,
    pub process: Option<ProcessVariables>,
    pub reader: Reader,
}

pub fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Head {
    let mut head = Head::request(method.as_bytes(), target.as_bytes(), Version::HTTP_11).unwrap();
    for (name, value) in fields {
        head.add_field(name.as_bytes(), value.as_bytes()).unwrap();
    }
    head
}

pub fn response(status: u16, fields: &[(&str, &str)]) -> Head {
    let mut head = Head::response(Version::HTTP_11, status, None).unwrap();
    for (name, value) in fields {
        head.add_field(name.as_bytes(), value.as_bytes()).unwrap();
    }
    head
}

impl World {
    /// The same request with fields, to which `cases.txt` refers.
    pub fn with_fields() -> Self {
        let fields = [
            ("host", "127.0.0.1:18099"),
            ("a", "one, two ,three"),
            ("a", "\"x,y\", four"),
            ("e", ""),
            ("g", "x,,y"),
            ("n", "12abc"),
            ("p", "1.2.3.4:80"),
            ("s", "::1"),
            ("cookie", "c=1; d=\"23\"; c=4"),
            ("cookie", "c=9"),
            ("authorization", "Basic dXNlcjpwYTpzcw=="),
        ];
        Self { request: Some(request("GET", "/a/b?x=1&y=2", &fields)), ..Self::new() }
    }

    /// The request `GET /a/b?x=1&y=2` from 127.0.0.1:40000 to 127.0.0.1:18099 at 2017-07-14 02:40:00.123456
    /// UTC.
    pub fn new() -> Self {
        let source = Some("127.0.0.1:40000".parse().unwrap());
        let destination = Some("127.0.0.1:18099".parse().unwrap());
        Self {
            names: TestNames::default(),
            variable_names: VariableNames::default(),
            references: References::default(),
            warnings: Vec::new(),
            lane: Lane::new(),
            zone: Zone::utc(),
            request: Some(request("GET", "/a/b?x=1&y=2", &[("host", "127.0.0.1:18099")])),
            response: None,
            request_bytes: Chain::new(),
            response_bytes: Chain::new(),
            complete: true,
            is_final: true,
            direction: Direction::Request,
            client: ClientInfo {
                source,
                destination,
                link_source: source,
                link_destination: destination,
                frontend: ProxyInfo { id: 1, name: b"f", default_backend: b"" },
                listener_id: 1,
                http_major: 1,
                accepted: Timestamp { seconds: 1_500_000_000, micros: 123_456 },
                first_request: true,
                ..ClientInfo::default()
            },
            server: ServerInfo::default(),
            stream: StreamInfo {
                request_line: Some(RequestLine {
                    method: b"GET",
                    target: b"/a/b?x=1&y=2",
                    version: b"1.1",
                    most: 0,
                }),
                ..StreamInfo::default()
            },
            captures: TestCaptures::default(),
            log: None,
            session: RefCell::default(),
            transaction: RefCell::default(),
            process: None,
            reader: Reader::new(),
        }
    }

    pub fn compiling<R>(&mut self, work: impl FnOnce(&mut Compiler<'_>) -> R) -> R {
        let mut compiler = Compiler::new(&self.names, &mut self.variable_names, &mut self.references);
        let result = work(&mut compiler);
        self.warnings.extend(compiler.take_warnings());
        result
    }

    /// Runs `work` with an [`Env`] and a scratch.
    pub fn with<R>(&mut self, work: impl FnOnce(&Env<'_>, &mut Scratch<'_>) -> R) -> R {
        let data = |bytes, complete| Data { bytes: Some(bytes), complete, announced: None, is_body: false };
        if self.process.is_none() {
            self.process = Some(ProcessVariables::new(&self.variable_names));
        }
        let stream = StreamInfo { captures: Some(&self.captures), ..self.stream };
        let env = Env {
            now: || Timestamp { seconds: 1_500_000_000, micros: 123_456 },
            zone: &self.zone,
            direction: self.direction,
            is_final: self.is_final,
            tables: None,
            request: self.request.as_ref(),
            response: self.response.as_ref(),
            request_data: data(&self.request_bytes, self.complete),
            response_data: data(&self.response_bytes, self.complete),
            client: &self.client,
            server: &self.server,
            links: Some(&TestLinks),
            settings: Some(&TestSettings),
            stream: &stream,
            log: self.log.as_ref(),
            variables: Scopes {
                process: self.process.as_ref(),
                session: Some(&self.session),
                transaction: Some(&self.transaction),
                ..Scopes::default()
            },
            reader: &self.reader,
            host: &TestHost,
        };
        work(&env, &mut self.lane.scratch())
    }

    /// The value of an expression as escaped text.
    pub fn text(&mut self, expression: &str) -> Option<String> {
        self.bytes(expression).map(|bytes| bytes.escape_ascii().to_string())
    }

    pub fn bytes(&mut self, expression: &str) -> Option<Vec<u8>> {
        let compiled = self.compiled(expression);
        self.with(|env, scratch| compiled.eval_text(env, &mut scratch.reborrow()).map(<[u8]>::to_vec))
    }

    pub fn compiled(&mut self, expression: &str) -> Expression {
        self.compiling(|compiler| {
            Expression::compile(expression.as_bytes(), EvalPoints::EVERYWHERE, compiler)
        })
        .unwrap_or_else(|error| panic!("{expression}: {} at {}", error.message, error.at))
    }

    pub fn refusal(&mut self, expression: &str) -> (usize, String) {
        match self.compiling(|compiler| {
            Expression::compile(expression.as_bytes(), EvalPoints::EVERYWHERE, compiler)
        }) {
            Ok(_) => panic!("{expression} compiles"),
            Err(error) => (error.at, error.message),
        }
    }

    /// The result of a condition; its words are separated by spaces.
    pub fn truth(&mut self, condition: &str) -> Truth {
        let words: Vec<&[u8]> = condition.split(' ').map(str::as_bytes).collect();
        let compiled = self
            .compiling(|compiler| Condition::compile(false, &words, EvalPoints::EVERYWHERE, compiler))
            .unwrap_or_else(|error| panic!("{condition}: {} at {}:{}", error.message, error.word, error.at));
        self.with(|env, scratch| compiled.eval(env, &mut scratch.reborrow()))
    }

    /// The text of a format.
    pub fn format(&mut self, text: &str, usage: Use) -> String {
        let format = self
            .compiling(|compiler| Format::compile(text.as_bytes(), usage, EvalPoints::EVERYWHERE, compiler))
            .unwrap_or_else(|error| panic!("{text}: {} at {}", error.message, error.at));
        self.with(|env, scratch| {
            let mut scratch = scratch.reborrow();
            let text = format.eval(env, &mut scratch).expect("it fits");
            text.escape_ascii().to_string().replace("\\\"", "\"")
        })
    }
}

pub mod haproxy;
