/* What the page shows and how: the reader's choices, and the colours and dashes that follow from them.
   The choices are kept in the address, so that a link brings the same view. Each key of an address is checked, since anyone
   may have written it. */

const FRESH = {
  // Beside published runs, which are a thousand times as long, one's own would be a dot.
  x: OWN && RUNS.length > OWN ? "share" : "steps", logx: false, logy: false, cut: true, mean: false, smooth: usualWindow(), from: null, to: null, pairsOf: "training loss",
  colour: "arm", shade: varies("optimizer.lr") ? "optimizer.lr" : "", text: "", filters: [], hidden: [], selected: [],
  theme: "auto", open: [],
};
const state = { ...FRESH, filters: [], hidden: [], selected: [], open: [] };

function usualWindow() {
  const longest = Math.max(0, ...RUNS.slice(0, OWN).map(run => (run.series["training loss"] || { values: [] }).values.length));
  return Math.max(1, Math.min(50, Math.round(longest / 60)));
}

function varies(path) {
  const field = FIELDS.find(field => field.path === path);
  return field ? field.values.filter(value => value !== "").length > 1 : false;
}

const isNumber = value => value === null || Number.isFinite(value);
const isRun = value => Number.isInteger(value) && value >= 0 && value < RUNS.length;
const isField = value => value === "" || FIELDS.some(field => field.path === value);
const listOf = check => value => Array.isArray(value) && value.every(check);
const CHECKS = {
  x: value => Object.hasOwn(AXES, value), logx: v => typeof v === "boolean", logy: v => typeof v === "boolean", cut: v => typeof v === "boolean", mean: v => typeof v === "boolean",
  smooth: value => Number.isInteger(value) && value >= 1 && value <= 200, from: isNumber, to: isNumber,
  pairsOf: v => typeof v === "string", colour: isField, shade: isField, text: v => typeof v === "string",
  filters: listOf(two => Array.isArray(two) && two.length === 2 && two.every(v => typeof v === "string")),
  hidden: listOf(isRun), selected: listOf(isRun), theme: v => ["auto", "light", "dark"].includes(v),
  open: listOf(v => typeof v === "string"),
};

function restore() {
  let saved;
  try { saved = JSON.parse(decodeURIComponent(location.hash.slice(1))); } catch { return; }
  if (saved === null || typeof saved !== "object") return;
  for (const key in CHECKS) if (Object.hasOwn(saved, key) && CHECKS[key](saved[key])) state[key] = saved[key];
}

function remember() {
  const changed = {};
  for (const key in CHECKS) if (JSON.stringify(state[key]) !== JSON.stringify(FRESH[key])) changed[key] = state[key];
  const text = Object.keys(changed).length ? "#" + encodeURIComponent(JSON.stringify(changed)) : location.pathname;
  // Some browsers keep local files from writing their address; the view is the same without.
  try { history.replaceState(null, "", text); } catch { /* nothing is lost but the link */ }
}

/* Whether a run passes text and filters; it may still be hidden by its box. */
function passes(run) {
  if (!state.filters.every(([path, value]) => (run.fields[path] ?? "") === value)) return false;
  const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const all = [run.label, run.name, ...Object.entries(run.fields).map(([path, value]) => `${path}=${value}`)].join("\n").toLowerCase();
  return words.every(word => all.includes(word));
}
const isShown = run => passes(run) && !state.hidden.includes(run.index);

/* Okabe and Ito's colours, a little darker so that thin lines keep their contrast on white. */
const COLOURS = ["#0072b2", "#d55e00", "#b8578f", "#009e73", "#b07d00", "#3b8fc4", "#6a51a3", "#7a5230"];
const DASHES = [[], [7, 3], [2, 2], [9, 3, 2, 3]];

const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark"
  || (state.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
const cssVar = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* Part of the way from a colour to white or black. */
function mixed(colour, towards, part) {
  const channel = at => parseInt(colour.slice(at, at + 2), 16);
  const hex = at => Math.round(channel(at) + (towards - channel(at)) * part).toString(16).padStart(2, "0");
  return `#${hex(1)}${hex(3)}${hex(5)}`;
}

/* An arm of one comparison; arms of several may be called alike. */
const armOf = run => `${run.part}/${run.fields.arm}`;
const SEEDED = RUNS.slice(0, OWN).some((run, at, all) => run.part != null && all.findIndex(other => armOf(other) === armOf(run)) < at);

function groupOf(run) { return run.fields[state.colour] ?? "–"; }

/* The groups in the order of their first run. */
function groups() {
  return [...new Set(RUNS.filter(passes).map(groupOf))];
}

/* Colour by group, shade by the rank of another field's value in that group. Worked out once for each drawing. */
let paints = [];
const colourOf = run => paints[run.index];

function paint() {
  const dark = isDark(), members = new Map();
  for (const run of RUNS) members.set(groupOf(run), [...(members.get(groupOf(run)) || []), run]);
  let number = 0;
  for (const runs of members.values()) {
    let colour = COLOURS[number++ % COLOURS.length];
    if (dark) colour = mixed(colour, 255, .28);
    const values = [...new Set(runs.map(run => run.fields[state.shade] ?? ""))].sort((a, b) => a - b || (a < b ? -1 : 1));
    for (const run of runs) {
      const rank = state.shade && values.length > 1 ? values.indexOf(run.fields[state.shade] ?? "") / (values.length - 1) : .5;
      paints[run.index] = rank < .5 ? mixed(colour, 255, (.5 - rank) * .9) : mixed(colour, 0, (rank - .5) * .8);
    }
  }
}

function dashOf(run) {
  if (run.published) return run.canon ? [3, 2] : [1, 3];
  if (run.log) return [5, 2, 1, 2];
  return run.seed == null ? [] : DASHES[(run.seed - 1) % DASHES.length];
}

const strengthOf = runs => !state.selected.length || runs.some(run => state.selected.includes(run.index));
