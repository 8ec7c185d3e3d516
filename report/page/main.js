/* Draws the page when it is loaded, and again on every change, and handles keys.
   Drawing again keeps the focus where it was. KEYS has every key but the arrows of a chart, and the help shows it. */

const SECTIONS = ["loss", "measures", "optimiser", "speed", "published benchmarks"];
/* Sections in `open` are those whose state the reader changed. */
const openAtFirst = section => section === "loss" || section === "measures" || (section === "published benchmarks" && OWN === 0);
const isOpen = section => openAtFirst(section) !== state.open.includes(section);

function draw() {
  document.documentElement.dataset.theme = state.theme;
  document.getElementById("theme").textContent = `theme: ${state.theme}`;
  paint();
  const focused = document.activeElement, id = focused && focused.id, run = focused && focused.closest && focused.closest("#legend tr[data-run]");
  const spot = focused && focused.selectionStart, tag = focused && focused.tagName, top = document.getElementById("panel").scrollTop;
  document.getElementById("controls").replaceChildren(...controls());
  document.getElementById("panel").replaceChildren(...panel());
  document.getElementById("two").replaceChildren(...two());
  for (const row of document.querySelectorAll("#finals tr[data-run]")) row.classList.toggle("selected", state.selected.includes(+row.dataset.run));
  drawCharts(specs());
  restyle();
  document.getElementById("panel").scrollTop = top;
  const again = run ? document.querySelector(`#legend tr[data-run="${run.dataset.run}"] ${tag.toLowerCase()}`) : id && document.getElementById(id);
  if (again && again !== document.activeElement) {
    again.focus({ preventScroll: true });
    if (spot != null && again.type === "text") again.setSelectionRange(spot, spot);
  }
  remember();
}

function drawCharts(all) {
  for (const { u } of charts) u.destroy();
  charts = [];
  const host = document.getElementById("charts"), waiting = [];
  host.replaceChildren();
  for (const section of SECTIONS) {
    const own = all.filter(spec => spec.section === section);
    if (!own.length) continue;
    const grid = el("div", { class: "grid" });
    if (section === "loss") host.append(grid);
    else host.append(el("details", { open: isOpen(section), ontoggle: event => { if (event.target.open !== isOpen(section)) change({ open: toggled(state.open, section) }); } }, el("summary", {}, `${section} (${own.length})`), grid));
    if (isOpen(section)) for (const spec of own) waiting.push([spec, grid]);
  }
  if (!all.length) host.append(el("p", { class: "empty" }, state.x === "time" ? "No run that is shown has a time for every step: choose another axis." : "No run is shown: clear the filters, or tick one."));
  // All places first: how wide one is depends on how many there are.
  const places = waiting.map(([spec, grid]) => {
    const plot = el("div", { class: "plot", tabindex: 0, role: "group", "aria-roledescription": "chart", "aria-label": `${spec.title} by ${AXES[state.x].label}, ${spec.lines.length} lines; arrow keys move the cursor` });
    const note = [`by ${AXES[state.x].label}`, spec.note].filter(Boolean).join(" · ");
    grid.append(el("div", { class: spec.broad ? "chart broad" : "chart", "data-chart": spec.key }, el("h3", {}, spec.title), el("p", { class: spec.flagged ? "bad soft" : "soft" }, note), plot));
    return [spec, plot];
  });
  for (const [spec, plot] of places) {
    const chart = build(spec, plot);
    if (spec.linear) plot.previousSibling.append(el("b", { class: "linear" }, ` · ${spec.linear}`));
    if (spec.outside) plot.previousSibling.append(` · ${spec.outside} values lie outside (y shows all)`);
    plot.addEventListener("keydown", event => cursorBy(chart, event));
    charts.push(chart);
  }
}

/* Arrow keys on a chart: ten places at a time with shift. */
function cursorBy({ u }, event) {
  const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!way) return;
  event.preventDefault();
  active = u;
  const pixels = u.over.clientWidth, left = u.cursor.left >= 0 ? u.cursor.left : pixels / 2;
  u.setCursor({ left: Math.min(pixels - 1, Math.max(0, left + way * (event.shiftKey ? 40 : 4))), top: 20 });
}

const next = (list, value) => list[(list.indexOf(value) + 1) % list.length];
const KEYS = [
  ["x", "next horizontal axis: steps, tokens, time, share", () => change({ x: next(Object.keys(AXES), state.x), from: null, to: null })],
  ["k", "logarithmic x, or not", () => change({ logx: !state.logx })],
  ["l", "logarithmic y, or not", () => change({ logy: !state.logy })],
  ["y", "cut off what lies far outside, or show all", () => change({ cut: !state.cut })],
  ["m", "the mean of each arm, or not", () => change({ mean: !state.mean && SEEDED })],
  ["+", "smooth more", () => change({ smooth: Math.min(100, state.smooth + 1) })],
  ["-", "smooth less", () => change({ smooth: Math.max(1, state.smooth - 1) })],
  ["r", "the whole range", () => setRange(null, null)],
  ["/", "filter by text", () => document.getElementById("text").focus()],
  ["c", "export what is shown as CSV", saveCsv],
  ["p", "export what is shown as PNG", savePng],
  ["t", "theme: as the system has it, light, dark", () => change({ theme: next(["auto", "light", "dark"], state.theme) })],
  ["Escape", "select nothing, show everything", () => change({ selected: [], hidden: [], filters: [], text: "" })],
  ["?", "these keys", () => document.getElementById("keys").showModal()],
];

document.addEventListener("keydown", event => {
  const typing = event.target.matches("input[type=text], input[type=number], select");
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("keys").open || (typing && event.key !== "Escape")) return;
  const binding = KEYS.find(([key]) => key === event.key);
  if (binding) { event.preventDefault(); binding[2](); }
});
document.getElementById("key-list").append(...KEYS.flatMap(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)]), el("dt", {}, el("kbd", {}, "← →")), el("dd", {}, "move the cursor of the chart that has the focus; with shift further"), el("dt", {}, "drag"), el("dd", {}, "select a range; double-click for all of it"), el("dt", {}, "click"), el("dd", {}, "on a line, a name or a table row: select a run; two are compared"));
document.getElementById("help").addEventListener("click", () => document.getElementById("keys").showModal());
document.getElementById("theme").addEventListener("click", () => change({ theme: next(["auto", "light", "dark"], state.theme) }));
for (const row of document.querySelectorAll("#finals tr[data-run]")) row.addEventListener("click", () => select(+row.dataset.run));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
addEventListener("hashchange", () => { restore(); draw(); });

restore();
draw();
