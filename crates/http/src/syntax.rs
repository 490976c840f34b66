//! Classes of bytes, tokens, and what may stand in a field's value (RFC 9110, section 5).

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const VALUE: u8 = 4;
const PLAIN_NAME: u8 = 8;
const HOST: u8 = 16;

/// What each byte may be part of.
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

/// A byte of a token: of a method, a field's name, a coding's name.
#[inline]
pub fn is_token_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & TOKEN != 0
}

/// A byte of a target: those that RFC 3986 allows there, and the printed ones that clients send all the same;
/// `#` begins a fragment, which a target does not have.
#[inline]
pub fn is_target_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & TARGET != 0
}

/// A byte of a field's value: all but control characters; tabs and bytes above 0x7f are fine (RFC 9110, 5.5).
#[inline]
pub fn is_value_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & VALUE != 0
}

/// A letter, digit or hyphen: what `http-restrict-req-hdr-names` leaves of names.
#[inline]
pub fn is_plain_name_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & PLAIN_NAME != 0
}

/// A byte of a registered name (RFC 3986, 3.2.2), but for the comma, which would make a list of a `Host`.
#[inline]
pub fn is_host_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & HOST != 0
}

/// One or more bytes, all of them of a token.
#[inline]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// All bytes may stand in a field's value. Empty is fine.
#[inline]
pub fn is_value(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| is_value_byte(byte))
}

/// Without spaces and tabs before it.
#[inline]
pub(crate) fn trim_start(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

/// Without spaces and tabs at both ends.
#[inline]
pub fn trim(bytes: &[u8]) -> &[u8] {
    let mut bytes = trim_start(bytes);
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// A number of decimal digits and nothing else, as in `Content-Length`; none if it is empty or does not fit.
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
