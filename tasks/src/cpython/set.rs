//! A set of int tuples with the iteration order of a CPython set that only grew. Hash, probe sequence and growth are
//! CPython's, since published samples contain lists made by iterating over such a set.

const P1: u64 = 11_400_714_785_074_694_791;
const P2: u64 = 14_029_467_366_897_019_727;
const P5: u64 = 2_870_177_450_012_600_261;

/// CPython's `hash` of a tuple of small non-negative integers (each its own hash), as the underlying u64.
pub fn tuple_hash(items: &[u32]) -> u64 {
    let mut hash = P5;
    for &item in items {
        hash = hash.wrapping_add(u64::from(item).wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1);
    }
    hash = hash.wrapping_add(items.len() as u64 ^ (P5 ^ 3_527_539));
    if hash == u64::MAX { 1_546_275_796 } else { hash }
}

/// A set of int tuples. [`TupleSet::reset`] keeps its buffers.
#[derive(Clone, Debug, Default)]
pub struct TupleSet {
    /// Members in order of insertion, each padded with zeros to `width`.
    items: Vec<u32>,
    /// Padded length of a member: a multiple of [`WIDTH_STEP`], so that copies and comparisons have a fixed size.
    width: usize,
    members: Vec<Member>,
    /// Each slot has the upper half of the hash, then the member's number + 1; 0 if free.
    slots: Vec<u64>,
    old_slots: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    hash: u64,
    len: u32,
}

/// [`TupleSet::padded`] lengths are multiples of this.
pub const WIDTH_STEP: usize = 8;

const NUMBER: u64 = u32::MAX as u64;

impl TupleSet {
    /// Empties the set, for tuples of up to `longest` items.
    pub fn reset(&mut self, longest: usize) {
        self.width = longest.max(1).next_multiple_of(WIDTH_STEP);
        self.members.clear();
        self.slots.clear();
        self.slots.resize(8, 0);
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it has no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The member added as number `member`; empty if there is none.
    pub fn get(&self, member: u32) -> &[u32] {
        let (padded, len) = self.padded(member);
        padded.get(..len).unwrap_or_default()
    }

    /// A member padded to the width, and its length.
    #[inline]
    pub fn padded(&self, member: u32) -> (&[u32], usize) {
        let start = member as usize * self.width;
        let len = self.members.get(member as usize).map_or(0, |member| member.len as usize);
        (self.items.get(start..start + self.width).unwrap_or_default(), len)
    }

    /// Adds the tuple of `len` items (at most the longest) that `write` fills in. True if it was new.
    #[inline]
    pub fn insert_with(&mut self, len: usize, write: impl FnOnce(&mut [u32])) -> bool {
        let start = self.members.len() * self.width;
        if self.items.len() < start + self.width {
            self.items.resize(2 * (start + self.width), 0);
        }
        let (earlier, rest) = self.items.split_at_mut(start);
        let Some(padded) = rest.get_mut(..self.width) else { return false };
        // The buffer may still hold a tuple that was not new, or one from before the reset.
        padded.as_chunks_mut::<WIDTH_STEP>().0.fill([0; WIDTH_STEP]);
        let Some(tuple) = padded.get_mut(..len) else { return false };
        write(tuple);
        let hash = tuple_hash(tuple);
        let padded = padded.as_chunks::<WIDTH_STEP>().0;
        let same = |member: u32| {
            let at = member as usize * self.width;
            let other =
                earlier.get(at..at + self.width).unwrap_or_default().as_chunks::<WIDTH_STEP>().0;
            self.members[member as usize].hash == hash && other.iter().eq(padded)
        };
        let Some(slot) = free_slot(&self.slots, hash, same) else { return false };
        self.members.push(Member { hash, len: len as u32 });
        let used = self.members.len();
        self.slots[slot] = hash & !NUMBER | used as u64;
        let mask = self.slots.len() - 1;
        if used * 5 >= mask * 3 {
            self.grow(if used > 50_000 { used * 2 } else { used * 4 });
        }
        true
    }

    /// Member numbers in iteration order, appended to `out`.
    pub fn order(&self, out: &mut Vec<u32>) {
        let mut at = out.len();
        out.resize(at + self.members.len() + 1, 0);
        // Whether a slot is taken is unpredictable, so write every entry and overwrite the free ones.
        for &entry in &self.slots {
            out[at] = (entry as u32).wrapping_sub(1);
            at += usize::from(entry != 0);
        }
        out.truncate(at);
    }

    fn grow(&mut self, want: usize) {
        // Strictly greater than `want`, at least 8.
        let size = (want + 1).next_power_of_two().max(8);
        std::mem::swap(&mut self.slots, &mut self.old_slots);
        self.slots.clear();
        self.slots.resize(size, 0);
        let mut taken = 0;
        for slot in 0..self.old_slots.len() {
            let entry = self.old_slots[slot];
            self.old_slots[taken] = entry;
            taken += usize::from(entry != 0);
        }
        for &entry in self.old_slots.iter().take(taken) {
            let hash = self.members[(entry & NUMBER) as usize - 1].hash;
            if let Some(slot) = free_slot(&self.slots, hash, |_| false) {
                self.slots[slot] = entry;
            }
        }
    }
}

/// The first free slot on the probe path of `hash`, or None once `same` holds for a member on the way. The table is
/// never full (it grows at 3/5), so the search ends.
#[inline]
fn free_slot(slots: &[u64], hash: u64, same: impl Fn(u32) -> bool) -> Option<usize> {
    let mask = slots.len() as u64 - 1;
    let mut perturb = hash;
    let mut i = hash & mask;
    loop {
        let run = if i + 9 <= mask { 9 } else { 0 };
        for slot in i..=i + run {
            let entry = slots[slot as usize];
            if entry == 0 {
                return Some(slot as usize);
            }
            if (entry ^ hash) & !NUMBER == 0 && same((entry & NUMBER) as u32 - 1) {
                return None;
            }
        }
        perturb >>= 5;
        i = i.wrapping_mul(5).wrapping_add(1).wrapping_add(perturb) & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::Random;
    use crate::words::words;
    use support::golden;

    #[test]
    fn hashes_and_iteration_order_equal_cpython() {
        let cases = golden::cases("set_order");
        assert_eq!(cases.len(), 18);
        for case in &cases {
            let number = |name: &str| case[name].as_u64().unwrap() as u32;
            if let Some(tuple) = case.get("tuple") {
                let hash = tuple_hash(&golden::tokens(tuple));
                assert_eq!(hash as i64, case["hash_i64"]);
                assert_eq!(format!("{hash:016x}"), case["hash_u64_hex"]);
                continue;
            }
            let mut random = Random::new(case["seed"].as_u64().unwrap());
            let mut set = TupleSet::default();
            // A reused set must behave like a new one.
            set.reset(3);
            set.insert_with(3, |tuple| tuple.fill(9));
            words(
                &mut random,
                &mut set,
                number("n"),
                number("mini_vocab"),
                number("min_tlen"),
                number("max_tlen"),
            );
            let mut order = Vec::new();
            set.order(&mut order);
            if !case["iteration_as_insertion_index"].is_null() {
                assert_eq!(order, golden::tokens(&case["iteration_as_insertion_index"]));
            }
            for (&member, word) in order.iter().zip(case["words_first8_iter"].as_array().unwrap()) {
                assert_eq!(set.get(member), golden::tokens(word));
            }
            let bytes: Vec<u8> = order.iter().flat_map(|member| member.to_le_bytes()).collect();
            assert_eq!(golden::sha256(&bytes), case["iter_index_sha256_u32le"]);
            assert_eq!(random.next_u32(), case["next_u32_after"]);
        }
    }

    #[test]
    fn an_equal_tuple_is_not_added() {
        let mut set = TupleSet::default();
        set.reset(2);
        assert!(set.is_empty());
        assert!(set.insert_with(2, |tuple| tuple.copy_from_slice(&[1, 2])));
        assert!(!set.insert_with(2, |tuple| tuple.copy_from_slice(&[1, 2])));
        assert!(set.insert_with(1, |tuple| tuple.fill(1)));
        assert_eq!(
            (set.len(), set.get(0), set.get(1), set.get(2)),
            (2, &[1, 2][..], &[1][..], &[][..])
        );
        assert_eq!(set.padded(0), (&[1, 2, 0, 0, 0, 0, 0, 0][..], 2));
        // A tuple longer than the set's limit is not added.
        assert!(!set.insert_with(9, |tuple| tuple.fill(1)));
    }
}
