//! The side that connects to servers.

use crate::error::Problem;
use crate::keylog::keeper;
use crate::names::Version;
use crate::provider::CommonSettings;
use crate::sigalgs::Accepted;
use crate::store::{Context, Known};
use crate::trust;
use aws_lc_rs::digest;
use manylane_sync::atomic::Ordering;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue, WebPkiServerVerifier, verify_server_name,
};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, NamedGroup, SignatureScheme};
use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Number of names whose sessions are kept, for each configured server. With `sni`, one server may have
/// several names.
const NAMES: usize = 8;

/// Number of tickets that rustls keeps for a name. It counts names in this unit.
const TICKETS: usize = 8;

/// Longest ticket that is kept, in bytes. It may contain this side's certificates. A server chooses its
/// tickets, of up to 64 KiB each.
pub(crate) const LONGEST_TICKET: usize = 8192;

/// How a server's certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerVerify {
    /// It is not verified.
    None,
    /// It must be signed by a known CA and, if a name is asked for, be valid for that name.
    Required,
    /// As `Required`, and valid for this name if none is asked for.
    Host(String),
}

/// Settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// Settings shared with listeners.
    pub common: CommonSettings,
    /// `crt`: the certificate to present.
    pub certificate: Option<PathBuf>,
    /// `verify`, `verifyhost`
    pub verify: ServerVerify,
    /// True with `sni`: connections ask for a name.
    pub sends_name: bool,
    /// True without `no-ssl-reuse`: sessions are resumed.
    pub reuse: bool,
    /// `allow-0rtt`: data may be sent to the server together with the hello that resumes a session.
    pub early_data: bool,
}

/// Shared by all connections to a server, on all lanes. [`Store::server`](crate::Store::server) makes it.
#[derive(Clone)]
pub struct ClientContext(pub(crate) Arc<Context<ClientSettings, ClientConfigs>>);

/// The configurations of a context for rustls. They share their sessions.
#[derive(Debug)]
pub(crate) struct ClientConfigs {
    usual: Arc<ClientConfig>,
    /// For connections that begin with early data, with `allow-0rtt`.
    early: Option<Arc<ClientConfig>>,
    /// Digest of the files that they are made of.
    pub(crate) contents: u64,
}

impl ClientConfigs {
    /// Returns the configuration for a connection, and whether it may begin with early data.
    pub(crate) fn of(&self, hello: Hello) -> (Arc<ClientConfig>, bool) {
        match (hello, &self.early) {
            (Hello::Early, Some(early)) => (early.clone(), true),
            (Hello::Usual | Hello::Early, _) => (self.usual.clone(), false),
            // Made for each connection: few need it, and their handshakes cost far more.
            (Hello::Protocol(protocol), _) => {
                let mut config = ClientConfig::clone(&self.usual);
                config.alpn_protocols = vec![protocol.to_vec()];
                (Arc::new(config), false)
            }
        }
    }
}

/// What the hello of a connection to a server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hello {
    /// What the settings say.
    Usual,
    /// Early data too, if the settings and a session allow it.
    Early,
    /// This protocol alone of ALPN.
    Protocol(&'static [u8]),
}

impl ClientContext {
    /// Returns true if connections of both are alike: the settings agree, and so do the contents of their
    /// files.
    pub fn is_like(&self, other: &Self) -> bool {
        let contents = |context: &Self| context.0.contents.load(Ordering::Relaxed);
        self.0.settings == other.0.settings && contents(self) == contents(other)
    }

    /// Returns true if connections that the other context made fit this one: it is like this one, and no
    /// other files were committed since it was made.
    pub fn fits_connections_of(&self, other: &Self) -> bool {
        self.is_like(other) && !other.0.is_renewed.load(Ordering::Relaxed)
    }

    /// Returns whether this side has a certificate for servers that ask for one.
    pub fn has_certificate(&self) -> bool {
        self.0.settings.certificate.is_some()
    }

    /// Returns the protocols that ALPN offers.
    pub fn protocols(&self) -> &[Vec<u8>] {
        &self.0.settings.common.alpn
    }

    pub(crate) fn sends_name(&self) -> bool {
        self.0.settings.sends_name
    }
}

/// Makes the configurations for rustls. Adds to `warnings`.
///
/// # Errors
/// A sentence about the setting that cannot be used.
pub(crate) fn config(
    settings: &ClientSettings,
    known: &mut Known,
    warnings: &mut Vec<Problem>,
) -> Result<ClientConfigs, Problem> {
    let (provider, builder) = settings.common.begin(warnings, ClientConfig::builder_with_provider)?;
    let [accepted, signs] = settings.common.signatures(warnings)?;
    let mut own = HashSet::new();
    let mut contents = digest::Context::new(&digest::SHA256);
    let verifier = match (&settings.verify, &settings.common.authorities) {
        (ServerVerify::None, _) => None,
        (_, None) => {
            return Err(Problem::new(
                "verify",
                "a server can be verified with a 'ca-file' only: add one, '@system-ca' for those that \
                    the system trusts, or 'verify none' where the network is trusted",
            ));
        }
        (_, Some(path)) => {
            let trusted = known.authorities(path)?;
            contents.update(&trusted.digest);
            if settings.common.revoked.is_none() {
                own = trusted.set();
            }
            let mut builder = WebPkiServerVerifier::builder_with_provider(
                Arc::new(trusted.roots.clone()),
                provider.clone(),
            );
            if let Some(path) = &settings.common.revoked {
                let revoked = known.revoked(path)?;
                revoked.0.iter().for_each(|list| contents.update(list));
                builder = builder.with_crls(revoked.0.iter().cloned()).enforce_revocation_expiration();
            }
            Some(builder.build().map_err(|error| Problem::new("ca-file", error.to_string()))?)
        }
    };
    let name = match &settings.verify {
        ServerVerify::Host(name) => Some(
            ServerName::try_from(name.clone())
                .map_err(|_| Problem::new("verifyhost", format!("expected a host name, found '{name}'")))?,
        ),
        _ => None,
    };
    let expected = match name {
        Some(name) if settings.sends_name => Expected::RequestedOr(name),
        Some(name) => Expected::Always(name),
        None if settings.sends_name => Expected::Requested,
        None => Expected::Any,
    };
    let verifier =
        Verifier { known: verifier, own, expected, accepted: Accepted(accepted), provider: provider.clone() };
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &settings.certificate {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let own = known.own(path, warnings)?.signing_by(signs.as_ref());
            own.key.cert.iter().for_each(|certificate| contents.update(certificate));
            builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(own.key.clone())))
        }
    };
    config.alpn_protocols.clone_from(&settings.common.alpn);
    if settings.common.keeps_secrets {
        config.key_log = keeper();
    }
    config.enable_sni = settings.sends_name;
    config.resumption = match settings.reuse {
        true => Resumption::store(Arc::new(Sessions(ClientSessionMemoryCache::new(NAMES * TICKETS)))),
        false => Resumption::disabled(),
    };
    let early = (settings.early_data && sends_early_data(settings, warnings)).then(|| {
        let mut config = config.clone();
        config.enable_early_data = true;
        Arc::new(config)
    });
    let contents = contents.finish();
    let contents = contents.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
    Ok(ClientConfigs { usual: Arc::new(config), early, contents })
}

/// Returns whether a server with `allow-0rtt` can be sent early data, and tells the reason if it cannot.
fn sends_early_data(settings: &ClientSettings, warnings: &mut Vec<Problem>) -> bool {
    let why = if !settings.reuse {
        "with 'no-ssl-reuse' no session is resumed"
    } else if settings.common.newest == Some(Version::V12) {
        "only TLS 1.3 has early data"
    } else {
        return true;
    };
    warnings.push(Problem::new("allow-0rtt", format!("no early data is sent: {why}")));
    false
}

impl fmt::Debug for ClientContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientContext").finish_non_exhaustive()
    }
}

/// Sessions with servers, without those that have a long ticket.
#[derive(Debug)]
struct Sessions(ClientSessionMemoryCache);

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(name, group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(name)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, session: Tls12ClientSessionValue) {
        if ticket_len(&*session) <= LONGEST_TICKET {
            self.0.set_tls12_session(name, session);
        }
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(name)
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.0.remove_tls12_session(name);
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, session: Tls13ClientSessionValue) {
        if ticket_len(&*session) <= LONGEST_TICKET {
            self.0.insert_tls13_ticket(name, session);
        }
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(name)
    }
}

/// Returns the length of a session's ticket; stops counting above [`LONGEST_TICKET`]. rustls does not expose
/// tickets, but `Debug` prints them, two digits a byte, before the field `epoch`. Returns `usize::MAX` if it
/// prints anything else.
fn ticket_len(session: &dyn fmt::Debug) -> usize {
    #[derive(Default)]
    struct Digits {
        begun: bool,
        ended: bool,
        count: usize,
    }
    impl fmt::Write for Digits {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            match text {
                "ticket" => self.begun = true,
                "epoch" => {
                    self.ended = true;
                    return Err(fmt::Error);
                }
                ": " | ", " => {}
                digits => self.count += if self.begun { digits.len() } else { 0 },
            }
            if self.count > 2 * LONGEST_TICKET { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut digits = Digits::default();
    let _ = fmt::Write::write_fmt(&mut digits, format_args!("{session:?}")); // the error ends the counting
    if digits.begun && digits.ended { digits.count.div_ceil(2) } else { usize::MAX }
}

/// The name for which a server's certificate must be valid.
#[derive(Debug)]
enum Expected {
    /// Any, since no name is asked for. HAProxy checks only the CA then.
    Any,
    /// The name that was asked for.
    Requested,
    /// The name that was asked for, or this one if none could be asked for.
    RequestedOr(ServerName<'static>),
    /// Always this one.
    Always(ServerName<'static>),
}

/// Verifies server certificates as HAProxy does.
#[derive(Debug)]
struct Verifier {
    /// `None`: every certificate is accepted.
    known: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates of 'ca-file': a server may present one of them, which is trusted by itself. Empty with a
    /// 'crl-file', since such a certificate has no issuer that could revoke it.
    own: HashSet<CertificateDer<'static>>,
    expected: Expected,
    accepted: Accepted,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        requested: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(known) = &self.known else { return Ok(ServerCertVerified::assertion()) };
        let name = match (&self.expected, requested) {
            (Expected::Always(name), _) => name,
            (Expected::RequestedOr(name), ServerName::IpAddress(_)) => name, // SNI cannot carry an address
            _ => requested,
        };
        let verified = known.verify_server_cert(certificate, chain, name, ocsp, now);
        if let Err(refused) = &verified
            && trust::by_itself(refused, certificate, &self.own)
        {
            return match self.expected {
                Expected::Any => Ok(ServerCertVerified::assertion()),
                _ => {
                    let parsed = ParsedCertificate::try_from(certificate)?;
                    verify_server_name(&parsed, name).map(|()| ServerCertVerified::assertion())
                }
            };
        }
        match (&verified, &self.expected) {
            // rustls checks the name last, so the rest is valid.
            (
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
                )),
                Expected::Any,
            ) => Ok(ServerCertVerified::assertion()),
            _ => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.accepted.check(signed.scheme)?;
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.accepted.check(signed.scheme)?;
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.accepted.of(self.provider.signature_verification_algorithms.supported_schemes())
    }
}
