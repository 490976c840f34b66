//! Settings of health checks.

use super::Process;
use super::agent::CheckTarget;
use super::notify::Notify;
use super::observe::TrafficObserver;
use super::refuse::Refuse;
use super::server::{SendHeader, Server, ServerAddress};
use super::server_addr::ServerAddr;
use super::tls::{Purpose, ServerTls};
use manylane_check::{Connect, Health, Init, Intervals, ReportCell, Script, SendSource, Step, TextSource};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::table::{OptionSwitch, ServerOptions, Timeout};
use manylane_config::tree::{Proxy, Set, TlsOptions};
use manylane_net::address::{Host, Location, Port};
use manylane_net::{Address, ConnectOptions, Endpoint, Rules, UseSource};
use manylane_sync::Arc;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A server's check: its settings and its results.
#[derive(Debug)]
pub struct ServerCheck {
    /// Messages to send and responses to expect.
    pub script: Arc<Script>,
    /// The configuration's words that the script was made of.
    pub wording: Arc<[u8]>,
    /// Program of `option external-check`, which replaces the script.
    pub program: Option<Program>,
    /// `check-proto h2`, or that of the server: connections that equal the server's own speak HTTP/2.
    pub http2: bool,
    /// `check-reuse-pool`: the check uses idle connections of requests, and leaves its own for requests.
    pub reuses: bool,
    /// Target of the connections, unless the check follows the server.
    pub address: ServerAddress,
    /// Set if the connections go to the server's current address.
    pub follows: Option<InheritedTarget>,
    /// The line names an address for the check: `addr`, `agent-addr`.
    pub has_address: bool,
    /// Options of the connections.
    pub connect: ConnectOptions,
    /// `socks4` of the server.
    pub socks4: Option<SocketAddr>,
    /// `check-via-socks4`: connections like the server's own go through that proxy.
    pub via_socks4: bool,
    /// TLS of the connections.
    pub tls: Option<Arc<ServerTls>>,
    /// TLS of the connections of steps that ask for it, by the steps' numbers.
    pub tls_of_steps: Vec<(usize, Arc<ServerTls>)>,
    /// PROXY header that the connections begin with.
    pub header: Option<SendHeader>,
    /// PROXY header of connections for which the script asks for one: `connect send-proxy`.
    pub usual_header: SendHeader,
    /// A header of version 2 says PROXY instead of LOCAL, with the proxy's own address: for servers that do
    /// not know LOCAL.
    pub relays: bool,
    /// Intervals between checks.
    pub intervals: Intervals,
    /// Timeouts of a check.
    pub timeouts: CheckTimeouts,
    /// `option log-health-checks`
    pub log: bool,
    /// `observe`
    pub observed: Option<TrafficObserver>,
    /// Health before the first check, and the numbers of checks that change it.
    pub health: Health,
    /// Latest results.
    pub board: Arc<ReportCell>,
    /// Settings made at run time.
    pub target: Arc<CheckTarget>,
    /// Wakes the task of the check when it has to do something. Generations with the same check of a server
    /// share this, and one task continues for all of them.
    pub notify: Arc<Notify>,
}

/// Returns the TLS of a check: that of the server unless the check is apart from its requests or the
/// configuration says otherwise.
fn tls_of(
    server: &Server,
    options: &TlsOptions,
    apart: bool,
    process: &Process,
    pos: Pos,
    refuse: &mut Refuse<'_>,
) -> Option<Arc<ServerTls>> {
    let usual = server.tls.is_some() && !apart;
    if !options.check_ssl.map_or(usual, |set| set.value) {
        return None;
    }
    super::tls::of_server(options, &process.tls, Purpose::Check, pos, refuse).map(Arc::new)
}

/// `check-sni-auto`: without `check-sni`, the name is that of the Host field of the first request.
fn named_by_host<'o>(
    options: &'o TlsOptions,
    script: &Script,
    refuse: &mut Refuse<'_>,
) -> Cow<'o, TlsOptions> {
    let Some(set) = options.check_sni_auto.filter(|set| set.value && options.check_sni.is_none()) else {
        return Cow::Borrowed(options);
    };
    let request = script.steps().iter().find_map(|step| match step {
        Step::Send(send) => match &send.what {
            SendSource::Request(request) => Some(request),
            _ => None,
        },
        _ => None,
    });
    let mut fields = request.iter().flat_map(|request| &request.fields);
    let host = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"host")).map(|(_, value)| value);
    let name = match host {
        Some(TextSource::Fixed(host)) => std::str::from_utf8(host).ok().map(host_only).filter(is_name),
        _ => None,
    };
    let Some(name) = name else {
        let message = "'check-sni-auto' has no effect here: it expects HTTP checks whose Host field is a \
            name without expressions";
        refuse.note(set.pos, message.to_owned());
        return Cow::Borrowed(options);
    };
    let check_sni = Some(Set { value: Word::plain(name, set.pos), pos: set.pos });
    Cow::Owned(TlsOptions { check_sni, ..options.clone() })
}

/// The host of a Host field.
fn host_only(field: &str) -> &str {
    let field = field.trim();
    field
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(field, |(host, _)| host)
}

/// True if TLS can ask for the host: it is no address.
fn is_name(host: &&str) -> bool {
    !host.is_empty() && !host.starts_with('[') && host.parse::<IpAddr>().is_err()
}

/// Returns the TLS of steps that ask for it, by the steps' numbers.
fn tls_of_steps(
    script: &Script,
    options: &TlsOptions,
    process: &Process,
    pos: Pos,
    refuse: &mut Refuse<'_>,
) -> Vec<(usize, Arc<ServerTls>)> {
    let mut made = Vec::new();
    for step in script.steps() {
        let Step::Connect(Connect { tls: Some(tls), number, .. }) = step else { continue };
        let set = |text: &str| Some(Set { value: Word::plain(text, pos), pos });
        let own = TlsOptions {
            check_sni: tls.name.as_deref().map_or_else(|| None, set),
            check_alpn: tls.protocols.as_deref().map_or_else(|| options.check_alpn.clone(), set),
            ..options.clone()
        };
        let tls = super::tls::of_server(&own, &process.tls, Purpose::Check, pos, refuse);
        made.extend(tls.map(|tls| (*number, Arc::new(tls))));
    }
    made
}

/// A program that checks servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// `external-check command`
    pub command: OsString,
    /// `external-check path`
    pub path: Option<OsString>,
    /// The program also gets the whole environment of the process.
    pub preserves_environment: bool,
}

/// Target of a check that follows its server.
#[derive(Clone, Debug)]
pub struct InheritedTarget {
    /// Address of the server.
    pub addr: Arc<ServerAddr>,
    /// `port`
    pub port: Option<u16>,
}

impl PartialEq for InheritedTarget {
    fn eq(&self, other: &Self) -> bool {
        self.port == other.port
    }
}

impl InheritedTarget {
    /// Returns the current target; `first` is the one of the configuration.
    pub fn address(&self, first: &ServerAddress) -> ServerAddress {
        if self.addr.word() >> 1 == 0 {
            return first.clone(); // the server has not moved
        }
        let known = self.addr.read();
        let port = match known.port {
            Port::One(port) => Some(port),
            _ => None,
        };
        match (known.ip(), self.port.or(port)) {
            (Some(ip), Some(port)) => ServerAddress::At(Endpoint::Ip((ip, port).into())),
            (Some(ip), None) => match first {
                ServerAddress::At(Endpoint::Ip(was)) => {
                    ServerAddress::At(Endpoint::Ip((ip, was.port()).into()))
                }
                _ => ServerAddress::Nowhere,
            },
            (None, _) => ServerAddress::Nowhere,
        }
    }
}

/// Timeouts of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckTimeouts {
    /// One timeout for the whole check: `inter`.
    Whole(Duration),
    /// With `timeout check`: one timeout for the connection, and one for each response.
    Parts {
        /// The shorter of `timeout connect` and `inter`.
        connect: Duration,
        /// `timeout check`
        answer: Duration,
    },
}

/// What a check does, and the words that say so.
pub(super) type CheckScript = (Arc<Script>, Arc<[u8]>);
/// The scripts of `healthcheck` sections, by their names.
pub(super) type NamedScripts = HashMap<Vec<u8>, CheckScript>;

/// Builds the checks of a backend's servers. Those of servers that name none of `named` are as `usual`.
pub(super) fn checks(
    proxy: &Proxy,
    process: &Process,
    servers: &mut [Server],
    usual: &CheckScript,
    named: &NamedScripts,
    refuse: &mut Refuse<'_>,
) {
    let program = program(proxy, process, refuse);
    for (line, server) in proxy.servers.iter().zip(servers) {
        let ServerOptions {
            check,
            check_send_proxy,
            addr,
            port,
            inter,
            fastinter,
            downinter,
            rise,
            fall,
            init_state,
            check_proto,
            check_reuse_pool,
            check_via_socks4,
            healthcheck,
            ..
        } = &line.options;
        let of_section = healthcheck.as_ref().and_then(|set| named.get(set.value.bytes()));
        let (script, wording) = of_section.unwrap_or(usual);
        if !check.is_some_and(|set| set.value) {
            refuse.idle(
                &line.options.observe,
                "observe",
                "the server is not checked, so its errors do not count",
            );
            continue;
        }
        let settings = &proxy.settings;
        if let Some(set) = check_proto
            && (set.value == "none") == script.is_http()
        {
            let (speak, wanted) = if script.is_http() { ("HTTP", "h1 or h2") } else { ("no HTTP", "none") };
            refuse.found.alert(
                set.pos,
                format!(
                    "'check-proto' expects {wanted}, found '{}': the checks of this backend speak {speak}",
                    set.value
                ),
            );
        }
        let protocol = check_proto.or(line.options.proto).map_or("h1", |set| set.value);
        let http2 = script.is_http() && protocol == "h2";
        let time = |set: &Option<Set<Duration>>| set.map(|set| set.value);
        let inter = time(inter).unwrap_or(Intervals::USUAL).max(Intervals::SHORTEST);
        let connect =
            settings.timeout(Timeout::Connect).filter(|time| !time.is_zero()).unwrap_or(inter).min(inter);
        let elsewhere = addr.is_some() || port.is_some();
        // As in HAProxy, checks of a server that was added begin like its requests only where its line says
        // so.
        let apart = elsewhere || server.added;
        let init = match init_state.map(|set| set.value) {
            Some("fully-up") => Init::FullyUp,
            Some("down") => Init::Down,
            Some("fully-down") => Init::FullyDown,
            _ => Init::Up,
        };
        let count = |set: &Option<Set<u32>>, usual| set.map_or(usual, |set| set.value);
        let health = Health::new(count(rise, 2), count(fall, 3), init);
        let mut options = server.connect.clone();
        // with Fast Open the socket would report a connection that is not established
        options.fast_open = false;
        // If nothing has to be received first, the last packet of the handshake leaves with the request. With
        // a check that only connects it leaves with the reset, and the server's program never sees the
        // connection.
        options.late_ack = true;
        if let Some(source) = &mut options.source {
            // No client's address can be shown.
            source.present = source.present.filter(|present| matches!(present, UseSource::Address(_)));
        }
        let reuses = check_reuse_pool.is_some_and(|set| set.value) && script.reuses() && !http2;
        if check_reuse_pool.is_some_and(|set| set.value)
            && (!reuses || elsewhere || check_send_proxy.is_some_and(|set| set.value))
        {
            let why = "only HTTP/1 checks of one connection, with the address and options of the server's \
                requests, can use idle connections of requests";
            refuse.idle(check_reuse_pool, "check-reuse-pool", why);
        }
        let port = port.map(|set| set.value);
        server.check = Some(ServerCheck {
            script: script.clone(),
            wording: wording.clone(),
            program: program.clone().filter(|_| of_section.is_none()),
            http2,
            reuses: reuses && !elsewhere && !check_send_proxy.is_some_and(|set| set.value),
            has_address: addr.is_some(),
            address: target_of(server, addr.as_ref(), port, script, line.pos, refuse),
            follows: (addr.is_none() && !matches!(server.stays, Some("it is no IP address")))
                .then(|| InheritedTarget { addr: server.addr.clone(), port }),
            connect: options,
            socks4: server.socks4,
            via_socks4: check_via_socks4.is_some_and(|set| set.value),
            tls_of_steps: tls_of_steps(script, &line.options.tls, process, line.pos, refuse),
            tls: tls_of(
                server,
                &named_by_host(&line.options.tls, script, refuse),
                apart,
                process,
                line.pos,
                refuse,
            ),
            // A check of another address is not about the service, so it does not use the service's protocol
            // unless the configuration says so.
            header: match check_send_proxy.map(|set| set.value) {
                Some(true) => server.header.or(Some(SendHeader::default())),
                // `no-check-send-proxy` only cancels `check-send-proxy` of `default-server`.
                Some(false) | None => server.header.filter(|_| !apart),
            },
            usual_header: server.header.unwrap_or_default(),
            relays: process.never_local,
            intervals: Intervals {
                inter,
                fast: time(fastinter).unwrap_or(inter),
                down: time(downinter).unwrap_or(inter),
                spread: process.spread_checks,
            },
            timeouts: match settings.timeout(Timeout::Check).filter(|time| !time.is_zero()) {
                Some(answer) => CheckTimeouts::Parts { connect, answer },
                None => CheckTimeouts::Whole(inter),
            },
            log: settings.option(OptionSwitch::LOG_HEALTH_CHECKS),
            observed: TrafficObserver::new(&line.options, settings.mode(), refuse),
            board: Arc::new(ReportCell::new(health.clone())),
            health,
            target: Arc::default(),
            notify: Arc::default(),
        });
    }
}

/// Returns the program of `option external-check`.
fn program(proxy: &Proxy, process: &Process, refuse: &mut Refuse<'_>) -> Option<Program> {
    use std::os::unix::ffi::OsStringExt;
    let settings = &proxy.settings;
    let kind = settings.check_kind.as_ref().filter(|kind| kind.keyword == "option external-check");
    let text =
        |set: &Option<Set<Word>>| set.as_ref().map(|set| OsString::from_vec(set.value.bytes().to_vec()));
    let Some(kind) = kind else {
        for (set, name) in [
            (&settings.external_command, "external-check command"),
            (&settings.external_path, "external-check path"),
        ] {
            if set.as_ref().is_some_and(|set| set.pos >= proxy.pos) {
                refuse.idle(
                    set,
                    name,
                    "'option external-check' is missing, or a later line sets another kind of check",
                );
            }
        }
        return None;
    };
    let Some(preserves_environment) = process.external_check else {
        refuse.found.alert(
            kind.pos,
            "'option external-check' expects 'external-check' in the global section, found none",
        );
        return None;
    };
    let Some(command) = text(&settings.external_command) else {
        refuse.found.alert(kind.pos, "'option external-check' expects 'external-check command', found none");
        return None;
    };
    Some(Program { command, path: text(&settings.external_path), preserves_environment })
}

/// Returns the target of the checks of `server`.
fn target_of(
    server: &Server,
    addr: Option<&Set<Word>>,
    port: Option<u16>,
    script: &Script,
    pos: manylane_config::source::Pos,
    refuse: &mut Refuse<'_>,
) -> ServerAddress {
    let other =
        addr.and_then(|set| match set.value.text().map(|text| Address::parse(text, &Rules::SERVER)) {
            Some(Ok(address)) => match address.resolve() {
                Ok(address) => Some(address),
                Err(error) => {
                    refuse.found.alert(set.value.pos(), format!("'addr' : {error}"));
                    None
                }
            },
            Some(Err(error)) => {
                let message = format!("'addr' : {}; {}", error.wrong_in(), error.remedy());
                refuse.found.alert(set.value.pos_at(error.span().start), message);
                None
            }
            None => {
                refuse.found.alert(
                    set.value.pos(),
                    format!("'addr' expects an address, found '{}', which is not UTF-8", set.value.shown()),
                );
                None
            }
        });
    // The service's own port, if it has one.
    let known = server.addr.read();
    let own_ip = known.ip();
    let own_port = match known.port {
        Port::One(port) => Some(port).filter(|port| *port != 0),
        _ => None,
    };
    let ip = match &other {
        Some(Address { location: Location::Ip { host: Host::V4(ip), .. }, .. }) => Some((*ip).into()),
        Some(Address { location: Location::Ip { host: Host::V6(ip), .. }, .. }) => Some((*ip).into()),
        Some(other) => {
            return other
                .endpoints()
                .map_or(ServerAddress::Nowhere, |mut all| ServerAddress::At(all.swap_remove(0)));
        }
        None => own_ip,
    };
    let Some(ip) = ip else {
        if known.address == ServerAddress::Nowhere {
            return known.address; // checked once the server has an address
        }
        if port.is_some()
            || script.steps().iter().any(|step| matches!(step, Step::Connect(Connect { port: Some(_), .. })))
        {
            let message = format!(
                "'port' of the checks expects an IP address, found server '{}' without one: write 'addr', \
                    or no port",
                server.name
            );
            refuse.found.alert(pos, message);
        }
        return known.address;
    };
    let written = match &other {
        Some(Address { location: Location::Ip { port: Port::One(port), .. }, .. }) => Some(*port),
        _ => None,
    };
    let by_script =
        script.steps().iter().all(|step| !matches!(step, Step::Connect(connect) if !has_port(connect)));
    match port.or(written).or(own_port) {
        Some(port) => ServerAddress::At(Endpoint::Ip((ip, port).into())),
        // A server without an address in its line gets address and port at run time.
        None if by_script || own_ip.is_some_and(|ip| ip.is_unspecified()) => {
            ServerAddress::At(Endpoint::Ip((ip, 0).into()))
        }
        None => {
            let message = format!(
                "server '{}' has no port, and its checks have none either; say 'port' behind 'check', or \
                    'tcp-check connect port'",
                server.name
            );
            refuse.found.alert(pos, message);
            ServerAddress::Nowhere
        }
    }
}

/// Returns true if a step names the port that it connects to.
fn has_port(connect: &Connect) -> bool {
    connect.port.is_some() || connect.address.is_some_and(|address| address.port() != 0)
}
