//! Untrusted texts that converters read: JSON, JSON Web Tokens, dates, preferred languages. Each converter
//! gets the whole input.
#![no_main]

mod world;

use manylane_expr::*;
use world::{Fuzzed, with};

const EXPRESSIONS: [&str; 12] = [
    "unique-id,json_query('$.a')",
    "unique-id,json_query('$.a.b[1].c','int')",
    "unique-id,json_query('$[0][1]')",
    "unique-id,json(utf8)",
    "unique-id,jwt_header_query('$.alg')",
    "unique-id,jwt_payload_query('$.exp','int')",
    "unique-id,jwt_payload_query",
    "unique-id,jwt_verify(HS256,secret)",
    "unique-id,jwt_verify(RS256,key.pem)",
    "unique-id,jwt_verify(none,secret)",
    "unique-id,date",
    "unique-id,language(en;fr-ca;de,xx)",
];

const KEY: &[u8] = b"-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAplWWjYgr5ZXOk0mrsyI6
GGMXBL69v9EFTw4ToeFcX3tjqlhs7PBWEnzWduFupNRUauUbL/8fuEJF0InZVkRP
2GNvU51RdyGz/0UJfzcJoGyiOvBFS0JmOopfg/uO++zJiDT7A8uf+HxskGC6D35T
rGRSJ7vTZjnGCHiYcyfxZd2YRwu5c3WWkZCcqmgS142YEzwvWCDxk+NLVB8eRjTT
rKBCpc18eJkIWB9Op8q6yyenQlC1G4pRLsgewXz17tj5nghBjzscnBgCJpnh2G9I
07ustMFANRW4LXlgKxn9AMsXQihmKzHQ9AC46Mcs8FKBF4TdRn2hlih/v4MYpSYD
UQIDAQAB
-----END PUBLIC KEY-----
";

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let names = Fuzzed(KEY);
    let (mut variables, mut references) = (VariableNames::default(), References::default());
    let mut compiler = Compiler::new(&names, &mut variables, &mut references);
    let compiled = EXPRESSIONS.map(|text| {
        Expression::compile(text.as_bytes(), EvalPoints::EVERYWHERE, &mut compiler).expect("it is right")
    });
    let stream = StreamInfo { unique_id: Some(data), ..StreamInfo::default() };
    with(None, &stream, &variables, |env, scratch| {
        for (text, expression) in EXPRESSIONS.iter().zip(&compiled) {
            let mut scratch = scratch.reborrow();
            let value = expression.eval(env, &mut scratch).ok().map(|sample| sample.value);
            match value {
                Some(Value::Int(result)) if text.contains("jwt_verify(none") => {
                    // The last dot may be missing, as in HAProxy.
                    let unsigned = match data.iter().filter(|byte| **byte == b'.').count() {
                        1 => true,
                        2 => data.ends_with(b"."),
                        _ => false,
                    };
                    assert_eq!(result == 1, unsigned);
                }
                // The input cannot be signed, since the fuzzer knows neither the secret nor the key.
                Some(Value::Int(result)) if text.contains("jwt_verify") => assert!(result <= 0, "{result}"),
                _ => {}
            }
        }
    });
    manylane_sync::qsbr::reclaim();
});
