//! Whom certificates are trusted from.

use crate::error::Problem;
use crate::files::{files, sections};
use rustls::pki_types::pem::SectionKind;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::{CertificateError, RootCertStore};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where systems keep the authorities that they trust: Debian, Red Hat, Alpine and SUSE.
const SYSTEM: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// Who is trusted.
pub(crate) struct Trusted {
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) certificates: HashSet<CertificateDer<'static>>,
}

/// The authorities of a file, of all files of a folder, or of the system.
pub(crate) fn authorities(path: &Path) -> Result<Trusted, Problem> {
    const KEYWORD: &str = "ca-file";
    let path = match path.to_str() {
        Some("@system-ca") => system()?,
        _ => path.to_owned(),
    };
    let (mut roots, mut certificates) = (RootCertStore::empty(), HashSet::new());
    let mut refused = None;
    for file in files(KEYWORD, &path)? {
        for section in sections(KEYWORD, &file)? {
            if !matches!(section.kind, SectionKind::Certificate) {
                continue;
            }
            let certificate = CertificateDer::from(section.der.as_slice()).into_owned();
            match roots.add(certificate.clone()) {
                Ok(()) => drop(certificates.insert(certificate)),
                Err(error) => refused = Some((file.clone(), error)),
            }
        }
    }
    match refused {
        _ if !roots.is_empty() => Ok(Trusted { roots: Arc::new(roots), certificates }),
        Some((file, error)) => Err(Problem::new(
            KEYWORD,
            format!("'{}' has no authority that is of use: {error}", file.display()),
        )),
        None => Err(Problem::new(KEYWORD, format!("'{}' has no certificate", path.display()))),
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

/// The lists of revoked certificates of a file.
pub(crate) fn revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, Problem> {
    const KEYWORD: &str = "crl-file";
    let mut lists = Vec::new();
    for file in files(KEYWORD, path)? {
        let found =
            sections(KEYWORD, &file)?.into_iter().filter(|section| matches!(section.kind, SectionKind::Crl));
        lists.extend(found.map(|section| CertificateRevocationListDer::from(section.der.to_vec())));
    }
    if lists.is_empty() {
        return Err(Problem::new(
            KEYWORD,
            format!("'{}' has no list of revoked certificates", path.display()),
        ));
    }
    Ok(lists)
}

/// Whether a certificate that was not verified is good all the same: it is one of those that are trusted, and
/// nothing but its place in a chain speaks against it. Its dates and purposes hold.
pub(crate) fn by_itself<T>(
    verified: &Result<T, rustls::Error>,
    certificate: &CertificateDer<'_>,
    trusted: &HashSet<CertificateDer<'static>>,
) -> bool {
    use CertificateError as Error;
    // Among the others is that the certificate is an authority's.
    let misplaced =
        matches!(verified, Err(rustls::Error::InvalidCertificate(Error::UnknownIssuer | Error::Other(_))));
    misplaced && trusted.contains(certificate)
}
