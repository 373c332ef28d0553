//! What the user can do, as data: a program words it with its own options.

use super::one_line;
use crate::plan::KvDtype;
use serde::{Serialize, Serializer};
use std::fmt;

/// A remedy for a problem that a check found. `Display` words it without the options of any program. Complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Plan for this context, which fits.
    SmallerContext(usize),
    /// Ask for at most this context, which the model was trained for.
    TrainedContext(usize),
    /// Keep keys and values in this dtype; if its purpose is a larger context, the context that then fits.
    CacheDtype(KvDtype, Option<usize>),
    /// Compute on the processor of this machine; the context that fits there, if it is known.
    Processor(Option<usize>),
    /// Compute on a processor: the machine is described, and its processor is not this machine's.
    SomeProcessor,
    /// Build with this feature of the library.
    Feature(&'static str),
    /// Anything else, in words.
    Words(String),
}

impl Remedy {
    /// The words of the remedy, if it is in words.
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

/// A next step after a report. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Run the model, with the options that it was judged with.
    Run,
    /// Run the model on the processor of this machine.
    RunOnProcessor,
    /// Use this context, on the same machine.
    WithContext(usize),
    /// Judge the model for the described machine of this name, where it runs.
    OnMachine(&'static str),
    /// Run or judge this one of [`InputSummary::models`](super::InputSummary::models).
    OneOf(usize),
}
