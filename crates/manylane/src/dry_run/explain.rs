//! The output of `manylane explain`.

use super::Read;
use manylane_plan::Generation;
use manylane_proxy::explain::{self, List, Outline, ProxyOutline};
use serde_json::{Value, json};
use std::fmt::Write;

/// The report on a configuration.
pub(super) struct Rendered<'a> {
    pub(super) read: &'a Read,
    pub(super) generation: &'a Generation,
}

impl Rendered<'_> {
    fn frontends(&self) -> Vec<(ProxyOutline, explain::RouteOutline)> {
        let all = self.generation.frontends.iter();
        all.map(|frontend| {
            let explained = explain::frontend(self.generation, &self.read.config, frontend);
            (explained, explain::reached(self.generation, frontend))
        })
        .collect()
    }

    /// Backends in the order in which frontends reach them, then those that none reaches.
    fn backends(&self, frontends: &[(ProxyOutline, explain::RouteOutline)]) -> Vec<(ProxyOutline, bool)> {
        let mut order: Vec<usize> = Vec::new();
        for (_, reached) in frontends {
            let new = reached.backends.iter().filter(|number| !order.contains(number)).copied();
            let new: Vec<usize> = new.collect();
            order.extend(new);
        }
        let reached = order.len();
        let rest = (0..self.generation.backends.len()).filter(|number| !order.contains(number));
        let rest: Vec<usize> = rest.collect();
        order.extend(rest);
        let explained = |(at, number): (usize, usize)| {
            let backend = &self.generation.backends[number];
            (explain::backend(self.generation, &self.read.config, backend), at < reached)
        };
        order.into_iter().enumerate().map(explained).collect()
    }

    fn names(&self, reached: &explain::RouteOutline) -> Vec<&str> {
        reached.backends.iter().map(|number| &*self.generation.backends[*number].name).collect()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let frontends = self.frontends();
        for (explained, reached) in &frontends {
            let _ = writeln!(
                text,
                "{} {} (mode {}), {}",
                explained.kind,
                explained.name,
                explained.mode,
                if explained.listeners.is_empty() {
                    "which listens nowhere".to_owned()
                } else {
                    format!("at {}", explained.listeners.join(", "))
                }
            );
            self.lists(&explained.request, &mut text);
            let names = self.names(reached).join(", ");
            let _ = match (reached.by_name, names.is_empty()) {
                (_, true) => writeln!(text, "  reaches no backend"),
                (true, _) => {
                    writeln!(text, "  reaches, some by names that are made for each request: {names}")
                }
                (false, _) => writeln!(text, "  reaches: {names}"),
            };
            if !explained.response.is_empty() {
                text.push_str("  responses, behind the rules of the backend\n");
                self.lists(&explained.response, &mut text);
            }
            text.push('\n');
        }
        for (explained, is_reached) in &self.backends(&frontends) {
            // The frontend's side of a `listen` stands above.
            let kind = if explained.kind == "listen" { "servers of listen" } else { explained.kind };
            let missed = if *is_reached { "" } else { ", which no frontend reaches" };
            let _ = writeln!(text, "{kind} {} (mode {}){missed}", explained.name, explained.mode);
            self.lists(&explained.request, &mut text);
            if !explained.response.is_empty() {
                text.push_str("  responses\n");
                self.lists(&explained.response, &mut text);
            }
            text.push('\n');
        }
        text
    }

    fn lists(&self, lists: &[List], text: &mut String) {
        for List { keyword, rules } in lists {
            let _ = writeln!(text, "  {keyword}");
            for Outline { line, needs, conditional: _, waits, ends } in rules {
                if let Some(line) = line {
                    let _ = writeln!(text, "    {}:{}  {}", line.file, line.number, self.read.text(line));
                }
                let reads = (!needs.is_none()).then(|| format!("looks at {needs}"));
                let waits = waits.map(|waits| format!("waits for {waits}"));
                let all: Vec<String> = [reads, waits, ends.clone()].into_iter().flatten().collect();
                if !all.is_empty() {
                    let _ = writeln!(text, "        {}", all.join("; "));
                }
            }
        }
    }

    pub(super) fn json(&self) -> String {
        let frontends = self.frontends();
        let backends: Vec<Value> = self
            .backends(&frontends)
            .iter()
            .map(|(explained, is_reached)| {
                let mut value = self.proxy(explained);
                value["reached"] = (*is_reached).into();
                value
            })
            .collect();
        let frontends: Vec<Value> = frontends
            .iter()
            .map(|(explained, reached)| {
                let mut value = self.proxy(explained);
                value["listeners"] = json!(explained.listeners);
                value["backends"] = json!(self.names(reached));
                value["chooses_by_name"] = reached.by_name.into();
                value
            })
            .collect();
        format!("{:#}\n", json!({ "version": 1, "frontends": frontends, "backends": backends }))
    }

    fn proxy(&self, explained: &ProxyOutline) -> Value {
        json!({
            "name": explained.name,
            "kind": explained.kind,
            "mode": explained.mode,
            "request": self.values(&explained.request),
            "response": self.values(&explained.response),
        })
    }

    fn values(&self, lists: &[List]) -> Value {
        let rule = |Outline { line, needs, conditional, waits, ends }: &Outline| {
            json!({
                "file": line.as_ref().map(|line| &line.file),
                "line": line.as_ref().map(|line| line.number),
                "text": line.as_ref().map(|line| self.read.text(line)),
                "conditional": conditional,
                "needs": needs.words().collect::<Vec<_>>(),
                "waits": waits,
                "ends": ends,
            })
        };
        let list = |List { keyword, rules }: &List| {
            let rules: Vec<Value> = rules.iter().map(rule).collect();
            json!({ "list": keyword, "rules": rules })
        };
        lists.iter().map(list).collect()
    }
}
