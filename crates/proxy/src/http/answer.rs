//! The proxy's own answers: by file where the configuration has one, else a short page.

use super::edit;
use crate::generation::Http;
use manylane_buf::Chain;
use manylane_h1::{Asked, Connection as Said, Limits, Persist, ResponseParser, set_connection};
use manylane_http::{Head, Known, Method, Version, status};

/// An answer that could not be made: there is no memory, or the file says that there is none.
#[derive(Debug)]
pub(super) struct NoAnswer;

/// Writes the answer with `code` behind what `out` has.
///
/// `proxies` are looked at in order for an answer of their own.
pub(super) fn write(
    out: &mut Chain,
    proxies: &[&Http],
    code: u16,
    version: Version,
    method: Method,
    persist: Persist,
) -> Result<(), NoAnswer> {
    let own = proxies.iter().flat_map(|http| &http.answers).find(|(status, _)| *status == code);
    let (mut head, said, mut body) = match own {
        Some((_, bytes)) if bytes.is_empty() => return Err(NoAnswer),
        Some((_, bytes)) => from_file(bytes)?,
        None => page(code)?,
    };
    let _ = set_connection(&mut head, said, persist);
    let _ = edit::keep_alive(&mut head, version, persist);
    head.emit(out, None).map_err(|_| NoAnswer)?;
    if method != Method::Head {
        out.append_chain(&mut body).map_err(|_| NoAnswer)?;
    }
    Ok(())
}

/// A file was checked when the configuration was read: its head is one, and tells the length of its body.
fn from_file(bytes: &[u8]) -> Result<(Head, Said, Chain), NoAnswer> {
    let mut chain = Chain::new();
    chain.append(bytes).map_err(|_| NoAnswer)?;
    let limits = Limits { head: manylane_http::MAX_HEAD, room: manylane_http::MAX_HEAD, relaxed: true, ..Limits::default() };
    let asked = Asked { method: Method::Get, upgrade: false };
    let response = ResponseParser::new(limits).parse(&mut chain, asked).ok().flatten().ok_or(NoAnswer)?;
    Ok((response.head, response.connection, chain))
}

/// Pages are of HTTP/1.1, whatever was asked in.
fn page(code: u16) -> Result<(Head, Said, Chain), NoAnswer> {
    let mut head = Head::response(Version::HTTP_11, code, None).map_err(|_| NoAnswer)?;
    let (reason, more) = (status::reason(code), explanation(code));
    let text = format!("<html><body><h1>{code} {reason}</h1>\n{more}\n</body></html>\n");
    let mut body = Chain::new();
    body.append(text.as_bytes()).map_err(|_| NoAnswer)?;
    let add = |head: &mut Head| {
        head.add_field(Known::CONTENT_LENGTH, text.len().to_string().as_bytes())?;
        head.add_field(Known::CACHE_CONTROL, b"no-cache")?;
        if code == 408 || code == 400 {
            head.add_field(Known::CONNECTION, b"close")?;
        }
        head.add_field(Known::CONTENT_TYPE, b"text/html")
    };
    add(&mut head).map_err(|_| NoAnswer)?;
    let said = Said { close: code == 408 || code == 400, ..Said::default() };
    Ok((head, said, body))
}

fn explanation(code: u16) -> &'static str {
    match code {
        200 => "The service is up.",
        400 => "The request cannot be understood.",
        403 => "The request is refused by a rule.",
        404 => "There is nothing here.",
        408 => "The request took too long to arrive.",
        413 => "The request is too large.",
        414 => "The address is too long.",
        421 => "The request came to the wrong place.",
        431 => "The request has too many or too long header fields.",
        500 => "Something went wrong inside.",
        501 => "The request asks for something that is not there.",
        502 => "The server's response cannot be understood, or never came.",
        503 => "No server is there to handle this request.",
        504 => "The server did not answer in time.",
        505 => "This version of HTTP is not spoken here.",
        _ => "",
    }
}
