//! What a connection has agreed on, and who the peer is.

use crate::names::{Version, suite_name};
use rustls::{CommonState, HandshakeKind, ProtocolVersion};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

/// What is known of a connection; nothing of it is known before the handshake is over.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    common: &'a CommonState,
    name: Option<&'a str>,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(common: &'a CommonState, name: Option<&'a str>) -> Self {
        Self { common, name }
    }

    /// The version of the protocol.
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

    /// Bits of the cipher's key.
    pub fn key_bits(self) -> Option<u32> {
        let name = self.cipher()?;
        Some(if name.contains("AES128") || name.contains("AES_128") { 128 } else { 256 })
    }

    /// The group of the exchange of keys.
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

    /// The protocol that was chosen by ALPN.
    pub fn alpn(self) -> Option<&'a [u8]> {
        self.common.alpn_protocol()
    }

    /// The name that the client asked for.
    pub fn name(self) -> Option<&'a str> {
        self.name
    }

    /// Whether the connection goes on with the session of an earlier one.
    pub fn is_resumed(self) -> bool {
        self.common.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The peer's certificate as it came.
    pub fn certificate(self) -> Option<&'a [u8]> {
        self.common.peer_certificates()?.first().map(|certificate| &**certificate)
    }

    /// The peer's certificate and those that it sent with it.
    pub fn chain(self) -> impl Iterator<Item = &'a [u8]> {
        self.common.peer_certificates().unwrap_or_default().iter().map(|certificate| &**certificate)
    }
}

/// Which name of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Whom it is for.
    Subject,
    /// Who made it.
    Issuer,
}

/// A distinguished name of the certificate `der`: as OpenSSL writes it in one line, `/C=DE/CN=a`, or the
/// `occurrence`th value of the attribute `entry`, from the end where it is negative.
pub fn distinguished_name(der: &[u8], whose: Whose, entry: Option<(&str, i64)>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let name = match whose {
        Whose::Subject => certificate.subject(),
        Whose::Issuer => certificate.issuer(),
    };
    let parts = attributes(name);
    let Some((entry, occurrence)) = entry else {
        return Some(parts.iter().map(|(key, value)| format!("/{key}={value}")).collect());
    };
    let mut values = parts.into_iter().filter(|(key, _)| key == entry).map(|(_, value)| value);
    match occurrence {
        0 | 1 => values.next(),
        n if n > 0 => values.nth(usize::try_from(n - 1).ok()?),
        n => values.rev().nth(usize::try_from(-1 - n).ok()?),
    }
}

fn attributes(name: &X509Name<'_>) -> Vec<(String, String)> {
    let registry = x509_parser::objects::oid_registry();
    let attributes = name.iter().flat_map(|relative| relative.iter());
    attributes
        .map(|attribute| {
            let kind = attribute.attr_type();
            let key = x509_parser::objects::oid2abbrev(kind, registry)
                .map_or_else(|_| kind.to_id_string(), str::to_owned);
            let value = attribute.as_str().map_or_else(
                |_| String::from_utf8_lossy(attribute.attr_value().data).into_owned(),
                str::to_owned,
            );
            (key, value)
        })
        .collect()
}

/// The serial number of the certificate `der`.
pub fn serial(der: &[u8]) -> Option<Vec<u8>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.raw_serial().to_vec())
}

/// From when and until when the certificate `der` is valid, in HAProxy's form: `YYMMDDhhmmssZ`.
pub fn validity(der: &[u8]) -> Option<[String; 2]> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    Some([validity.not_before, validity.not_after].map(|time| {
        let time = time.to_datetime();
        format!(
            "{:02}{:02}{:02}{:02}{:02}{:02}Z",
            time.year().rem_euclid(100),
            u8::from(time.month()),
            time.day(),
            time.hour(),
            time.minute(),
            time.second()
        )
    }))
}
