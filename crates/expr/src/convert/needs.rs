//! Inputs of converters besides the sample that they convert.

use super::misc::Misc;
use super::number::{Arithmetic, Operand};
use super::text::Text;
use super::{Convert, hash};
use crate::needs::{Needs, OfVariable};

impl Convert {
    /// The inputs of the converter.
    pub(crate) fn needs(&self, variables: OfVariable<'_>) -> Needs {
        let of = |operand: &Operand| match operand {
            Operand::Int(_) => Needs::NONE,
            Operand::Variable(id) => variables(*id),
        };
        match self {
            Self::Stick(_) => Needs::TABLE,
            Self::Map(_) => Needs::MAP,
            Self::Misc(Misc::NbSrv | Misc::SrvQueue | Misc::SrvIsUp) => Needs::STATE,
            Self::Number(Arithmetic::Two(_, operand)) => of(operand),
            Self::Text(Text::Bytes { offset, len }) => of(offset) | len.as_ref().map_or(Needs::NONE, of),
            Self::Text(Text::Concat { variable: Some(id), .. } | Text::Compare { variable: id, .. })
            | Self::Hash(hash::Hash::Hmac { key: hash::Key::Variable(id), .. }) => variables(*id),
            Self::Cipher(cipher) => cipher.needs(variables),
            Self::Verify(verify) => verify.needs(variables),
            Self::When(when) => when.needs(variables),
            Self::Number(_)
            | Self::Text(_)
            | Self::Hash(_)
            | Self::Encode(_)
            | Self::Time(_)
            | Self::Address(_)
            | Self::Misc(_)
            | Self::Fix(_)
            | Self::Mqtt(_)
            | Self::Forwarded(_)
            | Self::Message(_)
            | Self::Order(_)
            | Self::Query(_)
            | Self::TokenPart(_)
            | Self::Language(_) => Needs::NONE,
        }
    }
}
