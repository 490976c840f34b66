//! How a message's body goes on whose head was edited since it was parsed.
//!
//! The fields that frame a body are the program's own: a rule may take them away or write others, but the
//! next reader has to find the end of the body where it is, else what one side takes for a body is the next
//! message to the other. So before an edited head is sent, its fields are made to agree with the body. What a
//! rule wants is done where it can be done: a body whose length was taken away goes on in chunks, as in
//! HAProxy. Everything else is overruled.

use crate::message::Body;
use crate::write::Digits;
use manylane_http::{EditError, Head, Known, Method, Version, syntax};

/// Who reads a response: what it depends on for its reader.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// The version of its request: chunks are for 1.1 only.
    pub version: Version,
    /// The method of its request: what `HEAD` asks for has no body, and `CONNECT` for a tunnel.
    pub method: Method,
}

/// Has the fields of a request say how its body goes on, and tells how. None if they give it another length
/// than it has: such a request must not be sent.
///
/// # Errors
/// [`EditError`]
pub fn settle_request(head: &mut Head, found: Body) -> Result<Option<Body>, EditError> {
    let framed = match (found, length(head)) {
        (Body::Length(found @ 1..), Some(said)) if said != found => return Ok(None),
        (Body::Chunked, Some(_)) => return Ok(None),
        (Body::Length(1..), None) if head.version() >= Version::HTTP_11 => Body::Chunked,
        (Body::Length(0), None) => Body::None,
        _ => found,
    };
    say(head, framed)?;
    Ok(Some(framed))
}

/// Has the fields of a response say how its body goes on to its reader, and tells how: [`Body::None`] where
/// the server may have sent one, but this status or this reader has none. `framed`: how it would go on if
/// nothing had been edited ([`frame_for`](crate::frame_for)).
///
/// # Errors
/// [`EditError`]
pub fn settle_response(head: &mut Head, framed: Body, reader: Reader) -> Result<Body, EditError> {
    let chunks = reader.version >= Version::HTTP_11 && head.version() >= Version::HTTP_11;
    let framed = match (head.status(), framed) {
        (101, Body::Tunnel) => Body::Tunnel,
        (200..=299, Body::Tunnel) if reader.method == Method::Connect => Body::Tunnel,
        (100..=199 | 204, _) => Body::None,
        // What the fields say is of a body that is not here, so it may be anything that a parser takes.
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
        // The server sent none where the client has to be told where one ends.
        (_, Body::None) if chunks => Body::Chunked,
        (_, Body::None) => Body::Length(0),
        (_, Body::Length(_)) if chunks && length(head).is_none() => Body::Chunked,
        (_, framed) => framed,
    };
    say(head, framed)?;
    Ok(framed)
}

/// What the first `Content-Length` says, if that is a length.
fn length(head: &Head) -> Option<u64> {
    head.value(Known::CONTENT_LENGTH).and_then(syntax::decimal)
}

fn is_chunked(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"chunked")
}

/// Leaves no fields of framing but those of this body, and these as they are where they are right.
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
