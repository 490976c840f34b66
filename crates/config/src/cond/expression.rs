//! Parses and evaluates conditions.

use super::{Build, Predicate};
use crate::Shown;
use crate::guess;
use crate::lex::{Argument, Budget, Environment, Scope, Word, arguments, split};
use crate::limits::MAX_EXPRESSION_DEPTH;
use crate::source::{FileId, Pos};

/// Why a condition cannot be evaluated, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionError {
    /// Byte offset in the expression, from 0.
    pub at: usize,
    /// What is wrong.
    pub message: String,
}

impl std::fmt::Display for ConditionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConditionError {}

/// Evaluates a condition.
///
/// # Errors
/// If it cannot be parsed.
pub fn evaluate(text: &[u8], environment: &Environment, build: &Build) -> Result<bool, ConditionError> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    parser.spaces();
    if parser.at == text.len() {
        return Ok(false);
    }
    let expression = parser.expression()?;
    if let Some(&byte) = text.get(parser.at) {
        let message = format!(
            "a condition expects '&&', '||' or its end here, found '{}' in '{}'",
            Shown(&[byte]),
            Shown(text)
        );
        return Err(parser.error(parser.at, message));
    }
    Ok(expression.holds(environment, build))
}

/// Evaluates the condition of the option `-cc`. Its text is split into words like a line, with quotes and
/// variables, and the words are joined by spaces.
///
/// # Errors
/// If it cannot be parsed, with the offset in `text`. The program then exits with code 2
/// ([`ExitCode::Unusable`](crate::diag::ExitCode)); the code is 0 for true and 1 for false.
pub fn evaluate_option(
    text: &[u8],
    environment: &Environment,
    build: &Build,
) -> Result<bool, ConditionError> {
    let start = Pos { file: FileId::ALONE, line: 1, column: 1 };
    let scope = Scope { environment, file: b"-cc", line: 1, section: b"" };
    let words = split(text, start, &scope, &mut Budget::default())
        .map_err(|error| ConditionError { at: error.column as usize - 1, message: error.message })?;
    let joined = Word::join(&words, start);
    evaluate(joined.bytes(), environment, build)
        .map_err(|error| ConditionError { at: joined.pos_at(error.at).column as usize - 1, ..error })
}

enum Expression {
    Constant(bool),
    Asks(Predicate, Vec<Argument>),
    Not(Box<Expression>),
    All(Vec<Expression>),
    Any(Vec<Expression>),
}

impl Expression {
    fn holds(&self, environment: &Environment, build: &Build) -> bool {
        match self {
            Self::Constant(value) => *value,
            Self::Asks(predicate, arguments) => predicate.holds(arguments, environment, build),
            Self::Not(inner) => !inner.holds(environment, build),
            Self::All(terms) => terms.iter().all(|term| term.holds(environment, build)),
            Self::Any(terms) => terms.iter().any(|term| term.holds(environment, build)),
        }
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn error(&self, at: usize, message: impl Into<String>) -> ConditionError {
        ConditionError { at, message: message.into() }
    }

    fn spaces(&mut self) {
        while self.text.get(self.at).is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn takes(&mut self, token: &[u8]) -> bool {
        self.spaces();
        let found = self.text[self.at..].starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expression(&mut self) -> Result<Expression, ConditionError> {
        let mut terms = vec![self.conjunction()?];
        while self.takes(b"||") {
            terms.push(self.conjunction()?);
        }
        Ok(Expression::Any(terms))
    }

    fn conjunction(&mut self) -> Result<Expression, ConditionError> {
        let mut terms = vec![self.term()?];
        while self.takes(b"&&") {
            terms.push(self.term()?);
        }
        Ok(Expression::All(terms))
    }

    fn term(&mut self) -> Result<Expression, ConditionError> {
        let mut negated = false;
        while self.takes(b"!") {
            negated = !negated;
        }
        let inner = self.operand()?;
        self.spaces();
        Ok(if negated { Expression::Not(Box::new(inner)) } else { inner })
    }

    fn operand(&mut self) -> Result<Expression, ConditionError> {
        self.spaces();
        let open = self.at;
        if self.takes(b"(") {
            self.depth += 1;
            if self.depth > MAX_EXPRESSION_DEPTH {
                let message = format!(
                    "expected at most {MAX_EXPRESSION_DEPTH} parentheses inside each other, found more"
                );
                return Err(self.error(open, message));
            }
            let inner = self.expression()?;
            if !self.takes(b")") {
                let rest = Shown(&self.text[open..]).to_string();
                return Err(self.error(
                    open,
                    format!("a condition expects ')' for each '(', found none behind '{rest}'"),
                ));
            }
            self.depth -= 1;
            return Ok(inner);
        }
        if let Some(value) = self.integer() {
            return Ok(Expression::Constant(value));
        }
        self.predicate()
    }

    /// Parses an integer in C syntax; true if it is not zero.
    fn integer(&mut self) -> Option<bool> {
        let sign = usize::from(matches!(self.text.get(self.at), Some(b'+' | b'-')));
        let digits = &self.text[self.at + sign..];
        if !digits.first()?.is_ascii_digit() {
            return None;
        }
        let hexadecimal = digits[0] == b'0'
            && matches!(digits.get(1), Some(b'x' | b'X'))
            && digits.get(2).is_some_and(u8::is_ascii_hexdigit);
        let (from, base) = if hexadecimal { (2, 16) } else { (0, 10) };
        let length = digits[from..].iter().take_while(|&&byte| (byte as char).is_digit(base)).count();
        let value = digits[from..from + length].iter().any(|&digit| digit != b'0');
        self.at += sign + from + length;
        Some(value)
    }

    fn predicate(&mut self) -> Result<Expression, ConditionError> {
        let begin = self.at;
        let rest = &self.text[begin..];
        let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        let name = &rest[..length];
        let Some(predicate) = Predicate::named(name) else {
            let guess = guess(name, Predicate::names());
            let found = if rest.is_empty() { "none".into() } else { format!("'{}'", Shown(rest)) };
            let message = format!(
                "a condition expects a number or a predicate such as defined(NAME), found {found}{guess}"
            );
            return Err(self.error(begin, message));
        };
        let open = begin + length;
        let arity = predicate.arity();
        if self.text.get(open) != Some(&b'(') {
            let message =
                format!("'{}' expects {} in parentheses, found none", predicate.name(), counted(arity));
            return Err(self.error(begin, message));
        }
        let mut found = arguments(self.text, open).map_err(|e| self.error(e.at(), e.to_string()))?;
        if arity == 1 && found.list.is_empty() {
            // As in HAProxy, a missing argument is an empty one.
            found.list.push(Argument { at: open, bytes: Vec::new() });
        }
        if found.list.len() != arity {
            let at = found.list.get(arity).map_or(open, |extra| extra.at);
            let message =
                format!("'{}' expects {}, found {}", predicate.name(), counted(arity), found.list.len());
            return Err(self.error(at, message));
        }
        if let Some((index, message)) = predicate.complaint(&found.list) {
            return Err(self.error(found.list[index].at, message));
        }
        self.at = found.end;
        Ok(Expression::Asks(predicate, found.list))
    }
}

/// `1 argument`, `2 arguments`
fn counted(arguments: usize) -> String {
    format!("{arguments} argument{}", if arguments == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cond::LibraryVersion;

    const BUILD: Build = Build {
        features: &["THREAD", "OPENSSL"],
        enabled: &["KQUEUE", "POLL"],
        tls: Some(("OpenSSL 3.0.2", LibraryVersion::new(3, 0, 2))),
        ..Build::bare()
    };

    fn ask(text: &str) -> Result<bool, ConditionError> {
        let mut environment = Environment::new();
        environment.set(b"SET", b"").unwrap();
        evaluate(text.as_bytes(), &environment, &BUILD.without("KQUEUE").without("SPLICE"))
    }

    #[test]
    fn expressions_have_the_value_that_haproxy_gives_them() {
        for (text, value) in [
            ("", false),
            ("  ", false),
            ("0", false),
            ("00", false),
            ("1", true),
            (" 1 ", true),
            ("-1", true),
            ("+1", true),
            ("0x1", true),
            ("0x0", false),
            ("12345678901234567890123", true),
            ("!0", true),
            ("!!1", true),
            ("! 0", true),
            ("1&&1", true),
            ("0 || 1", true),
            ("1 || 0 && 0", true),
            ("1 && 1 || 0", true),
            ("(1 || 0) && 0", false),
            ("!1 || 0 && 1", false),
            ("!(0 && 1) && !0", true),
            ("streq(a,a)&&1", true),
            ("streq(a,b)||streq(,)", true),
            ("streq(\"a,b\",'a,b')", true),
            ("streq( a,a)", false),
            ("strneq(a,b)", true),
            ("strstr(abc,bc) && !strstr(abc,cb)", true),
            ("strstr(abc,)", true),
            ("defined(SET) && !defined(UNSET)", true),
            ("feature(THREAD) && !feature(QUIC) && !feature(thread)", true),
            ("enabled(POLL) && !enabled(KQUEUE)", true),
            ("version_atleast(3.5) && version_atleast(2.4-dev19) && version_atleast(2)", true),
            ("version_atleast(3.5.1)", false),
            ("version_before(3.5.1) && version_before(3.6-dev1)", true),
            ("version_before(3.5)", false),
            // As in HAProxy, a text that is not a version is older than every version.
            ("version_atleast(v3.5-dev3) && !version_before(v3.5-dev3)", true),
            ("fips_mode()", false),
            ("!fips_mode()", true),
            ("openssl_version_atleast(3.0.0) && openssl_version_before(3.0.3)", true),
            ("ssllib_name_startswith(OpenSSL) && !ssllib_name_startswith(AWS)", true),
            ("awslc_api_atleast(1) || awslc_api_before(100)", false),
        ] {
            assert_eq!(ask(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        for (text, at, part) in [
            ("foo", 0, "a condition expects a number or a predicate such as defined(NAME), found 'foo'"),
            ("1 2", 2, "or its end here, found '2'"),
            ("1a", 1, "or its end here, found 'a'"),
            ("1)", 1, "or its end here, found ')'"),
            ("1 |1", 2, "or its end here, found '|'"),
            ("(1)(1)", 3, "or its end here, found '('"),
            ("(1", 0, "expects ')' for each '('"),
            ("()", 1, "expects a number or a predicate"),
            ("1 &&", 4, "expects a number or a predicate"),
            ("&& 1", 0, "expects a number or a predicate"),
            ("!", 1, "expects a number or a predicate"),
            ("1||foo", 3, "expects a number or a predicate"),
            ("0&&foo", 3, "expects a number or a predicate"),
            ("stre(a,b)", 0, "did you mean 'streq'?"),
            ("STREQ(a,a)", 0, "did you mean 'streq'?"),
            ("streq(a)", 5, "expects 2 arguments, found 1"),
            ("streq(a,b,c)", 10, "expects 2 arguments, found 3"),
            ("streq (a,b)", 0, "in parentheses"),
            ("streq(a,b", 5, "expected ')'"),
            ("streq(\"a,b)", 6, "expected another quote"),
            ("defined", 0, "expects 1 argument in parentheses, found none"),
            ("defined()", 7, "'defined' expects a name, found ''"),
            ("openssl_version_before(x)", 23, "expects a version"),
            ("awslc_api_atleast(x)", 18, "expects a number"),
        ] {
            let error = ask(text).unwrap_err();
            assert_eq!(error.at, at, "{text}: {error}");
            assert!(error.message.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_option_reads_its_text_as_a_line() {
        let mut env = Environment::new();
        env.set(b"V", b"abc").unwrap();
        let ask = |text: &str| evaluate_option(text.as_bytes(), &env, &BUILD);
        assert_eq!(ask("streq(\"$V\",abc)"), Ok(true));
        assert_eq!(ask("streq($V,abc)"), Ok(false));
        assert_eq!(ask("\"1\" && streq(\"a b\",\"a b\") # comment"), Ok(true));
        assert_eq!(ask("streq(\"a,b\",\"a,b\")").unwrap_err().at, 13);
        assert_eq!(ask("\"0\" ||  foo").unwrap_err().at, 8);
        assert!(ask("1 \"").unwrap_err().message.starts_with("unmatched quote"));
    }

    #[test]
    fn the_stack_is_bounded() {
        let nested = |n: usize| format!("{}1{}", "(".repeat(n), ")".repeat(n));
        assert_eq!(ask(&nested(MAX_EXPRESSION_DEPTH)), Ok(true));
        assert!(ask(&nested(MAX_EXPRESSION_DEPTH + 1)).unwrap_err().message.contains("inside each other"));
        assert_eq!(ask(&format!("{}1", "!".repeat(100_000))), Ok(true));
        assert_eq!(ask(&format!("0{}", "||0".repeat(20_000))), Ok(false));
    }

    #[test]
    fn without_a_tls_library_no_question_about_it_is_true() {
        let env = Environment::new();
        for text in [
            "openssl_version_atleast(0.9.8)",
            "openssl_version_before(9.0.0)",
            "ssllib_name_startswith(O)",
            "awslc_api_before(99)",
            "feature(OPENSSL)",
        ] {
            assert_eq!(evaluate(text.as_bytes(), &env, &Build::bare()), Ok(false), "{text}");
        }
    }
}
