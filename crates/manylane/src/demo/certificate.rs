//! A certificate for the https port of the demo, signed by an authority that is made for this run.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How long both certificates are valid.
const LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Hosts that the certificate is for.
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A folder with the files, which only this user may enter. Dropping it removes both.
pub(super) struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes the authority and the certificate. The authority's key is in no file, so it signs nothing else.
    pub(super) fn make() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("manylane-demo-{}", std::process::id()));
        let shown = folder.display().to_string();
        let failed =
            |error: io::Error| format!("no certificate can be written to '{shown}': {error}; set TMPDIR");
        let [authority, own] = pems().map_err(|error| format!("no certificate can be made: {error}"))?;
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        let certificates = Self { folder };
        fs::write(certificates.authority(), authority).map_err(failed)?;
        fs::write(certificates.own(), own).map_err(failed)?;
        Ok(certificates)
    }

    /// The file with the authority, for clients.
    pub(super) fn authority(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// The file with the certificate and its key.
    pub(super) fn own(&self) -> PathBuf {
        self.folder.join("localhost.pem")
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the authority, and the certificate with its key.
fn pems() -> Result<[String; 2], rcgen::Error> {
    let dated = |mut params: CertificateParams, name: &str| {
        params.distinguished_name.push(DnType::CommonName, name);
        (params.not_before, params.not_after) = (SystemTime::now().into(), (SystemTime::now() + LIFE).into());
        params
    };
    let mut params = dated(CertificateParams::default(), "Manylane demo authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let params = dated(CertificateParams::new(HOSTS.map(String::from))?, "Manylane demo");
    let key = KeyPair::generate()?;
    let own = params.signed_by(&key, &authority)?;
    Ok([authority.pem(), format!("{}{}", own.pem(), key.serialize_pem())])
}
