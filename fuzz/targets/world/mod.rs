//! What expressions look at in fuzz targets: names that resolve to something, and a process that answers.

use manylane_expr::*;
use manylane_http::Head;
use manylane_sync::Reader;
use std::cell::RefCell;
use std::net::IpAddr;

/// All files have this content.
pub(crate) struct Fuzzed<'a>(pub &'a [u8]);

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
    fn verify_error(&self, code: i64) -> Option<&'static str> {
        (code == 10).then_some("CERT_HAS_EXPIRED")
    }
    fn debug(&self, _: &[u8], _: &[u8], _: Option<Value<'_>>) {}
}

/// Runs `work` with an environment.
pub(crate) fn with(
    request: Option<&Head>,
    stream: &StreamInfo<'_>,
    variables: &VariableNames,
    work: impl FnOnce(&Env<'_>, &mut Scratch<'_>),
) {
    let (client, server) = (ClientInfo::default(), ServerInfo::default());
    let (zone, reader, mut lane) = (Zone::utc(), Reader::new(), Lane::new());
    let cell = RefCell::new(Variables::with_limit(256));
    let process = ProcessVariables::new(variables);
    let log = LogInfo::default();
    let env = Env {
        now: || Timestamp { seconds: 1_500_000_000, micros: 1 },
        zone: &zone,
        direction: Direction::Request,
        is_final: true,
        tables: None,
        request,
        response: None,
        request_data: Data::default(),
        response_data: Data::default(),
        client: &client,
        server: &server,
        links: None,
        settings: None,
        stream,
        log: Some(&log),
        variables: Scopes { process: Some(&process), transaction: Some(&cell), ..Scopes::default() },
        reader: &reader,
        host: &Nobody,
    };
    work(&env, &mut lane.scratch());
}
