//! The files that a configuration names, in memory: what operators see of them, and change while they serve.
//!
//! # Protocol
//! 1. A store belongs to a configuration. Each file is read once, when the first context names it; what it
//!    held is replaced by a commit, and not by reading again. The next configuration has a store of its own.
//! 2. A change is prepared in a transaction, one for each [`Kind`] at a time, which no context sees.
//! 3. A commit makes new contexts beside those that name the file, with what the transaction holds. Only when
//!    all of them could be made it publishes them, and keeps what the transaction held.
//! 4. A connection takes its context when it begins, with the reader of its lane: what was agreed on with the
//!    one before goes on.
//!
//! All of it happens under one lock, which no connection takes. A commit of a listener with many certificates
//! takes as long as it has certificates, so commands run aside of lanes.

use crate::certificate::{Bundle, Certificate, Definition};
use crate::choose::{List, ListLine, Source};
use crate::client::{self, ClientContext, ClientSettings};
use crate::error::Problem;
use crate::files::{Section, base64, sections_of};
use crate::ocsp::{OcspId, ocsp_text};
use crate::server::{self, ServerContext, ServerSettings};
use crate::tickets::{BadKey, TicketKeys};
use crate::trust::{Authorities, Revoked};
use manylane_sync::qsbr::{Published, Reader};
use manylane_sync::{LockClass, Mutex};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

static FILES: LockClass = LockClass::new("files of TLS", 73);

/// A context that connections begin with: what it was made of, and what it is now.
pub(crate) struct Context<S, C> {
    pub(crate) settings: S,
    now: Published<Arc<C>>,
}

impl<S, C: Send + Sync + 'static> Context<S, C> {
    pub(crate) fn load(&self, reader: &Reader) -> Arc<C> {
        self.now.load(reader).clone()
    }
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A certificate with its chain and key.
    Certificate,
    /// Authorities.
    Authorities,
    /// Lists of revoked certificates.
    Revoked,
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no such file.
    Unknown,
    /// There is one already.
    Exists,
    /// A context names it.
    Used,
    /// A transaction about it is open.
    Open,
    /// No transaction is open.
    NoTransaction,
    /// The open transaction is about this one.
    Other(Box<str>),
    /// It has nothing inside.
    Empty,
    /// What was sent cannot be used.
    Bad(Problem),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Bad(problem)
    }
}

/// Why a response of OCSP was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadOcsp {
    /// It is not in base64.
    Malformed,
    /// What is wrong with it, as a part of a sentence.
    Refused(&'static str),
}

/// The names of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// What the open transaction is about, and how many certificates it holds.
    pub pending: Option<(Box<str>, usize)>,
    /// All, and how many certificates each holds.
    pub all: Vec<(Box<str>, usize)>,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// A context names it.
    pub used: bool,
    /// Certificates, or lists of revoked ones.
    pub der: Vec<Box<[u8]>>,
    /// Where the certificate and its key were read, if they were.
    pub files: Option<(PathBuf, PathBuf)>,
    /// What its response of OCSP is called, if it has one.
    pub ocsp: Option<OcspId>,
}

/// Something that files hold.
trait Content: Clone + Default {
    /// Takes over what was sent as `name`; `adds`: beside what is there.
    fn take(&mut self, name: &str, part: Part, text: &[Section], adds: bool) -> Result<(), Problem>;
    /// Checks what was taken, before it is kept.
    fn finish(&mut self, name: &str) -> Result<(), Problem>;
    fn der(&self) -> Vec<Box<[u8]>>;
    /// How many `der` gives.
    fn count(&self) -> usize;
}

/// Which part of a certificate was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    Key,
}

impl Content for Bundle {
    fn take(&mut self, name: &str, part: Part, sent: &[Section], _: bool) -> Result<(), Problem> {
        self.ready = None;
        match part {
            Part::Whole if !sent.iter().any(Section::is_certificate) => {
                Err(Problem::new("crt", format!("'{name}' has no certificate")))
            }
            Part::Whole => Bundle::take(self, name, sent),
            Part::Key if !sent.iter().any(Section::is_key) => {
                Err(Problem::new("crt", format!("'{name}' has no private key")))
            }
            Part::Key => self.take_key(name, sent),
        }
    }

    fn finish(&mut self, name: &str) -> Result<(), Problem> {
        Bundle::finish(self, name, &mut Vec::new())
    }

    fn der(&self) -> Vec<Box<[u8]>> {
        self.chain.iter().map(|der| Box::from(&**der)).collect()
    }

    fn count(&self) -> usize {
        self.chain.len()
    }
}

impl Content for Authorities {
    fn take(&mut self, name: &str, _: Part, sent: &[Section], adds: bool) -> Result<(), Problem> {
        if !adds {
            *self = Self::default();
        }
        let before = self.certificates.len();
        for section in sent {
            // Whoever sends several must not find out by refused clients that one is missing.
            if let Some(error) = self.take(section) {
                let why = format!("'{name}' has an authority that is of no use: {error}");
                return Err(Problem::new("ca-file", why));
            }
        }
        match self.certificates.len() > before {
            true => Ok(()),
            false => Err(Problem::new("ca-file", format!("'{name}' has no authority that is of use"))),
        }
    }

    fn finish(&mut self, _: &str) -> Result<(), Problem> {
        Ok(())
    }

    fn der(&self) -> Vec<Box<[u8]>> {
        Authorities::der(self)
    }

    fn count(&self) -> usize {
        self.certificates.len()
    }
}

impl Content for Revoked {
    fn take(&mut self, name: &str, _: Part, sent: &[Section], _: bool) -> Result<(), Problem> {
        *self = Self::of(name, sent)?;
        match self.0.is_empty() {
            false => Ok(()),
            true => Err(Problem::new("crl-file", format!("'{name}' has no list of revoked certificates"))),
        }
    }

    fn finish(&mut self, _: &str) -> Result<(), Problem> {
        Ok(())
    }

    fn der(&self) -> Vec<Box<[u8]>> {
        Revoked::der(self)
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

/// The files of a kind.
#[derive(Default)]
struct Files<T> {
    all: BTreeMap<Box<str>, Arc<T>>,
    /// The open transaction.
    pending: Option<(Box<str>, T)>,
}

impl<T: Content> Files<T> {
    fn names(&self) -> Names {
        Names {
            pending: self.pending.as_ref().map(|(name, content)| (name.clone(), content.count())),
            all: self.all.iter().map(|(name, content)| (name.clone(), content.count())).collect(),
        }
    }

    /// What a file holds, or the transaction about `*<file>`.
    fn der(&self, name: &str) -> Option<Vec<Box<[u8]>>> {
        match name.strip_prefix('*') {
            None => self.all.get(name).map(|content| content.der()),
            Some(name) => {
                let (about, content) = self.pending.as_ref()?;
                (**about == *name).then(|| content.der())
            }
        }
    }

    fn create(&mut self, name: &str) -> Result<(), Failure> {
        if self.all.contains_key(name) {
            return Err(Failure::Exists);
        }
        self.all.insert(name.into(), Arc::default());
        Ok(())
    }

    /// Whether a transaction was begun; else the open one has more.
    fn set(&mut self, name: &str, part: Part, sent: &[Section], adds: bool) -> Result<bool, Failure> {
        let (begins, mut content) = match &self.pending {
            Some((about, content)) if **about == *name => (false, content.clone()),
            Some((about, _)) => return Err(Failure::Other(about.clone())),
            None => (true, T::clone(self.all.get(name).ok_or(Failure::Unknown)?)),
        };
        content.take(name, part, sent, adds)?;
        self.pending = Some((name.into(), content));
        Ok(begins)
    }

    fn open(&self, name: &str) -> Result<&T, Failure> {
        match &self.pending {
            None => Err(Failure::NoTransaction),
            Some((about, _)) if **about != *name => Err(Failure::Other(about.clone())),
            Some((_, content)) => Ok(content),
        }
    }

    fn abort(&mut self, name: &str) -> Result<(), Failure> {
        self.open(name)?;
        self.pending = None;
        Ok(())
    }
}

/// See the module.
pub struct Store(Mutex<Known>);

impl Default for Store {
    fn default() -> Self {
        Self(Mutex::new(&FILES, Known::default()))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

type ServerEntry = Weak<Context<ServerSettings, rustls::ServerConfig>>;
type ClientEntry = Weak<Context<ClientSettings, rustls::ClientConfig>>;

#[derive(Default)]
pub(crate) struct Known {
    certificates: Files<Bundle>,
    authorities: Files<Authorities>,
    revoked: Files<Revoked>,
    /// In the order of their first use, by which they are numbered.
    ticket_keys: Vec<(Box<str>, Arc<TicketKeys>)>,
    lists: BTreeMap<Box<str>, (List, PathBuf)>,
    definitions: HashMap<Box<str>, Definition>,
    listeners: Vec<ServerEntry>,
    servers: Vec<ClientEntry>,
}

/// How the store calls a file that [`check_name`] accepts.
fn name_of(path: &Path) -> Box<str> {
    path.display().to_string().into()
}

/// Refuses a file that no command could name; two of them could have the same name.
pub(crate) fn check_name(keyword: &'static str, path: &Path) -> Result<(), Problem> {
    match path.to_str() {
        Some(_) => Ok(()),
        None => {
            let shown = path.display();
            Err(Problem::new(keyword, format!("'{shown}' has a name that is not UTF-8: rename the file")))
        }
    }
}

impl Known {
    /// The certificate of that name; read where it is not known yet.
    pub(crate) fn certificate(
        &mut self,
        name: &str,
        told: &mut Vec<Problem>,
    ) -> Result<Certificate, Problem> {
        if let Some(known) = self.certificates.all.get(name) {
            return match &known.ready {
                Some(ready) => Ok(ready.clone()),
                None => Err(Problem::new("crt", format!("'{name}' is empty"))),
            };
        }
        let definition = match self.definitions.get(name) {
            Some(definition) => definition.clone(),
            None if name.starts_with('@') => {
                return Err(Problem::new("crt", format!("'{name}' is loaded by no 'crt-store' section")));
            }
            None => Definition { certificate: name.into(), key: None, ocsp: None, issuer: None },
        };
        let bundle = Bundle::load(&definition, told)?;
        let ready = bundle.ready.clone();
        self.certificates.all.insert(name.into(), Arc::new(bundle));
        ready.ok_or_else(|| Problem::new("crt", format!("'{name}' is empty")))
    }

    /// The certificate that this side shows to servers that ask for one.
    pub(crate) fn own(&mut self, path: &Path, told: &mut Vec<Problem>) -> Result<Certificate, Problem> {
        check_name("crt", path)?;
        self.certificate(&name_of(path), told)
    }

    pub(crate) fn authorities(&mut self, path: &Path) -> Result<Arc<Authorities>, Problem> {
        check_name("ca-file", path)?;
        let name = name_of(path);
        if let Some(known) = self.authorities.all.get(&name) {
            return match known.count() {
                1.. => Ok(known.clone()),
                0 => Err(Problem::new("ca-file", format!("'{name}' is empty"))),
            };
        }
        let read = Arc::new(Authorities::load(path)?);
        self.authorities.all.insert(name, read.clone());
        Ok(read)
    }

    pub(crate) fn revoked(&mut self, path: &Path) -> Result<Arc<Revoked>, Problem> {
        check_name("crl-file", path)?;
        let name = name_of(path);
        if let Some(known) = self.revoked.all.get(&name) {
            return match known.count() {
                1.. => Ok(known.clone()),
                0 => Err(Problem::new("crl-file", format!("'{name}' is empty"))),
            };
        }
        let read = Arc::new(Revoked::load(path)?);
        self.revoked.all.insert(name, read.clone());
        Ok(read)
    }

    /// The keys of tickets in that file; read where it is not known yet.
    pub(crate) fn ticket_keys(&mut self, path: &Path) -> Result<Arc<TicketKeys>, Problem> {
        check_name("tls-ticket-keys", path)?;
        let name = name_of(path);
        if let Some((_, known)) = self.ticket_keys.iter().find(|(own, _)| *own == name) {
            return Ok(known.clone());
        }
        let read = Arc::new(TicketKeys::load(path)?);
        self.ticket_keys.push((name, read.clone()));
        Ok(read)
    }

    /// Has the lists and folders of sources read.
    fn read_lists(&mut self, sources: &[Source]) -> Result<(), Problem> {
        for source in sources {
            let path = source.path();
            check_name("crt", path)?;
            let name = name_of(path);
            if self.lists.contains_key(&name) {
                continue;
            }
            match source {
                Source::List { path, base } => {
                    let list = List::of_file(path, base)?;
                    self.lists.insert(name, (list, base.clone()));
                }
                Source::Path(path) | Source::Default(path) if !name.starts_with('@') && path.is_dir() => {
                    let list = List::of_folder(path)?;
                    self.lists.insert(name, (list, PathBuf::new()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The certificates of all sources, in order.
    pub(crate) fn choose(
        &mut self,
        sources: &[Source],
        may_be_empty: bool,
        told: &mut Vec<Problem>,
    ) -> Result<Vec<Certificate>, Problem> {
        self.read_lists(sources)?;
        let mut all = Vec::new();
        for source in sources {
            let name = name_of(source.path());
            let is_default = matches!(source, Source::Default(_));
            let Some((list, _)) = self.lists.get(&name) else {
                let own = self.certificate(&name, told)?;
                all.push(Certificate { is_default, ..own });
                continue;
            };
            if list.lines.is_empty() && !list.folder && !may_be_empty {
                return Err(Problem::new("crt-list", format!("'{name}' names no certificate")));
            }
            for line in list.lines.clone() {
                let own = line.apply(&self.certificate(&line.certificate, told)?);
                all.push(Certificate { is_default: is_default || own.is_default, ..own });
            }
        }
        Ok(all)
    }

    /// Whether those settings name that file.
    fn listener_names(&self, settings: &ServerSettings, kind: Kind, name: &str) -> bool {
        let is = |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| *name_of(path) == *name);
        match kind {
            Kind::Certificate => settings.certificates.iter().any(|source| {
                let source = name_of(source.path());
                match self.lists.get(&source) {
                    Some((list, _)) => list.lines.iter().any(|line| *line.certificate == *name),
                    None => *source == *name,
                }
            }),
            Kind::Authorities => is(&settings.common.authorities),
            Kind::Revoked => is(&settings.common.revoked),
        }
    }

    fn server_names(settings: &ClientSettings, kind: Kind, name: &str) -> bool {
        let is = |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| *name_of(path) == *name);
        match kind {
            Kind::Certificate => is(&settings.certificate),
            Kind::Authorities => is(&settings.common.authorities),
            Kind::Revoked => is(&settings.common.revoked),
        }
    }

    /// The contexts that are left.
    fn live(&mut self) -> (Vec<ServerContext>, Vec<ClientContext>) {
        self.listeners.retain(|entry| entry.strong_count() > 0);
        self.servers.retain(|entry| entry.strong_count() > 0);
        let listeners = self.listeners.iter().filter_map(Weak::upgrade).map(ServerContext).collect();
        let servers = self.servers.iter().filter_map(Weak::upgrade).map(ClientContext).collect();
        (listeners, servers)
    }

    /// Whether a context or a list names it.
    fn is_used(&mut self, kind: Kind, name: &str) -> bool {
        let (listeners, servers) = self.live();
        listeners.iter().any(|own| self.listener_names(&own.0.settings, kind, name))
            || servers.iter().any(|own| Self::server_names(&own.0.settings, kind, name))
            || (kind == Kind::Certificate
                && self
                    .lists
                    .values()
                    .any(|(list, _)| list.lines.iter().any(|line| *line.certificate == *name)))
    }

    /// Makes the contexts again that `concerned` chooses, and publishes them if all could be made. How many
    /// there are.
    fn renew(
        &mut self,
        listener: impl Fn(&Self, &ServerSettings) -> bool,
        server: impl Fn(&ClientSettings) -> bool,
    ) -> Result<usize, Problem> {
        let (listeners, servers) = self.live();
        let mut told = Vec::new(); // who changes a certificate knows how long it is valid
        let (mut new_listeners, mut new_servers) = (Vec::new(), Vec::new());
        for own in listeners {
            if listener(self, &own.0.settings) {
                let made = server::config(&own.0.settings, self, &mut told)?;
                new_listeners.push((own, made));
            }
        }
        for own in servers {
            if server(&own.0.settings) {
                let made = client::config(&own.0.settings, self, &mut told)?;
                new_servers.push((own, made));
            }
        }
        let count = new_listeners.len() + new_servers.len();
        for (own, made) in new_listeners {
            own.0.now.replace(Arc::new(made));
        }
        for (own, made) in new_servers {
            own.0.now.replace(Arc::new(made));
        }
        Ok(count)
    }

    fn renew_for(&mut self, kind: Kind, name: &str) -> Result<usize, Problem> {
        self.renew(
            |known, settings| known.listener_names(settings, kind, name),
            |settings| Self::server_names(settings, kind, name),
        )
    }

    /// Rule 3.
    fn commit<T: Content>(
        &mut self,
        kind: Kind,
        name: &str,
        files: fn(&mut Self) -> &mut Files<T>,
    ) -> Result<usize, Failure> {
        let mut content = files(self).open(name)?.clone();
        content.finish(name)?;
        let before = files(self).all.insert(name.into(), Arc::new(content));
        match self.renew_for(kind, name) {
            Ok(count) => {
                files(self).pending = None;
                Ok(count)
            }
            Err(problem) => {
                match before {
                    Some(before) => drop(files(self).all.insert(name.into(), before)),
                    None => drop(files(self).all.remove(name)),
                }
                Err(problem.into())
            }
        }
    }

    fn remove<T: Content>(
        &mut self,
        kind: Kind,
        name: &str,
        files: fn(&mut Self) -> &mut Files<T>,
    ) -> Result<(), Failure> {
        if !files(self).all.contains_key(name) {
            return Err(Failure::Unknown);
        }
        if files(self).open(name).is_ok() {
            return Err(Failure::Open);
        }
        if self.is_used(kind, name) {
            return Err(Failure::Used);
        }
        files(self).all.remove(name);
        Ok(())
    }
}

/// Does the same with the files of each kind.
macro_rules! each {
    ($kind:expr, $files:ident => $work:expr) => {
        match $kind {
            Kind::Certificate => {
                let $files: fn(&mut Known) -> &mut Files<Bundle> = |known| &mut known.certificates;
                $work
            }
            Kind::Authorities => {
                let $files: fn(&mut Known) -> &mut Files<Authorities> = |known| &mut known.authorities;
                $work
            }
            Kind::Revoked => {
                let $files: fn(&mut Known) -> &mut Files<Revoked> = |known| &mut known.revoked;
                $work
            }
        }
    };
}

impl Store {
    /// `load` of a `crt-store` section: what `name` stands for. False: there is one of that name already.
    pub fn define(&self, name: &str, definition: Definition) -> bool {
        let mut known = self.0.lock();
        known.definitions.insert(name.into(), definition).is_none()
    }

    /// Reads what a `crt-store` section names, whether something uses it or not.
    ///
    /// # Errors
    /// What cannot be used, in a sentence.
    pub fn load(&self, name: &str, told: &mut Vec<Problem>) -> Result<(), Problem> {
        self.0.lock().certificate(name, told).map(drop)
    }

    /// The context of listeners with these settings, which share it. `told` are warnings.
    ///
    /// # Errors
    /// What cannot be used, in a sentence.
    pub fn listener(
        &self,
        settings: &ServerSettings,
        told: &mut Vec<Problem>,
    ) -> Result<ServerContext, Problem> {
        let mut known = self.0.lock();
        let same = known.listeners.iter().filter_map(Weak::upgrade).find(|own| own.settings == *settings);
        if let Some(same) = same {
            return Ok(ServerContext(same));
        }
        let made = server::config(settings, &mut known, told)?;
        let context = Arc::new(Context { settings: settings.clone(), now: Published::new(Arc::new(made)) });
        known.listeners.push(Arc::downgrade(&context));
        Ok(ServerContext(context))
    }

    /// The context of a server, of its own. `told` are warnings.
    ///
    /// # Errors
    /// What cannot be used, in a sentence.
    pub fn server(
        &self,
        settings: &ClientSettings,
        told: &mut Vec<Problem>,
    ) -> Result<ClientContext, Problem> {
        let mut known = self.0.lock();
        let made = client::config(settings, &mut known, told)?;
        let context = Arc::new(Context { settings: settings.clone(), now: Published::new(Arc::new(made)) });
        known.servers.retain(|entry| entry.strong_count() > 0); // of servers that were removed
        known.servers.push(Arc::downgrade(&context));
        Ok(ClientContext(context))
    }

    /// The files of a kind.
    pub fn names(&self, kind: Kind) -> Names {
        let known = &mut *self.0.lock();
        each!(kind, files => files(known).names())
    }

    /// What a file holds; with `*` before its name what the open transaction about it does.
    pub fn show(&self, kind: Kind, name: &str) -> Option<Shown> {
        let known = &mut *self.0.lock();
        let der = each!(kind, files => files(known).der(name))?;
        let bare = name.strip_prefix('*').unwrap_or(name);
        let used = !name.starts_with('*') && known.is_used(kind, bare);
        let read = known.certificates.all.get(bare).filter(|_| kind == Kind::Certificate);
        let stapled = read.filter(|bundle| bundle.staple.response().is_some());
        let ocsp = stapled.and_then(|bundle| bundle.ocsp_id());
        Some(Shown { used, der, files: read.and_then(|bundle| bundle.files.clone()), ocsp })
    }

    /// An empty one of that name.
    ///
    /// # Errors
    /// [`Failure::Exists`]
    pub fn create(&self, kind: Kind, name: &str) -> Result<(), Failure> {
        let known = &mut *self.0.lock();
        each!(kind, files => files(known).create(name))
    }

    /// Puts what was sent into the transaction about that name; `adds`: beside what is there. True: it begins
    /// with that.
    ///
    /// # Errors
    /// [`Failure`]; the transaction is as before then.
    pub fn set(&self, kind: Kind, name: &str, sent: &[u8], adds: bool) -> Result<bool, Failure> {
        let sent = sections_of(kind.keyword(), name, sent)?;
        let known = &mut *self.0.lock();
        if kind == Kind::Certificate
            && let Some(whole) = name.strip_suffix(".key")
            && known.certificates.all.contains_key(whole)
        {
            return known.certificates.set(whole, Part::Key, &sent, adds);
        }
        each!(kind, files => files(known).set(name, Part::Whole, &sent, adds))
    }

    /// Publishes what the transaction about that name holds. How many contexts have it now.
    ///
    /// # Errors
    /// [`Failure`]; nothing is different then, and the transaction stays.
    pub fn commit(&self, kind: Kind, name: &str) -> Result<usize, Failure> {
        let known = &mut *self.0.lock();
        each!(kind, files => known.commit(kind, name, files))
    }

    /// Ends the transaction about that name.
    ///
    /// # Errors
    /// [`Failure::NoTransaction`], [`Failure::Other`]
    pub fn abort(&self, kind: Kind, name: &str) -> Result<(), Failure> {
        let known = &mut *self.0.lock();
        each!(kind, files => files(known).abort(name))
    }

    /// Forgets a file that nothing names.
    ///
    /// # Errors
    /// [`Failure::Unknown`], [`Failure::Open`], [`Failure::Used`]
    pub fn remove(&self, kind: Kind, name: &str) -> Result<(), Failure> {
        let known = &mut *self.0.lock();
        each!(kind, files => known.remove(kind, name, files))
    }

    /// The files with keys of tickets, in the order of their numbers, and the names of the keys of each.
    pub fn ticket_keys(&self) -> Vec<(Box<str>, Vec<[u8; 16]>)> {
        self.0.lock().ticket_keys.iter().map(|(name, keys)| (name.clone(), keys.names())).collect()
    }

    /// Adds a key of tickets, in base64, to those of the file of that name, or of that number behind a `#`.
    ///
    /// # Errors
    /// [`BadKey`]; nothing is different then.
    pub fn add_ticket_key(&self, file: &str, key: &str) -> Result<(), BadKey> {
        let known = self.0.lock();
        let all = &known.ticket_keys;
        let found = match file.strip_prefix('#') {
            Some(number) => number.parse().ok().and_then(|number: usize| all.get(number)),
            None => all.iter().find(|(own, _)| **own == *file),
        };
        let (_, keys) = found.ok_or(BadKey::Unknown)?;
        keys.push(key)
    }

    /// The certificates that have a response of OCSP, and what it is called.
    pub fn stapled(&self) -> Vec<(OcspId, Box<str>)> {
        let known = self.0.lock();
        let all = known.certificates.all.iter().filter(|(_, bundle)| bundle.staple.response().is_some());
        all.filter_map(|(name, bundle)| Some((bundle.ocsp_id()?, name.clone()))).collect()
    }

    /// The response of OCSP that is called so, or that of the certificate of that name.
    pub fn ocsp_response(&self, which: &str) -> Option<Box<[u8]>> {
        let known = self.0.lock();
        let all = &known.certificates.all;
        let named = all.get(which).and_then(|bundle| bundle.staple.response());
        named.or_else(|| {
            let is = |bundle: &&Arc<Bundle>| bundle.ocsp_id().is_some_and(|id| id.text() == which);
            all.values().find(is).and_then(|bundle| bundle.staple.response())
        })
    }

    /// Takes a response of OCSP over, in base64, for all certificates that it is about.
    ///
    /// # Errors
    /// [`BadOcsp`]; nothing is different then.
    pub fn set_ocsp(&self, text: &str) -> Result<(), BadOcsp> {
        let response = base64(text.trim().as_bytes()).ok_or(BadOcsp::Malformed)?;
        let known = self.0.lock();
        let all = known.certificates.all.values();
        let own: Vec<_> =
            all.filter(|bundle| bundle.ocsp_id().is_some_and(|id| id.is_in(&response))).collect();
        if own.is_empty() {
            return Err(match ocsp_text(&response) {
                None => BadOcsp::Refused("it is malformed"),
                Some(_) => BadOcsp::Refused("no certificate that it is about is known with its issuer"),
            });
        }
        own.into_iter().try_for_each(|bundle| bundle.set_ocsp(&response)).map_err(BadOcsp::Refused)
    }

    /// The lists and folders.
    pub fn lists(&self) -> Vec<Box<str>> {
        self.0.lock().lists.keys().cloned().collect()
    }

    /// The lines of a list.
    pub fn list(&self, name: &str) -> Option<Vec<ListLine>> {
        self.0.lock().lists.get(name).map(|(list, _)| list.lines.clone())
    }

    /// Adds the line of `text` with a certificate that is known to a list. How many contexts have it now.
    ///
    /// # Errors
    /// [`Failure`]; nothing is different then. [`Failure::Empty`] is about the certificate.
    pub fn add_line(&self, name: &str, text: &str) -> Result<usize, Failure> {
        let known = &mut *self.0.lock();
        let (list, base) = known.lists.get(name).ok_or(Failure::Unknown)?;
        let mut lines = text.lines();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(Failure::Bad(Problem::new("crt-list", "only one line of payload is supported!")));
        };
        // An absolute name stays as it is; so does one that is known as it was written.
        let file = line.split_whitespace().next().unwrap_or_default();
        let base = if known.certificates.all.contains_key(file) { PathBuf::new() } else { base.clone() };
        let number = list.lines.iter().map(|line| line.number).max().unwrap_or(0) + 1;
        let line = ListLine::parse(line.trim(), number, &base)
            .map_err(|why| Failure::Bad(Problem::new("crt-list", format!("the line {why}"))))?;
        if list.folder && !line.filters.is_empty() {
            let why = "a folder expects no names behind a certificate";
            return Err(Failure::Bad(Problem::new("crt-list", why)));
        }
        match known.certificates.all.get(&line.certificate) {
            None => {
                let why = format!("certificate '{}' does not exist!", line.certificate);
                return Err(Failure::Bad(Problem::new("crt-list", why)));
            }
            Some(bundle) if bundle.ready.is_none() => return Err(Failure::Empty),
            Some(_) => {}
        }
        let at = list.lines.len();
        known.change_list(name, |lines| lines.push(line), |lines| drop(lines.remove(at)))
    }

    /// Removes the line of that certificate from a list, or the one of that number. How many contexts have
    /// one less.
    ///
    /// # Errors
    /// [`Failure`]
    pub fn remove_line(&self, name: &str, certificate: &str, number: usize) -> Result<usize, Failure> {
        let known = &mut *self.0.lock();
        let (list, _) = known.lists.get(name).ok_or(Failure::Unknown)?;
        let bad = |why: String| Failure::Bad(Problem::new("crt-list", why));
        let own = || list.lines.iter().enumerate().filter(|(_, line)| *line.certificate == *certificate);
        let numbers = || own().map(|(_, line)| line.number.to_string()).collect::<Vec<_>>().join(", ");
        let chosen = match (own().count(), number) {
            (0, _) if !known.certificates.all.contains_key(certificate) => {
                return Err(bad(format!("certificate '{certificate}' does not exist!")));
            }
            (0, _) => return Err(bad(format!("no line has the certificate '{certificate}'"))),
            (1, 0) => own().next(),
            (_, 0) => {
                return Err(bad(format!(
                    "found the certificate '{certificate}' in several entries, please specify a line number \
                    preceded by colons ({})!",
                    numbers()
                )));
            }
            _ => own().find(|(_, line)| line.number == number),
        };
        let Some((at, _)) = chosen else {
            return Err(bad(format!(
                "found a certificate '{certificate}' but the line number is incorrect, please specify a \
                correct line number preceded by colons ({})!",
                numbers()
            )));
        };
        let line = list.lines[at].clone();
        known.change_list(name, |lines| drop(lines.remove(at)), |lines| lines.insert(at, line))
    }
}

impl Known {
    fn change_list(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Vec<ListLine>),
        undo: impl FnOnce(&mut Vec<ListLine>),
    ) -> Result<usize, Failure> {
        if let Some((list, _)) = self.lists.get_mut(name) {
            change(&mut list.lines);
        }
        let names = |_: &Self, settings: &ServerSettings| {
            settings.certificates.iter().any(|source| *name_of(source.path()) == *name)
        };
        let renewed = self.renew(names, |_| false);
        if let (Err(_), Some((list, _))) = (&renewed, self.lists.get_mut(name)) {
            undo(&mut list.lines);
        }
        Ok(renewed?)
    }
}

impl Kind {
    fn keyword(self) -> &'static str {
        match self {
            Self::Certificate => "crt",
            Self::Authorities => "ca-file",
            Self::Revoked => "crl-file",
        }
    }
}
