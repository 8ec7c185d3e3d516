/* Works a report as a person does, by its buttons, lists, boxes and keys, and leaves what it saw as JSON in #driven.
   ONLY names the steps to take, and none means all. The page's own functions are called only to read their results. A
   step that throws is listed in `broken`, so that the test names it. */
(async () => {
  const saw = { broken: [] };
  const $ = id => document.getElementById(id);
  const click = id => $(id).click();
  const chart = key => charts.find(one => one.spec.key === key);
  const step = async (name, work) => { if (ONLY.length && !ONLY.includes(name)) return; try { saw[name] = await work(); } catch (error) { saw.broken.push(`${name}: ${error.stack}`); } };
  const type = (id, value, event) => { $(id).value = value; $(id).dispatchEvent(new Event(event, { bubbles: true })); };
  const press = key => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const lines = key => Object.fromEntries(chart(key).spec.lines.map(line => [line.label, { x: line.xs.at(-1), y: line.values.at(-1), points: line.xs.length }]));
  const name = label => [...document.querySelectorAll("#legend .name")].find(one => one.textContent === label);
  const rows = () => [...document.querySelectorAll("#legend tr[data-run]")].map(row => row.querySelector(".name").textContent);
  // Charts draw in microtasks, some of which make others.
  const settled = async () => { for (let i = 0; i < 20; i++) await null; };
  const saved = [];
  URL.createObjectURL = blob => { saved.push(blob); return "#saved"; };
  const downloads = [];
  HTMLAnchorElement.prototype.click = function () { downloads.push(this.download); };

  await step("first", () => ({ loss: lines("training loss"), rows: rows(), charts: charts.map(one => one.spec.key), smooth: state.smooth, x: state.x }));
  click("x-steps");
  await step("smoothed", () => { type("smooth", "5", "input"); return lines("training loss"); });
  await step("raw", () => { type("smooth", "1", "input"); return { loss: lines("training loss"), pair: lines("pair 0") }; });
  await step("marks", () => ({ note: document.querySelector("[data-chart='pair 0'] p").textContent, spikes: RUNS.map(run => run.spikes.length), data: RUNS.map(run => run.data) }));
  await step("band", () => { const { band, note } = chart("pair 0").spec; return { note, band: band && { x: band.xs.at(-1), y: band.values.at(-1), points: band.xs.length } }; });
  await step("jitter", () => { const { spec } = charts.find(one => one.spec.band && one.spec.band.jitter != null); return [spec.band.values === undefined, spec.note]; });
  await step("tokens", () => { click("x-tokens"); return { loss: lines("training loss"), label: document.querySelector("[data-chart='training loss'] p").textContent }; });
  await step("time", () => { click("x-time"); return lines("training loss"); });
  await step("timed", () => document.querySelector("[data-chart='training loss'] p").textContent);
  await step("share", () => { click("x-share"); return lines("training loss"); });
  await step("steps", () => { click("x-steps"); return lines("training loss"); });
  await step("log", () => { click("logx"); click("logy"); const { scales } = chart("training loss").u; const on = [scales.x.distr, scales.y.distr, $("logy").getAttribute("aria-pressed")]; const pair = chart("pair 0").u.scales.y.distr, linear = document.querySelector("[data-chart='pair 0'] p").textContent; press("k"); press("l"); const { scales: off } = chart("training loss").u; return { on, pair, linear, off: [off.x.distr, off.y.distr] }; });
  await step("range", async () => { type("from", "10", "change"); type("to", "20", "change"); await settled(); const { min, max } = chart("training loss").u.scales.x; return [min, max, location.hash.includes("from")]; });
  await step("csv", async () => { click("csv"); return saved.at(-1).text(); });
  await step("cells", () => ["=1+1", "-x", 'a,"b"', .5, NaN].map(csvCell));
  await step("whole", async () => { press("r"); await settled(); const { min, max } = chart("training loss").u.scales.x; return [min, max]; });
  await step("dragged", async () => {
    click("x-share");
    const { u } = chart("training loss");
    await settled();
    const box = u.over.getBoundingClientRect();
    const mouse = (what, x, target) => target.dispatchEvent(new MouseEvent(what, { clientX: box.left + u.valToPos(x, "x"), clientY: box.top + 60, movementX: 5, bubbles: true }));
    mouse("mouseenter", 20, u.over); mouse("mousedown", 20, u.over); mouse("mousemove", 35, u.over); mouse("mousemove", 50, u.over); mouse("mouseup", 50, document);
    await settled();
    const range = [state.from, state.to], scale = chart("pair 0").u.scales.x;
    await settled();
    const other = [scale.min, scale.max];
    chart("pair 0").u.over.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
    await settled();
    return { range, other, after: [state.from, state.to] };
  });
  await step("clicked", async () => {
    const { u, spec } = chart("training loss");
    await settled();
    const box = u.over.getBoundingClientRect(), line = spec.lines.find(line => line.label === "treated #1");
    const point = { clientX: box.left + u.valToPos(75.5, "x"), clientY: box.top + u.valToPos(line.values[44], "y"), bubbles: true };
    for (const what of ["mousedown", "mouseup", "click"]) u.over.dispatchEvent(new MouseEvent(what, point));
    await settled();
    const chosen = state.selected.map(at => RUNS[at].label);
    press("Escape");
    click("x-steps");
    return chosen;
  });
  await step("hover", async () => {
    const { u } = chart("training loss");
    await settled();
    u.over.dispatchEvent(new MouseEvent("mouseenter"));
    u.setCursor({ left: u.valToPos(30.4, "x"), top: 10 });
    const cells = [...document.querySelectorAll("#legend tr[data-run]")].map(row => [row.querySelector(".name").textContent, row.querySelector(".value").textContent, row.querySelector(".delta").textContent]);
    return { where: $("where").textContent, cells };
  });
  await step("filtered", () => {
    type("filter-field", "arch", "change"); type("filter-value", "smallcanon", "change");
    const seen = { rows: rows(), lines: Object.keys(lines("training loss")) };
    [...document.querySelectorAll("#panel button")].find(one => one.textContent.startsWith("arch = ")).click();
    return { ...seen, after: rows().length };
  });
  await step("searched", () => { type("text", "seeds.init=12 plain", "input"); const matching = rows(); type("text", "", "input"); return matching; });
  await step("hidden", () => { document.querySelector("#legend tr[data-run='1'] input").click(); const drawn = Object.keys(lines("training loss")); document.querySelector("#legend tr[data-run='1'] input").click(); return drawn; });
  await step("coloured", () => { const before = colourOf(RUNS[0]) === colourOf(RUNS[1]); type("colour", "seeds.init", "change"); const after = colourOf(RUNS[0]) === colourOf(RUNS[1]); const groups = [...document.querySelectorAll("#legend tr.head b")].map(one => one.textContent); type("colour", "arm", "change"); return { before, after, groups }; });
  await step("metric", () => { type("pairs-of", "eval_loss", "change"); const seen = lines("pair 0"); type("pairs-of", "training loss", "change"); return seen; });
  await step("selected", () => {
    name("plain #1").click(); name("treated #1").click();
    const differences = [...document.querySelectorAll("#differences tbody tr")].map(row => [...row.children].map(cell => cell.textContent));
    const faint = chart("training loss").u.series.slice(1).map(series => [series.line.label, series.alpha < 1]);
    const table = [...document.querySelectorAll("#finals tr.selected")].map(row => row.firstChild.textContent);
    return { verdict: $("verdict").textContent, class: $("verdict").className, exploratory: $("exploratory") && $("exploratory").textContent, differences, faint, table, text: $("two").textContent };
  });
  await step("confounded", () => { name("plain #2").click(); return { verdict: $("verdict").textContent, exploratory: $("exploratory").textContent, charts: charts.map(one => one.spec.key) }; });
  await step("escaped", () => { press("Escape"); return [$("two").textContent, state.selected.length]; });
  await step("theme", () => { const paper = () => getComputedStyle(document.body).backgroundColor; const seen = [document.documentElement.dataset.theme]; click("theme"); seen.push(paper()); press("t"); seen.push(document.documentElement.dataset.theme, paper()); press("t"); return seen; });
  await step("help", () => { press("?"); const open = $("keys").open, keys = $("key-list").children.length; $("keys").close(); return [open, keys]; });
  await step("png", async () => {
    const canvas = picture(), data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, colours = new Set();
    for (let at = 0; at < data.length; at += 4) colours.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
    const url = canvas.toDataURL("image/png");
    click("png");
    return { start: url.slice(0, 32), bytes: url.length, colours: colours.size, width: canvas.width, height: canvas.height };
  });
  await step("downloads", () => downloads.slice());
  await step("unnamed", () => [...document.querySelectorAll("button, input, select, [tabindex='0'], summary")].filter(one => !one.textContent.trim() && !one.getAttribute("aria-label") && !(one.labels && one.labels.length)).map(one => one.outerHTML.slice(0, 90)));
  await step("unreachable", () => [...document.querySelectorAll("button, input, select, summary")].filter(one => one.tabIndex < 0).map(one => one.outerHTML.slice(0, 90)));
  await step("opened", () => { const all = [...document.querySelectorAll("#charts details")]; return all.map(one => one.firstChild.textContent); });
  await step("outside", () => ({ requests: performance.getEntriesByType("resource").map(one => one.name), images: document.images.length, hacked: "hacked" in window, scripts: document.scripts.length }));
  await step("still", () => ({ shown: getComputedStyle(document.querySelector("section.still")).display, pictures: document.querySelectorAll(".still svg").length, paper: [...document.styleSheets].some(sheet => [...sheet.cssRules].some(rule => rule.media && rule.media.mediaText === "print")) }));
  await step("options", () => [...$("filter-field").options].map(one => one.value));
  await step("values", () => { type("filter-field", "data.source", "change"); return [...$("filter-value").options].map(one => one.textContent); });
  await step("warned", () => [...document.querySelectorAll(".warnings li")].map(one => ({ text: one.textContent, shown: one.checkVisibility() })));
  const both = (a, b) => { press("Escape"); for (const run of [a, b]) document.querySelector(`#legend tr[data-run='${run.index}'] .name`).click(); const selected = charts.find(one => one.spec.key === "selected"); return { verdict: $("verdict").textContent, exploratory: $("exploratory") && $("exploratory").textContent, note: selected ? selected.spec.note : null }; };
  const first = (part, role) => RUNS.find(run => run.part === part && run.role === role);
  await step("declared", () => ({ ...both(first(RUNS[OWN - 1].part, "base"), first(RUNS[OWN - 1].part, "treatment")), unjudged: PAIRS.filter(pair => !pair.published).flatMap(pair => pair.lines).filter(({ treated, base }) => { const judgement = judged(base, treated); return !judgement || !judgement.declared || judgement.headline == null; }).length }));
  await step("crossed", () => RUNS.some(run => run.part === 1) ? both(first(0, "base"), first(1, "treatment")) : null);
  press("Escape");
  // Numbers of a table that have neither a unit nor a head that says what is counted.
  await step("units", () => [...document.querySelectorAll("section[aria-labelledby='end'] table, #finals")].flatMap(table => { const heads = [...table.tHead.rows[0].cells].map(cell => cell.textContent); return [...table.tBodies[0].rows].flatMap(row => [...row.cells].map((cell, at) => [heads[at], cell.textContent])); }).filter(([head, text]) => /^[±+×-]?[0-9.]/.test(text) && !/(nats|pp|%|bits|ms|tokens|targets|questions|sentences|windows|steps?|repetitions)\b|%|×|seeds/.test(text) && !/^(p|p, Holm|sign-flip p|parameters|training FLOPs per run|activations per token|points tried|runs|tokens of all runs|tokens|spikes|lock)$/.test(head)));
  await step("words", () => [...document.querySelectorAll("section[aria-labelledby='end'] tbody tr[class]")].map(row => [row.className, getComputedStyle(row.querySelector("th"), "::after").content, row.querySelector("th").getBoundingClientRect().right < innerWidth]));
  await step("logged", () => { if (!state.logy) click("logy"); const seen = charts.map(({ spec, u, host }) => ({ key: spec.key, distr: u.scales.y.distr, note: host.closest(".chart").querySelector("p").textContent })); click("logy"); return seen; });
  await step("titles", () => charts.filter(({ spec }) => spec.zero).map(({ spec }) => [spec.title, spec.note]));
  await step("means", async () => {
    const shade = () => { const { u } = chart("training loss"), series = u.series.slice(1); return [series.filter(one => !one.line.arm && !one.faint), series.filter(one => one.line.arm)].map(some => some.map(one => one.alpha < 1)); };
    click("mean"); document.querySelectorAll("#charts details").forEach(one => { one.open = true; }); await new Promise(done => setTimeout(done, 50));
    const seen = { loss: lines("training loss"), speed: lines("tokens per second"), faint: shade() }, count = chart("training loss").spec.lines.length;
    press("m");
    return { ...seen, count: [count, chart("training loss").spec.lines.length] };
  });
  // With every section open: how far the page reaches to the right, and which charts and tables leave it.
  await step("fits", async () => {
    document.querySelectorAll("details").forEach(one => { one.open = true; }); await new Promise(done => setTimeout(done, 50));
    const out = all => [...all].filter(one => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1).map(one => `${one.className}#${one.id}`);
    const boxes = charts.map(({ host }) => Math.round(host.getBoundingClientRect().width));
    return { page: document.scrollingElement.scrollWidth, charts: out(document.querySelectorAll(".chart, .uplot, figure")), tables: [...document.querySelectorAll("table")].filter(one => !one.closest(".wide, #panel")).map(one => one.id), drawn: boxes.length, least: Math.min(...boxes) };
  });
  // What is wider than a small window, but for what scrolls by itself.
  await step("narrow", async () => { const seen = [...document.querySelectorAll("body *")].filter(one => !one.closest(".wide, #charts, .skip, pre, svg") && one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1).map(one => `${one.tagName}.${one.className}#${one.id}`); return [innerWidth, ...new Set(seen)].slice(0, 9); });
  const told = document.createElement("pre");
  told.id = "driven";
  told.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(saw))));
  document.body.append(told);
})();
