//! Authentication of a connection instead of a request: NTLM and Negotiate (RFC 4559).
//!
//! A server that supports it remembers the client that authenticated on a connection, and serves every later
//! request on it as that client's. So no other client may use that connection.

use crate::head::Head;
use crate::name::Known;

/// Prefixes of the names of such schemes, in any case: `Negotiate`, `Nego2`, `NTLM`, `Kerberos`.
const SCHEMES: [&[u8]; 3] = [b"nego", b"ntlm", b"kerberos"];

impl Head {
    /// Returns whether this message authenticates its connection or begins to: a request with credentials of
    /// such a scheme, or a response with status 401 or 407 that asks for them.
    pub fn authenticates_connection(&self) -> bool {
        match self.status() {
            0 => self.names_scheme(Known::AUTHORIZATION) || self.names_scheme(Known::PROXY_AUTHORIZATION),
            401 | 407 => {
                self.names_scheme(Known::WWW_AUTHENTICATE) || self.names_scheme(Known::PROXY_AUTHENTICATE)
            }
            _ => false,
        }
    }

    fn names_scheme(&self, field: Known) -> bool {
        self.values(field).any(names_connection_scheme)
    }
}

/// Returns whether a member of this value, of a field with credentials or challenges, begins with such a
/// scheme. Quotes are ignored, so that an open quote cannot hide a scheme behind it.
pub fn names_connection_scheme(value: &[u8]) -> bool {
    let begins = |member: &[u8], scheme: &[u8]| {
        member.trim_ascii_start().get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    value.split(|&byte| byte == b',').any(|member| SCHEMES.iter().any(|scheme| begins(member, scheme)))
}

#[cfg(test)]
mod tests {
    use crate::{Head, Known, Version};

    #[test]
    fn challenges_and_credentials_of_connections_are_distinguished_from_others() {
        let response = |status, fields: &[(Known, &str)]| {
            let mut head = Head::response(Version::HTTP_11, status, None).unwrap();
            for (name, value) in fields {
                head.add_field(*name, value.as_bytes()).unwrap();
            }
            head.authenticates_connection()
        };
        let www = Known::WWW_AUTHENTICATE;
        assert!(response(401, &[(www, "NTLM")]));
        assert!(response(401, &[(www, "negotiate YII=")]));
        assert!(response(401, &[(www, "Nego2")]));
        assert!(response(401, &[(www, "Kerberos")]));
        assert!(response(401, &[(www, "Basic realm=\"a\""), (www, "nTLm")]));
        assert!(response(401, &[(www, "Basic realm=\"a, b\",\tNegotiate")]));
        assert!(response(401, &[(www, "Basic realm=\"open, NTLM")]));
        assert!(response(407, &[(Known::PROXY_AUTHENTICATE, "NTLM")]));
        assert!(!response(401, &[(www, "Basic realm=\"NTLM\"")]));
        assert!(!response(401, &[(www, "Bearer")]));
        assert!(!response(401, &[(www, "NT")]));
        assert!(!response(403, &[(www, "NTLM")]));
        let request = |name: Known, value: &str| {
            let mut head = Head::request(b"GET", b"/", Version::HTTP_11).unwrap();
            head.add_field(name, value.as_bytes()).unwrap();
            head.authenticates_connection()
        };
        assert!(request(Known::AUTHORIZATION, "NTLM TlRM"));
        assert!(request(Known::PROXY_AUTHORIZATION, "negotiate YII="));
        assert!(!request(Known::AUTHORIZATION, "Basic TlRM"));
    }
}
