//! The store holds the files that a configuration names, in memory, for commands that show and change them.
//!
//! # Protocol
//! 1. A store belongs to a configuration. It reads each file once, when the first context names it. Only a
//!    commit, what ACME obtained, or a change of a watched file replaces the contents; other files are not
//!    read again. The next configuration has a store of its own.
//! 2. A transaction prepares a change. Each [`Kind`] has at most one open transaction, and contexts do not
//!    see it.
//! 3. A commit makes new versions of all contexts that name the file. It publishes them, and keeps the
//!    transaction's contents, only if all of them could be made.
//! 4. A connection loads its context when it begins, with the reader of its lane. Existing connections
//!    continue with the context that they began with.
//!
//! One lock protects everything; connections do not take it. A commit takes time proportional to the number
//! of certificates of the affected listeners, so commands run off the lanes.

use crate::certificate::{Bundle, Certificate, Definition};
use crate::choose::{Bases, Choice, List, ListLine, ShownName, Source};
use crate::client::{self, ClientConfigs, ClientContext, ClientSettings};
use crate::error::Problem;
use crate::files::{Section, decode_base64, sections_of};
use crate::generate::SigningAuthority;
use crate::issuers::{FileRules, FileSettings};
use crate::line_options::{CertificateFiles, LineOptions, SCTL};
use crate::ocsp::{self, OcspId, ocsp_text};
use crate::ocsp_update::Updates;
use crate::server::{self, ServerContext, ServerSettings};
use crate::tickets::{BadKey, TicketKeys};
use crate::trust::{Authorities, Revoked};
use crate::watch::{self, Watched};
use manylane_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use manylane_sync::qsbr::{Published, Reader};
use manylane_sync::{LockClass, Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

static FILES: LockClass = LockClass::new("files of TLS", 73);

/// A context: the settings that it is made from, and its current version.
pub(crate) struct Context<S, C> {
    pub(crate) settings: S,
    pub(crate) now: Published<Arc<C>>,
    /// Digest of the files of the current version, for contexts of servers.
    pub(crate) contents: AtomicU64,
    /// True once there was another version, for contexts of servers: connections may have been made by that.
    pub(crate) is_renewed: AtomicBool,
}

impl<S, C: Send + Sync + 'static> Context<S, C> {
    pub(crate) fn load(&self, reader: &Reader) -> Arc<C> {
        self.now.load(reader).clone()
    }
}

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A certificate with its chain and key.
    Certificate,
    /// CA certificates.
    Authorities,
    /// Certificate revocation lists.
    Revoked,
}

/// Why a change was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no file of this name.
    Unknown,
    /// A file of this name exists.
    Exists,
    /// A context uses the file.
    Used,
    /// The file has an open transaction.
    Open,
    /// No transaction is open.
    NoTransaction,
    /// The open transaction is for this file.
    Other(Box<str>),
    /// The file is empty.
    Empty,
    /// The payload cannot be used.
    Bad(Problem),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Bad(problem)
    }
}

/// Why an OCSP response was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadOcsp {
    /// It is not base64.
    Malformed,
    /// It is not valid for the certificate; the reason as a clause.
    Refused(&'static str),
}

/// The files of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The file of the open transaction, and the number of certificates in it.
    pub pending: Option<(Box<str>, usize)>,
    /// All files, and the number of certificates in each.
    pub all: Vec<(Box<str>, usize)>,
}

/// The contents of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// A context uses it.
    pub used: bool,
    /// Certificates or revocation lists, in DER.
    pub der: Vec<Box<[u8]>>,
    /// The files of the certificate and its key, if they were read from files.
    pub files: Option<(PathBuf, PathBuf)>,
    /// The identifier of its OCSP response, if it has one.
    pub ocsp: Option<OcspId>,
}

/// The revocation lists of a file, in DER, which may have many megabytes and are shared with the store.
#[derive(Clone, Debug)]
pub struct RevokedLists {
    /// A context uses the file.
    pub used: bool,
    lists: Arc<Revoked>,
}

impl RevokedLists {
    /// The number of lists.
    pub fn len(&self) -> usize {
        self.lists.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lists.0.is_empty()
    }

    /// The list with this index.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.lists.0.get(index).map(|list| &**list)
    }
}

/// The contents of a kind of file.
trait Content: Clone + Default {
    /// Takes a payload for the file `name`. With `adds`, keeps what is there.
    fn take(&mut self, name: &str, sent: &Sent, adds: bool) -> Result<(), Problem>;
    /// Checks the contents before they are kept. Adds to `warnings`.
    fn finish(&mut self, name: &str, rules: &FileRules, warnings: &mut Vec<Problem>) -> Result<(), Problem>;
    fn der(&self) -> Vec<Box<[u8]>>;
    /// The length of `der`.
    fn count(&self) -> usize;
}

/// A payload.
enum Sent {
    /// Of a whole file.
    Whole(Vec<Section>),
    /// Of the file with a certificate's key, `<file>.key`.
    Key(Vec<Section>),
    /// Of the file with its issuer, `<file>.issuer`.
    Issuer(Vec<Section>),
    /// Of the file with its OCSP response, `<file>.ocsp`.
    Ocsp(Arc<[u8]>),
}

impl Sent {
    /// Parses the payload for the file with this ending beside `name`; `None` if no such file belongs to a
    /// certificate.
    fn beside(name: &str, ending: &str, sent: &[u8]) -> Option<Result<Self, Problem>> {
        let sections = || sections_of(Kind::Certificate.keyword(), name, sent);
        Some(match ending {
            "key" => sections().map(Self::Key),
            "issuer" => sections().map(Self::Issuer),
            "ocsp" => {
                let malformed = || Problem::new(ocsp::KEYWORD, "the response is not in base64");
                decode_base64(sent).ok_or_else(malformed).map(|der| Self::Ocsp(der.as_slice().into()))
            }
            "sctl" => Err(Problem::new("sctl", SCTL)),
            _ => return None,
        })
    }
}

impl Content for Bundle {
    fn take(&mut self, name: &str, sent: &Sent, _: bool) -> Result<(), Problem> {
        let lacks = |what: &str| Err(Problem::new("crt", format!("'{name}' has no {what}")));
        (self.ready, self.stamp) = (None, None);
        match sent {
            Sent::Whole(sent) if !sent.iter().any(Section::is_certificate) => lacks("certificate"),
            Sent::Whole(sent) => Bundle::take(self, name, sent),
            Sent::Key(sent) if !sent.iter().any(Section::is_key) => lacks("private key"),
            Sent::Key(sent) => self.take_key(name, sent),
            Sent::Issuer(sent) => self.take_issuer(name, sent),
            Sent::Ocsp(response) => {
                self.take_ocsp(response.clone());
                Ok(())
            }
        }
    }

    /// Warns of nothing but a response that was sent: the operator knows the dates of the certificate.
    fn finish(&mut self, name: &str, rules: &FileRules, warnings: &mut Vec<Problem>) -> Result<(), Problem> {
        let (has_sent, mut own) = (self.has_sent_ocsp(), Vec::new());
        self.complete(rules);
        Bundle::finish(self, name, rules, &mut own)?;
        let of_response = |problem: &Problem| has_sent && problem.keyword == ocsp::KEYWORD;
        warnings.extend(own.into_iter().find(of_response));
        Ok(())
    }

    fn der(&self) -> Vec<Box<[u8]>> {
        self.whole_chain().map(|der| Box::from(&**der)).collect()
    }

    fn count(&self) -> usize {
        self.whole_chain().count()
    }
}

impl Content for Authorities {
    fn take(&mut self, name: &str, sent: &Sent, adds: bool) -> Result<(), Problem> {
        let Sent::Whole(sent) = sent else { return Ok(()) };
        if !adds {
            *self = Self::default();
        }
        let before = self.certificates.len();
        for section in sent {
            // If one of several is unusable, the command fails; otherwise refused clients would be the first
            // sign.
            if let Some(error) = self.take(section) {
                let why = format!("'{name}' has a certificate that cannot be used: {error}");
                return Err(Problem::new("ca-file", why));
            }
        }
        match self.certificates.len() > before {
            true => Ok(()),
            false => Err(Problem::new("ca-file", format!("'{name}' has no certificate"))),
        }
    }

    fn finish(&mut self, _: &str, _: &FileRules, _: &mut Vec<Problem>) -> Result<(), Problem> {
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
    fn take(&mut self, name: &str, sent: &Sent, _: bool) -> Result<(), Problem> {
        let Sent::Whole(sent) = sent else { return Ok(()) };
        *self = Self::of(name, sent)?;
        match self.0.is_empty() {
            false => Ok(()),
            true => Err(Problem::new("crl-file", format!("'{name}' has no list of revoked certificates"))),
        }
    }

    fn finish(&mut self, _: &str, _: &FileRules, _: &mut Vec<Problem>) -> Result<(), Problem> {
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

    /// The contents of a file; with `*<file>`, of the open transaction for it.
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

    /// Returns true if this began a transaction, false if it extended the open one.
    fn set(&mut self, name: &str, sent: &Sent, adds: bool) -> Result<bool, Failure> {
        let (begins, mut content) = match &self.pending {
            Some((about, content)) if **about == *name => (false, content.clone()),
            Some((about, _)) => return Err(Failure::Other(about.clone())),
            None => (true, T::clone(self.all.get(name).ok_or(Failure::Unknown)?)),
        };
        content.take(name, sent, adds)?;
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

/// See the module's documentation.
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

type ServerEntry = Weak<Context<ServerSettings, server::Configs>>;
type ClientEntry = Weak<Context<ClientSettings, ClientConfigs>>;

/// What another store has read.
struct Predecessor {
    rules: FileRules,
    certificates: BTreeMap<Box<str>, Arc<Bundle>>,
}

#[derive(Default)]
pub(crate) struct Known {
    certificates: Files<Bundle>,
    authorities: Files<Authorities>,
    revoked: Files<Revoked>,
    /// In the order of their first use; commands refer to them by this index.
    ticket_keys: Vec<(Box<str>, Arc<TicketKeys>)>,
    /// By the files of `ca-sign-file`.
    signing: HashMap<PathBuf, Arc<SigningAuthority>>,
    lists: BTreeMap<Box<str>, (List, Bases)>,
    /// What the store before has read, while this one is filled.
    before: Option<Predecessor>,
    definitions: HashMap<Box<str>, Definition>,
    pub(crate) rules: FileRules,
    pub(crate) watched: BTreeMap<Box<str>, Watched>,
    pub(crate) updates: Updates,
    listeners: Vec<ServerEntry>,
    servers: Vec<ClientEntry>,
}

/// The store's name for a file that [`check_name`] accepts.
fn name_of(path: &Path) -> Box<str> {
    path.display().to_string().into()
}

/// Refuses a file name that is not UTF-8: no command could name it, and two such files could get the same
/// name.
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
    /// The certificate of this name; reads the file if necessary.
    pub(crate) fn certificate(
        &mut self,
        name: &str,
        warnings: &mut Vec<Problem>,
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
            None => Definition::of_file(name.into()),
        };
        if definition.is_watched {
            // Its stamps are older than what is read.
            self.watched.insert(name.into(), Watched::new(&definition, &self.rules));
        }
        let stamp = watch::settled_stamp(&definition, &self.rules);
        if let (Some(stamp), Some(before)) = (stamp, &self.before)
            && before.rules.is_like(&self.rules)
            && let Some(known) = before.certificates.get(name).filter(|known| known.is_as_in_files(stamp))
            && let Some(ready) = &known.ready
        {
            let ready = ready.clone();
            self.certificates.all.insert(name.into(), known.clone());
            return Ok(ready);
        }
        let mut bundle = Bundle::load(&definition, &self.rules, warnings)?;
        bundle.stamp = stamp;
        let ready = bundle.ready.clone();
        self.certificates.all.insert(name.into(), Arc::new(bundle));
        ready.ok_or_else(|| Problem::new("crt", format!("'{name}' is empty")))
    }

    /// The certificate that this side presents to servers that ask for one.
    pub(crate) fn own(&mut self, path: &Path, warnings: &mut Vec<Problem>) -> Result<Certificate, Problem> {
        check_name("crt", path)?;
        self.certificate(&name_of(path), warnings)
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

    /// The authority that signs generated certificates; reads its file if necessary.
    pub(crate) fn signing_authority(
        &mut self,
        path: &Path,
        warnings: &mut Vec<Problem>,
    ) -> Result<Arc<SigningAuthority>, Problem> {
        if let Some(known) = self.signing.get(path) {
            return Ok(known.clone());
        }
        let read = Arc::new(SigningAuthority::load(path, warnings)?);
        self.signing.insert(path.to_owned(), read.clone());
        Ok(read)
    }

    /// The ticket keys of a file; reads it if necessary.
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

    /// The files of the bundle `name`, `<name>.<kind of key>`, in HAProxy's order; empty if `name` is that of
    /// a certificate. Adds to `warnings`.
    fn bundle_of(&self, name: &Path, warnings: &mut Vec<Problem>) -> Vec<Box<str>> {
        let Some(name) = name.to_str().filter(|name| !name.starts_with('@')) else { return Vec::new() };
        let is_known = self.certificates.all.contains_key(name) || self.definitions.contains_key(name);
        if is_known || Path::new(name).exists() {
            return Vec::new();
        }
        let files = ["dsa", "ecdsa", "rsa"].map(|kind| format!("{name}.{kind}"));
        let mut found: Vec<Box<str>> =
            files.into_iter().filter(|file| Path::new(file).is_file()).map(Box::from).collect();
        if let [dsa, _, ..] = &found[..]
            && dsa.ends_with(".dsa")
        {
            let text = format!("'{dsa}' is not used: certificates with DSA keys are not supported");
            warnings.push(Problem::new("crt", text));
            found.remove(0);
        }
        found
    }

    /// The sources with the files of bundles in their places. Adds to `warnings`.
    fn with_bundles(&self, sources: &[Source], warnings: &mut Vec<Problem>) -> Vec<Source> {
        let mut all = Vec::new();
        for source in sources {
            let (path, make): (_, fn(PathBuf) -> Source) = match source {
                Source::Path(path) => (path, Source::Path),
                Source::Default(path) => (path, Source::Default),
                Source::List { .. } | Source::Lines { .. } => {
                    all.push(source.clone());
                    continue;
                }
            };
            let files = self.bundle_of(path, warnings);
            if files.is_empty() {
                all.push(source.clone());
            }
            all.extend(files.iter().map(|file| make(PathBuf::from(&**file))));
        }
        all
    }

    /// The lines with the files of bundles in their places: each has the options and names of its line.
    fn lines_with_bundles(&self, lines: Vec<ListLine>, warnings: &mut Vec<Problem>) -> Vec<ListLine> {
        let mut all = Vec::new();
        for line in lines {
            let files = self.bundle_of(Path::new(&*line.certificate), warnings);
            if files.is_empty() {
                all.push(line);
                continue;
            }
            all.extend(files.into_iter().map(|certificate| ListLine { certificate, ..line.clone() }));
        }
        all
    }

    /// Reads the lists and folders among `sources`. Adds to `warnings`.
    fn read_lists(&mut self, sources: &[Source], warnings: &mut Vec<Problem>) -> Result<(), Problem> {
        for source in sources {
            let path = source.path();
            check_name("crt", path)?;
            let name = name_of(path);
            if self.lists.contains_key(&name) {
                continue;
            }
            match source {
                Source::List { path, bases } => {
                    let mut list = List::of_file(path, bases)?;
                    list.lines = self.lines_with_bundles(list.lines, warnings);
                    self.updates.is_said |=
                        list.lines.iter().any(|line| line.options.ocsp_update().is_some());
                    self.lists.insert(name, (list, bases.clone()));
                }
                Source::Lines { bases, lines, .. } => {
                    self.updates.is_said |= lines.iter().any(|line| line.options.ocsp_update().is_some());
                    let lines = self.lines_with_bundles(lines.clone(), warnings);
                    let list = List { keyword: "ssl-f-use", lines };
                    self.lists.insert(name, (list, bases.clone()));
                }
                Source::Path(path) | Source::Default(path) if !name.starts_with('@') && path.is_dir() => {
                    let list = List::of_folder(path)?;
                    self.lists.insert(name, (list, Bases::default()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Defines the files of the line's certificate, if the line names some. The error is the end of a
    /// sentence.
    fn define_line(&mut self, line: &ListLine) -> Result<(), String> {
        let name = &line.certificate;
        let CertificateFiles { certificate, key, ocsp, issuer } = line.options.certificate_files();
        if let Some(other) = certificate.as_ref().filter(|other| *other != name) {
            return Err(format!("has 'crt {other}', expected the file that the line begins with, '{name}'"));
        }
        if key.is_none() && ocsp.is_none() && issuer.is_none() {
            return Ok(());
        }
        let [key, ocsp, issuer] = [key, ocsp, issuer].map(|file| file.as_deref().map(PathBuf::from));
        match self.definitions.get(name) {
            Some(known) if (&known.key, &known.ocsp, &known.issuer) == (&key, &ocsp, &issuer) => Ok(()),
            None if !self.certificates.all.contains_key(name) => {
                let of_file = Definition::of_file((&**name).into());
                self.definitions.insert(name.clone(), Definition { key, ocsp, issuer, ..of_file });
                Ok(())
            }
            _ => Err(format!("names other files for '{name}' than it was read with")),
        }
    }

    /// The certificates of all sources, in order.
    pub(crate) fn choose(
        &mut self,
        sources: &[Source],
        may_be_empty: bool,
        warnings: &mut Vec<Problem>,
    ) -> Result<Vec<Certificate>, Problem> {
        self.read_lists(sources, warnings)?;
        let mut all = Vec::new();
        for source in sources {
            let name = name_of(source.path());
            let is_default = matches!(source, Source::Default(_));
            let Some((list, _)) = self.lists.get(&name) else {
                let own = self.certificate(&name, warnings)?;
                all.push(Certificate { is_default, file: name, ..own });
                continue;
            };
            if list.lines.is_empty() && matches!(source, Source::List { .. }) && !may_be_empty {
                return Err(Problem::new("crt-list", format!("'{name}' names no certificate")));
            }
            let keyword = list.keyword;
            for line in list.lines.clone() {
                self.define_line(&line)
                    .map_err(|why| Problem::new(keyword, format!("{} {why}", line.location(&name))))?;
                let own = self.certificate(&line.certificate, warnings).map_err(|problem| match keyword {
                    "ssl-f-use" => Problem { keyword, ..problem },
                    _ => problem,
                })?;
                let own = line.apply(keyword, &name, &own, warnings)?;
                let (is_default, file) = (is_default || own.is_default, line.certificate.clone());
                all.push(Certificate { is_default, file, ..own });
            }
        }
        Ok(all)
    }

    /// True if the settings name the file, or a line of their lists.
    fn listener_names(&self, settings: &ServerSettings, kind: Kind, name: &str) -> bool {
        let is = |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| *name_of(path) == *name);
        let of_lines = |options: &[&str]| {
            let lists = settings.certificates.iter().filter_map(|own| self.lists.get(&name_of(own.path())));
            lists
                .flat_map(|(list, _)| &list.lines)
                .any(|line| line.options.files(options).any(|own| own == name))
        };
        match kind {
            Kind::Certificate => settings.certificates.iter().any(|source| {
                let source = name_of(source.path());
                match self.lists.get(&source) {
                    Some((list, _)) => list.lines.iter().any(|line| *line.certificate == *name),
                    None => *source == *name,
                }
            }),
            Kind::Authorities => {
                is(&settings.common.authorities)
                    || is(&settings.verify_authorities)
                    || of_lines(&["ca-file", "ca-verify-file"])
            }
            Kind::Revoked => is(&settings.common.revoked) || of_lines(&["crl-file"]),
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

    pub(crate) fn definition(&self, certificate: &str) -> Option<&Definition> {
        self.definitions.get(certificate)
    }

    pub(crate) fn bundle(&self, certificate: &str) -> Option<Arc<Bundle>> {
        self.certificates.all.get(certificate).cloned()
    }

    pub(crate) fn bundles(&self) -> impl Iterator<Item = (&Box<str>, &Arc<Bundle>)> {
        self.certificates.all.iter()
    }

    /// The certificates that listeners present, one item for each use, with the `ocsp-update` of its line.
    pub(crate) fn shown_certificates(&mut self) -> Vec<(Box<str>, Option<bool>)> {
        let (listeners, _) = self.live();
        let mut all = Vec::new();
        for source in listeners.iter().flat_map(|own| &own.0.settings.certificates) {
            let name = name_of(source.path());
            match self.lists.get(&name) {
                Some((list, _)) => {
                    all.extend(
                        list.lines.iter().map(|line| (line.certificate.clone(), line.options.ocsp_update())),
                    );
                }
                None => all.push((name, None)),
            }
        }
        all
    }

    /// True if a listener presents certificates. A lane asks this, so it visits none of them.
    pub(crate) fn shows_certificates(&mut self) -> bool {
        let (listeners, _) = self.live();
        let has_some = |source: &Source| {
            self.lists.get(&name_of(source.path())).is_none_or(|(list, _)| !list.lines.is_empty())
        };
        listeners.iter().flat_map(|own| &own.0.settings.certificates).any(has_some)
    }

    /// The contexts that still exist.
    fn live(&mut self) -> (Vec<ServerContext>, Vec<ClientContext>) {
        self.listeners.retain(|entry| entry.strong_count() > 0);
        self.servers.retain(|entry| entry.strong_count() > 0);
        let listeners = self.listeners.iter().filter_map(Weak::upgrade).map(ServerContext).collect();
        let servers = self.servers.iter().filter_map(Weak::upgrade).map(ClientContext).collect();
        (listeners, servers)
    }

    /// True if a context or a list names the file.
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

    /// Makes the selected contexts again, and publishes them if all could be made. Returns their number.
    fn renew(
        &mut self,
        listener: impl Fn(&Self, &ServerSettings) -> bool,
        server: impl Fn(&ClientSettings) -> bool,
    ) -> Result<usize, Problem> {
        let (listeners, servers) = self.live();
        let mut warnings = Vec::new(); // the operator who changes a certificate knows its dates
        let (mut new_listeners, mut new_servers) = (Vec::new(), Vec::new());
        for own in listeners {
            if listener(self, &own.0.settings) {
                let made = server::configs(&own.0.settings, self, &mut warnings)?;
                new_listeners.push((own, made));
            }
        }
        for own in servers {
            if server(&own.0.settings) {
                let made = client::config(&own.0.settings, self, &mut warnings)?;
                new_servers.push((own, made));
            }
        }
        let count = new_listeners.len() + new_servers.len();
        for (own, made) in new_listeners {
            own.0.now.replace(Arc::new(made));
        }
        for (own, made) in new_servers {
            own.0.contents.store(made.contents, Ordering::Relaxed);
            own.0.is_renewed.store(true, Ordering::Relaxed);
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

    /// The certificate that files beside it with this name, without their endings, belong to.
    fn whole_of(&self, name: &str) -> Option<Box<str>> {
        let dropped = self.rules.drops_extension.then(|| format!("{name}.crt"));
        let mut names = [Some(name), dropped.as_deref()].into_iter().flatten();
        names.find(|name| self.certificates.all.contains_key(*name)).map(Box::from)
    }

    /// True if the certificate has an open transaction.
    pub(crate) fn is_open(&self, certificate: &str) -> bool {
        self.certificates.open(certificate).is_ok()
    }

    /// Replaces a certificate as a commit does.
    pub(crate) fn replace_certificate(&mut self, name: &str, bundle: Bundle) -> Result<usize, Problem> {
        self.replace(Kind::Certificate, name, bundle, |known| &mut known.certificates, &mut Vec::new())
    }

    /// Rule 3.
    fn commit<T: Content>(
        &mut self,
        kind: Kind,
        name: &str,
        files: fn(&mut Self) -> &mut Files<T>,
        warnings: &mut Vec<Problem>,
    ) -> Result<usize, Failure> {
        let content = files(self).open(name)?.clone();
        let count = self.replace(kind, name, content, files, warnings)?;
        files(self).pending = None;
        Ok(count)
    }

    fn replace<T: Content>(
        &mut self,
        kind: Kind,
        name: &str,
        mut content: T,
        files: fn(&mut Self) -> &mut Files<T>,
        warnings: &mut Vec<Problem>,
    ) -> Result<usize, Problem> {
        content.finish(name, &self.rules, warnings)?;
        let before = files(self).all.insert(name.into(), Arc::new(content));
        match self.renew_for(kind, name) {
            Ok(count) => Ok(count),
            Err(problem) => {
                match before {
                    Some(before) => drop(files(self).all.insert(name.into(), before)),
                    None => drop(files(self).all.remove(name)),
                }
                Err(problem)
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
        if kind == Kind::Certificate {
            self.watched.remove(name);
            self.definitions.remove(name);
        }
        Ok(())
    }
}

/// Runs an expression with the files of the given kind.
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
    pub(crate) fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock()
    }

    /// Takes over what `before` knows of files that have not changed, until it is
    /// [forgotten](Self::forget_predecessor).
    /// Contents that commands have changed are read from the files again.
    pub fn follow(&self, before: &Self) {
        let own = {
            let known = before.0.lock();
            Predecessor { rules: known.rules.clone(), certificates: known.certificates.all.clone() }
        };
        self.0.lock().before = Some(own);
    }

    /// Forgets the store that this one [follows](Self::follow).
    pub fn forget_predecessor(&self) {
        let before = self.0.lock().before.take();
        drop(before); // outside of the lock: it may hold the last references
    }

    /// Sets how files are read. Call it before the first certificate is read. Adds to `warnings`.
    ///
    /// # Errors
    /// A sentence about the folder of issuers.
    pub fn set_files(&self, settings: &FileSettings, warnings: &mut Vec<Problem>) -> Result<(), Problem> {
        let rules = FileRules::read(settings, warnings)?;
        self.0.lock().rules = rules;
        Ok(())
    }

    /// `load` of a `crt-store` section: defines `name`. Returns false if the name was defined already.
    pub fn define(&self, name: &str, definition: Definition) -> bool {
        let mut known = self.0.lock();
        known.updates.is_said |= definition.ocsp_update.is_some();
        known.definitions.insert(name.into(), definition).is_none()
    }

    /// Reads the files of a `crt-store` entry, even if nothing uses it. Adds to `warnings`.
    ///
    /// # Errors
    /// A sentence about what cannot be used.
    pub fn load(&self, name: &str, warnings: &mut Vec<Problem>) -> Result<(), Problem> {
        self.0.lock().certificate(name, warnings).map(drop)
    }

    /// The context for listeners with these settings; equal settings share it. Adds to `warnings`.
    ///
    /// # Errors
    /// A sentence about what cannot be used.
    pub fn listener(
        &self,
        settings: &ServerSettings,
        warnings: &mut Vec<Problem>,
    ) -> Result<ServerContext, Problem> {
        let mut known = self.0.lock();
        let certificates = known.with_bundles(&settings.certificates, warnings);
        let settings = ServerSettings { certificates, ..settings.clone() };
        let same = known.listeners.iter().filter_map(Weak::upgrade).find(|own| own.settings == settings);
        if let Some(same) = same {
            return Ok(ServerContext(same));
        }
        let made = server::configs(&settings, &mut known, warnings)?;
        let (now, contents) = (Published::new(Arc::new(made)), AtomicU64::new(0));
        let context = Arc::new(Context { settings, now, contents, is_renewed: AtomicBool::new(false) });
        known.listeners.push(Arc::downgrade(&context));
        known.check_ocsp_modes()?;
        Ok(ServerContext(context))
    }

    /// A new context for a server. Adds to `warnings`.
    ///
    /// # Errors
    /// A sentence about what cannot be used.
    pub fn server(
        &self,
        settings: &ClientSettings,
        warnings: &mut Vec<Problem>,
    ) -> Result<ClientContext, Problem> {
        let mut known = self.0.lock();
        let made = client::config(settings, &mut known, warnings)?;
        let contents = AtomicU64::new(made.contents);
        let now = Published::new(Arc::new(made));
        let is_renewed = AtomicBool::new(false);
        let context = Arc::new(Context { settings: settings.clone(), now, contents, is_renewed });
        known.servers.retain(|entry| entry.strong_count() > 0); // drop those of removed servers
        known.servers.push(Arc::downgrade(&context));
        Ok(ClientContext(context))
    }

    /// The number of certificates that were read.
    pub fn count(&self) -> usize {
        self.0.lock().certificates.all.len()
    }

    /// The files of a kind.
    pub fn names(&self, kind: Kind) -> Names {
        let known = &mut *self.0.lock();
        each!(kind, files => files(known).names())
    }

    /// The contents of a file; with `*` before its name, of the open transaction for it.
    pub fn show(&self, kind: Kind, name: &str) -> Option<StoredFile> {
        let known = &mut *self.0.lock();
        let der = each!(kind, files => files(known).der(name))?;
        let bare = name.strip_prefix('*').unwrap_or(name);
        let used = !name.starts_with('*') && known.is_used(kind, bare);
        let read = known.certificates.all.get(bare).filter(|_| kind == Kind::Certificate);
        let stapled = read.filter(|bundle| bundle.staple.response().is_some());
        let ocsp = stapled.and_then(|bundle| bundle.ocsp_id());
        Some(StoredFile { used, der, files: read.and_then(|bundle| bundle.files.clone()), ocsp })
    }

    /// The revocation lists of a file; with `*` before its name, of the open transaction for it.
    pub fn revoked_lists(&self, name: &str) -> Option<RevokedLists> {
        let known = &mut *self.0.lock();
        let Some(bare) = name.strip_prefix('*') else {
            let lists = known.revoked.all.get(name)?.clone();
            return Some(RevokedLists { used: known.is_used(Kind::Revoked, name), lists });
        };
        let (_, sent) = known.revoked.pending.as_ref().filter(|(about, _)| **about == *bare)?;
        Some(RevokedLists { used: false, lists: Arc::new(sent.clone()) })
    }

    /// Creates an empty file.
    ///
    /// # Errors
    /// [`Failure::Exists`]
    pub fn create(&self, kind: Kind, name: &str) -> Result<(), Failure> {
        let known = &mut *self.0.lock();
        each!(kind, files => files(known).create(name))
    }

    /// Puts a payload into the transaction for a file; with `adds`, keeps what is there. `<file>.key`,
    /// `.issuer` and `.ocsp` (in base64) are parts of the certificate `<file>`. Returns the transaction's
    /// file, and whether this began the transaction.
    ///
    /// # Errors
    /// [`Failure`]; the transaction is unchanged.
    pub fn set(&self, kind: Kind, name: &str, sent: &[u8], adds: bool) -> Result<(Box<str>, bool), Failure> {
        let known = &mut *self.0.lock();
        if kind == Kind::Certificate
            && let Some((whole, ending)) = name.rsplit_once('.')
            && let Some(whole) = known.whole_of(whole)
            && let Some(sent) = Sent::beside(name, ending, sent)
        {
            let begins = known.certificates.set(&whole, &sent?, adds)?;
            return Ok((whole, begins));
        }
        let sent = Sent::Whole(sections_of(kind.keyword(), name, sent)?);
        let begins = each!(kind, files => files(known).set(name, &sent, adds))?;
        Ok((name.into(), begins))
    }

    /// Publishes the contents of the transaction for a file. Returns the number of contexts that use it. Adds
    /// to `warnings`.
    ///
    /// # Errors
    /// [`Failure`]; nothing changes, and the transaction stays open.
    pub fn commit(&self, kind: Kind, name: &str, warnings: &mut Vec<Problem>) -> Result<usize, Failure> {
        let known = &mut *self.0.lock();
        each!(kind, files => known.commit(kind, name, files, warnings))
    }

    /// Replaces a certificate, its chain and its key at once, as a commit does. Returns the number of
    /// contexts that use it.
    ///
    /// # Errors
    /// [`Failure`]; nothing changes. [`Failure::Open`]: the certificate has an open transaction, whose commit
    /// would mix this key with another chain.
    pub fn install(&self, name: &str, pem: &[u8]) -> Result<usize, Failure> {
        let sent = sections_of(Kind::Certificate.keyword(), name, pem)?;
        let known = &mut *self.0.lock();
        let mut content = Bundle::clone(known.certificates.all.get(name).ok_or(Failure::Unknown)?);
        if known.certificates.open(name).is_ok() {
            return Err(Failure::Open);
        }
        content.take(name, &sent)?;
        Ok(known.replace_certificate(name, content)?)
    }

    /// Drops the transaction for a file.
    ///
    /// # Errors
    /// [`Failure::NoTransaction`], [`Failure::Other`]
    pub fn abort(&self, kind: Kind, name: &str) -> Result<(), Failure> {
        let known = &mut *self.0.lock();
        each!(kind, files => files(known).abort(name))
    }

    /// Removes a file that nothing uses.
    ///
    /// # Errors
    /// [`Failure::Unknown`], [`Failure::Open`], [`Failure::Used`]
    pub fn remove(&self, kind: Kind, name: &str) -> Result<(), Failure> {
        let known = &mut *self.0.lock();
        each!(kind, files => known.remove(kind, name, files))
    }

    /// The files of ticket keys in the order of their numbers, with the names of their keys.
    pub fn ticket_keys(&self) -> Vec<(Box<str>, Vec<[u8; 16]>)> {
        self.0.lock().ticket_keys.iter().map(|(name, keys)| (name.clone(), keys.names())).collect()
    }

    /// Adds a ticket key, in base64, to a file given by its name or by `#<number>`.
    ///
    /// # Errors
    /// [`BadKey`]; nothing changes.
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

    /// The certificates with an OCSP response: its identifier, and the certificate's name.
    pub fn stapled(&self) -> Vec<(OcspId, Box<str>)> {
        let known = self.0.lock();
        let all = known.certificates.all.iter().filter(|(_, bundle)| bundle.staple.response().is_some());
        all.filter_map(|(name, bundle)| Some((bundle.ocsp_id()?, name.clone()))).collect()
    }

    /// The OCSP response with this identifier, or of the certificate with this name.
    pub fn ocsp_response(&self, which: &str) -> Option<Box<[u8]>> {
        let known = self.0.lock();
        let all = &known.certificates.all;
        let named = all.get(which).and_then(|bundle| bundle.staple.response());
        named.or_else(|| {
            let is = |bundle: &&Arc<Bundle>| bundle.ocsp_id().is_some_and(|id| id.text() == which);
            all.values().find(is).and_then(|bundle| bundle.staple.response())
        })
    }

    /// Sets an OCSP response, in base64, for all certificates with its identifier.
    ///
    /// # Errors
    /// [`BadOcsp`]; nothing changes.
    pub fn set_ocsp(&self, text: &str) -> Result<(), BadOcsp> {
        let response = decode_base64(text.trim().as_bytes()).ok_or(BadOcsp::Malformed)?;
        let known = self.0.lock();
        let all = known.certificates.all.values();
        let own: Vec<_> = all.filter(|bundle| bundle.is_meant(&response)).collect();
        if own.is_empty() {
            return Err(match ocsp_text(&response) {
                None => BadOcsp::Refused("it is malformed"),
                Some(_) => BadOcsp::Refused("no certificate that it is about is known with its issuer"),
            });
        }
        own.into_iter().try_for_each(|bundle| bundle.set_ocsp(&response)).map_err(BadOcsp::Refused)
    }

    /// The names that a listener has certificates for.
    pub fn shown_names(&self, context: &ServerContext) -> Vec<ShownName> {
        let ServerSettings { certificates, strict_sni, .. } = &context.0.settings;
        let chosen = self.0.lock().choose(certificates, true, &mut Vec::new());
        // The context was made of the same files, so they can be used.
        Choice::new(chosen.unwrap_or_default(), *strict_sni, None, true).shown_names()
    }

    /// The names of the lists and folders.
    pub fn lists(&self) -> Vec<Box<str>> {
        self.0.lock().lists.keys().cloned().collect()
    }

    /// The lines of a list.
    pub fn list(&self, name: &str) -> Option<Vec<ListLine>> {
        self.0.lock().lists.get(name).map(|(list, _)| list.lines.clone())
    }

    /// Adds a line with a known certificate to a list. Returns the number of contexts that use the list.
    ///
    /// # Errors
    /// [`Failure`]; nothing changes. [`Failure::Empty`] refers to the certificate.
    pub fn add_line(&self, name: &str, text: &str) -> Result<usize, Failure> {
        let known = &mut *self.0.lock();
        let (list, bases) = known.lists.get(name).ok_or(Failure::Unknown)?;
        let mut lines = text.lines();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(Failure::Bad(Problem::new("crt-list", "only one line of payload is supported!")));
        };
        // An absolute name stays as it is, and so does a name that is known as written.
        let file = line.split_whitespace().next().unwrap_or_default();
        let mut bases = bases.clone();
        if known.certificates.all.contains_key(file) {
            bases.crt = PathBuf::new();
        }
        let number = list.lines.iter().map(|line| line.number).max().unwrap_or(0) + 1;
        let line = ListLine::parse(line.trim(), number, &bases)
            .map_err(|why| Failure::Bad(Problem::new("crt-list", format!("the line {why}"))))?;
        known.updates.is_said |= line.options.ocsp_update().is_some();
        if list.is_folder() && !(line.filters.is_empty() && line.options == LineOptions::default()) {
            let why = "a folder expects no options and no names behind a certificate";
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

    /// Removes from a list the line of a certificate; `number` selects the line unless it is 0. Returns the
    /// number of contexts that use the list.
    ///
    /// # Errors
    /// [`Failure`]; nothing changes.
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
        let renewed = self.check_ocsp_modes().and_then(|()| self.renew(names, |_| false));
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
