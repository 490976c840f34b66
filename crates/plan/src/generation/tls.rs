//! `ssl` of `bind` and `server` lines, with the defaults of `global`.

use super::acme::{Acme, acme};
use super::refuse::Refuse;
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::tree::{Config, Proxy, Set, Statement, TlsOptions, TlsProcess};
use manylane_sync::atomic::AtomicBool;
use manylane_tls::{
    Bases, ClientContext, ClientSettings, ClientVerify, CommonSettings, Definition, FileSettings,
    GeneratedCertificates, IgnoredErrors, LineOptions, ListLine, OcspUpdateSettings, Problem, RecordSizes,
    ServerContext, ServerName, ServerSettings, ServerVerify, Source, Version,
};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// Default of `tune.ssl.cachesize`, in sessions.
const SESSIONS: u32 = 20_000;

/// Default of `tune.ssl.ssl-ctx-cache-size`, in certificates.
const GENERATED: u32 = 1000;

/// Default of `tune.ssl.lifetime`.
const LIFETIME: Duration = Duration::from_secs(300);

/// Default of `tune.idletimer`.
const IDLE: Duration = Duration::from_secs(1);

/// Limit of a ticket's lifetime, in seconds: clients drop it after seven days (RFC 8446, 4.6.1).
const MOST_LIFETIME: u64 = 7 * 24 * 60 * 60;

/// Loads the certificates of `crt-store` sections, whether a line uses them or not. Returns those that
/// ACME renews.
pub(super) fn crt_stores(config: &Config, refuse: &mut Refuse<'_>) -> Acme {
    let process = &config.global.tls;
    ocsp_updates(process, refuse);
    files(process, refuse);
    for options in [&process.bind, &process.server] {
        note_old(options, refuse);
    }
    let mut with_acme = Vec::new();
    for section in &config.crt_stores {
        if config.refused(&section.name, "load").next().is_some() {
            refuse.refused_loads.insert(format!("@{}", section.name.shown()));
        }
        for load in &section.loads {
            let crt_base = section.crt_base.as_ref().or(process.crt_base.as_ref());
            let key_base = section.key_base.as_ref().or(process.key_base.as_ref());
            let definition = Definition {
                certificate: based(&load.crt, crt_base, refuse),
                key: load.key.as_ref().map(|key| based(key, key_base, refuse)),
                ocsp: load.ocsp.as_ref().map(|file| based(file, crt_base, refuse)),
                issuer: load.issuer.as_ref().map(|file| based(file, crt_base, refuse)),
                ocsp_update: load.ocsp_update,
                is_watched: load.is_watched,
            };
            let section_name = section.name.shown().to_string();
            let name = match &load.alias {
                Some(alias) => format!("@{section_name}/{}", alias.shown()),
                None if section_name.is_empty() => definition.certificate.display().to_string(),
                None => format!("@{section_name}/{}", load.crt.shown()),
            };
            if !refuse.tls.define(&name, definition) {
                refuse
                    .found
                    .alert(load.pos, format!("'load' : there is a certificate named '{name}' already"));
                continue;
            }
            let mut problems = Vec::new();
            let loaded = refuse.tls.load(&name, &mut problems);
            for problem in problems {
                refuse.found.warning(load.pos, problem.to_string());
            }
            if let Err(problem) = loaded {
                refuse.found.alert(load.pos, problem.to_string());
                refuse.refused_loads.insert(name.clone());
            }
            if load.acme.is_some() {
                with_acme.push((name.into(), load));
            }
        }
    }
    acme(config, &with_acme, refuse)
}

/// Sets how the files of certificates are read.
fn files(process: &TlsProcess, refuse: &mut Refuse<'_>) {
    let settings = FileSettings {
        drops_extension: process.drops_extension.is_some_and(|set| set.value),
        skips_self_issued: process.skips_self_issued.is_some_and(|set| set.value),
        issuers: process.issuers.as_ref().map(|set| refuse.path(&set.value)),
    };
    let mut problems = Vec::new();
    let set = refuse.tls.set_files(&settings, &mut problems);
    let Some(pos) = process.issuers.as_ref().map(|set| set.pos) else { return };
    for problem in problems {
        refuse.found.warning(pos, problem.to_string());
    }
    if let Err(problem) = set {
        refuse.found.alert(pos, problem.to_string());
    }
}

/// Sets when OCSP responses are renewed.
fn ocsp_updates(process: &TlsProcess, refuse: &mut Refuse<'_>) {
    let usual = OcspUpdateSettings::default();
    let settings = OcspUpdateSettings {
        disabled: process.ocsp_disabled.is_some_and(|set| set.value),
        mode: process.ocsp_mode.is_some_and(|set| set.value),
        mindelay: process.ocsp_mindelay.map_or(usual.mindelay, |set| set.value.into()),
        maxdelay: process.ocsp_maxdelay.map_or(usual.maxdelay, |set| set.value.into()),
        proxy: process.ocsp_proxy.as_ref().and_then(|set| {
            let text = set.value.shown().to_string();
            let parsed = match text.rsplit_once(':') {
                Some((host, port)) if !port.ends_with(']') => {
                    port.parse().ok().map(|port| (host.into(), port))
                }
                _ => Some((text.as_str().into(), 80)),
            };
            let parsed = parsed.filter(|(host, port): &(Box<str>, u16)| !host.is_empty() && *port > 0);
            if parsed.is_none() {
                let message = format!("'ocsp-update.httpproxy' expects <address>[:<port>], found '{text}'");
                refuse.found.alert(set.pos, message);
            }
            parsed
        }),
    };
    if settings.mindelay > settings.maxdelay
        && let Some(pos) = process.ocsp_mindelay.or(process.ocsp_maxdelay).map(|set| set.pos)
    {
        let message = format!(
            "'ocsp-update.mindelay' ({}) must not be above 'ocsp-update.maxdelay' ({})",
            settings.mindelay, settings.maxdelay
        );
        refuse.found.alert(pos, message);
    }
    refuse.tls.set_ocsp_updates(settings);
}

/// Returns the context of a `bind` line at `pos`; `None` without `ssl`, or after an error was reported.
pub(super) fn of_bind(
    own: &TlsOptions,
    process: &TlsProcess,
    offers_http: bool,
    used: Option<&Used>,
    pos: Pos,
    refuse: &mut Refuse<'_>,
) -> Option<ServerContext> {
    let on = own.ssl.filter(|set| set.value)?;
    let defaults = &process.bind;
    note_old(own, refuse);
    let mut common = common(own, process, defaults, on.pos, refuse)?;
    if offers_http && own.alpn.is_none() {
        common.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    let base = process.crt_base.as_ref();
    let file = |word: &Word| Source::Path(based(word, base, refuse));
    let default = |word: &Word| Source::Default(based(word, base, refuse));
    let list = |word: &Word| Source::List { path: refuse.path(word), bases: bases(process, refuse) };
    // What is wrong with a certificate of a refused `load` line was reported there.
    let is_sound = |word: &&Word| !refuse.is_refused_load(word);
    let certificates = own.default_crt.iter().filter(is_sound).map(default);
    let certificates = certificates.chain(own.crt.iter().filter(is_sound).map(file));
    let certificates = certificates.chain(own.crt_list.iter().map(list));
    let certificates: Vec<_> = certificates.chain(used.map(|used| used.source.clone())).collect();
    if certificates.is_empty() && !own.default_crt.iter().chain(&own.crt).all(|word| is_sound(&word)) {
        return None;
    }
    let ignored = |set: &Option<Set<Word>>, keyword, refuse: &mut Refuse<'_>| match set {
        None => IgnoredErrors::default(),
        Some(set) => {
            IgnoredErrors::parse(keyword, &set.value.shown().to_string()).unwrap_or_else(|problem| {
                refuse.found.alert(set.pos, problem.to_string());
                IgnoredErrors::default()
            })
        }
    };
    let of_certificate = ignored(&own.crt_ignored, "crt-ignore-err", refuse);
    let of_authorities = ignored(&own.ca_ignored, "ca-ignore-err", refuse);
    let generates = match (own.generates, &own.ca_sign_file) {
        (Some(_), Some(set)) => Some(GeneratedCertificates {
            authority: based(&set.value, process.ca_base.as_ref(), refuse),
            kept: process.generated.map_or(GENERATED, |set| set.value) as usize,
        }),
        (Some(set), None) => {
            let message = "'generate-certificates' expects 'ca-sign-file <file>' beside it, found none";
            refuse.found.alert(set.pos, message);
            return None;
        }
        (None, Some(set)) => {
            let message = "'ca-sign-file' has no effect without 'generate-certificates'";
            refuse.note(set.pos, message.to_owned());
            None
        }
        (None, None) => None,
    };
    let settings = ServerSettings {
        common,
        certificates,
        generates,
        strict_sni: own.strict_sni.or(defaults.strict_sni).is_some_and(|set| set.value),
        verify: match own.verify.map(|set| set.value) {
            Some("optional") => ClientVerify::Optional,
            Some("required") => ClientVerify::Required,
            _ => ClientVerify::None,
        },
        verify_authorities: own
            .ca_verify_file
            .as_ref()
            .map(|set| based(&set.value, process.ca_base.as_ref(), refuse)),
        ignored: of_certificate,
        ignored_of_authorities: of_authorities,
        tell_authorities: !own.no_ca_names.is_some_and(|set| set.value),
        tickets: own.tickets.or(defaults.tickets).is_none_or(|set| set.value),
        early_data: own.early_data.is_some_and(|set| set.value),
        client_order: own.client_ciphers.or(defaults.client_ciphers).is_some_and(|set| set.value),
        ticket_keys: own.ticket_keys.as_ref().map(|set| refuse.path(&set.value)),
        sessions: process.sessions.map_or(SESSIONS, |set| set.value) as usize,
        lifetime: process.lifetime.map_or(LIFETIME, |set| set.value).as_secs().clamp(1, MOST_LIFETIME) as u32,
    };
    let mut problems = Vec::new();
    let made = refuse.tls.listener(&settings, &mut problems);
    let used_at = |problem: &Problem| used.filter(|_| problem.keyword == USE).map(|used| used.pos);
    let (of_use, problems): (Vec<_>, Vec<_>) =
        problems.into_iter().partition(|problem| used_at(problem).is_some());
    for problem in of_use {
        refuse.note(used_at(&problem).unwrap_or(pos), problem.to_string());
    }
    tell(problems, own, defaults, pos, refuse);
    match made {
        Ok(made) => Some(made),
        Err(problem) => {
            let at = used_at(&problem).or_else(|| position_of(problem.keyword, own, defaults)).unwrap_or(pos);
            // The cause may be an option of this line that was refused before.
            if ![pos, at].iter().any(|pos| refuse.found.has_error_in_line(*pos)) {
                refuse.found.alert(at, problem.to_string());
            }
            None
        }
    }
}

/// The keyword of [`Used`].
const USE: &str = "ssl-f-use";

/// The certificates of `ssl-f-use` lines.
pub(super) struct Used {
    source: Source,
    /// Position of the first line.
    pos: Pos,
}

/// Returns the certificates of a frontend's `ssl-f-use` lines, as a list with the name of the frontend;
/// `None` without such lines.
pub(super) fn used(proxy: &Proxy, process: &TlsProcess, refuse: &mut Refuse<'_>) -> Option<Used> {
    let pos = proxy.ssl_f_use.first()?.pos;
    let bases = bases(process, refuse);
    let mut lines = Vec::new();
    for statement in &proxy.ssl_f_use {
        match used_line(statement, process, &bases, refuse) {
            Ok(line) => lines.push(line),
            Err((pos, why)) => refuse.found.alert(pos, format!("'{USE}' {why}")),
        }
    }
    lines.reverse(); // as in HAProxy: the last certificate is the default of a listener that has no other
    let name = PathBuf::from(format!("@{}", proxy.name.shown()));
    Some(Used { source: Source::Lines { name, bases, lines }, pos })
}

/// Parses an `ssl-f-use` line. The error is the end of a sentence, and its position.
fn used_line(
    statement: &Statement,
    process: &TlsProcess,
    bases: &Bases,
    refuse: &Refuse<'_>,
) -> Result<ListLine, (Pos, String)> {
    let (mut certificate, mut options) = (None, Vec::new());
    let mut words = statement.words.iter();
    while let Some(word) = words.next() {
        if *word != *"crt" {
            options.push(word.shown().to_string());
            continue;
        }
        let file =
            words.next().ok_or_else(|| (word.pos(), "expects a file behind 'crt', found none".to_owned()))?;
        if certificate.replace(file).is_some() {
            return Err((word.pos(), "has 'crt' twice, expected one line for each certificate".to_owned()));
        }
    }
    let file = certificate.ok_or_else(|| (statement.pos, "expects 'crt <file>', found none".to_owned()))?;
    let path = based(file, process.crt_base.as_ref(), refuse);
    let Some(certificate) = path.to_str().map(Box::from) else {
        return Err((file.pos(), "names a file whose name is not UTF-8: rename the file".to_owned()));
    };
    let options = LineOptions::parse(options.iter().map(String::as_str), &bases.ca)
        .map_err(|why| (statement.pos, why))?;
    Ok(ListLine { certificate, options, ..ListLine::default() })
}

/// The folders that relative files of a list begin at.
fn bases(process: &TlsProcess, refuse: &Refuse<'_>) -> Bases {
    let folder =
        |base: &Option<Set<Word>>| base.as_ref().map_or_else(PathBuf::new, |base| refuse.path(&base.value));
    Bases { crt: folder(&process.crt_base), ca: folder(&process.ca_base) }
}

/// TLS settings of a server.
#[derive(Debug)]
pub struct ServerTls {
    /// The settings of TLS.
    pub context: ClientContext,
    /// True if ALPN offers HTTP/2.
    pub offers_h2: bool,
    /// The protocol that connections for WebSocket offer alone, if others offer others.
    pub websocket: Option<&'static [u8]>,
    /// True if requests may be sent as early data.
    pub sends_early: bool,
    /// Source of the server name (SNI).
    pub name: SniName,
    /// True after a failed handshake was logged, until one succeeds.
    pub failing: AtomicBool,
}

/// Source of a server name (SNI).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SniName {
    /// No name.
    None,
    /// A fixed name.
    Fixed(ServerName<'static>),
    /// Value of the backend's expression with this number.
    Evaluated(usize),
}

impl SniName {
    /// Returns the name of `str(name)`, which needs no evaluation for each request.
    pub(super) fn constant(expression: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(expression.strip_prefix(b"str(")?.strip_suffix(b")")?).ok()?;
        ServerName::try_from(name.to_owned()).ok().map(Self::Fixed)
    }
}

impl ServerTls {
    /// Returns true if a check gives the same result with both: names, settings and files are equal.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.name == other.name && self.context.is_like(&other.context)
    }

    /// Returns true if connections made by the other fit this one. An evaluated name is part of a
    /// connection's key in the idle pool, whatever the expression.
    pub(super) fn fits_connections_of(&self, other: &Self) -> bool {
        let named = match (&self.name, &other.name) {
            (SniName::Evaluated(_), SniName::Evaluated(_)) => true,
            (own, other) => own == other,
        };
        named && self.context.fits_connections_of(&other.context)
    }

    /// Returns true if only HTTP/2 can carry WebSocket. HTTP/1 is preferred, since many servers of HTTP/2
    /// lack RFC 8441.
    pub(super) fn has_websocket_on_h2(&self) -> bool {
        self.offers_h2 && !self.context.protocols().iter().any(|name| name == b"http/1.1")
    }

    /// Sets the protocol of connections for WebSocket. Without ALPN, none offers any.
    pub(super) fn set_websocket(&mut self, http2: bool) {
        let own: &[u8] = if http2 { b"h2" } else { b"http/1.1" };
        let offered = self.context.protocols();
        self.websocket = (!offered.is_empty() && offered != [own]).then_some(own);
    }

    /// Returns the server name of a new connection. `names` has the values of the backend's expressions.
    pub fn name(&self, names: &[Option<Box<str>>]) -> ServerName<'static> {
        let named = match &self.name {
            SniName::None => None,
            SniName::Fixed(name) => Some(name.clone()),
            SniName::Evaluated(number) => names
                .get(*number)
                .and_then(Option::as_ref)
                .and_then(|text| ServerName::try_from(text.to_string()).ok()),
        };
        // An address is not sent as SNI.
        named.unwrap_or(ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into()))
    }
}

/// Purpose of connections to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Requests.
    Traffic,
    /// Health checks.
    Check,
}

/// Returns the context of a `server` line at `pos`; `None` after an error was reported.
pub(super) fn of_server(
    own: &TlsOptions,
    process: &TlsProcess,
    purpose: Purpose,
    pos: Pos,
    refuse: &mut Refuse<'_>,
) -> Option<ServerTls> {
    let defaults = &process.server;
    let mut common = common(own, process, defaults, pos, refuse)?;
    if purpose == Purpose::Traffic {
        note_old(own, refuse);
    }
    if let (Purpose::Check, Some(list)) = (purpose, &own.check_alpn) {
        common.alpn = protocols(list);
    }
    let verify = match own.verify.or(process.server_verify).map(|set| set.value) {
        Some("none") => ServerVerify::None,
        _ => match &own.verifyhost {
            Some(name) => ServerVerify::Host(name.value.shown().to_string()),
            None => ServerVerify::Required,
        },
    };
    let sends_name = match purpose {
        Purpose::Traffic => own.sni.is_some(),
        Purpose::Check => own.check_sni.is_some(),
    };
    let settings = ClientSettings {
        common,
        certificate: own.crt.last().map(|word| based(word, process.crt_base.as_ref(), refuse)),
        verify,
        sends_name,
        reuse: own.reuse.is_none_or(|set| set.value) && purpose == Purpose::Traffic,
        early_data: own.early_data.is_some_and(|set| set.value) && purpose == Purpose::Traffic,
    };
    let offers_h2 = settings.common.alpn.iter().any(|name| name == b"h2");
    let mut problems = Vec::new();
    let made = refuse.tls.server(&settings, &mut problems);
    tell(problems, own, defaults, pos, refuse);
    match made {
        Ok(context) => {
            let name = match purpose {
                // Expressions are compiled later, with the rules.
                Purpose::Traffic => match &own.sni {
                    Some(set) => SniName::constant(set.value.bytes()).unwrap_or(SniName::None),
                    None => SniName::None,
                },
                Purpose::Check => fixed(&own.check_sni, "check-sni", refuse),
            };
            let sends_early = settings.early_data && !offers_h2;
            if settings.early_data && offers_h2 {
                let pos = own.early_data.map_or(pos, |set| set.pos);
                let why = "the protocol is agreed on first, which may be 'h2'";
                refuse.note(pos, format!("'allow-0rtt' : no early data is sent: {why}"));
            }
            let failing = AtomicBool::new(false);
            Some(ServerTls { context, offers_h2, websocket: None, sends_early, name, failing })
        }
        Err(problem) => {
            // The cause may be an option of this line that was refused before.
            if !refuse.found.has_error_in_line(pos) {
                let pos = position_of(problem.keyword, own, defaults).unwrap_or(pos);
                refuse.found.alert(pos, problem.to_string());
            }
            None
        }
    }
}

/// Returns the TLS of a server that is sent no requests: its `sni` has a fixed name. `None` without `ssl`, or
/// after an error was reported.
pub(super) fn of_server_without_requests(
    own: &TlsOptions,
    process: &TlsProcess,
    pos: Pos,
    refuse: &mut Refuse<'_>,
) -> Option<ServerTls> {
    own.ssl.filter(|set| set.value)?;
    let tls = of_server(own, process, Purpose::Traffic, pos, refuse)?;
    expect_fixed_name(&tls, own, refuse);
    Some(tls)
}

/// Refuses an `sni` that needs a request.
pub(super) fn expect_fixed_name(tls: &ServerTls, own: &TlsOptions, refuse: &mut Refuse<'_>) {
    if let (SniName::None, Some(set)) = (&tls.name, &own.sni) {
        let message = format!(
            "'sni' expects a fixed name such as str(a.example.org) where there are no requests, found '{}'",
            set.value.shown()
        );
        refuse.found.alert(set.pos, message);
    }
}

/// Refuses options of a server that is sent log lines that would have no effect: otherwise lines would go in
/// clear without a word.
pub(super) fn check_log_server(own: &TlsOptions, pos: Pos, refuse: &mut Refuse<'_>) {
    if !own.ssl.is_some_and(|set| set.value) && *own != (TlsOptions { ssl: own.ssl, ..TlsOptions::default() })
    {
        return refuse.keyword(pos, "server", "options of TLS expect 'ssl' beside them where lines are sent");
    }
    if let Some(set) = own.early_data {
        refuse.keyword(set.pos, "allow-0rtt", "lines are not sent as early data");
    }
}

/// Returns the fixed name that an option sets.
fn fixed(name: &Option<Set<Word>>, keyword: &str, refuse: &mut Refuse<'_>) -> SniName {
    let Some(set) = name else { return SniName::None };
    let text = set.value.shown().to_string();
    match ServerName::try_from(text.clone()) {
        Ok(name) => SniName::Fixed(name),
        Err(_) => {
            refuse.found.alert(set.pos, format!("'{keyword}' expects a host name, found '{text}'"));
            SniName::None
        }
    }
}

fn protocols(list: &Set<Word>) -> Vec<Vec<u8>> {
    let names = list.value.bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

fn common(
    own: &TlsOptions,
    process: &TlsProcess,
    defaults: &TlsOptions,
    pos: Pos,
    refuse: &mut Refuse<'_>,
) -> Option<CommonSettings> {
    let text = |set: &Option<Set<Word>>| set.as_ref().map(|set| set.value.shown().to_string());
    let either = |own: &Option<Set<Word>>, default: &Option<Set<Word>>| text(own).or_else(|| text(default));
    let alpn = own.alpn.as_ref().map(protocols).unwrap_or_default();
    if let Some(name) = alpn.iter().find(|name| name.len() > 255) {
        let pos = own.alpn.as_ref().map_or(pos, |set| set.pos);
        let message = format!("'alpn' : the name of a protocol has at most 255 bytes, found {}", name.len());
        refuse.found.alert(pos, message);
        return None;
    }
    let oldest = match own.oldest.or(defaults.oldest).map(|set| set.value) {
        Some("TLSv1.3") => Some(Version::V13),
        _ => None,
    };
    let newest = own.newest.or(defaults.newest);
    let newest = match newest.map(|set| (set.value, set.pos)) {
        None | Some(("TLSv1.3", _)) => None,
        Some(("TLSv1.2", _)) => Some(Version::V12),
        Some((old, pos)) => {
            let message = format!("'ssl-max-ver' : {old} is not supported; the oldest version is TLSv1.2");
            refuse.found.alert(pos, message);
            return None;
        }
    };
    Some(CommonSettings {
        ciphers: either(&own.ciphers, &defaults.ciphers),
        ciphersuites: either(&own.ciphersuites, &defaults.ciphersuites),
        curves: either(&own.curves, &defaults.curves),
        sigalgs: either(&own.sigalgs, &defaults.sigalgs),
        client_sigalgs: either(&own.client_sigalgs, &defaults.client_sigalgs),
        oldest,
        newest,
        alpn,
        authorities: own.ca_file.as_ref().map(|set| match set.value.bytes() {
            b"@system-ca" => PathBuf::from("@system-ca"),
            _ => based(&set.value, process.ca_base.as_ref(), refuse),
        }),
        keeps_secrets: process.keylog.is_some_and(|set| set.value),
        records: RecordSizes::new(
            process.most_record.map_or(0, |set| set.value),
            process.first_record.map_or(0, |set| set.value),
            refuse.config.global.tune.idletimer.map_or(IDLE, |set| set.value),
        ),
        hello_bytes: process.hello_bytes.map_or(0, |set| set.value as usize),
        revoked: own.crl_file.as_ref().map(|set| based(&set.value, process.ca_base.as_ref(), refuse)),
    })
}

/// Says that versions of TLS are not spoken, if `ssl-min-ver` allows them.
fn note_old(options: &TlsOptions, refuse: &mut Refuse<'_>) {
    if let Some(set) = options.oldest.filter(|set| manylane_tls::OLD_VERSIONS.contains(&set.value)) {
        refuse.note(set.pos, format!("'ssl-min-ver' : {}", manylane_tls::not_spoken(set.value)));
    }
}

/// Returns the path of the file that a word names, relative to `base` if that is set.
pub(super) fn based(word: &Word, base: Option<&Set<Word>>, refuse: &Refuse<'_>) -> PathBuf {
    if word.bytes().starts_with(b"@") {
        return PathBuf::from(word.shown().to_string()); // an entry of a 'crt-store' section
    }
    let named = refuse.path(word);
    match base {
        Some(base) if named.is_relative() => refuse.path(&base.value).join(named),
        _ => named,
    }
}

/// Reports settings that are not followed exactly. HAProxy's library says nothing about them, so these are
/// notes: a warning would refuse the file under `zero-warning`. An unusable certificate or OCSP response is a
/// warning.
fn tell(problems: Vec<Problem>, own: &TlsOptions, defaults: &TlsOptions, pos: Pos, refuse: &mut Refuse<'_>) {
    for problem in problems {
        let pos = position_of(problem.keyword, own, defaults).unwrap_or(pos);
        match problem.keyword {
            "crt" | "ocsp" => refuse.found.warning(pos, problem.to_string()),
            _ => refuse.note(pos, problem.to_string()),
        }
    }
}

/// Returns the position of the option `keyword`.
fn position_of(keyword: &str, own: &TlsOptions, defaults: &TlsOptions) -> Option<Pos> {
    let of = |options: &TlsOptions| match keyword {
        "allow-0rtt" => options.early_data.map(|set| set.pos),
        "ca-file" => options.ca_file.as_ref().map(|set| set.pos),
        "ca-sign-file" => options.ca_sign_file.as_ref().map(|set| set.pos),
        "ca-verify-file" => options.ca_verify_file.as_ref().map(|set| set.pos),
        "client-sigalgs" => options.client_sigalgs.as_ref().map(|set| set.pos),
        "sigalgs" => options.sigalgs.as_ref().map(|set| set.pos),
        "ciphers" => options.ciphers.as_ref().map(|set| set.pos),
        "ciphersuites" => options.ciphersuites.as_ref().map(|set| set.pos),
        "crt-list" => options.crt_list.first().map(Word::pos),
        "crl-file" => options.crl_file.as_ref().map(|set| set.pos),
        "crt" => options.crt.first().or(options.default_crt.first()).map(Word::pos),
        "curves" => options.curves.as_ref().map(|set| set.pos),
        "ssl-min-ver" => options.oldest.or(options.newest).map(|set| set.pos),
        "tls-ticket-keys" => options.ticket_keys.as_ref().map(|set| set.pos),
        "verify" => options.verify.map(|set| set.pos),
        "verifyhost" => options.verifyhost.as_ref().map(|set| set.pos),
        _ => None,
    };
    of(own).or_else(|| of(defaults)).or(own.ssl.map(|set| set.pos))
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use manylane_config::table::{KeywordContext, Table};

    #[test]
    fn defaults_are_those_that_the_reference_tells() {
        for (keyword, default) in
            [("tune.ssl.cachesize", SESSIONS), ("tune.ssl.ssl-ctx-cache-size", GENERATED)]
        {
            let row = Table::get().find(keyword, KeywordContext::Global);
            assert_eq!(row.map(|row| row.default), Some(&*default.to_string()), "{keyword}");
        }
    }
}
