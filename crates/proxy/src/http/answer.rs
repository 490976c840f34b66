//! Responses that the proxy itself makes: from a file if the configuration names one, else a short page.

use manylane_buf::Chain;
use manylane_h1::{
    Body, Connection as Said, Limits, Persist, RequestInfo, ResponseParser, set_body, set_connection,
};
use manylane_http::{Head, Known, Method, Version, status};
use manylane_plan::generation::{Http, ReplyBody};
use manylane_rules::{self, Answer, EvalContext, EvalPhase};

/// The response cannot be made: there is no memory, or the configured file is empty, which means that no
/// response is wanted.
#[derive(Debug)]
pub(super) struct NoAnswer;

/// A response before it is adapted to its client.
pub(super) struct Made {
    pub(super) head: Head,
    /// Connection options of the head.
    pub(super) said: Said,
    pub(super) body: Chain,
}

/// Returns the response with status `code`: that of the first proxy in `proxies` that configures one, else a
/// page. Without `eval`, no response is generated for this request; only complete files are used.
pub(super) fn usual(
    proxies: &[&Http],
    eval: Option<(&EvalContext<'_>, EvalPhase<'_>)>,
    code: u16,
) -> Result<Made, NoAnswer> {
    for http in proxies {
        if let Some(reply) = http.replies.iter().rfind(|reply| reply.status == code) {
            match (&reply.body, eval) {
                (ReplyBody::Usual, _) => continue, // a reply without a body
                (ReplyBody::Whole(bytes), _) => return from_file(bytes),
                (_, Some((eval, phase))) => match manylane_rules::reply(eval, phase, reply) {
                    Ok(Answer::Own(head, body)) => return sized(head.into_inner(), body),
                    _ => return Err(NoAnswer),
                },
                (_, None) => {}
            }
        }
        match http.answers.iter().find(|(status, _)| *status == code) {
            Some((_, bytes)) if bytes.is_empty() => return Err(NoAnswer),
            Some((_, bytes)) => return from_file(bytes),
            None => {}
        }
    }
    page(code)
}

/// Returns a response from a head that a rule made, with the length of its body.
pub(super) fn sized(mut head: Head, body: Chain) -> Result<Made, NoAnswer> {
    set_body(&mut head, Body::None, Body::Length(body.len() as u64)).map_err(|_| NoAnswer)?;
    Ok(Made { head, said: Said::default(), body })
}

/// Returns the response to input that is not a request; it closes the connection.
pub(super) fn early(http: &Http, code: u16) -> Result<Made, NoAnswer> {
    let mut made = usual(&[http], None, code)?;
    set_connection(&mut made.head, made.said, Persist::Close).map_err(|_| NoAnswer)?;
    Ok(made)
}

/// Returns the response in a file. The configuration checked the file: its head is valid and states the
/// body's length.
fn from_file(bytes: &[u8]) -> Result<Made, NoAnswer> {
    let mut chain = Chain::new();
    chain.append(bytes).map_err(|_| NoAnswer)?;
    whole(chain)
}

/// Parses a complete message that was built when the configuration was read.
pub(super) fn whole(mut chain: Chain) -> Result<Made, NoAnswer> {
    let limits = Limits {
        head: manylane_http::MAX_HEAD,
        room: manylane_http::MAX_HEAD,
        relaxed: true,
        ..Limits::default()
    };
    let request = RequestInfo { method: Method::Get, upgrade: false };
    let response = ResponseParser::new(limits).parse(&mut chain, request).ok().flatten().ok_or(NoAnswer)?;
    Ok(Made { head: response.head, said: response.connection, body: chain })
}

/// Returns the built-in page, always in HTTP/1.1, whatever the version of the request.
fn page(code: u16) -> Result<Made, NoAnswer> {
    let mut head = Head::response(Version::HTTP_11, code, None).map_err(|_| NoAnswer)?;
    let (reason, more) = (status::reason(code), explanation(code));
    let mut body = Chain::new();
    let digits = [code / 100, code / 10 % 10, code % 10].map(|digit| b'0' + digit as u8);
    let (reason, more) = (reason.as_bytes(), more.as_bytes());
    let text = [b"<html><body><h1>", &digits[..], b" ", reason, b"</h1>\n", more, b"\n</body></html>\n"];
    text.iter().try_for_each(|part| body.append(part)).map_err(|_| NoAnswer)?;
    let add = |head: &mut Head| {
        set_body(head, Body::None, Body::Length(body.len() as u64))?;
        head.add_field(Known::CACHE_CONTROL, b"no-cache")?;
        if code == 408 || code == 400 {
            head.add_field(Known::CONNECTION, b"close")?;
        }
        head.add_field(Known::CONTENT_TYPE, b"text/html")
    };
    add(&mut head).map_err(|_| NoAnswer)?;
    let said = Said { close: code == 408 || code == 400, ..Said::default() };
    Ok(Made { head, said, body })
}

fn explanation(code: u16) -> &'static str {
    match code {
        200 => "The service is up.",
        400 => "The request cannot be understood.",
        401 => "A user and a password are needed.",
        403 => "The rules of this site refuse the request.", // some clients look for a length of 93
        404 => "There is nothing here.",
        407 => "The proxy needs a user and a password.",
        408 => "The request took too long to arrive.",
        413 => "The request is too large.",
        414 => "The address is too long.",
        421 => "The request came to the wrong place.",
        429 => "Too many requests have come in this time.",
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
