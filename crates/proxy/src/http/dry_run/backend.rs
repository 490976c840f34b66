//! What a backend does with a request: its rules, the choice of the server, the rules for its response.

use super::super::edit;
use super::{Candidate, DryRun, Effect, End, NO_MEMORY, Next, Outcome, Snapshot, Step};
use crate::explain::{Effects, line_of, of_key};
use manylane_balance::{Index, Input, Key};
use manylane_config::table::Ruleset;
use manylane_expr::{Direction, Needs};
use manylane_h1::{Body, Persist, Request, has_close_option, restrict_te, set_connection, settle_request};
use manylane_http::{EditError, Known, Method, Version};
use manylane_plan::clock::now;
use manylane_plan::generation::{Backend, CloseMode, Persist as Obeyed, Rule};
use manylane_rules::{Answer, chosen_server, forward, key};
use std::net::SocketAddr;
use std::slice;

/// The choice of the server so far.
#[derive(Default)]
struct Choice {
    /// The server, and what chose it.
    server: Option<(Index, &'static str)>,
    /// Absent inputs on which the choice depends.
    unknown: Needs,
}

impl<'a> DryRun<'a> {
    pub(super) fn in_backend(&mut self, backend: &'a Backend) -> Result<End, String> {
        let rules = &*backend.rules;
        let listens = std::ptr::eq(rules, &*self.frontend.rules);
        let persist = self.list("force-persist", &rules.persist, |_, rule, _, _| Next::End(rule.action));
        let obeyed = backend.http.persist || persist == Some(Obeyed::Force);
        let ignored = persist == Some(Obeyed::Ignore);
        if !listens {
            let end = match self.closing_rules(Ruleset::TcpRequestContent, &rules.content) {
                Some(end) => {
                    self.not_reached("http-request", &rules.request);
                    Some(end)
                }
                None if self.http => self.message_rules(rules, &backend.http)?,
                None => None,
            };
            if let Some(end) = end {
                self.not_reached("use-server", &rules.use_server);
                return Ok(end);
            }
        }
        let mut choice = Choice::default();
        self.by_rule(backend, obeyed, &mut choice);
        self.by_cookie(backend, (obeyed, ignored), &mut choice)?;
        let assigned = choice.server.is_some();
        let mut finds = false;
        self.list::<_, ()>("stick", &rules.stick, |_, rule, _, _| {
            finds |= rule.action.finds;
            Next::Rule
        });
        if finds && !assigned {
            choice.unknown |= Needs::TABLE;
        }
        let end = match self.choose(backend, choice) {
            Some(end) => end,
            None => {
                let why = format!("no server of backend '{}' takes requests", backend.name);
                return self.no_server(self.http, why);
            }
        };
        // Requests with these methods go to no server that has 'redir', whatever their length.
        let method = self.request.as_ref().map(|request| request.head.method_kind());
        let all_redirect = |servers: &[Candidate]| servers.iter().all(|own| own.redirects.is_some());
        let redirected = matches!(method, Some(Method::Get | Method::Head))
            && matches!(&end, End::Server { servers, .. } if all_redirect(servers));
        if self.http && !self.prepare(backend, &end)? && !redirected {
            let why = "the rules leave a 'Content-Length' that is not the length of the body".to_owned();
            return self.answered(None, Some(why), Answer::Usual(500));
        }
        self.responses(backend);
        Ok(end)
    }

    /// `use-server`
    fn by_rule(&mut self, backend: &'a Backend, obeyed: bool, choice: &mut Choice) {
        let servers = backend.balancer.servers();
        let mut unknown = Needs::NONE;
        let server = self.list("use-server", &backend.rules.use_server, |run, rule, missing, effects| {
            let mut note = |text: String| effects.push(Effect::Note(text));
            if !missing.is_none() {
                unknown = missing;
                return Next::EndOfList;
            }
            // Ignores the state of the server (`true`), which the notes below report.
            let found = chosen_server(slice::from_ref(rule), &run.eval(), run.phase(), servers, true);
            match found {
                None => note("no server has the resulting name".into()),
                Some(index) if obeyed || servers[index].state().serves_its_own() => {
                    return Next::End(index);
                }
                Some(index) => {
                    note(format!("server '{}' takes no requests", servers[index].name()));
                    return Next::Rule;
                }
            }
            Next::EndOfList
        });
        choice.server = server.map(|index| (index, "use-server"));
        choice.unknown |= unknown;
    }

    /// `cookie`
    fn by_cookie(
        &mut self,
        backend: &Backend,
        (obeyed, ignored): (bool, bool),
        choice: &mut Choice,
    ) -> Result<(), String> {
        let (Some(cookie), Some(request)) = (&backend.http.cookie, &mut self.request) else { return Ok(()) };
        let persist = edit::persist_cookie(&request.head, cookie, backend, now().seconds);
        edit::hide(&mut request.head, cookie).map_err(|error| error.to_string())?;
        let servers = backend.balancer.servers();
        let usable = |index: &Index| obeyed || servers[*index].state().serves_its_own();
        let note = match persist.server {
            None if persist.there => "the cookie names no server, or is too old".to_owned(),
            None => "the request does not have the cookie".to_owned(),
            Some(index) => {
                let name = servers[index].name();
                match (choice.server.is_some(), ignored, usable(&index)) {
                    (true, ..) => format!("it names server '{name}', but a rule has chosen"),
                    (_, true, _) => format!("it names server '{name}', but 'ignore-persist' holds"),
                    (.., false) => format!("it names server '{name}', which takes no requests"),
                    (false, false, true) => {
                        choice.server = Some((index, "cookie"));
                        choice.unknown = Needs::NONE;
                        format!("it names server '{name}'")
                    }
                }
            }
        };
        let outcome = match persist.server {
            Some(_) => Outcome::Matched,
            None => Outcome::NotMatched,
        };
        self.step("cookie", outcome, true, vec![Effect::Note(note)]);
        Ok(())
    }

    fn source(&self) -> Option<SocketAddr> {
        self.scopes.memory.source.get().or(self.peers.source)
    }

    /// Returns the chosen server, or the candidates; `None` without any.
    fn choose(&self, backend: &Backend, choice: Choice) -> Option<End> {
        let balancer = &backend.balancer;
        let mut unknown = choice.unknown;
        let (by, servers) = match (choice.server, backend.of_client) {
            (Some((index, by)), _) => (by.to_owned(), vec![index]),
            (None, Some(index)) => ("dispatch, or the client's destination".to_owned(), vec![index]),
            (None, None) => {
                let balance = &backend.rules.balance;
                let missing = self.missing(|variables| {
                    let key = balance.as_ref().map_or(Needs::NONE, |key| key.needs(variables));
                    key | of_key(&backend.key)
                });
                unknown |= missing;
                let key = if missing.is_none() { self.key(backend) } else { Key::None };
                let input = Input { now: self.local.here().now(), key, avoid: None };
                let picked = match (key, balancer.algorithm().goes_by_key()) {
                    (Key::None, _) | (_, false) => None,
                    _ if !unknown.is_none() => None,
                    _ => balancer.pick(&self.local.reader(), &input).ok(),
                };
                let by = format!("balance {}", backend.algorithm.name);
                (by, picked.map_or_else(|| balancer.serving().collect(), |index| vec![index]))
            }
        };
        let candidate = |index: Index| {
            let server = &backend.servers[index.get()];
            Candidate {
                name: server.name.clone(),
                weight: balancer.servers()[index].state().weight(),
                backup: server.backup,
                redirects: server.redirect.as_deref().map(super::text),
            }
        };
        let servers: Vec<_> = servers.into_iter().map(candidate).collect();
        let unknown = if servers.len() > 1 || choice.server.is_none() { unknown } else { Needs::NONE };
        (!servers.is_empty()).then(|| End::Server { backend: backend.name.clone(), by, servers, unknown })
    }

    /// Returns the key for the balancing algorithm.
    fn key(&self, backend: &Backend) -> Key<'_> {
        if backend.key.is_expression() {
            return key(&self.eval(), self.phase(), backend);
        }
        let Some(request) = &self.request else { return backend.key.of_connection(self.source()) };
        match backend.key.of_request(self.source(), &request.head) {
            Key::None if backend.key.wants_body() && request.head.method_kind() == Method::Post => {
                backend.key.of_body(backend.balancer.algorithm().hash_function(), &self.body)
            }
            key => key,
        }
    }

    /// Makes the changes that a request needs, whichever server it goes to. Returns false if the head then
    /// does not agree with the body: the proxy answers such a request with 500.
    fn prepare(&mut self, backend: &Backend, end: &End) -> Result<bool, String> {
        let Some(mut request) = self.request.take() else { return Ok(true) };
        let before = Snapshot::of(&request.head);
        let edited = self.edit(backend, &mut request, end);
        let effects = before.changes(Snapshot::of(&request.head));
        self.request = Some(request);
        let agrees = edited.map_err(|_| NO_MEMORY)?;
        if !effects.is_empty() {
            self.step("options of the proxies", Outcome::Matched, false, effects);
        }
        Ok(agrees)
    }

    fn edit(&self, backend: &Backend, request: &mut Request, end: &End) -> Result<bool, EditError> {
        let head = &mut request.head;
        if request.body == Body::Chunked && head.version() < Version::HTTP_11 {
            head.set_version(Version::HTTP_11)?;
        }
        if let Some(how) = &backend.http.forwarded {
            forward(how, &self.eval(), self.phase(), head)?;
        }
        let destination = || self.scopes.memory.destination.get().or(self.peers.destination);
        edit::addresses(head, self.frontend, backend, self.source(), destination)?;
        if let Some(name) =
            self.frontend.http.unique_id_header.as_ref().filter(|_| self.frontend.http.unique_id.is_some())
        {
            self.eval().make_id(Some(head));
            let id = self.eval().unique_id(<[u8]>::to_vec).unwrap_or_default();
            head.add_field(&**name, &id)?;
        }
        restrict_te(head)?;
        let close = match self.frontend.http.close {
            CloseMode::Server => CloseMode::Server,
            _ => CloseMode::KeepAlive,
        };
        let closes = close.max(backend.http.close) >= CloseMode::Server && !backend.http.pretend_keep_alive
            || has_close_option(head);
        let upgrades = request.connection.upgrade || head.method_kind() == Method::Connect;
        let persist = match (upgrades, closes) {
            (true, _) => Persist::Upgrade,
            (false, true) => Persist::Close,
            (false, false) => Persist::KeepAlive,
        };
        set_connection(head, request.connection, persist)?;
        if let (Some(name), End::Server { servers, .. }) = (&backend.http.send_name, end)
            && let [server] = &servers[..]
        {
            head.set_field(&**name, server.name.as_bytes())?;
        }
        if head.is_reframed() && settle_request(head, request.body)?.is_none() {
            return Ok(false);
        }
        if request.body == Body::Chunked && !head.has(Known::TRANSFER_ENCODING) {
            head.set_field(Known::TRANSFER_ENCODING, b"chunked")?;
        }
        Ok(true)
    }

    /// Reports the rules for the server's response. Marks those that do not depend on the response.
    fn responses(&mut self, backend: &'a Backend) {
        self.side = Some(Direction::Response);
        let rules = &*backend.rules;
        self.expect("tcp-response content", &rules.response_content);
        self.expect("stick store-response", &rules.store_response);
        if !self.http {
            return;
        }
        for (name, rules) in self.of_responses() {
            self.name = name;
            self.expect("http-response", &rules.response);
        }
        for (name, rules) in self.of_responses() {
            self.name = name;
            self.expect("http-after-response", &rules.after_response);
        }
    }

    fn expect<A: Effects>(&mut self, keyword: &'static str, rules: &[Rule<A>]) {
        let mut over = false;
        for rule in rules {
            let mut effects = Vec::new();
            let judged = if over { None } else { Some(self.judge(rule.condition.as_ref())) };
            let outcome = match judged {
                None => Outcome::NotReached,
                Some(Ok(false)) => Outcome::NotMatched,
                Some(Err(needs)) => Outcome::Unknown(needs),
                Some(Ok(true)) => {
                    let ends = rule.action.ends();
                    over = ends.is_some();
                    effects.extend(ends.map(Effect::Note));
                    Outcome::Matched
                }
            };
            let line = line_of(self.generation, rule);
            self.steps.push(Step {
                proxy: self.name.into(),
                keyword,
                line,
                outcome,
                decides: false,
                effects,
            });
        }
    }
}
