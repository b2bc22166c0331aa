// Kernels of one forward as a strip of blocks: width by time, colour by kind, one strip per variant on a shared scale.
const selection = { kernel: null, listeners: [] };
function select_kernel(kernel, variant) {
  selection.kernel = { ...kernel, variant };
  for (const listener of selection.listeners) listener(selection.kernel);
}
function kernel_strip(variant, longest) {
  const width = 1000, height = 30, total = variant.kernels.reduce((sum, k) => sum + (k.time_us || 0), 0);
  const scale = (width * (total / longest)) / (total || 1);
  let x = 0;
  const blocks = variant.kernels.map((kernel, index) => {
    const block_width = Math.max((kernel.time_us || 0) * scale, 2);
    const label = `${index + 1} of ${variant.kernels.length}: ${safe(kernel.op || kernel.name, 90)}, ${kind_of(kernel.kind ?? kernel.event)}, ${time(kernel.time_us)}`;
    const activate = () => select_kernel(kernel, variant.name);
    const rect = svg("rect", { x, y: 0, width: block_width, height, fill: kind_colour(kernel.kind ?? kernel.event), tabindex: "0", role: "button", "aria-label": label,
      onclick: activate, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); activate(); } } });
    rect.append(svg("title", { text: label }));
    x += block_width;
    return rect;
  });
  return element("div", { class: "strip" },
    element("p", { text: `${variant.name}: ${count(variant.kernels.length)} ${variant.kernels.length === 1 ? "kernel" : "kernels, copies and fills"}, ${time(total)}` }),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", height: String(height), preserveAspectRatio: "none", role: "group", "aria-label": `${variant.name}: kernels in order` }, ...blocks));
}
function strips(variants) {
  const shown = variants.filter((v) => v.kernels?.length);
  const longest = Math.max(...shown.map((v) => v.kernels.reduce((sum, k) => sum + (k.time_us || 0), 0)), 1e-9);
  const kinds = [...new Set(shown.flatMap((v) => v.kernels.map((k) => kind_of(k.kind ?? k.event))))];
  return [kind_legend(kinds), ...shown.map((v) => kernel_strip(v, longest))];
}
