//! `userlist`: users with passwords and groups.

use super::refuse::Refuse;
use manylane_config::source::Pos;
use manylane_config::tree::{self, User};
use md5::{Digest, Md5};
use sha_crypt::Params;
use std::collections::HashMap;
use yescrypt::{PasswordVerifier, Yescrypt};

/// Rounds of a password hash that does not specify them.
const ROUNDS: u32 = 5000;

/// Most rounds of a hash. A thread beside the lanes computes them, 5,000 in a few milliseconds, and anew for
/// each wrong password. So a hash that takes a second would let few guesses keep a processor busy.
const MOST_ROUNDS: u32 = 1_000_000;

/// Most characters of a scrypt salt.
const LONGEST_SALT_OF_SCRYPT: usize = 64;

/// Highest cost of bcrypt, whose rounds are a power of two. The lowest possible cost, 4, takes about a
/// millisecond.
const MOST_BCRYPT_COST: u32 = 14;

/// Most bytes of memory that a hash of yescrypt or scrypt may need and process. Debian's default needs 16
/// MiB.
const MOST_YESCRYPT_MEMORY: u64 = 64 << 20;

/// Number of bytes of a salt that count.
const SALT: usize = 16;

/// Number of bytes of an MD5 salt that count.
const SALT_OF_MD5: usize = 8;

/// Most bytes of a password, as in crypt(3) of most systems: hashing takes longer with each byte.
const LONGEST: usize = 512;

/// Users of a list.
#[derive(Debug, Default)]
pub struct Userlist {
    users: HashMap<Box<[u8]>, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// `None` if no password is valid for this user.
    password: Option<Password>,
    groups: Vec<Box<[u8]>>,
}

/// A password as in the configuration.
#[derive(PartialEq)]
enum Password {
    /// Plain text.
    Plain(Box<[u8]>),
    /// Hash of crypt(3).
    Hash { method: Method, rounds: u32, salt: Box<[u8]>, hash: Box<[u8]> },
    /// Complete hash of bcrypt (`$2b$`).
    Bcrypt(Box<str>),
    /// Complete hash of yescrypt (`$y$`).
    Yescrypt(Box<str>),
    /// Hash of scrypt (`$7$`).
    Scrypt { params: scrypt::Params, salt: Box<[u8]>, hash: Box<[u8]> },
}

impl std::fmt::Debug for Password {
    /// Hides the secret from logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Method of crypt(3), after Ulrich Drepper's *Unix crypt using SHA-256 and SHA-512*; that of MD5 is
/// Poul-Henning Kamp's of FreeBSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Md5,
    Sha256,
    Sha512,
}

impl Userlist {
    /// Returns true if the list has this user with this password. `known` returns the result of an earlier
    /// check, if there was one.
    pub fn knows(&self, user: &[u8], password: &[u8], known: impl FnOnce() -> Option<bool>) -> bool {
        let Some(entry) = self.users.get(user) else { return false };
        let right = |own: &Password| {
            if own.takes_time(password) { known() } else { None }.unwrap_or_else(|| own.is(password))
        };
        entry.password.as_ref().is_some_and(right)
    }

    /// Returns the user's group with this index, from 0.
    pub fn group(&self, user: &[u8], number: usize) -> Option<&[u8]> {
        self.users.get(user)?.groups.get(number).map(|group| &**group)
    }

    /// Returns true if the check of this password takes time because it has to be hashed.
    pub fn takes_time(&self, user: &[u8], password: &[u8]) -> bool {
        self.users
            .get(user)
            .and_then(|entry| entry.password.as_ref())
            .is_some_and(|own| own.takes_time(password))
    }

    /// Returns the number of bytes that a check of the user's password allocates, if that is more than some
    /// hundred.
    pub fn memory_to_hash(&self, user: &[u8]) -> usize {
        match self.users.get(user).and_then(|entry| entry.password.as_ref()) {
            Some(Password::Yescrypt(hash)) => {
                let params = hash.split('$').nth(2).and_then(|text| text.parse().ok());
                params.map_or(0, |params| memory_of_yescrypt(&params) as usize)
            }
            Some(Password::Scrypt { params, .. }) => (128 * params.r() as usize) << params.log_n(),
            _ => 0,
        }
    }

    /// Returns true if both lists have the same hash for a user, so that a result for one list holds for the
    /// other.
    pub fn has_same(&self, other: &Self, user: &[u8]) -> bool {
        let (own, other) = (self.users.get(user), other.users.get(user));
        own.zip(other).is_some_and(|(own, other)| own.password.is_some() && own.password == other.password)
    }

    /// Returns true if the list has a hashed password.
    pub fn has_hashes(&self) -> bool {
        self.users
            .values()
            .any(|entry| entry.password.as_ref().is_some_and(|own| !matches!(own, Password::Plain(_))))
    }
}

fn memory_of_yescrypt(params: &yescrypt::Params) -> u64 {
    params.n().saturating_mul(u64::from(params.r())).saturating_mul(128)
}

impl Password {
    fn is(&self, password: &[u8]) -> bool {
        match self {
            Self::Plain(own) => same(own, password),
            _ if password.len() > LONGEST => false,
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Yescrypt(hash) => Yescrypt::default().verify_password(password, &**hash).is_ok(),
            Self::Scrypt { params, salt, hash } => {
                let mut made = [0; 32];
                scrypt::scrypt(password, salt, params, &mut made).is_ok()
                    && same(&from_the_lowest(&made), hash)
            }
            Self::Hash { method, rounds, salt, hash } => {
                let Ok(params) = Params::new(*rounds) else { return false }; // the rounds were checked before
                let made = match method {
                    Method::Md5 => md5_crypt(password, salt),
                    Method::Sha256 => encode(&sha_crypt::sha256_crypt(password, salt, params), (10, 31)),
                    Method::Sha512 => encode(&sha_crypt::sha512_crypt(password, salt, params), (21, 63)),
                };
                same(&made, hash)
            }
        }
    }

    fn takes_time(&self, password: &[u8]) -> bool {
        !matches!(self, Self::Plain(_)) && password.len() <= LONGEST
    }

    /// Reads a hash `$2b$cost$salt-and-hash`.
    fn of_bcrypt(text: &str) -> Result<Self, String> {
        let parts = text
            .parse::<bcrypt::HashParts>()
            .map_err(|error| format!("the hash of bcrypt is damaged: {error}"))?;
        if parts.get_cost() > MOST_BCRYPT_COST {
            return Err(format!(
                "its cost of {} would keep a processor busy for seconds at each login; the maximum is \
                    {MOST_BCRYPT_COST}",
                parts.get_cost()
            ));
        }
        Ok(Self::Bcrypt(text.into()))
    }

    /// Reads a hash `$y$parameters$salt$hash`.
    fn of_yescrypt(text: &str) -> Result<Self, String> {
        let damaged = || "the hash of yescrypt is damaged".to_owned();
        let mut parts = text.split('$').skip(2);
        let params: yescrypt::Params = parts.next().and_then(|text| text.parse().ok()).ok_or_else(damaged)?;
        let (salt, hash) = parts.next().zip(parts.next()).ok_or_else(damaged)?;
        let digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'/';
        if hash.len() != 43 || parts.next().is_some() || !salt.bytes().chain(hash.bytes()).all(digit) {
            return Err(damaged());
        }
        let memory = memory_of_yescrypt(&params);
        if memory > MOST_YESCRYPT_MEMORY {
            return Err(format!(
                "it needs {} MB at each login; the maximum is {} MB",
                memory >> 20,
                MOST_YESCRYPT_MEMORY >> 20
            ));
        }
        Ok(Self::Yescrypt(text.into()))
    }

    /// Reads a hash `$7$N.....r.....p.....salt$hash`: one digit for the logarithm of N, five each for r and
    /// p, least significant digit first.
    fn of_scrypt(text: &[u8]) -> Result<Self, String> {
        let damaged = || "the hash of scrypt is damaged".to_owned();
        let number = |digits: &[u8]| {
            let digit = |byte: &u8| DIGITS.iter().position(|known| known == byte).map(|value| value as u64);
            digits.iter().rev().try_fold(0, |number, byte| Some(number << 6 | digit(byte)?))
        };
        let (params, rest) = text.split_at_checked(11).ok_or_else(damaged)?;
        let mut parts = rest.split(|byte| *byte == b'$');
        let (salt, hash) = parts.next().zip(parts.next()).ok_or_else(damaged)?;
        if hash.len() != 43 || salt.len() > LONGEST_SALT_OF_SCRYPT || parts.next().is_some() {
            return Err(damaged());
        }
        let [power, r, p] = [&params[..1], &params[1..6], &params[6..]].map(number);
        let (power, r, p) = (power.ok_or_else(damaged)?, r.ok_or_else(damaged)?, p.ok_or_else(damaged)?);
        let memory = 1_u64.checked_shl(power as u32).and_then(|n| n.checked_mul(128 * r));
        let work = memory.and_then(|memory| memory.checked_mul(p));
        if power >= 64 || work.is_none_or(|work| work > MOST_YESCRYPT_MEMORY) {
            return Err(format!(
                "it needs more than {} MB at each login, the maximum",
                MOST_YESCRYPT_MEMORY >> 20
            ));
        }
        let params = scrypt::Params::new(power as u8, r as u32, p as u32).map_err(|_| damaged())?;
        Ok(Self::Scrypt { params, salt: salt.into(), hash: hash.into() })
    }

    /// Reads a hash `$5$rounds=5000$salt$hash` and the like.
    fn hashed(text: &[u8]) -> Result<Self, String> {
        let refused =
            |what: &str| Err(format!("{what}; use a hash of SHA-512, as 'mkpasswd -m sha-512' makes"));
        let (method, rest) = match text {
            [b'$', b'1', b'$', rest @ ..] => (Method::Md5, rest),
            [b'$', b'5', b'$', rest @ ..] => (Method::Sha256, rest),
            [b'$', b'6', b'$', rest @ ..] => (Method::Sha512, rest),
            [b'$', b'2', ..] => return Self::of_bcrypt(&String::from_utf8_lossy(text)),
            [b'$', b'7', b'$', rest @ ..] => return Self::of_scrypt(rest),
            [b'$', b'y', b'$', ..] => return Self::of_yescrypt(&String::from_utf8_lossy(text)),
            [b'$', ..] => return refused("hashes of this kind are not built"),
            _ => return refused("passwords of the old crypt(3), of 13 characters, are not built"),
        };
        let mut parts = rest.split(|&byte| byte == b'$');
        let mut part = || parts.next().ok_or_else(|| "the hash is cut off".to_owned());
        let mut salt = part()?;
        let mut rounds = ROUNDS;
        if let Some(number) = salt.strip_prefix(b"rounds=").filter(|_| method != Method::Md5) {
            let number = std::str::from_utf8(number).ok().and_then(|number| number.parse::<u64>().ok());
            let number = number.ok_or_else(|| "'rounds=' expects a number, found none".to_owned())?;
            if number > u64::from(MOST_ROUNDS) {
                return Err(format!(
                    "its {number} rounds would keep a processor busy for long at each login; the maximum is \
                        {MOST_ROUNDS}"
                ));
            }
            rounds = (number as u32).max(Params::ROUNDS_MIN);
            salt = part()?;
        }
        let hash = part()?;
        let length = match method {
            Method::Md5 => 22,
            Method::Sha256 => 43,
            Method::Sha512 => 86,
        };
        if hash.len() != length {
            return Err(format!("expected a hash of {length} characters, found {}", hash.len()));
        }
        let most = if method == Method::Md5 { SALT_OF_MD5 } else { SALT };
        Ok(Self::Hash { method, rounds, salt: salt[..salt.len().min(most)].into(), hash: hash.into() })
    }
}

/// Compares in constant time, so that the time does not show where the texts differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Returns the MD5 hash of crypt(3) as text. Its thousand rounds take a fraction of a millisecond for a usual
/// password, and a few for the longest.
fn md5_crypt(password: &[u8], salt: &[u8]) -> Vec<u8> {
    let inner: [u8; 16] =
        Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize().into();
    let mut first = Md5::new().chain_update(password).chain_update(b"$1$").chain_update(salt);
    for start in (0..password.len()).step_by(inner.len()) {
        first.update(&inner[..inner.len().min(password.len() - start)]);
    }
    // One byte for each bit of the length, lowest bit first.
    let mut length = password.len();
    while length > 0 {
        first.update(if length & 1 == 1 { &[0][..] } else { &password[..1] });
        length >>= 1;
    }
    let mut hash: [u8; 16] = first.finalize().into();
    for round in 0..1000 {
        let (begin, end) = if round % 2 == 1 { (password, &hash[..]) } else { (&hash[..], password) };
        let mut next = Md5::new().chain_update(begin);
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        hash = next.chain_update(end).finalize().into();
    }
    let mut text = Vec::new();
    for number in 0..5 {
        let third = if number == 4 { 5 } else { number + 12 };
        digits(&mut text, [hash[number], hash[number + 6], hash[third]], 4);
    }
    digits(&mut text, [0, 0, hash[11]], 2);
    text
}

/// Digits of six bits each.
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Appends three bytes as `count` digits, least significant digit first.
fn digits(text: &mut Vec<u8>, bytes: [u8; 3], count: usize) {
    let mut bits = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
    for _ in 0..count {
        text.push(DIGITS[(bits & 63) as usize]);
        bits >>= 6;
    }
}

/// Encodes a hash as scrypt's variant of crypt(3) does: three bytes in four digits, least significant first.
fn from_the_lowest(hash: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for three in hash.chunks(3) {
        let at = |index: usize| three.get(index).copied().unwrap_or(0);
        digits(&mut text, [at(2), at(1), at(0)], three.len() + 1);
    }
    text
}

/// Encodes a hash as crypt(3) does: groups of three bytes at a distance of `apart`, rotated by one from group
/// to group, and the remaining bytes from `last` on.
fn encode(hash: &[u8], (apart, last): (usize, usize)) -> Vec<u8> {
    let mut text = Vec::new();
    let turn = if apart == 10 { 2 } else { 1 };
    for number in 0..apart {
        let triple = [number, number + apart, number + 2 * apart];
        // The group starts with the first, second or third of the three bytes.
        let first = number * turn % 3;
        let bytes = [hash[triple[first]], hash[triple[(first + 1) % 3]], hash[triple[(first + 2) % 3]]];
        digits(&mut text, bytes, 4);
    }
    match hash.get(last - 1) {
        Some(&before) if last == 31 => digits(&mut text, [0, hash[31], before], 3),
        _ => digits(&mut text, [0, 0, hash[last]], 2),
    }
    text
}

/// Returns all lists in the order of the configuration. Reports passwords that cannot be used.
pub(super) fn userlists(lists: &[tree::Userlist], refuse: &mut Refuse<'_>) -> Vec<Userlist> {
    lists.iter().map(|list| userlist(list, refuse)).collect()
}

fn userlist(list: &tree::Userlist, refuse: &mut Refuse<'_>) -> Userlist {
    let tree::Userlist { name: _, groups, users } = list;
    let mut built = Userlist::default();
    for User { name, password, groups: own } in users {
        let password = password.as_ref().and_then(|password| read(password, refuse));
        let by_group =
            groups.iter().filter(|group| group.users.iter().any(|user| user.bytes() == name.bytes()));
        let groups = own.iter().map(|group| group.bytes().into());
        let groups = groups.chain(by_group.map(|group| group.name.bytes().into())).collect();
        built.users.insert(name.bytes().into(), Entry { password, groups });
    }
    built
}

fn read(password: &tree::Password, refuse: &mut Refuse<'_>) -> Option<Password> {
    let mut wrong = |pos: Pos, why: String| {
        refuse.found.alert(pos, format!("'user' expects a password that can be checked: {why}"));
        None
    };
    match password {
        tree::Password::Plain(word) => Some(Password::Plain(word.bytes().into())),
        tree::Password::Hash(word) => match Password::hashed(word.bytes()) {
            Ok(password) => Some(password),
            Err(why) => wrong(word.pos(), why),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_with_the_same_hash_of_a_user_need_one_answer() {
        let list = |user: &[u8], hash: &str| {
            let password = Password::hashed(hash.as_bytes()).ok();
            Userlist { users: [(user.into(), Entry { password, groups: Vec::new() })].into() }
        };
        let (one, other) = ("$1$salt$qJH7.N4xYta3aEG/dfqo/0", "$1$other$qJH7.N4xYta3aEG/dfqo/0");
        assert!(list(b"ann", one).has_same(&list(b"ann", one), b"ann"));
        assert!(!list(b"ann", one).has_same(&list(b"ann", other), b"ann"));
        assert!(!list(b"ann", one).has_same(&list(b"bob", one), b"ann"));
        assert!(!list(b"bob", one).has_same(&list(b"bob", one), b"ann"), "nobody is no user");
    }

    /// `N` is 2^14 or 2^15, `r` is 32.
    #[test]
    fn a_hash_that_needs_more_memory_than_the_bound_is_refused() {
        let read = |params: &str| {
            Password::hashed(format!("$y${params}$saltsalt${}", ".".repeat(43)).as_bytes()).map(drop)
        };
        assert_eq!(read("jBT"), Ok(()));
        assert_eq!(read("jCT"), Err("it needs 128 MB at each login; the maximum is 64 MB".into()));
    }

    /// The examples of the specification.
    #[test]
    fn hashes_of_the_specification_are_known() {
        for (hash, password) in [
            ("$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5", "Hello world!"),
            ("$5$rounds=10000$saltstringsaltst$3xv.VbSHBb41AL9AvLeujZkZRBAwqFMz2.opqey6IcA", "Hello world!"),
            (
                "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
                "Hello world!",
            ),
            (
                "$6$rounds=10000$saltstringsaltst$OW1/O6BYHV6BcXZu8QVeXbDWra3Oeqh0sbHbbMCVNSnCM/UrjmM0Dp8vOuZeHBy/YTBmSK6H9qs/y3RnOaw5v.",
                "Hello world!",
            ),
        ] {
            let known = Password::hashed(hash.as_bytes());
            let known = known.unwrap_or_else(|why| panic!("{hash}: {why}"));
            assert!(known.is(password.as_bytes()), "{hash}");
            assert!(!known.is(b"Hello world"), "{hash}");
        }
    }

    /// Made by another program.
    #[test]
    fn hashes_of_md5_are_known() {
        for (hash, password) in [
            ("$1$saltstri$YMyguxXMBpd2TEZ.vS/3q1", "Hello world!"),
            (
                "$1$ab$R2ku6e1onewyZrMhRr3Z..",
                "a password that is longer than sixteen bytes, and longer than sixty-four, too",
            ),
            ("$1$x$fwjfZtMwarkdetsjiQreU1", ""),
        ] {
            let known = Password::hashed(hash.as_bytes()).unwrap_or_else(|why| panic!("{hash}: {why}"));
            assert!(known.is(password.as_bytes()), "{hash}");
            assert!(!known.is(b"Hello world"), "{hash}");
        }
        // Only eight bytes of the salt count, and no valid password is this long.
        let long = "$1$saltstri$YMyguxXMBpd2TEZ.vS/3q1";
        let known = Password::hashed(long.replace("$saltstri$", "$saltstringlong$").as_bytes()).unwrap();
        assert!(known.is(b"Hello world!"));
        assert!(!known.is(&[b'x'; LONGEST + 1]));
    }

    /// Made by the system's crypt(3).
    #[test]
    fn hashes_of_bcrypt_yescrypt_and_scrypt_are_known() {
        for hash in [
            "$2b$05$abcdefghijklmnopqrstuu7nFISH/8YdwlXD3lw69A4iBUf6fvWAW",
            "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$42RgPIrXdXSEEs77lDi/4IqKVqFBAVaHJkzw5uD1r57",
            "$7$CU..../....saltsalt$/v1Z0CYnoyMsG31WXZAOGvOqVi4eCGgrMIkWV4FhZv2",
            "$7$7/....0....lowcost$.6fVeML6Dg01Cxgogr23HSmlPPe5ZONOSwIL7ufSxT7",
            "$7$BU..../....2Q9obwLhin8qvQl6sisAO/$Lv2vfj.x6P5AUyc5ziYpdplO8ktWYPUjRTAwec7Ps7C",
        ] {
            let known = Password::hashed(hash.as_bytes()).unwrap_or_else(|why| panic!("{hash}: {why}"));
            assert!(known.is(b"Hello world!"), "{hash}");
            assert!(!known.is(b"Hello world"), "{hash}");
            assert!(!known.is(&[b'x'; LONGEST + 1]));
        }
    }

    #[test]
    fn what_was_found_out_before_is_not_hashed_again() {
        let hash = b"$2b$05$abcdefghijklmnopqrstuu7nFISH/8YdwlXD3lw69A4iBUf6fvWAW";
        let mut list = Userlist::default();
        let entry = |password| Entry { password: Some(password), groups: Vec::new() };
        list.users.insert(b"ann"[..].into(), entry(Password::hashed(hash).unwrap()));
        assert!(list.has_hashes() && list.takes_time(b"ann", b"x") && !list.takes_time(b"bob", b"x"));
        assert!(list.knows(b"ann", b"not hers", || Some(true)));
        assert!(!list.knows(b"ann", b"Hello world!", || Some(false)));
        assert!(list.knows(b"ann", b"Hello world!", || None));
        list.users.insert(b"bob"[..].into(), entry(Password::Plain(b"pw"[..].into())));
        for (hash, megabytes) in [
            ("$y$j9T$F5Jx5fExrKuPp53xLKQ..1$42RgPIrXdXSEEs77lDi/4IqKVqFBAVaHJkzw5uD1r57", 16),
            ("$7$CU..../....saltsalt$/v1Z0CYnoyMsG31WXZAOGvOqVi4eCGgrMIkWV4FhZv2", 64),
        ] {
            list.users.insert(b"eve"[..].into(), entry(Password::hashed(hash.as_bytes()).unwrap()));
            assert_eq!(list.memory_to_hash(b"eve"), megabytes << 20, "{hash}");
        }
        assert_eq!(list.memory_to_hash(b"ann"), 0);
        assert!(!list.knows(b"bob", b"not his", || Some(true)), "nobody asks");
    }

    #[test]
    fn other_hashes_are_refused_with_a_reason() {
        for (hash, why) in [
            ("$1$salt$qJH7", "22"),
            ("$2b$12$aaaaaaaaaaaaaaaaaaaaaa", "bcrypt is damaged"),
            ("$2b$15$abcdefghijklmnopqrstuu7nFISH/8YdwlXD3lw69A4iBUf6fvWAW", "cost of 15"),
            ("$y$j9T$salt$hash", "yescrypt is damaged"),
            ("$y$jFT$F5Jx5fExrKuPp53xLKQ..1$42RgPIrXdXSEEs77lDi/4IqKVqFBAVaHJkzw5uD1r57", "MB at each login"),
            ("$7$CU..../....salt$hash", "scrypt is damaged"),
            ("$7$CU", "scrypt is damaged"),
            (
                "$7$GU..../....2Q9obwLhin8qvQl6sisAO/$smuhuhU.UJnq/O1PAZzy18gQBGC5WONoAvgS9W1IQe5",
                "MB at each login",
            ),
            (
                "$7$CzzzzzU....2Q9obwLhin8qvQl6sisAO/$smuhuhU.UJnq/O1PAZzy18gQBGC5WONoAvgS9W1IQe5",
                "MB at each login",
            ),
            ("$3$$8846f7eaee8fb117ad06bdd830b7586c", "of this kind"),
            ("rl.3StKT.4T8M", "old crypt"),
            ("$6$salt", "cut off"),
            ("$6$salt$short", "86"),
            ("$6$rounds=999999999$salt$x", "rounds"),
        ] {
            let refused = Password::hashed(hash.as_bytes()).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_user_needs_the_password_and_has_groups() {
        let entry =
            Entry { password: Some(Password::Plain(b"pw"[..].into())), groups: vec![b"admins"[..].into()] };
        let mut list = Userlist::default();
        list.users.insert(b"ann"[..].into(), entry);
        list.users.insert(b"bob"[..].into(), Entry { password: None, groups: Vec::new() });
        assert!(list.knows(b"ann", b"pw", || None));
        assert_eq!(list.group(b"ann", 0), Some(&b"admins"[..]));
        assert_eq!((list.group(b"ann", 1), list.group(b"bob", 0)), (None, None));
        assert!(!list.knows(b"ann", b"p", || None));
        assert!(!list.knows(b"bob", b"", || None));
        assert!(!list.knows(b"eve", b"pw", || None));
    }
}
