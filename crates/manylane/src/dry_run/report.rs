//! The output of `manylane test`.

use super::Read;
use super::frontend::Found;
use manylane_plan::Generation;
use manylane_proxy::dry_run::{Candidate, Effect, End, Outcome, Report, Step};
use manylane_proxy::explain::Line;
use serde_json::{Value, json};
use std::fmt::Write;

/// A report, and what it is about.
pub(super) struct Rendered<'a> {
    pub(super) read: &'a Read,
    pub(super) generation: &'a Generation,
    pub(super) found: &'a Found,
    pub(super) report: &'a Report,
}

/// The word of an outcome in JSON, and that in a column.
fn word(outcome: &Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Matched => ("matched", "matched"),
        Outcome::NotMatched => ("not-matched", "not matched"),
        Outcome::NotReached => ("not-reached", "not reached"),
        Outcome::Unknown(_) => ("unknown", "not known"),
    }
}

fn at(line: &Line) -> String {
    format!("{}:{}", line.file, line.number)
}

/// ` of FILE:LINE`, where a line is known.
fn by(line: &Option<Line>) -> String {
    line.as_ref().map(|line| format!(", by {}", at(line))).unwrap_or_default()
}

fn effect(effect: &Effect) -> String {
    match effect {
        Effect::Variable(name, Some(value)) => format!("{name} = {value}"),
        Effect::Variable(name, None) => format!("{name} is not set"),
        Effect::Added(name, value) => format!("+ {name}: {value}"),
        Effect::Removed(name, value) => format!("- {name}: {value}"),
        Effect::Line(line) => format!("first line: {line}"),
        Effect::Note(note) => note.clone(),
        Effect::Unknown(needs) => format!("in a process at work its value may differ: it looks at {needs}"),
    }
}

impl Rendered<'_> {
    fn listener(&self) -> &str {
        &self.generation.frontends[self.found.frontend].listeners[self.found.listener].written
    }

    fn frontend(&self) -> &str {
        &self.generation.frontends[self.found.frontend].name
    }

    /// The address of a server as it is written.
    fn address(&self, backend: &str, server: &str) -> Option<String> {
        let named =
            self.read.config.proxies.iter().filter(|proxy| *proxy.name.bytes() == *backend.as_bytes());
        let mut servers = named.flat_map(|proxy| &proxy.servers);
        let found = servers.find(|own| *own.name.bytes() == *server.as_bytes())?;
        Some(found.address.value.to_string())
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("frontend {} at {}, {}\n", self.frontend(), self.listener(), self.found.why);
        let mut last = "";
        for step in &self.report.steps {
            if *step.proxy != *last {
                last = &step.proxy;
                let _ = writeln!(text, "\nrules of {last}");
            }
            self.step(step, &mut text);
        }
        if !self.report.head.is_empty() {
            text.push_str("\nrequest to the server\n");
            self.report.head.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        text.push('\n');
        self.end(&mut text);
        let open: Vec<String> = self.report.open().filter_map(|step| step.line.as_ref().map(at)).collect();
        if !open.is_empty() {
            let _ = writeln!(
                text,
                "this holds if what is not known does not match; it decides in {}",
                open.join(", ")
            );
        }
        text
    }

    fn step(&self, step: &Step, text: &mut String) {
        let (_, outcome) = word(&step.outcome);
        let what = match &step.line {
            Some(line) => format!("{}  {}", at(line), self.read.text(line)),
            None => step.keyword.to_owned(),
        };
        let _ = writeln!(text, "  {outcome:<11}  {what}");
        if let Outcome::Unknown(needs) = &step.outcome {
            let _ = writeln!(text, "               cannot be known: it looks at {needs}");
        }
        for own in &step.effects {
            let _ = writeln!(text, "               {}", effect(own));
        }
    }

    fn end(&self, text: &mut String) {
        let _ = match &self.report.end {
            End::Answer { line, status, head, why } => {
                let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                let _ = writeln!(text, "result: the proxy answers {status}{}{why}", by(line));
                head.iter().try_for_each(|line| writeln!(text, "  {line}"))
            }
            End::Closed { line, how } => writeln!(text, "result: {how}{}", by(line)),
            End::Unknown { line, needs } => {
                writeln!(
                    text,
                    "result: it cannot be known where the request goes{}: that depends on {needs}",
                    by(line)
                )
            }
            End::Server { backend, by, servers, unknown } => {
                let one = servers.len() == 1;
                let which = if one { "a server" } else { "one of these servers" };
                let _ = writeln!(text, "result: the request goes to {which} of backend '{backend}' ({by})");
                for Candidate { name, weight, backup, redirects } in servers {
                    let address = self.address(backend, name).unwrap_or_default();
                    let backup = if *backup { ", backup" } else { "" };
                    let redirects = redirects.as_ref();
                    let redirects = redirects
                        .map(|to| format!(", GET and HEAD are redirected to {to}"))
                        .unwrap_or_default();
                    let _ = writeln!(text, "  {name} {address} (weight {weight}{backup}{redirects})");
                }
                match unknown.is_none() {
                    true => Ok(()),
                    false => writeln!(text, "  which one depends on {unknown}"),
                }
            }
        };
    }

    pub(super) fn json(&self) -> String {
        let report = self.report;
        let value = json!({
            "version": 1,
            "frontend": self.frontend(),
            "listener": self.listener(),
            "rules": report.steps.iter().map(|step| self.step_value(step)).collect::<Vec<_>>(),
            "request": report.head,
            "result": self.end_value(),
            "certain": report.open().next().is_none(),
        });
        format!("{value:#}\n")
    }

    fn step_value(&self, step: &Step) -> Value {
        let needs = match &step.outcome {
            Outcome::Unknown(needs) => needs.words().collect(),
            _ => Vec::new(),
        };
        let effect = |effect: &Effect| match effect {
            Effect::Variable(name, value) => json!({ "kind": "variable", "name": name, "value": value }),
            Effect::Added(name, value) => json!({ "kind": "added", "name": name, "value": value }),
            Effect::Removed(name, value) => json!({ "kind": "removed", "name": name, "value": value }),
            Effect::Line(line) => json!({ "kind": "first-line", "value": line }),
            Effect::Note(note) => json!({ "kind": "note", "value": note }),
            Effect::Unknown(needs) => {
                json!({ "kind": "uncertain", "needs": needs.words().collect::<Vec<_>>() })
            }
        };
        json!({
            "proxy": step.proxy,
            "list": step.keyword,
            "file": step.line.as_ref().map(|line| &line.file),
            "line": step.line.as_ref().map(|line| line.number),
            "text": step.line.as_ref().map(|line| self.read.text(line)),
            "outcome": word(&step.outcome).0,
            "needs": needs,
            "decides": step.decides,
            "effects": step.effects.iter().map(effect).collect::<Vec<_>>(),
        })
    }

    fn end_value(&self) -> Value {
        let (file, number) = match &self.report.end {
            End::Answer { line: Some(line), .. }
            | End::Closed { line: Some(line), .. }
            | End::Unknown { line: Some(line), .. } => (Some(&line.file), Some(line.number)),
            _ => (None, None),
        };
        let mut value = match &self.report.end {
            End::Answer { status, head, why, .. } => {
                json!({ "kind": "answer", "status": status, "head": head, "why": why })
            }
            End::Closed { how, .. } => json!({ "kind": "closed", "how": how }),
            End::Unknown { needs, .. } => {
                json!({ "kind": "unknown", "needs": needs.words().collect::<Vec<_>>() })
            }
            End::Server { backend, by, servers, unknown } => {
                let server = |server: &Candidate| {
                    json!({
                        "name": server.name,
                        "address": self.address(backend, &server.name),
                        "weight": server.weight,
                        "backup": server.backup,
                        "redirects": server.redirects,
                    })
                };
                return json!({
                    "kind": "server",
                    "backend": backend,
                    "by": by,
                    "servers": servers.iter().map(server).collect::<Vec<_>>(),
                    "needs": unknown.words().collect::<Vec<_>>(),
                });
            }
        };
        value["file"] = json!(file);
        value["line"] = json!(number);
        value
    }
}
