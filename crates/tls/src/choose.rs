//! Which certificate a client is shown: by the name that it asks for, and by what it can check.

use crate::certificate::Certificate;
use rustls::SignatureScheme;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::cell::RefCell;
use std::collections::HashMap;
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

    fn named(&self, name: &str) -> Option<&[usize]> {
        let name = name.to_ascii_lowercase();
        let by_wildcard = || self.wildcard.get(&name[name.find('.')?..]);
        self.exact.get(&*name).or_else(by_wildcard).map(Vec::as_slice)
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
            None => &self.default,
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

/// The one certificate that this side shows to servers that ask for one.
pub(crate) fn of_files(
    keyword: &'static str,
    paths: &[std::path::PathBuf],
    provider: &CryptoProvider,
    told: &mut Vec<crate::Problem>,
) -> Result<Vec<Certificate>, crate::Problem> {
    let mut all = Vec::new();
    for path in paths {
        let folder = path.is_dir();
        for file in crate::files::files(keyword, path)? {
            // Keys, lists and the like may stand beside certificates.
            let kept = ["key", "ocsp", "sctl", "issuer", "dh"];
            let is_beside = file.extension().is_some_and(|ext| kept.iter().any(|kept| ext == *kept));
            if !(folder && is_beside) {
                all.push(Certificate::load(&file, provider, told)?);
            }
        }
    }
    Ok(all)
}
