//! Renews responses of OCSP (`ocsp-update`): asks responders over HTTP, and logs what came of it.
//!
//! # Protocol
//! 1. The first lane of a generation has the task, which asks one responder after another. Which certificates
//!    are due is for `manylane_tls` to say.
//! 2. The store's lock, and names of responders, are waited for on a thread aside.
//! 3. A responder has [`TIMEOUT`] for all of its answer, which has at most [`LONGEST_RESPONSE`] bytes.

use super::checks::unless_stopped;
use crate::lane::{Local, log_globally};
use manylane_buf::Chain;
use manylane_h1::{BodyReader, From, Limits, RequestInfo, ResponseParser};
use manylane_http::Method;
use manylane_logs::Level;
use manylane_net::{ConnectOptions, Connection, Connector, Endpoint};
use manylane_sched::{BlockingPool, Class, TaskKind};
use manylane_sync::LaneId;
use manylane_tls::{LONGEST_ANSWER, OcspQuestion, OcspState, OcspUpdate, Store};
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

static RENEWALS: TaskKind = TaskKind::new("renewal of OCSP responses");

/// Longest time until the task looks again for what is due: commands may have brought certificates.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Time that a responder has.
const TIMEOUT: Duration = Duration::from_secs(LONGEST_ANSWER - 10);

/// Largest response in bytes, without the head.
const LONGEST_RESPONSE: usize = 64 << 10;

/// Most addresses of a responder that are tried.
const MOST_ADDRESSES: usize = 4;

/// Most jobs that wait for the thread.
const WAITING: usize = 64;

type Failure = (OcspUpdate, String);

fn failed(why: impl ToString) -> Failure {
    (OcspUpdate::Http, why.to_string())
}

/// Starts the task on the first of `lanes`.
///
/// # Errors
/// A sentence, if there is no memory.
pub(super) fn start(local: &Rc<Local>, lanes: &[LaneId]) -> Result<(), String> {
    let is_first = lanes.first() == Some(&local.here().lane());
    if !is_first || !local.generation.certificates.renews_ocsp() {
        return Ok(());
    }
    let task = look_after(local.clone());
    local.here().spawn(&RENEWALS, Class::Normal, task).map(drop).map_err(|error| error.to_string())
}

/// Asks for what is due, until the generation ends.
async fn look_after(local: Rc<Local>) {
    loop {
        let (due, next) = aside(&local, Store::due_ocsp).await.unwrap_or_default();
        for question in due {
            if unless_stopped(&local, renew_ocsp(&local, question)).await.is_none() {
                return;
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let until = next.map_or(LONGEST_SLEEP, |next| Duration::from_secs(next.saturating_sub(now)));
        let sleep = local.here().sleep(until.clamp(Duration::from_millis(100), LONGEST_SLEEP));
        if unless_stopped(&local, sleep).await.is_none() {
            return;
        }
    }
}

/// Does something with the generation's store on a thread aside (rule 2). `None` if there is no thread.
async fn aside<T: Send + 'static>(
    local: &Local,
    work: impl FnOnce(&Store) -> T + Send + 'static,
) -> Option<T> {
    let store = local.generation.certificates.clone();
    Some(pool().run(move || work(&store)).ok()?.await)
}

fn pool() -> &'static BlockingPool {
    static POOL: OnceLock<Arc<BlockingPool>> = OnceLock::new();
    POOL.get_or_init(|| Arc::new(BlockingPool::new(1, WAITING)))
}

/// Asks a responder, takes its response over, and writes a line to the logs of `global`. Returns the result.
pub async fn renew_ocsp(local: &Local, question: OcspQuestion) -> Option<OcspState> {
    let answer = match local.here().timeout(TIMEOUT, ask(local, &question)).await {
        Ok(answer) => answer,
        Err(_) => Err(failed(format_args!("no answer within {} seconds", TIMEOUT.as_secs()))),
    };
    let state = aside(local, move |store| store.answer_ocsp(&question, answer)).await?;
    let reason = state.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let line = format!(
        "<OCSP-UPDATE> {} {} \"{}{reason}\" {} {}",
        state.certificate,
        state.status as u8,
        state.status.text(),
        state.failures,
        state.successes
    );
    log_globally(local, Level::Notice, &line);
    Some(state)
}

/// Returns the response to a question, without judging it.
async fn ask(local: &Local, question: &OcspQuestion) -> Result<Vec<u8>, Failure> {
    let (host, port) = question.peer();
    let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let addresses = match name.parse() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => {
            let shown = name.clone();
            let resolve = move || (name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            let resolving = pool().run(resolve).map_err(failed)?;
            resolving.await.map_err(|error| failed(format_args!("'{shown}' is not resolved: {error}")))?
        }
    };
    let connection = connect(local, &addresses).await?;
    let mut bytes = Chain::new();
    bytes.append(&question.http()).map_err(failed)?;
    connection.send(&mut bytes).await.map_err(failed)?;
    receive(&connection, question.is_posted()).await
}

/// Connects to the first address that accepts.
async fn connect(local: &Local, addresses: &[SocketAddr]) -> Result<Connection, Failure> {
    let connector = Connector::new(ConnectOptions::default());
    let mut last = failed("the responder has no address");
    for address in addresses.iter().take(MOST_ADDRESSES) {
        match connector.connect(&local.io, &Endpoint::Ip(*address), None, None).await {
            Ok(connection) => return Ok(connection),
            Err(error) => last = failed(error),
        }
    }
    Err(last)
}

/// Returns the body of a response with status 200 and the type of OCSP.
async fn receive(connection: &Connection, posted: bool) -> Result<Vec<u8>, Failure> {
    let limits = Limits::default();
    let method = if posted { Method::Post } else { Method::Get };
    let (mut received, mut body) = (Chain::new(), Chain::new());
    let mut parser = ResponseParser::new(limits);
    let mut reader: Option<BodyReader> = None;
    loop {
        while reader.is_none()
            && let Some(response) =
                parser.parse(&mut received, RequestInfo { method, upgrade: false }).map_err(failed)?
        {
            if response.is_interim() {
                parser = ResponseParser::new(limits);
                continue;
            }
            if response.head.status() != 200 {
                return Err(failed(format_args!("the status is {}", response.head.status())));
            }
            let kind = response.head.value("content-type").unwrap_or_default();
            if !kind.to_ascii_lowercase().starts_with(b"application/ocsp-response") {
                let shown = String::from_utf8_lossy(kind).into_owned();
                return Err((OcspUpdate::NoResponse, format!("the type is '{shown}'")));
            }
            reader = Some(BodyReader::new(response.body, From::Server, limits));
        }
        if let Some(reader) = &mut reader {
            reader.read(&mut received, &mut body).map_err(failed)?;
            if body.len() > LONGEST_RESPONSE {
                return Err(failed(format_args!("the response has more than {LONGEST_RESPONSE} bytes")));
            }
            if reader.is_done() {
                return Ok(body.to_vec());
            }
        }
        match connection.recv().await.map_err(failed)? {
            Some(segment) => {
                received.push_back(segment).map_err(|error| failed(manylane_buf::Error::from(error)))?
            }
            None => {
                let Some(reader) = &mut reader else {
                    return Err(failed("the responder closed the connection without an answer"));
                };
                return reader.end().map(|()| body.to_vec()).map_err(failed);
            }
        }
    }
}
