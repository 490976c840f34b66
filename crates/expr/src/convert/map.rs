//! Maps: look up a sample among the patterns of a file, and return the value of the pattern.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::env::Env;
use crate::error::Error;
use crate::fetch::Fixed;
use crate::pattern::value::MapValue;
use crate::pattern::{MatchKind, Reference, View};
use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use manylane_sync::Arc;

#[derive(Debug)]
pub(crate) struct Map {
    reference: Arc<Reference>,
    view: View,
    gives: MapValue,
    /// Values are templates in which `\1` is the first group of the pattern.
    expands: bool,
    default: Option<Fixed>,
}

fn map(args: &mut Args<'_, '_>, kind: MatchKind, gives: MapValue, expands: bool) -> Result<Convert, Error> {
    let default = match args.bytes(1) {
        None => None,
        Some(text) => match gives.read(text) {
            Some(Value::Int(n)) => Some(Fixed::Int(n)),
            Some(Value::Ipv4(addr)) => Some(Fixed::Ipv4(addr)),
            Some(Value::Ipv6(addr)) => Some(Fixed::Ipv6(addr)),
            Some(_) => Some(Fixed::Str(text.into())),
            None => return Err(args.expected(1, gives.name())),
        },
    };
    let file = args.boxed(0);
    let compiler = &mut *args.compiler;
    let reference = match compiler.references.open(&file, true, compiler.names) {
        Ok(reference) => reference,
        Err(why) => return Err(args.error(0, why)),
    };
    let view = reference.view(kind, false).map_err(|(_, why)| args.error(0, why))?;
    reference.require(gives).map_err(|why| args.error(0, why))?;
    reference.used_by(format!("by map at {}", args.compiler.at()));
    Ok(Convert::Map(Map { reference, view, gives, expands, default }))
}

macro_rules! rows {
    ($($name:literal $takes:ident $gives:ident $kind:ident $form:ident $expands:literal;)*) => {
        &[$(row($name, &[File, Str], 1, Type::$takes, Type::$gives, "what the map has for it, else the \
            default",
            |a| map(a, MatchKind::$kind, MapValue::$form, $expands))),*]
    };
}

/// Rows of converters that give the pattern.
macro_rules! keys {
    ($($name:literal $takes:ident $kind:ident;)*) => {
        &[$(row($name, &[File], 1, Type::$takes, Type::Str, "the pattern of the map that matches it",
            |a| map(a, MatchKind::$kind, MapValue::Pattern, false))),*]
    };
}

pub(super) const KEYS: &[Row] = keys! {
    "map_beg_key" Str Beg;
    "map_dir_key" Str Dir;
    "map_dom_key" Str Dom;
    "map_end_key" Str End;
    "map_int_key" Int Int;
    "map_ip_key" Addr Ip;
    "map_reg_key" Str Reg;
    "map_str_key" Str Str;
    "map_sub_key" Str Sub;
};

pub(super) const ROWS: &[Row] = rows! {
    "map" Str Str Str Str false;
    "map_beg" Str Str Beg Str false;
    "map_beg_int" Str Int Beg Int false;
    "map_beg_ip" Str Addr Beg Ip false;
    "map_dir" Str Str Dir Str false;
    "map_dir_int" Str Int Dir Int false;
    "map_dir_ip" Str Addr Dir Ip false;
    "map_dom" Str Str Dom Str false;
    "map_dom_int" Str Int Dom Int false;
    "map_dom_ip" Str Addr Dom Ip false;
    "map_end" Str Str End Str false;
    "map_end_int" Str Int End Int false;
    "map_end_ip" Str Addr End Ip false;
    "map_int" Int Str Int Str false;
    "map_int_int" Int Int Int Int false;
    "map_int_ip" Int Addr Int Ip false;
    "map_ip" Addr Str Ip Str false;
    "map_ip_int" Addr Int Ip Int false;
    "map_ip_ip" Addr Addr Ip Ip false;
    "map_reg" Str Str Reg Str false;
    "map_reg_int" Str Int Reg Int false;
    "map_reg_ip" Str Addr Reg Ip false;
    "map_regm" Str Str Reg Str true;
    "map_str" Str Str Str Str false;
    "map_str_int" Str Int Str Int false;
    "map_str_ip" Str Addr Str Ip false;
    "map_sub" Str Str Sub Str false;
    "map_sub_int" Str Int Sub Int false;
    "map_sub_ip" Str Addr Sub Ip false;
};

impl Map {
    pub(super) fn apply<'x>(
        &'x self,
        value: Value<'x>,
        env: &Env<'x>,
        scratch: &mut Scratch<'x>,
    ) -> Option<Value<'x>> {
        let snapshot = self.reference.load(env.reader);
        let Some(entry) = snapshot.find(self.view, value, scratch) else {
            return self.default.as_ref().map(Fixed::value);
        };
        if self.expands {
            let regex = snapshot.regex(self.view, entry)?;
            return Some(Value::Str(regex.expand(value.bytes()?, entry.value(), scratch)?));
        }
        self.gives.read(if self.gives == MapValue::Pattern { entry.pattern() } else { entry.value() })
    }
}
