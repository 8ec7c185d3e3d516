//! The rows of parameters: name, values, default and meaning of each. Generators, recipes and help read them here.

/// One parameter of a task.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its path: `data.depo.N`.
    pub path: &'static str,
    /// The values it takes.
    pub values: Values,
    /// Its value when it is not given.
    pub default: Default,
    /// Its meaning, as sentences for help texts.
    pub doc: &'static str,
    /// Other common names, which are suggested but never accepted.
    pub also: &'static [&'static str],
    /// Another published name, which is accepted outside recipes.
    pub alias: Option<&'static str>,
    /// Whether recipes and locks have it. If not, only `canonc data` takes it.
    pub in_recipes: bool,
}

/// The values that a parameter takes.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// An integer from the first bound to the second, both included.
    Int(i64, i64),
    /// The seed of a generator: an unsigned integer, or null for the default.
    Seed,
    /// `true` or `false`.
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A name, which the task looks up among these.
    Name(&'static [&'static str]),
    /// Some of these letters.
    Letters(&'static str),
    /// A list of integers.
    Ints(i64, i64),
    /// A list of texts.
    Texts,
    /// An object. Recipes cannot write it.
    Object(&'static Form),
}

/// The form of a JSON value.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// An integer of 64 bits.
    Int,
    /// An unsigned integer of 64 bits.
    Unsigned,
    /// `true` or `false`.
    Bool,
    /// Text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of values of one form.
    List(&'static Form),
    /// An object with these keys, and any others; the text describes it.
    Object(&'static str, &'static [Key]),
}

/// A key of an object.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The form of its value.
    pub form: Form,
    /// Whether it may be missing or null.
    pub is_optional: bool,
}

impl Values {
    /// The form of these values, whatever their bounds.
    pub(super) fn form(&self) -> Form {
        match *self {
            Values::Int(..) => Form::Int,
            Values::Seed => Form::Unsigned,
            Values::Bool => Form::Bool,
            Values::Word(words) => Form::Word(words),
            Values::Name(_) | Values::Letters(_) => Form::Text,
            Values::Ints(..) => Form::List(&Form::Int),
            Values::Texts => Form::List(&Form::Text),
            Values::Object(form) => *form,
        }
    }
}

/// A parameter's value when it is not given.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// It has to be given.
    Required,
    /// It has to be given in recipes; elsewhere another parameter can be given instead.
    RequiredInRecipes,
    /// This value, as TOML and JSON.
    Is(&'static str),
    /// The integers from 1 to the value of the parameter with this path.
    UpTo(&'static str),
    /// The value of the parameter with this path.
    SameAs(&'static str),
    /// None: without a value it has no effect.
    Nothing,
}

pub(super) const fn parameter(
    path: &'static str,
    values: Values,
    default: Default,
    doc: &'static str,
) -> Parameter {
    Parameter { path, values, default, doc, also: &[], alias: None, in_recipes: true }
}

impl Parameter {
    pub(super) const fn also(self, also: &'static [&'static str]) -> Parameter {
        Parameter { also, ..self }
    }

    pub(super) const fn alias(self, alias: &'static str) -> Parameter {
        Parameter { alias: Some(alias), ..self }
    }

    pub(super) const fn outside_recipes(self) -> Parameter {
        Parameter { in_recipes: false, ..self }
    }

    /// Whether it has to be given everywhere.
    pub fn is_required(&self) -> bool {
        matches!(self.default, Default::Required)
    }

    /// Whether null means that it is not given.
    pub(super) fn is_nullable(&self) -> bool {
        matches!(self.values, Values::Seed)
            || !matches!(self.default, Default::Required | Default::Is(_))
    }

    /// `N` of `data.depo.N`.
    pub fn name(&self) -> &'static str {
        last(self.path)
    }

    /// Its name, and its other name if it has one.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.name()].into_iter().chain(self.alias)
    }
}

/// `N` of `data.depo.N`.
pub(super) fn last(path: &'static str) -> &'static str {
    path.rsplit('.').next().unwrap_or(path)
}
