//! `show peers`, in HAProxy's form.

use super::Call;
use super::errors::date;
use manylane_expr::Timestamp;
use manylane_peers::{PeerReport, Resync, TableReport};
use manylane_plan::generation::{Generation, Peer, PeerLink, Peers};
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// `show peers [dict|-] [<section>]`
pub(super) fn show(call: &mut Call<'_, '_>) {
    let words = match call.words {
        [word, rest @ ..] if word == "dict" || word == "-" => rest,
        words => words,
    };
    let generation = call.generation.clone();
    let mut out = String::new();
    for (number, section) in generation.peers.iter().enumerate() {
        if words.first().is_none_or(|name| *name == *section.name) {
            one(&generation, number, section, &mut out);
        }
    }
    call.reply.put(&out);
}

/// The number of peers that are connected or connecting, and of those that are connected.
pub(super) fn count(generation: &Generation) -> [u64; 2] {
    let mut counts = [0; 2];
    for report in generation.peers.iter().filter_map(|section| section.report()) {
        for (link, peer) in &report.peers {
            counts[0] += u64::from(link.is_connecting || peer.is_connected);
            counts[1] += u64::from(peer.is_connected);
        }
    }
    counts
}

fn one(generation: &Generation, number: usize, section: &Peers, out: &mut String) {
    let report = section.report();
    // HAProxy's bits: resynchronised with the old process, and with a peer.
    let (flags, timeout) = match &report {
        None => (0, "<NEVER>".to_owned()),
        Some(report) => match report.resync {
            Resync::Finished => (3, "<PAST>".to_owned()),
            Resync::Remote(_) => (1, format!("{}s", report.left / 1000)),
            Resync::Local(_) => (0, format!("{}s", report.left / 1000)),
        },
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp { seconds: now.as_secs().cast_signed(), micros: now.subsec_micros() };
    let now = date(now, &generation.zone);
    let now = now.split('.').next().unwrap_or_default();
    let _ = writeln!(
        out,
        "{:#x}: [{now}] id={} disabled={} flags={flags:#x} resync_timeout={timeout} task_calls=0",
        number + 1,
        section.name,
        u8::from(section.is_off)
    );
    for (index, peer) in section.peers.iter().enumerate() {
        let found = report.as_ref().and_then(|report| report.peers.get(index));
        if let Some((link, peer_report)) = found {
            connection(index, peer, link, peer_report, out);
            peer_report.tables.iter().rev().for_each(|table_report| table(section, table_report, out));
        }
    }
}

fn connection(index: usize, peer: &Peer, link: &PeerLink, report: &PeerReport, out: &mut String) {
    let is_active = link.is_connecting || report.is_connected;
    let (app, learns) = match (report.is_connected, link.is_connecting) {
        (true, _) => ("RUNNING", if report.teaches { "ASSIGNED" } else { "NOTASSIGNED" }),
        (false, true) => ("STARTING", "NOTASSIGNED"),
        (false, false) => ("STOPPED", "NOTASSIGNED"),
    };
    let status = match link.status {
        Some(manylane_peers::Status::Succeeded) if report.is_connected => "ESTA",
        Some(manylane_peers::Status::Succeeded) => "CLOS",
        Some(_) => "FAIL",
        None if link.is_connecting => "CONN",
        None => "NONE",
    };
    let seconds = |time: Option<u64>| time.map_or("<NEVER>".to_owned(), |time| format!("{time}s"));
    let address = peer.endpoint.as_ref().map_or(String::new(), ToString::to_string);
    let counts = report.counts;
    let _ = writeln!(
        out,
        "  {:#x}: id={}({},{}) addr={address} app_state={app} learn_state={learns} last_status={status} \
         last_hdshk={}\n        reconnect={} heartbeat={} confirm=0 tx_hbt={} rx_hbt={} no_hbt={} \
         new_conn={} \
         proto_err={} coll={}\n        flags=0x0\n        shared tables:",
        index + 1,
        peer.name,
        if peer.is_local { "local" } else { "remote" },
        if is_active { "active" } else { "inactive" },
        seconds(link.since),
        seconds(link.retry.map(|millis| millis / 1000)),
        seconds(report.is_connected.then_some(report.heartbeat / 1000)),
        counts.heartbeats_sent,
        counts.heartbeats_received,
        counts.silences,
        counts.connections,
        counts.errors,
        counts.collisions,
    );
}

fn table(section: &Peers, report: &TableReport, out: &mut String) {
    let TableReport { name, local_id, remote_id, remote_data, known, sent, received, last } = report;
    // Among peers, a table of the section has its name without the section's.
    let own = if name.starts_with('/') { &*section.name } else { "" };
    let _ = writeln!(
        out,
        "          {local_id:#x} local_id={local_id} remote_id={remote_id} flags=0x0 \
         remote_data={remote_data:#x}\n              last_acked={known} last_pushed={sent} \
         last_get={received} teaching_origin=0 update={last}\n              table:{local_id:#x} \
         id={own}{name} update={last} localupdate={last} commitupdate={last} refcnt=1"
    );
}
