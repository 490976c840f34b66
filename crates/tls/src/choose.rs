//! Selects the certificate for a client: by the name that it asks for, and by the algorithms that it
//! supports.

use crate::certificate::Certificate;
use crate::error::Problem;
use crate::sigalgs::schemes;
use crate::store::check_name;
use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

thread_local! {
    /// The result for the last client hello. rustls passes a hello only to the certificate resolver, which
    /// leaves it here for the connection.
    static CHOSEN: RefCell<Option<Chosen>> = const { RefCell::new(None) };
}

/// The name that a client asked for, and the certificate that was selected.
pub(crate) struct Chosen {
    pub(crate) name: Option<Box<str>>,
    pub(crate) shown: Option<Arc<CertifiedKey>>,
}

/// The result for the hello that rustls has processed since the last call, if any.
pub(crate) fn take_chosen() -> Option<Chosen> {
    CHOSEN.with_borrow_mut(Option::take)
}

/// The certificates of a listener.
#[derive(Debug)]
pub(crate) struct Choice {
    all: Vec<Certificate>,
    /// Indices in `all` by name; wildcards without their star.
    exact: HashMap<Box<str>, Vec<usize>>,
    wildcard: HashMap<Box<str>, Vec<usize>>,
    /// Indices for clients that ask for no name, or for an unknown one.
    default: Vec<usize>,
    strict: bool,
    /// TLS 1.3 is enabled.
    tls13: bool,
}

impl Choice {
    /// If no certificate is marked as default, the default is the first one, together with one of another key
    /// type for the same names.
    pub(crate) fn new(all: Vec<Certificate>, strict: bool, tls13: bool) -> Self {
        let (mut exact, mut wildcard) = (HashMap::<_, Vec<usize>>::new(), HashMap::<_, Vec<usize>>::new());
        for (number, certificate) in all.iter().enumerate() {
            for name in certificate.names.iter() {
                let (map, name) = match name.strip_prefix('*') {
                    Some(rest) if rest.starts_with('.') => (&mut wildcard, rest),
                    _ => (&mut exact, &**name),
                };
                map.entry(Box::from(name)).or_default().push(number);
            }
        }
        let marked = all.iter().enumerate().filter(|(_, certificate)| certificate.is_default);
        let mut default: Vec<usize> = marked.map(|(number, _)| number).collect();
        if let (true, Some(first)) = (default.is_empty(), all.first()) {
            let like = |(_, other): &(usize, &Certificate)| {
                other.is_ecdsa() != first.is_ecdsa() && other.names == first.names
            };
            default.push(0);
            default.extend(all.iter().enumerate().find(like).map(|(number, _)| number));
        }
        Self { all, exact, wildcard, default, strict, tls13 }
    }

    fn choose(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let numbers = match hello.server_name().and_then(|name| self.named(name)) {
            Some(numbers) => numbers,
            None if self.strict => return None,
            None => Cow::Borrowed(&*self.default),
        };
        let certificates = || numbers.iter().map(|&number| &self.all[number]);
        let fits = |certificate: &&Certificate| {
            can_check(&certificate.key, hello.signature_schemes())
                && self.has_suite(certificate, hello.cipher_suites())
        };
        // Signing with ECDSA costs a fraction of signing with RSA.
        let ecdsa = certificates().filter(fits).find(|certificate| certificate.is_ecdsa());
        let best = ecdsa.or_else(|| certificates().find(fits)).or_else(|| certificates().next())?;
        Some(best.shown())
    }

    fn named(&self, name: &str) -> Option<Cow<'_, [usize]>> {
        let name = name.to_ascii_lowercase();
        if let Some(numbers) = self.exact.get(&*name) {
            return Some(Cow::Borrowed(numbers));
        }
        // Each certificate has its own list of names to exclude.
        let is_for = |number: &usize| !self.all[*number].not_for.iter().any(|not| **not == *name);
        let numbers = self.wildcard.get(&name[name.find('.')?..])?;
        if numbers.iter().all(is_for) {
            return Some(Cow::Borrowed(numbers));
        }
        let left: Vec<usize> = numbers.iter().copied().filter(|number| is_for(number)).collect();
        (!left.is_empty()).then_some(Cow::Owned(left))
    }

    /// True if a client that speaks TLS 1.2 at most offers a suite for the certificate's kind of key. Suites
    /// of TLS 1.3 are independent of the key.
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
        let shown = self.choose(&hello);
        CHOSEN.set(Some(Chosen { name: hello.server_name().map(Box::from), shown: shown.clone() }));
        shown
    }
}

fn can_check(key: &CertifiedKey, schemes: &[SignatureScheme]) -> bool {
    key.key.choose_scheme(schemes).is_some()
}

/// Source of certificates for a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `crt`: a file, a folder, or `@<section>/<name>` of a `crt-store` section.
    Path(PathBuf),
    /// `default-crt`: the same, for clients whose name no other certificate has.
    Default(PathBuf),
    /// `crt-list`: a file that names certificate files, with names to include and names to exclude for each.
    List {
        /// The list file.
        path: PathBuf,
        /// Base of relative names in the list.
        base: PathBuf,
    },
}

impl Source {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Path(path) | Self::Default(path) | Self::List { path, .. } => path,
        }
    }
}

/// The certificates that a list file or a folder names.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    /// The source is a folder.
    pub(crate) folder: bool,
    /// In the order of the file or of the names.
    pub(crate) lines: Vec<ListLine>,
}

/// A line of a certificate list.
#[derive(Clone, Debug, Default)]
pub struct ListLine {
    /// Line number in the file; 0 for a file of a folder. A line added at run time has the number after the
    /// largest.
    pub number: usize,
    /// The certificate's name in the store.
    pub certificate: Box<str>,
    /// `sigalgs`: algorithms that sign with its key.
    pub sigalgs: Option<Box<str>>,
    /// `ocsp-update`
    pub ocsp_update: Option<bool>,
    /// `[!]<name>`
    pub filters: Vec<Box<str>>,
}

impl List {
    /// Lists the files of a folder.
    pub(crate) fn of_folder(path: &Path) -> Result<Self, Problem> {
        let mut lines = Vec::new();
        for file in crate::files::files("crt", path)? {
            // Keys, lists and the like may be beside certificates.
            let kept = ["key", "ocsp", "sctl", "issuer", "dh"];
            if !file.extension().is_some_and(|ext| kept.iter().any(|kept| ext == *kept)) {
                check_name("crt", &file)?;
                let certificate = file.display().to_string().into();
                lines.push(ListLine { certificate, ..ListLine::default() });
            }
        }
        Ok(Self { folder: true, lines })
    }

    /// Parses a file with `<file> [\[<option>...\]] [[!]<name>...]` in each line.
    pub(crate) fn of_file(path: &Path, base: &Path) -> Result<Self, Problem> {
        const KEYWORD: &str = "crt-list";
        let bytes = crate::files::read(KEYWORD, path)?;
        let mut lines = Vec::new();
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let problem = |why: &str| {
                Problem::new(KEYWORD, format!("line {} of '{}' {why}", number + 1, path.display()))
            };
            let line = std::str::from_utf8(line).map_err(|_| problem("is not UTF-8"))?.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            lines.push(ListLine::parse(line, number + 1, base).map_err(|why| problem(&why))?);
        }
        Ok(Self { folder: false, lines })
    }
}

impl ListLine {
    /// Parses a line. The error is the end of a sentence.
    pub(crate) fn parse(text: &str, number: usize, base: &Path) -> Result<Self, String> {
        let (mut sigalgs, mut ocsp_update) = (None, None);
        let (file, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let mut rest = rest.trim_start();
        if let Some(options) = rest.strip_prefix('[') {
            let (options, behind) = options.split_once(']').ok_or("has a '[' without its ']'")?;
            let mut words = options.split_whitespace();
            while let Some(option) = words.next() {
                match option {
                    "sigalgs" => {
                        let list = words.next().ok_or("has 'sigalgs' without its list")?;
                        sigalgs = Some(list.into());
                    }
                    "ocsp-update" => match words.next() {
                        Some("on") => ocsp_update = Some(true),
                        Some("off") => ocsp_update = Some(false),
                        _ => return Err("has 'ocsp-update', which expects 'on' or 'off'".to_owned()),
                    },
                    other => {
                        return Err(format!(
                            "has the option '{other}': of one certificate there are 'sigalgs' and \
                             'ocsp-update', others are not built yet"
                        ));
                    }
                }
            }
            rest = behind;
        }
        let certificate = match file.starts_with('@') {
            true => file.into(),
            false => {
                let path = base.join(file);
                path.to_str().ok_or("names a file whose folder has a name that is not UTF-8")?.into()
            }
        };
        let filters = rest.split_whitespace().map(Box::from).collect();
        Ok(Self { number, certificate, sigalgs, ocsp_update, filters })
    }

    /// Returns a copy of the certificate with the line's names.
    pub(crate) fn apply(
        &self,
        certificate: &Certificate,
        told: &mut Vec<Problem>,
    ) -> Result<Certificate, Problem> {
        let schemes = self.sigalgs.as_ref().map(|list| schemes("sigalgs", list, told)).transpose()?;
        let mut own = certificate.clone().signing_by(schemes.as_ref());
        if self.filters.is_empty() {
            return Ok(own);
        }
        let (mut names, mut not_for) = (Vec::new(), Vec::new());
        for name in &self.filters {
            match name.strip_prefix('!') {
                Some(name) => not_for.push(name.to_ascii_lowercase().into()),
                None if **name == *"*" => own.is_default = true,
                None => names.push(name.to_ascii_lowercase().into()),
            }
        }
        (own.names, own.not_for) = (names.into(), not_for.into()); // as in HAProxy, even if both are empty
        Ok(own)
    }
}
