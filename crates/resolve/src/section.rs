//! A `resolvers` section: the names that callers want to know, and the queries for them.
//!
//! ```text
//!          due              all name servers have failed: the other family
//!  Idle ─────────► Asking ◄──────┐
//!   ▲                │ ├─────────┘   `timeout retry`: the next try
//!   └────────────────┘
//!     an answer, or no tries are left: settled; due again after `timeout resolve`
//! ```

use crate::message::{self, Answer, AnswerError, Code, Families, Kind};
use crate::{Name, Records};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Largest number of names in a section: those of servers, of services with their targets, and of rules.
pub const MOST_NAMES: usize = 65_536;

/// Largest number of names without a user that are kept: those that rules asked for lately.
pub const MOST_KEPT: usize = 4096;
/// Shortest time between two queries for a name, whatever the timeouts of a section say.
pub const SHORTEST_TIMEOUT: Duration = Duration::from_millis(10);

/// `hold`: how long the last good answer counts, by the result of later queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldTimes {
    /// The name does not exist.
    pub nx: Duration,
    /// Name servers refused to answer.
    pub refused: Duration,
    /// No name server answered.
    pub timeout: Duration,
    /// Any other result.
    pub other: Duration,
    /// Time for which a good answer also serves later callers.
    pub valid: Duration,
    /// Time for which a record is kept that is no longer in the answers.
    pub obsolete: Duration,
}

/// Settings of a section in the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of name servers.
    pub servers: usize,
    /// `hold`
    pub holds: HoldTimes,
    /// `resolve_retries`: number of tries in all; each may ask for both families.
    pub retries: u32,
    /// `timeout resolve`
    pub resolve: Duration,
    /// `timeout retry`
    pub retry: Duration,
    /// `accepted_payload_size`
    pub payload: u16,
    /// `dns-accept-family`
    pub families: Families,
}

impl Settings {
    /// The defaults, without name servers.
    pub const USUAL: Self = Self {
        servers: 0,
        holds: HoldTimes {
            nx: Duration::from_secs(30),
            refused: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
            other: Duration::from_secs(30),
            valid: Duration::from_secs(10),
            obsolete: Duration::ZERO,
        },
        retries: 3,
        resolve: Duration::from_secs(1),
        retry: Duration::from_secs(1),
        payload: 512,
        families: Families::BOTH,
    };
}

/// Last result of the queries for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// There is no result yet.
    New,
    /// There was a good answer.
    Valid,
    /// The name does not exist.
    Nx,
    /// Name servers refused.
    Refused,
    /// No name server answered.
    Timeout,
    /// Any other result.
    Other,
}

/// Identifier of a name in a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(usize);

/// Identifies the query that an answer belongs to, besides the bytes of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryId {
    name: Id,
    /// Number of the try.
    round: u64,
    /// Index of the name server.
    pub server: usize,
    id: u16,
}

impl QueryId {
    /// Returns the name that is asked for.
    pub fn name(&self) -> Id {
        self.name
    }
}

/// A query to send to one name server, from an unpredictable port; only answers of that name server are
/// passed back.
#[derive(Clone, Debug)]
pub struct Query {
    /// Argument for [`Section::handle_answer`].
    pub query: QueryId,
    /// Bytes to send.
    pub bytes: Rc<[u8]>,
    /// Time after which the answer is no longer needed.
    pub until: Duration,
}

/// A new result for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameUpdate {
    /// The name.
    pub name: Id,
    /// Index of the name server with the good answer; `None` if all have failed.
    pub server: Option<usize>,
}

/// Result of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// The bytes are not the answer, which may still come.
    Not,
    /// The answer was truncated: ask again over TCP, with the same query and bytes.
    Truncated,
    /// The query is finished.
    Over,
}

/// Counts of the queries to one name server, as in `show resolvers`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // names of HAProxy's
pub struct Counters {
    pub sent: u64,
    pub snd_error: u64,
    pub valid: u64,
    pub update: u64,
    pub cname: u64,
    pub cname_error: u64,
    pub any_err: u64,
    pub nx: u64,
    pub timeout: u64,
    pub refused: u64,
    pub other: u64,
    pub invalid: u64,
    pub too_big: u64,
    pub truncated: u64,
    pub outdated: u64,
}

impl Counters {
    /// Returns the counts since `then`.
    #[must_use]
    pub fn since(&self, then: &Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(then.sent),
            snd_error: self.snd_error.saturating_sub(then.snd_error),
            valid: self.valid.saturating_sub(then.valid),
            update: self.update.saturating_sub(then.update),
            cname: self.cname.saturating_sub(then.cname),
            cname_error: self.cname_error.saturating_sub(then.cname_error),
            any_err: self.any_err.saturating_sub(then.any_err),
            nx: self.nx.saturating_sub(then.nx),
            timeout: self.timeout.saturating_sub(then.timeout),
            refused: self.refused.saturating_sub(then.refused),
            other: self.other.saturating_sub(then.other),
            invalid: self.invalid.saturating_sub(then.invalid),
            too_big: self.too_big.saturating_sub(then.too_big),
            truncated: self.truncated.saturating_sub(then.truncated),
            outdated: self.outdated.saturating_sub(then.outdated),
        }
    }
}

#[derive(Debug)]
struct PendingQuery {
    round: u64,
    /// Number of tries after this one.
    left: u32,
    /// For each name server, whether it has answered or failed.
    answered: Vec<bool>,
    /// Result of the last one that failed.
    failure: Status,
}

#[derive(Debug)]
struct NameState {
    name: Name,
    /// Kind of record to ask for first.
    preferred: Kind,
    /// Kind of record of the current or last query.
    kind: Kind,
    users: u32,
    asking: Option<PendingQuery>,
    status: Status,
    /// Time of the last good answer; before there was one, the time of the start.
    last_valid: Duration,
    /// Time of the last result.
    settled: Option<Duration>,
    /// Time of the next action.
    due: Duration,
    records: Records,
}

/// One section at work, owned by one lane.
#[derive(Debug)]
pub struct Section {
    settings: Settings,
    names: Vec<Option<NameState>>,
    free: Vec<usize>,
    by_name: HashMap<(Name, Kind), usize>,
    due: BTreeSet<(Duration, usize)>,
    rounds: u64,
    /// Number of names without a user.
    kept: usize,
    asks: VecDeque<Query>,
    updates: VecDeque<NameUpdate>,
    counters: Vec<Counters>,
    /// Results that the predecessor of this section has left.
    past: NameResults,
    /// True until all users of the predecessor's names have registered here.
    resumes: bool,
    /// Names that were dropped.
    gone: VecDeque<(Name, Kind)>,
}

/// Results of names by name and kind, which a section leaves to its successor.
pub type NameResults = HashMap<(Name, Kind), NameResult>;

/// Result of a name that was queried.
#[derive(Clone, Debug)]
pub struct NameResult {
    status: Status,
    last_valid: Duration,
    settled: Duration,
    records: Records,
}

impl Section {
    /// Creates a section without names.
    pub fn new(settings: Settings) -> Self {
        Self::resume(settings, NameResults::new(), Vec::new())
    }

    /// Continues a section with the same name servers. A name that the predecessor knew is queried again at
    /// the time that the predecessor would have chosen.
    pub fn resume(mut settings: Settings, past: NameResults, mut counters: Vec<Counters>) -> Self {
        settings.resolve = settings.resolve.max(SHORTEST_TIMEOUT);
        settings.retry = settings.retry.max(SHORTEST_TIMEOUT);
        Self {
            counters: {
                counters.resize(settings.servers, Counters::default());
                counters
            },
            settings,
            names: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            due: BTreeSet::new(),
            rounds: 0,
            kept: 0,
            asks: VecDeque::new(),
            updates: VecDeque::new(),
            resumes: !past.is_empty(),
            past,
            gone: VecDeque::new(),
        }
    }

    /// Ends the takeover: all users of the predecessor's names have registered here. Of its other results,
    /// those that are still good are kept for later users.
    pub fn resumed(&mut self, now: Duration) {
        let good = self.settings.holds.valid;
        self.past.retain(|_, memo| memo.status == Status::Valid && now < memo.settled + good);
        self.resumes = false;
    }

    /// Returns the result of a name that was queried, for a successor.
    pub fn memo(&self, name: Id) -> Option<((Name, Kind), NameResult)> {
        let known = self.known(name)?;
        let NameState { status, last_valid, .. } = *known;
        let memo = NameResult { status, last_valid, settled: known.settled?, records: known.records.clone() };
        Some(((known.name.clone(), known.preferred), memo))
    }

    /// Returns the next name that was dropped.
    pub fn poll_gone(&mut self) -> Option<(Name, Kind)> {
        self.gone.pop_front()
    }

    /// Takes the predecessor's result of a name.
    fn left(&mut self, name: &Name, kind: Kind, now: Duration) -> Option<NameResult> {
        let memo = self.past.remove(&(name.clone(), kind))?;
        Some(memo).filter(|memo| self.resumes || now < memo.settled + self.settings.holds.valid)
    }

    /// Registers a user of a name, which is queried from now on, once for all users of the same name and
    /// kind. Returns `None` if there are [`MOST_NAMES`] names.
    pub fn want(&mut self, name: Name, kind: Kind, now: Duration) -> Option<Id> {
        if let Some(&at) = self.by_name.get(&(name.clone(), kind)) {
            let known = self.known_mut(Id(at))?;
            known.users += 1;
            if known.users == 1 {
                self.kept -= 1;
                let settled = self.known(Id(at))?.settled.unwrap_or(now);
                self.set_due(at, settled + self.settings.resolve);
            }
            return Some(Id(at));
        }
        if self.by_name.len() == MOST_NAMES {
            return None;
        }
        let mut known = NameState {
            name: name.clone(),
            preferred: kind,
            kind,
            users: 1,
            asking: None,
            status: Status::New,
            last_valid: now,
            settled: None,
            due: now,
            records: Records::default(),
        };
        if let Some(NameResult { status, last_valid, settled, records }) = self.left(&name, kind, now) {
            let due = now.max(settled + self.settings.resolve);
            known = NameState { status, last_valid, settled: Some(settled), due, records, ..known };
        }
        let due = known.due;
        let at = self.free.pop().unwrap_or_else(|| {
            self.names.push(None);
            self.names.len() - 1
        });
        self.names[at] = Some(known);
        self.by_name.insert((name, kind), at);
        self.due.insert((due, at));
        Some(Id(at))
    }

    /// Removes a user of a name. After the last user, a result that is still good is kept for a while, for
    /// the next one.
    pub fn forget(&mut self, name: Id, now: Duration) {
        let keeps = self.kept < MOST_KEPT
            && self.is_fresh(name, now)
            && manylane_pool::check_growth(self.records(name).map_or(0, Records::memory)).is_ok();
        let good = self.settings.holds.valid;
        let Some(known) = self.known_mut(name) else { return };
        known.users -= 1;
        if known.users > 0 {
            return;
        }
        match known.settled.filter(|_| keeps && known.asking.is_none()) {
            Some(settled) => {
                self.kept += 1;
                self.set_due(name.0, settled + good);
            }
            None => self.drop_name(name),
        }
    }

    fn drop_name(&mut self, name: Id) {
        let Some(known) = self.known_mut(name) else { return };
        let key = (known.name.clone(), known.preferred);
        let due = known.due;
        self.by_name.remove(&key);
        self.due.remove(&(due, name.0));
        self.names[name.0] = None;
        self.free.push(name.0);
        self.gone.push_back(key);
    }

    /// Queries a name at once, unless a query is under way or its result is still good.
    pub fn hurry(&mut self, name: Id, now: Duration) {
        if self.known(name).is_some_and(|known| known.asking.is_none()) && !self.is_fresh(name, now) {
            self.set_due(name.0, now);
        }
    }

    /// Sets whether IPv6 addresses are asked for from now on. Records that are there are kept until the next
    /// answer.
    pub fn accept_ipv6(&mut self, is_accepted: bool) {
        self.settings.families.ipv6 = is_accepted;
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    pub fn next_timeout(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Handles the time `now`: starts queries that are due, and ends tries without an answer.
    pub fn handle_timeout(&mut self, now: Duration) {
        while let Some(&(due, at)) = self.due.first() {
            if due > now {
                return;
            }
            self.step(at, now);
        }
    }

    /// Returns the next query to send.
    pub fn poll_ask(&mut self) -> Option<Query> {
        self.asks.pop_front()
    }

    /// Returns the next name with a new result.
    pub fn poll_update(&mut self) -> Option<NameUpdate> {
        self.updates.pop_front()
    }

    /// Handles bytes from the name server of the query.
    pub fn handle_answer(
        &mut self,
        now: Duration,
        query: &QueryId,
        over_tcp: bool,
        bytes: &[u8],
    ) -> AnswerOutcome {
        let Some((name, kind)) = self.waits_for(query) else {
            self.counters[query.server].outdated += 1;
            return AnswerOutcome::Over;
        };
        let answer = message::read(bytes, query.id, &name, kind, self.settings.families);
        let counters = &mut self.counters[query.server];
        let answer = match answer {
            Ok(answer) => answer,
            Err(AnswerError::Id) => {
                counters.outdated += 1;
                return AnswerOutcome::Not;
            }
            Err(AnswerError::Garbage | AnswerError::NotAnAnswer | AnswerError::Question) => {
                counters.invalid += 1;
                return AnswerOutcome::Not;
            }
        };
        if answer.truncated {
            counters.truncated += 1;
            if !over_tcp {
                return AnswerOutcome::Truncated;
            }
        }
        self.answered(now, query, answer);
        AnswerOutcome::Over
    }

    /// Counts a query that did not reach the name server, or whose connection broke.
    pub fn handle_failure(&mut self, query: &QueryId) {
        self.counters[query.server].snd_error += 1;
    }

    /// Returns the records of a name.
    pub fn records(&self, name: Id) -> Option<&Records> {
        self.known(name).map(|known| &known.records)
    }

    /// Returns the records of a name for a change of their order.
    pub fn records_mut(&mut self, name: Id) -> Option<&mut Records> {
        self.known_mut(name).map(|known| &mut known.records)
    }

    /// Returns the last result of the queries for a name.
    pub fn status(&self, name: Id) -> Status {
        self.known(name).map_or(Status::New, |known| known.status)
    }

    /// Returns whether the last result is good and recent enough that no query is needed (`hold valid`).
    pub fn is_fresh(&self, name: Id, now: Duration) -> bool {
        self.known(name).is_some_and(|known| {
            known.status == Status::Valid
                && known.settled.is_some_and(|then| now < then + self.settings.holds.valid)
        })
    }

    /// Returns whether queries have failed for longer than the last good answer counts: then the name has no
    /// records.
    pub fn is_lost(&self, name: Id, now: Duration) -> bool {
        self.known(name).is_some_and(|known| {
            let holds = &self.settings.holds;
            let hold = match known.status {
                Status::New | Status::Valid => return false,
                Status::Nx => holds.nx,
                Status::Refused => holds.refused,
                Status::Timeout => holds.timeout,
                Status::Other => holds.other,
            };
            now >= known.last_valid + hold
        })
    }

    /// Returns the counts by name server.
    pub fn counters(&self) -> &[Counters] {
        &self.counters
    }

    /// Counts a server that got another address from an answer of that name server.
    pub fn count_update(&mut self, server: usize) {
        if let Some(counters) = self.counters.get_mut(server) {
            counters.update += 1;
        }
    }

    fn known(&self, name: Id) -> Option<&NameState> {
        self.names.get(name.0)?.as_ref()
    }

    fn known_mut(&mut self, name: Id) -> Option<&mut NameState> {
        self.names.get_mut(name.0)?.as_mut()
    }

    fn set_due(&mut self, at: usize, due: Duration) {
        let Some(known) = self.names[at].as_mut() else { return };
        self.due.remove(&(known.due, at));
        known.due = due;
        self.due.insert((due, at));
    }

    /// Returns the name and kind of that query, if its answer is still awaited.
    fn waits_for(&self, query: &QueryId) -> Option<(Name, Kind)> {
        let known = self.known(query.name)?;
        let asking = known.asking.as_ref().filter(|asking| asking.round == query.round)?;
        (!asking.answered[query.server]).then(|| (known.name.clone(), known.kind))
    }

    /// Handles a name that is due.
    fn step(&mut self, at: usize, now: Duration) {
        let Settings { retries, families, .. } = self.settings;
        let Some(known) = self.names[at].as_mut() else { return };
        if known.users == 0 {
            self.kept -= 1;
            return self.drop_name(Id(at));
        }
        let first = families.first(known.preferred);
        let Some(asking) = &known.asking else {
            known.kind = first;
            return self.ask(at, now, retries.saturating_sub(1)); // this one is the first
        };
        for (answered, counters) in asking.answered.iter().zip(&mut self.counters) {
            counters.timeout += u64::from(!answered);
        }
        let (left, silent, failure) = (asking.left, !asking.answered.contains(&true), asking.failure);
        match families.other(known.kind) {
            _ if left == 0 => {
                let status = if silent { Status::Timeout } else { failure };
                self.settle(at, now, None, status);
            }
            // Some name servers have no record of the first family, and others are silent. Those that answer
            // may have records of the other family.
            Some(other) if !silent && known.kind == first => {
                known.kind = other;
                self.ask(at, now, left);
            }
            _ => {
                known.kind = first;
                self.ask(at, now, left - 1);
            }
        }
    }

    /// Queries all name servers, each under a random number of its own.
    fn ask(&mut self, at: usize, now: Duration, left: u32) {
        self.rounds += 1;
        let Some(known) = self.names[at].as_mut() else { return };
        let until = now + self.settings.retry;
        let round = self.rounds;
        known.asking = Some(PendingQuery {
            round,
            left,
            answered: vec![false; self.settings.servers],
            failure: Status::Timeout,
        });
        for server in 0..self.settings.servers {
            let id = rand::random();
            let bytes = message::query(id, &known.name, known.kind, self.settings.payload).into();
            self.counters[server].sent += 1;
            self.asks.push_back(Query { query: QueryId { name: Id(at), round, server, id }, bytes, until });
        }
        self.set_due(at, until);
    }

    /// Handles the answer of one name server. A good one is enough; other answers count when all have
    /// answered.
    fn answered(&mut self, now: Duration, query: &QueryId, answer: Answer) {
        let counters = &mut self.counters[query.server];
        counters.cname += u64::from(answer.aliases);
        let failure = match answer.code {
            _ if answer.truncated => Status::Other, // truncated over TCP, too
            Code::Found => {
                counters.valid += 1;
                let Some(known) = self.known_mut(query.name) else { return };
                known.last_valid = now;
                let obsolete = self.settings.holds.obsolete;
                if let Some(known) = self.known_mut(query.name) {
                    known.records.merge(answer.items, now, obsolete);
                }
                return self.settle(query.name.0, now, Some(query.server), Status::Valid);
            }
            Code::NoName => {
                counters.nx += 1;
                Status::Nx
            }
            Code::NoRecord => {
                counters.any_err += 1;
                Status::Other
            }
            Code::NoAlias => {
                counters.cname_error += 1;
                Status::Other
            }
            Code::Refused => {
                counters.refused += 1;
                Status::Refused
            }
            Code::Failed => {
                counters.other += 1;
                Status::Other
            }
        };
        let families = self.settings.families;
        let Some(known) = self.known_mut(query.name) else { return };
        let Some(asking) = &mut known.asking else { return };
        asking.answered[query.server] = true;
        asking.failure = failure;
        if asking.answered.contains(&false) {
            return;
        }
        let left = asking.left;
        match families.other(known.kind) {
            Some(other) if known.kind == families.first(known.preferred) => {
                known.kind = other;
                self.ask(query.name.0, now, left);
            }
            // Without another family, as for SRV, the remaining tries apply, too.
            _ if left == 0 => self.settle(query.name.0, now, None, failure),
            _ => {} // the next try comes at its time
        }
    }

    /// Ends the query for now.
    fn settle(&mut self, at: usize, now: Duration, server: Option<usize>, status: Status) {
        let due = now + self.settings.resolve;
        let Some(known) = self.names[at].as_mut() else { return };
        known.asking = None;
        known.status = status;
        known.settled = Some(now);
        self.set_due(at, due);
        if self.is_lost(Id(at), now)
            && let Some(known) = self.names[at].as_mut()
        {
            known.records.clear();
        }
        self.updates.push_back(NameUpdate { name: Id(at), server });
    }
}
