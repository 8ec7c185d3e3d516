//! Arguments of filters, tests, methods and functions, bound as Python binds them.

use crate::value::Value;

/// The arguments of a call. Of a filter or test, the value comes first.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    pub(crate) positional: Vec<Value>,
    pub(crate) keywords: Vec<(String, Value)>,
}

impl Arguments {
    /// The value of a filter.
    pub fn value(&self) -> &Value {
        self.positional.first().unwrap_or(&Value::None)
    }

    /// An argument by position.
    pub fn at(&self, position: usize) -> Option<&Value> {
        self.positional.get(position)
    }

    pub(crate) fn positional(&self) -> &[Value] {
        &self.positional
    }

    pub(crate) fn keywords(&self) -> &[(String, Value)] {
        &self.keywords
    }

    /// The arguments by their names, in this order. One too many or of another name is an error.
    pub fn bind<const N: usize>(
        &self,
        function: &str,
        names: [&str; N],
    ) -> Result<[Option<Value>; N], String> {
        if self.positional.len() > N {
            return Err(format!(
                "{function}() takes at most {N} arguments ({} given)",
                self.positional.len()
            ));
        }
        let mut values: [Option<Value>; N] =
            std::array::from_fn(|at| self.positional.get(at).cloned());
        for (name, value) in &self.keywords {
            let slot =
                names.iter().position(|other| other == name).and_then(|at| values.get_mut(at));
            match slot {
                Some(slot @ None) => *slot = Some(value.clone()),
                Some(Some(_)) => {
                    return Err(format!("{function}() got multiple values for argument '{name}'"));
                }
                None => {
                    return Err(format!(
                        "{function}() got an unexpected keyword argument '{name}'"
                    ));
                }
            }
        }
        Ok(values)
    }
}
