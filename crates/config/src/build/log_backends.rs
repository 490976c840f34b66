//! Backends in `mode log`, and who logs to them.

use super::Builder;
use super::parse::algorithms_for_logs;
use crate::source::Pos;
use crate::tree::{AlgorithmKey, LogSink, LogTarget, Mode, Proxy, ProxyKind};
use manylane_net::address::{Location, Transport};

/// Reports settings of a proxy that do not fit its mode.
pub(super) fn fit(b: &mut Builder<'_>, proxy: &Proxy) {
    if proxy.kind == ProxyKind::Defaults || proxy.forward.is_some() {
        return;
    }
    let (settings, name) = (&proxy.settings, proxy.name.shown());
    let algorithm = settings.balance.as_ref().map(|set| set.value.algorithm);
    if settings.mode() != Mode::Log {
        let mode = settings.mode().name();
        for server in &proxy.servers {
            if server.address.value.transport == Some(Transport::Datagram) {
                let message =
                    format!("'server' expects datagrams (udp@) in 'mode log' only, found 'mode {mode}'");
                b.found.alert(server.address.pos, message);
            }
        }
        return;
    }
    let mode = settings.mode.map_or(proxy.pos, |set| set.pos);
    if proxy.kind != ProxyKind::Backend {
        let message = format!(
            "{} '{name}' : 'mode log' is for backends; messages are received by a 'log-forward' section",
            proxy.kind.name()
        );
        return b.found.alert(mode, message);
    }
    if let Some(set) = settings.balance.as_ref().filter(|set| set.value.algorithm.log_name.is_none()) {
        let (expected, found) = (algorithms_for_logs(), set.value.algorithm.name);
        b.found.alert(set.pos, format!("'balance' in 'mode log' expects {expected}, found '{found}'"));
    }
    if algorithm.is_some_and(|algorithm| algorithm.key == AlgorithmKey::LogLine)
        && let Some(set) = settings.hash_type.filter(|set| set.value.consistent)
    {
        let message = "'balance log-hash' expects 'hash-type map-based', found 'hash-type consistent'";
        b.found.alert(set.pos, message);
    }
    for server in &proxy.servers {
        if !matches!(server.address.value.location, Location::Ip { .. }) {
            let message = format!(
                "'server' expects an IP address and a port in 'mode log', with udp@ for datagrams, \
                    found '{}'",
                server.address.value
            );
            b.found.alert(server.address.pos, message);
        }
    }
    let ignored = |pos: Option<Pos>, what: &'static str| pos.map(|pos| (pos, what));
    let first = [
        ignored(proxy.stick_rules.first().map(|rule| rule.pos), "sticking rules"),
        ignored(proxy.use_server.first().map(|choice| choice.pos), "'use-server' rules"),
        ignored(proxy.rules.first().map(|rule| rule.pos), "rules for requests and responses"),
        ignored(settings.dispatch.as_ref().map(|set| set.pos), "'dispatch'"),
        ignored(settings.cookie.as_ref().map(|set| set.pos), "'cookie'"),
    ];
    for (pos, what) in first.into_iter().flatten() {
        b.found.warning(pos, format!("{what} of backend '{name}' will be ignored in 'mode log'"));
    }
}

/// Reports targets of `log` lines that name a missing backend, or one that is not in `mode log`.
pub(super) fn require<'p>(
    b: &mut Builder<'_>,
    log: &[LogTarget],
    backend: impl Fn(&[u8]) -> Option<&'p Proxy>,
) {
    for target in log {
        let LogTarget::Own(line) = target else { continue };
        let LogSink::Backend(name) = &line.sink else { continue };
        let shown = name.shown();
        let message = match backend(name.bytes()) {
            None => format!("'log' expects the name of a backend behind 'backend@', found '{shown}'"),
            Some(backend) if backend.settings.mode() != Mode::Log => {
                let mode = backend.settings.mode().name();
                format!("'log' expects a backend in 'mode log', found '{shown}' in 'mode {mode}'")
            }
            Some(_) => continue,
        };
        b.found.alert(name.pos(), message);
    }
}
