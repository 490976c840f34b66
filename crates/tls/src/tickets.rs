//! Session tickets: keys from files, lifetime and scope.
//!
//! # Protocol
//! 1. A file has keys in base64, one in each line. Either all have 48 bytes or all have 80: a name of 16
//!    bytes, then a key for AES-CBC and one for HMAC-SHA256, of 16 or 32 bytes each. The last [`KEPT`] are
//!    used: the last but one encrypts, and all decrypt. So a key can be distributed to all processes before
//!    one uses it.
//! 2. A new key becomes the last one, and the first one is dropped.
//! 3. The encrypted part begins with the time and the [`Rules`] of the listener. A resumed session does not
//!    verify the client's certificate again, so a ticket is valid only under the same rules.
//!
//! The format of a ticket is that recommended in RFC 5077, section 4.

use crate::error::Problem;
use crate::files::{decode_base64, read};
use aws_lc_rs::cipher::{
    AES_128, AES_256, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{hmac, iv};
use manylane_sync::{LockClass, Mutex};
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

static KEYS: LockClass = LockClass::new("keys of tickets", LockClass::LEAF);

/// Number of keys in use, as in HAProxy: the next, the current and the previous one.
const KEPT: usize = 3;

const NAME: usize = 16;
const IV: usize = 16;
const TAG: usize = 32;

/// Longest ticket, in bytes; TLS encodes the length in two bytes. Longer ones are ignored.
const LONGEST: usize = u16::MAX as usize;

const KEYWORD: &str = "tls-ticket-keys";

/// A ticket key.
struct Key {
    name: [u8; NAME],
    encrypts: PaddedBlockEncryptingKey,
    decrypts: PaddedBlockDecryptingKey,
    signs: hmac::Key,
    /// Length of the key material, in bytes.
    length: usize,
}

impl Key {
    /// `None` if the length is not that of a key.
    fn of(bytes: &[u8]) -> Option<Self> {
        let (name, rest) = bytes.split_first_chunk::<NAME>()?;
        let (cipher, aes, mac) = match rest.len() {
            32 => (&AES_128, &rest[..16], &rest[16..]),
            64 => (&AES_256, &rest[32..], &rest[..32]),
            _ => return None,
        };
        let unbound = || UnboundCipherKey::new(cipher, aes);
        let made = |name: [u8; NAME]| -> Result<Self, Unspecified> {
            Ok(Self {
                name,
                encrypts: PaddedBlockEncryptingKey::cbc_pkcs7(unbound()?)?,
                decrypts: PaddedBlockDecryptingKey::cbc_pkcs7(unbound()?)?,
                signs: hmac::Key::new(hmac::HMAC_SHA256, mac),
                length: bytes.len(),
            })
        };
        made(*name).ok()
    }

    /// Parses a line of a file.
    fn read(line: &str) -> Result<Self, BadKey> {
        let bytes = decode_base64(line.as_bytes()).ok_or(BadKey::Malformed)?;
        Self::of(&bytes).ok_or(BadKey::OtherLength)
    }

    /// The bytes that the tag authenticates.
    fn signed(&self, iv: &[u8], encrypted: &[u8]) -> Option<Vec<u8>> {
        let length = u16::try_from(encrypted.len()).ok()?.to_be_bytes();
        Some([&self.name[..], iv, &length, encrypted].concat())
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        // With room for the padding: a vector that grows would leave the session in freed memory.
        let mut encrypted = Vec::with_capacity(plain.len() + IV);
        encrypted.extend_from_slice(plain);
        let context = self.encrypts.encrypt(&mut encrypted).ok()?;
        let iv: &[u8] = (&context).try_into().ok()?;
        let tag = hmac::sign(&self.signs, &self.signed(iv, &encrypted)?);
        Some([&self.name[..], iv, &encrypted, tag.as_ref()].concat())
    }

    /// Decrypts a ticket; `rest` is the part after the key's name.
    fn decrypt(&self, rest: &[u8]) -> Option<Vec<u8>> {
        let (iv, rest) = rest.split_at_checked(IV)?;
        let (encrypted, tag) = rest.split_at_checked(rest.len().checked_sub(TAG)?)?;
        hmac::verify(&self.signs, &self.signed(iv, encrypted)?, tag).ok()?;
        let context = DecryptionContext::Iv128(iv::FixedLength::try_from(iv).ok()?);
        let mut plain = Zeroizing::new(encrypted.to_vec());
        Some(self.decrypts.decrypt(&mut plain, context).ok()?.to_vec())
    }
}

/// The keys of a file, shared by all listeners that name it.
pub(crate) struct TicketKeys {
    /// The oldest key first. Replaced as a whole.
    keys: Mutex<[Arc<Key>; KEPT]>,
}

/// Why a key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadKey {
    /// It is not base64.
    Malformed,
    /// Its length differs from the other keys of the file, or is not that of a key.
    OtherLength,
    /// There is no such file.
    Unknown,
}

impl TicketKeys {
    pub(crate) fn load(path: &Path) -> Result<Self, Problem> {
        let problem = |why: String| Problem::new(KEYWORD, format!("'{}' {why}", path.display()));
        let last = Self::parse(&read(KEYWORD, path)?).map_err(problem)?;
        Ok(Self { keys: Mutex::new(&KEYS, last) })
    }

    /// Rule 1. The error is the end of a sentence about the file.
    fn parse(bytes: &[u8]) -> Result<[Arc<Key>; KEPT], String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "is not in base64".to_owned())?;
        let mut keys: Vec<Arc<Key>> = Vec::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let key = Key::read(line.trim()).map_err(|_| {
                format!(
                    "expects 48 or 80 bytes in base64 in each line, found {} characters that are neither in \
                        line {number}",
                    line.trim().chars().count()
                )
            })?;
            if keys.first().is_some_and(|first| first.length != key.length) {
                return Err(format!(
                    "expects keys of one length, found 48 and 80 bytes: line {number} begins to differ"
                ));
            }
            keys.push(Arc::new(key));
        }
        let found = keys.len();
        let first = found.checked_sub(KEPT);
        let last = first.and_then(|first| keys.split_off(first).try_into().ok());
        last.ok_or_else(|| format!("expects at least {KEPT} keys, a line each, found {found}"))
    }

    /// Rule 2.
    pub(crate) fn push(&self, text: &str) -> Result<(), BadKey> {
        let key = Key::read(text.trim())?;
        let mut keys = self.keys.lock();
        if keys[0].length != key.length {
            return Err(BadKey::OtherLength);
        }
        let [_, second, third] = &*keys;
        *keys = [second.clone(), third.clone(), Arc::new(key)];
        Ok(())
    }

    /// The names of the keys, which are visible in tickets.
    pub(crate) fn names(&self) -> Vec<[u8; NAME]> {
        self.keys.lock().iter().map(|key| key.name).collect()
    }

    fn encrypts(&self) -> Arc<Key> {
        self.keys.lock()[KEPT - 2].clone()
    }

    fn named(&self, name: &[u8; NAME]) -> Option<Arc<Key>> {
        self.keys.lock().iter().find(|key| key.name == *name).cloned()
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    /// [`Tickets`] has the lifetime.
    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypts().encrypt(plain).filter(|ticket| ticket.len() <= LONGEST)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk().filter(|_| ticket.len() <= LONGEST)?;
        self.named(name)?.decrypt(rest)
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

/// For the fuzzer: parses the contents of a key file.
#[doc(hidden)]
pub fn check_ticket_keys(bytes: &[u8]) -> Result<(), String> {
    TicketKeys::parse(bytes).map(drop)
}

/// A digest of the rules by which a listener verifies client certificates.
pub(crate) type Rules = [u8; 32];

/// The ticket producer of a listener; applies rule 3.
#[derive(Debug)]
pub(crate) struct Tickets {
    pub(crate) keys: Arc<dyn ProducesTickets>,
    /// In seconds.
    pub(crate) lifetime: u32,
    pub(crate) rules: Rules,
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        self.keys.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.lifetime
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let dated = Zeroizing::new(dated(&self.rules, plain, UnixTime::now()));
        self.keys.encrypt(&dated)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let plain = Zeroizing::new(self.keys.decrypt(ticket)?);
        still_good(&self.rules, &plain, self.lifetime, UnixTime::now()).map(<[u8]>::to_vec)
    }
}

/// Prepends the time and the rules to `plain`.
pub(crate) fn dated(rules: &Rules, plain: &[u8], now: UnixTime) -> Vec<u8> {
    [&now.as_secs().to_be_bytes()[..], rules, plain].concat()
}

/// Removes what [`dated`] prepended. `None` if it is older than `lifetime` seconds or has other rules.
pub(crate) fn still_good<'a>(
    rules: &Rules,
    bytes: &'a [u8],
    lifetime: u32,
    now: UnixTime,
) -> Option<&'a [u8]> {
    let (made, rest) = bytes.split_first_chunk()?;
    let (own, plain) = rest.split_first_chunk::<32>()?;
    // If the clock was set back, a ticket must not be valid for longer; clocks of other machines may differ a
    // little.
    let age = now.as_secs().abs_diff(u64::from_be_bytes(*made));
    (own == rules && age <= u64::from(lifetime)).then_some(plain)
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too

    use super::*;
    use std::time::Duration;

    /// A key file's line in which all bytes of the key are equal. Keys of 48 and 80 bytes need no padding.
    fn line(byte: u8, length: usize) -> String {
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for three in vec![byte; length + 1].chunks(3) {
            let bits =
                three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
            (0..4).for_each(|at| text.push(char::from(letters[(bits >> (18 - 6 * at)) as usize & 63])));
        }
        match length % 3 {
            0 => text.truncate(length / 3 * 4),
            _ => text.replace_range(text.len() - 1.., "="),
        }
        text
    }

    fn keys(text: &str) -> Result<TicketKeys, String> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("manylane-tickets-{}-{number}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let loaded = TicketKeys::load(&path).map_err(|problem| problem.text);
        std::fs::remove_file(&path).unwrap();
        loaded
    }

    #[test]
    fn the_last_key_but_one_encrypts_and_all_decrypt() {
        for length in [48, 80] {
            let file = |bytes: &[u8]| bytes.iter().map(|byte| line(*byte, length) + "\n").collect::<String>();
            let first = keys(&file(&[9, 1, 2, 3])).unwrap();
            assert_eq!(first.names(), [[1; 16], [2; 16], [3; 16]], "{length}");
            let ticket = first.encrypt(b"session").unwrap();
            assert_eq!(ticket[..16], [2; 16]);
            let second = keys(&file(&[2, 3, 4])).unwrap();
            assert_eq!(second.decrypt(&ticket).unwrap(), b"session");
            assert_eq!(first.decrypt(&second.encrypt(b"other").unwrap()).unwrap(), b"other");
            for at in 0..ticket.len() {
                let mut other = ticket.clone();
                other[at] ^= 1;
                assert!(second.decrypt(&other).is_none(), "{at}");
                assert!(second.decrypt(&ticket[..at]).is_none(), "{at}");
            }
            second.push(&line(5, length)).unwrap();
            assert_eq!(second.decrypt(&ticket), None, "its key is forgotten");
            assert_eq!(second.encrypt(b"x").unwrap()[..16], [4; 16]);
            assert_eq!(second.push(&line(6, 128 - length)), Err(BadKey::OtherLength));
            assert_eq!(second.push("AAAA"), Err(BadKey::OtherLength));
            assert_eq!(second.push("?"), Err(BadKey::Malformed));
        }
    }

    #[test]
    fn files_that_have_no_keys_are_refused() {
        let (one, other) = (line(1, 48), line(2, 80));
        for (text, why) in [
            (format!("{one}\n{one}\n"), "expects at least 3 keys"),
            (format!("{one}\n\n{one}\n{other}\n"), "line 4 begins to differ"),
            (format!("{one}\n{one}\n{}\n", line(1, 60)), "found 80 characters that are neither in line 3"),
            (format!("{one}\nsecret!\n"), "found 7 characters that are neither in line 2"),
            (String::new(), "expects at least 3 keys"),
        ] {
            let error = keys(&text).err().unwrap();
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_session_is_good_for_its_time_and_by_its_rules() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let made = dated(&[1; 32], b"session", at(1000));
        let good = |rules: u8, now| still_good(&[rules; 32], &made, 300, at(now));
        assert_eq!([good(1, 1000), good(1, 1300)], [Some(&b"session"[..]); 2]);
        assert_eq!([good(1, 1301), good(1, 600), good(2, 1000)], [None; 3]);
        assert_eq!(still_good(&[1; 32], &made[..39], 300, at(1000)), None);
    }
}
