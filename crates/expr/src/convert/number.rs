//! Saturating arithmetic on signed 64-bit numbers.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::cast::{cast, parse_whole};
use crate::env::Env;
use crate::error::Error;
use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use crate::variable::VariableId;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Arithmetic {
    Two(Operator, Operand),
    Neg,
    Complement,
    Not,
    Bool,
    Odd,
    Even,
    Htonl,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    And,
    Or,
    Xor,
}

/// A constant, or a variable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    Int(i64),
    Variable(VariableId),
}

impl Operand {
    pub(super) fn of(args: &mut Args<'_, '_>, index: usize) -> Result<Self, Error> {
        match args.bytes(index).and_then(parse_whole) {
            Some(n) => Ok(Self::Int(n)),
            None => Ok(Self::Variable(args.variable(index)?)),
        }
    }

    /// The number; `None` if the variable is not set or not a number.
    pub(super) fn value<'x>(self, env: &Env<'x>, scratch: &mut Scratch<'x>) -> Option<i64> {
        match self {
            Self::Int(n) => Some(n),
            Self::Variable(id) => {
                let value = env.variables.get(id, env.reader, scratch)?;
                match cast(value, Type::Int, scratch)? {
                    Value::Int(n) => Some(n),
                    _ => None,
                }
            }
        }
    }
}

macro_rules! two {
    ($name:literal, $help:literal, $operator:ident) => {
        row($name, &[IntOrVariable], 1, Type::Int, Type::Int, $help, |args| {
            Ok(Convert::Number(Arithmetic::Two(Operator::$operator, Operand::of(args, 0)?)))
        })
    };
}

macro_rules! one {
    ($name:literal, $gives:ident, $help:literal, $what:ident) => {
        row($name, &[], 0, Type::Int, Type::$gives, $help, |_| Ok(Convert::Number(Arithmetic::$what)))
    };
}

pub(super) const ROWS: &[Row] = &[
    two!("add", "the sum with a number or a variable", Add),
    two!("and", "the bits that are set in both", And),
    one!("bool", Bool, "whether it is not 0", Bool),
    one!("cpl", Int, "the ones' complement", Complement),
    two!("div", "the quotient; the largest number when the divisor is 0", Div),
    one!("even", Bool, "whether it is even", Even),
    one!("htonl", Bin, "its low 32 bits as four bytes, the highest first", Htonl),
    two!("mod", "the remainder; 0 when the divisor is 0", Mod),
    two!("mul", "the product", Mul),
    one!("neg", Int, "the opposite number", Neg),
    one!("not", Bool, "whether it is 0", Not),
    one!("odd", Bool, "whether it is odd", Odd),
    two!("or", "the bits that are set in either", Or),
    two!("sub", "the difference to a number or a variable", Sub),
    two!("xor", "the bits that are set in one of both", Xor),
];

impl Arithmetic {
    pub(super) fn apply<'x>(
        self,
        value: Value<'x>,
        env: &Env<'x>,
        scratch: &mut Scratch<'x>,
    ) -> Option<Value<'x>> {
        let Value::Int(n) = value else { return None };
        Some(match self {
            Self::Two(operator, operand) => Value::Int(operator.apply(n, operand.value(env, scratch)?)),
            Self::Neg => Value::Int(n.saturating_neg()),
            Self::Complement => Value::Int(!n),
            Self::Not => Value::Bool(n == 0),
            Self::Bool => Value::Bool(n != 0),
            Self::Odd => Value::Bool(n & 1 == 1),
            Self::Even => Value::Bool(n & 1 == 0),
            Self::Htonl => Value::Bin(scratch.copy(&(n as u32).to_be_bytes())?),
        })
    }
}

impl Operator {
    fn apply(self, a: i64, b: i64) -> i64 {
        match self {
            Self::Add => a.saturating_add(b),
            Self::Sub => a.saturating_sub(b),
            Self::Mul => a.saturating_mul(b),
            Self::Div if b == 0 => i64::MAX,
            Self::Div => a.saturating_div(b),
            Self::Mod if b == 0 => 0,
            Self::Mod => a.wrapping_rem(b),
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
        }
    }
}
