//! Reads the number of devices from one comment.
//!
//! In: a line of text. Out: [`CommentCount`]. Must stay true: a count is read only if every word is known
//! and every number is accounted for; names of devices (`H100`) and sizes (`80GB`) are not counts.

use super::flags::flags;
use super::lexicon::{Word, words};
use super::mentions::{elsewhere, exported, made, speaks};

/// The number of devices according to a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CommentCount {
    /// It does not mention a number of devices.
    Nothing,
    /// It mentions one, but could not be understood for this reason.
    Unclear(String),
    Devices(Counts),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub totals: Vec<u64>,
    pub nodes: Vec<u64>,
    pub per_node: Vec<u64>,
}

impl Counts {
    pub(super) fn is_empty(&self) -> bool {
        self.totals.is_empty() && self.nodes.is_empty() && self.per_node.is_empty()
    }
}

/// Reads one comment.
pub(super) fn line(text: &str) -> CommentCount {
    if let Some(says) = exported(text) {
        return says;
    }
    if text.contains("--") || text.contains(" -N ") {
        let flags = flags(text);
        if flags != CommentCount::Nothing {
            return flags;
        }
    }
    let words = words(text);
    if let Some(why) = elsewhere(text, &words) {
        return CommentCount::Unclear(why);
    }
    let of_devices = words
        .iter()
        .any(|word| matches!(word, Word::Device(_) | Word::Model | Word::Node(_)) || made(word));
    if !of_devices {
        return CommentCount::Nothing;
    }
    let mut counts = Counts::default();
    match sentence(&words, &mut counts) {
        Ok(()) if counts.is_empty() => CommentCount::Nothing,
        Ok(()) => CommentCount::Devices(counts),
        Err(why) => match speaks(&words) {
            true => CommentCount::Unclear(why),
            false => CommentCount::Nothing,
        },
    }
}

/// A number and the thing it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    None,
    Device,
    DevicePerNode,
    Node,
}

const PER: &str = "it gives devices per something that is not named";

struct Reader<'a> {
    words: Vec<&'a Word>,
    at: usize,
    /// Counts from single numbers. Counts from products are kept separately.
    single: Vec<(u64, bool)>,
    product: Vec<u64>,
    /// Numbers without a unit, and whether each is the result of the others: `= 128`, `(16 x 8)`.
    bare: Vec<(u64, bool)>,
}

fn sentence(words: &[Word], counts: &mut Counts) -> Result<(), String> {
    for word in words {
        if let Word::Unknown(text) = word {
            return Err(format!("`{text}` is not understood"));
        }
    }
    // `64 and 64 GPUs`
    let joined = |three: &[Word]| {
        matches!(three, [Word::Number(_) | Word::Quantity(_), Word::And, Word::Number(_)])
    };
    if words.windows(3).any(joined) {
        return Err("it gives several numbers of devices".to_owned());
    }
    let words = &articles(words);
    things(words)?;
    let words = of_time(words)?;
    // Read `number of GPUs` as `GPUs` with a number expected.
    let words: Vec<&Word> =
        words.into_iter().filter(|word| !matches!(word, Word::Known | Word::Many)).collect();
    let mut reader =
        Reader { words, at: 0, single: Vec::new(), product: Vec::new(), bare: Vec::new() };
    while reader.peek(0).is_some() {
        reader.next(counts)?;
    }
    let Reader { single, product, bare, .. } = reader;
    let apart = single.iter().filter(|(_, equal)| !equal).count();
    if apart > 1 || product.len() > 1 {
        return Err("it gives several numbers of devices".to_owned());
    }
    counts.totals.extend(single.iter().map(|(n, _)| *n).chain(product));
    let first = counts.totals.first().copied();
    if counts.totals.iter().any(|n| Some(*n) != first) {
        return Err("its numbers of devices disagree".to_owned());
    }
    let count = first.or(match (counts.nodes.as_slice(), counts.per_node.as_slice()) {
        ([nodes], [per]) => nodes.checked_mul(*per),
        _ => None,
    });
    // Only a result repeats the count: in `64, 64 GPUs` the other may be more devices.
    if let Some((other, _)) = bare.into_iter().find(|(n, result)| Some(*n) != count || !result) {
        return Err(format!("it is unclear what {other} counts"));
    }
    if counts.nodes.len() > 1 || counts.per_node.len() > 1 {
        return Err("it gives several numbers of nodes".to_owned());
    }
    if let Some(year) = counts.totals.iter().find(|n| YEARS.contains(n)) {
        return Err(format!("{year} may be a year"));
    }
    if counts.totals.contains(&0) || counts.nodes.contains(&0) || counts.per_node.contains(&0) {
        return Err("0 is not a number of devices".to_owned());
    }
    Ok(())
}

/// Reads `a node` as `per node`; elsewhere an article and `and` have no effect.
fn articles(words: &[Word]) -> Vec<Word> {
    let read = |(at, word): (usize, &Word)| {
        let of_node = matches!(words.get(at + 1), Some(Word::Node(_)));
        match (*word == Word::Article, *word == Word::And) {
            (true, _) if of_node => Word::Per,
            (false, false) => word.clone(),
            (_, _) => Word::Known,
        }
    };
    words.iter().enumerate().map(read).collect()
}

/// Numbers that are more likely years than numbers of devices.
const YEARS: std::ops::RangeInclusive<u64> = 2015..=2035;

/// Refuses numbers that may count something other than devices: `128 GPU runs`, `4 jobs x 8 GPUs`, `8 GPU nodes`,
/// `80 GPU memory`.
fn things(words: &[Word]) -> Result<(), String> {
    // `8xH100x4`
    let twice = |five: &[Word]| {
        matches!(five, [Word::Number(_), Word::Times, Word::Model, Word::Times, Word::Number(_)])
    };
    if words.windows(5).any(twice) {
        return Err("a device between two numbers can be counted in two ways".to_owned());
    }
    let singular = |word: &Word| matches!(word, Word::Device(false) | Word::Model);
    for (at, word) in words.iter().enumerate() {
        let Word::Number(n) = word else { continue };
        let rest = words.get(at + 1..).unwrap_or_default();
        let named = rest.iter().take_while(|word| singular(word)).count();
        let device = matches!(rest.first(), Some(Word::Device(_))) || named > 0;
        let after = rest.get(named..).unwrap_or_default();
        let given = |words: &[Word]| {
            let value = words.iter().find(|word| !matches!(word, Word::Other | Word::Known));
            matches!(value, Some(Word::Equals | Word::Number(_) | Word::Quantity(_)))
        };
        let unsure = match (after, rest) {
            // `128 runs`, `128 GPU runs`
            ([Word::Many, ..], _) => true,
            // `4 model x 8 GPUs`
            (_, [Word::Known, Word::Times, ..]) => true,
            // `80 GPU memory`; in `8 GPU batch 4` another number follows.
            ([Word::Other, more @ ..], _) => named > 0 && !given(more),
            // `8 GPU nodes` may mean nodes with 8 GPUs, or 8 nodes.
            ([Word::Node(_), more @ ..], [first, ..]) => {
                device && *first != Word::Model && !given(more)
            }
            (_, _) => false,
        };
        if unsure {
            return Err(format!("it is unclear what {n} counts"));
        }
    }
    Ok(())
}

/// `500 H100 hours` are hours: a device name right before a unit of time belongs to it.
fn of_time(words: &[Word]) -> Result<Vec<&Word>, String> {
    let device = |word: &Word| matches!(word, Word::Device(_) | Word::Model | Word::Node(_));
    let mut kept: Vec<&Word> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if *word == Word::Time {
            while kept.last().is_some_and(|before| device(before)) {
                kept.pop();
            }
            // `500 H100 (hours)`, `64 GPUs for days`: the number may count either.
            let gap = |word: &&&Word| matches!(word, Word::Known | Word::Many | Word::Break);
            let gaps = kept.iter().rev().take_while(gap).count();
            let before = kept.len().checked_sub(gaps + 1).and_then(|at| kept.get(at));
            let assigned = words.get(at + 1) == Some(&Word::Equals);
            if gaps > 0 && !assigned && before.is_some_and(|before| device(before)) {
                return Err("it is unclear whether its number counts devices or time".to_owned());
            }
        }
        kept.push(word);
    }
    Ok(kept)
}

impl Reader<'_> {
    fn peek(&self, by: usize) -> Option<&Word> {
        self.words.get(self.at + by).copied()
    }

    fn take(&mut self, word: &Word) -> bool {
        let is = self.peek(0) == Some(word);
        self.at += usize::from(is);
        is
    }

    fn next(&mut self, counts: &mut Counts) -> Result<(), String> {
        match self.peek(0).cloned() {
            Some(Word::Number(_)) => self.numbers(false, counts),
            Some(Word::Quantity(text)) => {
                self.at += 1;
                match self.peek(0) {
                    Some(Word::Device(_) | Word::Node(_) | Word::Model | Word::Times) => {
                        Err(format!("`{text}` is not a number of devices"))
                    }
                    Some(_) | None => Ok(()),
                }
            }
            Some(Word::Other | Word::Time) => {
                self.at += 1;
                while matches!(self.peek(0), Some(Word::Other | Word::Time)) {
                    self.at += 1;
                }
                // `8 x 128 GPUs` after `batch` may count anything.
                let assigned = self.take(&Word::Equals);
                if matches!(self.peek(0), Some(Word::Number(_))) {
                    if matches!(self.peek(1), Some(Word::Times | Word::Device(_) | Word::Model)) {
                        return Err("it is unclear what its numbers count".to_owned());
                    }
                    self.at += 1;
                } else if assigned && matches!(self.peek(0), Some(Word::Quantity(_))) {
                    self.at += 1;
                } else if self.peek(0) == Some(&Word::Per) {
                    self.at += 1;
                    if matches!(self.peek(0), Some(Word::Device(_) | Word::Node(_))) {
                        self.at += 1;
                        if self.take(&Word::Equals) && matches!(self.peek(0), Some(Word::Number(_)))
                        {
                            self.at += 1;
                        }
                    }
                }
                Ok(())
            }
            Some(Word::Device(plural)) => self.device((plural, false), counts),
            Some(Word::Node(plural)) => self.node(plural, counts),
            Some(Word::Model) => {
                self.at += 1;
                if matches!(self.peek(0), Some(Word::Times | Word::Equals))
                    && let Some(Word::Number(n)) = self.peek(1).cloned()
                    && !matches!(
                        self.peek(2),
                        Some(Word::Node(_) | Word::Times | Word::Other | Word::Time)
                    )
                {
                    self.at += 2;
                    while matches!(self.peek(0), Some(Word::Device(_) | Word::Model)) {
                        self.at += 1;
                    }
                    match self.for_each()? {
                        true => counts.per_node.push(n),
                        false => self.single.push((n, false)),
                    }
                }
                Ok(())
            }
            Some(Word::Count) => {
                self.at += 1;
                self.take(&Word::Of);
                if let Some(Word::Device(_)) = self.peek(0) {
                    return self.device((true, true), counts);
                }
                if let Some(Word::Node(_)) = self.peek(0) {
                    return self.node(true, counts);
                }
                self.take(&Word::Equals);
                Ok(())
            }
            Some(Word::Each) => {
                self.at += 1;
                self.take(&Word::Of);
                // `each node has 8 GPUs`, `each of 16 nodes`
                if matches!(self.peek(0), Some(Word::Node(_))) {
                    self.at += 1;
                }
                match self.peek(0) {
                    Some(Word::Number(_)) => self.numbers(true, counts),
                    Some(_) | None => Err("it is unclear what each has".to_owned()),
                }
            }
            Some(Word::Per) => {
                let counted = self.counted(counts);
                self.at += 1;
                if matches!(self.peek(0), Some(Word::Node(_))) {
                    self.at += 1;
                    self.take(&Word::Equals);
                    if matches!(self.peek(0), Some(Word::Number(_))) {
                        return self.numbers(true, counts);
                    }
                    if counted {
                        return Err(PER.to_owned());
                    }
                } else if matches!(self.peek(0), Some(Word::Device(_))) {
                    self.at += 1;
                }
                Ok(())
            }
            // `x8 GPUs`
            Some(Word::Times) if matches!(self.peek(1), Some(Word::Number(_))) => {
                Err("it is unclear what its numbers count".to_owned())
            }
            Some(_) | None => {
                self.at += 1;
                Ok(())
            }
        }
    }

    /// Whether any devices were counted so far.
    fn counted(&self, counts: &Counts) -> bool {
        !(self.single.is_empty() && self.product.is_empty() && counts.per_node.is_empty())
    }

    /// Reads `per node`, `(per node)` or `each` after a number of devices.
    fn for_each(&mut self) -> Result<bool, String> {
        let mut each = false;
        loop {
            let gap = usize::from(self.peek(0) == Some(&Word::Break));
            match (self.peek(gap), self.peek(gap + 1), self.peek(gap + 2)) {
                (Some(Word::Each), _, _) if gap == 0 => self.at += 1,
                // In `128 GPUs, per node 8` it belongs to the next number.
                (Some(Word::Per), Some(Word::Node(_)), Some(Word::Equals | Word::Number(_)))
                    if gap == 1 =>
                {
                    return Ok(each);
                }
                (Some(Word::Per), Some(Word::Node(_)), _) => self.at += gap + 2,
                (Some(Word::Per), _, _) => return Err(PER.to_owned()),
                (_, _, _) => return Ok(each),
            }
            each = true;
        }
    }

    /// `gpus = 128`, `gpus per node: 8`, `GPUs 128`; an index such as `GPU 3` is refused.
    fn device(&mut self, how: (bool, bool), counts: &mut Counts) -> Result<(), String> {
        let (plural, counted) = how;
        self.at += 1;
        let counted = self.take(&Word::Count) || counted;
        let per = self.peek(0) == Some(&Word::Per) && matches!(self.peek(1), Some(Word::Node(_)));
        self.at += if per { 2 } else { 0 };
        let assigned = self.take(&Word::Equals);
        match self.peek(0).cloned() {
            Some(Word::Number(n)) => {
                let product = self.peek(1) == Some(&Word::Times);
                let large = n >= 16;
                let known = match plural {
                    true => assigned || large,
                    false => assigned && large,
                };
                let known = known || product || counted;
                if !known {
                    return Err(format!("{n} may be an index"));
                }
                if !assigned
                    && matches!(self.peek(1), Some(Word::Other | Word::Time | Word::Node(_)))
                {
                    return Ok(());
                }
                if per && matches!(self.peek(1), Some(Word::Times)) {
                    return Err("it is unclear what its numbers count".to_owned());
                }
                if per {
                    self.at += 1;
                    counts.per_node.push(n);
                    return Ok(());
                }
                self.assigned(counts)
            }
            Some(Word::Quantity(text)) if assigned => {
                Err(format!("`{text}` is not a number of devices"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Reads the value of a device key: one number, or a product.
    fn assigned(&mut self, counts: &mut Counts) -> Result<(), String> {
        let known = self.bare.len();
        self.numbers(false, counts)?;
        // A number without a unit counts devices here.
        if self.bare.len() > known
            && let Some((n, _)) = self.bare.pop()
        {
            match self.for_each()? {
                true => counts.per_node.push(n),
                false => self.single.push((n, known > 0)),
            }
        }
        Ok(())
    }

    fn node(&mut self, plural: bool, counts: &mut Counts) -> Result<(), String> {
        self.at += 1;
        let counted = self.take(&Word::Count) || plural;
        let assigned = self.take(&Word::Equals);
        let Some(Word::Number(n)) = self.peek(0).cloned() else {
            // `8 GPUs on the node`
            return match !plural && self.counted(counts) {
                true => Err("it is unclear whether that is per node or in total".to_owned()),
                false => Ok(()),
            };
        };
        // In `16 nodes 8 GPUs` another number follows.
        let other = matches!(
            self.peek(1),
            Some(
                Word::Device(_)
                    | Word::Model
                    | Word::Node(_)
                    | Word::Other
                    | Word::Time
                    | Word::Times
            )
        );
        if other {
            return Ok(());
        }
        if !(counted || assigned && n >= 2) {
            return Err(format!("{n} may be an index"));
        }
        self.at += 1;
        counts.nodes.push(n);
        Ok(())
    }

    /// Reads a number, or a product of numbers, with their units.
    fn numbers(&mut self, each: bool, counts: &mut Counts) -> Result<(), String> {
        let equal = self.at > 0 && self.words.get(self.at - 1) == Some(&&Word::Equals);
        let unclear = || Err("it is unclear what its numbers count".to_owned());
        let mut terms: Vec<(u64, Unit)> = Vec::new();
        loop {
            let Some(Word::Number(n)) = self.peek(0).cloned() else { return unclear() };
            self.at += 1;
            if matches!(self.peek(0), Some(Word::Other | Word::Time)) {
                // `8 sequences per GPU`
                self.at += 1;
                while matches!(self.peek(0), Some(Word::Other | Word::Time | Word::Per)) {
                    let per = self.peek(0) == Some(&Word::Per);
                    self.at += 1;
                    if per && matches!(self.peek(0), Some(Word::Device(_) | Word::Node(_))) {
                        self.at += 1;
                    }
                }
                return match terms.is_empty() && self.peek(0) != Some(&Word::Times) {
                    true => Ok(()),
                    false => unclear(),
                };
            }
            terms.push((n, self.unit()?));
            let last = terms.last().map(|(_, unit)| *unit);
            match (self.peek(0), self.peek(1)) {
                (Some(Word::Times), Some(Word::Number(_))) => self.at += 1,
                // `16 nodes of 8 GPUs`
                (Some(Word::Of), Some(Word::Number(_))) if last == Some(Unit::Node) => self.at += 1,
                (Some(Word::Of), Some(Word::Number(_) | Word::Device(_))) => return unclear(),
                (Some(Word::Times), _) => return unclear(),
                _ => break,
            }
        }
        let units: Vec<Unit> = terms.iter().map(|(_, unit)| *unit).collect();
        // The unit of a number without one follows from the words before it.
        let each = match units.contains(&Unit::None) && !units.contains(&Unit::Device) {
            true => each,
            false => self.for_each()? || each,
        };
        let mut total = 1u64;
        for (n, _) in &terms {
            let Some(next) = total.checked_mul(*n) else { return unclear() };
            total = next;
        }
        match (units.as_slice(), each) {
            ([Unit::Device], false) => self.single.push((total, equal)),
            ([Unit::Device], true) | ([Unit::DevicePerNode], _) => counts.per_node.push(total),
            ([Unit::Node], _) => counts.nodes.push(total),
            ([Unit::None], false) => self.bare.push((total, equal)),
            ([Unit::None], true) => counts.per_node.push(total),
            // `16 nodes x 8 GPUs each`
            ([Unit::Node, Unit::Device], true) => self.product.push(total),
            (
                [Unit::Node, Unit::None | Unit::Device | Unit::DevicePerNode]
                | [Unit::Device | Unit::DevicePerNode, Unit::Node]
                | [Unit::None, Unit::Device]
                | [Unit::None, Unit::None, Unit::Device],
                false,
            ) => self.product.push(total),
            ([Unit::None, Unit::None], false) => self.bare.push((total, true)),
            (_, _) => return unclear(),
        }
        Ok(())
    }

    /// The unit of a number.
    fn unit(&mut self) -> Result<Unit, String> {
        // `128 x H100`
        if self.peek(0) == Some(&Word::Times)
            && matches!(self.peek(1), Some(Word::Model | Word::Device(_)))
        {
            self.at += 1;
        }
        let mut unit = Unit::None;
        while self.peek(0) == Some(&Word::Model) {
            self.at += 1;
            unit = Unit::Device;
        }
        match self.peek(0) {
            Some(Word::Device(_)) => {
                self.at += 1;
                unit = Unit::Device;
            }
            Some(Word::Node(_)) => {
                self.at += 1;
                return Ok(Unit::Node);
            }
            Some(_) | None => {}
        }
        if unit == Unit::Device && self.peek(0) == Some(&Word::Per) {
            self.at += 1;
            match self.peek(0) {
                Some(Word::Node(_)) => {
                    self.at += 1;
                    return Ok(Unit::DevicePerNode);
                }
                Some(_) | None => return Err(PER.to_owned()),
            }
        }
        Ok(unit)
    }
}
