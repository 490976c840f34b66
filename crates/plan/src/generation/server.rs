//! Servers of `server` lines.

use super::bind::{keep_alive, text};
use super::checks::ServerCheck;
use super::process::Process;
use super::refuse::Refuse;
use super::resolvers::{self, Resolution};
use super::server_addr::{ServerAddr, ServerAddrState};
use super::tls::{Purpose, ServerTls, SniName};
use super::track::{ServerNumber, TrackingServers};
use crate::counts::ServerStats;
use manylane_check::states::{State, admin};
use manylane_check::{HealthState, HistoryCell};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::table::{OptionSwitch, ServerOptions};
use manylane_config::tree::{self, Mode, ProxyHeader, Set, Settings};
use manylane_expr::Format;
use manylane_net::address::{Host, Location, Port, Transport};
use manylane_net::{Address, CommonOptions, ConnectOptions, Endpoint, Source, UseSource};
use manylane_sched::Time;
use manylane_sync::Arc;
use manylane_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

/// A server: its settings in the configuration, and its state.
#[derive(Debug)]
pub struct Server {
    /// Number among all servers.
    pub number: usize,
    /// Number in its backend.
    pub index: usize,
    /// Number under which idle connections are pooled. It is the same for the same server of all generations,
    /// as long as these connect in the same way.
    pub pool: u64,
    /// `id`, or the next free number of the backend.
    pub id: u32,
    /// True if `id` gives the number.
    pub id_is_given: bool,
    /// Name of the server.
    pub name: Box<str>,
    /// `guid`
    pub guid: Option<Box<str>>,
    /// `socks4`: the proxy that connects to the server.
    pub socks4: Option<SocketAddr>,
    /// Current address.
    pub addr: Arc<ServerAddr>,
    /// Address in the configuration, wherever the server was moved since.
    pub written: Box<ServerAddrState>,
    /// Resolution of its name, if its address is kept up to date.
    pub resolution: Option<Resolution>,
    /// Reason why its address cannot change.
    pub stays: Option<&'static str>,
    /// Options of connections to the server.
    pub connect: ConnectOptions,
    /// `namespace *`: connections are made from the client's network namespace.
    pub namespace_of_client: bool,
    /// PROXY header that connections begin with.
    pub header: Option<SendHeader>,
    /// `proto h2`: the server speaks HTTP/2, and each connection serves many concurrent requests.
    pub http2: bool,
    /// `ws`: true if WebSocket streams go to the server in HTTP/2; by default like all other streams, but in
    /// HTTP/1 if ALPN offers both.
    pub http2_websocket: bool,
    /// `ssl`
    pub tls: Option<ServerTls>,
    /// `weight`, 0 to 256.
    pub weight: u16,
    /// `backup`
    pub backup: bool,
    /// `disabled`
    pub disabled: bool,
    /// `rise`: health of a server without check in `show servers state`.
    pub rise: u32,
    /// `maxconn`; 0 for no limit.
    pub maxconn: u32,
    /// `strict-maxconn`: `maxconn` bounds connections, those without a request included.
    pub strict_maxconn: bool,
    /// `minconn`
    pub minconn: u32,
    /// `maxqueue`; 0 for no limit.
    pub maxqueue: u32,
    /// `slowstart`
    pub slowstart: Duration,
    /// `cookie`
    pub cookie: Option<Box<[u8]>>,
    /// `max-reuse`: requests after a connection's first one; `None` for no limit.
    pub max_reuse: Option<u32>,
    /// `pool-max-conn`; `None` for no limit.
    pub pool_max: Option<u32>,
    /// `pool-low-conn`
    pub pool_low: u32,
    /// `pool-purge-delay`
    pub pool_purge: Duration,
    /// `idle-ping`
    pub idle_ping: Option<Duration>,
    /// `hash-key`
    pub hash_key: HashKey,
    /// `redir`: prefix of the location to which requests without a body are redirected.
    pub redirect: Option<Box<[u8]>>,
    /// `set-proxy-v2-tlv-fmt`: additional fields of the PROXY header.
    pub tlvs: Vec<(u8, Format)>,
    /// A warning was logged that a field did not fit into the header.
    pub header_cut: AtomicBool,
    /// `pool-conn-name`: number of the backend's expression that keeps idle connections apart.
    pub pool_name: Option<usize>,
    /// `usesrc hdr_ip`: the request's field whose address the server sees as source, and which of its values;
    /// a negative number counts from the last.
    pub source_field: Option<(Box<[u8]>, i32)>,
    /// `non-stick`: stick tables do not store the server.
    pub non_stick: bool,
    /// Number of the server's name in stick tables, computed on first use.
    name_key: OnceLock<u32>,
    /// True for a stand-in: it is not in the file, and has the address of `dispatch` or the one that a client
    /// connected to (`option transparent`).
    pub stands_in: bool,
    /// `check`
    pub check: Option<ServerCheck>,
    /// `agent-check`
    pub agent: Option<ServerCheck>,
    /// `track`
    pub tracks: Option<ServerNumber>,
    /// Servers that track this one.
    pub followers: TrackingServers,
    /// True if a command added the server; it is in no file.
    pub added: bool,
    /// True if other parts of the configuration name the server, so that it cannot be removed.
    pub(super) named: AtomicBool,
    /// `on-marked-down shutdown-sessions`
    pub ends_streams_when_down: bool,
    /// `on-marked-up shutdown-backup-sessions`
    pub ends_backup_streams_when_up: bool,
    /// Times of state changes.
    pub past: Arc<HistoryCell>,
    /// Its place among the targets of logs, in `mode log`.
    pub log_target: Option<usize>,
    /// Counters.
    pub counts: Arc<ServerStats>,
}

impl Server {
    /// Returns the PROXY header, if it is sent with the first bytes of a request. Before TLS it is sent
    /// alone.
    #[inline]
    pub fn header_within(&self) -> Option<SendHeader> {
        self.header.filter(|_| self.tls.is_none())
    }

    /// Returns the number of the server's name or address in stick tables; 0 if it has none.
    #[inline]
    pub fn stick_key(&self, by_address: bool) -> u32 {
        if by_address {
            return self.addr.stick_key();
        }
        *self.name_key.get_or_init(|| manylane_stick::server_key(&self.name).unwrap_or_default())
    }

    /// Returns true if ALPN may select HTTP/2.
    #[inline]
    pub fn offers_h2(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.offers_h2)
    }

    /// Returns true if the answer to ALPN says the version of HTTP, also for WebSocket: no `proto h2`.
    #[inline]
    pub fn selects_by_alpn(&self) -> bool {
        !self.http2 && self.tls.as_ref().is_some_and(|tls| !tls.context.protocols().is_empty())
    }

    /// Returns true if `max-reuse` allows another request on a connection that has served this many.
    #[inline]
    pub fn allows_reuse(&self, served: u64) -> bool {
        self.max_reuse.is_none_or(|most| served <= u64::from(most))
    }

    /// Returns the number of the expression for the server name in TLS.
    #[inline]
    pub fn evaluated_name(&self) -> Option<usize> {
        match self.tls.as_ref()?.name {
            SniName::Evaluated(number) => Some(number),
            SniName::None | SniName::Fixed(_) => None,
        }
    }

    /// Returns true if the PROXY header depends on a single request, so that it does not fit another one.
    #[inline]
    pub fn tells_of_requests(&self) -> bool {
        self.header.is_some_and(|header| header.unique_id || !self.tlvs.is_empty())
    }

    /// Returns true if other parts of the configuration name the server.
    #[inline]
    pub fn is_named(&self) -> bool {
        self.named.load(Ordering::Relaxed) // set before the generation serves
    }

    /// Returns the number of streams with the server, of all generations.
    #[inline]
    pub fn streams_now(&self) -> u64 {
        // Ends are read first, so a concurrent begin makes the number too high rather than too low.
        let ended = self.counts.read_cheap_one(|counts| &counts.streams_ended);
        self.counts.read_cheap_one(|counts| &counts.streams).saturating_sub(ended)
    }

    /// Returns true if the server has a check or an agent.
    pub(super) fn is_checked(&self) -> bool {
        self.check.is_some() || self.agent.is_some()
    }

    /// Returns the health by check and agent. Both have to report that the server works; a disabled one does
    /// not count.
    pub fn found(&self) -> HealthState {
        let by = |check: &Option<ServerCheck>| {
            let report = check.as_ref()?.board.read();
            (!report.disabled).then(|| report.health.running())
        };
        match by(&self.agent) {
            Some(HealthState::Down) => HealthState::Down,
            _ => by(&self.check).unwrap_or(HealthState::Up),
        }
    }

    /// Sets the health in place of the checks.
    pub fn is_said_to_be(&self, running: HealthState) {
        if let Some(check) = &self.check {
            check.board.set(running);
        }
    }

    /// Pauses the check while the server is in maintenance, and resumes it afterwards.
    pub fn paused(&self, paused: bool) {
        if let Some(check) = &self.check {
            if paused {
                check.board.pause();
            } else {
                check.board.come_back();
            }
            check.notify.notify_one();
        }
    }
}

/// `hash-key`: identity of a server for consistent hashing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// Number of the server.
    Id,
    /// Address of the server.
    Address,
    /// Address and port of the server.
    AddressAndPort,
    /// `guid` of the server; its number if it has none.
    Guid(Option<Box<[u8]>>),
}

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// This endpoint.
    At(Endpoint),
    /// An address with open parts, which come from the address that the client connected to.
    OfClient(Address),
    /// No address: its name is not resolved (`init-addr none`).
    Nowhere,
}

/// PROXY header that a connection begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendHeader {
    /// True for the binary version, false for a line of text.
    pub v2: bool,
    /// Has a checksum.
    pub checksum: bool,
    /// Has the unique id.
    pub unique_id: bool,
    /// Has the host name that the client asked for, as reported by the proxy in front.
    pub authority: bool,
    /// Has the state of the client's TLS.
    pub tls: bool,
    /// Has the name in the client's certificate.
    pub name: bool,
    /// Has the cipher.
    pub cipher: bool,
    /// Has the key algorithm of the certificate that the client was shown.
    pub key: bool,
    /// Has the signature algorithm of that certificate.
    pub signature: bool,
}

/// Next pool number: each server that the process has had took one.
static POOLS: AtomicU64 = AtomicU64::new(0);

/// Logged in place of a server's name if the request reached no server, as in HAProxy.
const NO_SERVER: &str = "<NOSRV>";

/// Builds a server of a line. `last` is its entry in the server state file.
pub(super) fn server(
    line: &tree::Server,
    settings: &Settings,
    process: &Process,
    number: usize,
    index: usize,
    last: Option<&State>,
    refuse: &mut Refuse<'_>,
) -> Server {
    let tree::Server { name, address, options, pos, template: _ } = line;
    let ServerOptions {
        cookie,
        error_limit: _, // of the checks
        guid,
        hash_key,
        healthcheck: _, // of the checks
        id,
        init_addr,
        init_state: _, // of the checks, like all of these
        addr: _,
        port: _,
        inter: _,
        fastinter: _,
        downinter: _,
        rise,
        fall: _,
        check: _,
        agent_check: _,
        agent_addr: _,
        agent_inter: _,
        agent_port: _,
        agent_send: _,
        check_send_proxy: _,
        check_proto: _,
        check_reuse_pool: _,
        log_bufsize: _, // of log backends, with the next
        log_proto: _,
        max_reuse,
        maxconn,
        maxqueue,
        minconn,
        namespace,
        observe: _, // of the checks
        on_error: _,
        on_marked_down,
        on_marked_up,
        pool_conn_name: _, // read with the rules
        pool_low_conn,
        pool_max_conn,
        pool_purge_delay,
        idle_ping,
        proto,
        redir,
        resolve_net: _, // of the resolution, like these
        resolve_opts: _,
        resolve_prefer: _,
        resolvers: _,
        shard,
        slowstart,
        tcp_md5sig,
        tcp_ut,
        track: _, // looked up when all servers are known
        weight,
        ws,
        cc,
        backup,
        disabled,
        non_stick,
        tfo,
        send_proxy,
        proxy_v2_options,
        proxy_tlvs: _, // like `pool_conn_name`
        source,
        socks4,
        check_via_socks4: _, // of the checks
        strict_maxconn,
        tls,
    } = options;
    let namespace_of_client = namespace.as_ref().is_some_and(|set| set.value == *"*");
    let on = |set: &Option<Set<bool>>| set.is_some_and(|set| set.value);
    if let Some(set) = strict_maxconn.filter(|_| maxconn.is_none_or(|set| set.value == 0)) {
        let message =
            "'strict-maxconn' has no effect without 'maxconn': set that, or remove 'strict-maxconn'";
        refuse.found.warning(set.pos, message);
    }
    refuse.idle(shard, "shard", "it divides keys among the servers of a 'peers' section alone");
    let header = header(send_proxy, proxy_v2_options);
    let http2 = proto.as_ref().is_some_and(|set| set.value == "h2");
    if let Some(set) = proto.as_ref().filter(|_| http2 && settings.mode() != Mode::Http) {
        let why = "'proto h2' : HTTP/2 is spoken in 'mode http' only: set that, or remove 'proto h2'";
        refuse.found.alert(set.pos, why);
    }
    let speaks_tls = tls.ssl.is_some_and(|set| set.value);
    let common = CommonOptions {
        signature: super::bind::signature(tcp_md5sig, refuse),
        multipath: address.value.transport == Some(Transport::Multipath),
        user_timeout: tcp_ut.map(|set| set.value),
        keep_alive: keep_alive(
            settings.option(OptionSwitch::SRVTCPKA) || settings.option(OptionSwitch::TCPKA),
            &settings.server_keep_alive,
        ),
        no_linger: settings.option(OptionSwitch::NOLINGER),
        congestion_control: cc.as_ref().map(|set| text(&set.value)),
        receive_buffer: process.server_receive_buffer,
        send_buffer: process.server_send_buffer,
        unsent: process.server_unsent,
        ..CommonOptions::default()
    };
    let source = source.as_ref().or(settings.source.as_ref()).map(|set| &set.value);
    let connect = ConnectOptions {
        source: source.and_then(|source| self::source(source, refuse)),
        interface: source.and_then(|source| source.interface.as_ref()).map(text),
        mss: None,
        fast_open: on(tfo),
        late_ack: settings.option(OptionSwitch::TCP_SMART_CONNECT),
        namespace: namespace.as_ref().filter(|_| !namespace_of_client).map(|set| text(&set.value)),
        common,
    };
    let (known, mut resolution) = whereabouts(address, init_addr, options, last, refuse);
    let endpoint = &known.address;
    let dynamic = cookie.is_none() && settings.cookie.as_ref().is_some_and(|set| set.value.dynamic);
    let by_address = matches!(hash_key, Some(Set { value: "addr" | "addr-port", .. }));
    let stays = match endpoint {
        ServerAddress::At(Endpoint::Ip(_)) | ServerAddress::OfClient(_) | ServerAddress::Nowhere
            if by_address =>
        {
            Some("its 'hash-key' is its address")
        }
        ServerAddress::At(Endpoint::Ip(_)) | ServerAddress::OfClient(_) | ServerAddress::Nowhere
            if dynamic =>
        {
            Some("its cookie is made of its address")
        }
        ServerAddress::At(Endpoint::Ip(_)) | ServerAddress::OfClient(_) | ServerAddress::Nowhere => None,
        ServerAddress::At(_) => Some("it is no IP address"),
    };
    if stays.is_some() && !matches!(address.value.location, Location::Ip { host: Host::Name { .. }, .. }) {
        resolution = None; // it has no name and gets none
    }
    if let (Some(set), Some(why), true) = (&options.resolvers, stays, resolution.is_some()) {
        refuse.keyword(set.pos, "resolvers", &format!("the server's address cannot change, since {why}"));
    }
    let mut tls = speaks_tls
        .then(|| super::tls::of_server(tls, &process.tls, Purpose::Traffic, *pos, refuse))
        .flatten();
    let http2_websocket = match ws.as_ref().map(|set| set.value) {
        Some("h1") => false,
        Some("h2") => true,
        _ => http2 || proto.is_none() && tls.as_ref().is_some_and(ServerTls::has_websocket_on_h2),
    };
    if let Some(tls) = &mut tls {
        tls.set_websocket(http2_websocket);
    }
    Server {
        number,
        index,
        pool: POOLS.fetch_add(1, Ordering::Relaxed),
        id: id.map_or(0, |set| set.value),
        id_is_given: id.is_some(),
        name: text(name),
        guid: guid.as_ref().map(|set| text(&set.value)),
        socks4: socks4.as_ref().and_then(|set| proxy(set, &known.address, refuse)),
        cookie: match cookie {
            Some(set) => Some(set.value.bytes().into()),
            None => dynamic_cookie(settings, endpoint),
        },
        written: Box::new(known.clone()),
        addr: Arc::new(ServerAddr::new(known)),
        resolution,
        stays,
        connect,
        namespace_of_client,
        header,
        http2,
        http2_websocket,
        tls,
        weight: weight.map_or(1, |set| set.value.min(256) as u16),
        backup: on(backup),
        disabled: on(disabled),
        maxconn: maxconn.map_or(0, |set| set.value),
        strict_maxconn: on(strict_maxconn) && maxconn.is_some_and(|set| set.value > 0),
        minconn: minconn.map_or(0, |set| set.value),
        maxqueue: maxqueue.map_or(0, |set| set.value),
        slowstart: slowstart.map_or(Duration::ZERO, |set| set.value),
        max_reuse: max_reuse.and_then(|set| u32::try_from(set.value).ok()),
        pool_max: pool_max_conn.and_then(|set| u32::try_from(set.value).ok()),
        pool_low: pool_low_conn.map_or(0, |set| set.value),
        idle_ping: idle_ping.map(|set| set.value).filter(|time| !time.is_zero()),
        pool_purge: pool_purge_delay.map_or(Duration::from_secs(5), |set| set.value),
        hash_key: match hash_key {
            None | Some(Set { value: "id", .. }) => HashKey::Id,
            Some(Set { value: "addr", .. }) => HashKey::Address,
            Some(Set { value: "addr-port", .. }) => HashKey::AddressAndPort,
            Some(_) => HashKey::Guid(guid.as_ref().map(|set| set.value.bytes().into())),
        },
        redirect: redir.as_ref().map(|set| set.value.bytes().into()),
        tlvs: Vec::new(),
        header_cut: AtomicBool::new(false),
        pool_name: None,
        source_field: source.and_then(|source| source_field(source, refuse)),
        non_stick: on(non_stick),
        name_key: OnceLock::new(),
        rise: rise.map_or(2, |set| set.value),
        stands_in: false,
        check: None,  // set when all servers are known
        agent: None,  // set when all servers are known
        tracks: None, // set when all servers are known
        followers: TrackingServers::default(),
        added: false,
        named: AtomicBool::new(false),
        ends_streams_when_down: on_marked_down.is_some(),
        ends_backup_streams_when_up: on_marked_up.is_some(),
        past: Arc::new(HistoryCell::new(Time::now().since(Time::ZERO))),
        log_target: None, // set when the server is complete
        counts: Arc::default(),
    }
}

/// Returns true if a backend has a server beside those of its lines: that of `dispatch`, unless there is
/// `balance`, or that of `option transparent`.
pub(super) fn has_stand_in(settings: &Settings) -> bool {
    settings.option(OptionSwitch::TRANSPARENT) || settings.dispatch.is_some() && settings.balance.is_none()
}

/// Builds the server of `dispatch` or `option transparent`. It gets the streams for which neither a cookie
/// nor a rule names a server. The algorithm never chooses it.
pub(super) fn of_client(
    pos: Pos,
    settings: &Settings,
    process: &Process,
    number: usize,
    index: usize,
    refuse: &mut Refuse<'_>,
) -> Server {
    let anywhere = Location::Ip { host: Host::V4(Ipv4Addr::UNSPECIFIED), port: Port::Unset };
    let line = tree::Server {
        name: Word::plain(NO_SERVER, pos),
        address: match &settings.dispatch {
            Some(set) => set.clone(),
            None => Set { value: Address { transport: None, location: anywhere }, pos },
        },
        options: ServerOptions::default(),
        pos,
        template: None,
    };
    Server {
        weight: 0,
        cookie: None,
        rise: 2,
        stands_in: true,
        ..server(&line, settings, process, number, index, None, refuse)
    }
}

fn header(send_proxy: &Option<Set<ProxyHeader>>, options: &Option<Set<Word>>) -> Option<SendHeader> {
    let mut header = match send_proxy.as_ref()?.value {
        ProxyHeader::None => return None,
        ProxyHeader::V1 => return Some(SendHeader::default()),
        ProxyHeader::V2 => SendHeader { v2: true, ..SendHeader::default() },
        ProxyHeader::V2Tls => SendHeader { v2: true, tls: true, ..SendHeader::default() },
        ProxyHeader::V2TlsName => SendHeader { v2: true, tls: true, name: true, ..SendHeader::default() },
    };
    for option in options.iter().flat_map(|set| set.value.bytes().split(|byte| *byte == b',')) {
        match option {
            b"crc32c" => header.checksum = true,
            b"unique-id" => header.unique_id = true,
            b"authority" => header.authority = true,
            b"cert-cn" => (header.tls, header.name) = (true, true),
            b"ssl-cipher" => (header.tls, header.cipher) = (true, true),
            b"cert-key" => (header.tls, header.key) = (true, true),
            b"cert-sig" => (header.tls, header.signature) = (true, true),
            _ => header.tls = true,
        }
    }
    Some(header)
}

/// Reads `usesrc hdr_ip(name[,occurrence])`.
fn source_field(source: &tree::Source, refuse: &mut Refuse<'_>) -> Option<(Box<[u8]>, i32)> {
    let word = source.usesrc.as_ref()?;
    let arguments = word.text()?.strip_prefix("hdr_ip(")?;
    let (name, occurrence) =
        arguments.strip_suffix(')').map_or(("", None), |arguments| match arguments.split_once(',') {
            Some((name, occurrence)) => (name.trim(), Some(occurrence.trim())),
            None => (arguments.trim(), None),
        });
    let occurrence = occurrence
        .map_or(Some(-1), |number| number.parse().ok().filter(|n| *n >= -MOST_OCCURRENCES && *n != 0));
    match occurrence.filter(|_| !name.is_empty()) {
        Some(occurrence) => Some((name.to_ascii_lowercase().into_bytes().into(), occurrence)),
        None => {
            let message = format!(
                "'usesrc' expects hdr_ip(name) or hdr_ip(name,occurrence), where -1 is the last value and \
                    -{MOST_OCCURRENCES} the lowest number"
            );
            refuse.found.alert(word.pos(), message);
            None
        }
    }
}

/// Most values that `usesrc hdr_ip` looks back, as in HAProxy.
const MOST_OCCURRENCES: i32 = 10;

/// Resolves the address of `socks4`.
fn proxy(set: &Set<Address>, server: &ServerAddress, refuse: &mut Refuse<'_>) -> Option<SocketAddr> {
    let mut wrong = |message: String| refuse.found.alert(set.pos, message);
    if matches!(server, ServerAddress::At(endpoint) if !matches!(endpoint, Endpoint::Ip(SocketAddr::V4(_)))) {
        wrong("'socks4' expects a server with an IPv4 address: SOCKS4 has no other".into());
        return None;
    }
    match set.value.resolve().and_then(|address| address.endpoints()).as_deref() {
        Ok([Endpoint::Ip(address), ..]) => Some(*address),
        Ok(_) => {
            wrong(format!("'socks4' expects an IP address and a port, found '{}'", set.value));
            None
        }
        Err(error) => {
            wrong(format!("'socks4' : {error}"));
            None
        }
    }
}

/// Reads `source`.
fn source(source: &tree::Source, refuse: &mut Refuse<'_>) -> Option<Source> {
    let tree::Source { address, usesrc, interface: _ } = source;
    let mut wrong = |message: String| refuse.found.alert(address.pos, message);
    let resolved = match address.value.resolve() {
        Ok(resolved) => resolved,
        Err(error) => {
            wrong(format!("'source' : {error}"));
            return None;
        }
    };
    let Location::Ip { host, port } = resolved.location else {
        wrong(format!("'source' expects an IP address, found '{}'", address.value));
        return None;
    };
    let ip = match host {
        Host::V4(ip) => ip.into(),
        Host::V6(ip) => ip.into(),
        Host::Name { .. } => return None, // the name was resolved
    };
    let ports = match port {
        Port::Unset => None,
        Port::One(port) => Some(port..=port),
        Port::Range { low, high } => Some(low..=high),
        Port::Offset(_) => {
            wrong("'source' expects a port or a range of ports, found an offset".into());
            None
        }
    };
    let present = match usesrc.as_ref() {
        None => None,
        Some(word) => match word.text() {
            Some("client") => Some(UseSource::Client),
            Some("clientip") => Some(UseSource::ClientIp),
            // The client that the field names.
            Some(text) if text.starts_with("hdr_ip(") => Some(UseSource::ClientIp),
            Some(text) => {
                let with_port = text.parse().ok();
                let alone = text.parse().ok().map(|ip| std::net::SocketAddr::new(ip, 0));
                let address = with_port.or(alone);
                if address.is_none() {
                    let message = format!("'usesrc' expects client, clientip or an address, found '{text}'");
                    refuse.found.alert(word.pos(), message);
                }
                address.map(UseSource::Address)
            }
            None => None,
        },
    };
    Some(Source { address: ip, ports, present })
}

/// Returns the server's address at the start, and the resolution of its name, if it has one. `last` is the
/// server's entry in the server state file.
fn whereabouts(
    address: &Set<Address>,
    init_addr: &Option<Set<Word>>,
    options: &ServerOptions,
    last: Option<&State>,
    refuse: &mut Refuse<'_>,
) -> (ServerAddrState, Option<Resolution>) {
    let (host, port) = match &address.value.location {
        Location::Ip { host: Host::Name { name, .. }, port } => (Some(&**name), *port),
        Location::Ip { port, .. } => (None, *port),
        _ => (None, Port::Unset),
    };
    let resolution = resolvers::of_server(host, options, Set { value: (), pos: address.pos }, refuse);
    let methods = methods(init_addr, resolution.is_some(), refuse);
    let mut known = ServerAddrState {
        address: ServerAddress::Nowhere,
        port,
        name: None,
        renamed: false,
        set_by_operator: false,
        answer: None,
    };
    let Some(Resolution { service: Some(service), .. }) = &resolution else {
        // A name that an operator has set stays, as long as the server has resolvers.
        let given = last.filter(|last| resolution.is_some() && last.admin & admin::RENAMED != 0);
        let given = given.and_then(|last| last.name.clone()).filter(|given| Some(&**given) != host);
        known.renamed = given.is_some();
        known.name = given.or(host.map(Box::from));
        known.address = initial_address(address, &methods, last.and_then(|last| last.address), refuse);
        return (known, resolution);
    };
    // The server keeps its member of the service until the service's records change.
    match last.filter(|last| last.service.as_deref() == Some(service.as_str())) {
        Some(State { name: Some(name), port, address: ip, .. }) if *port != 0 => {
            known.port = Port::One(*port);
            known.name = Some(name.clone());
            known.renamed = true;
            known.settle(ip.filter(|_| methods.contains(&Method::Last)));
        }
        _ => {}
    }
    (known, resolution)
}

/// Method to resolve a name at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Last,
    Libc,
    None,
    At(IpAddr),
}

/// Reads `init-addr`; errors are reported even if an address makes it useless. Without it, a server
/// whose name is `requested` at run time may start without an address.
fn methods(init_addr: &Option<Set<Word>>, requested: bool, refuse: &mut Refuse<'_>) -> Vec<Method> {
    let Some(set) = init_addr else {
        let none = requested.then_some(Method::None);
        return [Method::Last, Method::Libc].into_iter().chain(none).collect();
    };
    let mut methods = Vec::new();
    let mut at = 0;
    for word in set.value.bytes().split(|byte| *byte == b',') {
        methods.push(match word {
            b"last" => Method::Last,
            b"libc" => Method::Libc,
            b"none" => Method::None,
            other => match std::str::from_utf8(other).ok().and_then(|text| text.parse().ok()) {
                Some(ip) => Method::At(ip),
                None => {
                    let text = String::from_utf8_lossy(other);
                    refuse.found.alert(
                        set.value.pos_at(at),
                        format!("'init-addr' expects last, libc, none or an address, found '{text}'"),
                    );
                    Method::None
                }
            },
        });
        at += word.len() + 1;
    }
    methods
}

/// Address of servers whose names are not looked up, from a network for documentation (RFC 5737).
const DOCUMENTATION: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0));

/// Returns the server's address. The first method of `init-addr` that succeeds resolves its name. `last` is
/// the address in the server state file.
fn initial_address(
    address: &Set<Address>,
    methods: &[Method],
    last: Option<IpAddr>,
    refuse: &mut Refuse<'_>,
) -> ServerAddress {
    let settled = |address: Address| {
        let of_client = match &address.location {
            Location::Ip { host, port } => {
                let wild = match host {
                    Host::V4(ip) => ip.is_unspecified(),
                    Host::V6(ip) => ip.is_unspecified(),
                    Host::Name { .. } => false,
                };
                wild || !matches!(port, Port::One(_))
            }
            _ => false,
        };
        if of_client {
            return ServerAddress::OfClient(address);
        }
        match address.endpoints().map(|mut all| all.swap_remove(0)) {
            Ok(endpoint) => ServerAddress::At(endpoint),
            Err(_) => ServerAddress::Nowhere, // neither a name nor a range is left here
        }
    };
    let Location::Ip { host: Host::Name { .. }, port } = &address.value.location else {
        return settled(address.value.clone());
    };
    let at = |ip: IpAddr| {
        let host = match ip {
            IpAddr::V4(ip) => Host::V4(ip),
            IpAddr::V6(ip) => Host::V6(ip),
        };
        Address { transport: address.value.transport, location: Location::Ip { host, port: *port } }
    };
    if refuse.no_lookups {
        return settled(at(DOCUMENTATION));
    }
    let mut failure = None;
    for method in methods {
        match method {
            Method::Last => {
                if let Some(ip) = last {
                    return settled(at(ip));
                }
            }
            Method::Libc => match address.value.resolve() {
                Ok(resolved) => return settled(resolved),
                Err(error) => failure = Some(error.to_string()),
            },
            Method::None => {
                if let Some(failure) = failure {
                    refuse
                        .found
                        .warning(address.pos, format!("'server' : {failure}; it has no address for now"));
                }
                return ServerAddress::Nowhere;
            }
            Method::At(ip) => return settled(at(*ip)),
        }
    }
    if refuse.ignore_unresolved {
        return ServerAddress::Nowhere;
    }
    let why =
        failure.unwrap_or_else(|| "expected an address by the methods of 'init-addr', found none".into());
    refuse.found.alert(address.pos, format!("'server' : {why}"));
    ServerAddress::Nowhere
}

/// Returns the cookie of `cookie dynamic` for a server without one of its own. It is the one that HAProxy
/// makes, so that a client stays with its server whichever of several proxies it uses: XXH64 of the secret,
/// the address and the port, which has four bytes in network order.
fn dynamic_cookie(settings: &Settings, endpoint: &ServerAddress) -> Option<Box<[u8]>> {
    settings.cookie.as_ref().filter(|set| set.value.dynamic)?;
    let secret = &settings.dynamic_cookie_key.as_ref()?.value;
    let ServerAddress::At(Endpoint::Ip(address)) = endpoint else { return None };
    Some(cookie_of(secret.bytes(), *address).into_bytes().into())
}

/// Warns where `cookie dynamic` gives a server no cookie, or two servers the same.
pub(super) fn check_dynamic_cookies(settings: &Settings, servers: &[Server], refuse: &mut Refuse<'_>) {
    let Some(set) = settings.cookie.as_ref().filter(|set| set.value.dynamic) else { return };
    if settings.dynamic_cookie_key.is_none() {
        let message = "'cookie dynamic' expects a 'dynamic-cookie-key', found none: no server has a cookie";
        return refuse.found.warning(set.pos, message);
    }
    let mut owners = std::collections::HashMap::new();
    for server in servers {
        let Some(cookie) = &server.cookie else {
            let message = format!(
                "'cookie dynamic' expects an IP address and a port, found server '{}' without: it has no \
                    cookie",
                server.name
            );
            refuse.found.warning(set.pos, message);
            continue;
        };
        if let Some(other) = owners.insert(cookie, &server.name) {
            let message = format!(
                "servers '{other}' and '{}' have the same cookie; give one of them a cookie of its own",
                server.name
            );
            refuse.found.warning(set.pos, message);
        }
    }
}

fn cookie_of(secret: &[u8], address: std::net::SocketAddr) -> String {
    let mut bytes = secret.to_vec();
    match address.ip() {
        IpAddr::V4(v4) => bytes.extend(v4.octets()),
        IpAddr::V6(v6) => bytes.extend(v6.octets()),
    }
    bytes.extend(u32::from(address.port()).to_be_bytes());
    format!("{:016x}", xxhash_rust::xxh64::xxh64(&bytes, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_cookies_are_those_of_haproxy() {
        for (address, cookie) in [("127.0.0.1:8991", "8d8ce7165dd7a2f6"), ("[::1]:8991", "a0c02c4f7207d119")]
        {
            assert_eq!(cookie_of(b"s3cret", address.parse().unwrap()), cookie, "{address}");
        }
    }
}
