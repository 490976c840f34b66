//! What both sides are made of: versions, ciphers, curves.

use crate::error::Problem;
use crate::names::{self, Version};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{ConfigBuilder, ConfigSide, SupportedProtocolVersion, WantsVerifier, WantsVersions};
use std::path::PathBuf;
use std::sync::Arc;

/// Settings that `bind` and `server` lines share; texts are as HAProxy's options have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CommonSettings {
    /// `ciphers`: of TLS 1.2.
    pub ciphers: Option<String>,
    /// `ciphersuites`: of TLS 1.3.
    pub ciphersuites: Option<String>,
    /// `curves`
    pub curves: Option<String>,
    /// The oldest version; the oldest that there is without.
    pub oldest: Option<Version>,
    /// The newest version; the newest that there is without.
    pub newest: Option<Version>,
    /// `alpn`: protocols, the preferred one first.
    pub alpn: Vec<Vec<u8>>,
    /// `ca-file`
    pub authorities: Option<PathBuf>,
    /// `crl-file`
    pub revoked: Option<PathBuf>,
    /// `tune.ssl.keylog`: connections keep their secrets, for samples that tell them.
    pub keeps_secrets: bool,
}

impl CommonSettings {
    fn versions(&self) -> Result<Vec<&'static SupportedProtocolVersion>, Problem> {
        let within = |version: &Version| {
            self.oldest.is_none_or(|oldest| *version >= oldest)
                && self.newest.is_none_or(|newest| *version <= newest)
        };
        let versions: Vec<_> =
            [Version::V13, Version::V12].into_iter().filter(within).map(Version::supported).collect();
        if versions.is_empty() {
            return Err(Problem::new("ssl-min-ver", "no version is left; there are TLSv1.2 and TLSv1.3"));
        }
        Ok(versions)
    }

    /// What both sides begin with: what encrypts, and a builder that speaks the versions with it.
    ///
    /// # Errors
    /// What cannot be used, in a sentence.
    pub(crate) fn begin<Side: ConfigSide>(
        &self,
        told: &mut Vec<Problem>,
        builder: fn(Arc<CryptoProvider>) -> ConfigBuilder<Side, WantsVersions>,
    ) -> Result<(Arc<CryptoProvider>, ConfigBuilder<Side, WantsVerifier>), Problem> {
        let provider = self.provider(told)?;
        let builder = builder(provider.clone())
            .with_protocol_versions(&self.versions()?)
            .map_err(|error| Problem::new("ssl", error.to_string()))?;
        Ok((provider, builder))
    }

    fn provider(&self, told: &mut Vec<Problem>) -> Result<Arc<CryptoProvider>, Problem> {
        let mut provider = aws_lc_rs::default_provider();
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for suite in provider.cipher_suites.drain(..) {
            if suite.tls13().is_some() { new.push(suite) } else { old.push(suite) }
        }
        if let Some(list) = &self.ciphersuites {
            new = names::ciphersuites("ciphersuites", list, told)?;
        }
        if let Some(list) = &self.ciphers {
            // TLS 1.3 goes by 'ciphersuites' alone.
            if self.oldest != Some(Version::V13) {
                old = names::ciphers("ciphers", list, told)?;
            }
        }
        // Who chooses a certificate goes by what is offered: suites of versions that are not spoken are not.
        if self.newest == Some(Version::V12) {
            new.clear();
        }
        if self.oldest == Some(Version::V13) {
            old.clear();
        }
        provider.cipher_suites = new.into_iter().chain(old).collect();
        if let Some(list) = &self.curves {
            provider.kx_groups = names::curves("curves", list, told)?;
        }
        Ok(Arc::new(provider))
    }
}
