//! Renews OCSP responses (`ocsp-update`): requests them from responders over HTTP, and logs the results.
//!
//! # Protocol
//! 1. The first lane of a generation has the task, which sends one request after another. `manylane_tls`
//!    decides which certificates are due.
//! 2. Work that may block (the store's lock, names of responders) runs on the thread of
//!    [`http_client::pool`].
//! 3. A request takes at most [`TIMEOUT`] until the end of its answer, which has at most
//!    [`LONGEST_RESPONSE`] bytes.

use super::checks::unless_stopped;
use super::http_client::{self, aside};
use manylane_http::Method;
use manylane_lanes::{Local, log_globally};
use manylane_logs::Level;
use manylane_sched::{Class, TaskKind};
use manylane_sync::LaneId;
use manylane_tls::{LONGEST_ANSWER, OcspQuestion, OcspState, OcspUpdate, Store};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

static RENEWALS: TaskKind = TaskKind::new("renewal of OCSP responses");

/// Longest time until the task searches again for what is due: commands may have added certificates.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Time limit of a request, including its answer.
const TIMEOUT: Duration = Duration::from_secs(LONGEST_ANSWER - 10);

/// Largest response in bytes, without the head.
pub(super) const LONGEST_RESPONSE: usize = 64 << 10;

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
    let task = update_responses(local.clone());
    local.here().spawn(&RENEWALS, Class::Normal, task).map(drop).map_err(|error| error.to_string())
}

/// Renews responses as they become due, until the generation ends.
async fn update_responses(local: Rc<Local>) {
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

/// Requests a response, applies it, and writes a line to the logs of `global`. Returns the new state.
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
    let method = if question.is_posted() { Method::Post } else { Method::Get };
    let (host, port) = question.peer();
    let addresses = http_client::resolve(local, host, port).await.map_err(failed)?;
    let answer =
        http_client::exchange(local, &addresses, None, method, &question.http(), LONGEST_RESPONSE).await;
    let answer = answer.map_err(failed)?;
    if answer.head.status() != 200 {
        return Err(failed(format_args!("the status is {}", answer.head.status())));
    }
    let kind = answer.head.value("content-type").unwrap_or_default();
    if !kind.to_ascii_lowercase().starts_with(b"application/ocsp-response") {
        let shown = String::from_utf8_lossy(kind).into_owned();
        return Err((OcspUpdate::NoResponse, format!("the type is '{shown}'")));
    }
    Ok(answer.body)
}
