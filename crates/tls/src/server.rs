//! The side that clients connect to.

use crate::certificate::Certificate;
use crate::chain::{Chains, IgnoredErrors};
use crate::choose::{Choice, Fixed, Source, Unlisted};
use crate::error::Problem;
use crate::generate::{GeneratedCertificates, Generator};
use crate::keylog::keeper;
use crate::line_options::LineOptions;
use crate::names::Version;
use crate::provider::CommonSettings;
use crate::sigalgs::Accepted;
use crate::store::{Context, Known};
use crate::tickets::{Rules, Tickets, dated, still_good};
use crate::trust::{self, Authorities};
use aws_lc_rs::digest;
use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::{LockClass, Mutex};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ServerSessionMemoryCache, StoresServerSessions,
};
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// Longest session that is kept, in bytes. A session contains all certificates that the client sent, up to 64
/// KiB, of which only the first has to be valid; usual chains have a few thousand bytes.
const LONGEST_SESSION: usize = 8192;

/// Most bytes of early data that a client may send: as many as HAProxy takes with its default buffers. A
/// client that sends more loses its connection.
pub const MOST_EARLY_DATA: u32 = 15 << 10;

static SESSIONS: LockClass = LockClass::new("sessions of TLS", LockClass::LEAF);

/// Whether clients present certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientVerify {
    /// The listener requests none.
    #[default]
    None,
    /// They may present one, which must be valid.
    Optional,
    /// They must present a valid one.
    Required,
}

/// Settings of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Settings shared with servers.
    pub common: CommonSettings,
    /// `crt` and `crt-list`: files and folders. The first certificate is the default.
    pub certificates: Vec<Source>,
    /// `strict-sni`: refuses clients that ask for no name of a certificate.
    pub strict_sni: bool,
    /// `generate-certificates`: clients that ask for an unknown name get a certificate that is made for it,
    /// also with `strict_sni`.
    pub generates: Option<GeneratedCertificates>,
    /// `verify`
    pub verify: ClientVerify,
    /// `ca-verify-file`: trusted authorities whose names clients do not get.
    pub verify_authorities: Option<PathBuf>,
    /// `crt-ignore-err`: errors of clients' certificates that end no handshake.
    pub ignored: IgnoredErrors,
    /// `ca-ignore-err`: those of their issuers.
    pub ignored_of_authorities: IgnoredErrors,
    /// True without `no-ca-names`: clients get the names of the trusted CAs.
    pub tell_authorities: bool,
    /// Sessions are sent to clients as tickets instead of being kept here.
    pub tickets: bool,
    /// `allow-0rtt`: resumed sessions may begin with data. They are kept here then, whatever `tickets` says,
    /// because only a kept session is certain to be resumed once.
    pub early_data: bool,
    /// `prefer-client-ciphers`
    pub client_order: bool,
    /// `tls-ticket-keys`: a file; `None` for random keys.
    pub ticket_keys: Option<PathBuf>,
    /// `tune.ssl.cachesize`: the number of sessions without tickets to keep.
    pub sessions: usize,
    /// `tune.ssl.lifetime`: seconds for which a session can be resumed.
    pub lifetime: u32,
}

impl ServerSettings {
    /// Settings of a listener with these certificates and no other option. It keeps no sessions, and its
    /// tickets hold for 300 seconds.
    pub fn new(certificates: Vec<Source>) -> Self {
        Self {
            common: CommonSettings::default(),
            certificates,
            strict_sni: false,
            generates: None,
            verify: ClientVerify::None,
            verify_authorities: None,
            ignored: IgnoredErrors::default(),
            ignored_of_authorities: IgnoredErrors::default(),
            tell_authorities: true,
            tickets: true,
            early_data: false,
            client_order: false,
            ticket_keys: None,
            sessions: 0,
            lifetime: 300,
        }
    }
}

/// Shared by all connections of a listener, on all lanes. [`Store::listener`](crate::Store::listener) makes
/// it.
#[derive(Clone)]
pub struct ServerContext(pub(crate) Arc<Context<ServerSettings, Configs>>);

/// The configurations of a listener.
pub(crate) struct Configs {
    /// The one for clients that get no certificate with options of its own.
    pub(crate) usual: Arc<ServerConfig>,
    /// Set if a certificate has options of its own.
    pub(crate) own: Option<OwnConfigs>,
}

/// A configuration for each certificate of a listener.
pub(crate) struct OwnConfigs {
    choice: Arc<Choice>,
    /// In the order of the certificates.
    all: Vec<Arc<ServerConfig>>,
}

impl OwnConfigs {
    /// The configuration for a client; `None` for the usual one.
    pub(crate) fn of(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        if self.choice.generates(hello) {
            return None;
        }
        self.choice.choose(hello).map(|number| self.all[number].clone())
    }
}

/// Makes the configurations for rustls. Adds to `warnings`.
///
/// # Errors
/// A sentence about the setting that cannot be used.
pub(crate) fn configs(
    settings: &ServerSettings,
    known: &mut Known,
    warnings: &mut Vec<Problem>,
) -> Result<Configs, Problem> {
    let [signs, accepted] = settings.common.signatures(warnings)?;
    let certificates = known.choose(&settings.certificates, settings.strict_sni, warnings)?;
    let certificates: Vec<_> =
        certificates.into_iter().map(|certificate| certificate.signing_by(signs.as_ref())).collect();
    if certificates.is_empty() && (settings.certificates.is_empty() || !settings.strict_sni) {
        return Err(match settings.certificates.first() {
            None => Problem::new("ssl", "no certificate is given: add 'crt <file>'"),
            Some(source) => {
                Problem::new("crt", format!("there is no certificate in '{}'", source.path().display()))
            }
        });
    }
    let tls13 = settings.common.newest != Some(Version::V12);
    let generator = match &settings.generates {
        Some(own) => Some(Generator::new(known.signing_authority(&own.authority, warnings)?, own.kept)),
        None => None,
    };
    let choice = Arc::new(Choice::new(certificates, settings.strict_sni, generator, tls13));
    let usual = Arc::new(config(settings, accepted, choice.clone(), known, warnings)?);
    let mut made: Vec<(&LineOptions, ServerConfig)> = Vec::new();
    for own in choice.all.iter().filter_map(|certificate| certificate.options.as_deref()) {
        if made.iter().any(|(options, _)| *options == &own.options) {
            continue;
        }
        let at = |problem: Problem| own.problem(format_args!(": {problem}"));
        let settings = own.options.over(settings).map_err(|why| own.problem(why))?;
        let mut own_warnings = Vec::new();
        let [_, accepted] = settings.common.signatures(&mut own_warnings).map_err(at)?;
        let config = config(&settings, accepted, choice.clone(), known, &mut own_warnings).map_err(at)?;
        // What the listener's settings have reported is not repeated.
        let new = own_warnings.into_iter().filter(|problem| !warnings.contains(problem)).collect::<Vec<_>>();
        warnings.extend(new.into_iter().map(at));
        made.push((&own.options, config));
    }
    if made.is_empty() {
        return Ok(Configs { usual, own: None });
    }
    let of = |(number, certificate): (usize, &Certificate)| {
        let options = certificate.options.as_deref().map(|own| &own.options);
        let own = made.iter().find(|(own, _)| Some(*own) == options).map(|(_, config)| config);
        let mut config = own.unwrap_or(&usual).clone();
        config.cert_resolver = Arc::new(Fixed { choice: choice.clone(), number });
        Arc::new(config)
    };
    let all = choice.all.iter().enumerate().map(of).collect();
    let mut unlisted = (*usual).clone();
    unlisted.cert_resolver = Arc::new(Unlisted(choice.clone()));
    Ok(Configs { usual: Arc::new(unlisted), own: Some(OwnConfigs { choice, all }) })
}

/// Makes a configuration. `accepted` are the algorithms that may sign for clients.
fn config(
    settings: &ServerSettings,
    accepted: Option<Arc<[SignatureScheme]>>,
    resolver: Arc<dyn ResolvesServerCert>,
    known: &mut Known,
    warnings: &mut Vec<Problem>,
) -> Result<ServerConfig, Problem> {
    let (provider, builder) = settings.common.begin(warnings, ServerConfig::builder_with_provider)?;
    let rules = rules(settings, known)?;
    let builder = match settings.verify {
        ClientVerify::None => builder.with_no_client_auth(),
        verify => {
            let [listed, unlisted] = authorities(settings, known)?;
            if listed.is_none() && unlisted.is_none() {
                let text = "clients can be verified with a 'ca-file' or a 'ca-verify-file' only";
                return Err(Problem::new("verify", text));
            }
            let trusted = || listed.iter().chain(&unlisted);
            let mut roots = RootCertStore::empty();
            roots.extend(trusted().flat_map(|own| own.roots.roots.iter().cloned()));
            let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let revoked = settings.common.revoked.as_ref().map(|path| known.revoked(path)).transpose()?;
            if let Some(revoked) = &revoked {
                verifier = verifier.with_crls(revoked.0.iter().cloned()).enforce_revocation_expiration();
            }
            verifier = verifier.clear_root_hint_subjects();
            if let (true, Some(listed)) = (settings.tell_authorities, &listed) {
                verifier = verifier.add_root_hint_subjects(listed.roots.subjects());
            }
            if verify == ClientVerify::Optional {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier.build().map_err(|error| Problem::new("ca-file", error.to_string()))?;
            builder.with_client_cert_verifier(Arc::new(Verifier {
                known: verifier,
                own: match revoked {
                    None => trusted().flat_map(|own| own.set()).collect(),
                    Some(_) => HashSet::new(),
                },
                chains: Chains::new(
                    trusted().flat_map(|own| own.certificates.iter().cloned()),
                    revoked.map(|revoked| revoked.0.clone()),
                    settings.ignored,
                    settings.ignored_of_authorities,
                ),
                accepted: Accepted(accepted),
            }))
        }
    };
    let mut config = builder.with_cert_resolver(resolver);
    config.alpn_protocols.clone_from(&settings.common.alpn);
    if settings.common.keeps_secrets {
        config.key_log = keeper();
    }
    config.ignore_client_order = !settings.client_order;
    let failed = |error: rustls::Error| Problem::new("ssl", format!("no keys for tickets: {error}"));
    // A resumed session does not verify the client's certificate again, so it must have begun under the same
    // rules. Listeners that verify clients have their own random keys and sessions. All others share them,
    // also across generations.
    let own = settings.verify != ClientVerify::None;
    let early_data = settings.early_data && takes_early_data(settings, warnings);
    if own && !(settings.ignored.is_empty() && settings.ignored_of_authorities.is_empty()) {
        // A session does not keep which errors were ignored, so each connection verifies the client anew.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    } else if settings.tickets && !early_data {
        let keys: Arc<dyn ProducesTickets> = match &settings.ticket_keys {
            Some(path) => known.ticket_keys(path)?,
            None if own => Ticketer::new().map_err(failed)?,
            None => shared_ticketer().map_err(failed)?,
        };
        config.ticketer = Arc::new(Tickets { keys, lifetime: settings.lifetime, rules });
        config.session_storage = Arc::new(NoServerSessionStorage {});
    } else {
        let sessions = match settings.sessions {
            0 => None,
            most if own => Some(ServerSessionMemoryCache::new(most)),
            most => Some(shared_sessions(most)),
        };
        config.session_storage = match sessions {
            None => Arc::new(NoServerSessionStorage {}),
            Some(kept) => Arc::new(Sessions { kept, lifetime: settings.lifetime, rules }),
        };
    }
    if early_data {
        config.max_early_data_size = MOST_EARLY_DATA;
        config.send_half_rtt_data = true; // otherwise the response waits for the handshake
    }
    Ok(config)
}

/// Returns whether a listener with `allow-0rtt` can accept early data, and tells the reason if it cannot.
fn takes_early_data(settings: &ServerSettings, warnings: &mut Vec<Problem>) -> bool {
    let why = if settings.common.newest == Some(Version::V12) {
        "only TLS 1.3 has early data"
    } else if settings.ticket_keys.is_some() {
        "a ticket of 'tls-ticket-keys' can be used several times, and its early data, too"
    } else if settings.sessions == 0 {
        "early data needs sessions that are kept, and 'tune.ssl.cachesize' is 0"
    } else if !(settings.ignored.is_empty() && settings.ignored_of_authorities.is_empty())
        && settings.verify != ClientVerify::None
    {
        "no session is resumed where errors of certificates are ignored"
    } else {
        return true;
    };
    warnings.push(Problem::new("allow-0rtt", format!("no early data is accepted: {why}")));
    false
}

/// Verifies client certificates as HAProxy does.
#[derive(Debug)]
struct Verifier {
    known: Arc<dyn ClientCertVerifier>,
    /// Certificates of 'ca-file': a client may present one of them, which is trusted by itself. Empty with a
    /// 'crl-file', since such a certificate has no issuer that could revoke it.
    own: HashSet<CertificateDer<'static>>,
    chains: Chains,
    accepted: Accepted,
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.known.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.known.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.known.verify_client_cert(certificate, chain, now);
        match verified {
            Err(refused) if !trust::by_itself(&refused, certificate, &self.own) => {
                self.chains.judge(certificate, chain, now, refused)?;
            }
            _ => {}
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.accepted.check(signed.scheme)?;
        self.known.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.accepted.check(signed.scheme)?;
        self.known.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.accepted.of(self.known.supported_verify_schemes())
    }
}

/// The random ticket keys of all lanes. rustls replaces them every six hours and keeps the previous ones.
fn shared_ticketer() -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    static SHARED: OnceLock<Result<Arc<dyn ProducesTickets>, rustls::Error>> = OnceLock::new();
    SHARED.get_or_init(Ticketer::new).clone()
}

/// Loads the authorities whose names clients get, and those whose names they do not.
fn authorities(
    settings: &ServerSettings,
    known: &mut Known,
) -> Result<[Option<Arc<Authorities>>; 2], Problem> {
    let mut load = |path: &Option<PathBuf>| path.as_ref().map(|path| known.authorities(path)).transpose();
    let listed = load(&settings.common.authorities)?;
    let unlisted = load(&settings.verify_authorities);
    Ok([listed, unlisted.map_err(|problem| Problem { keyword: "ca-verify-file", ..problem })?])
}

/// A digest of the rules by which a listener verifies client certificates. Listeners with other rules do not
/// resume its sessions.
fn rules(settings: &ServerSettings, known: &mut Known) -> Result<Rules, Problem> {
    let mut digest = digest::Context::new(&digest::SHA256);
    let mut add = |bytes: &[u8]| {
        digest.update(&(bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    };
    if settings.verify != ClientVerify::None {
        add(if settings.verify == ClientVerify::Required { b"required" } else { b"optional" });
        for own in authorities(settings, known)? {
            add(b"authorities");
            own.iter().flat_map(|own| own.der()).for_each(|der| add(&der));
        }
        add(b"revoked");
        if let Some(path) = &settings.common.revoked {
            known.revoked(path)?.der().iter().for_each(|der| add(der));
        }
    }
    let mut rules = Rules::default();
    rules.copy_from_slice(digest.finish().as_ref());
    Ok(rules)
}

/// The cache for sessions without tickets, shared by all lanes. A new size replaces the cache and drops its
/// sessions.
fn shared_sessions(most: usize) -> Arc<ServerSessionMemoryCache> {
    manylane_sync::lazy_static! {
        static SHARED: Mutex<Option<(usize, Arc<ServerSessionMemoryCache>)>> = Mutex::new(&SESSIONS, None);
    }
    let mut shared = SHARED.lock();
    match &*shared {
        Some((own, sessions)) if *own == most => sessions.clone(),
        _ => shared.insert((most, ServerSessionMemoryCache::new(most))).1.clone(),
    }
}

manylane_sync::lazy_static! {
    /// Lookups in the session cache by all listeners. Each also takes the cache's lock, so counting adds
    /// little.
    static LOOKUPS: AtomicU64 = AtomicU64::new(0);
}
manylane_sync::lazy_static! {
    /// Lookups that found nothing.
    static MISSES: AtomicU64 = AtomicU64::new(0);
}

/// Counters of lookups in the session cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionLookups {
    /// Lookups since the start.
    pub all: u64,
    /// Lookups that found nothing.
    pub misses: u64,
}

/// Returns the counters; see [`SessionLookups`].
pub fn session_lookups() -> SessionLookups {
    SessionLookups { all: LOOKUPS.load(Ordering::Relaxed), misses: MISSES.load(Ordering::Relaxed) }
}

/// The session cache of a listener, with counters.
#[derive(Debug)]
struct Sessions {
    kept: Arc<ServerSessionMemoryCache>,
    /// In seconds.
    lifetime: u32,
    rules: Rules,
}

impl Sessions {
    fn found(&self, session: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let session = session.map(Zeroizing::new).and_then(|session| {
            still_good(&self.rules, &session, self.lifetime, UnixTime::now()).map(<[u8]>::to_vec)
        });
        LOOKUPS.fetch_add(1, Ordering::Relaxed);
        if session.is_none() {
            MISSES.fetch_add(1, Ordering::Relaxed);
        }
        session
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let value = Zeroizing::new(value);
        value.len() <= LONGEST_SESSION
            && manylane_pool::check_growth(key.len() + value.len()).is_ok()
            && self.kept.put(key, dated(&self.rules, &value, UnixTime::now()))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.found(self.kept.get(key))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.found(self.kept.take(key))
    }

    fn can_cache(&self) -> bool {
        self.kept.can_cache()
    }
}

impl fmt::Debug for ServerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerContext").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    #[test]
    fn a_session_with_many_certificates_is_not_kept() {
        let kept = ServerSessionMemoryCache::new(2);
        let sessions = Sessions { kept, lifetime: 300, rules: Rules::default() };
        assert!(sessions.put(b"usual".to_vec(), vec![1; LONGEST_SESSION]));
        assert!(!sessions.put(b"long".to_vec(), vec![1; LONGEST_SESSION + 1]));
        assert_eq!(sessions.get(b"usual"), Some(vec![1; LONGEST_SESSION]));
        assert_eq!(sessions.get(b"long"), None);
    }

    #[test]
    fn as_many_sessions_are_kept_as_the_configuration_says() {
        const KEPT: u32 = 20_000; // the default of `tune.ssl.cachesize`
        let kept = ServerSessionMemoryCache::new(KEPT as usize);
        let sessions = Sessions { kept, lifetime: 300, rules: Rules::default() };
        let put = |number: u32| assert!(sessions.put(number.to_be_bytes().to_vec(), vec![1]));
        let is_kept = |number: u32| sessions.get(&number.to_be_bytes()).is_some();
        (0..KEPT).for_each(put);
        assert!((0..KEPT).all(is_kept));
        put(KEPT);
        assert!(!is_kept(0) && (1..=KEPT).all(is_kept), "the oldest has gone");
    }
}
