//! Checksums and hashes. The short ones are not for security.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::convert::encode;
use crate::env::Env;
use crate::error::Error;
use crate::hash::{avalanche, crc32, crc32c, djb2, sdbm, wt6};
use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use crate::variable::VariableId;
use aws_lc_rs::digest::{self, Algorithm, Context};

#[derive(Debug)]
pub(crate) enum Hash {
    /// A 32-bit hash function, and whether [`avalanche`] follows it.
    Short {
        function: fn(&[u8]) -> u32,
        avalanche: bool,
    },
    Xxh32(u32),
    Xxh64(u64),
    Xxh3(u64),
    Digest(Digest),
    Hmac {
        digest: Digest,
        key: Key,
    },
}

/// Key of a message authentication code.
#[derive(Debug)]
pub(crate) enum Key {
    Bytes(Box<[u8]>),
    /// Base64 text in a variable.
    Variable(VariableId),
}

/// A cryptographic hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Digest {
    Md5,
    /// MD5, then SHA-1, as TLS 1.0 signed them.
    Md5Sha1,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    /// SHA-512 with other initial values, cut to 224 bits.
    Sha512To224,
    Sha512To256,
    Sha3To256,
    Sha3To384,
    Sha3To512,
}

/// OpenSSL's names in lower case. Messages use the first of each row.
const NAMES: &[(&[&str], Digest)] = &[
    (&["md5", "ssl3-md5", "rsa-md5"], Digest::Md5),
    (&["md5-sha1"], Digest::Md5Sha1),
    (&["sha1", "sha-1", "ssl3-sha1", "rsa-sha1", "rsa-sha1-2"], Digest::Sha1),
    (&["sha224", "sha-224", "sha2-224", "rsa-sha224"], Digest::Sha224),
    (&["sha256", "sha-256", "sha2-256", "rsa-sha256"], Digest::Sha256),
    (&["sha384", "sha-384", "sha2-384", "rsa-sha384"], Digest::Sha384),
    (&["sha512", "sha-512", "sha2-512", "rsa-sha512"], Digest::Sha512),
    (&["sha512-224", "sha-512/224", "sha2-512/224", "rsa-sha512/224"], Digest::Sha512To224),
    (&["sha512-256", "sha-512/256", "sha2-512/256", "rsa-sha512/256"], Digest::Sha512To256),
    (&["sha3-256", "rsa-sha3-256"], Digest::Sha3To256),
    (&["sha3-384", "rsa-sha3-384"], Digest::Sha3To384),
    (&["sha3-512", "rsa-sha3-512"], Digest::Sha3To512),
];

/// Size of the longest digest in bytes.
const MAX_DIGEST: usize = 64;
/// Size of the longest block in bytes.
const MAX_BLOCK: usize = 136;

impl Digest {
    fn named(args: &Args<'_, '_>, index: usize) -> Result<Self, Error> {
        let name = args.boxed(index).to_ascii_lowercase();
        let named = NAMES.iter().find(|(names, _)| names.iter().any(|known| known.as_bytes() == &*name));
        named.map(|(_, digest)| *digest).ok_or_else(|| {
            let mut known: Vec<&str> = NAMES.iter().filter_map(|(names, _)| names.first().copied()).collect();
            let last = known.pop().unwrap_or_default();
            args.expected(index, &format!("{} or {last}", known.join(", ")))
        })
    }

    fn block(self) -> usize {
        match self {
            Self::Md5 | Self::Md5Sha1 | Self::Sha1 | Self::Sha224 | Self::Sha256 => 64,
            Self::Sha384 | Self::Sha512 | Self::Sha512To224 | Self::Sha512To256 => 128,
            Self::Sha3To256 => 136,
            Self::Sha3To384 => 104,
            Self::Sha3To512 => 72,
        }
    }

    /// Hashes the parts in order; returns the digest and its length.
    fn of(self, parts: [&[u8]; 2]) -> ([u8; MAX_DIGEST], usize) {
        fn run<D: sha2::Digest>(parts: [&[u8]; 2]) -> ([u8; MAX_DIGEST], usize) {
            let mut state = D::new();
            parts.iter().for_each(|part| state.update(part));
            let digest = state.finalize();
            let mut out = [0; MAX_DIGEST];
            out[..digest.len()].copy_from_slice(&digest);
            (out, digest.len())
        }
        fn sha3(algorithm: &'static Algorithm, parts: [&[u8]; 2]) -> ([u8; MAX_DIGEST], usize) {
            let mut state = Context::new(algorithm);
            parts.iter().for_each(|part| state.update(part));
            let digest = state.finish();
            let mut out = [0; MAX_DIGEST];
            out[..digest.as_ref().len()].copy_from_slice(digest.as_ref());
            (out, digest.as_ref().len())
        }
        match self {
            Self::Md5 => run::<md5::Md5>(parts),
            Self::Md5Sha1 => {
                let (mut out, first) = run::<md5::Md5>(parts);
                let (second, len) = run::<sha1::Sha1>(parts);
                out[first..first + len].copy_from_slice(&second[..len]);
                (out, first + len)
            }
            Self::Sha1 => run::<sha1::Sha1>(parts),
            Self::Sha224 => run::<sha2::Sha224>(parts),
            Self::Sha256 => run::<sha2::Sha256>(parts),
            Self::Sha384 => run::<sha2::Sha384>(parts),
            Self::Sha512 => run::<sha2::Sha512>(parts),
            Self::Sha512To224 => run::<sha2::Sha512_224>(parts),
            Self::Sha512To256 => run::<sha2::Sha512_256>(parts),
            Self::Sha3To256 => sha3(&digest::SHA3_256, parts),
            Self::Sha3To384 => sha3(&digest::SHA3_384, parts),
            Self::Sha3To512 => sha3(&digest::SHA3_512, parts),
        }
    }

    /// HMAC (RFC 2104).
    pub(super) fn hmac(self, key: &[u8], message: &[u8]) -> ([u8; MAX_DIGEST], usize) {
        let mut block = [0; MAX_BLOCK];
        if key.len() > self.block() {
            let (digest, len) = self.of([key, b""]);
            block[..len].copy_from_slice(&digest[..len]);
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let padded = |pad: u8| block.map(|byte| byte ^ pad);
        let (inner, len) = self.of([&padded(0x36)[..self.block()], message]);
        self.of([&padded(0x5c)[..self.block()], &inner[..len]])
    }
}

fn short(args: &Args<'_, '_>, function: fn(&[u8]) -> u32) -> Result<Convert, Error> {
    let avalanche = args.int_in(0, 0..=1, 0)? == 1;
    Ok(Convert::Hash(Hash::Short { function, avalanche }))
}

macro_rules! rows {
    ($($name:literal, $args:expr, $required:literal, $gives:ident, $help:literal, $make:expr;)*) => {
        &[$(row($name, $args, $required, Type::Bin, Type::$gives, $help, $make)),*]
    };
}

pub(super) const ROWS: &[Row] = rows! {
    "crc32", &[Int], 0, Int, "the CRC of Ethernet, gzip and PNG; 1 adds an \
        avalanche", |a| short(a, crc32);
    "crc32c", &[Int], 0, Int, "the CRC of iSCSI (Castagnoli); 1 adds an avalanche", |a| short(a, crc32c);
    "digest", &[Str], 1, Bin, "the cryptographic hash of that name", |a| {
        Ok(Convert::Hash(Hash::Digest(Digest::named(a, 0)?)))
    };
    "djb2", &[Int], 0, Int, "Bernstein's hash; 1 adds an avalanche", |a| short(a, djb2);
    "hmac", &[Str, Str], 2, Bin, "the message authentication code with a key in base64 or in a \
        variable", |a| {
        let digest = Digest::named(a, 0)?;
        let text = a.boxed(1);
        let key = if let Ok(id) = a.variable(1) {
            Key::Variable(id)
        } else {
            let mut bytes = vec![0; text.len()];
            let len = encode::decode64(&text, encode::STANDARD, &mut bytes)
                .ok_or_else(|| a.expected(1, "a key in base64, or a variable,"))?;
            bytes.truncate(len);
            Key::Bytes(bytes.into())
        };
        Ok(Convert::Hash(Hash::Hmac { digest, key }))
    };
    "sdbm", &[Int], 0, Int, "the hash of sdbm; 1 adds an avalanche", |a| short(a, sdbm);
    "sha1", &[], 0, Bin, "SHA-1", |_| Ok(Convert::Hash(Hash::Digest(Digest::Sha1)));
    "sha2", &[Int], 0, Bin, "SHA-2 of 224, 256, 384 or 512 bits", |a| {
        let digest = match a.int(0)?.unwrap_or(256) {
            224 => Digest::Sha224,
            256 => Digest::Sha256,
            384 => Digest::Sha384,
            512 => Digest::Sha512,
            _ => return Err(a.expected(0, "224, 256, 384 or 512")),
        };
        Ok(Convert::Hash(Hash::Digest(digest)))
    };
    "wt6", &[Int], 0, Int, "the hash WT6; 1 adds an avalanche", |a| short(a, wt6);
    "xxh3", &[Int], 0, Int, "XXH3 of 64 bits, with a seed", |a| {
        Ok(Convert::Hash(Hash::Xxh3(a.int(0)?.unwrap_or(0) as u64)))
    };
    "xxh32", &[Int], 0, Int, "XXH32, with a seed", |a| {
        Ok(Convert::Hash(Hash::Xxh32(a.int(0)?.unwrap_or(0) as u32)))
    };
    "xxh64", &[Int], 0, Int, "XXH64, with a seed", |a| {
        Ok(Convert::Hash(Hash::Xxh64(a.int(0)?.unwrap_or(0) as u64)))
    };
};

impl Hash {
    pub(super) fn apply<'x>(
        &self,
        bytes: &[u8],
        env: &Env<'x>,
        scratch: &mut Scratch<'x>,
    ) -> Option<Value<'x>> {
        let int = |n: u64| Some(Value::Int(n as i64));
        match self {
            Self::Short { function, avalanche: false } => int(u64::from(function(bytes))),
            Self::Short { function, avalanche: true } => int(u64::from(avalanche(function(bytes)))),
            Self::Xxh32(seed) => int(u64::from(xxhash_rust::xxh32::xxh32(bytes, *seed))),
            Self::Xxh64(seed) => int(xxhash_rust::xxh64::xxh64(bytes, *seed)),
            Self::Xxh3(seed) => int(xxhash_rust::xxh3::xxh3_64_with_seed(bytes, *seed)),
            Self::Digest(digest) => {
                let (digest, len) = digest.of([bytes, b""]);
                Some(Value::Bin(scratch.copy(&digest[..len])?))
            }
            Self::Hmac { digest, key } => {
                let (code, len) = match key {
                    Key::Bytes(key) => digest.hmac(key, bytes),
                    Key::Variable(id) => {
                        let value = env.variables.get(*id, env.reader, scratch)?.bytes()?;
                        let key = scratch.fill(|out| encode::decode64(value, encode::STANDARD, out))?;
                        digest.hmac(key, bytes)
                    }
                };
                Some(Value::Bin(scratch.copy(&code[..len])?))
            }
        }
    }
}
