/* The charts of the page, by uPlot, with one x-range and one cursor for all.
   `specs` makes every chart's lines, for the page and for exports. */

let charts = [];

/* Lines of a chart: raw and smoothed values on the chosen axis. */
function line(run, series, more) {
  const xs = series && AXES[state.x].of(run, series.steps);
  if (!xs) return null;
  const dense = more.dense && !run.published;
  const values = dense ? smooth(series.values, state.smooth) : series.values;
  return { run, runs: [run], label: run.label, xs, values, raw: dense && state.smooth > 1 ? series.values : null, meanOf: series.meanOf || 1, ...more };
}

/* What there is to draw now, in the order of the page. */
function specs() {
  const shown = RUNS.filter(isShown);
  const names = [...new Set(RUNS.flatMap(run => Object.keys(run.series)))];
  const own = new Set(RUNS.slice(0, OWN).flatMap(run => Object.keys(run.series)));
  const of = name => ({
    key: name, of: name, title: name, note: timeNote(shown.filter(run => run.series[name])), dense: DENSE.has(name), broad: name === "training loss", log: true,
    lines: [...shown.map(run => line(run, run.series[name], { dense: DENSE.has(name) })), ...(state.mean ? armMeans(shown, name) : [])].filter(Boolean),
  });
  const section = name => name === "training loss" ? "loss" : name === "tokens per second" ? "speed" : LATER.has(name) ? "optimiser" : own.has(name) ? "measures" : "published benchmarks";
  const all = names.map(name => ({ ...of(name), section: section(name) }));
  const [loss, others] = [all.filter(spec => spec.section === "loss"), all.filter(spec => spec.section !== "loss")];
  return [...loss, ...PAIRS.map(pairSpec), ...selectedSpec(), ...others].filter(spec => spec.lines.length);
}

/* The mean of each arm with several runs, at the steps that all of them have. */
function armMeans(shown, name) {
  const having = shown.filter(run => run.series[name] && !run.published), dense = DENSE.has(name);
  return [...new Set(having.map(armOf))].flatMap(arm => {
    const runs = having.filter(run => armOf(run) === arm);
    if (runs.length < 2) return [];
    const mean = together(runs.map(run => run.series[name]), values => values.every(value => value != null) ? values.reduce((a, b) => a + b, 0) / values.length : null);
    const drawn = mean.steps.length && line(runs[0], { ...mean, meanOf: runs[0].series[name].meanOf }, { dense, label: `mean of ${runs.length}: ${runs[0].fields.arm}`, arm: true, runs });
    return drawn ? [{ ...drawn, raw: null }] : [];
  });
}

/* What has to be said of seconds. */
function timeNote(runs) {
  if (state.x !== "time") return "";
  const [none, beside] = [runs.filter(run => !run.seconds).length, runs.filter(run => run.seconds && run.beside).length];
  const of = (count, text) => count ? `${count} of ${runs.length} runs ${text}` : "";
  return [of(none, "have no seconds of every step and are not drawn"), of(beside, "shared their machine with others")].filter(Boolean).join(" · ");
}

/* Below so many repetitions of the base its noise is unknown. */
const FEWEST_REPETITIONS = 3;

function pairSpec(pair, number) {
  const what = pair.published ? "training loss" : state.pairsOf, dense = DENSE.has(what);
  const shown = pair.lines.filter(({ treated, base }) => isShown(treated) && isShown(base));
  const differences = shown.map(({ treated, base }) => ({ treated, base, of: difference(treated, base, what) })).filter(one => one.of);
  const lines = differences.map(({ treated, base, of }) => ({
    ...line(treated, of, { dense, label: pair.published ? treated.label : `seed #${treated.seed ?? "?"}` }), runs: [treated, base], pair: true,
  })).filter(line => line.xs);
  const first = differences[0];
  if (lines.length > 1 && !pair.published) {
    const mean = together(differences.map(one => one.of), values => values.reduce((a, b) => a + b, 0) / values.length);
    const drawn = line(first.treated, mean, { dense });
    if (drawn && mean.steps.length) lines.push({ ...drawn, raw: null, label: "mean", mean: true, pair: true, runs: lines.flatMap(line => line.runs) });
  }
  const noise = pair.replicate.map(({ replicate, base }) => difference(replicate, base, what)).filter(Boolean);
  let band = null;
  if (pair.noise && noise.length >= FEWEST_REPETITIONS && first) {
    // The same smoothing as the lines have, then the standard deviation of one difference, whose expected value is 0.
    const smoothed = noise.map(({ steps, values }) => ({ steps, values: dense ? smooth(values, state.smooth) : values }));
    const single = together(smoothed, values => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length));
    const xs = AXES[state.x].of(first.base, single.steps);
    if (xs) band = { xs, values: single.values };
  } else if (pair.published && pair.jitter != null) band = { jitter: pair.jitter };
  const judgements = shown.map(({ treated, base }) => judged(base, treated)).filter(Boolean);
  const firsts = judgements.map(judgement => judgement.other).filter(step => step != null);
  const batches = pair.published
    ? shown.filter(({ treated, base }) => treated.data === "other" || base.data === "other").map(({ treated, base }) => `⚑ ${(treated.data === "other" ? treated : base).name} most likely saw another data order`).join("; ")
    : !judgements.length ? "" : firsts.length ? `⚑ batches differ from step ${Math.min(...firsts)} on` : judgements.some(judgement => judgement.unknown) ? "⚑ whether batches are equal is not known" : "equal batches at every step";
  const noted = pair.published
    ? (band ? "dashed: ± twice the published jitter of logged points, which is not noise between seeds" : "one seed each, so the noise between seeds is unknown")
    : band ? `grey: ± one standard deviation of a single A/A difference (${noise.length} repetitions); compare single lines with it, not their mean`
    : pair.replicate.length ? `A/A noise unknown (${noise.length} of ${FEWEST_REPETITIONS} repetitions with other init and data seeds, or no variance)` : "no A/A arm, so the noise is unknown";
  const ended = shown.filter(({ treated, base }) => treated.diverged || base.diverged).length;
  const lost = ended ? `✗ ${ended} of ${shown.length} seeds diverged: their differences end there, and so does the mean` : "";
  return {
    key: `pair ${number}`, of: what, title: `${what}: ${pair.title}, paired`, note: [noted, lost, batches].filter(Boolean).join(" · "),
    flagged: batches.startsWith("⚑") || ended > 0, dense, broad: true, log: false, zero: true, lines, band, section: "loss",
  };
}

/* Two selected runs that are no declared pair. */
function selectedSpec() {
  if (state.selected.length !== 2) return [];
  const [a, b] = state.selected.map(at => RUNS[at]);
  if (a.twin === b || b.twin === a) return [];
  const of = difference(b, a, "training loss");
  const drawn = of && line(b, of, { dense: true, label: `${b.label} minus ${a.label}` });
  return drawn ? [{ key: "selected", of: "training loss", title: `training loss: ${b.label} minus ${a.label}`, note: "exploratory: two runs selected by hand, not a declared pair", dense: true, broad: true, log: false, zero: true, lines: [{ ...drawn, runs: [a, b], pair: true }], section: "loss" }] : [];
}

const fmt = value => value == null || !Number.isFinite(value) ? "–" : value === 0 ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(2) : Math.abs(value) >= 100 ? value.toFixed(1) : value.toPrecision(4);
const units = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const short = value => { for (const [size, unit] of units) if (Math.abs(value) >= size) return `${+(value / size).toPrecision(4)}${unit}`; return String(+value.toPrecision(4)); };
/* A value with the unit of its series. */
const UNITS = { nats: [1, " nats"], share: [100, "%"], count: [1, " bits"], speed: [1, " tokens/s"] };
const withUnit = (value, name, how, ends = {}) => { const [scale, unit] = UNITS[PAGE.units[name]] || [1, ""]; const text = how(value == null ? value : value * scale); return text && text !== "–" ? text + (ends[PAGE.units[name]] ?? unit) : text; };
const POINTS = { share: " pp" };
const signed = value => value == null || !Number.isFinite(value) ? "" : (value > 0 ? "+" : value < 0 ? "−" : "±") + fmt(Math.abs(value));

/* All lines on one axis: the union of their places. */
function aligned(columns) {
  const xs = [...new Set(columns.flatMap(({ xs }) => [...xs]))].sort((a, b) => a - b);
  const at = new Map(xs.map((x, i) => [x, i]));
  return [xs, ...columns.map(column => {
    const values = new Array(xs.length).fill(null);
    column.xs.forEach((x, i) => { values[at.get(x)] = column.values[i]; });
    return values;
  })];
}

function build(spec, host) {
  const columns = [], series = [{}];
  const positive = spec.lines.every(line => line.values.every(value => value == null || value > 0));
  const log = state.logy && spec.log && positive;
  spec.linear = !state.logy || log ? "" : spec.log ? "y is linear here: some values are not above 0" : "y is linear here: differences have no logarithm";
  if (state.logx && spec.lines.some(line => line.xs.some(x => !(x > 0)))) spec.linear = [spec.linear, "points at x = 0 are not drawn"].filter(Boolean).join("; ");
  const put = (line, values, options) => { columns.push({ xs: line.xs, values }); series.push({ points: { show: line.xs.length < 40 && !options.faint, size: 4 }, spanGaps: true, ...options, line }); };
  for (const line of spec.lines) if (line.raw) put(line, line.raw, { faint: true, stroke: () => colourOf(line.run), width: 1, points: { show: false } });
  for (const line of spec.lines) put(line, line.values, { stroke: () => line.mean ? cssVar("--ink") : colourOf(line.run), dash: line.mean || line.arm ? [] : dashOf(line.run) });
  const data = aligned(columns);
  const ink = () => cssVar("--soft"), rule = () => cssVar("--line");
  const y = log ? logScale(data) : state.cut ? central(spec, data) : {};
  const axis = { stroke: ink, grid: { stroke: rule, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif" };
  const u = new uPlot({
    width: host.clientWidth || 800, height: spec.broad ? 270 : 190, legend: { show: false },
    padding: [8, 18, 0, 0],
    scales: { x: { time: false, distr: state.logx ? 3 : 1, range: (u, low, high) => range(low, high) }, y: { distr: log ? 3 : 1, ...y } },
    axes: [{ ...axis, size: 26, values: (u, ticks) => ticks.map(tick => tick == null ? "" : short(tick)), ...(state.logx ? { splits: logTicks, filter: (u, ticks) => ticks } : {}) },
      { ...axis, size: 58, ...(log ? { splits: logTicks, filter: (u, ticks) => ticks } : {}), values: (u, ticks) => ticks.map(tick => tick == null ? "" : String(+tick.toPrecision(6))) }],
    cursor: {
      sync: { key: "canonc", setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { size: 5 },
      bind: { dblclick: () => () => { queueMicrotask(() => setRange(null, null)); return null; } }, focus: { prox: 12 },
    },
    hooks: {
      setSelect: [u => { if (u.select.width > 3) { const [a, b] = [u.select.left, u.select.left + u.select.width].map(at => u.posToVal(at, "x")); queueMicrotask(() => setRange(a, b)); } }],
      setCursor: [u => { if (u === active && u.cursor.left >= 0) readout(spec, u.posToVal(u.cursor.left, "x")); }],
      drawClear: [u => underlay(u, spec)], draw: [u => spikesOn(u, spec)],
    },
    series,
  }, data, host);
  const chart = { spec, u, host };
  u.over.addEventListener("mouseenter", () => { active = u; });
  u.over.addEventListener("click", event => nearest(chart, event));
  return chart;
}
let active = null;

/* Ticks of a logarithmic scale: 1, 2, 5 of each power, or of a scale shorter than a power even ones. */
function logTicks(u, at, low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) for (const first of [1, 2, 5]) ticks.push(+`${first}e${power}`);
  let inside = ticks.filter(tick => tick >= low && tick <= high);
  if (inside.length > 9) inside = inside.filter(tick => String(tick.toExponential()).startsWith("1e"));
  if (inside.length > 2) return inside;
  const step = [1, 2, 5].flatMap(first => [-6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].map(power => +`${first}e${power}`)).sort((a, b) => a - b).find(step => (high - low) / step <= 5);
  return Array.from({ length: 7 }, (_, i) => +((Math.ceil(low / step) + i) * step).toPrecision(12)).filter(tick => tick <= high);
}

/* The values that lie in the range of the axis. */
function inRange([xs, ...columns]) {
  const [from, to] = [state.from ?? -Infinity, state.to ?? Infinity];
  return columns.flatMap(column => column.filter((value, i) => value != null && xs[i] >= from && xs[i] <= to));
}

const logScale = data => {
  const values = inRange(data).filter(value => value > 0), low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), 0);
  return low < Infinity ? { range: [low / 1.03, high * 1.03] } : {};
};

/* The scale of all but the outermost hundredth on each side, if that makes what is left much larger: first steps and
   spikes would else leave everything else a flat line. How many values lie outside is said over the chart. */
function central(spec, data) {
  const values = inRange(data).sort((a, b) => a - b);
  if (values.length < 200) return {};
  const at = part => values[Math.round(part * (values.length - 1))];
  const [least, low, high, most] = [values[0], at(.01), at(.99), values.at(-1)], room = (high - low) * .2;
  let [a, b] = [Math.max(least, low - room), Math.min(most, high + room)];
  if (spec.zero) [a, b] = [Math.min(a, 0), Math.max(b, 0)];
  if (!(b > a) || (most - least) < 1.5 * (b - a)) return {};
  const edge = (b - a) * .05;
  spec.outside = values.filter(value => value < a || value > b).length;
  return { range: [a - edge, b + edge] };
}

/* The chosen range, or all; a range of one place gets some room. */
function range(low, high) {
  let [a, b] = [state.from ?? low, state.to ?? high];
  if (state.logx) a = Math.max(a, low > 0 ? Math.min(low, b) : 1e-9);
  return a < b ? [a, b] : [a - .5, a + .5];
}

function setRange(from, to) {
  state.from = from == null ? null : +from.toPrecision(6);
  state.to = to == null ? null : +to.toPrecision(6);
  draw();
}

/* Bands and the line of no difference lie under everything. */
function underlay(u, spec) {
  const { ctx, bbox } = u;
  if (!spec.zero) return;
  const y = value => u.valToPos(value, "y", true);
  ctx.save();
  ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
  ctx.fillStyle = isDark() ? "rgba(170,180,190,.22)" : "rgba(110,120,130,.20)";
  if (spec.band && spec.band.jitter != null) {
    // Two dashed lines with their name: never the grey of seed noise.
    ctx.strokeStyle = ctx.fillStyle = cssVar("--amber"); ctx.lineWidth = devicePixelRatio; ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
    for (const at of [spec.band.jitter, -spec.band.jitter]) { ctx.beginPath(); ctx.moveTo(bbox.left, y(at)); ctx.lineTo(bbox.left + bbox.width, y(at)); ctx.stroke(); }
    ctx.setLineDash([]); ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`; ctx.fillText("published jitter ×2, not seed noise", bbox.left + 4 * devicePixelRatio, y(spec.band.jitter) - 3 * devicePixelRatio);
  } else if (spec.band) {
    const { xs, values } = spec.band;
    ctx.beginPath();
    xs.forEach((x, i) => ctx.lineTo(u.valToPos(x, "x", true), y(values[i])));
    for (let i = xs.length - 1; i >= 0; i--) ctx.lineTo(u.valToPos(xs[i], "x", true), y(-values[i]));
    ctx.fill();
  }
  ctx.strokeStyle = cssVar("--soft"); ctx.lineWidth = devicePixelRatio; ctx.beginPath(); ctx.moveTo(bbox.left, y(0)); ctx.lineTo(bbox.left + bbox.width, y(0)); ctx.stroke();
  ctx.restore();
}

/* A small triangle over each spike of the training loss. */
function spikesOn(u, spec) {
  if (spec.key !== "training loss") return;
  const { ctx, bbox } = u, size = 5 * devicePixelRatio;
  ctx.save();
  for (const { run, xs, values } of spec.lines) for (const spike of run.spikes) {
    const [x] = AXES[state.x].of(run, [spike.from]) || [];
    const at = Math.max(0, after(xs, x) - 1), px = u.valToPos(x, "x", true);
    const py = Math.max(u.valToPos(values[at], "y", true) - 4 * devicePixelRatio, bbox.top + size);
    if (!(px >= bbox.left && px <= bbox.left + bbox.width)) continue;
    ctx.fillStyle = colourOf(run);
    ctx.beginPath(); ctx.moveTo(px, py); ctx.lineTo(px - size * .7, py - size); ctx.lineTo(px + size * .7, py - size); ctx.fill();
  }
  ctx.restore();
}

/* Strength and width of lines: what is selected stands out in every chart. */
function restyle() {
  for (const { u } of charts) {
    for (const series of u.series.slice(1)) {
      const strong = strengthOf(series.line.runs), chosen = state.selected.length && strong && !series.line.arm;
      // Runs lie faint under the mean of their arm.
      const under = !series.line.arm && !chosen && u.series.some(other => other.line && other.line.arm && other.line.runs.some(run => run.index === series.line.run.index));
      series.alpha = (series.faint ? .16 : under ? .3 : 1) * (strong ? 1 : .22);
      series.width = (series.faint ? 1 : series.line.mean || series.line.arm ? 2.4 : series.line.pair && !series.line.run.published ? 1.1 : 1.5) + (chosen ? .9 : 0);
    }
    u.redraw(false);
  }
}

/* A click in a chart selects the line that is nearest to it. */
function nearest({ u, spec }, event) {
  const box = u.over.getBoundingClientRect(), [px, py] = [event.clientX - box.left, event.clientY - box.top];
  let best = [14, null];
  for (const line of spec.lines) {
    const at = Math.max(0, after(line.xs, u.posToVal(px, "x")) - 1);
    const distance = Math.abs(u.valToPos(line.values[at], "y") - py);
    if (!line.mean && !line.arm && distance < best[0]) best = [distance, line];
  }
  if (best[1]) select(best[1].run.index);
}
