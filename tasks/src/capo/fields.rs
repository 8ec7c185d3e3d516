//! The published lists of names and values, and the sentence templates. Lists keep the published order, since draws are
//! indices into them; all strings share one padded block, so that they are copied in pieces of fixed size.

use std::sync::OnceLock;

use serde::Deserialize;

/// Size of the pieces in which strings are copied.
pub(super) const PIECE: usize = 64;

/// A string in [`Fields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    start: u32,
    len: u32,
}

/// A sentence template: a name or pronoun, then a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    /// Text between name and value, in three forms: after the name, starting with " He", and starting with " She".
    pub(super) after_name: Text,
    pub(super) he: Text,
    pub(super) she: Text,
    /// Text after the value, including the full stop.
    pub(super) end: Text,
}

/// The six sentences of a biography, in the order their templates are drawn.
pub(super) const SENTENCES: usize = 6;

/// Month names in calendar order.
pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// First possible year of birth.
pub(super) const FIRST_YEAR: u32 = 1900;
/// Number of possible years of birth.
pub(super) const YEARS: u32 = 200;
/// Number of possible days in every month.
pub(super) const DAYS: u32 = 28;

/// The published lists of names and places, and the sentence templates.
#[derive(Clone, Debug)]
pub struct Fields {
    block: Vec<u8>,
    /// First names.
    pub first_names: Vec<Text>,
    /// Middle names.
    pub middle_names: Vec<Text>,
    /// Last names.
    pub last_names: Vec<Text>,
    /// Cities of birth.
    pub cities: Vec<Text>,
    /// Universities.
    pub universities: Vec<Text>,
    /// Fields of study.
    pub fields: Vec<Text>,
    /// Names and cities of companies.
    pub companies: Vec<(Text, Text)>,
    /// "May 3, " and "3 of May, " for each month and day; "1999" for each year.
    pub(super) month_days: Vec<Text>,
    pub(super) day_months: Vec<Text>,
    pub(super) years: Vec<Text>,
    pub(super) templates: [Vec<Template>; SENTENCES],
    /// For each first, middle and last name, whether a value or a date contains it.
    pub(super) named_in_values: [Vec<bool>; 3],
    pub(super) abbreviations: Vec<String>,
    pub(super) prompts: Prompts,
    digest: blake3::Hash,
}

/// Sentences of bioR prompts, with `{…}` in place of a value.
#[derive(Clone, Debug)]
pub(super) struct Prompts {
    pub(super) university: Vec<String>,
    pub(super) field: Vec<String>,
    pub(super) city: Vec<String>,
    pub(super) employer: Vec<String>,
    pub(super) birthday: Vec<String>,
}

const TEMPLATES: &str = include_str!("../../fields/extracted/capo_templates.json");

#[derive(Deserialize)]
struct TemplateFile {
    generate_prompt2: PromptFile,
    get_text_simple3: SentenceFile,
    augmentation_permutation2: PermuterFile,
}

#[derive(Deserialize)]
struct PromptFile {
    #[serde(rename = "sentences@L30")]
    university: Vec<String>,
    #[serde(rename = "sentences@L41")]
    field: Vec<String>,
    #[serde(rename = "sentences@L49")]
    city: Vec<String>,
    #[serde(rename = "sentences@L59")]
    employer: Vec<String>,
    #[serde(rename = "sentences@L77")]
    birthday: Vec<String>,
}

#[derive(Deserialize)]
struct SentenceFile {
    #[serde(rename = "sentence_structures1@L96")]
    birthday: Vec<String>,
    #[serde(rename = "sentence_structures2@L145")]
    birth_city: Vec<String>,
    #[serde(rename = "sentence_structures3@L196")]
    university: Vec<String>,
    #[serde(rename = "sentence_structures4@L248")]
    field: Vec<String>,
    #[serde(rename = "sentence_structures5@L304")]
    working_city: Vec<String>,
    #[serde(rename = "sentence_structures6@L354")]
    employer: Vec<String>,
}

#[derive(Deserialize)]
struct PermuterFile {
    #[serde(rename = "spe_period@L473")]
    abbreviations: Vec<String>,
}

macro_rules! list {
    ($name:literal) => {
        include_str!(concat!("../../fields/capo/", $name, ".txt"))
    };
}

impl Fields {
    /// The published fields.
    pub fn get() -> &'static Fields {
        static FIELDS: OnceLock<Fields> = OnceLock::new();
        FIELDS.get_or_init(Fields::read)
    }

    /// The characters of an entry of these lists.
    pub fn text(&self, text: Text) -> &str {
        let bytes = &self.block[text.start as usize..][..text.len as usize];
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Identifies the lists and templates, which decide every biography.
    pub fn digest(&self) -> blake3::Hash {
        self.digest
    }

    /// Copies a string and up to one piece of the bytes after it to `out` at `at`. Returns the end of the string.
    #[inline]
    pub(super) fn copy(&self, text: Text, out: &mut [u8], at: usize) -> usize {
        let (start, len) = (text.start as usize, text.len as usize);
        out[at..at + PIECE].copy_from_slice(&self.block[start..start + PIECE]);
        if len > PIECE {
            out[at + PIECE..at + len].copy_from_slice(&self.block[start + PIECE..start + len]);
        }
        at + len
    }

    /// A name, including the space before it.
    pub(super) fn spaced(name: Text) -> Text {
        Text { start: name.start - 1, len: name.len + 1 }
    }

    /// The bytes that biographies contain, ascending.
    pub fn bytes(&self) -> Vec<u8> {
        (1..=u8::MAX).filter(|byte| *byte != b'\n' && self.block.contains(byte)).collect()
    }

    fn read() -> Fields {
        let TemplateFile { generate_prompt2, get_text_simple3, augmentation_permutation2 } =
            serde_json::from_str(TEMPLATES).expect("the tests read the same embedded file");
        let mut block = Block::default();
        let first_names = block.names(list!("first_name"));
        let middle_names = block.names(list!("middle_name"));
        let last_names = block.names(list!("last_name"));
        let cities = block.list(list!("city"));
        let universities = block.list(list!("university"));
        let fields = block.list(list!("field"));
        let companies: Vec<(Text, Text)> = lines(list!("company"))
            .filter_map(|line| line.split_once("; "))
            .map(|(name, city)| (block.add(name), block.add(city)))
            .collect();
        let mut dates = |write: fn(&str, u32) -> String| -> Vec<Text> {
            let days = MONTHS.iter().flat_map(|&month| (1..=DAYS).map(move |day| (month, day)));
            days.map(|(month, day)| block.add(&write(month, day))).collect()
        };
        let month_days = dates(|month, day| format!("{month} {day}, "));
        let day_months = dates(|month, day| format!("{day} of {month}, "));
        let years = (0..YEARS).map(|year| block.add(&(FIRST_YEAR + year).to_string())).collect();
        let SentenceFile { birthday, birth_city, university, field, working_city, employer } =
            get_text_simple3;
        let lists = [birthday, birth_city, university, field, working_city, employer];
        let templates =
            lists.map(|list| list.iter().map(|template| block.template(template)).collect());
        let mut fields = Fields {
            digest: blake3::Hasher::new_derive_key("canonc 1 data capo fields")
                .update(&block.bytes)
                .finalize(),
            block: block.bytes,
            first_names,
            middle_names,
            last_names,
            cities,
            universities,
            fields,
            companies,
            month_days,
            day_months,
            years,
            templates,
            named_in_values: Default::default(),
            abbreviations: augmentation_permutation2.abbreviations,
            prompts: Prompts {
                university: generate_prompt2.university,
                field: generate_prompt2.field,
                city: generate_prompt2.city,
                employer: generate_prompt2.employer,
                birthday: generate_prompt2.birthday,
            },
        };
        fields.named_in_values = fields.find_names();
        // A copy may read one piece from any string's start.
        fields.block.resize(fields.block.len() + PIECE, 0);
        fields
    }

    /// Which names occur in a value or a date: either in the part of the block after the names, or in a template.
    fn find_names(&self) -> [Vec<bool>; 3] {
        let from = self.cities.first().map_or(0, |city| city.start as usize);
        let rest = String::from_utf8_lossy(&self.block[from..]);
        [&self.first_names, &self.middle_names, &self.last_names]
            .map(|names| names.iter().map(|&name| rest.contains(self.text(name))).collect())
    }
}

/// The block while it is built. Line ends, which no string contains, separate the strings, so a search finds nothing
/// across two of them.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
}

impl Block {
    fn add(&mut self, text: &str) -> Text {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(b'\n');
        Text { start, len: text.len() as u32 }
    }

    fn list(&mut self, file: &str) -> Vec<Text> {
        lines(file).map(|line| self.add(line)).collect()
    }

    /// Adds each name with a space before it. The space is not part of the returned name.
    fn names(&mut self, file: &str) -> Vec<Text> {
        lines(file)
            .map(|line| {
                let Text { start, len } = self.add(&format!(" {line}"));
                Text { start: start + 1, len: len - 1 }
            })
            .collect()
    }

    /// Templates begin with the name and contain one value.
    fn template(&mut self, template: &str) -> Template {
        let sentence = template.strip_prefix("{name}").unwrap_or(template);
        let (before, rest) = sentence.split_once('{').unwrap_or((sentence, ""));
        let (_, end) = rest.split_once('}').unwrap_or((rest, ""));
        Template {
            after_name: self.add(before),
            he: self.add(&format!(" He{before}")),
            she: self.add(&format!(" She{before}")),
            end: self.add(end),
        }
    }
}

fn lines(file: &str) -> impl Iterator<Item = &str> {
    file.lines().map(str::trim).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_lists_are_complete() {
        let fields = Fields::get();
        let lists = [
            &fields.first_names,
            &fields.middle_names,
            &fields.last_names,
            &fields.cities,
            &fields.universities,
            &fields.fields,
        ];
        assert_eq!(lists.map(Vec::len), [400, 400, 1000, 200, 300, 100]);
        assert_eq!(fields.companies.len(), 263);
        assert_eq!(fields.templates.each_ref().map(Vec::len), [46, 49, 49, 52, 47, 48]);
        assert_eq!(fields.abbreviations.len(), 14);
        let Prompts { university, field, city, employer, birthday } = &fields.prompts;
        assert_eq!([university, field, city, employer, birthday].map(Vec::len), [7, 4, 6, 13, 2]);
        let texts = lists
            .into_iter()
            .flatten()
            .chain(fields.companies.iter().flat_map(|(name, city)| [name, city]));
        for &text in texts {
            let text = fields.text(text);
            assert!(!text.is_empty() && text.trim() == text && !text.contains('\n'), "{text}");
        }
        // The file's templates, reassembled.
        let file: serde_json::Value = serde_json::from_str(TEMPLATES).unwrap();
        let lists = file["get_text_simple3"].as_object().unwrap().values();
        for (list, templates) in lists.zip(&fields.templates) {
            for (want, template) in list.as_array().unwrap().iter().zip(templates) {
                let Template { after_name, he, she, end } = template;
                let (before, after) = (fields.text(*after_name), fields.text(*end));
                let (start, rest) = want.as_str().unwrap().split_once('{').unwrap();
                let (name, rest) = rest.split_once('}').unwrap();
                let (middle, value) = rest.split_once('{').unwrap();
                assert_eq!((start, name, middle), ("", "name", before));
                assert_eq!(value.split_once('}').unwrap().1, after);
                assert_eq!(fields.text(*he), format!(" He{before}"));
                assert_eq!(fields.text(*she), format!(" She{before}"));
            }
        }
    }

    #[test]
    fn names_in_values_are_found() {
        let fields = Fields::get();
        let named = |names: &[Text], flags: &[bool], name: &str| {
            flags[names.iter().position(|&text| fields.text(text) == name).unwrap()]
        };
        let [first, middle, last] = &fields.named_in_values;
        assert!(named(&fields.first_names, first, "Austin"));
        assert!(!named(&fields.first_names, first, "Gabrielle"));
        assert!(named(&fields.last_names, last, "Abbott"));
        // Templates contain no name. The fast reordering of sentences relies on it.
        let templates: String = fields
            .templates
            .iter()
            .flatten()
            .flat_map(|template| {
                [template.he, template.she, template.end].map(|text| fields.text(text))
            })
            .flat_map(|text| [text, "\n"])
            .collect();
        for &name in
            [&fields.first_names, &fields.middle_names, &fields.last_names].into_iter().flatten()
        {
            assert!(!templates.contains(fields.text(name)));
        }
        assert!(middle.iter().any(|&named| named) && !middle.iter().all(|&named| named));
    }
}
