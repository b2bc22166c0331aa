// Charts by the bundled library; a small plugin adds spread marks that it does not have.
const spread_marks = {
  id: "spread_marks",
  afterDatasetsDraw(chart) {
    const { ctx } = chart;
    chart.data.datasets.forEach((dataset, index) => {
      if (!dataset.spread || !chart.isDatasetVisible(index)) return;
      const axis = chart.scales[chart.options.indexAxis === "y" ? "x" : "y"];
      ctx.save();
      ctx.strokeStyle = css("--fg");
      ctx.lineWidth = 1.5;
      chart.getDatasetMeta(index).data.forEach((bar, i) => {
        const range = dataset.spread[i];
        if (!range) return;
        const [a, b] = range.map((value) => axis.getPixelForValue(value));
        ctx.beginPath();
        ctx.moveTo(a, bar.y); ctx.lineTo(b, bar.y);
        for (const end of [a, b]) { ctx.moveTo(end, bar.y - 5); ctx.lineTo(end, bar.y + 5); }
        ctx.stroke();
      });
      ctx.restore();
    });
  },
};
function chart_defaults() {
  Chart.defaults.color = css("--fg");
  Chart.defaults.borderColor = css("--line");
  Chart.defaults.font.family = 'system-ui, "DejaVu Sans", sans-serif';
  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
}
// A chart with a text alternative; its figures also stand in a table of the page.
function chart(label, config) {
  const canvas = element("canvas", { role: "img", "aria-label": label });
  const box = element("div", { class: "chart" }, canvas);
  requestAnimationFrame(() => { canvas.chart = new Chart(canvas, config); });
  return box;
}
const logarithmic = (title) => ({ type: "logarithmic", title: { display: true, text: title } });

function time_bars(variants) {
  const device = variants.map((v) => v.device_time_us.p50);
  return chart(`Device time per call: ${variants.map((v) => `${v.name} ${time(v.device_time_us.p50)}`).join(", ")}`, {
    type: "bar",
    data: { labels: variants.map((v) => v.name), datasets: [{ label: "device time, median (mark: p10–p90)", data: device,
      backgroundColor: css("--k-gemm"), spread: variants.map((v) => [v.device_time_us.p10 ?? v.device_time_us.p50, v.device_time_us.p90]) }] },
    options: { indexAxis: "y", scales: { x: { beginAtZero: true, title: { display: true, text: "µs per call" } } },
      plugins: { tooltip: { callbacks: { label: (item) => time(item.raw) } } } },
    plugins: [spread_marks],
  });
}
function host_device_bars(variants) {
  return chart("Host time against device time per call, logarithmic", {
    type: "bar",
    data: { labels: variants.map((v) => v.name), datasets: [
      { label: "host", data: variants.map((v) => v.host_time_us?.p50), backgroundColor: css("--k-host") },
      { label: "device", data: variants.map((v) => v.device_time_us.p50), backgroundColor: css("--k-gemm") }] },
    options: { scales: { y: logarithmic("µs per call") }, plugins: { tooltip: { callbacks: { label: (item) => `${item.dataset.label} ${time(item.raw)}` } } } },
  });
}
// points: [{name, intensity (FLOP/byte), flops (FLOP/s)}]; peaks {flops, bytes_per_s}
function roofline(points, peaks) {
  const ridge = peaks.flops / peaks.bytes_per_s;
  const low = Math.min(ridge, ...points.map((p) => p.intensity)) / 4, high = Math.max(ridge, ...points.map((p) => p.intensity)) * 4;
  const roof = [low, ridge, high].map((x) => ({ x, y: Math.min(peaks.flops, x * peaks.bytes_per_s) / 1e12 }));
  return chart(`Roofline: ${points.map((p) => `${safe(p.name, 40)} ${(p.flops / 1e12).toPrecision(3)} TFLOP/s at ${p.intensity.toPrecision(3)} FLOP per byte`).join("; ")}`, {
    type: "scatter",
    data: { datasets: [
      { label: "measured peak", type: "line", data: roof, borderColor: css("--fg"), pointRadius: 0, borderWidth: 2 },
      ...points.map((p, i) => ({ label: safe(p.name, 40), data: [{ x: p.intensity, y: p.flops / 1e12 }], pointRadius: 7,
        pointStyle: ["circle", "rect", "triangle", "rectRot", "star", "crossRot"][i % 6],
        borderColor: css("--fg"), backgroundColor: kind_colour(KINDS[i % KINDS.length]) }))] },
    options: { scales: { x: logarithmic("FLOP per byte moved"), y: logarithmic("TFLOP/s") } },
  });
}
// rows: sweep points {series, x, …}; crossings are ringed where the new leader is first ahead.
function sweep_chart(title, axis, unit, rows, crossings, pick) {
  const names = [...new Set(rows.map((r) => r.series))];
  const colour = (i) => kind_colour(KINDS[i % KINDS.length]);
  const line = (name, i) => ({ label: name, data: rows.filter((r) => r.series === name && known(pick(r))).map((r) => ({ x: r.x, y: pick(r) })),
    borderColor: colour(i), backgroundColor: colour(i), borderDash: [[], [6, 3], [2, 2]][i % 3], pointStyle: ["circle", "rect", "triangle", "rectRot", "star", "crossRot"][i % 6] });
  const rings = crossings.map((c) => rows.find((r) => r.series === c.to && r.x === c.before)).filter((r) => r && known(pick(r))).map((r) => ({ x: r.x, y: pick(r) }));
  const datasets = names.map(line);
  if (rings.length) datasets.push({ label: "overtakes", data: rings, showLine: false, pointRadius: 11, pointStyle: "circle", borderColor: css("--fg"), backgroundColor: "transparent", borderWidth: 2 });
  return chart(title, { type: "line", data: { datasets }, options: { scales: { x: logarithmic(axis), y: logarithmic(unit) } } });
}
