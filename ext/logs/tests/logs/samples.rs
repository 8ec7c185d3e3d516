//! Small logs in the shapes that programs write them, of runs of one lock.

use lab::experiment::Experiment;
use logs::{Check, Log, Names, Quantity, check, parse};
use report::tensorboard::{Event, first};
use support::locks::{DEPO, experiment_of, small};

/// The lock: 600 steps of 32 sequences and 4,096 tokens.
pub(super) fn lock() -> Experiment {
    thread_local! {
        static LOCK: Experiment = experiment_of(DEPO, &small());
    }
    LOCK.with(Experiment::clone)
}

/// A value by step.
type ValueAt<'a> = &'a dyn Fn(u64) -> f64;

pub(super) const TOKENS_PER_STEP: u64 = 4096;

/// The lock's learning rate of a step, from 1.
pub(super) fn rate(step: u64) -> f64 {
    thread_local! {
        static RATES: Vec<f64> = {
            let lock = lock();
            let rates = records::job::rates(&lock).unwrap();
            (0..600).map(rates).collect()
        };
    }
    RATES.with(|rates| rates[step as usize - 1])
}

/// Every tenth step.
pub(super) fn steps() -> impl Iterator<Item = u64> {
    (10..=600).step_by(10)
}

pub(super) fn loss(step: u64) -> f64 {
    1.0 + 8.0 / (step as f64 + 1.0)
}

/// A `trainer_state.json` of transformers 5, with these learning rates.
pub(super) fn trainer_state(rate: impl Fn(u64) -> f64) -> String {
    let row = |step: u64| {
        format!(
            "    {{\n      \"epoch\": {},\n      \"grad_norm\": 1.1875,\n      \"learning_rate\": {},\n      \"loss\": {},\n      \"step\": {step}\n    }},\n",
            step as f64 / 600.0,
            rate(step),
            loss(step)
        )
    };
    let rows: String = steps().map(row).collect();
    format!(
        "{{
  \"best_global_step\": null,
  \"best_metric\": null,
  \"best_model_checkpoint\": null,
  \"epoch\": 1.0,
  \"eval_steps\": 300,
  \"global_step\": 600,
  \"is_hyper_param_search\": false,
  \"is_local_process_zero\": true,
  \"is_world_process_zero\": true,
  \"log_history\": [
{rows}    {{
      \"epoch\": 1.0,
      \"eval_loss\": 1.5,
      \"eval_runtime\": 0.5,
      \"eval_samples_per_second\": 20.0,
      \"eval_steps_per_second\": 2.0,
      \"step\": 600
    }},
    {{
      \"epoch\": 1.0,
      \"step\": 600,
      \"total_flos\": 1060216012800.0,
      \"train_loss\": 1.25,
      \"train_runtime\": 12.5,
      \"train_samples_per_second\": 100.0,
      \"train_steps_per_second\": 10.0
    }}
  ],
  \"logging_steps\": 10,
  \"max_steps\": 600,
  \"num_input_tokens_seen\": 0,
  \"num_train_epochs\": 1,
  \"save_steps\": 300,
  \"stateful_callbacks\": {{
    \"TrainerControl\": {{
      \"args\": {{
        \"should_epoch_stop\": false,
        \"should_training_stop\": true
      }},
      \"attributes\": {{}}
    }}
  }},
  \"total_flos\": 1060216012800.0,
  \"train_batch_size\": 8,
  \"trial_name\": null,
  \"trial_params\": null
}}
"
    )
}

/// A row of Lingua's `metrics.jsonl`.
pub(super) fn lingua_row(step: u64, part: u64, rate: f64, tokens: u64) -> String {
    format!(
        "{{\"global_step\": {step}, \"acc_step\": {part}, \"speed/wps\": 51211.2, \"speed/FLOPS\": 1.1e14, \
         \"speed/curr_iter_time\": 0.32, \"speed/data_load_time\": 0.001, \"optim/grad_norm\": {}, \
         \"optim/lr\": {rate}, \"optim/total_tokens\": {tokens}, \"memory/max_active_gib\": 9.1, \
         \"loss/out\": {}, \"created_at\": \"2025-03-01T12:00:00.000000+00:00\"}}\n",
        if part == 0 { 0.5 } else { -1.0 },
        loss(step)
    )
}

/// Lingua's `metrics.jsonl`, with a row of a micro-batch between two steps.
pub(super) fn lingua() -> String {
    let rows = steps().map(|step| {
        let tokens = step * TOKENS_PER_STEP;
        lingua_row(step, 0, rate(step), tokens) + &lingua_row(step, 1, rate(step), tokens + 2048)
    });
    rows.collect()
}

/// Rows as a program writes them that logs JSON lines with torchtitan's names.
pub(super) fn torchtitan() -> String {
    let row = |step: u64| {
        format!(
            "{{\"step\": {step}, \"loss_metrics/global_avg_loss\": {}, \"loss_metrics/global_max_loss\": 9.0, \
             \"grad_norm\": 0.5, \"lr\": {}, \"n_tokens_seen\": {}, \"throughput(tps)\": 1000.0}}\n",
            loss(step),
            rate(step),
            step * TOKENS_PER_STEP
        )
    };
    steps().map(row).collect()
}

/// An event file with a scalar of each tag at each step.
pub(super) fn events(tags: &[(&str, ValueAt<'_>)]) -> Vec<u8> {
    let mut file = first(1.0, "any");
    for step in steps() {
        // PyTorch's writer has an event for each scalar.
        for (tag, value) in tags {
            let values = vec![((*tag).to_owned(), value(step) as f32)];
            file.extend(Event { wall_time: 2.0, step, values }.record());
        }
    }
    file
}

/// A chart of Weights & Biases: the columns of each run and metric, with least and greatest values.
pub(super) fn chart(columns: &[(&str, &str, ValueAt<'_>)]) -> String {
    let names = columns.iter().map(|(run, metric, _)| {
        format!(",\"{run} - {metric}\",\"{run} - {metric}__MIN\",\"{run} - {metric}__MAX\"")
    });
    let row = |step: u64| {
        let cells = columns.iter().map(|(_, _, value)| {
            let value = value(step);
            format!(",\"{value}\",\"{value}\",\"{value}\"")
        });
        format!("\"{step}\"{}\n", cells.collect::<String>())
    };
    format!("\"Step\"{}\n", names.collect::<String>()) + &steps().map(row).collect::<String>()
}

/// Reads a log with the user's names.
pub(super) fn read(file: &[u8], names: &[&str]) -> Log {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    parse("log", file, &Names::parse(&names).unwrap()).unwrap_or_else(|problem| panic!("{problem}"))
}

/// Reads a log and holds it against the lock.
pub(super) fn checked(file: &[u8], names: &[&str]) -> Check {
    check(&read(file, names), &lock()).unwrap()
}

/// The names that a log was read by, in one line.
pub(super) fn read_as(log: &Log) -> String {
    let word = |(quantity, name): (&Quantity, &String)| format!("{}={name}", quantity.word());
    log.names.iter().map(word).collect::<Vec<_>>().join(" ")
}
