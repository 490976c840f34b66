//! Encodes heads as fields (RFC 9113, 8.2 and 8.3).

use crate::error::SendError;
use crate::hpack::{Encoder, Indexing};
use manylane_http::{Field, Form, Head, Known, List, Target, without_user};

/// Buffers that a head is written to.
pub(crate) struct Sent<'a> {
    encoder: &'a mut Encoder,
    /// The header block.
    block: &'a mut Vec<u8>,
    /// Buffer for names in lower case.
    name: &'a mut Vec<u8>,
}

/// Smallest cookie, in bytes, that may be indexed. An attacker who can add fields to requests and see their
/// sizes could guess shorter ones (RFC 7541, 7.1.3).
const SHORT_COOKIE: usize = 20;

/// Number of bytes that the peer counts for each field in addition to its name and value.
pub(crate) const FIELD: usize = 32;

impl<'a> Sent<'a> {
    pub(crate) fn new(encoder: &'a mut Encoder, block: &'a mut Vec<u8>, name: &'a mut Vec<u8>) -> Self {
        Self { encoder, block, name }
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8], indexing: Indexing) {
        self.encoder.field(name, value, indexing, self.block);
    }

    fn fields(&mut self, head: &Head, split_cookies: bool) {
        for field in head.fields().filter(goes_on) {
            self.name.clear();
            self.name.extend(field.name.iter().map(u8::to_ascii_lowercase));
            match field.known {
                Known::COOKIE if split_cookies => {
                    for piece in field.value.split(|&byte| byte == b';') {
                        let piece = piece.trim_ascii();
                        if !piece.is_empty() {
                            let indexing = indexing(&Field { value: piece, ..field });
                            self.encoder.field(self.name, piece, indexing, self.block);
                        }
                    }
                }
                Known::TE => self.encoder.field(b"te", b"trailers", Indexing::Incremental, self.block),
                _ => {
                    let value = manylane_http::syntax::trim(field.value);
                    self.encoder.field(self.name, value, indexing(&field), self.block);
                }
            }
        }
    }
}

/// Returns whether a field is sent in HTTP/2. `Host` is sent as the authority.
///
/// Every name is a token, as HTTP/2 requires: parsers refuse other names, a lenient one drops their fields,
/// and edits refuse them.
fn goes_on(field: &Field<'_>) -> bool {
    match field.known {
        Known::HOST
        | Known::CONNECTION
        | Known::KEEP_ALIVE
        | Known::PROXY_CONNECTION
        | Known::TRANSFER_ENCODING
        | Known::UPGRADE
        | Known::HTTP2_SETTINGS => false,
        Known::TE => List::new(field.value).any(|member| member.eq_ignore_ascii_case(b"trailers")),
        _ => true,
    }
}

/// Decides whether a field goes into the dynamic table, stays out of it, or must never be in one.
fn indexing(field: &Field<'_>) -> Indexing {
    if field.never_indexed {
        return Indexing::Never;
    }
    match field.known {
        Known::AUTHORIZATION | Known::PROXY_AUTHORIZATION => Indexing::Never,
        Known::COOKIE if field.value.len() < SHORT_COOKIE => Indexing::Never,
        Known::CONTENT_LENGTH
        | Known::CONTENT_RANGE
        | Known::ETAG
        | Known::AGE
        | Known::IF_MODIFIED_SINCE
        | Known::IF_NONE_MATCH
        | Known::LAST_MODIFIED
        | Known::LOCATION
        | Known::SET_COOKIE
        | Known::SEC_WEBSOCKET_KEY
        | Known::SEC_WEBSOCKET_ACCEPT
        | Known::X_REQUEST_ID => Indexing::Without,
        _ => Indexing::Incremental,
    }
}

/// Returns an upper bound on the size of a head as `SETTINGS_MAX_HEADER_LIST_SIZE` counts it: that of the
/// form of HTTP/1, plus the overhead of each field.
pub(crate) fn list_size(head: &Head) -> usize {
    head.size() + FIELD * (head.fields().count() + 4)
}

/// Writes a request. `protocol` makes it an extended CONNECT (RFC 8441). `split` cuts cookies into their
/// pieces, so that the table finds each of them again.
pub(crate) fn request(
    mut sent: Sent<'_>,
    head: &Head,
    scheme: &[u8],
    protocol: Option<&[u8]>,
    split: bool,
) -> Result<(), SendError> {
    let target = head.target();
    let parts = Target::of(target, head.method_kind());
    let connect = parts.form == Form::Authority && protocol.is_none();
    let authority = head.host().map(without_user);
    let path: &[u8] = match parts {
        Target { form: Form::Origin | Form::Asterisk, .. } => target,
        Target { form: Form::Absolute, path: Some(path), .. } => {
            let at = path.as_ptr().addr() - target.as_ptr().addr();
            &target[at..]
        }
        _ if connect => b"",
        _ => return Err(SendError::Invalid("the target is neither a path nor an absolute address")),
    };
    if connect && authority.is_none_or(<[u8]>::is_empty) {
        return Err(SendError::Invalid("a CONNECT needs a host and port"));
    }
    sent.encoder.begin(sent.block);
    let method: &[u8] = if protocol.is_some() { b"CONNECT" } else { head.method() };
    sent.pseudo(b":method", method, Indexing::Incremental);
    if let Some(protocol) = protocol {
        sent.pseudo(b":protocol", protocol, Indexing::Incremental);
    }
    if !connect {
        sent.pseudo(b":scheme", scheme, Indexing::Incremental);
    }
    if let Some(authority) = authority.filter(|authority| !authority.is_empty()) {
        sent.pseudo(b":authority", authority, Indexing::Incremental);
    }
    if !connect {
        match path {
            b"" if head.method_kind() == manylane_http::Method::Options => {
                sent.pseudo(b":path", b"*", Indexing::Without);
            }
            b"" => sent.pseudo(b":path", b"/", Indexing::Without),
            [b'?', ..] => {
                sent.name.clear();
                sent.name.push(b'/');
                sent.name.extend_from_slice(path);
                sent.encoder.field(b":path", sent.name, Indexing::Without, sent.block);
            }
            path => sent.pseudo(b":path", path, Indexing::Without),
        }
    }
    sent.fields(head, split);
    Ok(())
}

/// Writes a response.
pub(crate) fn response(mut sent: Sent<'_>, head: &Head) {
    let status = head.status();
    let digits = [status / 100 % 10, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
    sent.encoder.begin(sent.block);
    sent.pseudo(b":status", &digits, Indexing::Incremental);
    sent.fields(head, false);
}

/// Writes trailers.
pub(crate) fn trailers(mut sent: Sent<'_>, head: &Head) {
    sent.encoder.begin(sent.block);
    sent.fields(head, false);
}
