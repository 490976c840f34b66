//! Handshakes that prove a name to an authority of ACME: `tls-alpn-01` (RFC 8737).
//!
//! # Protocol
//! 1. While an [`AlpnChallenge`] lives, each listener of the process answers a client hello that offers the
//!    protocol `acme-tls/1` alone and asks for the name of the challenge. The client gets the certificate of
//!    the challenge. The settings of the listener do not count: it may request certificates of clients, which
//!    an authority does not have.
//! 2. The connection ends with such a handshake, by [`Error::Challenge`](crate::Error::Challenge).
//! 3. Each connection reads [`COUNT`] once. Only while there are challenges does it look at its hello, and
//!    only a hello of the protocol takes the lock.

use crate::hello::accepted;
use manylane_buf::Chain;
use manylane_sync::atomic::{AtomicUsize, Ordering};
use manylane_sync::{LockClass, Mutex};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{default_provider, sign::any_supported_type};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::fmt;
use std::sync::Arc;

const PROTOCOL: &[u8] = b"acme-tls/1";

static CLASS: LockClass = LockClass::new("challenges of ACME", LockClass::LEAF);

type Published = Vec<(Box<str>, Arc<ServerConfig>)>;

manylane_sync::lazy_static! {
    /// The challenges by name. Orders alone add to it, each at most one for each of its names.
    static ALL: Mutex<Published> = Mutex::new(&CLASS, Vec::new());
}
manylane_sync::lazy_static! {
    /// The length of [`ALL`]. Relaxed: the authority connects only after a request that follows the change.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
}

/// A published challenge. Dropping it ends the publication.
pub struct AlpnChallenge(Arc<ServerConfig>);

impl AlpnChallenge {
    /// Publishes the certificate, in DER, that proves `name`, which is in lower case. `key` is its private
    /// key in PKCS #8.
    ///
    /// # Errors
    /// A clause, if rustls rejects the key.
    pub fn publish(name: &str, certificate: &[u8], key: &[u8]) -> Result<Self, String> {
        let failed = |error: rustls::Error| format!("no certificate proves '{name}': {error}");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
        let chain = vec![CertificateDer::from(certificate.to_vec())];
        let shown = CertifiedKey::new(chain, any_supported_type(&key).map_err(failed)?);
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(shown)));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let config = Arc::new(config);
        change(|all| all.push((name.into(), config.clone())));
        Ok(Self(config))
    }
}

impl Drop for AlpnChallenge {
    fn drop(&mut self) {
        change(|all| all.retain(|(_, config)| !Arc::ptr_eq(config, &self.0)));
    }
}

impl fmt::Debug for AlpnChallenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlpnChallenge").finish_non_exhaustive()
    }
}

fn change(change: impl FnOnce(&mut Published)) {
    let mut all = ALL.lock();
    change(&mut all);
    COUNT.store(all.len(), Ordering::Relaxed);
}

/// True while there are challenges.
pub(crate) fn are_published() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Returns the configuration that answers the client hello at the beginning of `received`, if it asks for a
/// challenge. A hello that is longer than what has come so far asks for none: those of authorities fit a
/// record.
pub(crate) fn config_for(received: &Chain) -> Option<Arc<ServerConfig>> {
    let accepted = accepted(received)?;
    let hello = accepted.client_hello();
    if !hello.alpn()?.eq([PROTOCOL]) {
        return None;
    }
    let name = hello.server_name()?;
    let all = ALL.lock();
    // The last one: an order of another section for the same name may have begun later.
    all.iter().rev().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, config)| config.clone())
}
