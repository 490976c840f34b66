//! `tcp-request content` and `tcp-response content` in TCP mode: receives bytes until the rules decide, no
//! more bytes come, or the delay is over.

use super::heads::Heads;
use manylane_buf::Chain;
use manylane_config::table::Ruleset;
use manylane_config::tree::LogStep;
use manylane_expr::{Data, Direction};
use manylane_net::Connection;
use manylane_plan::generation::{Backend, Rule, Server};
use manylane_rules::{EvalContext, EvalPhase, Once, Verdict, Walk, apply};
use manylane_sched::Time;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// Number of times that rules are evaluated whenever bytes come. After that they wait until [`MANY_BYTES`]
/// more have come or [`PAUSE`] is over: a peer that sends single bytes must not cause a search in all of them
/// for each. Time must be able to end the wait, because the peer may send nothing before it has an answer.
const MAX_EVALUATIONS: u32 = 256;
const MANY_BYTES: usize = 1 << 10;
const PAUSE: Duration = Duration::from_millis(10);

/// Rules, and what they may read.
pub(crate) struct Inspected<'a> {
    pub(crate) rules: &'a [Rule],
    /// Longest time that the rules wait for more bytes.
    pub(crate) delay: Option<Duration>,
    pub(crate) backend: Option<&'a Backend>,
    pub(crate) server: Option<&'a Server>,
}

/// Runs rules on the bytes that `connection` sends until they decide. The bytes are appended to `received`,
/// which keeps them.
///
/// # Errors
/// The connection failed, or there is no memory.
pub(crate) async fn inspect(
    eval: &EvalContext<'_>,
    what: &Inspected<'_>,
    side: Direction,
    connection: &Connection,
    received: &mut Chain,
) -> Result<Verdict, ()> {
    if what.rules.is_empty() {
        return Ok(Verdict::Accept);
    }
    let here = eval.local.here();
    let room = eval.local.generation.process.bufsize;
    let deadline = what.delay.map_or(Time::ZERO, |delay| here.now() + delay);
    // Bytes that have arrived already are seen even without a delay.
    let mut ended = received.is_empty() && collect(eval, connection, received, 1, Time::ZERO).await?;
    let (list, step) = match side {
        Direction::Request => (Ruleset::TcpRequestContent, LogStep::TcpReqCont),
        Direction::Response => (Ruleset::TcpResponseContent, LogStep::TcpResCont),
    };
    let once = Once::default();
    let mut walk = Walk::repeated(list, what.rules, &once);
    let mut heads = Heads::new(side);
    let mut evaluations = 0;
    loop {
        let complete = ended || received.len() >= room;
        heads.parse(received);
        let data = Data { bytes: Some(received), complete, announced: None, is_body: false };
        let phase = EvalPhase {
            backend: what.backend,
            server: what.server,
            side: Some(side),
            may_grow: here.now() < deadline && !complete,
            ..EvalPhase::default()
        };
        let phase = match side {
            Direction::Request => EvalPhase { request_data: data, ..phase },
            Direction::Response => EvalPhase { response_data: data, ..phase },
        };
        match apply(eval, phase, &mut walk, heads.head.as_mut()) {
            Verdict::Log => eval.log_now(step),
            Verdict::Resolve { section, variable, question } => {
                if let Some(address) = eval.local.look_up(section, question).await {
                    let phase = EvalPhase { backend: what.backend, side: Some(side), ..EvalPhase::default() };
                    eval.learn(phase, variable, address);
                }
            }
            Verdict::Turn => here.yield_now().await,
            Verdict::Wait => {
                let one = received.len() + 1;
                ended |= collect(eval, connection, received, one, deadline).await?;
                evaluations += 1;
                if evaluations >= MAX_EVALUATIONS && !ended {
                    let (many, pause) = (room.min(one + MANY_BYTES), deadline.min(here.now() + PAUSE));
                    ended |= collect(eval, connection, received, many, pause).await?;
                }
            }
            decided => return Ok(decided),
        }
    }
}

/// Receives until there are `enough` bytes or `deadline` is over. Returns true if the stream ended.
async fn collect(
    eval: &EvalContext<'_>,
    connection: &Connection,
    received: &mut Chain,
    enough: usize,
    deadline: Time,
) -> Result<bool, ()> {
    while received.len() < enough {
        match next(eval, connection, deadline).await? {
            More::Bytes(segment) => received.push_compact(segment).map_err(|_| ())?,
            More::End => return Ok(true),
            More::Late => break,
        }
    }
    Ok(false)
}

enum More {
    Bytes(manylane_buf::Segment),
    End,
    Late,
}

/// Returns the next bytes, unless none come in time. Receives at least once.
async fn next(eval: &EvalContext<'_>, connection: &Connection, deadline: Time) -> Result<More, ()> {
    let here = eval.local.here();
    let mut receiving = pin!(connection.recv());
    let mut timer = here.sleep_until(deadline);
    poll_fn(|context| {
        if let Poll::Ready(outcome) = receiving.as_mut().poll(context) {
            return Poll::Ready(match outcome {
                Ok(Some(segment)) => Ok(More::Bytes(segment)),
                Ok(None) => Ok(More::End),
                Err(_) => Err(()),
            });
        }
        if deadline <= here.now() || Pin::new(&mut timer).poll(context).is_ready() {
            return Poll::Ready(Ok(More::Late));
        }
        Poll::Pending
    })
    .await
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    /// What was seen is changed behind the parser's back: it would notice if it looked again.
    #[test]
    fn each_byte_of_a_head_is_looked_at_once() {
        for (side, line) in
            [(Direction::Request, "\r\nGET / HTTP/1.1"), (Direction::Response, "HTTP/1.1 200 OK")]
        {
            let observed = format!("{line}\r\nX: {}", "x".repeat(5_000));
            let mut heads = Heads::new(side);
            let parse = |heads: &mut Heads, bytes: &[u8]| {
                let mut chain = Chain::new();
                chain.append(bytes).expect("memory");
                heads.parse(&chain);
            };
            for length in 1..=observed.len() {
                let mut bytes = observed.as_bytes()[..length].to_vec();
                if length > line.len() + 10 {
                    bytes[length - 5..length - 1].copy_from_slice(b"\r\n\r\n");
                }
                parse(&mut heads, &bytes);
                assert!(heads.head.is_none(), "{side:?}: byte {length} was looked at again");
            }
            parse(&mut heads, format!("{observed}\r\n\r\n").as_bytes());
            assert!(heads.head.is_some(), "{side:?}");
        }
    }
}
