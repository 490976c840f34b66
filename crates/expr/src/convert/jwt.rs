//! JSON Web Tokens (RFC 7519) in their compact form: what they say, and whether their signature is good.

use super::encode::{self, URL};
use super::hash::Digest;
use super::query::Query;
use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::env::Env;
use crate::error::Error;
use crate::needs::{Needs, OfVariable};
use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use crate::variable::VariableId;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::signature as sign;
use aws_lc_rs::signature::{ParsedPublicKey, VerificationAlgorithm};

/// A part of a token, and the path of a value in it.
#[derive(Debug)]
pub(crate) struct Part {
    /// 0 for the header, 1 for the payload.
    index: usize,
    query: Option<Query>,
}

/// Verification of a signature.
#[derive(Debug)]
pub(crate) struct Verify {
    algorithm: Choice,
    key: Key,
}

#[derive(Debug)]
enum Choice {
    Fixed(Algorithm),
    Variable(VariableId),
}

#[derive(Debug)]
enum Key {
    /// The argument: a secret.
    Secret(Box<[u8]>),
    /// The argument: the path of a file in PEM, with this public key.
    File { path: Box<[u8]>, public: PublicKey },
    /// A secret in a variable.
    Variable(VariableId),
}

/// A public key, ready for each algorithm that it fits. Empty if there is none.
type PublicKey = Box<[(Algorithm, ParsedPublicKey)]>;

/// An algorithm of RFC 7518, section 3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Algorithm {
    family: Family,
    digest: Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Unsigned,
    Hmac,
    Rsa,
    Pss,
    Ecdsa,
}

/// Results of `jwt_verify`.
mod result {
    pub(super) const BAD: i64 = 0;
    pub(super) const GOOD: i64 = 1;
    pub(super) const UNKNOWN_ALGORITHM: i64 = -1;
    pub(super) const NO_TOKEN: i64 = -3;
    pub(super) const UNKNOWN_KEY: i64 = -5;
}

/// Length of the longest signature: RSA with 8192 bits.
const MAX_SIGNATURE: usize = 1024;

/// Algorithms whose keys are in files.
const PUBLIC: [(&str, &dyn VerificationAlgorithm); 9] = [
    ("RS256", &sign::RSA_PKCS1_2048_8192_SHA256),
    ("RS384", &sign::RSA_PKCS1_2048_8192_SHA384),
    ("RS512", &sign::RSA_PKCS1_2048_8192_SHA512),
    ("PS256", &sign::RSA_PSS_2048_8192_SHA256),
    ("PS384", &sign::RSA_PSS_2048_8192_SHA384),
    ("PS512", &sign::RSA_PSS_2048_8192_SHA512),
    ("ES256", &sign::ECDSA_P256_SHA256_FIXED),
    ("ES384", &sign::ECDSA_P384_SHA384_FIXED),
    ("ES512", &sign::ECDSA_P521_SHA512_FIXED),
];

impl Algorithm {
    fn by_name(name: &[u8]) -> Option<Self> {
        if name == b"none" {
            return Some(Self { family: Family::Unsigned, digest: Digest::Sha256 });
        }
        let (family, digest) = name.split_at_checked(2)?;
        let family = match family {
            b"HS" => Family::Hmac,
            b"RS" => Family::Rsa,
            b"PS" => Family::Pss,
            b"ES" => Family::Ecdsa,
            _ => return None,
        };
        let digest = match digest {
            b"256" => Digest::Sha256,
            b"384" => Digest::Sha384,
            b"512" => Digest::Sha512,
            _ => return None,
        };
        Some(Self { family, digest })
    }

    /// True if its key is in a file.
    fn is_public(self) -> bool {
        !matches!(self.family, Family::Unsigned | Family::Hmac)
    }

    /// Length of its signatures, if all have the same.
    fn signature(self) -> Option<usize> {
        match (self.family, self.digest) {
            (Family::Ecdsa, Digest::Sha256) => Some(64),
            (Family::Ecdsa, Digest::Sha384) => Some(96),
            (Family::Ecdsa, _) => Some(132),
            _ => None,
        }
    }
}

/// The public key in the text of a file: `PUBLIC KEY` (RFC 5280) or `RSA PUBLIC KEY` (PKCS #1). Empty if
/// there is none, or one that fits no algorithm.
fn public_key(text: &[u8]) -> PublicKey {
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(text) else { return PublicKey::default() };
    if !["PUBLIC KEY", "RSA PUBLIC KEY"].contains(&&pem.label[..]) {
        return PublicKey::default();
    }
    let fitting = PUBLIC.iter().filter_map(|(name, algorithm)| {
        let key = ParsedPublicKey::new(*algorithm, &pem.contents).ok()?;
        Some((Algorithm::by_name(name.as_bytes())?, key))
    });
    fitting.collect()
}

fn verify(args: &mut Args<'_, '_>) -> Result<Convert, Error> {
    let algorithm = match args.variable(0) {
        Ok(id) => Choice::Variable(id),
        Err(_) => match args.given(0).and_then(Algorithm::by_name) {
            Some(algorithm) => Choice::Fixed(algorithm),
            None => {
                let what = "HS256, RS256, PS256, ES256, the same with 384 or 512, none, or a variable";
                return Err(args.expected(0, what));
            }
        },
    };
    let wanted = match algorithm {
        Choice::Fixed(algorithm) if algorithm.is_public() => Some(algorithm),
        _ => None,
    };
    let key = match args.variable(1) {
        Ok(_) if wanted.is_some() => {
            return Err(args.expected(1, "the path of a public key, which is read at the start,"));
        }
        Ok(id) => Key::Variable(id),
        Err(_) => {
            let path = args.boxed(1);
            let names = args.compiler.names;
            let text = match (wanted, names.file(&path)) {
                (_, Ok(text)) => text,
                (None, Err(_)) => Vec::new(),
                (Some(_), Err(error)) => {
                    let why = format!("'jwt_verify' cannot read '{}': {error}", crate::show::Shown(&path));
                    return Err(args.error(1, why));
                }
            };
            let public = public_key(&text);
            if wanted.is_some_and(|wanted| !public.iter().any(|(fits, _)| *fits == wanted)) {
                let what = "a file with a public key that fits the algorithm (BEGIN PUBLIC KEY, or BEGIN RSA \
                    PUBLIC KEY, of 2048 bits at least)";
                return Err(args.expected(1, what));
            }
            match memchr::memmem::find(&text, b"-----BEGIN ") {
                Some(_) => Key::File { path, public },
                None => Key::Secret(path),
            }
        }
    };
    Ok(Convert::Verify(Box::new(Verify { algorithm, key })))
}

fn part(args: &mut Args<'_, '_>, index: usize) -> Result<Convert, Error> {
    let query = if args.given(0).is_some() { Some(Query::of(args)?) } else { None };
    Ok(Convert::TokenPart(Part { index, query }))
}

pub(super) const ROWS: &[Row] = &[
    row(
        "jwt_header_query",
        &[Str, Str],
        0,
        Type::Str,
        Type::Any,
        "the header of a JSON Web Token, or what stands at a path of it, as of json_query",
        |args| part(args, 0),
    ),
    row(
        "jwt_payload_query",
        &[Str, Str],
        0,
        Type::Str,
        Type::Any,
        "the payload of a JSON Web Token, or what stands at a path of it, as of json_query",
        |args| part(args, 1),
    ),
    row(
        "jwt_verify",
        &[Str, Str],
        2,
        Type::Str,
        Type::Int,
        "1 if the signature of a JSON Web Token is good, by algorithm and secret or file of a public key; 0 \
            if not; negative if that cannot be said",
        verify,
    ),
];

impl Part {
    pub(super) fn apply<'x>(&self, token: &'x [u8], scratch: &mut Scratch<'x>) -> Option<Value<'x>> {
        let part = token.split(|byte| *byte == b'.').nth(self.index)?;
        let text = scratch.fill(|out| encode::decode64(part, URL, out))?;
        match &self.query {
            None => Some(Value::Str(text)),
            Some(query) => query.apply(text, scratch),
        }
    }
}

impl Verify {
    pub(super) fn needs(&self, variables: OfVariable<'_>) -> Needs {
        let algorithm = match self.algorithm {
            Choice::Fixed(_) => Needs::NONE,
            Choice::Variable(id) => variables(id),
        };
        match self.key {
            Key::Secret(_) | Key::File { .. } => algorithm,
            Key::Variable(id) => algorithm | variables(id),
        }
    }

    /// Verifies the signature of a token; `None` if a variable is not set, or the key is empty.
    pub(super) fn apply<'x>(&self, token: &[u8], env: &Env<'x>, scratch: &mut Scratch<'x>) -> Option<i64> {
        let algorithm = match self.algorithm {
            Choice::Fixed(algorithm) => algorithm,
            Choice::Variable(id) => {
                let mut scratch = scratch.reborrow();
                let name = env.variables.get(id, env.reader, &mut scratch)?.bytes()?;
                match Algorithm::by_name(name) {
                    Some(algorithm) => algorithm,
                    None => return Some(result::UNKNOWN_ALGORITHM),
                }
            }
        };
        let mut scratch = scratch.reborrow();
        let (secret, public) = match &self.key {
            Key::Secret(secret) => (&secret[..], &[][..]),
            // A variable may hold the algorithm that the token itself names. With 'none' a forger needs no
            // signature; with HMAC the path of the file would be the secret, which a forger may know (RFC
            // 8725, 3.1). HAProxy accepts both.
            Key::File { .. } if matches!(self.algorithm, Choice::Variable(_)) && !algorithm.is_public() => {
                return Some(result::BAD);
            }
            Key::File { path, public } => (&path[..], &public[..]),
            Key::Variable(id) => (env.variables.get(*id, env.reader, &mut scratch)?.bytes()?, &[][..]),
        };
        if secret.is_empty() {
            return None;
        }
        Some(signature_of(algorithm, secret, public, token))
    }
}

fn signature_of(
    algorithm: Algorithm,
    secret: &[u8],
    public: &[(Algorithm, ParsedPublicKey)],
    token: &[u8],
) -> i64 {
    let mut dots = memchr::memchr_iter(b'.', token);
    let (signed, signature) = match (dots.next(), dots.next(), dots.next()) {
        (Some(_), Some(second), None) => (&token[..second], &token[second + 1..]),
        // As in HAProxy, a token without a signature may do without the last dot, too.
        (Some(_), None, None) if algorithm.family == Family::Unsigned => (token, &[][..]),
        _ => return result::NO_TOKEN,
    };
    let is = |good: bool| if good { result::GOOD } else { result::BAD };
    if algorithm.family == Family::Unsigned {
        return is(signature.is_empty());
    }
    let mut bytes = [0; MAX_SIGNATURE];
    let signature = match encode::decode64(signature, URL, &mut bytes) {
        None | Some(0) => return result::NO_TOKEN,
        Some(len) => &bytes[..len],
    };
    if algorithm.family == Family::Hmac {
        let (code, len) = algorithm.digest.hmac(secret, signed);
        return is(verify_slices_are_equal(&code[..len], signature).is_ok());
    }
    if public.is_empty() {
        return result::UNKNOWN_KEY;
    }
    if algorithm.signature().is_some_and(|len| len != signature.len()) {
        return result::BAD;
    }
    let key = public.iter().find(|(fits, _)| *fits == algorithm);
    is(key.is_some_and(|(_, key)| key.verify_sig(signed, signature).is_ok()))
}
