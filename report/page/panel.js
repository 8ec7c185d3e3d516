/* What the reader works with: the bar over the charts, the list of runs, and what two selected runs differ in.
   Text from files becomes text nodes, never markup. Every control is a button, box or list that the keyboard reaches. */

function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child != null).map(child => child instanceof Node ? child : String(child)));
  return element;
}

const change = changes => { Object.assign(state, changes); draw(); };
const toggled = (list, value) => list.includes(value) ? list.filter(other => other !== value) : [...list, value];
const toggle = (id, label, key, title) => el("button", { id, type: "button", title, "aria-pressed": String(state[key]), onclick: () => change({ [key]: !state[key] }) }, label);
const option = (value, text, chosen) => el("option", { value, selected: value === chosen }, text);

/* The bar. It is made once for each drawing, and keeps the focus where it was. */
function controls() {
  const axes = Object.keys(AXES).map(key => el("button", {
    id: `x-${key}`, type: "button", "aria-pressed": String(state.x === key), onclick: () => change({ x: key, from: null, to: null }),
  }, key));
  const smoothing = el("input", { id: "smooth", type: "range", min: 1, max: 100, value: state.smooth, "aria-label": "smoothing window, in logged steps" });
  smoothing.addEventListener("input", () => change({ smooth: +smoothing.value }));
  const end = (key, label) => {
    const input = el("input", { id: key, type: "number", step: "any", placeholder: label, "aria-label": `range ${label}, in units of the axis`, value: state[key] });
    input.addEventListener("change", () => change({ [key]: input.value === "" ? null : +input.value }));
    return input;
  };
  const whats = [...new Set(RUNS.slice(0, OWN).flatMap(run => Object.keys(run.series)))].filter(name => !LATER.has(name));
  const pairsOf = el("select", { id: "pairs-of", onchange: event => change({ pairsOf: event.target.value }) }, ...whats.map(name => option(name, name, state.pairsOf)));
  return [
    el("div", { class: "group", role: "group", "aria-label": "horizontal axis" }, el("span", {}, "x"), el("span", { class: "segments" }, ...axes), toggle("logx", "log", "logx", "logarithmic x (k)")),
    el("div", { class: "group" }, el("span", {}, "y"), toggle("logy", "log", "logy", "logarithmic y, of charts whose values are all positive (l)"), toggle("cut", "cut", "cut", "cut off what lies far outside, such as first steps and spikes (y)")),
    SEEDED ? el("div", { class: "group" }, el("span", {}, "lines"), toggle("mean", "mean", "mean", "also the mean of each arm with several runs, over the steps that all of them have (m)")) : null,
    el("div", { class: "group" }, el("label", { for: "smooth" }, "smooth"), smoothing, el("output", { for: "smooth" }, state.smooth === 1 ? "off" : state.smooth)),
    el("div", { class: "group" }, el("span", {}, "range"), end("from", "from"), end("to", "to"), el("button", { id: "reset", type: "button", title: "Whole range (r)", onclick: () => setRange(null, null) }, "all")),
    PAIRS.some(pair => !pair.published) && whats.length > 1 ? el("div", { class: "group" }, el("label", { for: "pairs-of" }, "differences of"), pairsOf) : null,
    el("div", { class: "group push" }, el("button", { id: "csv", type: "button", title: "What is shown, as CSV (c)", onclick: saveCsv }, "CSV"), el("button", { id: "png", type: "button", title: "What is shown, as a picture (p)", onclick: savePng }, "PNG")),
  ].filter(Boolean);
}

/* A line as it is drawn, as a picture beside its name. */
function swatch(colour, dash) {
  const ns = "http://www.w3.org/2000/svg";
  const [svg, path] = [document.createElementNS(ns, "svg"), document.createElementNS(ns, "path")];
  svg.setAttribute("class", "swatch"); svg.setAttribute("viewBox", "0 0 20 8"); svg.setAttribute("aria-hidden", "true");
  for (const [name, value] of Object.entries({ d: "M0 4H20", stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dash.join(" ") })) path.setAttribute(name, value);
  svg.append(path);
  return svg;
}

function panel() {
  const fieldList = (id, key, label, none) => el("div", { class: "row" }, el("label", { for: id }, label),
    el("select", { id, onchange: event => change({ [key]: event.target.value }) }, none ? option("", none, state[key]) : null, ...grouped(state[key])));
  const text = el("input", { id: "text", type: "text", value: state.text, placeholder: "name, or field=value", "aria-label": "filter runs by text" });
  text.addEventListener("input", () => change({ text: text.value }));
  const values = el("select", { id: "filter-value", "aria-label": "value to keep" });
  const fill = path => values.replaceChildren(option("", "is …", ""), ...(FIELDS.find(field => field.path === path) || { values: [] }).values.map(value => option(value, value || "–", "")));
  const paths = el("select", { id: "filter-field", "aria-label": "field to filter by", onchange: event => fill(event.target.value) }, option("", "field …", ""), ...grouped(""));
  values.addEventListener("change", () => { if (paths.value) change({ filters: [...state.filters.filter(([path]) => path !== paths.value), [paths.value, values.value]] }); });
  fill("");
  const chips = state.filters.map(([path, value], at) => el("button", { type: "button", title: "remove this filter", onclick: () => change({ filters: state.filters.filter((_, other) => other !== at) }) }, `${path} = ${value || "–"} ×`));
  const rows = groups().flatMap(group => {
    const members = RUNS.filter(run => passes(run) && groupOf(run) === group);
    const head = members.length > 1 || state.colour !== "arm" ? [groupRow(group, members)] : [];
    return [...head, ...members.map(runRow)];
  });
  const pair = state.selected.length === 2 && judged(...state.selected.map(at => RUNS[at]));
  const jump = state.selected.length === 2 ? el("button", { type: "button", id: "to-two", title: "what the two selected runs differ in", onclick: () => document.getElementById("two").scrollIntoView() }, `${pair && pair.headline || "the two selected runs"} ↓`) : null;
  return [
    fieldList("colour", "colour", "colour by"), fieldList("shade", "shade", "shade by", "nothing"),
    el("div", { class: "row" }, el("label", { for: "text" }, "filter"), text),
    el("div", { class: "row" }, el("span"), el("div", { class: "filter" }, paths, values)), ...chips, ...(jump ? [jump] : []),
    el("table", { id: "legend" }, el("thead", {}, el("tr", {}, el("th", { id: "where", scope: "col", "aria-live": "polite" }, `${RUNS.filter(isShown).length} of ${RUNS.length} runs`), el("th", { id: "what", scope: "col" }, "value"), el("th", { scope: "col", title: "minus the run it is paired with" }, "Δ pair"))),
      el("tbody", {}, ...rows)),
  ];
}

/* Fields in which runs differ, then the rest. */
function grouped(chosen) {
  const part = (label, fields) => fields.length ? [el("optgroup", { label }, ...fields.map(({ path }) => option(path, path, chosen)))] : [];
  return [...part("differs between runs", FIELDS.filter(f => f.values.length > 1)), ...part("equal in all runs", FIELDS.filter(f => f.values.length < 2))];
}

function groupRow(group, members) {
  const all = members.every(isShown);
  const box = el("input", { type: "checkbox", checked: all, "aria-label": `show all of ${group}` });
  box.addEventListener("change", () => {
    const without = state.hidden.filter(at => !members.some(run => run.index === at));
    change({ hidden: box.checked ? without : [...without, ...members.map(run => run.index)] });
  });
  return el("tr", { class: "head" }, el("th", { scope: "rowgroup", title: group }, box, el("b", { class: "name" }, group || "–")), el("td"), el("td"));
}

const letter = at => at < 26 ? String.fromCharCode(97 + at) : String(at + 1);

function runRow(run) {
  const shown = !state.hidden.includes(run.index), chosen = state.selected.includes(run.index);
  const box = el("input", { type: "checkbox", checked: shown, "aria-label": `show ${run.label}` });
  box.addEventListener("change", () => change({ hidden: toggled(state.hidden, run.index) }));
  const orders = [...new Set(RUNS.slice(0, OWN).map(other => other.data))].filter(order => order != null);
  const data = run.published
    ? run.data && el("span", { class: "flag", title: "most likely saw another data order than its siblings" }, "⚑")
    : orders.length > 1 && run.data != null && el("span", { class: "data", title: "runs of one letter saw the same batches in the same order" }, letter(orders.indexOf(run.data)));
  const log = run.log && el("span", { class: "flag", title: `a log of ${run.log}, said to be of this lock: on trust` }, "log");
  const spikes = run.spikes.length && el("span", { class: "flag", title: `loss spikes: ${run.spikes.map(s => `${short(s.from)}–${short(s.to)} (+${fmt(s.excess)})`).join(", ")}` }, `▲${run.spikes.length}`);
  return el("tr", { "data-run": run.index, class: shown ? "" : "hidden" },
    el("th", { scope: "row" }, box, swatch(colourOf(run), dashOf(run)),
      el("button", { class: "name", type: "button", "aria-pressed": String(chosen), title: `${run.label}: select; two selected runs are compared`, onclick: () => select(run.index) }, run.label), log || null, data || null, spikes || null, run.diverged ? el("span", { class: "flag", title: `diverged at step ${run.diverged}: it has no final value` }, `✗${run.diverged}`) : null),
    el("td", { class: "value" }), el("td", { class: "delta" }));
}

/* Values of every run at a place, and their distance from their twins. */
function readout(spec, x) {
  const value = line => {
    const at = after(line.xs, x);
    return at ? line.values[at - 1] : null;
  };
  document.getElementById("where").textContent = `${AXES[state.x].label} ${state.x === "steps" ? Math.floor(x) : short(x)}`;
  document.getElementById("what").title = spec.title;
  for (const row of document.querySelectorAll("#legend tr[data-run]")) {
    const line = spec.lines.find(line => line.run.index === +row.dataset.run && !line.mean && !line.arm);
    const twin = line && spec.lines.find(other => other.run === line.run.twin && !other.pair && !other.arm);
    const [own, other] = [line && value(line), twin && value(twin)];
    row.querySelector(".value").textContent = own == null ? "" : withUnit(own, spec.of, spec.zero ? signed : fmt, spec.zero ? POINTS : {});
    row.querySelector(".delta").textContent = own == null || other == null ? "" : withUnit(own - other, spec.of, signed, POINTS);
  }
}

/* Selecting a third run lets the first go. */
function select(index) {
  state.selected = toggled(state.selected, index).slice(-2);
  draw();
}

/* A pair that nobody declared before the runs is marked so. */
function exploratory(a, b, judgement) {
  if (judgement && judgement.declared) return null;
  const reason = a.published || b.published ? "one of them is published" : a.log || b.log ? "one of them is a log of another program, on trust" : a.part !== b.part || a.part == null ? "no comparison holds both runs" : "their comparison does not pair them";
  return el("p", { class: "amber", id: "exploratory" }, `exploratory: selected by hand; ${reason}, so no declared test covers this pair`);
}

/* What two selected runs differ in, as their locks say. */
function two() {
  if (state.selected.length !== 2) return [];
  const [a, b] = state.selected.map(at => RUNS[at]);
  const judgement = judged(a, b);
  const [first, second] = judgement ? [judgement.first, judgement.second] : [a, b];
  const known = judgement && judgement.headline != null;
  const differs = known ? judgement.differs : FIELDS.filter(({ path }) => (a.fields[path] ?? null) !== (b.fields[path] ?? null)).map(({ path }) => ["differs", path, a.fields[path], b.fields[path], ""]);
  const batches = a.published || b.published || !judgement ? "" : judgement.unknown ? "Whether they saw the same batches is not known: an engine logged no digests of some steps." : judgement.other == null ? "They saw the same batches at every step." : `Their batches differ from step ${judgement.other} on.`;
  const verdict = known ? el("p", { class: `design${{ not_controlled: " bad", bundle: " amber", tuned: " amber" }[judgement.design] || ""}`, id: "verdict" }, `design: ${judgement.headline}`) : el("p", { class: "soft", id: "verdict" }, a.published || b.published ? "One of them is published, so there is no lock to judge; what is known of both:" : a.log || b.log ? "A log is not judged, since only its reader says that it is of its lock. The fields of the locks differ in:" : "Not judged here; `canonc diff` on their locks says whether they are controlled. Their fields differ in:");
  const cell = value => el("td", {}, value == null ? el("span", { class: "soft" }, "nothing") : el("code", {}, value));
  return [
    el("h2", {}, `What ${first.label} and ${second.label} differ in`), verdict, exploratory(a, b, judgement), el("p", { class: "soft" }, batches),
    el("div", { class: "wide" }, el("table", { id: "differences" }, el("thead", {}, el("tr", {}, ...["field", "kind", first.label, second.label, ""].map(text => el("th", { scope: "col" }, text)))),
      el("tbody", {}, ...differs.map(([kind, path, one, other, note]) => el("tr", {}, el("th", { scope: "row" }, el("code", {}, path)), el("td", { class: kind === "confound" || kind === "training" ? "bad" : "soft" }, kind), cell(one), cell(other), el("td", { class: "soft" }, note)))))),
  ].filter(Boolean);
}
