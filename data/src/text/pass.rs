//! One pass over a split: finds the document at any position.
//!
//! A pass is the same as if it were listed document by document. Its table holds one sum of tokens for up to [`EVERY`]
//! slots; a walk over at most that many slots finds the document, and their lengths are read from the index.
//!
//! The table is made by going through the documents in the order of their files, which are read in one go, with the
//! inverse of the permutations that place them in the pass.

use std::ops::Range;

use dsl::Problem;

use super::document_tokens;
use super::index::{Scratch, TextIndex};
use super::order::{Order, SourceOrder};
use super::permutation::Permutation;
use super::table::{Counted, Sums};

/// The most slots for each sum of the table. More take less memory, and more reads for each window.
const EVERY: u64 = 32;
/// Sums that a table has before it has fewer than one for each slot. They take some 10 MB.
const SUMS: u64 = 1 << 20;

impl Order {
    pub(super) fn pass(&self, index: &TextIndex, number: u64) -> Result<Pass, Problem> {
        Pass::new(self, index, number, self.start_of(index, number)? as u64)
    }

    pub(super) fn pass_after(&self, index: &TextIndex, pass: &Pass) -> Result<Pass, Problem> {
        Pass::new(self, index, pass.number() + 1, pass.end())
    }

    /// The pass that holds stream position `at`. `earlier` is any pass; it is used if it directly precedes.
    pub(super) fn pass_at(
        &self,
        index: &TextIndex,
        at: u64,
        earlier: Option<&Pass>,
    ) -> Result<Pass, Problem> {
        if let Some(earlier) = earlier.filter(|earlier| earlier.end() <= at) {
            let next = self.pass_after(index, earlier)?;
            if next.holds(at) {
                return Ok(next);
            }
        }
        let begins_by = |number: u64| {
            let (least, most) = self.start_between(number);
            let at = u128::from(at);
            Ok::<bool, Problem>(most <= at || (least <= at && self.start_of(index, number)? <= at))
        };
        let mut above = 1;
        while begins_by(above)? {
            above *= 2;
        }
        let mut below = above / 2;
        // Pass `below` begins at or before `at`, pass `above` after it.
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if begins_by(middle)? {
                below = middle;
            } else {
                above = middle;
            }
        }
        self.pass(index, below)
    }
}

/// One pass over a split: its documents in order.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    number: u64,
    start: u64,
    /// Which draw each slot has: those of the first source come first.
    slots: Permutation,
    count: u64,
    sources: Vec<Drawn>,
    /// Slots for each sum.
    every: u64,
    sums: Sums,
    /// For file order with several sources: for each sum, the earlier slots of each source.
    taken: Vec<u32>,
}

/// What a pass draws from one source.
#[derive(Clone, Debug)]
struct Drawn {
    /// Draws of earlier sources in the pass.
    before: u64,
    /// Documents that earlier passes drew.
    earlier: u128,
    /// The source's epoch at the beginning of the pass, and its order.
    epoch: u64,
    order: Permutation,
}

/// A document of a pass.
#[derive(Clone, Debug)]
pub(super) struct PassCursor {
    slot: u64,
    /// Slots of each source before this one, if the pass needs them.
    taken: Vec<u64>,
    /// The document's number.
    pub(super) document: u32,
    /// Its range among all tokens of the index.
    pub(super) tokens: Range<u64>,
    /// Its range in the stream, marks included.
    pub(super) stream: Range<u64>,
}

impl Pass {
    pub(super) fn new(
        order: &Order,
        index: &TextIndex,
        number: u64,
        start: u64,
    ) -> Result<Pass, Problem> {
        Pass::with_sums(order, index, number, start, (order.slots / SUMS).clamp(1, EVERY))
    }

    /// A pass with a sum for `every` slots.
    fn with_sums(
        order: &Order,
        index: &TextIndex,
        number: u64,
        start: u64,
        every: u64,
    ) -> Result<Pass, Problem> {
        let slots = Permutation::new(order.slots, &order.key(&format!("pass {number}\n")));
        let mut before = 0;
        let mut sources = Vec::new();
        for source in &order.sources {
            let earlier = u128::from(number) * u128::from(source.share);
            let epoch = (earlier / u128::from(source.documents.len())) as u64;
            sources.push(Drawn { before, earlier, epoch, order: order.epoch(source, epoch) });
            before += source.share;
        }
        let several = order.sources.len() as u64;
        let every = if order.as_listed { every * several } else { every };
        let mut pass = Pass {
            number,
            start,
            slots,
            count: order.slots,
            sources,
            every,
            sums: Sums::new(Counted::new(0)),
            taken: Vec::new(),
        };
        let counted = match order.as_listed {
            true => pass.count_as_listed(order, index)?,
            false => pass.count_permuted(order, index)?,
        };
        pass.sums = Sums::new(counted);
        Ok(pass)
    }

    /// The tokens of each group of slots, where each epoch has an order of its own.
    fn count_permuted(&self, order: &Order, index: &TextIndex) -> Result<Counted, Problem> {
        let mut counted = Counted::new(self.count.div_ceil(self.every));
        for (source, drawn) in order.sources.iter().zip(&self.sources) {
            let count = source.documents.len();
            let last = (drawn.earlier + u128::from(source.share) - 1) / u128::from(count);
            for epoch in drawn.epoch..=last as u64 {
                let permutation = order.epoch(source, epoch);
                // The draws of this epoch begin here, relative to the pass: before it, if the epoch is under way.
                let begins = i128::from(epoch) * i128::from(count) - drawn.earlier as i128;
                let mut walk = order.walk(index, source, 0);
                for position in 0..count {
                    let tokens = walk.next()?;
                    let draw = begins + i128::from(permutation.inverse(position));
                    if (0..i128::from(source.share)).contains(&draw) {
                        let slot = self.slots.inverse(drawn.before + draw as u64);
                        counted.add(slot / self.every, tokens);
                    }
                }
            }
        }
        Ok(counted)
    }

    /// The tokens of each group of slots, where each source's documents come in the order of their files.
    fn count_as_listed(&mut self, order: &Order, index: &TextIndex) -> Result<Counted, Problem> {
        let mut counted = Counted::new(self.count.div_ceil(self.every));
        let mut walks = Vec::new();
        for (source, drawn) in order.sources.iter().zip(&self.sources) {
            let position = drawn.earlier % u128::from(source.documents.len());
            walks.push((order.walk(index, source, position as u64), 0u32));
        }
        let mut taken = Vec::new();
        for slot in 0..self.count {
            if walks.len() > 1 && slot.is_multiple_of(self.every) {
                taken.extend(walks.iter().map(|(_, taken)| *taken));
            }
            let (which, _) = self.draw(slot);
            let (walk, passed) = &mut walks[which];
            *passed += 1;
            counted.add(slot / self.every, walk.next()?);
        }
        self.taken = taken;
        Ok(counted)
    }

    /// Which source a slot draws from, and which of its draws this is in the order of draws.
    fn draw(&self, slot: u64) -> (usize, u64) {
        let draw = self.slots.at(slot);
        let which = self.sources.partition_point(|drawn| drawn.before <= draw).saturating_sub(1);
        (which, draw - self.sources.get(which).map_or(0, |drawn| drawn.before))
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn holds(&self, at: u64) -> bool {
        (self.start..self.end()).contains(&at)
    }

    pub(super) fn end(&self) -> u64 {
        self.start + self.sums.total()
    }

    /// The document at a position of the stream that this pass holds.
    pub(super) fn find(
        &self,
        order: &Order,
        index: &TextIndex,
        at: u64,
        scratch: &mut Scratch,
    ) -> Result<PassCursor, Problem> {
        let group = self.sums.find(at - self.start);
        let counts = self.taken.chunks_exact(self.sources.len()).nth(group as usize);
        let mut taken: Vec<u64> =
            counts.unwrap_or_default().iter().map(|n| u64::from(*n)).collect();
        if order.as_listed && self.sources.len() == 1 {
            taken.push(group * self.every);
        }
        let start = self.start + self.sums.before(group);
        let slot = group * self.every;
        let mut cursor =
            PassCursor { slot, taken, document: 0, tokens: 0..0, stream: start..start };
        self.fill(order, index, &mut cursor, scratch)?;
        while cursor.stream.end <= at && cursor.slot + 1 < self.count {
            self.advance(order, index, &mut cursor, scratch)?;
        }
        Ok(cursor)
    }

    /// Goes to the document after this one, which is not the last of the pass.
    pub(super) fn advance(
        &self,
        order: &Order,
        index: &TextIndex,
        cursor: &mut PassCursor,
        scratch: &mut Scratch,
    ) -> Result<(), Problem> {
        let (which, _) = self.draw(cursor.slot);
        if let Some(taken) = cursor.taken.get_mut(which) {
            *taken += 1;
        }
        cursor.slot += 1;
        cursor.stream.start = cursor.stream.end;
        self.fill(order, index, cursor, scratch)
    }

    /// Looks up the document of `found.slot`, which begins at `found.stream.start`.
    fn fill(
        &self,
        order: &Order,
        index: &TextIndex,
        cursor: &mut PassCursor,
        scratch: &mut Scratch,
    ) -> Result<(), Problem> {
        let (which, draw) = self.draw(cursor.slot);
        let draw = cursor.taken.get(which).copied().unwrap_or(draw);
        if let (Some(source), Some(drawn)) = (order.sources.get(which), self.sources.get(which)) {
            cursor.document = drawn.document(order, source, draw);
        }
        cursor.tokens = index.token_range(cursor.document, scratch)?;
        let tokens = document_tokens(cursor.tokens.end - cursor.tokens.start, order.marks);
        cursor.stream.end = cursor.stream.start + tokens;
        Ok(())
    }

    /// Bytes of the table in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.sums.bytes() + size_of_val(self.taken.as_slice()) as u64
    }

    /// All documents in order.
    #[cfg(test)]
    pub(super) fn documents(&self, order: &Order, index: &TextIndex) -> Vec<u32> {
        let mut scratch = Scratch::default();
        // The first document with tokens may not be that of the first slot.
        let taken = vec![0; if order.as_listed { self.sources.len() } else { 0 }];
        let start = self.start;
        let mut cursor =
            PassCursor { slot: 0, taken, document: 0, tokens: 0..0, stream: start..start };
        self.fill(order, index, &mut cursor, &mut scratch).unwrap();
        let mut documents = vec![cursor.document];
        while cursor.slot + 1 < self.count {
            self.advance(order, index, &mut cursor, &mut scratch).unwrap();
            documents.push(cursor.document);
        }
        documents
    }
}

impl Drawn {
    /// The document of the source's draw with this number in the pass.
    fn document(&self, order: &Order, source: &SourceOrder, draw: u64) -> u32 {
        let draw = self.earlier + u128::from(draw);
        let epoch = (draw / u128::from(source.documents.len())) as u64;
        let position = (draw % u128::from(source.documents.len())) as u64;
        let position = match epoch == self.epoch {
            true => self.order.at(position),
            false => order.epoch(source, epoch).at(position),
        };
        source.documents.at(position)
    }
}

#[cfg(test)]
mod tests;
