//! Log targets and formats.

use super::bind::text;
use super::refuse::Refuse;
use super::rules::RuleReader;
use super::tls::{self, ServerTls};
use manylane_config::lex::Word;
use manylane_config::table::{OptionSwitch, ServerOptions, TlsOptions};
use manylane_config::tree::{
    self, Global, LogFormatOption, LogLine, LogSample, LogSink, LogStep, LogSteps, LogTarget, Mode,
    ProfileStep, Proxy, Set,
};
use manylane_expr::{CLF_LOG, Format, HTTP_LOG, HTTPS_LOG, PLAIN_HTTP_LOG, PLAIN_TCP_LOG, TCP_LOG};
use manylane_logs::{
    Facility, Framing, Level, MIN_RING, RING_OVERHEAD, Ring, RingServer, Sample, Sink, Target, TargetSpec,
    TargetTls, Timeouts,
};
use manylane_net::address::{Host, Location, Port, Transport};
use manylane_net::{Address, Endpoint};
use manylane_sync::Arc;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// All targets of a generation, and the process's own texts in log lines.
#[derive(Debug, Default)]
pub struct Logs {
    /// Targets by number.
    pub targets: Vec<Arc<Target>>,
    /// `ring` sections, in the order of the file.
    pub rings: Vec<Arc<Ring>>,
    /// Servers to which the rings' lines are sent.
    pub ring_servers: Vec<Arc<RingServer>>,
    /// Number of the target for standard error, which gets events of proxies and servers.
    pub console: Option<usize>,
    /// Numbers of the targets of `global`.
    pub global: Vec<usize>,
    /// Number of the `log-profile` section, by number of the target.
    profiled: HashMap<usize, usize>,
    /// `log-tag` of `global`.
    pub tag: Box<str>,
    /// `log-send-hostname`
    pub host: Box<str>,
    /// Host name of the system, for `%H`.
    pub hostname: Box<str>,
}

/// `log-profile`: formats of the lines to some targets.
#[derive(Debug)]
pub struct Profile {
    /// Numbers of the targets.
    pub targets: Vec<usize>,
    /// Tag of the lines.
    pub tag: Box<str>,
    /// `on`
    pub steps: Vec<ProfileLine>,
}

/// Format of the lines of a step; the frontend's settings apply to what is not set.
#[derive(Debug)]
pub struct ProfileLine {
    /// The step.
    pub step: LogStep,
    /// Write no line.
    pub drop: bool,
    /// `format`
    pub format: Option<Format>,
    /// `sd`
    pub structured: Option<Format>,
}

impl Profile {
    /// Returns the format of this step, else that of `any`.
    pub fn line(&self, step: LogStep) -> Option<&ProfileLine> {
        let of = |step| self.steps.iter().find(|line| line.step == step);
        of(step).or_else(|| of(LogStep::Any))
    }
}

/// Log settings of a frontend.
#[derive(Debug)]
pub struct FrontendLog {
    /// Numbers of the targets without a profile.
    pub targets: Vec<usize>,
    /// Profiles of the other targets.
    pub profiles: Vec<Profile>,
    /// `log-steps`
    pub steps: Option<LogSteps>,
    /// Format of a line.
    pub format: Format,
    /// `error-log-format`: format of lines for connections that did not become streams. The manual says that
    /// it is for all errors, but HAProxy formats errors of streams by `log-format`, and so does this program:
    /// the line of a request shows its error.
    pub errors: Option<Format>,
    /// `log-format-sd`: structured data of lines in the format rfc5424.
    pub structured: Option<Format>,
    /// `option logasap`: the line is written once the server has responded, or in TCP mode is connected.
    pub early: bool,
    /// Format of lines for connections that did not become streams, if there is no `error-log-format`.
    pub refused: Format,
    /// Tag of the lines.
    pub tag: Box<str>,
    /// `option dontlog-normal`
    pub only_errors: bool,
    /// `option dontlognull`
    pub no_null: bool,
    /// True if the configuration sets no format. Then, as in HAProxy, only requests have a line.
    pub plain: bool,
    /// `option log-separate-errors`
    pub separate: bool,
}

/// Log settings for events of a backend's servers.
#[derive(Debug)]
pub struct EventLog {
    /// Numbers of the targets.
    pub targets: Vec<usize>,
    /// Tag of the lines.
    pub tag: Box<str>,
}

/// Default tag.
const TAG: &str = "manylane";

/// Default port of syslog.
const SYSLOG: u16 = 514;

/// Default length of a line, in bytes.
const LENGTH: u32 = 1024;

/// Length of a line on standard error, in bytes. A pipe takes up to this many bytes atomically, so lines of
/// several lanes do not mix.
const CONSOLE_LENGTH: usize = 4096;

impl Logs {
    /// Builds the rings, their servers and the targets of `global`.
    pub(super) fn new(global: &Global, refuse: &mut Refuse<'_>) -> Self {
        let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let hostname: Box<str> = own.trim().into();
        let mut logs = Self {
            tag: global.log_tag.as_ref().map_or(TAG.into(), |set| text(&set.value)),
            host: match &global.log_send_hostname {
                None => Box::default(),
                Some(set) => set.value.as_ref().map_or(hostname.clone(), text),
            },
            hostname,
            rings: rings(refuse),
            ring_servers: Vec::new(),
            ..Self::default()
        };
        logs.ring_servers = logs.ring_servers(refuse);
        logs.global = logs.numbers_of(&global.log, refuse);
        logs
    }

    /// Adds standard error, if it is open, as the target for events of proxies and servers.
    pub fn open_console(&mut self) {
        let made = Sink::stderr().ok().zip(Facility::new(0)).and_then(|(sink, facility)| {
            let spec = TargetSpec {
                sink,
                format: manylane_logs::Format::Raw,
                keeps_format: false,
                length: CONSOLE_LENGTH,
                room: None,
                facility,
                level: Level::Debug,
                min_level: Level::Emerg,
                sample: None,
                timeouts: Timeouts::default(),
            };
            Target::new(spec).ok()
        });
        if let Some(target) = made {
            self.console = Some(self.targets.len());
            self.targets.push(Arc::new(target));
        }
    }

    fn numbers_of(&mut self, log: &[LogTarget], refuse: &mut Refuse<'_>) -> Vec<usize> {
        let mut targets = Vec::new();
        for target in log {
            match target {
                LogTarget::Global(_) => targets.extend(self.global.iter().copied()),
                LogTarget::Own(line) => {
                    let made = match &line.sink {
                        LogSink::Ring(name) => self.ring(line, name, refuse),
                        LogSink::Backend(name) => group(line, name, refuse),
                        _ => self::target(line, refuse),
                    };
                    if let Some(target) = made {
                        let wanted = line.profile.as_ref().map(Word::bytes);
                        // A missing section was reported before.
                        let section = refuse
                            .config
                            .log_profiles
                            .iter()
                            .position(|known| Some(known.name.bytes()) == wanted);
                        self.profiled.extend(section.map(|section| (self.targets.len(), section)));
                        targets.push(self.targets.len());
                        self.targets.push(Arc::new(target));
                    }
                }
            }
        }
        targets
    }

    /// Returns the target of a `log` line that names a ring.
    fn ring(&self, line: &LogLine, name: &Word, refuse: &mut Refuse<'_>) -> Option<Target> {
        let config = refuse.config;
        let index = config.rings.iter().position(|section| section.name.bytes() == name.bytes());
        // A missing section was reported before.
        let (section, ring) = index.map(|position| (&config.rings[position], &self.rings[position]))?;
        let own = LogLine {
            format: line.format.or(section.format.map(|set| set.value)).or(Some("raw")),
            length: Some(line.length.unwrap_or(LENGTH).min(longest(section))),
            ..line.clone()
        };
        made(&own, Ok(Sink::Ring(ring.clone())), refuse)
    }

    /// Builds the servers of all rings.
    fn ring_servers(&self, refuse: &mut Refuse<'_>) -> Vec<Arc<RingServer>> {
        let config = refuse.config;
        let mut servers = Vec::new();
        for (section, ring) in config.rings.iter().zip(&self.rings) {
            let time = |set: Option<Set<Duration>>| set.map(|set| set.value).filter(|time| !time.is_zero());
            let timeouts =
                Timeouts { connect: time(section.timeout_connect), server: time(section.timeout_server) };
            for server in &section.servers {
                let counted = server.options.log_proto.is_some_and(|set| set.value == "octet-count");
                let framing = if counted { Framing::OctetCount } else { Framing::Lines };
                let built = &server.options.tls;
                let tls = TlsOptions { check_ssl: None, check_sni: None, check_alpn: None, ..built.clone() };
                let built =
                    ServerOptions { log_proto: server.options.log_proto, tls, ..ServerOptions::default() };
                if built != server.options {
                    let why = "of the options of a ring's server only 'log-proto' and those of TLS are \
                        built, without those of checks";
                    refuse.keyword(server.pos, "server", why);
                }
                let (options, process) = (&server.options.tls, &config.global.tls);
                tls::check_log_server(options, server.pos, refuse);
                let tls = tls::of_server_without_requests(options, process, server.pos, refuse);
                let as_stream =
                    Address { transport: Some(Transport::Stream), ..server.address.value.clone() };
                let sink = sink_of(&as_stream).map(|sink| match sink {
                    Sink::Tcp(address, _) => Sink::Tcp(address, framing),
                    Sink::UnixStream(path, _) => Sink::UnixStream(path, framing),
                    other => other,
                });
                let sink = sink.map(|sink| within(sink, tls.as_ref()));
                let made = sink.and_then(|sink| {
                    RingServer::new(ring.clone(), sink, timeouts).map_err(|error| error.to_string())
                });
                match made {
                    Ok(made) => servers.push(Arc::new(made)),
                    Err(error) => refuse.found.alert(server.pos, format!("'server' : {error}")),
                }
            }
        }
        servers
    }

    /// Builds the targets of a proxy; returns their numbers.
    pub(super) fn targets(&mut self, proxy: &Proxy, refuse: &mut Refuse<'_>) -> Vec<usize> {
        self.numbers_of(&proxy.settings.log, refuse)
    }

    /// Returns the log settings for events of a backend's servers.
    pub(super) fn events(&self, proxy: &Proxy, targets: Vec<usize>) -> EventLog {
        EventLog { targets, tag: self.tag(proxy) }
    }

    fn tag(&self, proxy: &Proxy) -> Box<str> {
        proxy.settings.log_tag.as_ref().map_or(self.tag.clone(), |set| text(&set.value))
    }

    /// Builds the profile `section` for the lines of a frontend to `target`.
    fn profile<'c>(
        &self,
        section: usize,
        target: usize,
        proxy: &'c Proxy,
        reader: &mut RuleReader<'c>,
        refuse: &mut Refuse<'_>,
    ) -> Option<Profile> {
        let section = &refuse.config.log_profiles[section];
        let mode = proxy.mode_of_rules();
        let mut steps = Vec::new();
        for ProfileStep { step, drop, format, structured } in &section.steps {
            let mut compiled = |word: &Option<Word>| match word {
                Some(word) => reader.log_format(word, mode, refuse).map(Some),
                None => Some(None),
            };
            let (format, structured) = (compiled(format)?, compiled(structured)?);
            steps.push(ProfileLine { step: *step, drop: *drop, format, structured });
        }
        let tag = section.tag.as_ref().map_or_else(|| self.tag(proxy), |set| text(&set.value));
        Some(Profile { targets: vec![target], tag, steps })
    }

    /// Returns the log settings of a frontend; `None` without targets, or after an error.
    pub(super) fn of<'c>(
        &mut self,
        proxy: &'c Proxy,
        targets: Vec<usize>,
        reader: &mut RuleReader<'c>,
        refuse: &mut Refuse<'_>,
    ) -> Option<FrontendLog> {
        let settings = &proxy.settings;
        let http = settings.mode() == Mode::Http;
        let usual = match (settings.log_option.map(|set| set.value), http) {
            (Some(LogFormatOption::Http), true) => HTTP_LOG,
            (Some(LogFormatOption::HttpClf), true) => CLF_LOG,
            (Some(LogFormatOption::Https), true) => HTTPS_LOG,
            (Some(_), _) => TCP_LOG,
            (None, true) => PLAIN_HTTP_LOG,
            (None, false) => PLAIN_TCP_LOG,
        };
        let mut own = |set: &Option<Set<Word>>| match set {
            Some(set) => reader.log_format(&set.value, proxy.mode_of_rules(), refuse).map(Some),
            None => Some(None),
        };
        let (format, errors, structured) =
            (own(&settings.log_format), own(&settings.error_log_format), own(&settings.log_format_sd));
        let (format, errors, structured) = (format?, errors?, structured?);
        // As in HAProxy, warn even if the format comes from 'defaults'.
        let given = settings.log_format.as_ref().or(settings.log_format_sd.as_ref()).map(|set| set.pos);
        let given = given.or(settings.log_option.map(|set| set.pos));
        if let Some(pos) = given.filter(|_| settings.log.is_empty()) {
            let (kind, name) = (proxy.kind.name(), proxy.name.shown());
            refuse
                .found
                .warning(pos, format!("log format ignored for {kind} '{name}' since it has no log address"));
        }
        if targets.is_empty() {
            return None;
        }
        let (profiled, targets): (Vec<_>, Vec<_>) =
            targets.into_iter().partition(|target| self.profiled.contains_key(target));
        let mut profiles: Vec<(usize, Profile)> = Vec::new();
        for target in profiled {
            let section = self.profiled[&target];
            match profiles.iter_mut().find(|(known, _)| *known == section) {
                Some((_, profile)) => profile.targets.push(target),
                None => {
                    let profile = self.profile(section, target, proxy, reader, refuse)?;
                    profiles.push((section, profile));
                }
            }
        }
        Some(FrontendLog {
            targets,
            profiles: profiles.into_iter().map(|(_, profile)| profile).collect(),
            steps: settings.log_steps.map(|set| set.value),
            plain: format.is_none() && settings.log_option.is_none(),
            format: format.unwrap_or_else(|| reader.own_format(usual)),
            errors,
            structured,
            early: settings.option(OptionSwitch::LOGASAP),
            refused: reader.own_format("%ci:%cp [%t] %f"),
            tag: self.tag(proxy),
            only_errors: settings.option(OptionSwitch::DONTLOG_NORMAL),
            no_null: settings.option(OptionSwitch::DONTLOGNULL),
            separate: settings.option(OptionSwitch::LOG_SEPARATE_ERRORS),
        })
    }
}

fn rings(refuse: &mut Refuse<'_>) -> Vec<Arc<Ring>> {
    let config = refuse.config;
    let one = |section: &tree::Ring| {
        let tree::Ring {
            name,
            description,
            format: _,
            maxlen,
            size,
            backing_file,
            servers: _,
            timeout_connect: _,
            timeout_server: _,
        } = section;
        refuse.set(
            backing_file,
            "backing-file",
            "a ring is in memory only; log to a server or a file to keep lines",
        );
        let description = description.as_ref().map(|set| text(&set.value)).unwrap_or_default();
        if let Some(size) = size.filter(|size| !Ring::fits(size.value as usize)) {
            let message = format!(
                "'size' expects a size for which there is memory, found {} bytes; make the ring smaller",
                size.value
            );
            refuse.found.alert(size.pos, message);
        }
        let most = longest(section);
        if let Some(maxlen) = maxlen.filter(|maxlen| maxlen.value > most.into()) {
            let message = format!(
                "'maxlen' expects at most {most} in ring '{1}', found {0}; {most} are used",
                maxlen.value,
                text(name)
            );
            refuse.found.warning(maxlen.pos, message);
        }
        Arc::new(Ring::new(&text(name), &description, bytes(section) as usize))
    };
    config.rings.iter().map(one).collect()
}

/// Returns the size of a ring, in bytes.
fn bytes(section: &tree::Ring) -> u64 {
    section.size.map_or(MIN_RING as u64, |set| set.value)
}

/// Returns the length of the longest line of a ring: a line has to fit together with its overhead.
fn longest(section: &tree::Ring) -> u32 {
    let fits = bytes(section).saturating_sub(RING_OVERHEAD as u64 + 1);
    section.maxlen.map_or(LENGTH.into(), |set| set.value).min(fits) as u32
}

fn target(line: &LogLine, refuse: &mut Refuse<'_>) -> Option<Target> {
    let sink = match &line.sink {
        LogSink::Stdout => Sink::stdout().map_err(|error| error.to_string()),
        LogSink::Stderr => Sink::stderr().map_err(|error| error.to_string()),
        LogSink::Address(address) => sink_of(address),
        LogSink::Ring(_) | LogSink::Backend(_) => return None, // made with their sections
    };
    made(line, sink, refuse)
}

/// The target of a line that names a backend: its servers have targets of their own.
fn group(line: &LogLine, name: &Word, refuse: &mut Refuse<'_>) -> Option<Target> {
    let started =
        |proxy: &&Proxy| proxy.kind.is_backend() && !proxy.settings.disabled.is_some_and(|set| set.value);
    let mut backends = refuse.config.proxies.iter().filter(started);
    // A missing backend was reported before; a disabled one takes no lines.
    let number = backends.position(|proxy| proxy.name.bytes() == name.bytes()).unwrap_or(usize::MAX);
    made(line, Ok(Sink::Group(number)), refuse)
}

/// Builds the target of a line with this sink.
fn made(line: &LogLine, sink: Result<Sink, String>, refuse: &mut Refuse<'_>) -> Option<Target> {
    let LogLine { sink: _, length, format, profile: _, sample, facility, level, min_level, pos } = line;
    let keeps_format = format.is_none();
    let format = match (format, &sink) {
        (Some(name), _) => manylane_logs::Format::by_name(name),
        // A descriptor is no syslog server: lines have no header.
        (None, Ok(Sink::Descriptor(_))) => manylane_logs::Format::by_name("raw"),
        (None, _) if refuse.config.global.log_send_hostname.is_some() => {
            manylane_logs::Format::by_name("rfc3164")
        }
        (None, _) => manylane_logs::Format::by_name("local"),
    };
    let made = sink.and_then(|sink| {
        let spec = TargetSpec {
            sink,
            format: format.ok_or("expected a format that is built, found another one")?,
            keeps_format,
            length: length.unwrap_or(LENGTH) as usize,
            room: None,
            facility: Facility::new(*facility)
                .ok_or("expected a facility from 0 to 23, found another one")?,
            level: Level::new(*level),
            min_level: Level::new(*min_level),
            sample: sample
                .as_ref()
                .map(|LogSample { ranges, size }| Sample { ranges: ranges.clone(), size: *size }),
            timeouts: Timeouts::default(),
        };
        Target::new(spec).map_err(|error| error.to_string())
    });
    match made {
        Ok(target) => Some(target),
        Err(error) => {
            refuse.found.alert(*pos, format!("'log' : {error}"));
            None
        }
    }
}

/// Returns the sink within TLS, if there is some.
pub(super) fn within(sink: Sink, tls: Option<&ServerTls>) -> Sink {
    match tls {
        None => sink,
        Some(tls) => Sink::Tls(Box::new(sink), TargetTls::new(tls.context.clone(), tls.name(&[]))),
    }
}

/// Returns the sink with this address.
fn sink_of(address: &Address) -> Result<Sink, String> {
    let stream = address.transport == Some(Transport::Stream);
    let resolved = address.resolve().map_err(|error| error.to_string())?;
    let sink = match &resolved.location {
        Location::Ip { host, port } => {
            let ip = match host {
                Host::V4(ip) => (*ip).into(),
                Host::V6(ip) => (*ip).into(),
                Host::Name { name, .. } => return Err(format!("'{name}' has no address")),
            };
            let port = match port {
                Port::One(port) => *port,
                _ => SYSLOG,
            };
            let address = SocketAddr::new(ip, port);
            if stream { Sink::Tcp(address, Framing::Lines) } else { Sink::Udp(address) }
        }
        Location::Unix(path) if stream => Sink::UnixStream((&**path).into(), Framing::Lines),
        Location::Unix(path) => Sink::Unix((&**path).into()),
        _ => {
            let endpoint = resolved.endpoints().map_err(|error| error.to_string())?.swap_remove(0);
            match endpoint {
                Endpoint::Abstract(name) if !stream => Sink::Abstract(name.into()),
                Endpoint::Descriptor(number) => {
                    let inherited = manylane_io::socket::inherited(number);
                    Sink::Descriptor(
                        inherited.map_err(|errno| format!("fd@{number} cannot be used: {errno}"))?,
                    )
                }
                other => return Err(format!("log lines to '{other}' are not built yet")),
            }
        }
    };
    Ok(sink)
}
