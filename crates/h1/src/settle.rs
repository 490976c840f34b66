//! Framing of a message whose head was edited after it was parsed.
//!
//! A rule may remove or write the fields that frame a body. But the next reader must find the same end of the
//! body; otherwise one side would take a part of the body for the next message. So before an edited head is
//! sent, its fields are made to agree with the body. A rule has its way where that is possible: a body whose
//! length was removed goes on in chunks, as in HAProxy. Everything else is overruled.

use crate::message::Body;
use crate::write::Digits;
use manylane_http::{EditError, Head, Known, List, Method, Version, syntax};

/// The reader of a response: the properties that its framing depends on.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Version of its request: only HTTP/1.1 has chunks.
    pub version: Version,
    /// Method of its request: a response to `HEAD` has no body, and a successful one to `CONNECT` opens a
    /// tunnel.
    pub method: Method,
}

/// Makes the fields of a request agree with its body, and returns the framing of the body. Returns `None` if
/// the fields give the body another length, or are no length: such a request must not be sent. The length of
/// a body in chunks is dropped, since chunks say where it ends.
///
/// # Errors
/// [`EditError`]
pub fn settle_request(head: &mut Head, found: Body) -> Result<Option<Body>, EditError> {
    let Ok(said) = agreed_length(head) else { return Ok(None) };
    let framed = match (found, said) {
        (Body::None, Some(1..)) => return Ok(None),
        (Body::Length(found), Some(said)) if said != found => return Ok(None),
        (Body::Length(1..), None) if head.version() >= Version::HTTP_11 => Body::Chunked,
        (Body::Length(0), None) => Body::None,
        _ => found,
    };
    say(head, framed)?;
    Ok(Some(framed))
}

/// Makes the fields of a response agree with its body, and returns the framing towards its reader. Returns
/// [`Body::None`] if this status or this reader has no body, even if the server may have sent one. `framed`
/// is the framing of an unedited head ([`frame_for`](crate::frame_for)).
///
/// # Errors
/// [`EditError`]
pub fn settle_response(head: &mut Head, framed: Body, reader: Reader) -> Result<Body, EditError> {
    let chunks = reader.version >= Version::HTTP_11 && head.version() >= Version::HTTP_11;
    let framed = match (head.status(), framed) {
        (101, Body::Tunnel) => Body::Tunnel,
        (200..=299, Body::Tunnel) if reader.method == Method::Connect => Body::Tunnel,
        (100..=199 | 204, _) => Body::None,
        // The fields describe a body that is not sent, so they may say anything that a parser accepts.
        (status, framed) if status == 304 || reader.method == Method::Head && framed != Body::Tunnel => {
            if head.has(Known::CONTENT_LENGTH) {
                match length(head) {
                    Some(said) => say(head, Body::Length(said))?,
                    None => say(head, Body::None)?,
                }
            } else if head.has(Known::TRANSFER_ENCODING) {
                say(head, if chunks { Body::Chunked } else { Body::None })?;
            }
            return Ok(Body::None);
        }
        // The server sent no body, and the client must learn that.
        (_, Body::None) if chunks => Body::Chunked,
        (_, Body::None) => Body::Length(0),
        (_, Body::Length(_)) if chunks && length(head).is_none() => Body::Chunked,
        (_, framed) => framed,
    };
    say(head, framed)?;
    Ok(framed)
}

/// The `Content-Length` fields differ, or one is not a length.
struct InvalidLength;

/// Returns the length that all `Content-Length` fields and their list members give, `None` without a field.
fn agreed_length(head: &Head) -> Result<Option<u64>, InvalidLength> {
    let mut said = None;
    for member in head.values(Known::CONTENT_LENGTH).flat_map(List::new) {
        let length = syntax::decimal(member).ok_or(InvalidLength)?;
        if *said.get_or_insert(length) != length {
            return Err(InvalidLength);
        }
    }
    Ok(said)
}

/// Returns the first `Content-Length`, if it is a valid length.
fn length(head: &Head) -> Option<u64> {
    head.value(Known::CONTENT_LENGTH).and_then(syntax::decimal)
}

fn is_chunked(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"chunked")
}

/// Leaves only the framing fields of this body, unchanged if they are right.
fn say(head: &mut Head, body: Body) -> Result<(), EditError> {
    match body {
        Body::Length(wanted) => {
            head.remove_fields(Known::TRANSFER_ENCODING);
            let right = head.count(Known::CONTENT_LENGTH) == 1 && length(head) == Some(wanted);
            let mut digits = Digits::default();
            if right { Ok(()) } else { head.set_field(Known::CONTENT_LENGTH, digits.of(wanted)) }
        }
        Body::Chunked => {
            head.remove_fields(Known::CONTENT_LENGTH);
            let right = head.values(Known::TRANSFER_ENCODING).map(is_chunked).eq([true]);
            if right { Ok(()) } else { head.set_field(Known::TRANSFER_ENCODING, b"chunked") }
        }
        Body::None | Body::UntilClose | Body::Tunnel => {
            head.remove_fields(Known::CONTENT_LENGTH);
            head.remove_fields(Known::TRANSFER_ENCODING);
            Ok(())
        }
    }
}
