//! Receives from a server: the head of its final response, and a body that came with it.

use crate::flow::{BodyEnd, ClientEnd, Direction, H2End, NotSent, Waits};
use manylane_buf::Chain;
use manylane_h1::{
    Body, Connection as Said, Persist, RequestInfo, Response, ResponseParser, set_body, set_connection,
};
use manylane_http::{Head, Known, Method, Version};
use manylane_io::READ_AT_ONCE;
use manylane_mux::h2;
use manylane_sched::Here;
use manylane_stats::Tally;

/// Reason why there is no head of a response.
pub(super) enum NoHead {
    /// The server closed before it sent a byte.
    Nothing,
    /// The server closed amid the head.
    Cut,
    /// The server reset the stream, or left the rules of HTTP/2, before the head.
    Reset,
    /// The bytes are not a valid head.
    Junk(manylane_h1::Error),
    /// The server refused the stream: it has not processed the request.
    Refused,
    /// There is no memory to receive the head, or to forward the interim responses before it.
    Memory,
    /// The client does not take an interim response.
    Client,
}

/// Destination of interim responses, which precede the final one.
pub(super) struct Onward<'a, C: Fn(u64)> {
    pub(super) client: &'a ClientEnd,
    /// Direction of the request's body, which a 100 asks for.
    pub(super) up: &'a Direction,
    /// Direction of the response.
    pub(super) down: &'a Direction,
    pub(super) here: Here,
    /// Version of HTTP that the client speaks.
    pub(super) version: Version,
    /// Counts the bytes that the server sent.
    pub(super) received: &'a Tally,
    /// Called with the number of bytes that the client was sent.
    pub(super) count: C,
}

/// Receives the head of the final response into `final_response`. Forwards interim responses before it to
/// clients of HTTP/1.1 and later.
pub(super) async fn receive<C: Fn(u64)>(
    server: BodyEnd<'_>,
    input: &mut Chain,
    parser: &mut ResponseParser,
    request: RequestInfo,
    onward: Onward<'_, C>,
    final_response: &mut Option<Response>,
) -> Result<(), NoHead> {
    onward.down.waits(Waits::Sender, onward.here.now());
    if let Some(stream) = server.h2() {
        return receive_from(stream, request, &onward, final_response).await;
    }
    loop {
        match parser.parse(input, request) {
            Ok(Some(response)) if response.is_interim() => onward.interim(response.head).await?,
            Ok(Some(response)) => {
                *final_response = Some(response);
                return Ok(());
            }
            Ok(None) => {
                let had = input.len();
                let more = server.receive(input, READ_AT_ONCE).await;
                onward.received.add((input.len() - had) as u64);
                match more {
                    Ok(true) => {}
                    Err(error) if error.is_memory() => return Err(NoHead::Memory),
                    Ok(false) | Err(_) if input.is_empty() => return Err(NoHead::Nothing),
                    Ok(false) | Err(_) => return Err(NoHead::Cut),
                }
            }
            Err(error) => return Err(NoHead::Junk(error)),
        }
    }
}

impl<C: Fn(u64)> Onward<'_, C> {
    /// Forwards an interim response.
    async fn interim(&self, mut head: Head) -> Result<(), NoHead> {
        if head.status() == 100 {
            self.up.called(self.here.now()); // the server asked for the body
        }
        if self.version < Version::HTTP_11 {
            return Ok(());
        }
        // `Persist::Upgrade` adds neither close nor keep-alive; as `Said::default` offers no upgrade,
        // `Upgrade` goes, too. Only the final response says what becomes of the client's connection. Without
        // `TE`, which means nothing in a response, these edits only shrink the head.
        head.remove_fields(Known::TE);
        set_body(&mut head, Body::None, Body::None)
            .and_then(|()| set_connection(&mut head, Said::default(), Persist::Upgrade))
            .map_err(|_| NoHead::Memory)?;
        let sent = self.client.send_interim(self.down, self.here, &mut head).await;
        self.down.waits(Waits::Sender, self.here.now());
        (self.count)(sent.map_err(|why| match why {
            NotSent::Memory => NoHead::Memory,
            NotSent::Failed => NoHead::Client,
        })?);
        Ok(())
    }
}

/// Like [`receive`], from a stream of HTTP/2.
async fn receive_from<C: Fn(u64)>(
    stream: &H2End,
    request: RequestInfo,
    onward: &Onward<'_, C>,
    final_response: &mut Option<Response>,
) -> Result<(), NoHead> {
    loop {
        let head = stream.head().await.map_err(|error| match error {
            h2::StreamError::Refused => NoHead::Refused,
            h2::StreamError::Connection(_) => NoHead::Nothing,
            h2::StreamError::Memory => NoHead::Memory,
            _ => NoHead::Reset,
        })?;
        match head {
            h2::ResponseHead::Interim(response) => {
                onward.received.add(response.head.size() as u64);
                onward.interim(response.head).await?;
            }
            h2::ResponseHead::Final { response: h2::Response { head, length }, end } => {
                onward.received.add(head.size() as u64);
                let body = match (head.status(), length) {
                    (200..=299, _) if (request.method == Method::Connect || request.upgrade) && !end => {
                        Body::Tunnel
                    }
                    (204 | 304, _) => Body::None,
                    _ if request.method == Method::Head => Body::None,
                    (_, Some(length)) => Body::Length(length),
                    _ if end => Body::Length(0),
                    // Framing for clients of HTTP/1, which need to know where the body ends.
                    (_, None) => Body::Chunked,
                };
                *final_response = Some(Response { head, body, connection: Said::default() });
                return Ok(());
            }
        }
    }
}

/// Moves a body that arrived with its head to `out`. Returns true if the whole body was there; then it needs
/// no pump.
pub(super) fn take_whole(
    body: Body,
    input: &mut Chain,
    out: &mut Chain,
) -> Result<bool, manylane_buf::Error> {
    let length = match body {
        Body::None => 0,
        Body::Length(length) => length,
        Body::Chunked | Body::UntilClose | Body::Tunnel => return Ok(false),
    };
    let there = input.len() as u64;
    if length < there {
        out.append_chain(&mut input.split_to(length as usize)?)?;
    } else if length == there {
        out.append_chain(input)?;
    }
    Ok(length <= there)
}
