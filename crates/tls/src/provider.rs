//! Settings that both roles share: versions, ciphers, curves.

use crate::error::Problem;
use crate::names::{self, Version};
use crate::sigalgs;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{
    ConfigBuilder, ConfigSide, SignatureScheme, SupportedProtocolVersion, WantsVerifier, WantsVersions,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Settings that `bind` and `server` lines share. Strings have the format of HAProxy's options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CommonSettings {
    /// `ciphers`: for TLS 1.2.
    pub ciphers: Option<String>,
    /// `ciphersuites`: for TLS 1.3.
    pub ciphersuites: Option<String>,
    /// `curves`
    pub curves: Option<String>,
    /// The oldest version; `None` for the oldest supported one.
    pub oldest: Option<Version>,
    /// The newest version; `None` for the newest supported one.
    pub newest: Option<Version>,
    /// `sigalgs`: algorithms that sign handshakes of the server's side.
    pub sigalgs: Option<String>,
    /// `client-sigalgs`: algorithms that sign with certificates of clients.
    pub client_sigalgs: Option<String>,
    /// `alpn`: protocols, the preferred one first.
    pub alpn: Vec<Vec<u8>>,
    /// `ca-file`
    pub authorities: Option<PathBuf>,
    /// `crl-file`
    pub revoked: Option<PathBuf>,
    /// The sizes of the records that are sent.
    pub records: RecordSizes,
    /// `tune.ssl.keylog`: connections keep their secrets for samples.
    pub keeps_secrets: bool,
    /// `tune.ssl.capture-buffer-size`: most bytes that are kept of a client's hello; 0 keeps none.
    pub hello_bytes: usize,
}

/// Sizes of the records that a connection sends.
///
/// A peer can use data once the whole record has come. So a connection may begin with small records, of
/// which each fits into a segment or two, and goes on with large ones, which cost less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordSizes {
    /// Most bytes of data in a record.
    most: u16,
    /// Most bytes of data in the first records.
    first: u16,
    /// Time without data to send after which records are as the first again; zero for never.
    idle: Duration,
}

impl RecordSizes {
    /// Largest content of a record, as TLS allows.
    pub(crate) const LARGEST: usize = 1 << 14;

    /// Number of bytes that go in small records. HAProxy goes over to large ones when it has read three full
    /// buffers one after another, which are as many bytes with its usual size of buffers.
    const SMALL_BYTES: usize = 3 * Self::LARGEST;

    /// Makes the sizes of `tune.ssl.hard-maxrecord`, `tune.ssl.maxrecord` and `tune.idletimer`, where 0
    /// stands for no limit.
    pub fn new(most: u32, first: u32, idle: Duration) -> Self {
        let at_most = |limit: u32, most: u16| if limit == 0 { most } else { limit.min(most.into()) as u16 };
        let most = at_most(most, Self::LARGEST as u16);
        Self { most, first: at_most(first, most), idle }
    }
}

impl Default for RecordSizes {
    fn default() -> Self {
        Self::new(0, 0, Duration::ZERO)
    }
}

/// The records that one connection sends.
#[derive(Debug)]
pub(crate) struct SentRecords {
    sizes: RecordSizes,
    /// Bytes that went in small records.
    small: usize,
    /// When the last data was sent.
    at: Duration,
}

impl SentRecords {
    pub(crate) fn new(sizes: RecordSizes) -> Self {
        Self { sizes, small: 0, at: Duration::ZERO }
    }

    /// Takes note that data is sent at this time.
    pub(crate) fn begin(&mut self, now: Duration) {
        let idle = self.sizes.idle;
        if !idle.is_zero() && now.saturating_sub(self.at) >= idle {
            self.small = 0;
        }
        self.at = now;
    }

    /// Returns the number of bytes that the next record may have.
    pub(crate) fn most(&self) -> usize {
        let is_small = self.small < RecordSizes::SMALL_BYTES;
        if is_small { self.sizes.first } else { self.sizes.most }.into()
    }

    /// Takes note of a record with so many bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.small = self.small.saturating_add(bytes);
    }
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

    /// Starts a rustls configuration: the provider, and a builder for the versions. Adds to `warnings`.
    ///
    /// # Errors
    /// A sentence about the setting that cannot be used.
    pub(crate) fn begin<Side: ConfigSide>(
        &self,
        warnings: &mut Vec<Problem>,
        builder: fn(Arc<CryptoProvider>) -> ConfigBuilder<Side, WantsVersions>,
    ) -> Result<(Arc<CryptoProvider>, ConfigBuilder<Side, WantsVerifier>), Problem> {
        let provider = self.provider(warnings)?;
        let builder = builder(provider.clone())
            .with_protocol_versions(&self.versions()?)
            .map_err(|error| Problem::new("ssl", error.to_string()))?;
        Ok((provider, builder))
    }

    /// The algorithms that sign for the server, and those that sign for the client.
    pub(crate) fn signatures(
        &self,
        warnings: &mut Vec<Problem>,
    ) -> Result<[Option<Arc<[SignatureScheme]>>; 2], Problem> {
        let mut of = |keyword, list: &Option<String>| {
            list.as_ref().map(|list| sigalgs::schemes(keyword, list, warnings)).transpose()
        };
        Ok([of("sigalgs", &self.sigalgs)?, of("client-sigalgs", &self.client_sigalgs)?])
    }

    fn provider(&self, warnings: &mut Vec<Problem>) -> Result<Arc<CryptoProvider>, Problem> {
        let mut provider = aws_lc_rs::default_provider();
        // When a process asks for random bytes for the first time, the library measures jitter for about
        // 20 ms. No lane serves from this thread, so no client waits here; in the first handshake, all
        // clients of a lane would. A generator that fails here fails in each handshake, too, and is reported
        // there.
        let _ = provider.secure_random.fill(&mut [0]);
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for suite in provider.cipher_suites.drain(..) {
            if suite.tls13().is_some() { new.push(suite) } else { old.push(suite) }
        }
        if let Some(list) = &self.ciphersuites {
            new = names::ciphersuites("ciphersuites", list, warnings)?;
        }
        if let Some(list) = &self.ciphers {
            // The TLS 1.3 suites come from 'ciphersuites' only.
            if self.oldest != Some(Version::V13) {
                old = names::ciphers("ciphers", list, warnings)?;
            }
        }
        // The certificate resolver compares the client's suites with these, so suites of disabled versions
        // are removed.
        if self.newest == Some(Version::V12) {
            new.clear();
        }
        if self.oldest == Some(Version::V13) {
            old.clear();
        }
        provider.cipher_suites = new.into_iter().chain(old).collect();
        if let Some(list) = &self.curves {
            provider.kx_groups = names::curves("curves", list, warnings)?;
        }
        Ok(Arc::new(provider))
    }
}
