//! Servers that are added or removed while the program runs, or whose requests begin to be counted: `add
//! server`, `del server`, `set maxconn server`.
//!
//! # Protocol
//! 1. The serving generation does not change. A generation with one server more or less is made beside it. It
//!    shares everything except the list of servers and the balancer of one backend: settings, rules, maps,
//!    counters, and the servers themselves with all their results.
//! 2. It replaces the other generation as after a reload (`lane/succeed.rs`). A stream holds the generation
//!    that it began on, and that holds its servers, so a stream finds its server until the end.
//! 3. Servers keep their numbers, so a number means the same server in both generations. The next added
//!    server takes the slot of a removed one.
//! 4. Settings that an added server gets from its backend come from [`SavedConfig`] and not from the files,
//!    which may have changed.
//! 5. Checks of servers that both generations have continue on the same lanes, also running ones
//!    (`run/checks.rs`). Idle connections move to the new generation (`lane/idle.rs`).
//!
//! # Cost
//! Nothing for requests. A change copies the pointers to its backend's servers, on a thread beside the lanes.
//! Each lane takes over once: one comparison for each backend, one pointer for each server, and work for the
//! servers of the changed backend.

use super::refuse::Refuse;
use super::server::{self, Server};
use super::tls::SniName;
use super::{Backend, Generation, Parts, ServerNumber, agent, balance, checks, proxies};
use manylane_balance::{Admin, Index, ServerSpec};
use manylane_config::cond::Build;
use manylane_config::diag::{Diagnostic, Diagnostics, Severity};
use manylane_config::lex::{Environment, Word};
use manylane_config::load;
use manylane_config::source::{Pos, Sources};
use manylane_config::table::{KeywordContext, ServerOptions, Status, Table};
use manylane_config::tree::{self, Config, Mode, Proxy, Set};
use manylane_sched::Time;
use manylane_sync::Arc;
use std::fmt::{self, Write};

/// Most generations that wait for their last streams while servers are added or removed: each takes a little
/// memory on each lane.
pub const MOST_BEHIND: usize = 256;

/// A requested change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `add server`: name of the backend, name, address and options of the server.
    Add(Box<str>, Box<str>, Vec<String>),
    /// `del server`: name of the backend and of the server.
    Delete(Box<str>, Box<str>),
    /// `set maxconn server` for a server without `maxconn` in the configuration, whose requests are not
    /// counted. Running requests stay uncounted.
    Limit(Box<str>, Box<str>, u32),
}

/// Makes changes for callers that cannot wait for them: agents.
pub trait Changes: Send + Sync + fmt::Debug {
    /// Asks for a change. Called on any lane, repeatedly until the change is made.
    fn ask(&self, change: Change);
}

/// Result of a change.
#[derive(Debug)]
pub struct Changed {
    /// The generation that will serve.
    generation: Generation,
    /// Answer to the command once it serves.
    pub answer: &'static str,
    effect: Effect,
}

/// Reason why a server cannot be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRemoved {
    /// The reason in HAProxy's words.
    pub why: &'static str,
    /// True if the server has streams, whose end will allow the removal.
    pub for_now: bool,
}

/// Steps that remain until the generation serves.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    /// The backend whose servers have changed.
    backend: usize,
    /// A server that begins (true) or ceases to track another: tracked server, tracking server.
    follower: Option<(ServerNumber, ServerNumber, bool)>,
}

impl Changed {
    /// Returns the generation that will serve, and the steps for that moment.
    pub fn begin(self) -> (Generation, Effect) {
        (self.generation, self.effect)
    }
}

impl Effect {
    /// Takes the steps, once the generation serves.
    pub fn take(self, generation: &Generation) {
        if let Some((tracked, follower, follows)) = self.follower {
            let root = &generation.server(tracked).1.followers;
            if follows {
                root.add(follower)
            } else {
                root.remove(follower)
            }
            generation.settle_followers(Time::now());
        }
        generation.backends[self.backend].settle_past(Time::now());
    }
}

/// Inputs of new servers besides their own lines: the settings of the process and of the backends, without
/// the backends' contents.
#[derive(Debug)]
pub(super) struct SavedConfig(Config);

impl SavedConfig {
    /// `set-var` and `set-var-fmt` of `global`.
    pub(super) fn variables(&self) -> &[tree::Statement] {
        &self.0.global.variables
    }

    pub(super) fn of(config: &Config) -> Self {
        // Collects references first, so that the vector of large proxies gets its final size at once.
        let backends: Vec<_> = config.proxies.iter().filter(|proxy| proxy.kind.is_backend()).collect();
        let bare =
            |proxy: &Proxy| Proxy::bare(proxy.kind, proxy.name.clone(), proxy.pos, proxy.settings.clone());
        Self(Config {
            global: config.global.clone(),
            proxies: backends.into_iter().map(bare).collect(),
            files: config.files.clone(),
            environment: config.environment.clone(),
            ..Config::default()
        })
    }
}

impl Generation {
    /// Returns the generation that serves after a change.
    ///
    /// # Errors
    /// A sentence; nothing has changed.
    pub fn with(&self, change: &Change) -> Result<Changed, String> {
        match change {
            Change::Add(backend, name, words) => self.with_server(backend, name, words),
            Change::Delete(backend, name) => self.without_server(backend, name),
            Change::Limit(backend, name, most) => self.with_limit(backend, name, *most),
        }
    }

    /// Copies the generation with another backend; `servers` is the new count of server numbers.
    fn with_backend(&self, backend: Backend, servers: usize) -> Self {
        let mut backends = self.backends.clone();
        let number = backend.number;
        backends[number] = Arc::new(backend);
        let parts: Arc<Parts> = self.parts.clone();
        let (pages, changes) = (self.pages.clone(), self.changes.clone());
        Self { parts, backends, servers, pages, changes, bounds: Vec::new(), ring_servers: Vec::new() }
    }

    fn with_server(&self, backend: &str, name: &str, words: &[String]) -> Result<Changed, String> {
        let backend = self.backend_named(backend).ok_or("No such backend.")?;
        if backend.mode == Mode::Log {
            return Err(" Dynamic servers cannot be used with log backends.".into());
        }
        let algorithm = backend.balancer.algorithm();
        if algorithm.is_static() || !algorithm.grows() || backend.of_client.is_some() {
            return Err("Backend must use a dynamic load balancing to support dynamic servers.".into());
        }
        if backend.balancer.servers().by_name(name).is_some() {
            return Err("Already exists a server with the same name in backend.".into());
        }
        let (line, track) = line(backend.mode, name, words)?;
        let speaks_http = backend.mode == Mode::Http;
        if line.options.proto.is_some_and(|set| (set.value == "none") == speaks_http) {
            return Err("MUX protocol is not usable for server.".into());
        }
        let tracks = track.map(|track| self.tracked(backend, &track, &line.options)).transpose()?;
        let position = backend.free_slot();
        let (number, servers) = match backend.servers.get(position) {
            Some(before) => (before.number, self.servers),
            None => (self.servers, self.servers + 1),
        };
        let given = line.options.id.map(|set| set.value);
        if let Some(own) = given.and_then(|id| backend.listed().find(|own| own.id == id)) {
            return Err(format!("'id' : custom id {} already used (server '{}').", own.id, own.name));
        }
        let ids: std::collections::HashSet<u32> = backend.listed().map(|own| own.id).collect();
        let id = given.or_else(|| (1..).find(|id| !ids.contains(id))).ok_or("There is no number left.")?;
        let mut made = self.made(backend, line, number, position)?;
        let starts = made.1;
        made.0.id = id;
        made.0.tracks = tracks;
        for check in made.0.check.iter().chain(&made.0.agent) {
            check.board.disable(true); // disabled until an operator enables it
        }
        if let (false, Some(check)) = (starts, &made.0.check) {
            check.board.pause(); // like the check of any server in maintenance
        }
        let server = Arc::new(made.0);
        let mut all = backend.servers.clone();
        match all.get_mut(position) {
            Some(free) => *free = server.clone(),
            None => all.push(server.clone()),
        }
        let mut order = backend.order.clone();
        order.push(position);
        let backend = backend.with(all, order, position)?;
        if let (false, Some(index)) = (starts, backend.balancer.servers().index(position)) {
            backend.balancer.set_admin(index, Admin::Maintenance, Time::now());
        }
        let number = backend.number;
        let follower =
            tracks.map(|tracked| (tracked, ServerNumber { backend: number, server: position }, true));
        let generation = self.with_backend(backend, servers);
        Ok(Changed {
            generation,
            answer: "New server registered.",
            effect: Effect { backend: number, follower },
        })
    }

    /// Builds the server of a line. Also returns whether it begins enabled.
    fn made(
        &self,
        backend: &Backend,
        mut line: tree::Server,
        number: usize,
        index: usize,
    ) -> Result<(Server, bool), String> {
        let saved = &self.saved.0;
        let bare = saved
            .proxies
            .iter()
            .find(|proxy| proxy.name.bytes() == backend.name.as_bytes())
            .ok_or("No such backend.")?;
        let starts = line.options.disabled.is_some_and(|set| !set.value);
        line.options.init_addr = Some(Set { value: Word::plain("none", line.pos), pos: line.pos });
        let mut found = Diagnostics::new(false);
        let mut refuse = Refuse::new(&mut found, saved, true);
        refuse.tls = self.certificates.clone();
        let mut server =
            server::server(&line, &bare.settings, &self.process, number, index, None, &mut refuse);
        server.added = true;
        let proxy = Proxy { servers: vec![Box::new(line)], ..bare.clone() };
        let mut built = [server];
        let script = (backend.check_script.clone(), backend.check_wording.clone());
        checks::checks(&proxy, &self.process, &mut built, &script, &Default::default(), &mut refuse);
        agent::agents(&proxy, &self.process, &mut built, &mut refuse);
        let [server] = built;
        match first_alert(&found, None) {
            Some(why) => Err(why),
            None => Ok((server, starts)),
        }
    }

    /// Returns the server that a new server is to track.
    fn tracked(&self, own: &Backend, word: &str, options: &ServerOptions) -> Result<ServerNumber, String> {
        if options.check.is_some_and(|set| set.value) || options.agent_check.is_some_and(|set| set.value) {
            return Err("unable to enable checks and tracking at the same time!".into());
        }
        let (backend, name) = match word.split_once('/') {
            Some((backend, name)) => (self.backend_named(backend), name),
            None => (Some(own), word),
        };
        let backend = backend.ok_or_else(|| {
            format!(
                "unable to find required proxy '{}' for tracking.",
                word.split('/').next().unwrap_or_default()
            )
        })?;
        let tracked = backend.listed().find(|server| *server.name == *name);
        let tracked =
            tracked.ok_or_else(|| format!("unable to find required server '{name}' for tracking."))?;
        if tracked.added {
            return Err(format!(
                "unable to use {}/{name} for tracking as it is a dynamic server.",
                backend.name
            ));
        }
        let number = ServerNumber { backend: backend.number, server: tracked.index };
        if !self.server(self.root_of(number)).1.is_checked() {
            let what = "it does not have any check nor agent enabled";
            return Err(format!("unable to use {}/{name} for tracking as {what}.", backend.name));
        }
        Ok(number)
    }

    /// Returns true if the configuration disables a backend of this name.
    pub fn has_disabled(&self, name: &str) -> bool {
        let named = |proxy: &Proxy| proxy.name.bytes() == name.as_bytes();
        self.saved.0.proxies.iter().any(named) && self.backend_named(name).is_none()
    }

    /// Returns true if one of the generations was made of the other with changed servers.
    pub fn is_related(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.parts, &other.parts)
    }

    /// Iterates over the servers that a [related](Self::is_related) generation does not have. A backend that
    /// both share costs one comparison.
    pub fn others_than<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = (&'a Backend, &'a Arc<Server>)> {
        let changed =
            self.backends.iter().zip(&other.backends).filter(|(own, other)| !Arc::ptr_eq(own, other));
        changed.flat_map(|(own, other)| {
            own.listed().filter(|server| !other.has(server)).map(|server| (&**own, server))
        })
    }

    /// Returns the servers, as `backend/server`, that were added to `before` and that this generation does
    /// not have.
    pub fn misses(&self, before: &Self) -> Vec<String> {
        let added = before
            .backends
            .iter()
            .flat_map(|backend| backend.listed().filter(|own| own.added).map(move |own| (backend, own)));
        let has = |backend: &Backend, name: &str| {
            self.backend_named(&backend.name)
                .is_some_and(|own| own.balancer.servers().by_name(name).is_some())
        };
        added
            .filter(|(backend, own)| !has(backend, &own.name))
            .map(|(backend, own)| format!("{}/{}", backend.name, own.name))
            .collect()
    }

    fn without_server(&self, backend: &str, name: &str) -> Result<Changed, String> {
        let (backend, server, index) = self.removable(backend, name).map_err(|stays| stays.why)?;
        let order = backend.order.iter().copied().filter(|&number| number != server.index).collect();
        let (number, position) = (backend.number, server.index);
        let backend = backend.with(backend.servers.clone(), order, position)?;
        if let Some(index) = backend.balancer.servers().index(index.get()) {
            backend.balancer.set_admin(index, Admin::Maintenance, Time::now());
        }
        let follower =
            server.tracks.map(|tracked| (tracked, ServerNumber { backend: number, server: position }, false));
        let generation = self.with_backend(backend, self.servers);
        Ok(Changed { generation, answer: "Server deleted.", effect: Effect { backend: number, follower } })
    }

    fn with_limit(&self, backend: &str, name: &str, most: u32) -> Result<Changed, String> {
        let backend = self.backend_named(backend).ok_or("No such backend.")?;
        let index = backend.balancer.servers().by_name(name).ok_or("No such server.")?;
        let number = backend.number;
        let backend = backend.limited(&[(index.get(), most)])?;
        let generation = self.with_backend(backend, self.servers);
        Ok(Changed { generation, answer: "", effect: Effect { backend: number, follower: None } })
    }

    /// Returns a server that may be removed now.
    ///
    /// # Errors
    /// The reason why it may not, in HAProxy's words.
    pub fn removable(&self, backend: &str, name: &str) -> Result<(&Backend, &Server, Index), NotRemoved> {
        let stays = |why| NotRemoved { why, for_now: false };
        let backend = self.backend_named(backend).ok_or(stays("No such backend."))?;
        let servers = backend.balancer.servers();
        let index = servers
            .by_name(name)
            .filter(|index| !backend.servers[index.get()].stands_in)
            .ok_or(stays("No such server."))?;
        let server = &backend.servers[index.get()];
        if server.is_named() || !server.followers.all().is_empty() {
            return Err(stays(
                "This server cannot be removed at runtime due to other configuration elements pointing to \
                    it.",
            ));
        }
        if !servers[index].state().standing().is_in_maintenance() {
            return Err(stays("Only servers in maintenance mode can be deleted."));
        }
        if server.streams_now() > 0 || backend.balancer.waiting(index) > 0 {
            return Err(NotRemoved {
                why: "Server still has connections attached to it, cannot remove it.",
                for_now: true,
            });
        }
        Ok((backend, server, index))
    }
}

impl Backend {
    /// Returns true if the server is in this backend.
    pub fn has(&self, server: &Arc<Server>) -> bool {
        let own = self.servers.get(server.index).is_some_and(|own| Arc::ptr_eq(own, server));
        let servers = self.balancer.servers();
        own && servers.index(server.index).is_some_and(|index| !servers[index].spec().gone)
    }

    /// Returns the first free slot, or the one behind the last.
    fn free_slot(&self) -> usize {
        let mut taken = vec![false; self.servers.len()];
        self.order.iter().for_each(|&number| taken[number] = true);
        let stands_in = |number: usize| self.servers[number].stands_in;
        (0..taken.len()).find(|&number| !taken[number] && !stands_in(number)).unwrap_or(taken.len())
    }

    /// Copies the backend with other servers; the server in slot `changed` is new or removed.
    fn with(&self, servers: Vec<Arc<Server>>, order: Vec<usize>, changed: usize) -> Result<Self, String> {
        self.following(servers, order, |number| number != changed, &[])
    }

    /// Copies the backend with limits for servers that had none.
    pub(super) fn limited(&self, limits: &[(usize, u32)]) -> Result<Self, String> {
        let next = self.following(self.servers.clone(), self.order.clone(), |_| true, limits)?;
        for (number, most) in limits {
            if let Some(index) = next.balancer.servers().index(*number) {
                next.balancer.set_maxconn(index, *most, Time::now());
            }
        }
        Ok(next)
    }

    fn following(
        &self,
        servers: Vec<Arc<Server>>,
        order: Vec<usize>,
        stays: impl Fn(usize) -> bool,
        limits: &[(usize, u32)],
    ) -> Result<Self, String> {
        let mut listed = vec![false; servers.len()];
        order.iter().for_each(|&number| listed[number] = true);
        let before = self.balancer.servers();
        let specs = servers.iter().zip(listed).enumerate().map(|(number, (server, listed))| {
            let spec = balance::spec(server);
            let given = limits.iter().find(|(own, _)| *own == number).map(|(_, most)| *most);
            // A limit that a command has set stays.
            let was =
                before.index(number).filter(|_| stays(number)).map(|index| before[index].spec().maxconn);
            let maxconn = if spec.maxconn == 0 { given.or(was).unwrap_or(0) } else { spec.maxconn };
            ServerSpec { gone: !listed && !server.stands_in, maxconn, ..spec }
        });
        let balancer = self.balancer.follow(specs, &stays, Time::now()).map_err(|error| error.to_string())?;
        Ok(Self {
            parts: self.parts.clone(),
            order,
            of_client: self.of_client,
            idle_pools: Arc::new(proxies::idle_pools(&servers)),
            balancer,
            servers,
            fullconn: self.fullconn,
        })
    }
}

/// Returns an option that a dynamic server cannot have.
fn refused(options: &ServerOptions) -> Option<&'static str> {
    refusals(options).into_iter().find_map(|(given, name)| given.then_some(name))
}

/// Returns the names of the options that `add server` takes, in alphabetical order.
pub fn options_of_added_servers() -> Vec<&'static str> {
    let taken = |name: &str| {
        // An 'sni' that is the same for all connections is taken.
        let option = name.strip_prefix("no-").unwrap_or(name);
        let is_refused = refusals(&ServerOptions::default()).iter().any(|(_, refused)| *refused == option);
        name == "sni" || name != "non-stick" && !is_refused
    };
    let rows = Table::get().rows().iter().filter(|row| {
        row.contexts.contains(KeywordContext::ServerOption)
            && matches!(row.status, Status::Built(_) | Status::Words(_))
    });
    let mut names: Vec<_> = rows.map(|row| row.name).filter(|name| taken(name)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Options that a dynamic server cannot have, and whether they are given: HAProxy refuses them, too, or they
/// depend on the rest of the configuration.
fn refusals(options: &ServerOptions) -> [(bool, &'static str); 21] {
    let ServerOptions {
        guid,
        hash_key,
        healthcheck,
        init_addr,
        init_state,
        log_bufsize,
        log_proto,
        max_reuse,
        namespace,
        pool_conn_name,
        redir,
        ..
    } = options;
    let ServerOptions {
        resolve_net,
        resolve_opts,
        resolve_prefer,
        resolvers,
        shard,
        tcp_ut,
        cc,
        proxy_tlvs,
        tls,
        ..
    } = options;
    [
        (guid.is_some(), "guid"),
        (hash_key.is_some(), "hash-key"),
        (healthcheck.is_some(), "healthcheck"),
        (init_addr.is_some(), "init-addr"),
        (init_state.is_some(), "init-state"),
        (log_bufsize.is_some(), "log-bufsize"),
        (log_proto.is_some(), "log-proto"),
        (max_reuse.is_some(), "max-reuse"),
        (namespace.is_some(), "namespace"),
        (pool_conn_name.is_some(), "pool-conn-name"),
        (redir.is_some(), "redir"),
        (resolve_net.is_some(), "resolve-net"),
        (resolve_opts.is_some(), "resolve-opts"),
        (resolve_prefer.is_some(), "resolve-prefer"),
        (resolvers.is_some(), "resolvers"),
        (shard.is_some(), "shard"),
        (tcp_ut.is_some(), "tcp-ut"),
        (cc.is_some(), "cc"),
        (!proxy_tlvs.is_empty(), "set-proxy-v2-tlv-fmt"),
        (tls.sni_auto.is_some(), "sni-auto"),
        (tls.sni.as_ref().is_some_and(|set| SniName::constant(set.value.bytes()).is_none()), "sni"),
    ]
}

/// Parses the words behind `backend/server` as a `server` line. The caller looks up the server that it
/// tracks.
fn line(mode: Mode, name: &str, words: &[String]) -> Result<(tree::Server, Option<String>), String> {
    if words.is_empty() {
        return Err("'server' expects <name> and <addr>[:<port>] as arguments.".into());
    }
    let mode = if mode == Mode::Tcp { "tcp" } else { "http" };
    let mut text = format!("backend b\n mode {mode}\n server {}", quoted(name));
    for word in words {
        let _ = write!(text, " {}", quoted(word));
    }
    text.push('\n');
    let mut sources = Sources::new();
    sources.add("add server", text).map_err(|error| error.to_string())?;
    let loaded = load(&sources, &Build::bare(), Environment::new(), false);
    let mut server = loaded.config.proxies.into_iter().next_back().and_then(|mut proxy| proxy.servers.pop());
    let track = server.as_mut().and_then(|server| server.options.track.take()).map(|set| set.value);
    // As in HAProxy; a later `stick` does not help.
    let alone = words.iter().skip(1).any(|word| word == "non-stick").then_some("non-stick");
    if let Some(name) = server.as_ref().and_then(|server| refused(&server.options)).or(alone) {
        return Err(format!("'{name}' option is not accepted for dynamic server"));
    }
    // The tracked server is not in this configuration.
    if let Some(why) = first_alert(&loaded.found, track.as_ref().map(Word::pos)) {
        return Err(why);
    }
    let track = track.map(|word| word.shown().to_string());
    Ok((*server.ok_or("The line is no server's.")?, track))
}

/// Returns the first alert that is not at `known`.
fn first_alert(found: &Diagnostics, known: Option<Pos>) -> Option<String> {
    let counts =
        |one: &&Diagnostic| one.severity == Severity::Alert && (one.pos.is_none() || one.pos != known);
    let alert = found.found().iter().find(counts)?;
    // In HAProxy's words, which name no line.
    let message = alert.message.split(" of a 'server' line").next().unwrap_or_default();
    Some(format!("{}.", message.trim_end_matches('.')))
}

/// Quotes a text as one word of a configuration file.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::super::ServerAddress;
    use super::*;

    /// What `add server help` lists is not refused by name, and what is refused is not listed.
    #[test]
    fn options_of_added_servers_are_those_that_are_taken() {
        let listed = options_of_added_servers();
        for option in ["agent-check", "check", "cookie", "maxconn", "sni", "ssl", "track", "weight"] {
            assert!(listed.contains(&option), "{option} in {listed:?}");
        }
        for option in ["guid", "non-stick", "npn", "resolvers", "set-proxy-v2-tlv-fmt"] {
            assert!(!listed.contains(&option), "{option} in {listed:?}");
        }
        for option in listed {
            let words = ["127.0.0.1:80".to_owned(), option.to_owned()];
            let why = line(Mode::Http, "s", &words).err().unwrap_or_default();
            assert!(!why.contains("not accepted") && !why.contains("unknown keyword"), "{option}: {why}");
        }
    }

    #[test]
    fn a_word_of_a_command_is_one_of_a_line() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (server, track) = line(Mode::Http, "s-1", &words("127.0.0.1:80 weight 5 track b/c backup"))
            .unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((server.name.text(), track.as_deref()), (Some("s-1"), Some("b/c")));
        assert_eq!(server.options.weight.map(|set| set.value), Some(5));
        let mut odd = words("127.0.0.1:80 agent-check agent-port 9 agent-send");
        odd.push("$HOME \"x\" # \\ 'y' track".into());
        let (server, track) = line(Mode::Http, "s", &odd).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(
            server.options.agent_send.as_ref().and_then(|set| set.value.text()),
            odd.last().map(|word| &**word)
        );
        assert_eq!(track, None);
        let (server, track) =
            line(Mode::Http, "s", &words("127.0.0.1:80 cookie track track other agent-send track"))
                .unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(
            (server.options.cookie.as_ref().and_then(|set| set.value.text()), track.as_deref()),
            (Some("track"), Some("other"))
        );
        let (_, track) = line(Mode::Http, "s", &words("127.0.0.1:80 cookie track check"))
            .unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(track, None);
        for (wrong, why) in [
            ("127.0.0.1:80 frob", "unknown keyword 'frob'"),
            ("127.0.0.1:80 resolvers r", "'resolvers' option is not accepted for dynamic server"),
            ("127.0.0.1:80 track", "'track' expects <server>, found none"),
            ("127.0.0.1:80 weight", "weight"),
            ("127.0.0.1:99999", "99999"),
        ] {
            let said = line(Mode::Http, "s", &words(wrong)).expect_err(wrong);
            assert!(said.contains(why), "{wrong}: {said}");
            assert!(!said.contains('\n'), "{wrong}: {said}");
        }
        assert!(line(Mode::Http, "a b!", &words("127.0.0.1:80")).is_err());
    }

    #[test]
    fn an_address_that_leads_nowhere_is_one() {
        let (server, _) =
            line(Mode::Http, "s", &["name.invalid:80".to_owned()]).unwrap_or_else(|why| panic!("{why}"));
        let mut found = Diagnostics::new(false);
        let config = Config::default();
        let mut refuse = Refuse::new(&mut found, &config, true);
        let process = super::super::process::process(&config.global, &mut refuse);
        let init = Set { value: Word::plain("none", server.pos), pos: server.pos };
        let line = tree::Server {
            options: ServerOptions { init_addr: Some(init), ..server.options.clone() },
            ..server
        };
        let made = server::server(&line, &tree::Settings::default(), &process, 0, 0, None, &mut refuse);
        assert_eq!(made.addr.read().address, ServerAddress::Nowhere);
    }
}
