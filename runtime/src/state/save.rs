//! A checkpoint that all ranks write, into files that rank 0 has created.
//!
//! Each rank writes and syncs the elements that it owns, whatever else it holds; one rank reads each file back from the
//! disk for its digests. If a rank fails, none goes on to commit, and all return the same result.

use std::ops::Range;

use dsl::Problem;

use super::{State, broken, values};
use crate::ranks::Team;
use records::checkpoint::{Content, PARTS, Part, Store};
use records::fault::Faults;
use records::platform::peak_memory;
use records::run::digest_of;

/// The outcome of a checkpoint that all ranks tried to write.
#[derive(Debug)]
pub(crate) enum Written {
    /// It is complete, but for its manifest. Also the peak memory of each rank, as far as it is known.
    Whole { contents: Box<[Content; 3]>, peaks: Vec<u64> },
    /// A rank does not see the files.
    Unseen { rank: u64 },
    /// A rank failed, and why.
    Failed { rank: u64, why: String },
}

/// Numbers in a digest.
const DIGEST: usize = 4;
/// A rank's answers.
const DONE: i64 = 0;
const UNSEEN: i64 = 1;
const FAILED: i64 = 2;

impl State {
    /// Writes this rank's part of a checkpoint. Every rank calls it. An error is this rank's own; the others know of
    /// it.
    pub(crate) fn write_together(
        &self,
        store: &Store,
        faults: &Faults,
    ) -> Result<Written, Problem> {
        let team = &self.division()?.team;
        let hashes = self.write_own(store, faults);
        let mut message = vec![0; 2 + DIGEST * PARTS.len()];
        message[0] = match &hashes {
            Ok(Some(_)) => DONE,
            Ok(None) => UNSEEN,
            Err(_) => FAILED,
        };
        message[1] = peak_memory().unwrap_or(0) as i64;
        for (slot, hash) in
            message[2..].chunks_exact_mut(DIGEST).zip(hashes.iter().flatten().flatten())
        {
            slot.copy_from_slice(&numbers(hash.as_bytes()));
        }
        let all = team.gather_numbers(&message)?;
        let messages: Vec<&[i64]> = all.chunks_exact(message.len()).collect();
        if let Some(failed) = self.failed(&messages, hashes.err())? {
            return Ok(failed);
        }
        if let Some(rank) = messages.iter().position(|message| message[0] == UNSEEN) {
            return Ok(Written::Unseen { rank: rank as u64 });
        }
        let peaks = messages.iter().map(|message| message[1] as u64).collect();
        let written = |part: usize| -> Vec<blake3::Hash> {
            messages.iter().map(|message| hash(&message[2 + DIGEST * part..][..DIGEST])).collect()
        };
        let contents = self.read_back(store, team, &written)?;
        Ok(match contents {
            Ok(contents) => Written::Whole { contents, peaks },
            Err(failed) => failed,
        })
    }

    /// The digests of what this rank wrote of each part; `None` if it does not see the files.
    fn write_own(
        &self,
        store: &Store,
        faults: &Faults,
    ) -> Result<Option<Vec<blake3::Hash>>, Problem> {
        let division = self.division()?;
        let team = &division.team;
        team.settle()?;
        let shards = &team.schedule.shards;
        let ranges: Vec<Range<u64>> =
            (0..shards.params()).map(|param| shards.part(param, team.ranks.rank())).collect();
        let mut read = |part: Part, index: usize, out: &mut Vec<u8>| {
            if !division.keeps(part, index) {
                return Ok(());
            }
            let tensor = self.tensor(part, index)?;
            let values = match division.holds_pieces_of(part) {
                true => values(tensor)?,
                false => values(&team.part(index, tensor)?)?,
            };
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            Ok(())
        };
        let mut hashes = Vec::new();
        for part in PARTS {
            match store.write_own(self.step, part, &ranges, &mut read, faults)? {
                Some(hash) => hashes.push(hash),
                None => return Ok(None),
            }
        }
        Ok(Some(hashes))
    }

    /// The contents of all parts, each read back by one rank.
    fn read_back(
        &self,
        store: &Store,
        team: &Team,
        written: &dyn Fn(usize) -> Vec<blake3::Hash>,
    ) -> Result<Result<Box<[Content; 3]>, Written>, Problem> {
        const EACH: usize = 1 + 2 * DIGEST;
        let (rank, ranks) = (team.ranks.rank(), team.ranks.size());
        let shards = &team.schedule.shards;
        let owners = |param: usize| (0..ranks).map(|rank| shards.part(param, rank)).collect();
        let reader = |part: usize| part as u64 % ranks;
        let mut message = vec![0; 1 + EACH * PARTS.len()];
        let mut error = None;
        for (n, part) in PARTS.into_iter().enumerate().filter(|(n, _)| reader(*n) == rank) {
            match store.read_back(self.step, part, &owners, &written(n)) {
                Ok(Content { bytes, file, tensors }) => {
                    let slot = &mut message[1 + EACH * n..][..EACH];
                    slot[0] = bytes as i64;
                    slot[1..=DIGEST].copy_from_slice(&numbers(file.bytes()));
                    slot[1 + DIGEST..].copy_from_slice(&numbers(tensors.bytes()));
                }
                Err(problem) => {
                    message[0] = FAILED;
                    error = Some(problem);
                }
            }
        }
        let all = team.gather_numbers(&message)?;
        let messages: Vec<&[i64]> = all.chunks_exact(message.len()).collect();
        if let Some(failed) = self.failed(&messages, error)? {
            return Ok(Err(failed));
        }
        let content = |n: usize| -> Option<Content> {
            let slot = messages.get(reader(n) as usize)?.get(1 + EACH * n..)?.get(..EACH)?;
            Some(Content {
                bytes: slot[0] as u64,
                file: digest_of(hash(&slot[1..=DIGEST])),
                tensors: digest_of(hash(&slot[1 + DIGEST..])),
            })
        };
        let contents: Option<Vec<Content>> = (0..PARTS.len()).map(content).collect();
        let contents = contents.and_then(|contents| contents.try_into().ok().map(Box::new));
        Ok(Ok(contents.ok_or_else(|| broken("a part of a checkpoint was not read back"))?))
    }

    /// The first rank that failed, if one did. This rank's own `error` is returned as it is.
    fn failed(
        &self,
        messages: &[&[i64]],
        error: Option<Problem>,
    ) -> Result<Option<Written>, Problem> {
        let failed = messages.iter().position(|message| message.first() == Some(&FAILED));
        let Some(rank) = failed else { return Ok(None) };
        let reason = self.division()?.team.reason(rank, error.as_ref())?;
        match error {
            Some(error) => Err(error),
            None => Ok(Some(Written::Failed { rank: rank as u64, why: reason })),
        }
    }
}

fn numbers(bytes: &[u8; 32]) -> [i64; DIGEST] {
    let mut numbers = [0; DIGEST];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = i64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    numbers
}

fn hash(numbers: &[i64]) -> blake3::Hash {
    let mut bytes = [0; 32];
    for (into, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        into.copy_from_slice(&number.to_le_bytes());
    }
    blake3::Hash::from_bytes(bytes)
}
