//! Health checks of servers: what the file says of them.

use super::Process;
use super::agent::CheckTarget;
use super::notify::Notify;
use super::observe::Observed;
use super::refuse::Refuse;
use super::server::{SendHeader, Server, ServerPlace};
use super::server_addr::ServerAddr;
use super::tls::{Purpose, ServerTls};
use manylane_check::{Board, Connect, Health, Init, Intervals, Script, Step};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::table::{ServerOptions, Timeout, Toggle};
use manylane_config::tree::{Proxy, Set, TlsOptions};
use manylane_net::address::{Host, Location, Port};
use manylane_net::{Address, ConnectOptions, Endpoint, Present, Rules};
use manylane_sync::Arc;
use std::ffi::OsString;
use std::time::Duration;

/// How a server is checked, and what came of it.
#[derive(Debug)]
pub struct ServerCheck {
    /// What is said and expected.
    pub script: Arc<Script>,
    /// The words of the file that it was made of.
    pub wording: Arc<[u8]>,
    /// `option external-check`: a program says it in place of them.
    pub program: Option<Program>,
    /// `check-proto h2`, or that of the server: connections as the server's own speak HTTP/2.
    pub http2: bool,
    /// `check-reuse-pool`: it uses idle connections of requests, and leaves its own to them.
    pub reuses: bool,
    /// Where its connections go, unless it follows the server.
    pub place: ServerPlace,
    /// They go where the server is.
    pub follows: Option<Follows>,
    /// Its line says at which address: `addr`, `agent-addr`.
    pub has_address: bool,
    /// Options of its connections.
    pub connect: ConnectOptions,
    /// Its connections speak TLS.
    pub tls: Option<Arc<ServerTls>>,
    /// How connections do whose steps say it, by their numbers.
    pub tls_of_steps: Vec<(usize, Arc<ServerTls>)>,
    /// What its connections begin with.
    pub header: Option<SendHeader>,
    /// What those begin with for which the script asks for one: `connect send-proxy`.
    pub usual_header: SendHeader,
    /// A header of version 2 says that it relays for somebody, which is itself: for servers that know
    /// nothing else.
    pub relays: bool,
    /// When.
    pub intervals: Intervals,
    /// How long.
    pub timeouts: CheckTimeouts,
    /// `option log-health-checks`
    pub log: bool,
    /// `observe`
    pub observed: Option<Observed>,
    /// How healthy the server is before the first check, and how many checks change that.
    pub health: Health,
    /// The latest.
    pub board: Arc<Board>,
    /// What was set at run time.
    pub target: Arc<CheckTarget>,
    /// Wakes who checks it: something else is to be done than to wait. Generations whose checks of a server
    /// are the same have it together, and one task goes on for all of them.
    pub notify: Arc<Notify>,
}

/// How a check speaks TLS: as the server does where it goes there, unless the file says otherwise.
fn tls_of(
    server: &Server,
    options: &TlsOptions,
    elsewhere: bool,
    process: &Process,
    pos: Pos,
    refuse: &mut Refuse<'_>,
) -> Option<Arc<ServerTls>> {
    let usual = server.tls.is_some() && !elsewhere;
    if !options.check_ssl.map_or(usual, |set| set.value) {
        return None;
    }
    super::tls::of_server(options, &process.tls, Purpose::Check, pos, refuse).map(Arc::new)
}

/// How connections of a check speak TLS whose steps say that they do, by the numbers of the steps.
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
    /// It has all of the process's environment, too.
    pub preserves_environment: bool,
}

/// A check that goes where its server is.
#[derive(Clone, Debug)]
pub struct Follows {
    /// Where that is.
    pub addr: Arc<ServerAddr>,
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
        if self.addr.word() >> 1 == 0 {
            return first.clone(); // it has not moved
        }
        let known = self.addr.read();
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
pub enum CheckTimeouts {
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
pub(super) fn checks(
    proxy: &Proxy,
    process: &Process,
    servers: &mut [Server],
    (script, wording): (&Arc<Script>, &Arc<[u8]>),
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
            ..
        } = &line.options;
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
        // Where nothing is waited for first, the handshake's last packet goes with the request, or with the
        // reset that ends a check that only connects: its server is not even told of it.
        options.late_ack = true;
        if let Some(source) = &mut options.source {
            // There is no client whose address could be shown.
            source.present = source.present.filter(|present| matches!(present, Present::Address(_)));
        }
        let reuses = check_reuse_pool.is_some_and(|set| set.value) && script.reuses() && !http2;
        if check_reuse_pool.is_some_and(|set| set.value)
            && (!reuses || elsewhere || check_send_proxy.is_some_and(|set| set.value))
        {
            let why = "only checks in HTTP/1 that go where requests go, in one connection as the server's \
                own, can use those of requests";
            refuse.idle(check_reuse_pool, "check-reuse-pool", why);
        }
        let port = port.map(|set| set.value);
        server.check = Some(ServerCheck {
            script: script.clone(),
            wording: wording.clone(),
            program: program.clone(),
            http2,
            reuses: reuses && !elsewhere && !check_send_proxy.is_some_and(|set| set.value),
            has_address: addr.is_some(),
            place: place(server, addr.as_ref(), port, script, line.pos, refuse),
            follows: (addr.is_none() && !matches!(server.stays, Some("it is no IP address")))
                .then(|| Follows { addr: server.addr.clone(), port }),
            connect: options,
            tls_of_steps: tls_of_steps(script, &line.options.tls, process, line.pos, refuse),
            tls: tls_of(server, &line.options.tls, elsewhere, process, line.pos, refuse),
            // What is checked elsewhere is not the service, so it is not spoken to like it, unless the file
            // says so.
            header: match check_send_proxy.map(|set| set.value) {
                Some(true) => server.header.or(Some(SendHeader::default())),
                // `no-check-send-proxy` takes back what `default-server` said, and nothing else.
                Some(false) | None => server.header.filter(|_| !elsewhere),
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
            log: settings.option(Toggle::LOG_HEALTH_CHECKS),
            observed: Observed::new(&line.options, settings.mode(), refuse),
            board: Arc::new(Board::new(health.clone())),
            health,
            target: Arc::default(),
            notify: Arc::default(),
        });
    }
}

/// `option external-check`
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
                    "there is no 'option external-check', or another kind of check after it",
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

/// Where the checks of `server` go.
fn place(
    server: &Server,
    addr: Option<&Set<Word>>,
    port: Option<u16>,
    script: &Script,
    pos: manylane_config::source::Pos,
    refuse: &mut Refuse<'_>,
) -> ServerPlace {
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
    // The service's own port, where it has one.
    let known = server.addr.read();
    let own_ip = known.ip();
    let own_port = match known.port {
        Port::One(port) => Some(port).filter(|port| *port != 0),
        _ => None,
    };
    let ip = match &other {
        Some(Address { place: Location::Ip { host: Host::V4(ip), .. }, .. }) => Some((*ip).into()),
        Some(Address { place: Location::Ip { host: Host::V6(ip), .. }, .. }) => Some((*ip).into()),
        Some(other) => {
            return other
                .endpoints()
                .map_or(ServerPlace::Nowhere, |mut all| ServerPlace::At(all.swap_remove(0)));
        }
        None => own_ip,
    };
    let Some(ip) = ip else {
        if known.place == ServerPlace::Nowhere {
            return known.place; // it is checked when it has an address
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
        return known.place;
    };
    let written = match &other {
        Some(Address { place: Location::Ip { port: Port::One(port), .. }, .. }) => Some(*port),
        _ => None,
    };
    let by_script =
        script.steps().iter().all(|step| !matches!(step, Step::Connect(connect) if !has_port(connect)));
    match port.or(written).or(own_port) {
        Some(port) => ServerPlace::At(Endpoint::Ip((ip, port).into())),
        // One without an address of its own gets both at run time.
        None if by_script || own_ip.is_some_and(|ip| ip.is_unspecified()) => {
            ServerPlace::At(Endpoint::Ip((ip, 0).into()))
        }
        None => {
            let message = format!(
                "server '{}' has no port, and its checks have none either; say 'port' behind 'check', or \
                    'tcp-check connect port'",
                server.name
            );
            refuse.found.alert(pos, message);
            ServerPlace::Nowhere
        }
    }
}

/// Whether a step says itself to which port it connects.
fn has_port(connect: &Connect) -> bool {
    connect.port.is_some() || connect.address.is_some_and(|address| address.port() != 0)
}
