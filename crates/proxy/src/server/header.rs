//! `send-proxy`: the header that a connection to a server begins with.

use crate::client::Client;
use manylane_lanes::{HeadersBeforeTls, say};
use manylane_logs::Level;
use manylane_net::proxy_protocol::{
    EndpointPair, HeaderContents, HeaderError, LONGEST_UNIQUE_ID, LONGEST_V2, Tlv, emit_v1, emit_v2_fitting,
    kind,
};
use manylane_plan::generation::{Backend, SendHeader, Server};
use manylane_rules::{EvalContext, EvalPhase};
use manylane_sync::atomic::Ordering;
use manylane_tls::{Info, OwnCertificate};

/// Returns the TLS field of the header (PROXY protocol, 2.2.6) with the facts of the client's TLS.
fn of_tls(how: SendHeader, info: Option<&Info>) -> Vec<u8> {
    const TLS: u8 = 1;
    const CERTIFICATE: u8 = 2;
    const CERTIFICATE_OF_SESSION: u8 = 4;
    let mut bytes = vec![0; 5];
    let Some(info) = info else { return bytes };
    let certificate = info.certificate.as_deref();
    bytes[0] = match (certificate, info.resumed) {
        (None, _) => TLS,
        (Some(_), true) => TLS | CERTIFICATE_OF_SESSION,
        (Some(_), false) => TLS | CERTIFICATE | CERTIFICATE_OF_SESSION,
    };
    // A certificate whose errors the bind line ignores is not verified.
    bytes[1..].copy_from_slice(&info.verified.result.to_be_bytes());
    let mut put = |kind: u8, value: &[u8]| {
        if let Ok(length) = u16::try_from(value.len()) {
            bytes.push(kind);
            bytes.extend(length.to_be_bytes());
            bytes.extend(value);
        }
    };
    put(kind::SSL_VERSION, info.version.as_bytes());
    if let Some(name) = certificate.filter(|_| how.name).and_then(manylane_expr::common_name) {
        put(kind::SSL_CN, &name);
    }
    let shown = info.shown.as_ref().filter(|_| how.key || how.signature).and_then(OwnCertificate::der);
    if let Some((key, signature)) = shown.and_then(manylane_expr::algorithms) {
        if let Some(key) = key.filter(|_| how.key) {
            put(kind::SSL_KEY_ALG, key.as_bytes());
        }
        if how.signature {
            put(kind::SSL_SIG_ALG, signature.as_bytes());
        }
    }
    if how.cipher {
        put(kind::SSL_CIPHER, info.cipher.as_bytes());
    }
    bytes
}

/// Returns the PROXY header that describes `client` to `server`. Fields that do not fit are left out, which
/// is logged once for each server.
///
/// # Errors
/// As [`emit_v2_fitting`].
pub(crate) fn header(
    how: SendHeader,
    server: &Server,
    client: &Client,
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
) -> Result<Vec<u8>, HeaderError> {
    let ends = client.source.zip(client.destination()).map(|(from, to)| EndpointPair::tcp(from, to));
    let mut bytes = Vec::new();
    if !how.v2 {
        emit_v1(ends.as_ref(), &mut bytes);
        return Ok(bytes);
    }
    let (mut texts, mut too_long): (Vec<(u8, Vec<u8>)>, Option<u8>) = (Vec::new(), None);
    for (kind, format) in &server.tlvs {
        match eval.text(phase, format, |text| text.map(<[u8]>::to_vec)) {
            Some(text) => texts.push((*kind, text)),
            // longer than the lane's scratch memory, and so longer than any header
            None => too_long = Some(*kind),
        }
    }
    let tls = client.tls().map(|info| &**info);
    if let Some(protocol) = tls.and_then(|info| info.alpn.as_deref()) {
        texts.push((kind::ALPN, protocol.to_vec()));
    }
    if how.authority {
        let received = client.greeting().and_then(|greeting| greeting.authority());
        let wanted = tls.and_then(|info| info.name.as_deref()).map(str::as_bytes);
        texts.extend(wanted.or(received).map(|name| (kind::AUTHORITY, name.to_vec())));
    }
    if how.unique_id {
        eval.make_id(phase.request);
        texts.push((kind::UNIQUE_ID, eval.unique_id(<[u8]>::to_vec).unwrap_or_default()));
    }
    if how.tls {
        texts.push((kind::SSL, of_tls(how, tls)));
    }
    let tlvs: Vec<Tlv<'_>> = texts.iter().map(|(kind, value)| Tlv { kind: *kind, value }).collect();
    let left_out =
        emit_v2_fitting(&HeaderContents { ends, tlvs: &tlvs, checksum: how.checksum }, &mut bytes)?;
    if let Some(kind) = too_long.or(left_out.first().copied())
        && let Some(backend) = phase.backend
        && !server.header_cut.load(Ordering::Relaxed)
        && !server.header_cut.swap(true, Ordering::Relaxed)
    {
        let text = format!(
            "Server {}/{}: field {kind:#04x} does not fit a header of the PROXY protocol and is left out; \
                such headers have at most {LONGEST_V2} bytes, and \
             unique ids {LONGEST_UNIQUE_ID}.",
            backend.name, server.name
        );
        say(eval.local, backend, Level::Warning, &text);
    }
    Ok(bytes)
}

/// Makes the headers of those servers of `backend` that get one before TLS. It is not known yet which server
/// a new connection goes to, so there is one for all servers that send the same.
pub(crate) fn headers_before_tls(
    backend: &Backend,
    client: &Client,
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
) -> HeadersBeforeTls {
    let mut headers = HeadersBeforeTls::default();
    for server in backend.servers.iter().filter(|server| server.tls.is_some()) {
        let Some(how) = server.header else { continue };
        if server.tlvs.is_empty() && headers.of(server).is_some() {
            continue;
        }
        let phase = EvalPhase { server: Some(server), ..phase };
        let Ok(bytes) = header(how, server, client, eval, phase) else { continue };
        if server.tlvs.is_empty() {
            headers.alike.push((how, bytes));
        } else {
            headers.own.push((server.index, bytes));
        }
    }
    headers
}
