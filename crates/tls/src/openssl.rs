//! OpenSSL's error numbers and messages, which users of HAProxy look for in logs.

use crate::error::Error;
use crate::names::Version;
use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};

/// OpenSSL's library number for TLS errors.
const LIBRARY: u32 = 20 << 23;

/// Added to the number of an alert from the peer.
const ALERTS: u32 = 1000;

/// The alert after a wrong Finished message.
const DECRYPT_ERROR: u8 = 51;

/// Why a handshake failed, in OpenSSL's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    /// The error code; 0 if the peer made no error.
    pub code: u32,
    /// The message of the error.
    pub text: &'static str,
    /// OpenSSL's result of verifying the peer's certificate; 0 for success.
    pub verify: u32,
}

const fn reason(code: u32, text: &'static str) -> Reason {
    Reason { code: LIBRARY | code, text, verify: 0 }
}

impl Reason {
    /// The reason for an error. `begin` are the first bytes that the peer sent, `alert` is the number of the
    /// alert that was sent because of the error, if it was sent in clear.
    pub(crate) fn of(error: &Error, begin: &[u8], version: Option<Version>, alert: Option<u8>) -> Self {
        use rustls::Error as Tls;
        let error = match error {
            Error::Tls(error) => error,
            Error::Ended => return reason(294, "unexpected eof while reading"),
            Error::Flood => return reason(152, "excessive message size"),
            Error::Memory(_) | Error::Busy => return reason(524_303, "malloc failure"),
            Error::Challenge => return Self::default(),
        };
        match error {
            Tls::AlertReceived(alert) => of_alert(*alert),
            Tls::InvalidCertificate(error) => {
                Self { verify: of_certificate(error), ..reason(134, "certificate verify failed") }
            }
            Tls::NoCertificatesPresented => reason(199, "peer did not return a certificate"),
            Tls::NoApplicationProtocol => reason(235, "no application protocol"),
            // rustls has one error for a record that cannot be decrypted and for a wrong Finished message.
            // The alert tells them apart with TLS 1.2, which sends it in clear.
            Tls::DecryptError if alert == Some(DECRYPT_ERROR) => reason(149, "digest check failed"),
            Tls::DecryptError => reason(281, "decryption failed or bad record mac"),
            Tls::PeerSentOversizedRecord => reason(150, "packet length too long"),
            Tls::InappropriateMessage { .. } | Tls::InappropriateHandshakeMessage { .. } => {
                reason(244, "unexpected message")
            }
            Tls::InvalidMessage(InvalidMessage::UnknownProtocolVersion) => {
                reason(267, "wrong version number")
            }
            Tls::InvalidMessage(InvalidMessage::InvalidContentType) => match begin {
                b"GET " | b"POST" | b"HEAD" | b"PUT " => reason(156, "http request"),
                b"CONN" => reason(155, "https proxy request"),
                _ => reason(267, "wrong version number"),
            },
            Tls::InvalidMessage(_) => reason(159, "length mismatch"),
            Tls::PeerIncompatible(what) => match what {
                PeerIncompatible::NoCipherSuitesInCommon => reason(193, "no shared cipher"),
                PeerIncompatible::NoKxGroupsInCommon if version == Some(Version::V13) => {
                    reason(101, "no suitable key share")
                }
                // In TLS 1.2, the cipher suite includes the key exchange.
                PeerIncompatible::NoKxGroupsInCommon => reason(193, "no shared cipher"),
                PeerIncompatible::NoSignatureSchemesInCommon
                | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon => {
                    reason(118, "no suitable signature algorithm")
                }
                PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => {
                    reason(258, "unsupported protocol")
                }
                _ => reason(110, "bad extension"),
            },
            // No certificate was selected; HAProxy's callback fails then.
            Tls::General(_) => reason(234, "callback failed"),
            _ => reason(110, "bad extension"),
        }
    }
}

fn of_alert(alert: AlertDescription) -> Reason {
    use AlertDescription as Alert;
    let text = match alert {
        Alert::UnexpectedMessage => "ssl/tls alert unexpected message",
        Alert::BadRecordMac => "ssl/tls alert bad record mac",
        Alert::RecordOverflow => "tlsv1 alert record overflow",
        Alert::HandshakeFailure => "ssl/tls alert handshake failure",
        Alert::NoCertificate => "ssl/tls alert no certificate",
        Alert::BadCertificate => "ssl/tls alert bad certificate",
        Alert::UnsupportedCertificate => "ssl/tls alert unsupported certificate",
        Alert::CertificateRevoked => "ssl/tls alert certificate revoked",
        Alert::CertificateExpired => "ssl/tls alert certificate expired",
        Alert::CertificateUnknown => "ssl/tls alert certificate unknown",
        Alert::IllegalParameter => "ssl/tls alert illegal parameter",
        Alert::UnknownCA => "tlsv1 alert unknown ca",
        Alert::AccessDenied => "tlsv1 alert access denied",
        Alert::DecodeError => "tlsv1 alert decode error",
        Alert::DecryptError => "tlsv1 alert decrypt error",
        Alert::ProtocolVersion => "tlsv1 alert protocol version",
        Alert::InsufficientSecurity => "tlsv1 alert insufficient security",
        Alert::InternalError => "tlsv1 alert internal error",
        Alert::UserCanceled => "tlsv1 alert user cancelled",
        Alert::NoRenegotiation => "tlsv1 alert no renegotiation",
        Alert::MissingExtension => "tlsv13 alert missing extension",
        Alert::UnsupportedExtension => "tlsv1 unsupported extension",
        Alert::UnrecognisedName => "tlsv1 unrecognized name",
        Alert::BadCertificateStatusResponse => "tlsv1 bad certificate status response",
        Alert::UnknownPSKIdentity => "tlsv1 alert unknown psk identity",
        Alert::CertificateRequired => "tlsv13 alert certificate required",
        Alert::NoApplicationProtocol => "tlsv1 alert no application protocol",
        _ => "unknown alert type",
    };
    reason(ALERTS + u32::from(u8::from(alert)), text)
}

pub(crate) fn of_certificate(error: &CertificateError) -> u32 {
    use CertificateError as Error;
    match error {
        Error::UnknownIssuer => 20,
        Error::NotValidYet | Error::NotValidYetContext { .. } => 9,
        Error::Expired | Error::ExpiredContext { .. } => 10,
        Error::UnknownRevocationStatus => 3,
        Error::BadSignature => 7,
        Error::ExpiredRevocationList | Error::ExpiredRevocationListContext { .. } => 12,
        Error::Revoked => 23,
        Error::InvalidPurpose | Error::InvalidPurposeContext { .. } => 26,
        Error::UnhandledCriticalExtension => 34,
        Error::NotValidForName | Error::NotValidForNameContext { .. } => 62,
        _ => 1,
    }
}
