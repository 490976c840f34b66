//! Trusted CA certificates and revocation lists.

use crate::chain;
use crate::error::Problem;
use crate::files::{Section, files, sections};
use ::aws_lc_rs::digest::{self, SHA256, SHA256_OUTPUT_LEN};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::SectionKind;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, Der, TrustAnchor};
use rustls::server::VerifierBuilderError;
use rustls::{CertRevocationListError, CertificateError, RootCertStore};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Paths of the system's CA bundle: Debian, Red Hat, Alpine and SUSE.
const SYSTEM: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// The CA certificates of a file, in its order.
#[derive(Clone, Debug)]
pub(crate) struct Authorities {
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    pub(crate) roots: RootCertStore,
    /// Digest of the certificates.
    pub(crate) digest: [u8; SHA256_OUTPUT_LEN],
}

impl Default for Authorities {
    fn default() -> Self {
        let digest = [0; SHA256_OUTPUT_LEN];
        Self { certificates: Vec::new(), roots: RootCertStore::empty(), digest }
    }
}

impl Authorities {
    /// Loads a file, all files of a folder, or the system's bundle.
    pub(crate) fn load(path: &Path) -> Result<Self, Problem> {
        const KEYWORD: &str = "ca-file";
        let path = match path.to_str() {
            Some("@system-ca") => system()?,
            _ => path.to_owned(),
        };
        let (mut all, mut refused) = (Self::default(), None);
        for file in files(KEYWORD, &path)? {
            for section in sections(KEYWORD, &file)? {
                if let Some(error) = all.take(&section) {
                    refused = Some((file.clone(), error));
                }
            }
        }
        match refused {
            _ if !all.certificates.is_empty() => Ok(all),
            Some((file, error)) => Err(Problem::new(
                KEYWORD,
                format!("'{}' has no certificate that can be used: {error}", file.display()),
            )),
            None => Err(Problem::new(KEYWORD, format!("'{}' has no certificate", path.display()))),
        }
    }

    /// Adds the section if it is a certificate. Returns an error if it cannot be used.
    pub(crate) fn take(&mut self, section: &Section) -> Option<rustls::Error> {
        if !section.is_certificate() {
            return None;
        }
        let certificate = CertificateDer::from(section.der.as_slice()).into_owned();
        match self.roots.add(certificate.clone()) {
            Ok(()) => {
                let mut digest = digest::Context::new(&SHA256);
                digest.update(&self.digest);
                digest.update(&certificate);
                self.digest.copy_from_slice(digest.finish().as_ref());
                self.certificates.push(certificate);
            }
            Err(error) => return Some(error),
        }
        None
    }

    pub(crate) fn der(&self) -> Vec<Box<[u8]>> {
        self.certificates.iter().map(|der| Box::from(&**der)).collect()
    }

    /// The certificates as a set; each of them is trusted when it is presented itself.
    pub(crate) fn set(&self) -> HashSet<CertificateDer<'static>> {
        self.certificates.iter().cloned().collect()
    }
}

fn system() -> Result<PathBuf, Problem> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let known = SYSTEM.iter().map(PathBuf::from).find(|path| path.is_file());
    named.or(known).ok_or_else(|| {
        let text = format!("'@system-ca' : the system has none of {}; name a file", SYSTEM.join(", "));
        Problem::new("ca-file", text)
    })
}

/// The revocation lists of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Revoked(pub(crate) Vec<CertificateRevocationListDer<'static>>);

impl Revoked {
    pub(crate) fn load(path: &Path) -> Result<Self, Problem> {
        const KEYWORD: &str = "crl-file";
        let mut lists = Vec::new();
        for file in files(KEYWORD, path)? {
            lists.extend(Self::of(&file.display().to_string(), &sections(KEYWORD, &file)?)?.0);
        }
        if lists.is_empty() {
            return Err(Problem::new(
                KEYWORD,
                format!("'{}' has no list of revoked certificates", path.display()),
            ));
        }
        Ok(Self(newest_first(lists)))
    }

    /// Parses the revocation lists of `sections`; `shown` is the name for messages.
    pub(crate) fn of(shown: &str, sections: &[Section]) -> Result<Self, Problem> {
        let found = sections.iter().filter(|section| matches!(section.kind, SectionKind::Crl));
        let lists: Vec<_> =
            found.map(|section| CertificateRevocationListDer::from(section.der.to_vec())).collect();
        match unusable(&lists) {
            None => Ok(Self(newest_first(lists))),
            Some(why) => {
                let text = format!("'{shown}' has a list of revoked certificates that cannot be used: {why}");
                Err(Problem::new("crl-file", text))
            }
        }
    }

    pub(crate) fn der(&self) -> Vec<Box<[u8]>> {
        self.0.iter().map(|der| Box::from(&**der)).collect()
    }
}

/// Sorts lists by their dates. Verifiers believe the first list of an issuer, which may have revoked more
/// certificates since an older one that is not overdue.
fn newest_first(
    mut lists: Vec<CertificateRevocationListDer<'static>>,
) -> Vec<CertificateRevocationListDer<'static>> {
    lists.sort_by_cached_key(|list| std::cmp::Reverse(chain::issued(list)));
    lists
}

/// Why a verifier cannot use one of the lists.
fn unusable(lists: &[CertificateRevocationListDer<'static>]) -> Option<&'static str> {
    // rustls parses lists when it builds a verifier, and a verifier needs a CA; any one will do.
    let nobody = TrustAnchor {
        subject: Der::from_slice(&[]),
        subject_public_key_info: Der::from_slice(&[]),
        name_constraints: None,
    };
    let roots = Arc::new(RootCertStore { roots: vec![nobody] });
    let provider = Arc::new(aws_lc_rs::default_provider());
    let built =
        WebPkiServerVerifier::builder_with_provider(roots, provider).with_crls(lists.iter().cloned()).build();
    let error = match built {
        Err(VerifierBuilderError::InvalidCrl(error)) => error,
        _ => return None,
    };
    Some(match error {
        CertRevocationListError::UnsupportedCrlVersion => "it is not of version 2",
        CertRevocationListError::UnsupportedCriticalExtension => {
            "it has a critical extension that is unknown"
        }
        CertRevocationListError::UnsupportedDeltaCrl => "it holds only what is new since another list",
        CertRevocationListError::UnsupportedIndirectCrl => "it is about certificates of other issuers, too",
        _ => "it is malformed",
    })
}

/// True if a refused certificate is nevertheless acceptable: it is one of the trusted certificates, and
/// rustls refused only its position in a chain, not its dates or purposes.
pub(crate) fn by_itself(
    refused: &rustls::Error,
    certificate: &CertificateDer<'_>,
    trusted: &HashSet<CertificateDer<'static>>,
) -> bool {
    use CertificateError as Error;
    // rustls reports an authority's certificate in the place of an end entity's as `Other`.
    let misplaced =
        matches!(refused, rustls::Error::InvalidCertificate(Error::UnknownIssuer | Error::Other(_)));
    misplaced && trusted.contains(certificate)
}
