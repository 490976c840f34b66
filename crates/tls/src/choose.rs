//! Which certificate a client is shown: by the name that it asks for, and by what it can check.

use crate::certificate::Certificate;
use crate::error::Problem;
use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

thread_local! {
    /// What the client asked for whose hello was looked at last: rustls tells this to who chooses the
    /// certificate, and to nobody else.
    static ASKED: RefCell<Option<Option<Box<str>>>> = const { RefCell::new(None) };
}

/// The name that the hello asked for that rustls has looked at since the last call; outside: whether it did.
pub(crate) fn take_asked() -> Option<Option<Box<str>>> {
    ASKED.with_borrow_mut(Option::take)
}

/// The certificates of a listener.
#[derive(Debug)]
pub(crate) struct Choice {
    all: Vec<Certificate>,
    /// Numbers of those for a name; wildcards without their star.
    exact: HashMap<Box<str>, Vec<usize>>,
    wildcard: HashMap<Box<str>, Vec<usize>>,
    /// Those of the first file's names, for who asks for none, or for one that no certificate is for.
    default: Vec<usize>,
    strict: bool,
    /// TLS 1.3 is spoken.
    tls13: bool,
}

impl Choice {
    /// The first certificate is the default, with those of another kind of key for the same names.
    pub(crate) fn new(all: Vec<Certificate>, strict: bool, tls13: bool) -> Self {
        let (mut exact, mut wildcard) = (HashMap::<_, Vec<usize>>::new(), HashMap::<_, Vec<usize>>::new());
        for (number, certificate) in all.iter().enumerate() {
            for name in &certificate.names {
                let (map, name) = match name.strip_prefix('*') {
                    Some(rest) if rest.starts_with('.') => (&mut wildcard, rest),
                    _ => (&mut exact, &**name),
                };
                map.entry(Box::from(name)).or_default().push(number);
            }
        }
        let mut default = Vec::new();
        if let Some(first) = all.first() {
            let like = |(_, other): &(usize, &Certificate)| {
                other.is_ecdsa() != first.is_ecdsa() && other.names == first.names
            };
            default.push(0);
            default.extend(all.iter().enumerate().find(like).map(|(number, _)| number));
        }
        Self { all, exact, wildcard, default, strict, tls13 }
    }

    fn named(&self, name: &str) -> Option<Cow<'_, [usize]>> {
        let name = name.to_ascii_lowercase();
        if let Some(numbers) = self.exact.get(&*name) {
            return Some(Cow::Borrowed(numbers));
        }
        // Each of them has names of its own that it is not for.
        let is_for = |number: &usize| !self.all[*number].not_for.iter().any(|not| **not == *name);
        let numbers = self.wildcard.get(&name[name.find('.')?..])?;
        if numbers.iter().all(is_for) {
            return Some(Cow::Borrowed(numbers));
        }
        let left: Vec<usize> = numbers.iter().copied().filter(|number| is_for(number)).collect();
        (!left.is_empty()).then_some(Cow::Owned(left))
    }

    /// Whether a client that may speak no more than TLS 1.2 offers a suite for that kind of key. Suites of
    /// TLS 1.3 say nothing of keys.
    fn has_suite(&self, certificate: &Certificate, offered: &[rustls::CipherSuite]) -> bool {
        use rustls::CipherSuite as Suite;
        let fits = |suite: &Suite| match suite {
            Suite::TLS13_AES_128_GCM_SHA256
            | Suite::TLS13_AES_256_GCM_SHA384
            | Suite::TLS13_CHACHA20_POLY1305_SHA256 => self.tls13,
            Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
            | Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => certificate.is_ecdsa(),
            Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
            | Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
            | Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => !certificate.is_ecdsa(),
            _ => false,
        };
        offered.iter().any(fits)
    }
}

impl ResolvesServerCert for Choice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name();
        ASKED.set(Some(name.map(Box::from)));
        let numbers = match name.and_then(|name| self.named(name)) {
            Some(numbers) => numbers,
            None if self.strict => return None,
            None => Cow::Borrowed(&*self.default),
        };
        let certificates = || numbers.iter().map(|&number| &self.all[number]);
        let fits = |certificate: &&Certificate| {
            can_check(&certificate.key, hello.signature_schemes())
                && self.has_suite(certificate, hello.cipher_suites())
        };
        // Signing by ECDSA costs a fraction of what RSA does.
        let ecdsa = certificates().filter(fits).find(|certificate| certificate.is_ecdsa());
        let best = ecdsa.or_else(|| certificates().find(fits)).or_else(|| certificates().next())?;
        Some(best.key.clone())
    }
}

fn can_check(key: &CertifiedKey, schemes: &[SignatureScheme]) -> bool {
    key.key.choose_scheme(schemes).is_some()
}

/// Where certificates of a listener come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `crt`: a file, or a folder.
    Path(PathBuf),
    /// `crt-list`: a file that names files, the names that each is for, and those that it is not for.
    List {
        /// The list.
        path: PathBuf,
        /// Where relative names in it begin.
        base: PathBuf,
    },
}

impl Source {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Path(path) | Self::List { path, .. } => path,
        }
    }
}

/// The certificates of all sources, in order.
pub(crate) fn of_sources(sources: &[Source], told: &mut Vec<Problem>) -> Result<Vec<Certificate>, Problem> {
    let mut all = Vec::new();
    for source in sources {
        match source {
            Source::Path(path) => {
                all.extend(of_files("crt", std::slice::from_ref(path), told)?);
            }
            Source::List { path, base } => of_list(path, base, told, &mut all)?,
        }
    }
    Ok(all)
}

/// `<file> [\[<option>...\]] [[!]<name>...]` in each line.
fn of_list(
    path: &Path,
    base: &Path,
    told: &mut Vec<Problem>,
    all: &mut Vec<Certificate>,
) -> Result<(), Problem> {
    const KEYWORD: &str = "crt-list";
    let bytes = crate::files::read(KEYWORD, path)?;
    let before = all.len();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let problem =
            |why: &str| Problem::new(KEYWORD, format!("line {} of '{}' {why}", number + 1, path.display()));
        let line = std::str::from_utf8(line).map_err(|_| problem("is not UTF-8"))?.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (file, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let mut rest = rest.trim_start();
        if let Some(options) = rest.strip_prefix('[') {
            let Some((options, behind)) = options.split_once(']') else {
                return Err(problem("has a '[' without its ']'"));
            };
            if !options.trim().is_empty() {
                let why =
                    format!("has options ({}): those of one certificate are not built yet", options.trim());
                return Err(problem(&why));
            }
            rest = behind;
        }
        let mut certificate = Certificate::load(&base.join(file), told)?;
        let (mut names, mut not_for) = (Vec::new(), Vec::new());
        for name in rest.split_whitespace() {
            match name.strip_prefix('!') {
                Some(name) => not_for.push(name.to_ascii_lowercase().into()),
                None => names.push(name.to_ascii_lowercase().into()),
            }
        }
        if !names.is_empty() || !not_for.is_empty() {
            certificate.names = names; // as in HAProxy, also if they are none
        }
        certificate.not_for = not_for;
        all.push(certificate);
    }
    match all.len() == before {
        true => Err(Problem::new(KEYWORD, format!("'{}' names no certificate", path.display()))),
        false => Ok(()),
    }
}

/// The one certificate that this side shows to servers that ask for one.
pub(crate) fn of_files(
    keyword: &'static str,
    paths: &[PathBuf],
    told: &mut Vec<Problem>,
) -> Result<Vec<Certificate>, Problem> {
    let mut all = Vec::new();
    for path in paths {
        let folder = path.is_dir();
        for file in crate::files::files(keyword, path)? {
            // Keys, lists and the like may stand beside certificates.
            let kept = ["key", "ocsp", "sctl", "issuer", "dh"];
            let is_beside = file.extension().is_some_and(|ext| kept.iter().any(|kept| ext == *kept));
            if !(folder && is_beside) {
                all.push(Certificate::load(&file, told)?);
            }
        }
    }
    Ok(all)
}
