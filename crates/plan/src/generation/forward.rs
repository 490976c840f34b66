//! `log-forward` sections, and servers of backends in `mode log`.

use super::bind::{self, Listener};
use super::groups::Groups;
use super::log::{self, Logs};
use super::proxies::Ids;
use super::refuse::Refuse;
use super::server::{Server, ServerAddress};
use super::{Process, Shards, tls};
use manylane_buf::MAX_CLUSTER;
use manylane_config::table::{ServerOptions, Timeout, TlsOptions};
use manylane_config::tree::{self, Global, Settings};
use manylane_logs::{
    Facility, Format, Framing, HostPolicy, Level, MIN_LENGTH, Sink, Target, TargetSpec, Timeouts,
};
use manylane_net::address::Transport;
use manylane_net::{Bound, Endpoint};
use manylane_sync::{Arc, LockClass, Mutex};

static SOCKETS: LockClass = LockClass::new("datagram sockets", LockClass::LEAF);

/// What a frontend has that forwards syslog messages.
#[derive(Debug)]
pub struct LogForward {
    /// Indexes of the targets.
    pub targets: Vec<usize>,
    /// `option host`
    pub hosts: HostPolicy,
    /// False with `option dont-parse-log`.
    pub parses: bool,
    /// `option assume-rfc6587-ntf`
    pub lines_only: bool,
    /// Bytes of a message at most: `tune.bufsize`. A datagram has at most [`MAX_CLUSTER`].
    pub longest: usize,
    /// `dgram-bind`
    pub datagrams: Vec<DatagramListener>,
}

/// An address at which messages come as datagrams.
#[derive(Debug)]
pub struct DatagramListener {
    /// Where, and how.
    pub listener: Listener,
    /// Its sockets, which generations with the same address share.
    sockets: Mutex<Option<Arc<[Bound]>>>,
}

impl DatagramListener {
    /// Its sockets, once they are bound.
    pub fn sockets(&self) -> Option<Arc<[Bound]>> {
        self.sockets.lock().clone()
    }

    /// Stores the bound sockets, or `None` after they are closed.
    pub fn set_sockets(&self, sockets: Option<Arc<[Bound]>>) {
        let before = std::mem::replace(&mut *self.sockets.lock(), sockets);
        drop(before); // outside of the lock
    }
}

impl LogForward {
    pub(super) fn new(
        section: &tree::LogForward,
        frontend: usize,
        targets: Vec<usize>,
        settings: &Settings,
        process: &Process,
        (global, groups, shards): (&Global, &Groups, Shards),
        refuse: &mut Refuse<'_>,
    ) -> Self {
        let tree::LogForward { dgram_binds, dont_parse, lines_only, host } = section;
        let mut ids = Ids::new(1, std::iter::empty());
        let mut datagrams = Vec::new();
        for line in dgram_binds {
            if process.bufsize > MAX_CLUSTER {
                let message = format!(
                    "'dgram-bind' takes at most {MAX_CLUSTER} bytes of a datagram, although \
                     'tune.bufsize' is {}: it cuts longer messages; send them to a 'bind' line, over TCP",
                    process.bufsize
                );
                refuse.found.warning(line.pos, message);
            }
            let listeners = bind::listeners(
                line,
                frontend,
                datagrams.len(),
                settings,
                &mut ids,
                (global, groups, shards, None),
                refuse,
            );
            datagrams.extend(listeners.into_iter().map(|mut listener| {
                listener.options.common.receive_buffer = bind::bytes(global.tune.rcvbuf_frontend);
                DatagramListener { listener, sockets: Mutex::new(&SOCKETS, None) }
            }));
        }
        Self {
            targets,
            hosts: match *host {
                "replace" => HostPolicy::Replace,
                "keep" => HostPolicy::Keep,
                "append" => HostPolicy::Append,
                _ => HostPolicy::Fill,
            },
            parses: !dont_parse,
            lines_only: *lines_only,
            longest: process.bufsize,
            datagrams,
        }
    }
}

/// Completes a server of a backend in `mode log`: makes the target of the lines for which the backend
/// chooses the server.
pub(super) fn log_server(
    server: &mut Server,
    line: &tree::Server,
    settings: &Settings,
    logs: &mut Logs,
    refuse: &mut Refuse<'_>,
) {
    let ServerOptions { log_bufsize, log_proto, .. } = &line.options;
    // Any other option is refused: log lines do not need it, or would not be sent as it says.
    let other = ServerOptions {
        log_bufsize: None,
        log_proto: None,
        id: None,
        guid: None,
        weight: None,
        backup: None,
        disabled: None,
        slowstart: None,
        track: None,
        init_state: None,
        init_addr: None,
        resolve_prefer: None,
        on_marked_down: None,
        on_marked_up: None,
        check: None,
        inter: None,
        fastinter: None,
        downinter: None,
        rise: None,
        fall: None,
        addr: None,
        port: None,
        agent_check: None,
        agent_addr: None,
        agent_inter: None,
        agent_port: None,
        agent_send: None,
        tls: TlsOptions::default(),
        ..line.options.clone()
    };
    if other != ServerOptions::default() {
        let why = "servers in 'mode log' have 'log-proto', 'log-bufsize', weights, checks, agents and TLS; \
            their other options are not built yet";
        refuse.keyword(line.pos, "server", why);
    }
    let ServerAddress::At(Endpoint::Ip(address)) = server.addr.read().address else {
        let message = "'server' expects an address with a port, known at the start, in 'mode log'";
        return refuse.found.alert(line.address.pos, message);
    };
    let counted = log_proto.is_some_and(|set| set.value == "octet-count");
    let time = |timeout: Timeout| settings.timeout(timeout).filter(|time| !time.is_zero());
    let Some(facility) = Facility::new(0) else { return };
    let is_datagram = line.address.value.transport == Some(Transport::Datagram);
    if let Some(set) = line.options.tls.ssl.filter(|set| set.value && is_datagram) {
        return refuse.found.alert(set.pos, "'ssl' expects a server of TCP, found one of datagrams (udp@)");
    }
    tls::check_log_server(&line.options.tls, line.pos, refuse);
    if let Some(tls) = &server.tls {
        tls::expect_fixed_name(tls, &line.options.tls, refuse);
    }
    // The backend's target formats the lines; this one only says how to send them.
    let spec = TargetSpec {
        sink: match is_datagram {
            true => Sink::Udp(address),
            false => {
                let framing = if counted { Framing::OctetCount } else { Framing::Lines };
                log::within(Sink::Tcp(address, framing), server.tls.as_ref())
            }
        },
        format: Format::Raw,
        keeps_format: true,
        length: MIN_LENGTH,
        room: log_bufsize.map(|set| set.value as usize),
        facility,
        level: Level::Debug,
        min_level: Level::Emerg,
        sample: None,
        timeouts: Timeouts { connect: time(Timeout::Connect), server: time(Timeout::Server) },
    };
    match Target::new(spec) {
        Ok(target) => {
            server.log_target = Some(logs.targets.len());
            logs.targets.push(Arc::new(target));
            server.stays = Some("it is a server of 'mode log'");
            server.resolution = None;
        }
        Err(error) => refuse.found.alert(line.pos, format!("'server' : {error}")),
    }
}
