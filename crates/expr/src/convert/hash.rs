//! Checksums and hashes. The short ones are not for security.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::convert::encode;
use crate::env::Env;
use crate::error::Error;
use crate::hash::{avalanche, crc32, crc32c, djb2, mix, sdbm, wt6};
use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use crate::variable::VariableId;

#[derive(Debug)]
pub(crate) enum Hash {
    /// A 32-bit hash function and its finalizer.
    Short {
        function: fn(&[u8]) -> u32,
        finish: Option<fn(u32) -> u32>,
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
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// Size of the longest digest in bytes.
const MAX_DIGEST: usize = 64;
/// Size of the longest block in bytes.
const MAX_BLOCK: usize = 128;

impl Digest {
    fn named(args: &Args<'_, '_>, index: usize) -> Result<Self, Error> {
        let name = args.boxed(index).to_ascii_lowercase();
        Ok(match &name[..] {
            b"sha1" => Self::Sha1,
            b"sha224" => Self::Sha224,
            b"sha256" => Self::Sha256,
            b"sha384" => Self::Sha384,
            b"sha512" => Self::Sha512,
            _ => {
                return Err(args.expected(index, "sha1, sha224, sha256, sha384 or sha512"));
            }
        })
    }

    fn block(self) -> usize {
        match self {
            Self::Sha1 | Self::Sha224 | Self::Sha256 => 64,
            Self::Sha384 | Self::Sha512 => 128,
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
        match self {
            Self::Sha1 => run::<sha1::Sha1>(parts),
            Self::Sha224 => run::<sha2::Sha224>(parts),
            Self::Sha256 => run::<sha2::Sha256>(parts),
            Self::Sha384 => run::<sha2::Sha384>(parts),
            Self::Sha512 => run::<sha2::Sha512>(parts),
        }
    }

    /// HMAC (RFC 2104).
    fn hmac(self, key: &[u8], message: &[u8]) -> ([u8; MAX_DIGEST], usize) {
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

fn short(args: &Args<'_, '_>, function: fn(&[u8]) -> u32, finish: fn(u32) -> u32) -> Result<Convert, Error> {
    let finish = (args.int_in(0, 0..=1, 0)? == 1).then_some(finish);
    Ok(Convert::Hash(Hash::Short { function, finish }))
}

macro_rules! rows {
    ($($name:literal, $args:expr, $required:literal, $gives:ident, $help:literal, $make:expr;)*) => {
        &[$(row($name, $args, $required, Type::Bin, Type::$gives, $help, $make)),*]
    };
}

pub(super) const ROWS: &[Row] = rows! {
    "crc32", &[Int], 0, Int, "the CRC of Ethernet, gzip and PNG; 1 adds an \
        avalanche", |a| short(a, crc32, mix);
    "crc32c", &[Int], 0, Int, "the CRC of iSCSI (Castagnoli); 1 adds an avalanche", |a| short(a, crc32c, mix);
    "digest", &[Str], 1, Bin, "the cryptographic hash of that name", |a| {
        Ok(Convert::Hash(Hash::Digest(Digest::named(a, 0)?)))
    };
    "djb2", &[Int], 0, Int, "Bernstein's hash; 1 adds an avalanche", |a| short(a, djb2, avalanche);
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
    "sdbm", &[Int], 0, Int, "the hash of sdbm; 1 adds an avalanche", |a| short(a, sdbm, avalanche);
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
    "wt6", &[Int], 0, Int, "the hash WT6; 1 adds an avalanche", |a| short(a, wt6, avalanche);
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
            Self::Short { function, finish: None } => int(u64::from(function(bytes))),
            Self::Short { function, finish: Some(finish) } => int(u64::from(finish(function(bytes)))),
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
