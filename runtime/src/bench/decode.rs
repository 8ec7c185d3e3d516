//! Speed of decoding one sequence token by token, which reads every weight for each token.
//! In: a graph, options, a machine. Out: milliseconds of each token, and the bytes of weights that it reads. Must stay
//! true: it times the code of `generate`; the likeliest token is the next one; every call starts from the same state.

use std::collections::BTreeSet;
use std::time::Instant;

use compiler::graph::Graph;
use compiler::plan::{Input, Kernel, Options, Plan, Sizes, Stream};
use compiler::plans;
use tch::{Kind, Tensor};

use crate::execute::{Carried, ExecuteError, Machine, Paths, Piece, Streamer};
use crate::weights::Weights;

/// A model with initial weights, and the state after one token.
#[derive(Debug)]
pub struct Decoder {
    streamer: Streamer,
    weights: Weights,
    start: Carried,
    weight_bytes: u64,
}

impl Decoder {
    pub fn new(graph: &Graph, options: Options, machine: Machine) -> Result<Self, ExecuteError> {
        let stream = Stream { state_in: true, state_out: true };
        let plan = plans::forward(graph, stream, options);
        let weight_bytes = weight_bytes(&plan);
        let streamer = Streamer::new(plan, machine)?;
        let weights = Weights::init(graph, 1)?.to(machine.device, machine.kind)?;
        let first = Streamer::row(&[0])?;
        let (_, start) = streamer.forward(&weights, &first, &streamer.start(1)?)?;
        Ok(Self { streamer, weights, start, weight_bytes })
    }

    /// Bytes of weights that one token reads. Of a table that tokens are looked up in, that is a row, which is left out.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    pub fn paths(&self) -> Paths {
        self.streamer.paths()
    }

    /// Milliseconds of each of `count` tokens after the first.
    pub fn tokens(&self, count: usize) -> Result<Vec<f64>, ExecuteError> {
        let mut times = Vec::new();
        let mut carried: Option<Carried> = None;
        let mut token = 0;
        for _ in 0..count {
            let began = Instant::now();
            let state = carried.as_ref().unwrap_or(&self.start);
            let piece = Piece { tokens: &[token], state, logits: 1 };
            let result = self.streamer.forward_each(&self.weights, &[piece])?.pop();
            let Some((Some(logits), after)) = result else {
                return Err(ExecuteError::new("the model gave no logits"));
            };
            token = logits.f_argmax(-1, false)?.f_int64_value(&[0, 0])?;
            carried = Some(after);
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    }
}

fn weight_bytes(plan: &Plan) -> u64 {
    let parameters: BTreeSet<_> = plan
        .inputs
        .iter()
        .filter(|(input, _)| matches!(input, Input::Param(_) | Input::Rounded(_)))
        .map(|(_, id)| *id)
        .collect();
    let reads = plan.steps.iter().filter(|step| !matches!(step.kernel, Kernel::Embed(_)));
    let read: BTreeSet<_> =
        reads.flat_map(|step| &step.inputs).filter(|id| parameters.contains(id)).collect();
    // A parameter's extents are all fixed.
    let nothing = Sizes { batch: 0, time: 0, past: 0 };
    let bytes = read.iter().map(|id| plan.bytes(**id, nothing));
    u64::try_from(bytes.sum::<i128>()).unwrap_or(u64::MAX)
}

/// Bytes per second of a sum over 1 GiB, with all threads: the fastest of a few.
pub fn read_bandwidth(machine: Machine) -> Result<f64, ExecuteError> {
    const ELEMENTS: i64 = 1 << 28;
    let ones = Tensor::f_ones([ELEMENTS], (Kind::Float, machine.device))?;
    let best = super::step::fastest(|| Ok(ones.f_sum(None::<Kind>)?.f_double_value(&[])?))?;
    Ok(4.0 * ELEMENTS as f64 / best)
}

#[cfg(test)]
mod tests {
    use compiler::plan::Precision;
    use compiler::program::{Program, Std};

    use super::*;
    use crate::execute::KernelRequest;

    const ARCH: &str = "arch a { vocab 50   dim 16   norm_eps 1e-5   init lingua
        layers 2 of decoder { mixer attention { heads 2 } mlp swiglu { hidden 24 } } }";

    fn decoder(precision: Precision) -> Decoder {
        let program = Program::new([("a.canon".to_owned(), ARCH.to_owned())], Std::Embedded);
        let graph = program.compile("a.canon", "a").0.unwrap().graph;
        let machine = Machine::new(false, false, KernelRequest::FASTEST).unwrap();
        Decoder::new(&graph, Options { precision, ..Options::default() }, machine).unwrap()
    }

    #[test]
    fn a_token_reads_every_weight_but_the_table() {
        // Two layers of four projections, three matrices and two norms; the last norm; the head.
        let elements = 2 * (4 * 16 * 16 + 3 * 16 * 24 + 2 * 16) + 16 + 50 * 16;
        assert_eq!(decoder(Precision::F32).weight_bytes(), 4 * elements);
        let norms = 2 * 2 * 16 + 16;
        let bf16 = decoder(Precision::Bf16).weight_bytes();
        assert!((2 * elements..=2 * elements + 2 * norms).contains(&bf16), "{bf16}");
    }

    #[test]
    fn every_token_is_timed() {
        let decoder = decoder(Precision::F32);
        assert_eq!(decoder.tokens(5).unwrap().len(), 5);
        assert!(decoder.paths().iter().any(|(name, _, times)| name == "linear" && times > 0));
    }
}
