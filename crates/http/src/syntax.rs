//! Classes of bytes, tokens, and the syntax of field values (RFC 9110, section 5).

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const VALUE: u8 = 4;
const PLAIN_NAME: u8 = 8;
const HOST: u8 = 16;

/// Classes of each byte.
static CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let mut n = 0;
    while n < 256 {
        let byte = n as u8;
        let plain = byte.is_ascii_alphanumeric() || byte == b'-';
        let token = plain
            || matches!(
                byte,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        let target = byte > b' ' && byte < 0x7f && byte != b'#';
        let host = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'-' | b'.'
                    | b'_'
                    | b'~'
                    | b'%'
                    | b'!'
                    | b'$'
                    | b'&'
                    | b'\''
                    | b'('
                    | b')'
                    | b'*'
                    | b'+'
                    | b';'
                    | b'='
            );
        let value = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
        class[n] = (token as u8 * TOKEN)
            | (target as u8 * TARGET)
            | (value as u8 * VALUE)
            | (plain as u8 * PLAIN_NAME)
            | (host as u8 * HOST);
        n += 1;
    }
    class
};

/// Returns whether a token may have this byte: a method, a field's name, a coding's name.
#[inline]
pub fn is_token_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & TOKEN != 0
}

/// Returns whether a target may have this byte: one that RFC 3986 allows, or another printable one, which
/// clients send anyway. `#` begins a fragment, which a target does not have.
#[inline]
pub fn is_target_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & TARGET != 0
}

/// Returns whether a field's value may have this byte: no control character except for tabs; bytes above 0x7f
/// are allowed (RFC 9110, 5.5).
#[inline]
pub fn is_value_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & VALUE != 0
}

/// Returns whether this is a letter, digit or hyphen, which `http-restrict-req-hdr-names` allows in names.
#[inline]
pub fn is_plain_name_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & PLAIN_NAME != 0
}

/// Returns whether a registered name may have this byte (RFC 3986, 3.2.2), except for the comma, which would
/// turn a `Host` into a list.
#[inline]
pub fn is_host_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & HOST != 0
}

/// Returns whether this is a token: one or more token bytes.
#[inline]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// Returns whether this may be a field's value. It may be empty.
#[inline]
pub fn is_value(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| is_value_byte(byte))
}

/// Removes spaces and tabs from the start.
#[inline]
pub(crate) fn trim_start(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

/// Removes spaces and tabs from both ends.
#[inline]
pub fn trim(bytes: &[u8]) -> &[u8] {
    let mut bytes = trim_start(bytes);
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Parses a number of decimal digits only, as in `Content-Length`. Returns `None` if it is empty or does not
/// fit.
#[inline]
pub fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_bytes_are_those_of_the_rfcs() {
        let of = |f: fn(u8) -> bool| (0..=255u8).filter(|&b| f(b)).map(char::from).collect::<String>();
        assert_eq!(
            of(is_token_byte),
            "!#$%&'*+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz|~"
        );
        assert_eq!(
            of(is_target_byte),
            "!\"$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"
        );
        assert_eq!((0..=255u8).filter(|&b| !is_value_byte(b)).count(), 32);
        assert!(is_value_byte(b'\t') && !is_value_byte(0) && !is_value_byte(0x7f) && is_value_byte(0xff));
    }

    #[test]
    fn decimals_are_digits_and_fit() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"00018446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"18446744073709551616", b"+1", b"-1", b"1 ", b"0x10", b"1,1", b"\xb2"] {
            assert_eq!(decimal(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn trim_takes_spaces_and_tabs_only() {
        assert_eq!(trim(b" \ta b\t "), b"a b");
        assert_eq!(trim(b"\x0ba\r"), b"\x0ba\r");
        assert_eq!(trim(b" \t"), b"");
    }
}
