//! Initial distributions of parameters: the tables of std, and others by their rules.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use compiler::program::{Compiled, STD};
use dsl::{Decimal, Entry, Item, Segment, Sources};

/// Initial distributions: each role's rule, in the words of our language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init(BTreeMap<String, String>);

/// The standard tables by name. Other programs' initial distributions are among them.
static TABLES: LazyLock<BTreeMap<String, Init>> = LazyLock::new(|| {
    let mut sources = Sources::new();
    let items = STD.iter().flat_map(|(name, text)| {
        let file = sources.add(*name, *text);
        dsl::parse(file, text).0.items
    });
    let tables = items.filter_map(|item| match item {
        Item::Init(table) => Some((table.name.text, Init::from_rows(rows(&table.entries)))),
        Item::Def(_) | Item::Alias(_) | Item::Arch(_) => None,
    });
    tables.collect()
});

/// KeyRule by role, as a compiled arch lists them.
fn rows(entries: &[Entry]) -> BTreeMap<String, String> {
    let row = |entry: &Entry| {
        let Entry::Set { path, value, .. } = entry else { return None };
        let [Segment::Name(role)] = path.segments.as_slice() else { return None };
        Some((role.text.clone(), dsl::print_expr(value)))
    };
    entries.iter().filter_map(row).collect()
}

impl Init {
    /// Lingua's truncated normals.
    pub fn lingua() -> Init {
        Init::standard("lingua")
    }

    /// Those of the flash-linear-attention library.
    pub fn flash_linear() -> Init {
        Init::standard("flash_linear")
    }

    /// Those of the mamba library.
    pub fn mamba() -> Init {
        Init::standard("mamba")
    }

    /// Hugging Face's normals of 0.02.
    pub fn hugging_face() -> Init {
        Init::standard("huggingface")
    }

    /// Hugging Face's table with another standard deviation.
    pub fn hugging_face_with(range: Decimal) -> Init {
        let mut init = Init::hugging_face();
        for role in ["embed", "linear"] {
            init.0.insert(role.to_owned(), format!("normal({range})"));
        }
        init
    }

    fn standard(name: &str) -> Init {
        Init::named(name).unwrap_or_else(|| Init::from_rows(BTreeMap::new()))
    }

    /// The standard table with this name.
    pub fn named(name: &str) -> Option<Init> {
        TABLES.get(name).cloned()
    }

    /// The name of the standard table that is equal to it.
    pub fn name(&self) -> Option<&'static str> {
        TABLES.iter().find(|(_, init)| *init == self).map(|(name, _)| name.as_str())
    }

    /// The distributions with these rules by role.
    pub fn from_rows(rows: BTreeMap<String, String>) -> Init {
        Init(rows)
    }

    /// The distributions of a compiled arch.
    pub(crate) fn from_compiled(compiled: &Compiled) -> Init {
        let fields = compiled.fields.iter();
        let rows = fields.filter_map(|f| Some((f.path.strip_prefix("init.")?, &f.value)));
        Init::from_rows(rows.map(|(role, rule)| (role.to_owned(), rule.clone())).collect())
    }

    /// The table's definition in the text of an arch with this name, unless it is a standard one; and its name.
    pub(crate) fn written(&self, name: &str) -> (String, String) {
        if let Some(table) = self.name() {
            return (String::new(), table.to_owned());
        }
        let rows: String =
            self.rows().iter().map(|(role, rule)| format!("  {role} {rule}\n")).collect();
        (format!("init {name}_init {{\n{rows}}}\n\n"), format!("{name}_init"))
    }

    /// KeyRule by role.
    pub fn rows(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// The standard deviation, if the table is Hugging Face's apart from it.
    pub fn range(&self) -> Option<Decimal> {
        let range = self.0.get("linear")?.strip_prefix("normal(")?.strip_suffix(')')?;
        let range = Decimal::parse(range).ok()?;
        (Init::hugging_face_with(range) == *self).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_other_programs_are_standard_ones() {
        let roles = ["bias", "canon", "embed", "linear", "norm", "short_conv", "short_conv_bias"];
        for (init, name, linear) in [
            (Init::lingua(), "lingua", "trunc_normal(rsqrt(fan_in), 3)"),
            (Init::hugging_face(), "huggingface", "normal(0.02)"),
            (Init::flash_linear(), "flash_linear", "normal(0.02)"),
            (Init::mamba(), "mamba", "uniform(rsqrt(fan_in))"),
        ] {
            assert_eq!(init.name(), Some(name));
            assert_eq!(init.rows().get("linear").map(String::as_str), Some(linear), "{name}");
            assert!(init.rows().keys().eq(roles), "{name}");
        }
        assert_eq!(Init::hugging_face().range(), Decimal::parse("0.02").ok());
        assert_eq!(Init::mamba().range(), None);
    }
}
