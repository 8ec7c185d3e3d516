//! Settings of kernels in the text of a plan, which is hashed.

use std::fmt::Display;
use std::rc::Rc;

use dsl::Decimal;

use crate::number::Root;
use crate::value::{DType, Extent};

/// A setting.
pub(super) trait Setting {
    /// As `name value`, or as several of these.
    fn text(&self, name: &str) -> Vec<String>;
}

/// Types whose settings are written as they are displayed.
macro_rules! displayed {
    ($($type:ty),*) => {
        $(impl $crate::kernel::setting::Setting for $type {
            fn text(&self, name: &str) -> Vec<String> {
                vec![format!("{name} {self}")]
            }
        })*
    };
}

pub(super) use displayed;

displayed!(bool, i64, usize, Decimal, Root, Rc<str>, DType);

impl<T: Display> Setting for Option<T> {
    fn text(&self, name: &str) -> Vec<String> {
        let value = self.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
        vec![format!("{name} {value}")]
    }
}

impl Setting for Vec<i64> {
    fn text(&self, name: &str) -> Vec<String> {
        vec![format!("{name} {self:?}")]
    }
}

impl Setting for Vec<Extent> {
    fn text(&self, name: &str) -> Vec<String> {
        let extents: Vec<String> = self.iter().map(Extent::to_string).collect();
        vec![format!("{name} [{}]", extents.join(", "))]
    }
}
