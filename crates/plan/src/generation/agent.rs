//! `agent-check`: programs beside servers that report the servers' state. Also settings of checks that
//! operators make at run time.

use super::checks::{CheckTimeouts, InheritedTarget, ServerCheck};
use super::refuse::Refuse;
use super::server::{SendHeader, Server, ServerAddress};
use manylane_check::{Health, Init, Intervals, ReportCell, agent};
use manylane_config::table::{OptionSwitch, ServerOptions, Timeout};
use manylane_config::tree::Proxy;
use manylane_net::{Endpoint, UseSource};
use manylane_sync::{Arc, LockClass, Mutex};
use std::net::IpAddr;
use std::time::Duration;

use super::Process;

static CHECK_TARGETS: LockClass = LockClass::new("target of a check", LockClass::LEAF);

/// Settings of an operator that replace those of the configuration: `check-addr`, `check-port`, `agent-addr`,
/// `agent-port`, `agent-send`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetOverride {
    /// The address.
    pub ip: Option<IpAddr>,
    /// The port.
    pub port: Option<u16>,
    /// Text that is sent to the agent.
    pub send: Option<Box<[u8]>>,
}

/// Settings of operators for a check. Each check reads them once; commands write them.
#[derive(Debug)]
pub struct CheckTarget(Mutex<TargetOverride>);

impl Default for CheckTarget {
    fn default() -> Self {
        Self(Mutex::new(&CHECK_TARGETS, TargetOverride::default()))
    }
}

impl CheckTarget {
    /// Returns the settings.
    pub fn read(&self) -> TargetOverride {
        self.0.lock().clone()
    }

    /// Changes the settings.
    pub fn set(&self, change: impl FnOnce(&mut TargetOverride)) {
        change(&mut self.0.lock());
    }
}

impl ServerCheck {
    /// Returns the target of the connections, without the settings of commands.
    pub fn address(&self) -> ServerAddress {
        match &self.follows {
            Some(follows) => follows.address(&self.address),
            None => self.address.clone(),
        }
    }

    /// Returns the current target of the connections.
    pub fn endpoint(&self) -> Option<Endpoint> {
        let TargetOverride { ip, port, .. } = self.target.read();
        match &self.address() {
            ServerAddress::At(Endpoint::Ip(address)) => {
                Some(Endpoint::Ip((ip.unwrap_or(address.ip()), port.unwrap_or(address.port())).into()))
            }
            ServerAddress::At(endpoint) => Some(endpoint.clone()),
            _ => None,
        }
    }
}

/// Builds the agent checks of a backend's servers.
pub(super) fn agents(proxy: &Proxy, process: &Process, servers: &mut [Server], refuse: &mut Refuse<'_>) {
    for (line, server) in proxy.servers.iter().zip(servers) {
        let ServerOptions { agent_check, agent_inter, agent_addr, agent_port, agent_send, .. } =
            &line.options;
        if !agent_check.is_some_and(|set| set.value) {
            continue;
        }
        let Some(port) = agent_port else {
            let message =
                format!("'agent-check' of server '{}' expects an 'agent-port', found none", server.name);
            refuse.found.alert(line.pos, message);
            continue;
        };
        let given = agent_addr.as_ref().map(|set| {
            let ip = set.value.text().and_then(|text| text.parse::<IpAddr>().ok());
            if ip.is_none() {
                refuse.found.alert(
                    set.value.pos(),
                    format!("'agent-addr' expects an IP address, found '{}'", set.value.shown()),
                );
            }
            ip
        });
        let known = server.addr.read();
        let own = match &known.address {
            ServerAddress::At(Endpoint::Ip(address)) => Some(address.ip()),
            // Once the server gets an address, its agent gets it too (`follows`); nothing queries it before.
            ServerAddress::Nowhere => Some(std::net::Ipv4Addr::UNSPECIFIED.into()),
            _ => None,
        };
        let Some(ip) = given.unwrap_or(own) else {
            if given.is_none() {
                let message = format!(
                    "'agent-check' of server '{}' expects an 'agent-addr', found none, and its server has \
                        no IP address",
                    server.name
                );
                refuse.found.alert(line.pos, message);
            }
            continue;
        };
        let settings = &proxy.settings;
        let inter = agent_inter.map_or(Intervals::USUAL, |set| set.value).max(Intervals::SHORTEST);
        let time = |timeout: Timeout| settings.timeout(timeout).filter(|time: &Duration| !time.is_zero());
        let mut connect = server.connect.clone();
        connect.fast_open = false; // as for checks
        if let Some(source) = &mut connect.source {
            source.present = source.present.take().filter(|present| matches!(present, UseSource::Address(_)));
        }
        let health = Health::new(1, 1, Init::FullyUp);
        let send = agent_send.as_ref().map_or(&b""[..], |set| set.value.bytes());
        server.agent = Some(ServerCheck {
            script: Arc::new(agent::script(send)),
            wording: send.into(),
            program: None,
            http2: false,
            reuses: false,
            usual_header: SendHeader::default(),
            address: ServerAddress::At(Endpoint::Ip((ip, port.value).into())),
            has_address: given.is_some(),
            follows: given
                .is_none()
                .then(|| InheritedTarget { addr: server.addr.clone(), port: Some(port.value) }),
            connect,
            socks4: None,
            via_socks4: false,
            header: None,
            tls: None,
            tls_of_steps: Vec::new(),
            relays: false,
            intervals: Intervals { inter, fast: inter, down: inter, spread: process.spread_checks },
            timeouts: match time(Timeout::Check) {
                Some(answer) => CheckTimeouts::Parts {
                    connect: time(Timeout::Connect).unwrap_or(inter).min(inter),
                    answer,
                },
                None => CheckTimeouts::Whole(inter),
            },
            log: settings.option(OptionSwitch::LOG_HEALTH_CHECKS),
            observed: None,
            board: Arc::new(ReportCell::new(health.clone())),
            health,
            target: Arc::default(),
            notify: Arc::default(),
        });
    }
}
