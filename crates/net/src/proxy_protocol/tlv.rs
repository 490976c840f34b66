//! TLVs: the data of a version 2 header behind its addresses, each with type, length and value (2.2).

use super::{HeaderError, LONGEST_UNIQUE_ID};

/// Types of TLVs.
pub mod kind {
    /// Application protocol that TLS negotiated.
    pub const ALPN: u8 = 0x01;
    /// Host name that the client asked for.
    pub const AUTHORITY: u8 = 0x02;
    /// Checksum of the header. This module checks and writes it; no caller needs it.
    pub const CRC32C: u8 = 0x03;
    /// Padding.
    pub const NOOP: u8 = 0x04;
    /// Identifier of the connection.
    pub const UNIQUE_ID: u8 = 0x05;
    /// Properties of TLS; see [`Ssl`](super::Ssl).
    pub const SSL: u8 = 0x20;
    /// Within [`SSL`]: version of TLS.
    pub const SSL_VERSION: u8 = 0x21;
    /// Within [`SSL`]: common name of the client's certificate.
    pub const SSL_CN: u8 = 0x22;
    /// Within [`SSL`]: cipher.
    pub const SSL_CIPHER: u8 = 0x23;
    /// Within [`SSL`]: signature algorithm of the certificate.
    pub const SSL_SIG_ALG: u8 = 0x24;
    /// Within [`SSL`]: key algorithm of the certificate.
    pub const SSL_KEY_ALG: u8 = 0x25;
    /// Network namespace.
    pub const NETNS: u8 = 0x30;
}

/// Size of a TLV's type and length, in bytes.
pub(super) const HEAD: usize = 3;

/// Size of [`kind::SSL`]'s value before the TLVs within it, in bytes.
const SSL_HEAD: usize = 5;

/// One TLV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// Type; see [`kind`].
    pub kind: u8,
    /// Value.
    pub value: &'a [u8],
}

impl Tlv<'_> {
    /// Returns whether its value has the length and the form of its type.
    fn is_good(&self) -> bool {
        match self.kind {
            kind::CRC32C => self.value.len() == 4,
            kind::UNIQUE_ID => self.value.len() <= LONGEST_UNIQUE_ID,
            kind::SSL => self.value.get(SSL_HEAD..).is_some_and(|within| Tlvs(within).is_whole()),
            _ => true,
        }
    }

    /// Returns whether a caller may add this TLV to a header. The header's own code adds the checksum.
    pub(super) fn is_sayable(&self) -> bool {
        self.kind != kind::CRC32C && self.is_good()
    }
}

/// Successive TLVs, checked: each fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    /// Checks that `bytes` are whole, valid TLVs.
    pub(super) fn check(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let all = Self(bytes);
        let mut rest = all;
        while !rest.0.is_empty() {
            let kind = rest.0[0];
            let tlv = rest.next().ok_or(HeaderError::Tlv(kind))?;
            if !tlv.is_good() {
                return Err(HeaderError::Tlv(kind));
            }
        }
        Ok(all)
    }

    /// Returns the bytes of all TLVs.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the TLVs of `bytes`, which [`bytes`](Self::bytes) returned.
    pub fn kept(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn is_whole(mut self) -> bool {
        while self.next().is_some() {}
        self.0.is_empty()
    }

    /// Returns the value of the first TLV of type `kind`.
    pub fn value_of(mut self, kind: u8) -> Option<&'a [u8]> {
        self.find(|tlv| tlv.kind == kind).map(|tlv| tlv.value)
    }

    /// Returns the facts about TLS.
    pub fn ssl(self) -> Option<Ssl<'a>> {
        let (head, within) = self.value_of(kind::SSL)?.split_first_chunk::<SSL_HEAD>()?;
        let [client, verify @ ..] = *head;
        Some(Ssl { client, verify: u32::from_be_bytes(verify), within: Self(within) })
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Tlv<'a>;

    fn next(&mut self) -> Option<Tlv<'a>> {
        let (&[kind, high, low], rest) = self.0.split_first_chunk::<HEAD>()?;
        let (value, rest) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
        self.0 = rest;
        Some(Tlv { kind, value })
    }
}

/// The sender's facts about the client's TLS (2.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ssl<'a> {
    /// Bits: 1, the client uses TLS; 2, it sent a certificate on this connection; 4, in this session.
    pub client: u8,
    /// 0 if the client sent a certificate that is valid.
    pub verify: u32,
    /// TLVs with the version, the certificate's name and so on.
    pub within: Tlvs<'a>,
}
