//! `aes_gcm_enc` and `aes_gcm_dec`: authenticated encryption (NIST SP 800-38D).

use super::encode::{self, STANDARD};
use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::env::Env;
use crate::error::Error;
use crate::needs::{Needs, OfVariable};
use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use crate::variable::VariableId;
use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey,
};

pub(crate) struct Cipher {
    seals: bool,
    algorithm: &'static Algorithm,
    nonce: Text,
    key: Key,
    tag: Text,
}

/// Bytes that are written as base64.
#[derive(Debug)]
enum Text {
    Bytes(Box<[u8]>),
    Variable(VariableId),
}

/// A key that is ready for use, or a variable with one.
enum Key {
    Ready(Box<LessSafeKey>),
    Variable(VariableId),
}

/// Length of a nonce in bytes.
const NONCE: usize = aws_lc_rs::aead::NONCE_LEN;
/// Length of a tag in bytes.
const TAG: usize = 16;
/// Length of the longest key in bytes.
const MAX_KEY: usize = 32;

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cipher({:?}, nonce {:?}, tag {:?})", self.algorithm, self.nonce, self.tag)
    }
}

impl Text {
    /// Reads argument `index`: base64 of `len` bytes, or a variable.
    fn of(args: &mut Args<'_, '_>, index: usize, len: usize) -> Result<Self, Error> {
        if let Ok(id) = args.variable(index) {
            return Ok(Self::Variable(id));
        }
        let text = args.boxed(index);
        let mut bytes = vec![0; text.len()];
        match encode::decode64(&text, STANDARD, &mut bytes) {
            Some(found) if found == len => {
                bytes.truncate(len);
                Ok(Self::Bytes(bytes.into()))
            }
            _ => Err(args.expected(index, &format!("{len} bytes in base64, or a variable,"))),
        }
    }

    /// The bytes, as many as `out` has; `None` if there are not so many.
    fn read(&self, out: &mut [u8], env: &Env<'_>, scratch: &mut Scratch<'_>) -> Option<()> {
        match self {
            Self::Bytes(bytes) => {
                out.copy_from_slice(bytes);
                Some(())
            }
            Self::Variable(id) => decode(*id, out, env, scratch),
        }
    }
}

/// Decodes base64 in a variable to exactly as many bytes as `out` has.
fn decode(id: VariableId, out: &mut [u8], env: &Env<'_>, scratch: &mut Scratch<'_>) -> Option<()> {
    let mut scratch = scratch.reborrow();
    let text = env.variables.get(id, env.reader, &mut scratch)?.bytes()?;
    (encode::decode64(text, STANDARD, out)? == out.len()).then_some(())
}

fn cipher(args: &mut Args<'_, '_>, seals: bool) -> Result<Convert, Error> {
    let algorithm = match args.int(0)? {
        Some(128) => &AES_128_GCM,
        Some(192) => &AES_192_GCM,
        Some(256) => &AES_256_GCM,
        _ => return Err(args.expected(0, "128, 192 or 256")),
    };
    let nonce = Text::of(args, 1, NONCE)?;
    let key = match Text::of(args, 2, algorithm.key_len())? {
        Text::Variable(id) => Key::Variable(id),
        Text::Bytes(bytes) => match UnboundKey::new(algorithm, &bytes) {
            Ok(key) => Key::Ready(Box::new(LessSafeKey::new(key))),
            Err(_) => return Err(args.expected(2, "a key of that length in base64")),
        },
    };
    let tag = if seals { Text::Variable(args.variable(3)?) } else { Text::of(args, 3, TAG)? };
    Ok(Convert::Cipher(Box::new(Cipher { seals, algorithm, nonce, key, tag })))
}

pub(super) const ROWS: &[Row] = &[
    row(
        "aes_gcm_dec",
        &[Int, Str, Str, Str],
        4,
        Type::Bin,
        Type::Bin,
        "the plain text of bytes under AES-GCM, by bits of the key, nonce, key and tag; absent if the tag is \
            another",
        |args| cipher(args, false),
    ),
    row(
        "aes_gcm_enc",
        &[Int, Str, Str, Variable],
        4,
        Type::Bin,
        Type::Bin,
        "the bytes encrypted under AES-GCM, by bits of the key, nonce and key; a variable gets the tag",
        |args| cipher(args, true),
    ),
];

impl Cipher {
    pub(super) fn needs(&self, variables: OfVariable<'_>) -> Needs {
        let of = |text: &Text| match text {
            Text::Bytes(_) => Needs::NONE,
            Text::Variable(id) => variables(*id),
        };
        let key = match &self.key {
            Key::Ready(_) => Needs::NONE,
            Key::Variable(id) => variables(*id),
        };
        let tag = if self.seals { Needs::NONE } else { of(&self.tag) };
        of(&self.nonce) | key | tag
    }

    pub(super) fn apply<'x>(
        &self,
        bytes: &[u8],
        env: &Env<'x>,
        scratch: &mut Scratch<'x>,
    ) -> Option<Value<'x>> {
        let mut nonce = [0; NONCE];
        self.nonce.read(&mut nonce, env, scratch)?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let from_variable;
        let key = match &self.key {
            Key::Ready(key) => key,
            Key::Variable(id) => {
                let mut key = [0; MAX_KEY];
                let key = &mut key[..self.algorithm.key_len()];
                decode(*id, key, env, scratch)?;
                from_variable = LessSafeKey::new(UnboundKey::new(self.algorithm, key).ok()?);
                &from_variable
            }
        };
        if !self.seals {
            let mut tag = [0; TAG];
            self.tag.read(&mut tag, env, scratch)?;
            let plain = scratch.fill(|out| {
                let out = out.get_mut(..bytes.len())?;
                key.open_separate_gather(nonce, Aad::empty(), bytes, &tag, out).ok()?;
                Some(bytes.len())
            });
            return plain.map(Value::Bin);
        }
        let mut tag = None;
        let sealed = scratch.fill(|out| {
            let out = out.get_mut(..bytes.len())?;
            out.copy_from_slice(bytes);
            tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), out).ok();
            Some(bytes.len())
        })?;
        let tag = tag?;
        let text = scratch.build(|out| encode::encode64(tag.as_ref(), STANDARD, out))?;
        if let Text::Variable(id) = self.tag {
            env.variables.set(id, Some(Value::Str(text)));
        }
        Some(Value::Bin(sealed))
    }
}
