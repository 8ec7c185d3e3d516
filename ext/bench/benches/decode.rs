//! Decodes one text token by token, beside `transformers` with the same Llama of 100 M parameters, in f32 and in bf16.
//!
//! `CANONC_TRANSFORMERS_PYTHON` names a Python that has torch and transformers (else `python3`). Each token reads every
//! weight but the embedding table, so times are compared with the speed of the memory, measured in the same round.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use bench::turns::{fastest, take_turns};
use compiler::analyse::analyse;
use compiler::graph::Graph;
use compiler::plan::{Options, Precision, Stream};
use compiler::plans;
use compiler::program::{Program, Std};
use report::statistics::median;
use runtime::execute::{Carried, ExecuteError, KernelRequest, Machine, Piece, Streamer};
use runtime::observe::observe;
use runtime::weights::Weights;
use runtime::{Device, Kind, Tensor};
use serde_json::Value;

const ARCH: &str = include_str!("../../../arch/llama_768.canon");
const SCRIPT: &str = include_str!("decode.py");
/// Tokens that each contender generates in a round.
const TOKENS: usize = 32;
const ROUNDS: usize = 7;
/// The pause after each turn: threads of OpenMP spin a while before they sleep.
const PAUSE: Duration = Duration::from_millis(200);

struct Contender {
    name: &'static str,
    dtype: &'static str,
    decoder: Decoder,
    /// Mean milliseconds of a token, by round.
    times: Vec<f64>,
}

enum Decoder {
    Canonc(Box<Model>),
    Transformers(Script),
}

fn main() -> Result<(), Box<dyn Error>> {
    let program = Program::new([("a.canon".to_owned(), ARCH.to_owned())], Std::Embedded);
    let graph = program.compile("a.canon", "llama_768").0.ok_or("the arch does not compile")?.graph;
    let parameters = analyse(&graph, 1).parameters;
    let threads = observe().torch.threads;
    let mut contenders = Vec::new();
    for (dtype, precision) in [("f32", Precision::F32), ("bf16", Precision::Bf16)] {
        for decoder in [
            Decoder::Canonc(Box::new(Model::new(&graph, precision)?)),
            Decoder::Transformers(Script::start(dtype, threads, parameters)?),
        ] {
            let name = match decoder {
                Decoder::Canonc(_) => "canonc",
                Decoder::Transformers(_) => "transformers",
            };
            contenders.push(Contender { name, dtype, decoder, times: Vec::new() });
        }
    }
    let mut memory = Vec::new();
    let measure = |_| {
        memory.push(read_bandwidth()?);
        Ok::<(), Box<dyn Error>>(())
    };
    take_turns(&mut contenders, ROUNDS, measure, |contender| {
        let milliseconds = match &mut contender.decoder {
            Decoder::Canonc(model) => model.decode(TOKENS)?,
            Decoder::Transformers(script) => script.decode(TOKENS)?,
        };
        contender.times.push(milliseconds);
        std::thread::sleep(PAUSE);
        Ok(())
    })?;
    println!(
        "{TOKENS} tokens after a first one, {:.1} M parameters, {threads} threads; medians of {ROUNDS} rounds; a sum \
         reads 1 GiB at {:.1} GB/s",
        parameters as f64 / 1e6,
        median(&memory) / 1e9
    );
    for pair in contenders.chunks(2) {
        for contender in pair {
            let bytes = weight_bytes(parameters, &graph, contender.dtype);
            contender.print(bytes, &memory, pair.first());
        }
    }
    Ok(())
}

impl Contender {
    /// Prints a row; `base` is canonc in this dtype.
    fn print(&self, bytes: f64, memory: &[f64], base: Option<&Contender>) {
        let speed = |ms: f64| bytes / ms * 1e3;
        let shares: Vec<f64> =
            self.times.iter().zip(memory).map(|(ms, memory)| 100.0 * speed(*ms) / memory).collect();
        let base = base.map_or(&self.times, |base| &base.times);
        let ratios: Vec<f64> = self.times.iter().zip(base).map(|(a, b)| a / b).collect();
        let ms = median(&self.times);
        println!(
            "  {:<18} {ms:>7.2} ms {:>7.1} tokens/s {:>6.1} GB/s of weights, {:>3.0}% of memory {:>6.2}×",
            format!("{}, {}", self.name, self.dtype),
            1e3 / ms,
            speed(ms) / 1e9,
            median(&shares),
            median(&ratios)
        );
    }
}

/// Bytes of weights that one token reads: all but the embedding table.
fn weight_bytes(parameters: i64, graph: &Graph, dtype: &str) -> f64 {
    let each = if dtype == "bf16" { 2 } else { 4 };
    ((parameters - graph.vocab * graph.dim) * each) as f64
}

/// Our model with initial weights, and the state after one token.
struct Model {
    streamer: Streamer,
    weights: Weights,
    start: Carried,
}

impl Model {
    fn new(graph: &Graph, precision: Precision) -> Result<Model, Box<dyn Error>> {
        let options = Options { precision, ..Options::default() };
        let stream = Stream { state_in: true, state_out: true };
        let machine =
            Machine::new(false, false, KernelRequest::FASTEST).map_err(|error| error.message)?;
        let streamer = Streamer::new(plans::forward(graph, stream, options), machine)?;
        let weights = Weights::init(graph, 1)?.to(machine.device, machine.kind)?;
        let (_, start) = streamer.forward(&weights, &Streamer::row(&[0])?, &streamer.start(1)?)?;
        Ok(Model { streamer, weights, start })
    }

    /// Mean milliseconds of this many tokens after the first, each the likeliest.
    fn decode(&self, count: usize) -> Result<f64, ExecuteError> {
        let mut carried: Option<Carried> = None;
        let mut token = 0;
        let began = Instant::now();
        for _ in 0..count {
            let state = carried.as_ref().unwrap_or(&self.start);
            let piece = Piece { tokens: &[token], state, logits: 1 };
            let result = self.streamer.forward_each(&self.weights, &[piece])?.pop();
            let Some((Some(logits), after)) = result else {
                return Err(ExecuteError::new("the model gave no logits"));
            };
            token = logits.f_argmax(-1, false)?.f_int64_value(&[0, 0])?;
            carried = Some(after);
        }
        Ok(began.elapsed().as_secs_f64() * 1e3 / count as f64)
    }
}

/// A process of `decode.py`: it answers each number of tokens with their time.
struct Script {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Script {
    fn start(dtype: &str, threads: usize, parameters: i64) -> Result<Script, Box<dyn Error>> {
        let python = std::env::var_os("CANONC_TRANSFORMERS_PYTHON");
        let mut child = Command::new(python.unwrap_or_else(|| "python3".into()))
            .args(["-c", SCRIPT, "--dtype", dtype, "--threads", &threads.to_string()])
            .args(["--warm-up", "3"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut script = Script { child, input, output };
        let ready = script.answer()?;
        println!("PyTorch {}, libtorch {}", ready["torch"], observe().torch.version);
        match (ready["parameters"].as_i64(), ready["threads"].as_u64()) {
            (Some(theirs), Some(count)) if theirs == parameters && count == threads as u64 => {
                Ok(script)
            }
            _ => Err(format!("another model or number of threads: {ready}").into()),
        }
    }

    fn decode(&mut self, count: usize) -> Result<f64, Box<dyn Error>> {
        writeln!(self.input, "{count}")?;
        Ok(self.answer()?["ms"].as_f64().ok_or("no time")?)
    }

    fn answer(&mut self) -> Result<Value, Box<dyn Error>> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes per second of a sum over 1 GiB, with all threads: the fastest of a few.
fn read_bandwidth() -> Result<f64, ExecuteError> {
    const ELEMENTS: i64 = 1 << 28;
    let ones = Tensor::f_ones([ELEMENTS], (Kind::Float, Device::Cpu))?;
    let best = fastest(|| Ok::<_, ExecuteError>(ones.f_sum(None::<Kind>)?.f_double_value(&[])?))?;
    Ok(4.0 * ELEMENTS as f64 / best)
}
