//! Selects the certificate for a client: by the name that it asks for, and by the algorithms that it
//! supports.

use crate::certificate::Certificate;
use crate::error::Problem;
use crate::generate::Generator;
use crate::line_options::{LineOptions, OwnOptions};
use crate::sigalgs::schemes;
use crate::store::check_name;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{SignatureAlgorithm, SignatureScheme};
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
    pub(crate) all: Vec<Certificate>,
    /// Indices in `all` by name; wildcards without their star.
    exact: HashMap<Box<str>, Vec<usize>>,
    wildcard: HashMap<Box<str>, Vec<usize>>,
    /// Indices for clients that ask for no name, or for an unknown one.
    default: Vec<usize>,
    strict: bool,
    /// Makes certificates for unknown names.
    generator: Option<Generator>,
    /// TLS 1.3 is enabled.
    tls13: bool,
}

impl Choice {
    /// If no certificate is marked as default, the default is the first one, together with one of another key
    /// type for the same names.
    pub(crate) fn new(
        all: Vec<Certificate>,
        strict: bool,
        generator: Option<Generator>,
        tls13: bool,
    ) -> Self {
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
        Self { all, exact, wildcard, default, strict, generator, tls13 }
    }

    /// Returns the index of the certificate for a client.
    pub(crate) fn choose(&self, hello: &ClientHello<'_>) -> Option<usize> {
        let numbers = match hello.server_name().and_then(|name| self.named(name)) {
            Some(numbers) => numbers,
            None if self.strict => return None,
            None => Cow::Borrowed(&*self.default),
        };
        self.best(&numbers, hello)
    }

    /// Returns the index of the certificate of these that suits a client best.
    fn best(&self, numbers: &[usize], hello: &ClientHello<'_>) -> Option<usize> {
        let fits = |number: &usize| {
            let certificate = &self.all[*number];
            can_check(&certificate.key, hello.signature_schemes())
                && self.has_suite(certificate, hello.cipher_suites())
        };
        let fitting = || numbers.iter().copied().filter(fits);
        // Signing with ECDSA costs a fraction of signing with RSA.
        let ecdsa = fitting().find(|number| self.all[*number].is_ecdsa());
        ecdsa.or_else(|| fitting().next()).or_else(|| numbers.first().copied())
    }

    /// Returns true if a certificate is made for the name that a client asks for.
    pub(crate) fn generates(&self, hello: &ClientHello<'_>) -> bool {
        self.generator.is_some() && hello.server_name().is_some_and(|name| self.named(name).is_none())
    }

    /// Returns the certificate that is made for a client.
    fn generated(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let generator = self.generator.as_ref().filter(|_| self.generates(hello))?;
        let number = self.best(&self.default, hello)?;
        generator.shown(&hello.server_name()?.to_ascii_lowercase(), number, &self.all[number])
    }

    /// Shows a certificate to a client, and leaves the result for its connection.
    fn show(&self, number: Option<usize>, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let shown = self.generated(hello).or_else(|| number.map(|number| self.all[number].shown()));
        CHOSEN.set(Some(Chosen { name: hello.server_name().map(Box::from), shown: shown.clone() }));
        shown
    }

    /// The names in the order of HAProxy: exact ones, `*` for clients with other names, then wildcards.
    pub(crate) fn shown_names(&self) -> Vec<ShownName> {
        let row = |name: String, number: usize, is_exact: bool| {
            let certificate = &self.all[number];
            let (not_before, not_after) = certificate.validity();
            ShownName {
                name: name.into(),
                not_for: if is_exact { Arc::default() } else { certificate.not_for.clone() },
                key: match certificate.key.key.algorithm() {
                    SignatureAlgorithm::RSA => "rsa",
                    SignatureAlgorithm::ECDSA => "ecdsa",
                    _ => "dsa", // as HAProxy calls what is neither
                },
                certificate: certificate.file.clone(),
                not_before,
                not_after,
            }
        };
        let sorted = |map: &HashMap<Box<str>, Vec<usize>>| {
            let mut all: Vec<_> = map.iter().map(|(name, numbers)| (name.clone(), numbers.clone())).collect();
            all.sort_unstable();
            all.into_iter()
                .flat_map(|(name, numbers)| numbers.into_iter().map(move |number| (name.clone(), number)))
        };
        let exact = sorted(&self.exact).map(|(name, number)| row(name.into(), number, true));
        let default = self.default.iter().map(|&number| row("*".to_owned(), number, false));
        let wildcard = sorted(&self.wildcard).map(|(name, number)| row(format!("*{name}"), number, false));
        exact.chain(default).chain(wildcard).collect()
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
        self.show(self.choose(&hello), &hello)
    }
}

/// One of the certificates, for clients whose hello has been looked at before.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) choice: Arc<Choice>,
    pub(crate) number: usize,
}

impl ResolvesServerCert for Fixed {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choice.show(Some(self.number), &hello)
    }
}

/// For a listener with options on lines, where each certificate has a configuration of its own: shows none of
/// them. A client that gets here has sent what rustls takes for a hello and the look at it did not, and must
/// not meet a certificate without its options.
#[derive(Debug)]
pub(crate) struct Unlisted(pub(crate) Arc<Choice>);

impl ResolvesServerCert for Unlisted {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.show(None, &hello)
    }
}

fn can_check(key: &CertifiedKey, schemes: &[SignatureScheme]) -> bool {
    key.key.choose_scheme(schemes).is_some()
}

/// A name that a listener has a certificate for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownName {
    /// In lower case; `*` for clients with other names.
    pub name: Box<str>,
    /// Names that a wildcard leaves out.
    pub not_for: Arc<[Box<str>]>,
    /// Kind of the key: `rsa`, `ecdsa` or `dsa`.
    pub key: &'static str,
    /// The certificate's name in the store.
    pub certificate: Box<str>,
    /// Begin of its validity, in seconds since 1970.
    pub not_before: i64,
    /// End of its validity, in seconds since 1970.
    pub not_after: i64,
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
        /// Folders that relative names in the list begin at.
        bases: Bases,
    },
    /// `ssl-f-use`: lines of a frontend. Certificates that they name have no folders.
    Lines {
        /// `@<frontend>`, the name of the list.
        name: PathBuf,
        /// Folders for lines that are added at run time.
        bases: Bases,
        /// The lines.
        lines: Vec<ListLine>,
    },
}

/// Folders that relative names in a list begin at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bases {
    /// `crt-base`: for certificates.
    pub crt: PathBuf,
    /// `ca-base`: for authorities and revoked certificates.
    pub ca: PathBuf,
}

impl Source {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Path(path)
            | Self::Default(path)
            | Self::List { path, .. }
            | Self::Lines { name: path, .. } => path,
        }
    }
}

/// The certificates that a list file or a folder names.
#[derive(Clone, Debug)]
pub(crate) struct List {
    /// `crt` for a folder, else `crt-list` or `ssl-f-use`.
    pub(crate) keyword: &'static str,
    /// In the order of the file or of the names.
    pub(crate) lines: Vec<ListLine>,
}

/// A line of a certificate list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListLine {
    /// Line number in the file; 0 for a file of a folder and for `ssl-f-use`. A line added at run time has
    /// the number after the largest.
    pub number: usize,
    /// The certificate's name in the store.
    pub certificate: Box<str>,
    /// What takes the place of the listener's settings.
    pub options: LineOptions,
    /// `[!]<name>`
    pub filters: Vec<Box<str>>,
}

impl List {
    pub(crate) fn is_folder(&self) -> bool {
        self.keyword == "crt"
    }

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
        Ok(Self { keyword: "crt", lines })
    }

    /// Parses a file with `<file> [\[<option>...\]] [[!]<name>...]` in each line.
    pub(crate) fn of_file(path: &Path, bases: &Bases) -> Result<Self, Problem> {
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
            lines.push(ListLine::parse(line, number + 1, bases).map_err(|why| problem(&why))?);
        }
        Ok(Self { keyword: KEYWORD, lines })
    }
}

impl ListLine {
    /// Parses a line. The error is the end of a sentence.
    pub(crate) fn parse(text: &str, number: usize, bases: &Bases) -> Result<Self, String> {
        let mut options = LineOptions::default();
        let (file, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let mut rest = rest.trim_start();
        if let Some(inside) = rest.strip_prefix('[') {
            let (inside, behind) = inside.split_once(']').ok_or("has a '[' without its ']'")?;
            options = LineOptions::parse(inside.split_whitespace(), &bases.ca)?;
            rest = behind;
        }
        let certificate = match file.starts_with('@') {
            true => file.into(),
            false => {
                let path = bases.crt.join(file);
                path.to_str().ok_or("names a file whose folder has a name that is not UTF-8")?.into()
            }
        };
        let filters = rest.split_whitespace().map(Box::from).collect();
        Ok(Self { number, certificate, options, filters })
    }

    /// Returns the place of the line, or its certificate, if the list is a folder.
    pub(crate) fn location(&self, list: &str) -> String {
        match self.number {
            0 => format!("'{}'", self.certificate),
            number => format!("line {number} of '{list}'"),
        }
    }

    /// Returns a copy of the certificate with the line's names and options. `keyword` and `list` are those of
    /// the list.
    pub(crate) fn apply(
        &self,
        keyword: &'static str,
        list: &str,
        certificate: &Certificate,
        warnings: &mut Vec<Problem>,
    ) -> Result<Certificate, Problem> {
        let sigalgs = self.options.sigalgs();
        let schemes = sigalgs.map(|list| schemes("sigalgs", list, warnings)).transpose()?;
        let mut own = certificate.clone().signing_by(schemes.as_ref());
        if self.options.change_handshakes() {
            let location = self.location(list);
            let options = OwnOptions { keyword, location, options: self.options.without_files() };
            warnings.extend(self.options.old_version().map(|why| options.problem(why)));
            own.options = Some(Arc::new(options));
        }
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
