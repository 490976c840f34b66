//! Takes over certificates whose files have changed: `watch` of a `load` line. `manylane_tls` decides when
//! files are complete; the first lane of a generation has the task that asks it to look.

use super::checks::unless_stopped;
use super::http_client::aside;
use manylane_lanes::{Local, log_globally};
use manylane_logs::Level;
use manylane_sched::{Class, TaskKind};
use manylane_sync::LaneId;
use manylane_tls::{FileChange, Store};
use std::rc::Rc;
use std::time::Duration;

static FILE_CHECKS: TaskKind = TaskKind::new("check files of certificates");

/// Time between two looks. Files are read when two looks in a row found them the same.
const TICK: Duration = Duration::from_secs(1);

/// Starts the task on the first of `lanes`.
///
/// # Errors
/// A sentence, if there is no memory.
pub(super) fn start(local: &Rc<Local>, lanes: &[LaneId]) -> Result<(), String> {
    let is_first = lanes.first() == Some(&local.here().lane());
    if !is_first || !local.generation.certificates.watches_files() {
        return Ok(());
    }
    let task = check_regularly(local.clone());
    local.here().spawn(&FILE_CHECKS, Class::Bulk, task).map(drop).map_err(|error| error.to_string())
}

/// Looks again and again, until the generation ends.
async fn check_regularly(local: Rc<Local>) {
    while unless_stopped(&local, local.here().sleep(TICK)).await.is_some() {
        // If the pool is full, the next look does it.
        for FileChange { certificate, result, warnings } in
            aside(&local, Store::check_files).await.unwrap_or_default()
        {
            for problem in warnings {
                log_globally(&local, Level::Warning, &format!("Certificate {certificate}: {problem}."));
            }
            match result {
                Ok(()) => {
                    let line = format!("Certificate {certificate}: its files have changed and are in use.");
                    log_globally(&local, Level::Notice, &line);
                }
                Err(problem) => {
                    let line =
                        format!("Certificate {certificate}: its changed files are not used: {problem}.");
                    log_globally(&local, Level::Err, &line);
                }
            }
        }
    }
}
