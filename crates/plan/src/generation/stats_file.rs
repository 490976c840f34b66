//! `stats-file`: counters begin with what another process had counted, as its `dump stats-file` wrote it.
//!
//! The file has a section for frontends and listeners (`#fe`), and one for backends and servers (`#be`). A
//! section begins with the names of its columns, of which the first is `guid`; each row has the counters of
//! the object with that GUID. Other sections, rows of unknown GUIDs, unknown columns, and values that are not
//! numbers are skipped, so that the file of another version can be read.

use super::files;
use super::refuse::Refuse;
use super::{Backend, Frontend, Listener, Server};
use manylane_check::states::MOST_BYTES;
use manylane_config::tree::Set;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// An object with a GUID.
#[derive(Clone, Copy)]
enum Known<'g> {
    Frontend(&'g Frontend),
    Listener(&'g Listener),
    Backend(&'g Backend),
    Server(&'g Server),
}

/// Objects by side (true for backends and servers) and GUID. Both sides of a `listen` have the same GUID.
type ByGuid<'g> = HashMap<(bool, &'g str), Known<'g>>;

/// Columns and their counters. Not `stot`, whose counter has another name for each kind of object.
const COUNTERS: &[(&str, &str)] = &[
    ("bin", "bytes_in"),
    ("bout", "bytes_out"),
    ("dreq", "requests_denied"),
    ("dresp", "responses_denied"),
    ("ereq", "request_errors"),
    ("econ", "connection_errors"),
    ("eresp", "response_errors"),
    ("wretr", "retries"),
    ("wredis", "redispatches"),
    ("lbtot", "chosen"),
    ("hrsp_1xx", "responses_1xx"),
    ("hrsp_2xx", "responses_2xx"),
    ("hrsp_3xx", "responses_3xx"),
    ("hrsp_4xx", "responses_4xx"),
    ("hrsp_5xx", "responses_5xx"),
    ("hrsp_other", "responses_other"),
    ("hanafail", "health_errors"),
    ("req_tot", "requests"),
    ("conn_tot", "connections"),
    ("intercepted", "intercepted"),
    ("dcon", "connections_denied"),
    ("dses", "sessions_denied"),
    ("wrew", "failed_rewrites"),
    ("eint", "internal_errors"),
    ("h2sess", "h2_connections"),
    ("h2req", "h2_requests"),
    ("cli_abrt", "client_aborts"),
    ("srv_abrt", "server_aborts"),
    ("connect", "connects"),
    ("reuse", "reuses"),
];

/// Reads the file that `global` names, if it names one.
pub(super) fn load(frontends: &[Frontend], backends: &[Backend], refuse: &mut Refuse<'_>) {
    let config = refuse.config;
    let Some(Set { value: word, pos }) = &config.global.stats_file else { return };
    let path = refuse.path(word);
    if let Err(why) = read(&path, &known(frontends, backends)) {
        let message =
            format!("cannot read the stats-file '{}', so counters begin at 0: {why}", path.display());
        refuse.found.warning(*pos, message);
    }
}

fn known<'g>(frontends: &'g [Frontend], backends: &'g [Backend]) -> ByGuid<'g> {
    let mut known = HashMap::new();
    for frontend in frontends {
        known.extend(frontend.guid.as_deref().map(|guid| ((false, guid), Known::Frontend(frontend))));
        let listeners = frontend.listeners.iter();
        known.extend(listeners.filter_map(|own| Some(((false, own.guid.as_deref()?), Known::Listener(own)))));
    }
    for backend in backends {
        known.extend(backend.guid.as_deref().map(|guid| ((true, guid), Known::Backend(backend))));
        let servers = backend.servers.iter();
        known.extend(servers.filter_map(|own| Some(((true, own.guid.as_deref()?), Known::Server(own)))));
    }
    known
}

fn read(path: &Path, known: &ByGuid<'_>) -> Result<(), String> {
    let file = files::open(path).map_err(|error| error.to_string())?;
    let lines = BufReader::new(file.take(MOST_BYTES as u64)).split(b'\n').enumerate();
    let mut section: Option<(Option<bool>, Vec<String>)> = None;
    for (number, line) in lines {
        let line = line.map_err(|error| error.to_string())?;
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            continue;
        }
        if let Some(head) = line.strip_prefix('#') {
            let (side, names) = head.split_once(' ').unwrap_or((head, ""));
            let columns: Vec<String> = names.split(',').map(str::to_owned).collect();
            let side = match side {
                "fe" => Some(false),
                "be" => Some(true),
                _ => None,
            };
            if columns[0] != "guid" {
                return Err(format!("the first column of line {} is not 'guid'", number + 1));
            }
            section = Some((side, columns));
            continue;
        }
        let Some((side, columns)) = &section else {
            return Err(format!("line {} stands before the first line with names of columns", number + 1));
        };
        let mut values = line.split(',');
        let guid = values.next().unwrap_or_default();
        if let Some(known) = side.and_then(|side| known.get(&(side, guid))) {
            let named = columns.iter().skip(1).map(String::as_str).zip(values);
            let row: HashMap<&str, u64> =
                named.filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect();
            known.begin_with(&row);
        }
    }
    Ok(())
}

impl Known<'_> {
    fn begin_with(self, row: &HashMap<&str, u64>) {
        let of = |name: &str| row.get(name).copied();
        let sessions = match self {
            Self::Frontend(_) | Self::Listener(_) => "sessions_admitted",
            Self::Backend(_) => "streams",
            Self::Server(_) => "sessions",
        };
        let all = ("stot", sessions);
        let columns = COUNTERS.iter().chain([&all]);
        let mut counted: Vec<(&str, u64)> =
            columns.filter_map(|(column, own)| Some((*own, of(column)?))).collect();
        match self {
            Self::Frontend(own) => {
                // The file has the sessions of HTTP/1; `h2_only` counts the others.
                let h2_only = of("stot").zip(of("h1sess")).map(|(all, h1)| all.saturating_sub(h1));
                counted.extend(h2_only.map(|n| ("h2_only", n)));
                own.counts.begin_with(&counted);
            }
            Self::Listener(own) => own.counts.begin_with(&counted),
            Self::Backend(own) => {
                own.counts.begin_with(&counted);
                of("chkdown").into_iter().for_each(|downs| own.past.set_downs(downs));
            }
            Self::Server(own) => {
                own.counts.begin_with(&counted);
                of("chkdown").into_iter().for_each(|downs| own.past.set_downs(downs));
                if let (Some(check), Some(failed)) = (&own.check, of("chkfail")) {
                    check.board.set_failed(failed);
                }
            }
        }
    }
}
