//! A certificate with its chain and key, as files have them.

use crate::error::Problem;
use crate::files::{Section, read, sections};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::SectionKind;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// What stands in a key with a passphrase, in its older form and in the newer one.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// A certificate that a side shows.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub(crate) key: Arc<CertifiedKey>,
    /// What it is for, in lower case; wildcards as `*.example`.
    pub(crate) names: Vec<Box<str>>,
    /// What it is not for, although a wildcard of it says so.
    pub(crate) not_for: Vec<Box<str>>,
}

impl Certificate {
    /// From a file with the certificate, its chain and its key; or with the key beside it, in a file with
    /// `.key` behind its name.
    pub(crate) fn load(path: &Path, told: &mut Vec<Problem>) -> Result<Self, Problem> {
        const KEYWORD: &str = "crt";
        let (shown, problem) = (path.display(), |text: String| Problem::new(KEYWORD, text));
        let own = sections(KEYWORD, path)?;
        let chain: Vec<CertificateDer<'static>> = own
            .iter()
            .filter(|section| matches!(section.kind, SectionKind::Certificate))
            .map(|section| CertificateDer::from(section.der.to_vec()))
            .collect();
        let Some(first) = chain.first() else {
            return Err(problem(format!("'{shown}' has no certificate")));
        };
        let mut beside = Vec::new();
        if !own.iter().any(|section| private_key(section).is_some()) {
            let path = PathBuf::from(format!("{shown}.key"));
            if path.is_file() {
                beside = sections(KEYWORD, &path)?;
            }
        }
        let Some(key) = own.iter().chain(&beside).find_map(private_key) else {
            let bytes = read(KEYWORD, path)?;
            let encrypted = bytes.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED);
            let why = if encrypted { "its key has a passphrase" } else { "it has no private key" };
            return Err(problem(format!("'{shown}' cannot be used: {why}")));
        };
        let Ok((_, parsed)) = X509Certificate::from_der(first) else {
            return Err(problem(format!("the certificate of '{shown}' is malformed")));
        };
        let names = names(&parsed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let validity = parsed.validity();
        if validity.not_after.timestamp() < now {
            told.push(problem(format!("the certificate of '{shown}' expired at {}", validity.not_after)));
        } else if validity.not_before.timestamp() > now {
            told.push(problem(format!(
                "the certificate of '{shown}' is not valid before {}",
                validity.not_before
            )));
        }
        let key = certified(chain, &key).map_err(|error| {
            problem(match error {
                Error::InconsistentKeys(_) => {
                    format!("the private key of '{shown}' is not that of its certificate")
                }
                other => format!("the private key of '{shown}' cannot be used: {other}"),
            })
        })?;
        Ok(Self { key: Arc::new(key), names, not_for: Vec::new() })
    }

    pub(crate) fn is_ecdsa(&self) -> bool {
        self.key.key.algorithm() == rustls::SignatureAlgorithm::ECDSA
    }
}

/// The chain with its key. `CertifiedKey::from_der` does the same, but it drops a copy of the key that nobody
/// zeroizes.
fn certified(chain: Vec<CertificateDer<'static>>, key: &PrivateKeyDer<'_>) -> Result<CertifiedKey, Error> {
    let certified = CertifiedKey::new(chain, any_supported_type(key)?);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(error) => Err(error),
    }
}

/// The key of a section, if it has one that can be read; not a copy, since that would have to be zeroized.
fn private_key(section: &Section) -> Option<PrivateKeyDer<'_>> {
    let der = || section.der.as_slice();
    Some(match section.kind {
        SectionKind::PrivateKey => PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der())),
        SectionKind::RsaPrivateKey => PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(der())),
        SectionKind::EcPrivateKey => PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(der())),
        _ => return None,
    })
}

/// The names of hosts that a certificate is for; the common name counts where it names none.
fn names(certificate: &X509Certificate<'_>) -> Vec<Box<str>> {
    let mut names: Vec<Box<str>> = Vec::new();
    if let Ok(Some(alternative)) = certificate.subject_alternative_name() {
        for name in &alternative.value.general_names {
            if let GeneralName::DNSName(name) = name {
                names.push(name.to_ascii_lowercase().into());
            }
        }
    }
    if names.is_empty() {
        let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        names.extend(common.map(|name| name.to_ascii_lowercase().into()));
    }
    names
}
