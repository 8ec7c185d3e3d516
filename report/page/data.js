/* The runs of the page, from its JSON: their series on any axis, smoothed, and the differences of pairs.
   Published runs are in the same list, with `published` set. A difference has only steps that both runs have. */

const PAGE = JSON.parse(document.getElementById("data").textContent);

/* Series that have a value at every step, and are smoothed on demand. */
const DENSE = new Set(["training loss", "gradient norm", "tokens per second"]);
const LATER = new Set(["gradient norm", "learning rate", "tokens per second"]);

function unpack({ first, every, steps, values, mean_of }) {
  return { steps: steps || values.map((_, i) => first + i * every), values, meanOf: mean_of || 1 };
}

const RUNS = PAGE.runs.map((run, index) => {
  const fields = {};
  for (const field of PAGE.fields) fields[field.path] = field.values[field.of[index]];
  const series = {};
  for (const name in run.series) series[name] = unpack(run.series[name]);
  const point = run.at ? ` (${run.at})` : "";
  const label = run.seed == null ? run.name : `${run.arm}${point} #${run.seed}`;
  fields.arm = run.arm + point;
  if (run.seed != null) fields.seed = String(run.seed);
  return { ...run, index, fields, series, label, published: false };
});
// Comparisons may call their arms alike; locks have names of their own.
for (const run of RUNS) run.same = RUNS.filter(other => other.label === run.label).length > 1;
for (const run of RUNS) if (run.same) run.label = run.name;

const OWN = RUNS.length;
for (const model of PAGE.published.models) {
  const series = {};
  for (const curve of PAGE.published.curves.filter(curve => curve.model === model.name)) {
    const steps = PAGE.published.axes[curve.axis].map(x => x * 1e9 / model.tokens_per_step);
    series[curve.what] = { steps, values: curve.values, meanOf: 1 };
  }
  const order = PAGE.published.orders.find(order => order.model === model.name);
  const spikes = PAGE.published.spikes.filter(spike => spike.model === model.name).map(spike => ({
    from: spike.from * 1e9 / model.tokens_per_step, to: spike.to * 1e9 / model.tokens_per_step, excess: spike.excess,
  }));
  const arm = `${model.family}${model.canon ? " + Canon" : ""} ${model.size} (published)`;
  RUNS.push({
    index: RUNS.length, name: model.name, label: model.name.replace("-Nemo-1T", "").replace("-Nemo", ""), arm, published: true, canon: model.canon, series, spikes,
    steps: model.tokens / model.tokens_per_step, tokens: model.tokens, tokens_per_step: model.tokens_per_step,
    seconds: null, data: order && order.other ? "other" : null, size: model.size, family: model.family,
    fields: { ...model.fields, arm, family: model.family, size: model.size, canon: model.canon ? "yes" : "no" },
  });
}

const byName = name => RUNS.find(run => run.published && run.name === name);
const PAIRS = PAGE.pairs.map(pair => ({
  title: pair.title, noise: pair.noise, jitter: null, published: false,
  lines: pair.lines.map(([treated, base]) => ({ treated: RUNS[treated], base: RUNS[base] })),
  replicate: pair.replicate.map(([replicate, base]) => ({ replicate: RUNS[replicate], base: RUNS[base] })),
}));
for (const size of ["1B", "3B", "8B"]) {
  const lines = PAGE.published.twins.map(twin => ({ treated: byName(twin.treated), base: byName(twin.base) }));
  const own = lines.filter(line => line.base.size === size);
  const order = PAGE.published.orders.find(order => order.size === size);
  if (own.length) PAIRS.push({
    title: `published ${size}: Canon against its twin`, lines: own, replicate: [], published: true,
    noise: false, jitter: order ? 2 * order.jitter : null,
  });
}
for (const pair of PAIRS) for (const { treated, base } of pair.lines) treated.twin = base;

/* Every field of every lock, those in which runs differ first. */
const FIELDS = (() => {
  const paths = [...new Set(RUNS.flatMap(run => Object.keys(run.fields)))];
  const all = paths.map(path => {
    const values = [...new Set(RUNS.map(run => run.fields[path] ?? ""))];
    return { path, values: values.sort((a, b) => a - b || (a < b ? -1 : a > b ? 1 : 0)) };
  });
  return all.sort((a, b) => (b.values.length > 1) - (a.values.length > 1) || (a.path < b.path ? -1 : 1));
})();

/* What a place on the axis is called, and the places of a run's steps; null where the run has no such axis. */
const AXES = {
  steps: { label: "optimiser step", of: (run, steps) => steps },
  tokens: { label: "training tokens", of: (run, steps) => run.tokens_per_step && steps.map(s => s * run.tokens_per_step) },
  time: { label: "seconds of training", of: (run, steps) => run.seconds && steps.map(s => between(run.seconds, s)) },
  share: { label: "share of the run, %", of: (run, steps) => steps.map(s => 100 * s / run.steps) },
};

/* A running sum at a step, straight between the known ones; it begins with 0 before the first. */
function between({ steps, values }, step) {
  const at = after(steps, step);
  if (steps[at - 1] === step) return values[at - 1];
  const [s0, v0] = at ? [steps[at - 1], values[at - 1]] : [0, 0];
  if (at === steps.length) return v0;
  return v0 + (values[at] - v0) * (step - s0) / (steps[at] - s0);
}

/* How many of ascending values are not above x. */
function after(values, x) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1; else high = middle;
  }
  return low;
}

/* The mean of the last n values, as far as there are any. */
function smooth(values, n) {
  if (n <= 1) return values;
  let sum = 0;
  const queue = [];
  return values.map(value => {
    if (value == null) return null;
    queue.push(value);
    sum += value;
    if (queue.length > n) sum -= queue.shift();
    return sum / queue.length;
  });
}

/* One run minus another at the steps that both have. */
function difference(a, b, what) {
  const [one, other] = [a.series[what], b.series[what]];
  if (!one || !other) return null;
  const of = new Map(other.steps.map((step, i) => [step, other.values[i]]));
  const steps = [], values = [];
  one.steps.forEach((step, i) => {
    const base = of.get(step);
    if (base == null || one.values[i] == null) return;
    steps.push(step);
    values.push(one.values[i] - base);
  });
  return steps.length ? { steps, values } : null;
}

/* Several series at the steps that all of them have, by a function of their values. */
function together(series, fold) {
  const maps = series.map(({ steps, values }) => new Map(steps.map((step, i) => [step, values[i]])));
  const steps = series.length ? series[0].steps.filter(step => maps.every(map => map.has(step))) : [];
  return { steps, values: steps.map(step => fold(maps.map(map => map.get(step)))) };
}

/* What was found of two runs, in the order in which it was judged. */
function judged(a, b) {
  if (a.published && b.published) {
    const of = (a, b) => PAGE.published.twins.find(twin => twin.base === a.name && twin.treated === b.name);
    const [first, second] = of(a, b) ? [a, b] : [b, a];
    const twin = of(first, second);
    const beside = twin && twin.differs.filter(([group]) => group === "training");
    return twin && {
      first, second, differs: twin.differs, design: beside.length ? "not_controlled" : "controlled", declared: true, other: null,
      headline: beside.length
        ? `confounded, as published: ${beside.map(([, key]) => key).join(", ")} beside the Canon layers`
        : "as published, no training key differs beside the Canon layers",
    };
  }
  const judgement = PAGE.judged.find(pair => (pair.a === a.index && pair.b === b.index) || (pair.a === b.index && pair.b === a.index));
  return judgement && {
    first: RUNS[judgement.a], second: RUNS[judgement.b], headline: judgement.headline, design: judgement.design,
    declared: judgement.declared, differs: judgement.differs, other: judgement.other_batch, unknown: judgement.unknown_batches,
  };
}
