//! Listeners of `bind` lines.

use super::groups::Groups;
use super::process::{Owner, Process};
use super::proxies::Ids;
use super::refuse::Refuse;
use super::tls::Used;
use crate::conn_limit::ConnLimit;
use crate::counts::ListenerStats;
use manylane_config::lex::Word;
use manylane_config::limits::MAX_LISTENERS;
use manylane_config::source::Pos;
use manylane_config::table::BindOptions;
use manylane_config::table::OptionSwitch;
use manylane_config::tree::{Bind, Global, Mode, Set, Settings};
use manylane_http::Version;
use manylane_io::options::LONGEST_KEY;
use manylane_net::address::Transport;
use manylane_net::{CommonOptions, Endpoint, FAST_OPEN_QUEUE, KeepAlive, ListenOptions, UnixOptions, V6};
use manylane_sync::Arc;
use manylane_tls::ServerContext;
use std::collections::HashSet;
use std::time::Duration;

/// One address that a frontend listens at, with the options of its line.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Number of its frontend.
    pub frontend: usize,
    /// Number in its frontend.
    pub index: usize,
    /// Value of `id`, or the next free number in the frontend.
    pub id: u32,
    /// GUID of the listener, made of `guid-prefix`.
    pub guid: Option<Box<str>>,
    /// `option socket-stats`: reports show the listener beside its frontend.
    pub reported: bool,
    /// Value of `name`. A reported listener without one gets a name from its number.
    pub name: Option<Box<str>>,
    /// Address of the listener.
    pub endpoint: Endpoint,
    /// Address as written in the configuration.
    pub written: Box<str>,
    /// Options of the socket. The caller looks up `user` and `group` by name.
    pub options: ListenOptions,
    /// Value of `user`, as a name.
    pub user: Option<Owner>,
    /// Value of `group`, as a name.
    pub group: Option<Owner>,
    /// Set by `accept-proxy`.
    pub accept_proxy: bool,
    /// Value of `accept-netscaler-cip`.
    pub netscaler: Option<u32>,
    /// Set by `proto`: the clients speak only this version.
    pub version: Option<Version>,
    /// Value of `idle-ping`.
    pub idle_ping: Option<Duration>,
    /// TLS context, set by `ssl`.
    pub tls: Option<ServerContext>,
    /// Value of `shards`.
    pub shards: Shards,
    /// With `shards by-group` and several groups: the accepting lanes of each group. Each group has a socket
    /// of its own, and its lanes serve what it accepts.
    pub groups: Box<[Vec<usize>]>,
    /// Value of `thread`: accepting lanes, counted from 0; `None` for all.
    pub lanes: Option<Box<[usize]>>,
    /// The line, as `<file>:<number>`.
    pub line: Box<str>,
    /// Position of `thread` in the line, or of the line.
    pub pos: Pos,
    /// Limit of `maxconn`.
    pub conn_limit: Arc<ConnLimit>,
    /// Value of `nice`.
    pub nice: i16,
    /// Counters.
    pub counts: Arc<ListenerStats>,
}

/// Value of `shards`: number of sockets that share the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shards {
    /// This many sockets.
    Number(usize),
    /// One socket for each accepting lane.
    ByLane,
    /// One socket for each group with accepting lanes.
    ByGroup,
}

impl Listener {
    /// Returns how many sockets share the address when `lanes` lanes serve.
    pub fn sockets(&self, lanes: usize) -> usize {
        let accepting =
            self.lanes.as_ref().map_or(lanes, |some| some.iter().filter(|&&n| n < lanes).count()).max(1);
        match self.shards {
            Shards::Number(n) => n.min(accepting),
            Shards::ByLane => accepting,
            Shards::ByGroup => self.groups.iter().filter(|group| has_lanes(group, lanes)).count().max(1),
        }
    }
}

/// Returns true if a lane of the group exists, that is, is below `lanes`.
pub fn has_lanes(group: &[usize], lanes: usize) -> bool {
    group.iter().any(|&lane| lane < lanes)
}

/// `defer-accept`: time after which a silent connection is accepted all the same. HAProxy's value.
const DEFER: Duration = Duration::from_secs(1);

pub(super) fn text(word: &Word) -> Box<str> {
    String::from_utf8_lossy(word.bytes()).into()
}

fn name(set: &Option<Set<Word>>) -> Option<Box<str>> {
    set.as_ref().map(|set| text(&set.value))
}

pub(super) fn keep_alive(on: bool, side: &manylane_config::tree::KeepAlive) -> Option<KeepAlive> {
    on.then(|| KeepAlive {
        count: side.count.map(|set| set.value.min(127) as u8),
        idle: side.idle.map(|set| set.value),
        interval: side.interval.map(|set| set.value),
    })
}

/// Returns the key of `tcp-md5sig`.
pub(super) fn signature(set: &Option<Set<Word>>, refuse: &mut Refuse<'_>) -> Option<Box<[u8]>> {
    let key = &set.as_ref()?.value;
    if (1..=LONGEST_KEY).contains(&key.bytes().len()) {
        return Some(key.bytes().into());
    }
    let message =
        format!("'tcp-md5sig' expects a key of 1 to {LONGEST_KEY} bytes, found {}", key.bytes().len());
    refuse.found.alert(key.pos(), message);
    None
}

/// Returns the buffer size of `tune.rcvbuf.*` and the like; 0 means the system's default.
pub(super) fn bytes(set: Option<Set<u64>>) -> Option<u32> {
    set.and_then(|set| u32::try_from(set.value).ok()).filter(|bytes| *bytes > 0)
}

/// Returns the listeners of a line, numbered from `first` on.
pub(super) fn listeners(
    bind: &Bind,
    frontend: usize,
    first: usize,
    settings: &Settings,
    ids: &mut Ids,
    (global, groups, default_shards, used): (&Global, &Groups, Shards, Option<&Used>),
    refuse: &mut Refuse<'_>,
) -> Vec<Listener> {
    let Bind { addresses, options, pos } = bind;
    let BindOptions {
        backlog,
        expose_fd: _, // of run-time sockets
        id,
        idle_ping,
        guid_prefix,
        interface,
        label: _,
        level: _, // of run-time sockets
        maxconn,
        mss,
        name: given,
        namespace,
        nice,
        severity_output: _, // like `level`
        shards,
        tcp_md5sig,
        tcp_ut,
        user,
        uid,
        group,
        gid,
        proto,
        cc,
        accept_netscaler_cip,
        accept_proxy,
        defer_accept,
        tfo,
        transparent,
        v4v6,
        v6only,
        mode,
        thread,
        tls,
    } = options;
    let version = proto.as_ref().and_then(|set| match set.value {
        "h1" => Some(Version::HTTP_11),
        "h2" => Some(Version::HTTP_2),
        _ => None,
    });
    let http2 = version == Some(Version::HTTP_2);
    if let Some(set) = proto.as_ref().filter(|_| http2 && settings.mode() != Mode::Http) {
        let why = "'proto h2' : HTTP/2 is spoken in 'mode http' only: set that, or remove 'proto h2'";
        refuse.found.alert(set.pos, why);
    }
    let relative = mss.filter(|mss| mss.value < 0);
    refuse.idle(
        &relative,
        "mss",
        "Linux cannot reduce the segment size of a connection that exists by this amount",
    );
    let shards = shards.as_ref().map_or(default_shards, |set| shards_of(set, refuse));
    let lanes = lanes_of(thread, groups, refuse);
    let accepts = |lane: &usize| lanes.as_ref().is_none_or(|some| some.contains(lane));
    let groups: Box<[Vec<usize>]> = match shards {
        Shards::ByGroup => {
            let own = groups.several().iter().map(|group| group.iter().copied().filter(accepts).collect());
            own.filter(|group: &Vec<usize>| !group.is_empty()).collect()
        }
        Shards::Number(_) | Shards::ByLane => Box::default(),
    };
    let common = global.unix_bind.as_ref().map(|set| &set.value);
    let unix = UnixOptions {
        mode: mode.map(|set| set.value).or(common.and_then(|unix| unix.mode)),
        user: uid.map(|set| set.value).or(common.and_then(|unix| unix.uid)),
        group: gid.map(|set| set.value).or(common.and_then(|unix| unix.gid)),
    };
    let by_name = |own: &Option<Set<Word>>, common: Option<&Word>| {
        own.as_ref().map(|set| &set.value).or(common).map(|word| Owner::Name(text(word)))
    };
    let user = by_name(user, common.and_then(|unix| unix.user.as_ref()));
    let group = by_name(group, common.and_then(|unix| unix.group.as_ref()));
    let on = |set: &Option<Set<bool>>| set.is_some_and(|set| set.value);
    let toggle = |toggle| settings.option(toggle);
    let options = ListenOptions {
        backlog: backlog
            .or(settings.backlog)
            .or(settings.maxconn)
            .map(|set| set.value)
            .filter(|&n| n > 0)
            .unwrap_or(manylane_net::BACKLOG),
        defer_accept: on(defer_accept).then_some(DEFER),
        interface: name(interface),
        mss: mss.and_then(|set| u16::try_from(set.value).ok()).filter(|&mss| mss > 0),
        fast_open: on(tfo).then_some(FAST_OPEN_QUEUE),
        // In HTTP mode a response acknowledges the request, so HAProxy turns quick acknowledgements off
        // there, unless the configuration says otherwise.
        quick_ack: !settings.option_or(OptionSwitch::TCP_SMART_ACCEPT, settings.mode() == Mode::Http),
        transparent: on(transparent),
        v6: match (on(v4v6), on(v6only)) {
            (_, true) => V6::Only,
            (true, false) => V6::Both,
            (false, false) => V6::System,
        },
        reuse_port: !on(&global.noreuseport),
        namespace: name(namespace),
        unix,
        common: CommonOptions {
            signature: signature(tcp_md5sig, refuse),
            user_timeout: tcp_ut.map(|set| set.value),
            keep_alive: keep_alive(
                toggle(OptionSwitch::CLITCPKA) || toggle(OptionSwitch::TCPKA),
                &settings.client_keep_alive,
            ),
            no_linger: toggle(OptionSwitch::NOLINGER),
            congestion_control: name(cc),
            receive_buffer: bytes(global.tune.rcvbuf_client),
            send_buffer: bytes(global.tune.sndbuf_client),
            unsent: bytes(global.tune.notsent_lowat_client),
            ..CommonOptions::default()
        },
    };
    let is_http = settings.mode() == Mode::Http;
    let offers_http = is_http && version != Some(Version::HTTP_11);
    let tls = super::tls::of_bind(tls, &global.tls, offers_http, used, *pos, refuse);
    let nice = nice.map_or(0, |set| set.value.clamp(-1024, 1024) as i16);
    let mut all: Vec<Listener> = Vec::new();
    for address in addresses {
        let mut prefixed = address.value.clone();
        if let (manylane_net::address::Location::Unix(path), Some(prefix)) =
            (&mut prefixed.location, common.and_then(|unix| unix.prefix.as_ref()))
        {
            *path = format!("{}{path}", text(prefix)).into();
        }
        let options = &ListenOptions {
            common: CommonOptions {
                multipath: prefixed.transport == Some(Transport::Multipath),
                ..options.common.clone()
            },
            ..options.clone()
        };
        let endpoints = prefixed.resolve().and_then(|address| address.endpoints());
        let endpoints = match endpoints {
            Ok(endpoints) => endpoints,
            Err(error) => {
                refuse.found.alert(address.pos, format!("'bind' : {error}"));
                continue;
            }
        };
        refuse.listeners += endpoints.len();
        if refuse.listeners > MAX_LISTENERS {
            refuse.found.alert(
                address.pos,
                format!(
                    "'bind' : expected at most {MAX_LISTENERS} listeners, found more: \
                a range of ports has one for each"
                ),
            );
            return all;
        }
        for endpoint in endpoints {
            let (id, reported) =
                (ids.next_behind(id.map(|set| set.value)), toggle(OptionSwitch::SOCKET_STATS));
            let guid = guid_prefix.as_ref().map(|set| format!("{}-{}", text(&set.value), all.len()).into());
            all.push(Listener {
                id,
                guid,
                reported,
                frontend,
                index: first + all.len(),
                name: name(given).or_else(|| reported.then(|| format!("sock-{id}").into())),
                written: endpoint.to_string().into(),
                endpoint,
                options: options.clone(),
                user: user.clone(),
                group: group.clone(),
                accept_proxy: on(accept_proxy),
                netscaler: accept_netscaler_cip.as_ref().map(|set| set.value),
                version,
                idle_ping: idle_ping.map(|set| set.value).filter(|time| !time.is_zero()),
                tls: tls.clone(),
                shards,
                groups: groups.clone(),
                lanes: lanes.clone(),
                line: refuse.config.line(*pos).into(),
                pos: thread.first().map_or(*pos, Word::pos),
                conn_limit: Arc::new(ConnLimit::new(maxconn.map_or(0, |set| set.value))),
                nice,
                counts: Arc::default(),
            });
        }
    }
    if let Some(set) = id.filter(|_| all.len() > 1) {
        refuse.found.alert(
            set.pos,
            format!("'id' expects one listener, found {}: give each a line of its own", all.len()),
        );
    }
    all
}

/// Returns `tune.listener.default-shards`. It has no effect if addresses are not shared; `shards` is then an
/// error.
pub(super) fn default_shards(global: &Global, shared: bool) -> Shards {
    match global.tune.listener_default_shards {
        Some(set) if shared && set.value == "by-thread" => Shards::ByLane,
        Some(set) if shared && set.value == "by-group" => Shards::ByGroup,
        _ => Shards::Number(1),
    }
}

fn shards_of(set: &Set<Word>, refuse: &mut Refuse<'_>) -> Shards {
    match set.value.text() {
        Some("by-thread") => Shards::ByLane,
        Some("by-group") => Shards::ByGroup,
        Some(number) if number.parse::<usize>().is_ok_and(|n| (1..=1024).contains(&n)) => {
            Shards::Number(number.parse().unwrap_or(1))
        }
        _ => {
            let message = format!(
                "'shards' expects a number from 1 to 1024, 'by-thread' or 'by-group', found '{}'",
                set.value.shown()
            );
            refuse.found.alert(set.value.pos(), message);
            Shards::Number(1)
        }
    }
}

/// Returns the lanes of `thread [group/]lanes`: those of all words, or `None` for all lanes.
fn lanes_of(words: &[Word], groups: &Groups, refuse: &mut Refuse<'_>) -> Option<Box<[usize]>> {
    let mut all = Some(Vec::new());
    for word in words {
        match (lanes_of_word(word, groups), &mut all) {
            (Some(Some(more)), Some(all)) => all.extend(more),
            (Some(Some(_)), None) => {}
            (Some(None), _) => all = None,
            (None, _) => {
                let message = format!(
                    "'thread' expects lanes such as '1-4', '1,3', 'odd', 'even' or 'all', or those of a \
                        group as \
                        in '1/1-4', found '{}'",
                    word.shown()
                );
                refuse.found.alert(word.pos(), message);
            }
        }
    }
    let mut all = all.filter(|all| !all.is_empty())?;
    all.sort_unstable();
    all.dedup();
    Some(all.into())
}

/// Parses lane numbers from 1 and ranges, `odd`, `even` or `all`; with a group, those of the group. The inner
/// `None` means all lanes; the outer `None` is an invalid word.
fn lanes_of_word(word: &Word, groups: &Groups) -> Option<Option<Vec<usize>>> {
    let several = groups.several();
    let text = word.text()?;
    let (group, lanes) = text.split_once('/').map_or((None, text), |(group, lanes)| (Some(group), lanes));
    let wanted = numbers(lanes)?;
    let number = |text: &str| text.parse::<usize>().ok();
    let chosen = match group {
        None => return Some(wanted),
        Some("1" | "all") if several.is_empty() => return Some(wanted),
        Some("all") => several,
        Some(group) => std::slice::from_ref(several.get(number(group)?.checked_sub(1)?)?),
    };
    let all = chosen.iter().flat_map(|group| match &wanted {
        None => group.clone(),
        Some(wanted) => wanted.iter().filter_map(|&n| group.get(n).copied()).collect(),
    });
    let all: Vec<usize> = all.collect();
    (!all.is_empty()).then_some(Some(all))
}

/// Reports listeners for which no lane would accept.
pub(super) fn served<'l>(
    listeners: impl Iterator<Item = &'l Listener>,
    process: &Process,
    refuse: &mut Refuse<'_>,
) {
    let mut lanes = None;
    let mut reported = HashSet::new(); // a line may have many listeners
    for listener in listeners {
        let Some(some) = &listener.lanes else { continue };
        // If the number of lanes is unknown, the start fails with a sentence about that.
        let lanes = *lanes.get_or_insert_with(|| process.lane_count().unwrap_or(super::MOST_LANES));
        if !has_lanes(some, lanes) && reported.insert(listener.pos) {
            let message =
                format!("'thread' expects lanes from 1 to {lanes}, found none of them; see 'nbthread'");
            refuse.found.alert(listener.pos, message);
        }
    }
}

/// Parses numbers and ranges. The inner `None` means all; the outer `None` is an invalid text.
fn numbers(text: &str) -> Option<Option<Vec<usize>>> {
    let mut all: Vec<usize> = Vec::new();
    for part in text.split(',') {
        match part {
            "all" => return Some(None),
            "odd" => all.extend((0..1024).step_by(2)),
            "even" => all.extend((1..1024).step_by(2)),
            _ => {
                let (low, high) = part.split_once('-').unwrap_or((part, part));
                let low: usize = low.parse().ok().filter(|n| (1..=1024).contains(n))?;
                let high = if high.is_empty() { 1024 } else { high.parse().ok()? };
                if high < low || high > 1024 {
                    return None;
                }
                all.extend(low - 1..high);
            }
        }
    }
    Some(Some(all))
}
