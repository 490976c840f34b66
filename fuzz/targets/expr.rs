//! The language of rules. The part before a NUL byte is compiled as an expression, as a format and, split
//! into words, as a condition; the part after it is a map that they may use. The results are evaluated on a
//! small request.
#![no_main]

use manylane_expr::*;
use manylane_http::{Head, Version};
use manylane_sync::Reader;
use std::cell::RefCell;
use std::net::IpAddr;

struct Fuzzed<'a>(&'a [u8]);

impl Names for Fuzzed<'_> {
    fn proxy(&self, name: &[u8], _: ProxySide) -> Option<ProxyId> {
        (name == b"p").then_some(ProxyId(0))
    }
    fn current(&self, _: ProxySide) -> Option<ProxyId> {
        Some(ProxyId(0))
    }
    fn server(&self, _: ProxyId, name: &[u8]) -> Option<ServerId> {
        (name == b"s").then_some(ServerId(0))
    }
    fn userlist(&self, _: &[u8]) -> Option<UserlistId> {
        Some(UserlistId(0))
    }
    fn has_group(&self, _: UserlistId, name: &[u8]) -> bool {
        name.len() == 1
    }
    fn environment(&self, _: &[u8]) -> Option<Vec<u8>> {
        Some(b"e".to_vec())
    }
    fn file(&self, _: &[u8]) -> std::io::Result<Vec<u8>> {
        Ok(self.0.to_vec())
    }
}

struct Nobody;

impl Host for Nobody {
    fn number(&self, _: Number) -> Option<i64> {
        Some(1)
    }
    fn backend(&self, _: &[u8]) -> Option<ProxyId> {
        Some(ProxyId(0))
    }
    fn server(&self, _: ProxyId, _: &[u8]) -> Option<ServerId> {
        Some(ServerId(0))
    }
    fn authenticate(&self, _: UserlistId, _: &[u8], _: &[u8]) -> bool {
        true
    }
    fn group(&self, _: UserlistId, user: &[u8], number: usize) -> Option<&[u8]> {
        [&b"g"[..], b"h"].get(number).copied().filter(|_| !user.is_empty())
    }
    fn is_local(&self, _: IpAddr) -> bool {
        true
    }
    fn hostname(&self) -> &[u8] {
        b"h"
    }
    fn debug(&self, _: &[u8], _: &[u8], _: Option<Value<'_>>) {}
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (text, file) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let names = Fuzzed(file);
    let (mut variables, mut references) = (VariableNames::default(), References::default());
    let mut compiler = Compiler::new(&names, &mut variables, &mut references);

    let expression = Expression::compile(text, EvalPoints::EVERYWHERE, &mut compiler);
    let format = Format::compile(text, Use::Log, EvalPoints::EVERYWHERE, &mut compiler);
    let words: Vec<&[u8]> = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
    let condition = Condition::compile(false, &words, EvalPoints::EVERYWHERE, &mut compiler);
    for error in [expression.as_ref().err(), format.as_ref().err()].into_iter().flatten() {
        assert!(error.at <= text.len(), "{error:?}");
    }
    if let Err(error) = &condition {
        assert!(error.at <= words.get(error.word).map_or(0, |word| word.len()), "{error:?}");
    }

    let mut head = Head::request(b"GET", b"/a/b?x=1&y=%20", Version::HTTP_11).expect("a small request");
    for (name, value) in
        [("host", "h:80"), ("a", "b, c"), ("cookie", "c=1; d=2"), ("authorization", "Basic YTpi")]
    {
        head.add_field(name.as_bytes(), value.as_bytes()).expect("a small field");
    }
    let (client, server, stream) = (ClientFacts::default(), ServerFacts::default(), StreamFacts::default());
    let (zone, reader, mut lane) = (Zone::utc(), Reader::new(), Lane::new(1));
    let cell = RefCell::new(Variables::with_limit(256));
    let process = ProcessVariables::new(&variables);
    let log = LogFacts::default();
    let env = Env {
        now: || Timestamp { seconds: 1_500_000_000, micros: 1 },
        zone: &zone,
        direction: Direction::Request,
        is_final: true,
        tables: None,
        request: Some(&head),
        response: None,
        request_data: Data::default(),
        response_data: Data::default(),
        client: &client,
        server: &server,
        links: None,
        settings: None,
        stream: &stream,
        log: Some(&log),
        variables: Scopes { process: Some(&process), transaction: Some(&cell), ..Scopes::default() },
        reader: &reader,
        host: &Nobody,
    };
    let mut scratch = lane.scratch();
    if let Ok(expression) = &expression {
        let _ = expression.eval(&env, &mut scratch.reborrow());
    }
    if let Ok(format) = &format {
        let _ = format.eval(&env, &mut scratch.reborrow());
    }
    if let Ok(condition) = &condition {
        assert_ne!(condition.eval(&env, &mut scratch), Truth::Wait);
    }
    manylane_sync::qsbr::reclaim();
});
