// One multiprocessor as a picture: which blocks fit, what they use, which resource runs out first.
function sm_picture(kernel) {
  const o = kernel.occupancy ?? {};
  const title = safe(kernel.name, 120);
  if (!known(kernel.occupancy_pct ?? kernel.occupancy_theoretical_pct)) {
    return element("p", { text: `${title}: occupancy is not known here (${safe(kernel.occupancy_reason ?? "a CPU kernel, or the trace holds no register and shared-memory figures")}).` });
  }
  const pct = kernel.occupancy_pct ?? kernel.occupancy_theoretical_pct;
  const max_warps = o.max_warps ?? 64, block_threads = (kernel.block ?? []).reduce((a, b) => a * b, 1), block_warps = Math.ceil(block_threads / 32);
  const active_warps = Math.round((pct / 100) * max_warps), blocks = o.blocks_per_sm ?? Math.round(active_warps / Math.max(block_warps, 1));
  const picture = svg("svg", { viewBox: "0 0 640 190", width: "100%", role: "img", "aria-label":
    `${title}: ${blocks} blocks of ${block_warps} warps, ${active_warps} of ${max_warps} warps, ${percent(pct)}, limited by ${kernel.occupancy_limiter ?? "nothing"}` });
  picture.append(svg("text", { x: 0, y: 14, text: `warps: ${active_warps} of ${max_warps} (${percent(pct)}) in ${blocks} block${blocks === 1 ? "" : "s"}` }));
  for (let i = 0; i < max_warps; ++i) {
    const used = i < active_warps;
    picture.append(svg("rect", { x: (i % 32) * 20, y: 24 + Math.floor(i / 32) * 22, width: 16, height: 16, rx: 3,
      fill: used ? kind_colour(KINDS[Math.floor(i / Math.max(block_warps, 1)) % 4]) : "none", stroke: css("--dim") }));
  }
  const bar = (y, label, used, total, unit) => {
    const fraction = known(used) && total ? Math.min(used / total, 1) : 0;
    picture.append(svg("rect", { x: 0, y, width: 640, height: 14, fill: "none", stroke: css("--dim") }),
      svg("rect", { x: 0, y, width: 640 * fraction, height: 14, fill: css("--k-gemm") }),
      svg("text", { x: 0, y: y + 28, text: known(used) ? `${label}: ${unit(used)} of ${unit(total)}` : `${label}: unknown` }));
  };
  const registers = known(kernel.registers) ? kernel.registers * block_threads * blocks : null;
  const shared = known(kernel.shared_bytes) ? kernel.shared_bytes * blocks : null;
  bar(86, "registers", registers, o.registers_per_sm ?? 65536, count);
  bar(136, "shared memory", shared, o.shared_bytes_per_sm ?? 233472, bytes);
  return element("div", {}, element("h3", { text: title }), picture,
    element("p", { text: kernel.occupancy_limiter ? `One more block does not fit because of: ${kernel.occupancy_limiter}.` : "" }),
    known(kernel.occupancy_reported_pct) && Math.abs(kernel.occupancy_reported_pct - pct) > 1.5
      ? element("p", { class: "broken", text: `The trace reports ${percent(kernel.occupancy_reported_pct)}: see the finding false-zero-occupancy.` }) : null);
}
function occupancy_panel(kernels) {
  const box = element("div", { class: "panel", "aria-live": "polite" });
  const show = (kernel) => box.replaceChildren(sm_picture(kernel));
  selection.listeners.push(show);
  if (kernels.length) show(kernels[0]);
  const choose = element("select", { "aria-label": "Kernel to explain", onchange: (event) => show(kernels[Number(event.target.value)]) },
    ...kernels.map((k, i) => element("option", { value: String(i), text: safe(`${k.variant ? k.variant + ": " : ""}${k.name}`, 90) })));
  return [element("p", { class: "note", text: "Choose a kernel here or in a strip above." }), choose, box];
}
