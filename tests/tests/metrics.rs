//! Prometheus metrics, compared with HAProxy's exporter for the same requests, and checked by Prometheus' own
//! tool.

#![allow(clippy::unwrap_used)]

use manylane_tests::case::Case;
use manylane_tests::client::Got;
use manylane_tests::message::Message;
use manylane_tests::program::Which;
use manylane_tests::run::run;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Parts of names that differ between runs, or by design.
const VARIES: &[&str] = &[
    "process_",
    "bytes_",
    "_seconds",
    "rate",
    "_status{proxy=\"back\",server=\"c\"",
    "agg_",
    "check_",
    "max_sessions",
    "backend_status",
    "current_sessions",
    "uweight",
    "weight{proxy=\"back\"}",
    "idle_connections",
    "need_connections",
    "used_connections",
];

fn message(got: &Got) -> &Message {
    match got {
        Got::Answer(message) => message,
        other => panic!("{other:?}"),
    }
}

fn answers(which: &Which) -> Vec<Message> {
    let case = Case::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metrics.case")).unwrap();
    run(&case, which, None, false).answers.iter().flatten().map(|got| message(got).clone()).collect()
}

fn text(message: &Message) -> String {
    String::from_utf8(message.body.clone()).unwrap()
}

/// Samples by name and labels.
fn samples(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' ')).collect()
}

fn types(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect()
}

#[test]
fn names_types_and_values_are_those_of_haproxy() {
    let Some(_) = Which::Haproxy.path() else {
        return eprintln!("NOT SHOWN HERE: there is no HAProxy 3.2");
    };
    let (theirs, ours) = (answers(&Which::Haproxy), answers(&Which::Manylane));
    let starts = |all: &[Message]| -> Vec<String> {
        all.iter().map(|message| message.start.split(' ').nth(1).unwrap().to_owned()).collect()
    };
    assert_eq!(starts(&ours), ["200", "403", "204", "200", "200", "400", "200", "200", "200"]);
    assert_eq!(starts(&ours), starts(&theirs));
    for index in [3, 4, 7] {
        let (theirs, ours) = (text(&theirs[index]), text(&ours[index]));
        // HAProxy exports these as counters, with names that Prometheus' tool rejects; what a backend's first
        // server lacks is a gauge there.
        let otherwise = [
            "process_failed_resolutions ",
            "process_total_warnings ",
            "server_check_failures_total ",
            "server_check_up_down_total ",
            "server_downtime_seconds_total ",
        ];
        let same = |name: &&&str| {
            !otherwise
                .iter()
                .any(|own| name.strip_prefix("haproxy_").is_some_and(|name| name.starts_with(own)))
        };
        let unknown: Vec<_> = types(&ours).difference(&types(&theirs)).filter(same).copied().collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        // HAProxy has an internal resolvers section with the system's name servers.
        let without = |name: &&&str| !name.starts_with("haproxy_resolver_") && same(name);
        let missing: Vec<_> = types(&theirs).difference(&types(&ours)).filter(without).copied().collect();
        assert!(missing.is_empty(), "{missing:?}");
        let theirs = samples(&theirs);
        let mut compared = 0;
        for (name, value) in samples(&ours) {
            if VARIES.iter().all(|part| !name.contains(part)) {
                assert_eq!(theirs.get(name), Some(&value), "{name}");
                compared += 1;
            }
        }
        assert!(compared > 10, "{compared}");
    }
    let few = text(&ours[4]);
    assert!(
        !few.contains("haproxy_frontend") && !few.contains("server=\"b\"") && few.contains("server=\"a\"")
    );
    assert!(ours[6].body.is_empty());
    let listeners = text(&ours[7]);
    assert!(
        listeners.contains("haproxy_listener_limit_sessions{proxy=\"front\",listener=\"one\"} 40\n"),
        "{listeners}"
    );
    assert!(samples(&listeners).keys().all(|name| name.starts_with("haproxy_listener_")), "{listeners}");
    // HTTP/1 and HTTP/2 metrics of `extra-counters`.
    let of_version = |text: &str| -> BTreeSet<String> {
        let own = |name: &&str| name.contains("_h1_") || name.contains("_h2_");
        let named: Vec<_> = types(text).into_iter().chain(samples(text).into_keys()).filter(own).collect();
        named.into_iter().map(str::to_owned).collect()
    };
    let versions = of_version(&text(&ours[8]));
    assert_eq!(versions, of_version(&text(&theirs[8])));
    assert!(versions.contains("haproxy_backend_h2_total_connections{proxy=\"back\",mod=\"h2\"}"));
    for name in [
        "haproxy_process_idle_time_percent",
        "haproxy_process_stopping",
        "haproxy_process_jobs",
        "haproxy_process_max_connection_rate",
    ] {
        assert!(samples(&text(&ours[3])).contains_key(name), "{name}");
    }
}

#[test]
fn the_tool_of_prometheus_takes_them() {
    if Command::new("promtool").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    {
        return eprintln!("NOT SHOWN HERE: promtool is not installed");
    }
    let page = answers(&Which::Manylane).swap_remove(3);
    let mut tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    tool.stdin.take().unwrap().write_all(&page.body).unwrap();
    let said = tool.wait_with_output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
