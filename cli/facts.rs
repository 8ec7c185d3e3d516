//! Facts about this machine that `canonc doctor` shows.

use serde::{Deserialize, Serialize};

/// One thing that was checked.
#[derive(Debug, Deserialize, Serialize)]
pub struct Fact {
    pub name: String,
    pub value: String,
    pub state: State,
    pub help: Option<String>,
    /// Known only where libtorch is loaded.
    pub of_libtorch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Has,
    Lacks,
    Unknown,
}

/// The document of `canonc doctor --json`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Facts {
    pub schema: String,
    pub facts: Vec<Fact>,
}

impl Fact {
    pub fn has(name: &str, value: impl Into<String>) -> Fact {
        Fact {
            name: name.to_owned(),
            value: value.into(),
            state: State::Has,
            help: None,
            of_libtorch: false,
        }
    }

    pub fn lacks(name: &str, value: impl Into<String>, help: impl Into<String>) -> Fact {
        Fact {
            name: name.to_owned(),
            value: value.into(),
            state: State::Lacks,
            help: Some(help.into()),
            of_libtorch: false,
        }
    }

    pub fn unknown(name: &str) -> Fact {
        Fact {
            name: name.to_owned(),
            value: "unknown".to_owned(),
            state: State::Unknown,
            help: None,
            of_libtorch: false,
        }
    }
}
