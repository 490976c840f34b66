//! `send-proxy`: what a connection to a server begins with.

use crate::generation::{SendHeader, Server};
use crate::rules::{Facts, Moment};
use crate::session::Client;
use manylane_net::proxy_protocol::{Emit, Ends, HeaderError, Tlv, emit_v1, emit_v2, kind};

/// What is told of the client's TLS (2.2.6): that there is none, and so no certificate that could be good or not.
const NO_TLS: [u8; 5] = [0; 5];

/// The header of the PROXY protocol that tells `server` about `client`.
///
/// # Errors
/// What is to be told is longer than a header may be.
pub(crate) fn header(
    how: SendHeader,
    server: &Server,
    client: &Client,
    facts: &Facts<'_>,
    moment: Moment<'_>,
) -> Result<Vec<u8>, HeaderError> {
    let ends = client.source.zip(client.destination()).map(|(from, to)| Ends::tcp(from, to));
    let mut bytes = Vec::new();
    if !how.v2 {
        emit_v1(ends.as_ref(), &mut bytes);
        return Ok(bytes);
    }
    let mut texts: Vec<(u8, Vec<u8>)> = Vec::new();
    for (kind, format) in &server.tlvs {
        let text = facts.text(moment, format, |text| text.map(<[u8]>::to_vec));
        texts.push((*kind, text.ok_or(HeaderError::Tlv(*kind))?));
    }
    if how.authority && let Some(name) = client.greeting().and_then(|greeting| greeting.authority.as_deref()) {
        texts.push((kind::AUTHORITY, name.to_vec()));
    }
    if how.unique_id {
        facts.make_id(moment.request);
        texts.push((kind::UNIQUE_ID, facts.unique_id(<[u8]>::to_vec).unwrap_or_default()));
    }
    if how.tls {
        texts.push((kind::SSL, NO_TLS.to_vec()));
    }
    let tlvs: Vec<Tlv<'_>> = texts.iter().map(|(kind, value)| Tlv { kind: *kind, value }).collect();
    emit_v2(&Emit { ends, tlvs: &tlvs, checksum: how.checksum }, &mut bytes)?;
    Ok(bytes)
}
