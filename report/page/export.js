/* Exports of what the charts show, in the range that they show: CSV with one row a point, and PNG with every chart and
   the names of the runs. */

/* Quoted where needed; what a spreadsheet would run gets an apostrophe before it. */
function csvCell(value) {
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvText() {
  const rows = [["chart", "run", "arm", "source", "axis", "x", "raw", "shown", "smoothed_over", "mean_of"]];
  for (const spec of specs().filter(spec => isOpen(spec.section))) for (const line of spec.lines) line.xs.forEach((x, i) => {
    if (line.values[i] == null || x < (state.from ?? -Infinity) || x > (state.to ?? Infinity)) return;
    const raw = (line.raw || line.values)[i];
    rows.push([spec.title, line.label, line.mean || line.arm ? "mean" : line.run.arm, line.run.published ? "published" : line.run.log ? "log on trust" : "own", state.x, x, raw ?? NaN, line.values[i], line.raw ? state.smooth : 1, line.meanOf]);
  });
  return rows.map(row => row.map(csvCell).join(",")).join("\n") + "\n";
}

/* All charts under one another on one canvas, with titles and names. */
function picture() {
  const ratio = devicePixelRatio, width = Math.max(320, ...charts.map(({ u }) => u.width)), runs = RUNS.filter(isShown).slice(0, 60);
  const columns = Math.max(1, Math.floor(width / 240)), rows = Math.ceil(runs.length / columns);
  const height = 34 + rows * 16 + 8 + charts.reduce((sum, { u }) => sum + u.height + 26, 0);
  const canvas = el("canvas", { width: width * ratio, height: height * ratio }), ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  ctx.fillStyle = cssVar("--paper"); ctx.fillRect(0, 0, width, height);
  ctx.fillStyle = cssVar("--ink"); ctx.font = "600 15px system-ui, sans-serif"; ctx.fillText(PAGE.title, 8, 20);
  ctx.font = "11px system-ui, sans-serif";
  runs.forEach((run, at) => {
    const [x, y] = [8 + (at % columns) * 240, 40 + Math.floor(at / columns) * 16];
    ctx.strokeStyle = colourOf(run); ctx.lineWidth = 2; ctx.setLineDash(dashOf(run)); ctx.beginPath(); ctx.moveTo(x, y - 4); ctx.lineTo(x + 22, y - 4); ctx.stroke();
    ctx.setLineDash([]); ctx.fillText(run.label.slice(0, 34), x + 28, y);
  });
  let top = 34 + rows * 16 + 8;
  for (const { u, spec } of charts) {
    ctx.font = "600 12px system-ui, sans-serif"; ctx.fillText(`${spec.title} by ${AXES[state.x].label}`.slice(0, 120), 8, top + 14);
    ctx.drawImage(u.ctx.canvas, 0, top + 20, u.width, u.height);
    top += u.height + 26;
  }
  return canvas;
}

function save(blob, ending) {
  const url = URL.createObjectURL(blob), name = PAGE.title.replace(/[^\w.-]+/g, "_").slice(0, 60) || "report";
  const link = el("a", { href: url, download: `${name}.${ending}` });
  link.click();
  URL.revokeObjectURL(url);
}

function saveCsv() { save(new Blob([csvText()], { type: "text/csv" }), "csv"); }
function savePng() { picture().toBlob(blob => { if (blob) save(blob, "png"); }, "image/png"); }
