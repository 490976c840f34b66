//! `userlist`: who may use what, with which password.

use super::refuse::Refuse;
use manylane_config::source::Pos;
use manylane_config::tree::{self, User};
use md5::{Digest, Md5};
use sha_crypt::Params;
use std::collections::HashMap;

/// Rounds of a password's hash, unless it says otherwise.
const ROUNDS: u32 = 5000;

/// Rounds of a hash at most. They are computed on the lane for each request, 5,000 of them in a few milliseconds; what takes longer would
/// have all others of the lane wait.
const MOST_ROUNDS: u32 = 50_000;

/// Bytes of a salt that count.
const SALT: usize = 16;

/// Bytes of a salt of MD5 that count.
const SALT_OF_MD5: usize = 8;

/// Bytes of a password at most, as in crypt(3) of most systems: hashing takes longer with each of them.
const LONGEST: usize = 512;

/// The users of a list.
#[derive(Debug, Default)]
pub struct Userlist {
    users: HashMap<Box<[u8]>, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// Without one nobody is this user.
    password: Option<Password>,
    groups: Vec<Box<[u8]>>,
}

/// A password as the file has it.
enum Password {
    /// As it is.
    Plain(Box<[u8]>),
    /// As crypt(3) hashes it.
    Hash { method: Method, rounds: u32, salt: Box<[u8]>, hash: Box<[u8]> },
}

impl std::fmt::Debug for Password {
    /// Secrets do not get into logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}

/// A method of crypt(3), after Ulrich Drepper's *Unix crypt using SHA-256 and SHA-512*; the one of MD5 is Poul-Henning Kamp's of FreeBSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Md5,
    Sha256,
    Sha512,
}

impl Userlist {
    /// Whether there is such a user with this password, in this group.
    pub fn knows(&self, user: &[u8], password: &[u8], group: Option<&[u8]>) -> bool {
        let Some(entry) = self.users.get(user) else { return false };
        let member = group.is_none_or(|group| entry.groups.iter().any(|own| **own == *group));
        member && entry.password.as_ref().is_some_and(|own| own.is(password))
    }
}

impl Password {
    fn is(&self, password: &[u8]) -> bool {
        match self {
            Self::Plain(own) => same(own, password),
            Self::Hash { .. } if password.len() > LONGEST => false,
            Self::Hash { method, rounds, salt, hash } => {
                let Ok(params) = Params::new(*rounds) else { return false }; // it was checked
                let made = match method {
                    Method::Md5 => md5_crypt(password, salt),
                    Method::Sha256 => encode(&sha_crypt::sha256_crypt(password, salt, params), (10, 31)),
                    Method::Sha512 => encode(&sha_crypt::sha512_crypt(password, salt, params), (21, 63)),
                };
                same(&made, hash)
            }
        }
    }

    /// Reads `$5$rounds=5000$salt$hash` and the like.
    fn hashed(text: &[u8]) -> Result<Self, String> {
        let refused = |what: &str| Err(format!("{what}; use a hash of SHA-512, as 'mkpasswd -m sha-512' makes"));
        let (method, rest) = match text {
            [b'$', b'1', b'$', rest @ ..] => (Method::Md5, rest),
            [b'$', b'5', b'$', rest @ ..] => (Method::Sha256, rest),
            [b'$', b'6', b'$', rest @ ..] => (Method::Sha512, rest),
            [b'$', b'2', ..] => return refused("hashes of bcrypt are not read"),
            [b'$', b'y', ..] => return refused("hashes of yescrypt are not read"),
            _ => return refused("the passwords of the old crypt(3), of 13 characters, are not read"),
        };
        let mut parts = rest.split(|&byte| byte == b'$');
        let mut part = || parts.next().ok_or_else(|| "the hash is cut off".to_owned());
        let mut salt = part()?;
        let mut rounds = ROUNDS;
        if let Some(number) = salt.strip_prefix(b"rounds=").filter(|_| method != Method::Md5) {
            let number = std::str::from_utf8(number).ok().and_then(|number| number.parse::<u64>().ok());
            let number = number.ok_or_else(|| "'rounds=' is followed by a number".to_owned())?;
            if number > u64::from(MOST_ROUNDS) {
                return Err(format!(
                    "its {number} rounds would have a lane wait for long at each request: at most {MOST_ROUNDS} are computed"
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
            return Err(format!("the hash has {} characters, and such ones have {length}", hash.len()));
        }
        let most = if method == Method::Md5 { SALT_OF_MD5 } else { SALT };
        Ok(Self::Hash { method, rounds, salt: salt[..salt.len().min(most)].into(), hash: hash.into() })
    }
}

/// Compares in a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// The hash of MD5 in the way of crypt(3), as text. Its thousand rounds take a fraction of a millisecond for a password of the usual length, and a few for the longest.
fn md5_crypt(password: &[u8], salt: &[u8]) -> Vec<u8> {
    let inner: [u8; 16] = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize().into();
    let mut first = Md5::new().chain_update(password).chain_update(b"$1$").chain_update(salt);
    for start in (0..password.len()).step_by(inner.len()) {
        first.update(&inner[..inner.len().min(password.len() - start)]);
    }
    // A byte for each bit of the length, the lowest first.
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

/// Three bytes as `count` digits of six bits, the lowest first.
fn digits(text: &mut Vec<u8>, bytes: [u8; 3], count: usize) {
    const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut bits = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
    for _ in 0..count {
        text.push(DIGITS[(bits & 63) as usize]);
        bits >>= 6;
    }
}

/// Writes a hash in the way of crypt(3): groups of three bytes of which each lies `apart` from the one before, turned by one from group to
/// group, and at the end what is left from byte `last` on.
fn encode(hash: &[u8], (apart, last): (usize, usize)) -> Vec<u8> {
    let mut text = Vec::new();
    let turn = if apart == 10 { 2 } else { 1 };
    for number in 0..apart {
        let triple = [number, number + apart, number + 2 * apart];
        // The group that begins with the first, the second or the third of the three.
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

/// All lists, in the file's order. Those with users that cannot be read are reported.
pub(super) fn userlists(lists: &[tree::Userlist], refuse: &mut Refuse<'_>) -> Vec<Userlist> {
    lists.iter().map(|list| userlist(list, refuse)).collect()
}

fn userlist(list: &tree::Userlist, refuse: &mut Refuse<'_>) -> Userlist {
    let tree::Userlist { name: _, groups, users } = list;
    let mut built = Userlist::default();
    for User { name, password, groups: own } in users {
        let password = password.as_ref().and_then(|password| read(password, refuse));
        let by_group = groups.iter().filter(|group| group.users.iter().any(|user| user.bytes() == name.bytes()));
        let groups = own.iter().map(|group| group.bytes().into());
        let groups = groups.chain(by_group.map(|group| group.name.bytes().into())).collect();
        built.users.insert(name.bytes().into(), Entry { password, groups });
    }
    built
}

fn read(password: &tree::Password, refuse: &mut Refuse<'_>) -> Option<Password> {
    let mut wrong = |pos: Pos, why: String| {
        refuse.found.alert(pos, format!("'user' : the password cannot be used: {why}"));
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
        // Only eight bytes of the salt count, and no password is as long as this.
        let long = "$1$saltstri$YMyguxXMBpd2TEZ.vS/3q1";
        let known = Password::hashed(long.replace("$saltstri$", "$saltstringlong$").as_bytes()).unwrap();
        assert!(known.is(b"Hello world!"));
        assert!(!known.is(&[b'x'; LONGEST + 1]));
    }

    #[test]
    fn other_hashes_are_refused_with_a_reason() {
        for (hash, why) in [
            ("$1$salt$qJH7", "22"),
            ("$2b$12$aaaaaaaaaaaaaaaaaaaaaa", "bcrypt"),
            ("$y$j9T$salt$hash", "yescrypt"),
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
    fn a_user_needs_the_password_and_the_group() {
        let entry = Entry {
            password: Some(Password::Plain(b"pw"[..].into())),
            groups: vec![b"admins"[..].into()],
        };
        let mut list = Userlist::default();
        list.users.insert(b"ann"[..].into(), entry);
        list.users.insert(b"bob"[..].into(), Entry { password: None, groups: Vec::new() });
        assert!(list.knows(b"ann", b"pw", None));
        assert!(list.knows(b"ann", b"pw", Some(b"admins")));
        assert!(!list.knows(b"ann", b"pw", Some(b"users")));
        assert!(!list.knows(b"ann", b"p", None));
        assert!(!list.knows(b"bob", b"", None));
        assert!(!list.knows(b"eve", b"pw", None));
    }
}
