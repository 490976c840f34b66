//! Keys as words, which are compared without a lock.

use crate::spec::Spec;
use manylane_expr::{Type, Value};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest key, in bytes. Each request compares it word by word.
pub const MAX_KEY_BYTES: usize = 1024;

/// Runs `work` with the words of a key. `None` if its type is not the table's. Text is cut at its first NUL
/// byte and to the length that the table keeps; shorter data are padded with zeros.
pub fn with_key<R>(spec: &Spec, key: Value<'_>, work: impl FnOnce(&[u64]) -> R) -> Option<R> {
    let bytes = match (spec.key, key) {
        (Type::Ipv4, Value::Ipv4(addr)) => return Some(work(&[u64::from(addr.to_bits())])),
        (Type::Ipv6, Value::Ipv6(addr)) => {
            let bits = addr.to_bits();
            return Some(work(&[(bits >> 64) as u64, bits as u64]));
        }
        // As with HAProxy: the low 32 bits.
        (Type::Int, Value::Int(n)) => return Some(work(&[u64::from(n as u32)])),
        (Type::Str, Value::Str(bytes)) => {
            &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
        }
        (Type::Bin, Value::Bin(bytes)) => bytes,
        _ => return None,
    };
    let bytes = &bytes[..bytes.len().min(spec.key_bytes).min(MAX_KEY_BYTES)];
    let mut words = [0; MAX_KEY_BYTES / 8];
    for (word, part) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..part.len()].copy_from_slice(part);
        *word = u64::from_be_bytes(whole);
    }
    Some(work(&words[..spec.key_bytes.div_ceil(8).clamp(1, words.len())]))
}

/// The key of these words. Text and data are copied to `bytes`, as far as they fit.
pub(crate) fn value<'b>(spec: &Spec, words: impl Iterator<Item = u64>, bytes: &'b mut [u8]) -> Value<'b> {
    let mut words = words;
    let mut next = || words.next().unwrap_or_default();
    match spec.key {
        Type::Ipv4 => Value::Ipv4(Ipv4Addr::from_bits(next() as u32)),
        Type::Ipv6 => {
            let high = u128::from(next());
            Value::Ipv6(Ipv6Addr::from_bits(high << 64 | u128::from(next())))
        }
        Type::Str | Type::Bin => {
            let length = spec.key_bytes.min(bytes.len());
            for part in bytes[..length].chunks_mut(8) {
                let whole = next().to_be_bytes();
                part.copy_from_slice(&whole[..part.len()]);
            }
            let bytes = &bytes[..length];
            if spec.key == Type::Bin {
                return Value::Bin(bytes);
            }
            Value::Str(&bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(length)])
        }
        _ => Value::Int(next() as i64),
    }
}
