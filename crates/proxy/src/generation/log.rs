//! Log targets and formats.

use super::bind::text;
use super::refuse::Refuse;
use super::rules::RuleReader;
use manylane_config::lex::Word;
use manylane_config::table::{ServerOptions, Toggle};
use manylane_config::tree::{
    self, Global, LogFormatOption, LogLine, LogSample, LogSink, LogStep, LogSteps, LogTarget, Mode,
    ProfileStep, Proxy, Set,
};
use manylane_expr::{CLF_LOG, Format, HTTP_LOG, HTTPS_LOG, PLAIN_HTTP_LOG, PLAIN_TCP_LOG, TCP_LOG};
use manylane_logs::{
    Facility, Framing, Level, MIN_RING, RING_OVERHEAD, Ring, RingServer, Sample, Sink, Target, TargetSpec,
    Timeouts,
};
use manylane_net::address::{Host, Location, Port, Transport};
use manylane_net::{Address, Endpoint};
use manylane_sync::Arc;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// All targets of a generation, and what lines say of the process.
#[derive(Debug, Default)]
pub struct Logs {
    /// In the order of their places.
    pub targets: Vec<Arc<Target>>,
    /// The sections `ring`, in the order of the file.
    pub rings: Vec<Arc<Ring>>,
    /// Where their lines are sent.
    pub ring_servers: Vec<Arc<RingServer>>,
    /// The place of standard error, where the process tells what happens to its proxies and servers.
    pub(crate) console: Option<usize>,
    /// Those of `global`: places.
    pub(crate) global: Vec<usize>,
    /// Targets that have a profile, and the number of its section.
    profiled: HashMap<usize, usize>,
    /// `log-tag` of `global`.
    pub(crate) tag: Box<str>,
    /// `log-send-hostname`
    pub host: Box<str>,
    /// The system's name, for `%H`.
    pub hostname: Box<str>,
}

/// `log-profile`: what the lines to some targets say.
#[derive(Debug)]
pub struct Profile {
    /// Places of the targets.
    pub targets: Vec<usize>,
    /// Who writes them.
    pub tag: Box<str>,
    /// `on`
    pub steps: Vec<ProfileLine>,
}

/// The lines of a step: what is not given is as the frontend has it.
#[derive(Debug)]
pub struct ProfileLine {
    /// Which.
    pub step: LogStep,
    /// There are none.
    pub drop: bool,
    /// `format`
    pub format: Option<Format>,
    /// `sd`
    pub structured: Option<Format>,
}

impl Profile {
    /// What it says of a step.
    pub fn line(&self, step: LogStep) -> Option<&ProfileLine> {
        let of = |step| self.steps.iter().find(|line| line.step == step);
        of(step).or_else(|| of(LogStep::Any))
    }
}

/// How a frontend logs.
#[derive(Debug)]
pub struct FrontendLog {
    /// Places of its targets that have no profile.
    pub targets: Vec<usize>,
    /// Those that have.
    pub profiles: Vec<Profile>,
    /// `log-steps`
    pub steps: Option<LogSteps>,
    /// What a line says.
    pub format: Format,
    /// `error-log-format`: what the lines of connections say that did not become streams. The manual has it
    /// for all errors; haproxy writes those of streams as `log-format` says, and so do we: what happened
    /// to a request stays in its line.
    pub errors: Option<Format>,
    /// `log-format-sd`: the structured data of lines in rfc5424's form.
    pub structured: Option<Format>,
    /// `option logasap`: the line is written when the server has answered, or in TCP mode was reached.
    pub early: bool,
    /// What the lines of connections that did not become streams begin with, where there is no
    /// `error-log-format`.
    pub refused: Format,
    /// Who writes it.
    pub tag: Box<str>,
    /// `option dontlog-normal`
    pub only_errors: bool,
    /// `option dontlognull`
    pub no_null: bool,
    /// No format and no option says what a line says: then only requests have one, as with HAProxy, and what
    /// is none has not.
    pub plain: bool,
    /// `option log-separate-errors`
    pub separate: bool,
}

/// How a backend logs what happens to its servers.
#[derive(Debug)]
pub struct EventLog {
    /// EvalPoints of its targets.
    pub targets: Vec<usize>,
    /// Who writes it.
    pub tag: Box<str>,
}

/// Who writes lines, unless the file says otherwise.
const TAG: &str = "manylane";

/// The port of syslog.
const SYSLOG: u16 = 514;

/// Bytes of a line, unless the file says otherwise.
const LENGTH: u32 = 1024;

/// Bytes of a line on standard error: what a pipe takes in one piece, so that lines of several lanes do not
/// mix.
const CONSOLE_LENGTH: usize = 4096;

impl Logs {
    /// The targets of `global`.
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
        logs.global = logs.places(&global.log, refuse);
        logs
    }

    /// What happens to proxies and servers is told on standard error from here on, if it is open.
    pub fn open_console(&mut self) {
        let made = Sink::stderr().ok().zip(Facility::new(0)).and_then(|(sink, facility)| {
            let spec = TargetSpec {
                sink,
                format: manylane_logs::Format::Raw,
                length: CONSOLE_LENGTH,
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

    fn places(&mut self, log: &[LogTarget], refuse: &mut Refuse<'_>) -> Vec<usize> {
        let mut places = Vec::new();
        for target in log {
            match target {
                LogTarget::Global(_) => places.extend(self.global.iter().copied()),
                LogTarget::Own(line) => {
                    let made = match &line.sink {
                        LogSink::Ring(name) => self.ring(line, name, refuse),
                        _ => self::target(line, refuse),
                    };
                    if let Some(target) = made {
                        let wanted = line.profile.as_ref().map(Word::bytes);
                        // That there is none was reported.
                        let section = refuse
                            .config
                            .log_profiles
                            .iter()
                            .position(|known| Some(known.name.bytes()) == wanted);
                        self.profiled.extend(section.map(|section| (self.targets.len(), section)));
                        places.push(self.targets.len());
                        self.targets.push(Arc::new(target));
                    }
                }
            }
        }
        places
    }

    /// The target of a line that names a ring.
    fn ring(&self, line: &LogLine, name: &Word, refuse: &mut Refuse<'_>) -> Option<Target> {
        let config = refuse.config;
        let place = config.rings.iter().position(|section| section.name.bytes() == name.bytes());
        // That there is none was reported.
        let (section, ring) = place.map(|place| (&config.rings[place], &self.rings[place]))?;
        let own = LogLine {
            format: line.format.or(section.format.map(|set| set.value)).or(Some("raw")),
            length: Some(line.length.unwrap_or(LENGTH).min(longest(section))),
            ..line.clone()
        };
        made(&own, Ok(Sink::Ring(ring.clone())), refuse)
    }

    /// The servers of all rings.
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
                if (ServerOptions { log_proto: None, ..server.options.clone() }) != ServerOptions::default() {
                    refuse.keyword(
                        server.pos,
                        "server",
                        "of the options of a ring's server only 'log-proto' is built",
                    );
                }
                let as_stream =
                    Address { transport: Some(Transport::Stream), ..server.address.value.clone() };
                let sink = place(&as_stream).map(|sink| match sink {
                    Sink::Tcp(address, _) => Sink::Tcp(address, framing),
                    Sink::UnixStream(path, _) => Sink::UnixStream(path, framing),
                    other => other,
                });
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

    /// Where a proxy logs.
    pub(super) fn targets(&mut self, proxy: &Proxy, refuse: &mut Refuse<'_>) -> Vec<usize> {
        self.places(&proxy.settings.log, refuse)
    }

    /// How a backend logs what happens to its servers.
    pub(super) fn events(&self, proxy: &Proxy, targets: Vec<usize>) -> EventLog {
        EventLog { targets, tag: self.tag(proxy) }
    }

    fn tag(&self, proxy: &Proxy) -> Box<str> {
        proxy.settings.log_tag.as_ref().map_or(self.tag.clone(), |set| text(&set.value))
    }

    /// What a section says of a frontend's lines to a target.
    fn profile<'c>(
        &self,
        section: usize,
        target: usize,
        proxy: &'c Proxy,
        reader: &mut RuleReader<'c>,
        refuse: &mut Refuse<'_>,
    ) -> Option<Profile> {
        let section = &refuse.config.log_profiles[section];
        let mode = proxy.settings.mode();
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

    /// How a frontend logs to `targets`; none if there are none.
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
            Some(set) => reader.log_format(&set.value, settings.mode(), refuse).map(Some),
            None => Some(None),
        };
        let (format, errors, structured) =
            (own(&settings.log_format), own(&settings.error_log_format), own(&settings.log_format_sd));
        let (format, errors, structured) = (format?, errors?, structured?);
        // As HAProxy, be they taken over from 'defaults' or not.
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
            early: settings.option(Toggle::LOGASAP),
            refused: reader.own_format("%ci:%cp [%t] %f"),
            tag: self.tag(proxy),
            only_errors: settings.option(Toggle::DONTLOG_NORMAL),
            no_null: settings.option(Toggle::DONTLOGNULL),
            separate: settings.option(Toggle::LOG_SEPARATE_ERRORS),
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
                "'size' expects what memory has room for, found {} bytes; make the ring smaller",
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

/// Bytes of a ring.
fn bytes(section: &tree::Ring) -> u64 {
    section.size.map_or(MIN_RING as u64, |set| set.value)
}

/// The longest line of a ring: one has to fit, with its length and its line end.
fn longest(section: &tree::Ring) -> u32 {
    let fits = bytes(section).saturating_sub(RING_OVERHEAD as u64 + 1);
    section.maxlen.map_or(LENGTH.into(), |set| set.value).min(fits) as u32
}

fn target(line: &LogLine, refuse: &mut Refuse<'_>) -> Option<Target> {
    let sink = match &line.sink {
        LogSink::Stdout => Sink::stdout().map_err(|error| error.to_string()),
        LogSink::Stderr => Sink::stderr().map_err(|error| error.to_string()),
        LogSink::Address(address) => place(address),
        LogSink::Ring(_) => return None, // made with its section
    };
    made(line, sink, refuse)
}

/// What a line says, for this sink.
fn made(line: &LogLine, sink: Result<Sink, String>, refuse: &mut Refuse<'_>) -> Option<Target> {
    let LogLine { sink: _, length, format, profile: _, sample, facility, level, min_level, pos } = line;
    let format = match (format, &sink) {
        (Some(name), _) => manylane_logs::Format::by_name(name),
        // To what is no syslog server, lines go as they are.
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
            length: length.unwrap_or(LENGTH) as usize,
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

/// Where lines are sent to.
fn place(address: &Address) -> Result<Sink, String> {
    let stream = address.transport == Some(Transport::Stream);
    let resolved = address.resolve().map_err(|error| error.to_string())?;
    let sink = match &resolved.place {
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
