//! The negotiated parameters of a connection, and the peer's identity.

use crate::chain::Verified;
use crate::hello::{ClientHello, ServerHello};
use crate::keylog::Secrets;
use crate::names::{Version, suite_name};
use crate::openssl::Reason;
use rustls::sign::CertifiedKey;
use rustls::{CommonState, HandshakeKind, ProtocolVersion};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// A view of a connection's parameters; empty before the server has answered the hello.
#[derive(Clone, Copy)]
pub struct Negotiated<'a> {
    pub(crate) common: &'a CommonState,
    pub(crate) name: Option<&'a str>,
    pub(crate) shown: Option<&'a Arc<CertifiedKey>>,
    pub(crate) verified: Verified,
    pub(crate) hello: Option<&'a Arc<ClientHello>>,
    pub(crate) answer: Option<&'a ServerHello>,
    pub(crate) early: bool,
}

impl<'a> Negotiated<'a> {
    /// The protocol version.
    pub fn version(self) -> Option<Version> {
        match self.common.protocol_version()? {
            ProtocolVersion::TLSv1_2 => Some(Version::V12),
            ProtocolVersion::TLSv1_3 => Some(Version::V13),
            _ => None,
        }
    }

    /// OpenSSL's name of the cipher suite.
    pub fn cipher(self) -> Option<&'static str> {
        suite_name(self.common.negotiated_cipher_suite()?.suite())
    }

    /// Length of the cipher's key, in bits.
    pub fn key_bits(self) -> Option<u32> {
        let name = self.cipher()?;
        Some(if name.contains("AES128") || name.contains("AES_128") { 128 } else { 256 })
    }

    /// The key exchange group.
    pub fn curve(self) -> Option<&'static str> {
        use rustls::NamedGroup as Group;
        Some(match self.common.negotiated_key_exchange_group()?.name() {
            Group::X25519 => "X25519",
            Group::secp256r1 => "P-256",
            Group::secp384r1 => "P-384",
            Group::X25519MLKEM768 => "X25519MLKEM768",
            _ => return None,
        })
    }

    /// The protocol selected by ALPN.
    pub fn alpn(self) -> Option<&'a [u8]> {
        self.common.alpn_protocol()
    }

    /// The server name that the client asked for.
    pub fn name(self) -> Option<&'a str> {
        self.name
    }

    /// True if the connection resumes an earlier session.
    pub fn is_resumed(self) -> bool {
        self.common.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The peer's certificate, in DER.
    pub fn certificate(self) -> Option<&'a [u8]> {
        self.common.peer_certificates()?.first().map(|certificate| &**certificate)
    }

    /// The certificates that the peer sent behind its own, in DER, one after the other.
    fn issuers(self) -> Box<[u8]> {
        let sent = self.common.peer_certificates().and_then(|sent| sent.get(1..)).unwrap_or_default();
        sent.iter().flat_map(|certificate| certificate.iter().copied()).collect()
    }
}

/// A certificate that this side has presented, shared with its listener.
#[derive(Clone)]
pub struct OwnCertificate(Arc<CertifiedKey>);

impl OwnCertificate {
    /// The certificate in DER.
    pub fn der(&self) -> Option<&[u8]> {
        self.0.cert.first().map(|certificate| &**certificate)
    }
}

impl fmt::Debug for OwnCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnCertificate").finish_non_exhaustive()
    }
}

impl PartialEq for OwnCertificate {
    fn eq(&self, other: &Self) -> bool {
        self.der() == other.der()
    }
}

impl Eq for OwnCertificate {}

/// An owned copy of [`Negotiated`], which outlives the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The version, as HAProxy's samples have it.
    pub version: &'static str,
    /// OpenSSL's name of the cipher suite.
    pub cipher: &'static str,
    /// Length of the cipher's key, in bits.
    pub key_bits: u32,
    /// The key exchange group.
    pub curve: Option<&'static str>,
    /// The protocol selected by ALPN.
    pub alpn: Option<Box<[u8]>>,
    /// The server name that the client asked for.
    pub name: Option<Box<str>>,
    /// The connection resumes an earlier session.
    pub resumed: bool,
    /// Early data has come, and the handshake is not complete yet: anybody may have sent a copy of the data.
    pub early: Cell<bool>,
    /// Early data has come.
    pub early_received: bool,
    /// The peer's certificate, in DER.
    pub certificate: Option<Box<[u8]>>,
    /// The certificates that the peer sent behind it, in DER, one after the other.
    pub issuers: Box<[u8]>,
    /// The certificate that was presented to the client.
    pub shown: Option<OwnCertificate>,
    /// The errors of the peer's chain of certificates.
    pub verified: Verified,
    /// Why the handshake failed, if it did.
    pub failed: Option<Reason>,
    /// The secrets, if they are kept.
    pub secrets: Option<Box<Secrets>>,
    /// What is kept of the client's hello.
    pub hello: Option<Arc<ClientHello>>,
    /// The random value of the server's hello.
    pub server_random: Option<[u8; 32]>,
    /// The identifier of the session, with TLS 1.2; empty if it has none.
    pub session_id: Box<[u8]>,
}

impl From<Negotiated<'_>> for Info {
    fn from(negotiated: Negotiated<'_>) -> Self {
        Self {
            version: negotiated.version().map_or("", Version::name),
            cipher: negotiated.cipher().unwrap_or_default(),
            key_bits: negotiated.key_bits().unwrap_or_default(),
            curve: negotiated.curve(),
            alpn: negotiated.alpn().map(Box::from),
            name: negotiated.name().map(Box::from),
            resumed: negotiated.is_resumed(),
            early: Cell::new(false),
            early_received: negotiated.early,
            certificate: negotiated.certificate().map(Box::from),
            issuers: negotiated.issuers(),
            shown: negotiated.shown.cloned().map(OwnCertificate),
            verified: negotiated.verified,
            failed: None,
            secrets: None,
            hello: negotiated.hello.cloned(),
            server_random: negotiated.answer.map(|answer| answer.random),
            session_id: match negotiated.version() {
                Some(Version::V12) => negotiated.answer.map_or_else(Box::default, |own| own.session.clone()),
                _ => Box::default(), // nothing identifies it
            },
        }
    }
}
