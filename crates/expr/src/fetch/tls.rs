//! TLS of both connections: parameters and certificates.

use super::cipher_names::cipher_name;
use super::{Fetch, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::env::{Env, TlsInfo};
use crate::error::Error;
use crate::eval_points::EvalPoints;
use crate::sample::{Absent, FetchResult, Type, Value, found};
use crate::scratch::{Scratch, Writer};
use sha1::{Digest, Sha1};
use std::fmt::Write as _;
use std::ops::Range;
use x509_parser::asn1_rs::Any;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::revocation_list::RevokedCertificate;
use x509_parser::time::ASN1Time;
use x509_parser::x509::{AlgorithmIdentifier, AttributeTypeAndValue, X509Name};

/// The connection, and whose certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
    /// The client connection with the certificate that this side sent.
    Own,
}

/// The property to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Used,
    Version,
    Cipher,
    KeyBits,
    Curve,
    Alpn,
    Name,
    HasName,
    IsResumed,
    HasEarly,
    EarlyReceived,
    HasCertificate,
    /// Result of the verification of the certificate.
    Verified,
    /// The first error of the certificate itself.
    CertificateError,
    /// The first error of its issuers.
    AuthorityError,
    /// Which issuer that is.
    AuthorityDepth,
    /// Error of the handshake.
    Error,
    ErrorText,
    Der,
    Sha1,
    Serial,
    Subject(Dn),
    Issuer(Dn),
    NotBefore,
    NotAfter,
    CertificateVersion,
    SignatureAlgorithm,
    KeyAlgorithm,
    /// The secret with this label, binary.
    Secret(&'static str),
    /// The secret with this label, as hexadecimal digits.
    SecretText(&'static str),
    /// The list of the client's hello with this label; with `true`, without GREASE (RFC 8701).
    List(&'static str, bool),
    /// The list of cipher suites as hexadecimal digits.
    CipherText(bool),
    /// Their names.
    CipherNames,
    CiphersHash,
    HelloVersion,
    ServerRandom,
    SessionId,
    /// The certificates that the peer has sent.
    Chain,
    /// The names in the certificate.
    AlternativeNames,
}

/// Form of a distinguished name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dn {
    /// An attribute by OpenSSL's short name; `None` means all.
    entry: Option<Box<[u8]>>,
    /// Number of the occurrence; negative numbers count from the end.
    occurrence: i64,
    /// True for the form of RFC 2253, false for OpenSSL's one-line form.
    rfc2253: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls(Side, Part);

/// A row of a fetch without arguments.
macro_rules! plain {
    ($name:literal, $out:ident, $points:ident, $help:literal, $side:ident, $part:ident) => {
        row($name, &[], 0, Type::$out, EvalPoints::$points, $help, |_| {
            Ok(Fetch::Tls(Tls(Side::$side, Part::$part)))
        })
    };
}

const KEY: &str = "the master key of TLS 1.2, with 'tune.ssl.keylog'";
const RANDOM: &str = "what the client chose at random, with 'tune.ssl.keylog'";
const SECRET: &str = "a secret of TLS 1.3, with 'tune.ssl.keylog'";

/// Rows for the secrets of a side. Both sides allow TLS 1.3 secrets at the same points, as in HAProxy;
/// without a server connection they have no value.
macro_rules! secrets {
    ($side:ident, $points:ident, $session:literal, $random:literal, [$($name:literal $label:literal),*]) => {
        &[
            row($session, &[], 0, Type::Bin, EvalPoints::$points, KEY, |_| {
                Ok(Fetch::Tls(Tls(Side::$side, Part::Secret("CLIENT_RANDOM"))))
            }),
            row($random, &[], 0, Type::Bin, EvalPoints::$points, RANDOM, |_| {
                Ok(Fetch::Tls(Tls(Side::$side, Part::Secret("client random"))))
            }),
            $(row($name, &[], 0, Type::Str, EvalPoints::HANDSHAKEN, SECRET, |_| {
                Ok(Fetch::Tls(Tls(Side::$side, Part::SecretText($label))))
            })),*
        ]
    };
}

pub(super) const CLIENT_SECRETS: &[Row] = secrets!(
    Client,
    HANDSHAKEN,
    "ssl_fc_session_key",
    "ssl_fc_client_random",
    [
        "ssl_fc_client_early_traffic_secret" "CLIENT_EARLY_TRAFFIC_SECRET",
        "ssl_fc_client_handshake_traffic_secret" "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "ssl_fc_client_traffic_secret_0" "CLIENT_TRAFFIC_SECRET_0",
        "ssl_fc_exporter_secret" "EXPORTER_SECRET",
        "ssl_fc_server_handshake_traffic_secret" "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "ssl_fc_server_traffic_secret_0" "SERVER_TRAFFIC_SECRET_0"
    ]
);

pub(super) const SERVER_SECRETS: &[Row] = secrets!(
    Server,
    ANSWERED,
    "ssl_bc_session_key",
    "ssl_bc_client_random",
    [
        "ssl_bc_client_early_traffic_secret" "CLIENT_EARLY_TRAFFIC_SECRET",
        "ssl_bc_client_handshake_traffic_secret" "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "ssl_bc_client_traffic_secret_0" "CLIENT_TRAFFIC_SECRET_0",
        "ssl_bc_exporter_secret" "EXPORTER_SECRET",
        "ssl_bc_server_handshake_traffic_secret" "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "ssl_bc_server_traffic_secret_0" "SERVER_TRAFFIC_SECRET_0"
    ]
);

/// Rows for the subject and the issuer.
macro_rules! names {
    ($subject:literal, $issuer:literal, $points:ident, $side:ident) => {
        [
            row(
                $subject,
                &[Str, Int, Str],
                0,
                Type::Str,
                EvalPoints::$points,
                "the subject of the peer's certificate: an attribute, or all",
                |args| Ok(Fetch::Tls(Tls(Side::$side, Part::Subject(dn(args)?)))),
            ),
            row(
                $issuer,
                &[Str, Int, Str],
                0,
                Type::Str,
                EvalPoints::$points,
                "the issuer of the peer's certificate: an attribute, or all",
                |args| Ok(Fetch::Tls(Tls(Side::$side, Part::Issuer(dn(args)?)))),
            ),
        ]
    };
}

fn dn(args: &Args<'_, '_>) -> Result<Dn, Error> {
    let text = |at| args.given(at).filter(|text| !text.is_empty());
    let rfc2253 = match text(2) {
        None => false,
        Some(b"rfc2253") => true,
        Some(other) => {
            let shown = String::from_utf8_lossy(other).into_owned();
            return Err(args.error(2, format!("expects 'rfc2253' or nothing, found '{shown}'")));
        }
    };
    let occurrence = args.int_in(1, i64::from(i32::MIN)..=i64::from(i32::MAX), 0)?;
    Ok(Dn { entry: text(0).map(Box::from), occurrence, rfc2253 })
}

fn without_grease(args: &Args<'_, '_>) -> Result<bool, Error> {
    Ok(args.int_in(0, 0..=1, 0)? == 1)
}

macro_rules! captured {
    () => {
        ", with 'tune.ssl.capture-buffer-size'"
    };
}

/// A row of a list of the client's hello; with 1 it leaves GREASE out.
macro_rules! list {
    ($name:literal, $args:expr, $out:ident, $help:literal, $part:expr) => {
        row($name, $args, 0, Type::$out, EvalPoints::HANDSHAKEN, concat!($help, captured!()), |args| {
            let part: fn(bool) -> Part = $part;
            Ok(Fetch::Tls(Tls(Side::Client, part(without_grease(args)?))))
        })
    };
}

/// Rows of what the client's hello offers. The labels are those of `manylane_tls::ClientHello`.
pub(super) const HELLO: &[Row] = &[
    list!("ssl_fc_cipherlist_bin", &[Int], Bin, "the cipher suites that the client offered", |bare| {
        Part::List("cipher suites", bare)
    }),
    list!("ssl_fc_cipherlist_hex", &[Int], Bin, "these as hexadecimal digits", Part::CipherText),
    list!("ssl_fc_cipherlist_str", &[Int], Str, "their names, by OpenSSL", |_| Part::CipherNames),
    list!("ssl_fc_cipherlist_xxh", &[], Int, "their XXH64", |_| Part::CiphersHash),
    list!("ssl_fc_ecformats_bin", &[], Bin, "the formats of points that the client offered", |_| Part::List(
        "point formats",
        false
    )),
    list!("ssl_fc_eclist_bin", &[Int], Bin, "the groups that the client offered", |bare| Part::List(
        "groups", bare
    )),
    list!("ssl_fc_extlist_bin", &[Int], Bin, "the types of the extensions that the client sent", |bare| {
        Part::List("extensions", bare)
    }),
    list!("ssl_fc_protocol_hello_id", &[], Int, "the version in the client's hello", |_| Part::HelloVersion),
    list!("ssl_fc_sigalgs_bin", &[Int], Bin, "the signature algorithms that the client offered", |bare| {
        Part::List("signature algorithms", bare)
    }),
    list!("ssl_fc_supported_versions_bin", &[Int], Bin, "the versions that the client offered", |bare| {
        Part::List("versions", bare)
    }),
];

const NAMES: [Row; 6] = {
    let [a, b] = names!("ssl_c_s_dn", "ssl_c_i_dn", HANDSHAKEN, Client);
    let [c, d] = names!("ssl_s_s_dn", "ssl_s_i_dn", HANDSHAKEN, Server);
    let [e, f] = names!("ssl_f_s_dn", "ssl_f_i_dn", HANDSHAKEN, Own);
    [a, b, c, d, e, f]
};

pub(super) const ROWS: &[Row] = &[
    plain!("ssl_bc", Bool, ANSWERED, "whether the connection to the server is encrypted", Server, Used),
    plain!("ssl_bc_alg_keysize", Int, ANSWERED, "bits of the key of its cipher", Server, KeyBits),
    plain!("ssl_bc_alpn", Str, ANSWERED, "the protocol agreed on with the server", Server, Alpn),
    plain!("ssl_bc_cipher", Str, ANSWERED, "its cipher, by OpenSSL's name", Server, Cipher),
    plain!("ssl_bc_curve", Str, ANSWERED, "its group for the exchange of keys", Server, Curve),
    plain!("ssl_bc_err", Int, ANSWERED, "OpenSSL's number of why its handshake failed", Server, Error),
    plain!(
        "ssl_bc_err_str",
        Str,
        ANSWERED,
        "why its handshake failed, in OpenSSL's words",
        Server,
        ErrorText
    ),
    plain!("ssl_bc_is_resumed", Bool, ANSWERED, "whether it resumed a session", Server, IsResumed),
    plain!("ssl_bc_protocol", Str, ANSWERED, "its version, such as TLSv1.3", Server, Version),
    plain!("ssl_bc_server_random", Bin, ANSWERED, "what the server chose at random", Server, ServerRandom),
    plain!("ssl_bc_session_id", Bin, ANSWERED, "which session it has, with TLS 1.2", Server, SessionId),
    plain!("ssl_bc_sni", Str, ANSWERED, "the name that the server was asked for", Server, Name),
    plain!("ssl_bc_use_keysize", Int, ANSWERED, "bits of the key that are used", Server, KeyBits),
    plain!(
        "ssl_c_ca_err",
        Int,
        HANDSHAKEN,
        "OpenSSL's number of the first error of the client's issuers",
        Client,
        AuthorityError
    ),
    plain!(
        "ssl_c_ca_err_depth",
        Int,
        HANDSHAKEN,
        "which issuer has it; the first is 1",
        Client,
        AuthorityDepth
    ),
    plain!("ssl_c_chain_der", Bin, HANDSHAKEN, "what the client sent behind its certificate", Client, Chain),
    plain!("ssl_c_der", Bin, HANDSHAKEN, "the client's certificate", Client, Der),
    plain!("ssl_c_err", Int, HANDSHAKEN, "OpenSSL's number of its first error", Client, CertificateError),
    plain!("ssl_c_key_alg", Str, HANDSHAKEN, "the kind of the client's key", Client, KeyAlgorithm),
    plain!("ssl_c_notafter", Str, HANDSHAKEN, "until when its certificate is valid", Client, NotAfter),
    plain!("ssl_c_notbefore", Str, HANDSHAKEN, "from when its certificate is valid", Client, NotBefore),
    plain!("ssl_c_san", Str, HANDSHAKEN, "the names in its certificate", Client, AlternativeNames),
    plain!("ssl_c_serial", Bin, HANDSHAKEN, "the number of its certificate", Client, Serial),
    plain!("ssl_c_sha1", Bin, HANDSHAKEN, "the SHA-1 of its certificate", Client, Sha1),
    plain!("ssl_c_sig_alg", Str, HANDSHAKEN, "how its certificate is signed", Client, SignatureAlgorithm),
    plain!("ssl_c_used", Bool, HANDSHAKEN, "whether the client showed a certificate", Client, HasCertificate),
    plain!(
        "ssl_c_verify",
        Int,
        HANDSHAKEN,
        "OpenSSL's number of the last error of its chain",
        Client,
        Verified
    ),
    plain!("ssl_c_version", Int, HANDSHAKEN, "the version of its certificate", Client, CertificateVersion),
    plain!("ssl_f_der", Bin, HANDSHAKEN, "the certificate that the client was shown", Own, Der),
    plain!("ssl_f_key_alg", Str, HANDSHAKEN, "the kind of its key", Own, KeyAlgorithm),
    plain!("ssl_f_notafter", Str, HANDSHAKEN, "until when it is valid", Own, NotAfter),
    plain!("ssl_f_notbefore", Str, HANDSHAKEN, "from when it is valid", Own, NotBefore),
    plain!("ssl_f_serial", Bin, HANDSHAKEN, "its number", Own, Serial),
    plain!("ssl_f_sha1", Bin, HANDSHAKEN, "its SHA-1", Own, Sha1),
    plain!("ssl_f_sig_alg", Str, HANDSHAKEN, "how it is signed", Own, SignatureAlgorithm),
    plain!("ssl_f_version", Int, HANDSHAKEN, "its version", Own, CertificateVersion),
    plain!("ssl_fc", Bool, HANDSHAKEN, "whether the client's connection is encrypted", Client, Used),
    plain!("ssl_fc_alg_keysize", Int, HANDSHAKEN, "bits of the key of its cipher", Client, KeyBits),
    plain!("ssl_fc_alpn", Str, HANDSHAKEN, "the protocol agreed on with the client", Client, Alpn),
    plain!("ssl_fc_cipher", Str, HANDSHAKEN, "its cipher, by OpenSSL's name", Client, Cipher),
    plain!("ssl_fc_curve", Str, HANDSHAKEN, "its group for the exchange of keys", Client, Curve),
    plain!("ssl_fc_err", Int, HANDSHAKEN, "OpenSSL's number of why its handshake failed", Client, Error),
    plain!("ssl_fc_early_rcvd", Bool, HANDSHAKEN, "whether early data has come", Client, EarlyReceived),
    plain!(
        "ssl_fc_err_str",
        Str,
        HANDSHAKEN,
        "why its handshake failed, in OpenSSL's words",
        Client,
        ErrorText
    ),
    plain!(
        "ssl_fc_has_crt",
        Bool,
        HANDSHAKEN,
        "whether there is a client's certificate",
        Client,
        HasCertificate
    ),
    plain!(
        "ssl_fc_has_early",
        Bool,
        HANDSHAKEN,
        "whether early data has come and the handshake is not complete",
        Client,
        HasEarly
    ),
    plain!("ssl_fc_has_sni", Bool, HANDSHAKEN, "whether the client asked for a name", Client, HasName),
    plain!("ssl_fc_is_resumed", Bool, HANDSHAKEN, "whether it resumed a session", Client, IsResumed),
    plain!("ssl_fc_protocol", Str, HANDSHAKEN, "its version, such as TLSv1.3", Client, Version),
    plain!("ssl_fc_server_random", Bin, HANDSHAKEN, "what this side chose at random", Client, ServerRandom),
    plain!("ssl_fc_session_id", Bin, HANDSHAKEN, "which session it has, with TLS 1.2", Client, SessionId),
    plain!("ssl_fc_sni", Str, HANDSHAKEN, "the name that the client asked for", Client, Name),
    plain!("ssl_fc_use_keysize", Int, HANDSHAKEN, "bits of the key that are used", Client, KeyBits),
    plain!("ssl_s_chain_der", Bin, HANDSHAKEN, "the certificates that the server sent", Server, Chain),
    plain!("ssl_s_der", Bin, HANDSHAKEN, "the server's certificate", Server, Der),
    plain!("ssl_s_key_alg", Str, HANDSHAKEN, "the kind of the server's key", Server, KeyAlgorithm),
    plain!("ssl_s_notafter", Str, HANDSHAKEN, "until when its certificate is valid", Server, NotAfter),
    plain!("ssl_s_notbefore", Str, HANDSHAKEN, "from when its certificate is valid", Server, NotBefore),
    plain!("ssl_s_serial", Bin, HANDSHAKEN, "the number of its certificate", Server, Serial),
    plain!("ssl_s_sha1", Bin, HANDSHAKEN, "the SHA-1 of its certificate", Server, Sha1),
    plain!("ssl_s_sig_alg", Str, HANDSHAKEN, "how its certificate is signed", Server, SignatureAlgorithm),
    plain!("ssl_s_version", Int, HANDSHAKEN, "the version of its certificate", Server, CertificateVersion),
    NAMES[0],
    NAMES[1],
    NAMES[2],
    NAMES[3],
    NAMES[4],
    NAMES[5],
];

fn some<T>(value: Option<T>, make: impl FnOnce(T) -> Value<'static>) -> FetchResult<'static> {
    value.map_or(Err(Absent::Never), |value| found(make(value)))
}

impl Tls {
    /// True if it uses the connection to the server.
    pub(super) fn reads_link(&self) -> bool {
        self.0 == Side::Server
    }

    /// True if the value is known from the ClientHello, before the handshake ends.
    pub(super) fn is_of_hello(&self) -> bool {
        self.0 == Side::Client && matches!(self.1, Part::Used | Part::Name | Part::HasName)
    }

    pub(super) fn eval<'x>(&'x self, env: &Env<'x>, scratch: &mut Scratch<'x>) -> FetchResult<'x> {
        let tls = match self.0 {
            Side::Client => env.client.tls,
            Side::Own => env.client.tls.map(|tls| TlsInfo { certificate: tls.shown, ..tls }),
            Side::Server => env.server.tls,
        };
        let text = |text: Option<&'x [u8]>| text.map_or(Err(Absent::Never), |text| found(Value::Str(text)));
        let Some(tls) = tls else {
            let never = matches!(
                self.1,
                Part::Used | Part::HasName | Part::IsResumed | Part::HasCertificate | Part::EarlyReceived
            );
            return if never { found(Value::Bool(false)) } else { Err(Absent::Never) };
        };
        let bool = |value| found(Value::Bool(value));
        match &self.1 {
            Part::Used => bool(true),
            Part::Version => text(Some(tls.version.as_bytes())),
            Part::Cipher => text(Some(tls.cipher.as_bytes())),
            Part::KeyBits => found(Value::Int(tls.key_bits)),
            Part::Curve => text(tls.curve.map(str::as_bytes)),
            Part::Alpn => text(tls.alpn),
            Part::Name => text(tls.name),
            Part::HasName => bool(tls.name.is_some()),
            Part::IsResumed => bool(tls.resumed),
            Part::HasEarly => bool(tls.early),
            Part::EarlyReceived => bool(tls.early_received),
            Part::HasCertificate => bool(tls.certificate.is_some()),
            // A failed handshake has no result of the verification.
            Part::Verified if tls.error != 0 => Err(Absent::Never),
            Part::Verified => found(Value::Int(tls.verify.into())),
            Part::CertificateError => found(Value::Int(tls.certificate_error.into())),
            Part::AuthorityError => found(Value::Int(tls.authority_error.into())),
            Part::AuthorityDepth => found(Value::Int(tls.authority_depth.into())),
            Part::Error => found(Value::Int(tls.error.into())),
            Part::ErrorText if tls.error == 0 => Err(Absent::Never),
            Part::ErrorText => text(scratch.build(|out| {
                out.print(format_args!("error:{:08X}:SSL routines::{}", tls.error, tls.error_text))
            })),
            Part::Secret(label) => binary(kept(tls.secrets, label)),
            Part::SecretText(label) => match kept(tls.secrets, label) {
                None => Err(Absent::Never),
                Some(key) => text(
                    scratch
                        .build(|out| key.iter().try_for_each(|byte| out.print(format_args!("{byte:02x}")))),
                ),
            },
            Part::List(label, bare) => binary(list(&tls, label, *bare, scratch)),
            Part::CipherText(bare) => binary(list(&tls, "cipher suites", *bare, scratch).and_then(|list| {
                scratch.build(|out| list.iter().try_for_each(|byte| out.print(format_args!("{byte:02X}"))))
            })),
            Part::CipherNames => text(
                kept(tls.hello, "cipher suites").and_then(|list| scratch.build(|out| put_ciphers(list, out))),
            ),
            Part::CiphersHash => number(kept(tls.hello, "hash of cipher suites")),
            Part::HelloVersion => number(kept(tls.hello, "version")),
            Part::ServerRandom => binary(tls.server_random.map(|random| &random[..])),
            Part::SessionId => binary(Some(tls.session_id).filter(|id| !id.is_empty())),
            // OpenSSL counts the peer's own certificate as part of its chain on a client only.
            Part::Chain if self.0 == Side::Client => binary(Some(tls.issuers).filter(|der| !der.is_empty())),
            Part::Chain => binary(tls.certificate.and_then(|own| {
                scratch.build(|out| {
                    out.put(own)?;
                    out.put(tls.issuers)
                })
            })),
            Part::Der => tls.certificate.map_or(Err(Absent::Never), |der| found(Value::Bin(der))),
            part => of_certificate(part, &tls, scratch),
        }
    }
}

/// The bytes with this label.
fn kept<'x>(all: &'x [(&'static str, Box<[u8]>)], label: &str) -> Option<&'x [u8]> {
    all.iter().find(|(own, _)| *own == label).map(|(_, bytes)| &**bytes)
}

fn binary(bytes: Option<&[u8]>) -> FetchResult<'_> {
    bytes.map_or(Err(Absent::Never), |bytes| found(Value::Bin(bytes)))
}

/// A number from its bytes, the highest first.
fn number(bytes: Option<&[u8]>) -> FetchResult<'static> {
    some(bytes.map(|bytes| bytes.iter().fold(0, |n, byte| n << 8 | i64::from(*byte))), Value::Int)
}

/// A list of the client's hello, which has two bytes for each value; without GREASE if it is to be `bare`.
fn list<'x>(tls: &TlsInfo<'x>, label: &str, bare: bool, scratch: &mut Scratch<'x>) -> Option<&'x [u8]> {
    let list = kept(tls.hello, label)?;
    if !bare {
        return Some(list);
    }
    let is_grease = |value: &[u8]| matches!(value, [a, b] if a == b && a & 0xf == 0xa);
    scratch
        .build(|out| list.chunks(2).filter(|value| !is_grease(value)).try_for_each(|value| out.put(value)))
        .filter(|list| !list.is_empty())
}

/// Writes OpenSSL's names of cipher suites, separated by commas.
fn put_ciphers(list: &[u8], out: &mut Writer<'_>) -> Option<()> {
    for (at, id) in list.as_chunks::<2>().0.iter().enumerate() {
        if at > 0 {
            out.put(b",")?;
        }
        match u16::from_be_bytes(*id) {
            id if let Some(name) = cipher_name(id) => out.put(name.as_bytes())?,
            id => out.print(format_args!("UNKNOWN({id:04x})"))?,
        }
    }
    Some(())
}

/// Writes the names of a certificate in OpenSSL's form, separated by commas.
fn put_alternative_names(certificate: &X509Certificate<'_>, out: &mut Writer<'_>) -> Option<()> {
    let names = certificate.subject_alternative_name().ok()??;
    for (at, name) in names.value.general_names.iter().enumerate() {
        if at > 0 {
            out.put(b", ")?;
        }
        match name {
            GeneralName::DNSName(name) => out.print(format_args!("DNS:{name}"))?,
            GeneralName::RFC822Name(name) => out.print(format_args!("email:{name}"))?,
            GeneralName::URI(name) => out.print(format_args!("URI:{name}"))?,
            GeneralName::RegisteredID(oid) => out.print(format_args!("Registered ID:{oid}"))?,
            GeneralName::IPAddress([a, b, c, d]) => out.print(format_args!("IP Address:{a}.{b}.{c}.{d}"))?,
            GeneralName::IPAddress(bytes) if bytes.len() == 16 => {
                out.put(b"IP Address")?;
                for pair in bytes.as_chunks::<2>().0 {
                    out.print(format_args!(":{:X}", u16::from_be_bytes(*pair)))?;
                }
            }
            GeneralName::IPAddress(_) => out.put(b"IP Address:<invalid>")?,
            GeneralName::DirectoryName(name) => {
                out.put(b"DirName:")?;
                for (at, (key, value)) in parts_of(name).into_iter().enumerate() {
                    out.print(format_args!(
                        "{}{} = ",
                        if at > 0 { ", " } else { "" },
                        named(&key, ATTRIBUTES)
                    ))?;
                    out.put(&value)?;
                }
            }
            GeneralName::OtherName(..) => out.put(b"othername:<unsupported>")?,
            GeneralName::X400Address(_) => out.put(b"X400Name:<unsupported>")?,
            GeneralName::EDIPartyName(_) => out.put(b"EdiPartyName:<unsupported>")?,
            GeneralName::Invalid(..) => return None,
        }
    }
    Some(())
}

/// A property of the certificate.
fn of_certificate<'x>(part: &Part, tls: &TlsInfo<'x>, scratch: &mut Scratch<'x>) -> FetchResult<'x> {
    let Some(der) = tls.certificate else { return Err(Absent::Never) };
    if *part == Part::Sha1 {
        let digest = scratch.copy(&Sha1::digest(der));
        return digest.map_or(Err(Absent::Never), |digest| found(Value::Bin(digest)));
    }
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Err(Absent::Never) };
    let mut text = |write: &dyn Fn(&mut Writer<'_>) -> Option<()>| {
        scratch.build(write).map_or(Err(Absent::Never), |text| found(Value::Str(text)))
    };
    match part {
        Part::Serial => {
            let serial = scratch.copy(positive(certificate.raw_serial()));
            serial.map_or(Err(Absent::Never), |serial| found(Value::Bin(serial)))
        }
        Part::Subject(how) => text(&|out| put_name(certificate.subject(), how, out)),
        Part::Issuer(how) => text(&|out| put_name(certificate.issuer(), how, out)),
        Part::NotBefore => text(&|out| put_time(certificate.validity().not_before, out)),
        Part::NotAfter => text(&|out| put_time(certificate.validity().not_after, out)),
        Part::AlternativeNames => text(&|out| put_alternative_names(&certificate, out)),
        Part::CertificateVersion => some(Some(i64::from(certificate.version().0) + 1), Value::Int),
        Part::SignatureAlgorithm => {
            let oid = certificate.signature_algorithm.algorithm.to_id_string();
            text(&|out| out.put(named(&oid, ALGORITHMS).as_bytes()))
        }
        _ => {
            let oid = certificate.public_key().algorithm.algorithm.to_id_string();
            text(&|out| out.put(named(&oid, ALGORITHMS).as_bytes()))
        }
    }
}

/// Writes `YYMMDDhhmmssZ`.
fn put_time(time: ASN1Time, out: &mut Writer<'_>) -> Option<()> {
    let time = time.to_datetime();
    out.print(format_args!(
        "{:02}{:02}{:02}{:02}{:02}{:02}Z",
        time.year().rem_euclid(100),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    ))
}

/// The last common name in the subject of the certificate `der`.
pub fn common_name(der: &[u8]) -> Option<Vec<u8>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let name = certificate.subject().iter_common_name().last()?;
    Some(name.as_str().map_or(name.attr_value().data, str::as_bytes).to_vec())
}

/// The algorithms of the certificate `der`: type and size of its key, unless the key has one size only, and
/// OpenSSL's name of the signature.
pub fn algorithms(der: &[u8]) -> Option<(Option<String>, String)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let signature = certificate.signature_algorithm.algorithm.to_id_string();
    Some((sized_key(&certificate), named(&signature, ALGORITHMS).to_owned()))
}

/// Type and size of a certificate's key, if keys of its type have several sizes.
fn sized_key(certificate: &X509Certificate<'_>) -> Option<String> {
    let public = certificate.public_key();
    match public.parsed() {
        Ok(PublicKey::RSA(key)) => Some(format!("RSA{}", bits_of(key.modulus))),
        Ok(PublicKey::EC(key)) => {
            Some(format!("EC{}", curve_bits(&public.algorithm).unwrap_or(key.key_size())))
        }
        _ => None,
    }
}

/// Contents of a certificate in OpenSSL's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateText {
    /// Serial number.
    pub serial: String,
    /// Start of the validity.
    pub not_before: String,
    /// End of the validity.
    pub not_after: String,
    /// Host names and addresses (subject alternative names).
    pub names: Vec<String>,
    /// Type and size of the key.
    pub key: String,
    /// SHA-1 fingerprint.
    pub sha1: String,
    /// Subject.
    pub subject: String,
    /// Issuer.
    pub issuer: String,
}

impl CertificateText {
    /// Parses the certificate `der`; `None` if it is invalid.
    pub fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut names = Vec::new();
        if let Ok(Some(alternative)) = certificate.subject_alternative_name() {
            for name in &alternative.value.general_names {
                match name {
                    GeneralName::DNSName(name) => names.push(format!("DNS:{name}")),
                    GeneralName::IPAddress([a, b, c, d]) => {
                        names.push(format!("IP Address:{a}.{b}.{c}.{d}"));
                    }
                    GeneralName::RFC822Name(name) => names.push(format!("email:{name}")),
                    GeneralName::URI(name) => names.push(format!("URI:{name}")),
                    _ => {}
                }
            }
        }
        let kind = certificate.public_key().algorithm.algorithm.to_id_string();
        let key = sized_key(&certificate).unwrap_or_else(|| named(&kind, ALGORITHMS).to_owned());
        Some(Self {
            serial: hex(positive(certificate.raw_serial())),
            not_before: date_of(certificate.validity().not_before),
            not_after: date_of(certificate.validity().not_after),
            names,
            key,
            sha1: hex(&Sha1::digest(der)),
            subject: one_line(certificate.subject()),
            issuer: one_line(certificate.issuer()),
        })
    }
}

/// Number of significant bits of a big-endian number.
fn bits_of(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let first = number.get(zeros).map_or(0, |byte| byte.leading_zeros() as usize);
    (number.len() - zeros) * 8 - first
}

/// Size of the key's curve in bits. The point itself only shows whole bytes.
fn curve_bits(algorithm: &AlgorithmIdentifier<'_>) -> Option<usize> {
    let curve = algorithm.parameters.as_ref()?.as_oid().ok()?.to_id_string();
    CURVES.iter().find(|(known, _)| *known == curve).map(|(_, bits)| *bits)
}

/// NIST curves and their sizes in bits.
const CURVES: &[(&str, usize)] = &[
    ("1.2.840.10045.3.1.1", 192),
    ("1.3.132.0.33", 224),
    ("1.2.840.10045.3.1.7", 256),
    ("1.3.132.0.34", 384),
    ("1.3.132.0.35", 521),
];

/// Contents of a certificate revocation list in OpenSSL's format, but for its entries: a list may have
/// millions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokedText {
    /// Version of the format.
    pub version: u32,
    /// Algorithm of the signature.
    pub signature: String,
    /// Issuer.
    pub issuer: String,
    /// Time of this update.
    pub last_update: String,
    /// Time of the next update.
    pub next_update: String,
    /// The entries in the list.
    entries: Range<usize>,
}

impl RevokedText {
    /// Parses the list `der` up to its entries; `None` if it is invalid.
    pub fn of(der: &[u8]) -> Option<Self> {
        let (behind_list, list) = Any::from_der(der).ok()?;
        let (behind, signed) = Any::from_der(list.data).ok()?;
        let (_, signature) = AlgorithmIdentifier::from_der(behind).ok()?;
        let (version, rest) = match signed.data.first() {
            Some(2) => x509_parser::der_parser::der::parse_der_u32(signed.data)
                .ok()
                .map(|(rest, version)| (version.saturating_add(1), rest))?,
            _ => (1, signed.data),
        };
        let (rest, _) = AlgorithmIdentifier::from_der(rest).ok()?;
        let (rest, issuer) = X509Name::from_der(rest).ok()?;
        let (rest, last_update) = ASN1Time::from_der(rest).ok()?;
        // UTCTime or GeneralizedTime.
        let (rest, next_update) = match rest.first() {
            Some(0x17 | 0x18) => ASN1Time::from_der(rest).ok().map(|(rest, time)| (rest, Some(time)))?,
            _ => (rest, None),
        };
        // All of these end where the signed part ends.
        let end = der.len() - behind_list.len() - behind.len();
        let entries = match rest.first() {
            Some(0x30) => {
                let (behind, entries) = Any::from_der(rest).ok()?;
                let end = end - behind.len();
                end - entries.data.len()..end
            }
            _ => end..end,
        };
        Some(Self {
            version,
            signature: named(&signature.algorithm.to_id_string(), ALGORITHMS).to_owned(),
            issuer: one_line(&issuer),
            last_update: date_of(last_update),
            next_update: next_update.map_or_else(|| "NONE".to_owned(), date_of),
            entries,
        })
    }

    /// Whether all entries were written.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends the next entries of the list `der`, at most `count`, in two lines each: serial number and time
    /// of revocation.
    pub fn put_next(&mut self, der: &[u8], count: usize, text: &mut String) {
        for _ in 0..count {
            let Some(rest) = der.get(self.entries.clone()).filter(|rest| !rest.is_empty()) else { return };
            let Ok((behind, entry)) = RevokedCertificate::from_der(rest) else {
                self.entries.start = self.entries.end;
                return;
            };
            self.entries.start = self.entries.end - behind.len();
            text.push_str("    Serial Number: ");
            put_hex(text, positive(entry.raw_serial()));
            text.push_str("\n        Revocation Date: ");
            put_date(text, entry.revocation_date);
            text.push('\n');
        }
    }
}

/// Removes the leading zero byte that keeps a DER integer positive.
fn positive(serial: &[u8]) -> &[u8] {
    match serial {
        [0, rest @ ..] if !rest.is_empty() => rest,
        serial => serial,
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    put_hex(&mut text, bytes);
    text
}

fn put_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "{byte:02X}");
    }
}

fn date_of(time: ASN1Time) -> String {
    let mut text = String::new();
    put_date(&mut text, time);
    text
}

/// Writes `Aug 13 17:42:24 2020 GMT`.
fn put_date(text: &mut String, time: ASN1Time) {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let time = time.to_datetime();
    let month = MONTHS[usize::from(u8::from(time.month())) - 1];
    let _ = write!(
        text,
        "{month} {:>2} {:02}:{:02}:{:02} {} GMT",
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.year()
    );
}

fn one_line(name: &X509Name<'_>) -> String {
    let part = |(key, value): (String, Vec<u8>)| {
        format!("/{}={}", named(&key, ATTRIBUTES), String::from_utf8_lossy(&value))
    };
    parts_of(name).into_iter().map(part).collect()
}

/// OpenSSL's short names of attributes.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "GN"),
    ("2.5.4.46", "dnQualifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// OpenSSL's names of algorithms of signatures and keys.
const ALGORITHMS: &[(&str, &str)] = &[
    ("1.2.840.113549.1.1.1", "rsaEncryption"),
    ("1.2.840.113549.1.1.5", "RSA-SHA1"),
    ("1.2.840.113549.1.1.10", "RSASSA-PSS"),
    ("1.2.840.113549.1.1.11", "RSA-SHA256"),
    ("1.2.840.113549.1.1.12", "RSA-SHA384"),
    ("1.2.840.113549.1.1.13", "RSA-SHA512"),
    ("1.2.840.10045.2.1", "id-ecPublicKey"),
    ("1.2.840.10045.4.3.2", "ecdsa-with-SHA256"),
    ("1.2.840.10045.4.3.3", "ecdsa-with-SHA384"),
    ("1.2.840.10045.4.3.4", "ecdsa-with-SHA512"),
    ("1.3.101.112", "ED25519"),
    ("1.3.101.113", "ED448"),
];

/// The name of an OID, or the OID itself if it has none.
fn named<'a>(oid: &'a str, names: &'static [(&str, &str)]) -> &'a str {
    names.iter().find(|(known, _)| *known == oid).map_or(oid, |(_, name)| name)
}

/// The attributes of a name: OIDs and values.
fn parts_of(name: &X509Name<'_>) -> Vec<(String, Vec<u8>)> {
    let relative = name.iter().flat_map(|relative| relative.iter());
    let part = |part: &AttributeTypeAndValue<'_>| {
        let value = part.as_str().map_or(part.attr_value().data, str::as_bytes).to_vec();
        (part.attr_type().to_id_string(), value)
    };
    relative.map(part).collect()
}

fn put_name(name: &X509Name<'_>, how: &Dn, out: &mut Writer<'_>) -> Option<()> {
    let parts = parts_of(name);
    let key = |part: &(String, Vec<u8>)| named(&part.0, ATTRIBUTES).as_bytes().to_vec();
    if let Some(entry) = &how.entry {
        let mut values = parts.iter().filter(|part| key(part) == **entry).map(|part| &part.1);
        let value = match how.occurrence {
            0 | 1 => values.next(),
            n if n > 0 => values.nth(usize::try_from(n - 1).ok()?),
            n => values.rev().nth(usize::try_from(-1 - n).ok()?),
        };
        return out.put(value?);
    }
    if how.rfc2253 {
        for (number, part) in parts.iter().rev().enumerate() {
            if number > 0 {
                out.put(b",")?;
            }
            out.put(&key(part))?;
            out.put(b"=")?;
            for byte in &part.1 {
                if b",+\"\\<>;".contains(byte) {
                    out.put(b"\\")?;
                }
                out.put(std::slice::from_ref(byte))?;
            }
        }
        return Some(());
    }
    for part in &parts {
        out.put(b"/")?;
        out.put(&key(part))?;
        out.put(b"=")?;
        out.put(&part.1)?;
    }
    Some(())
}
