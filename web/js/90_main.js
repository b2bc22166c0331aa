function start_timelines() {
  return (page.timelines ?? []).filter((t) => t.events.length).map((t) => {
    const line = new Timeline(t, page.names, page.kinds, `Timeline of ${safe(t.name, 80)}`);
    line.title = t.name;
    return line;
  });
}
function timeline_section(timelines) {
  if (!timelines.length) return;
  const holder = element("div"), buttons = timelines.map((t, i) => element("button", { type: "button", text: safe(t.title, 60), "aria-pressed": "false", onclick: () => show(i) }));
  const show = (index) => {
    buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(i === index)));
    holder.replaceChildren(timelines[index].node);
    timelines[index].draw();
  };
  for (const [i, t] of timelines.entries()) { const original = t.select_ordinal.bind(t); t.select_ordinal = (ordinal) => t.events.some((e) => e[5] === ordinal) && (show(i), original(ordinal)); }
  section("Timeline", element("p", { class: "note", text: "Host above, device below; an arrow leads from a launch to what it launched. W S zoom, A D move, drag, wheel." }),
    timelines.length > 1 ? element("div", { class: "buttons" }, ...buttons) : null, kind_legend(page.kinds), holder);
  show(0);
}

function compare_page(result, timelines) {
  const shown = result.variants.filter((v) => v.status === "ok"), refused = result.variants.filter((v) => v.status !== "ok");
  const guess = (v) => (known(v.kernels_guess) ? v.kernels_guess : null);
  const marked = (seen, expected) => (known(expected) && seen !== expected ? { text: `${count(seen)} ◄ guessed ${count(expected)}`, class: "broken" } : { text: count(seen) });
  section("Guess beside what was seen", table("Variants", [
    { title: "variant", cell: (v) => v.name },
    { title: "kernels", number: true, cell: (v) => marked(v.kernels_per_forward, guess(v)) },
    { title: "copies", number: true, cell: (v) => marked(v.copies_per_forward, 0) },
    { title: "fills", number: true, cell: (v) => count(v.fills_per_forward) },
    { title: "device time p50 (p90)", number: true, cell: (v) => `${time(v.device_time_us.p50)} (${time(v.device_time_us.p90)})` },
    { title: "host p50", number: true, cell: (v) => time(v.host_time_us?.p50) },
    { title: "TFLOP/s", number: true, cell: (v) => (known(v.tflops) ? v.tflops.toPrecision(3) : "unknown") },
    { title: "intermediate", number: true, cell: (v) => bytes(v.intermediate_bytes) },
    { title: "error against f64", number: true, cell: (v) => (known(v.error?.max_abs) ? `${v.error.max_abs.toExponential(1)}${known(v.error.tolerance) ? ` (limit ${Number(v.error.tolerance).toExponential(1)})` : ""}` : "unknown") },
  ], shown));
  section("Times", element("div", { class: "grid" }, time_bars(shown), host_device_bars(shown)));
  section("Kernels per forward", ...strips(shown));
  timeline_section(timelines);
  const findings = [...(result.findings ?? []), ...shown.flatMap((v) => (v.findings ?? []).map((f) => ({ ...f, range: f.range || v.name })))];
  section("Findings", ...findings_list(findings, timelines));
  if (refused.length) {
    section("Refused", ...refused.map((v) => element("div", {}, element("h3", { text: v.name }), element("ul", {}, ...(v.reasons ?? []).map((r) =>
      element("li", { text: typeof r === "string" ? safe(r, 600) : `${safe(r.message, 600)}${r.remedy ? ` → ${safe(r.remedy, 300)}` : ""}` }))))));
  }
  const kernels = shown.flatMap((v) => (v.kernels ?? []).map((k) => ({ ...k, variant: v.name }))).filter((k) => known(k.occupancy_pct));
  if (kernels.length) section("Occupancy", ...occupancy_panel(kernels));
  const peaks = result.machine?.peaks;
  const points = shown.filter((v) => known(v.tflops) && known(v.bytes_moved) && v.bytes_moved > 0)
    .map((v) => ({ name: v.name, flops: v.tflops * 1e12, intensity: (v.tflops * 1e12 * v.device_time_us.p50 * 1e-6) / v.bytes_moved }));
  if (peaks && known(peaks.flops) && known(peaks.bytes_per_s) && points.length) section("Roofline", roofline(points, peaks));
  machine_section(result.machine, result.request);
}

function explain_page(result, timelines) {
  section("Findings", ...findings_list(result.findings ?? [], timelines));
  if (result.attention?.length) {
    section("Attention", table("Attention calls", [
      { title: "operator", name: true, cell: (a) => safe(a.op, 80) }, { title: "implementation", cell: (a) => safe(a.implementation, 60) }, { title: "pass", cell: (a) => a.pass },
      { title: "calls", number: true, cell: (a) => count(a.calls) }, { title: "kernels", number: true, cell: (a) => count(a.kernels) },
      { title: "device time", number: true, cell: (a) => time(a.device_us) }, { title: "dtype", cell: (a) => safe(a.dtype ?? "unknown") },
      { title: "shape", cell: (a) => safe(Array.isArray(a.shape) ? a.shape.join("×") : a.shape ?? "unknown", 80) }, { title: "mask", cell: (a) => safe(a.mask ?? "unknown") }], result.attention));
  }
  timeline_section(timelines);
  const top = [...(result.kernels ?? [])].filter((k) => known(k.device_us ?? k.time_us)).sort((a, b) => (b.device_us ?? b.time_us) - (a.device_us ?? a.time_us));
  const groups = new Map();
  const kind = (k) => kind_of(k.kind ?? k.event);  // copies and fills carry no kernel kind
  for (const k of top) groups.set(kind(k), (groups.get(kind(k)) ?? 0) + (k.device_us ?? k.time_us));
  if (groups.size) {
    const kinds = [...groups.keys()].sort((a, b) => groups.get(b) - groups.get(a));
    section("Where the device time goes", chart(`Device time by kind: ${kinds.map((k) => `${k} ${time(groups.get(k))}`).join(", ")}`, {
      type: "bar", data: { labels: kinds, datasets: [{ label: "device time, summed", data: kinds.map((k) => groups.get(k)), backgroundColor: kinds.map(kind_colour) }] },
      options: { indexAxis: "y", plugins: { legend: { display: false }, tooltip: { callbacks: { label: (item) => time(item.raw) } } }, scales: { x: { title: { display: true, text: "µs" } } } } }),
    table("Kernels", [{ title: "kernel", name: true, cell: (k) => safe(k.name, 120) }, { title: "kind", cell: kind }, { title: "calls", number: true, cell: (k) => count(k.calls ?? k.count) },
      { title: "device time", number: true, cell: (k) => time(k.device_us ?? k.time_us) }, { title: "occupancy", number: true, cell: (k) => percent(k.occupancy_theoretical_pct) },
      { title: "limited by", cell: (k) => safe(k.occupancy_limiter ?? "unknown") }, { title: "link", cell: (k) => safe(k.link?.basis ?? "unknown") }], top.slice(0, 40)),
    top.length > 40 ? element("p", { class: "note", text: `${count(top.length - 40)} more kernels are in the raw data.` }) : null);
  }
  if (result.ranges?.length) {
    const ranges = [...result.ranges].sort((a, b) => (b.process?.device_us ?? b.host_us) - (a.process?.device_us ?? a.host_us));
    section("Ranges and operators", table("Ranges", [{ title: "range", name: true, cell: (r) => safe(r.name, 100) }, { title: "calls", number: true, cell: (r) => count(r.calls) }, { title: "host time", number: true, cell: (r) => time(r.host_us) },
      { title: "kernels (own thread)", number: true, cell: (r) => count(r.own_thread?.kernels) }, { title: "kernels (process)", number: true, cell: (r) => count(r.process?.kernels) },
      { title: "copies", number: true, cell: (r) => count(r.process?.copies) }, { title: "fills", number: true, cell: (r) => count(r.process?.fills) }, { title: "device time", number: true, cell: (r) => time(r.process?.device_us) }], ranges.slice(0, 40)),
    ranges.length > 40 ? element("p", { class: "note", text: `${count(ranges.length - 40)} more ranges are in the raw data.` }) : null);
  }
  const with_occupancy = top.filter((k) => known(k.occupancy_theoretical_pct)).slice(0, 200);
  if (with_occupancy.length) section("Occupancy", ...occupancy_panel(with_occupancy));
  if (result.diagnostics?.length) section("Oddities of this file", table("Diagnostics", [{ title: "what", cell: (d) => safe(d.id) }, { title: "count", number: true, cell: (d) => count(d.count) }, { title: "advice", name: true, cell: (d) => safe(d.advice, 400) }], result.diagnostics));
  machine_section(result.trace, null);
}

function sweep_page(result) {
  const rows = result.points, crossings = result.crossings ?? [];
  const axis = { seq: "sequence length", head_dim: "head_dim", batch: "batch", heads: "heads" }[result.axes[0].name];
  section(`Over ${axis}`, element("div", { class: "grid" }, sweep_chart(`Device time over ${axis}`, axis, "µs per call", rows, crossings, (r) => r.device_us),
    sweep_chart(`TFLOP/s over ${axis}`, axis, "TFLOP/s", rows, crossings, (r) => r.tflops)));
  if (crossings.length) section("Where the order changes", table("Crossing points", [{ title: "from", cell: (c) => safe(c.from) }, { title: "to", cell: (c) => safe(c.to) }, { title: `between (${axis})`, cell: (c) => `${count(c.after)} and ${count(c.before)}` }], crossings));
  section("Points", table("Points", [{ title: "variant", cell: (r) => safe(r.series) }, { title: axis, number: true, cell: (r) => count(r.x) },
    { title: "device time p50 (p10–p90)", number: true, cell: (r) => (r.status === "ok" ? `${time(r.device_us)} (${time(r.p10_us)}–${time(r.p90_us)})` : safe(r.reason, 120)) },
    { title: "TFLOP/s", number: true, cell: (r) => (known(r.tflops) ? r.tflops.toPrecision(3) : "unknown") }, { title: "error against f64", number: true, cell: (r) => (known(r.rel_l2) ? r.rel_l2.toExponential(1) : "unknown") }], rows));
  machine_section(result.machine, null);
}

function flat_rows(object, prefix = "") {
  return Object.entries(object ?? {}).flatMap(([key, value]) => (value !== null && typeof value === "object" && !Array.isArray(value) ? flat_rows(value, `${prefix}${key}.`)
    : [{ key: prefix + key, value: Array.isArray(value) ? value.map((x) => (typeof x === "object" ? JSON.stringify(x) : x)).join(", ") : value === null ? "unknown" : String(value) }]));
}
function machine_section(machine, request) {
  const columns = [{ title: "what", cell: (r) => safe(r.key) }, { title: "value", name: true, cell: (r) => safe(r.value, 300) }];
  section("Machine and measurement", table("Machine", columns, flat_rows(machine)), request ? element("h3", { text: "Request" }) : null, request ? table("Request", columns, flat_rows(request)) : null,
    page.method ? element("p", { text: safe(page.method, 1000) }) : null);
}

// Perfetto's documented message interface; it needs a page with an origin, so not from a file: address.
function open_in_perfetto(buffer, title) {
  const tab = window.open("https://ui.perfetto.dev");
  const ping = setInterval(() => tab.postMessage("PING", "https://ui.perfetto.dev"), 50);
  const answer = (event) => {
    if (event.origin !== "https://ui.perfetto.dev" || event.data !== "PONG") return;
    clearInterval(ping);
    window.removeEventListener("message", answer);
    tab.postMessage({ perfetto: { buffer, title } }, "https://ui.perfetto.dev");
  };
  window.addEventListener("message", answer);
  setTimeout(() => clearInterval(ping), 30000);
}
function trace_bytes(base64) { return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)); }

function start() {
  chart_defaults();
  document.getElementById("version").textContent = page.version ?? "";
  document.getElementById("verdict").textContent = safe(page.verdict, 400);
  document.getElementById("subtitle").textContent = safe(page.subtitle, 400);
  const buttons = document.getElementById("buttons");
  buttons.append(element("button", { type: "button", text: "Download the data (JSON)", onclick: () => download("attnscope.json", "application/json", JSON.stringify(page.result, null, 1)) }));
  for (const trace of page.traces ?? []) {
    buttons.append(element("button", { type: "button", text: `Download trace: ${safe(trace.name, 60)}`, onclick: () => download(trace.file, "application/gzip", trace_bytes(trace.gzip_base64)) }));
    if (location.protocol !== "file:") buttons.append(element("button", { type: "button", text: `Open ${safe(trace.name, 60)} in Perfetto`, onclick: () => open_in_perfetto(trace_bytes(trace.gzip_base64).buffer, safe(trace.name, 60)) }));
  }
  const timelines = start_timelines();
  ({ compare: compare_page, explain: explain_page, sweep: sweep_page })[page.kind](page.result, timelines);
}
start();
