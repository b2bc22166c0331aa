"use strict";
// Helpers. Names come from traces and are hostile: text goes in through textContent only, never as markup.
const page = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null) continue;
    if (key === "text") node.textContent = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") node.textContent = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Bidirectional and control characters are shown, not obeyed; a very long name is cut on screen (the raw data keeps it).
function safe(text, limit = 160) {
  const visible = String(text ?? "").replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u061c\ufeff]/g,
    (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
  return visible.length > limit ? visible.slice(0, limit) + "…" : visible;
}
const known = (value) => value !== null && value !== undefined && Number.isFinite(Number(value));
function time(us) {
  if (!known(us)) return "unknown";
  const abs = Math.abs(us);
  const three = (x) => (Math.abs(x) >= 99.95 ? x.toFixed(0) : Math.abs(x) >= 9.995 ? x.toFixed(1) : x.toFixed(2));
  if (abs >= 999500) return three(us / 1e6) + " s";
  if (abs >= 999.5) return three(us / 1e3) + " ms";
  if (abs >= 0.9995 || us === 0) return three(us) + " µs";
  return three(us * 1e3) + " ns";
}
function bytes(value) {
  if (!known(value)) return "unknown";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit + 1 < units.length) { value /= 1000; ++unit; }
  return (unit && Math.abs(value) < 9.95 ? value.toFixed(1) : value.toFixed(0)) + " " + units[unit];
}
const count = (value) => (known(value) ? Number(value).toLocaleString("en-US") : "unknown");
const percent = (value) => (known(value) ? `${Number(Number(value).toFixed(2))} %` : "unknown");

function section(title, ...children) {
  const id = title.toLowerCase().replace(/[^a-z]+/g, "-");
  const node = element("section", { "aria-labelledby": id }, element("h2", { id, text: title }), ...children);
  document.getElementById("main").append(node);
  return node;
}
// columns: [{title, cell(row) → text or {text, class}, number, name}]
function table(caption, columns, rows) {
  const head = element("tr", {}, ...columns.map((c) => element("th", { scope: "col", class: c.number ? "number" : null, text: c.title })));
  const body = rows.map((row) => element("tr", {}, ...columns.map((c) => {
    const value = c.cell(row);
    const cell = typeof value === "object" && value !== null ? value : { text: value };
    const classes = [c.number ? "number" : "", c.name ? "name" : "", cell.class ?? ""].join(" ").trim();
    return element("td", { class: classes || null, text: cell.text });
  })));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {}, element("caption", { class: "visually-hidden", text: caption }), element("thead", {}, head),
      element("tbody", {}, ...body)));
}
function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const KINDS = ["gemm", "elementwise", "mask", "softmax", "reduction", "copy", "cast", "fill", "fused", "host", "other"];
function kind_of(name) {
  if (KINDS.includes(name)) return name;
  if (/attention/.test(name ?? "")) return "fused";
  if (/cast|convert/.test(name ?? "")) return "cast";
  if (/copy|transpose/.test(name ?? "")) return "copy";
  return "other";
}
const kind_colour = (kind) => css(`--k-${kind_of(kind)}`);
function kind_legend(kinds) {
  return element("ul", { class: "legend", "aria-label": "Colours" }, ...kinds.map((kind) => {
    const patch = element("span", { "aria-hidden": "true" });
    patch.style.background = kind_colour(kind);
    return element("li", {}, patch, kind);
  }));
}
