//! What the user can do, as data: a program says it with its own options.

use super::one_line;
use crate::plan::KvDtype;
use serde::{Serialize, Serializer};
use std::fmt;

/// Something that mends what a check found. `Display` says it without the options of any program. Complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Plan for this context, which fits.
    SmallerContext(usize),
    /// Ask for at most this context, which the model was trained for.
    TrainedContext(usize),
    /// Keep keys and values in this dtype; where that is what it is for, the context that fits then.
    CacheDtype(KvDtype, Option<usize>),
    /// Compute on the processor of this machine; where it is known, the context that fits there.
    Processor(Option<usize>),
    /// Compute on a processor: the machine is described, and this one's is another.
    SomeProcessor,
    /// Build with this feature of the library.
    Feature(&'static str),
    /// Anything else, in words.
    Words(String),
}

impl Remedy {
    /// Its words, where it is in words.
    pub(crate) fn words(&mut self) -> Option<&mut String> {
        if let Remedy::Words(words) = self { Some(words) } else { None }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remedy::SmallerContext(context) => write!(f, "take a smaller context: {context}"),
            Remedy::TrainedContext(context) => write!(f, "ask for a context of at most {context}"),
            Remedy::CacheDtype(dtype, None) => write!(f, "keep keys and values in {dtype}"),
            Remedy::CacheDtype(dtype, Some(context)) => {
                write!(f, "keep keys and values in {dtype}, for context {context}")
            }
            Remedy::Processor(None) => f.write_str("run it on the processor"),
            Remedy::Processor(Some(context)) => write!(f, "run it on the processor, where context {context} fits"),
            Remedy::SomeProcessor => f.write_str("run it on a processor"),
            Remedy::Feature(feature) => write!(f, "build with the feature {feature}"),
            Remedy::Words(words) => f.write_str(words),
        }
    }
}

impl From<String> for Remedy {
    fn from(words: String) -> Remedy {
        Remedy::Words(one_line(words))
    }
}

impl From<&str> for Remedy {
    fn from(words: &str) -> Remedy {
        words.to_owned().into()
    }
}

impl Serialize for Remedy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What goes on from a report. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Run the model, as it was asked for.
    Run,
    /// Run it on the processor of this machine.
    RunOnProcessor,
    /// Ask for this context, on the same machine.
    WithContext(usize),
    /// Judge it for the described machine of this name, where it runs.
    OnMachine(&'static str),
    /// Run or judge this one of [`InputSummary::models`](super::InputSummary::models).
    OneOf(usize),
}
