//! TLS settings of the process. None has an effect before TLS is built, and files without a line that uses
//! TLS may have them all: the lines that do are refused.

use super::section::GLOBAL;
use super::{Keyword, own};

/// Why everything about TLS is refused.
pub(super) const TLS: &str = "TLS is not built yet";

/// Why its settings of the process do nothing.
const TUNED: &str = "TLS is not built yet, and nothing else heeds it; the line may stay";

pub(super) fn rows() -> Vec<Keyword> {
    let settings = [
        ("acme.scheduler", "on|off", "renews certificates by itself"),
        ("ca-base", "<folder>", "where relative names of authorities' files begin"),
        ("crt-base", "<folder>", "where relative names of certificates begin"),
        ("httpclient.ssl.ca-file", "<file>", "authorities that the internal client trusts"),
        ("httpclient.ssl.verify", "none|required", "whether the internal client checks certificates"),
        ("issuers-chain-path", "<folder>", "issuers' certificates that complete chains"),
        ("key-base", "<folder>", "where relative names of private keys begin"),
        ("maxsslconn", "<number>", "TLS connections at once"),
        ("maxsslrate", "<number>", "TLS handshakes a second"),
        ("ocsp-update.disable", "on|off", "no renewal of OCSP responses"),
        ("ocsp-update.httpproxy", "<address>", "proxy for the renewal of OCSP responses"),
        ("ocsp-update.maxdelay", "<seconds>", "longest time between renewals of an OCSP response"),
        ("ocsp-update.mindelay", "<seconds>", "shortest time between renewals of an OCSP response"),
        ("ocsp-update.mode", "on|off", "renewal of OCSP responses"),
        ("ssl-default-bind-ciphers", "<list>", "ciphers up to TLS 1.2 towards clients"),
        ("ssl-default-bind-ciphersuites", "<list>", "ciphers of TLS 1.3 towards clients"),
        ("ssl-default-bind-client-sigalgs", "<list>", "signatures asked of clients"),
        ("ssl-default-bind-curves", "<list>", "curves towards clients"),
        ("ssl-default-bind-options", "<option>...", "options of all bind lines with TLS"),
        ("ssl-default-bind-sigalgs", "<list>", "signatures towards clients"),
        ("ssl-default-server-ciphers", "<list>", "ciphers up to TLS 1.2 towards servers"),
        ("ssl-default-server-ciphersuites", "<list>", "ciphers of TLS 1.3 towards servers"),
        ("ssl-default-server-client-sigalgs", "<list>", "signatures of our certificates towards servers"),
        ("ssl-default-server-curves", "<list>", "curves towards servers"),
        ("ssl-default-server-options", "<option>...", "options of all servers with TLS"),
        ("ssl-default-server-sigalgs", "<list>", "signatures towards servers"),
        ("ssl-dh-param-file", "<file>", "Diffie-Hellman parameters"),
        ("ssl-engine", "<name>", "engine that does the arithmetic"),
        ("ssl-load-extra-del-ext", "", "extensions are removed before extra files are looked for"),
        ("ssl-load-extra-files", "<kind>...", "files that are loaded beside certificates"),
        ("ssl-mode-async", "", "handshakes wait for engines without blocking"),
        ("ssl-passphrase-cmd", "<command>", "program that tells the passphrase of keys"),
        ("ssl-propquery", "<query>", "properties of the implementation to use"),
        ("ssl-provider", "<name>", "provider of algorithms"),
        ("ssl-provider-path", "<folder>", "where providers are found"),
        ("ssl-security-level", "<level>", "lowest strength of algorithms"),
        ("ssl-server-verify", "none|required", "whether servers' certificates are checked"),
        ("ssl-skip-self-issued-ca", "", "self-issued authorities are left out of chains"),
    ]
    .map(|(name, usage, help)| own(name, GLOBAL, usage, 0, help).idle(TUNED));
    let tuned = [
        ("tune.ssl.cachesize", "<number>", "sessions in the cache"),
        ("tune.ssl.capture-buffer-size", "<bytes>", "bytes of a hello that are kept"),
        ("tune.ssl.capture-cipherlist-size", "<bytes>", "bytes of a list of ciphers that are kept"),
        ("tune.ssl.certificate-compression", "auto|off", "certificates are sent compressed"),
        ("tune.ssl.default-dh-param", "<bits>", "size of Diffie-Hellman parameters"),
        ("tune.ssl.force-private-cache", "", "sessions are cached by process"),
        ("tune.ssl.hard-maxrecord", "<bytes>", "largest record"),
        ("tune.ssl.keylog", "on|off", "secrets are kept for capture tools"),
        ("tune.ssl.lifetime", "<seconds>", "how long a session can be resumed"),
        ("tune.ssl.maxrecord", "<bytes>", "largest record at the beginning of a connection"),
        ("tune.ssl.ocsp-update.maxdelay", "<seconds>", "longest time between renewals of an OCSP response"),
        ("tune.ssl.ocsp-update.mindelay", "<seconds>", "shortest time between renewals of an OCSP response"),
        ("tune.ssl.ssl-ctx-cache-size", "<number>", "generated certificates in the cache"),
    ]
    .map(|(name, usage, help)| own(name, GLOBAL, usage, usize::from(!usage.is_empty()), help).idle(TUNED));
    settings.into_iter().chain(tuned).collect()
}
