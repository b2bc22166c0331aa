// Two lanes, host above device. Event: [lane, ts_us, dur_us, name index, kind index, ordinal, index of its launch or −1].
class Timeline {
  constructor(data, names, kinds, label) {
    this.data = data; this.names = names; this.kinds = kinds;
    this.events = data.events;
    this.end = Math.max(...this.events.map((e) => e[1] + e[2]), 1);
    this.start = Math.min(...this.events.map((e) => e[1]), 0);
    this.view = [this.start, this.end];
    this.selected = -1;
    this.matches = new Set();
    this.depth = this.depths();
    this.canvas = element("canvas", { tabindex: "0", role: "application", "aria-label": `${label}. W and S zoom, A and D move, arrow keys step through events, Home shows all.` });
    this.output = element("output", { "aria-live": "polite", text: "Click an event, or use the arrow keys." });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("wheel", (event) => { event.preventDefault(); this.zoom(event.deltaY < 0 ? 0.8 : 1.25, this.at(event.offsetX)); }, { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => this.pointer_down(event));
    const search = element("input", { type: "search", "aria-label": "Search events", placeholder: "search", oninput: (event) => this.search(event.target.value) });
    const button = (text, action, name) => element("button", { type: "button", text, "aria-label": name, onclick: action });
    this.node = element("div", { class: "timeline" },
      element("div", { class: "controls" }, search, button("next match", () => this.next_match()), button("+", () => this.zoom(0.5), "zoom in"),
        button("−", () => this.zoom(2), "zoom out"), button("all", () => { this.view = [this.start, this.end]; this.draw(); }, "show all")),
      this.canvas, this.output,
      data.left_out ? element("p", { class: "note", text: `${count(data.left_out)} events are left out of this picture: ${safe(data.left_out_why ?? "the longest are kept")}.` }) : null);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }
  // Nesting depth per lane, so that operators stack above what they call.
  depths() {
    const stacks = {}, order = this.events.map((_, i) => i).sort((a, b) => this.events[a][1] - this.events[b][1] || this.events[b][2] - this.events[a][2]);
    const depth = new Array(this.events.length).fill(0);
    for (const i of order) {
      const [lane, ts, dur] = this.events[i], stack = (stacks[lane] ??= []);
      while (stack.length && stack[stack.length - 1] <= ts) stack.pop();
      depth[i] = stack.length;
      stack.push(ts + dur);
    }
    return depth;
  }
  at(x) { return this.view[0] + (x / this.canvas.clientWidth) * (this.view[1] - this.view[0]); }
  zoom(factor, around = (this.view[0] + this.view[1]) / 2) {
    const least = (this.end - this.start) / 1e6;
    if (factor < 1 && this.view[1] - this.view[0] < least) return;
    this.view = [around - (around - this.view[0]) * factor, around + (this.view[1] - around) * factor];
    this.clamp();
  }
  pan(fraction) { const by = (this.view[1] - this.view[0]) * fraction; this.view = [this.view[0] + by, this.view[1] + by]; this.clamp(); }
  clamp() {
    const span = Math.min(this.view[1] - this.view[0], (this.end - this.start) * 1.1);
    const first = Math.min(Math.max(this.view[0], this.start - span * 0.05), this.end + span * 0.05 - span);
    this.view = [first, first + span];
    this.draw();
  }
  key(event) {
    const actions = { w: () => this.zoom(0.7), s: () => this.zoom(1.4), a: () => this.pan(-0.2), d: () => this.pan(0.2),
      ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1), Home: () => { this.view = [this.start, this.end]; this.draw(); } };
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }
  pointer_down(event) {
    const from = event.clientX, view = [...this.view];
    let moved = false;
    const move = (e) => {
      if (Math.abs(e.clientX - from) > 3) moved = true;
      const by = ((from - e.clientX) / this.canvas.clientWidth) * (view[1] - view[0]);
      this.view = [view[0] + by, view[1] + by];
      this.clamp();
    };
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.addEventListener("pointermove", move);
    this.canvas.addEventListener("pointerup", () => {
      this.canvas.removeEventListener("pointermove", move);
      if (!moved) this.select(this.hit(event.offsetX, event.offsetY));
    }, { once: true });
  }
  step(by) { if (this.events.length) this.select((this.selected + by + this.events.length) % this.events.length, true); }
  search(text) {
    const wanted = text.toLowerCase();
    this.matches = new Set(wanted ? this.events.keys() : []);
    for (const i of this.matches) if (!this.names[this.events[i][3]].toLowerCase().includes(wanted)) this.matches.delete(i);
    this.output.textContent = wanted ? `${count(this.matches.size)} events match.` : "";
    this.draw();
  }
  next_match() {
    const after = [...this.matches].find((i) => i > this.selected) ?? [...this.matches][0];
    if (after !== undefined) this.select(after, true);
  }
  select_ordinal(ordinal) {
    const index = this.events.findIndex((e) => e[5] === ordinal);
    if (index < 0) return false;
    this.select(index, true);
    return true;
  }
  select(index, reveal = false) {
    this.selected = index;
    if (index >= 0) {
      const [lane, ts, dur, name, kind, ordinal, launch] = this.events[index];
      if (reveal && (ts > this.view[1] || ts + dur < this.view[0])) { const span = Math.max(dur * 6, (this.view[1] - this.view[0]) / 4); this.view = [ts + dur / 2 - span / 2, ts + dur / 2 + span / 2]; }
      this.output.textContent = `${safe(this.names[name], 400)} · ${lane === 0 ? "host" : "device"}, ${this.kinds[kind]} · ${time(dur)} at ${time(ts)} · event ${ordinal}` +
        (launch >= 0 ? ` · launched by event ${this.events[launch]?.[5]}` : "");
    }
    this.draw();
  }
  geometry(i) {
    const [lane, ts, dur] = this.events[i], scale = this.canvas.clientWidth / (this.view[1] - this.view[0]);
    const row = 18, y = lane === 0 ? 18 + Math.min(this.depth[i], 5) * row : 156 + Math.min(this.depth[i], 3) * row;
    return [(ts - this.view[0]) * scale, y, Math.max(dur * scale, 1), row - 2];
  }
  hit(x, y) {
    for (let i = this.events.length - 1; i >= 0; --i) {
      const [ex, ey, ew, eh] = this.geometry(i);
      if (x >= ex - 2 && x <= ex + ew + 2 && y >= ey && y <= ey + eh) return i;
    }
    return -1;
  }
  draw() {
    this.canvas.dataset.view = this.view.join(" ");
    const ratio = devicePixelRatio || 1, width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    if (!width) return;
    this.canvas.width = width * ratio; this.canvas.height = height * ratio;
    const g = this.canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.font = '12px system-ui, "DejaVu Sans", sans-serif';
    g.fillStyle = css("--dim");
    g.fillText("host", 4, 13); g.fillText("device", 4, 151);
    g.fillText(`${time(this.view[1] - this.view[0])} across`, Math.max(width - 140, 60), 13);
    const colours = this.kinds.map((kind) => kind_colour(kind));
    for (let i = 0; i < this.events.length; ++i) {
      const [x, y, w, h] = this.geometry(i);
      if (x + w < 0 || x > width) continue;
      g.globalAlpha = this.matches.size && !this.matches.has(i) ? 0.25 : 1;
      g.fillStyle = colours[this.events[i][4]];
      g.fillRect(x, y, w, h);
      if (w > 46) { g.fillStyle = css("--bg"); g.fillText(safe(this.names[this.events[i][3]], Math.floor((w - 8) / 7)), Math.max(x, 0) + 4, y + 12, w - 6); }
    }
    g.globalAlpha = 1;
    if (this.selected >= 0) this.outline(g, this.selected);
  }
  outline(g, index) {
    const [x, y, w, h] = this.geometry(index), launch = this.events[index][6];
    g.strokeStyle = css("--fg"); g.lineWidth = 2.5; g.strokeRect(x, y, w, h);
    const partners = launch >= 0 ? [launch] : this.events.flatMap((e, i) => (e[6] === index ? [i] : []));
    for (const partner of partners.slice(0, 64)) {
      const from = launch >= 0 ? this.geometry(partner) : [x, y, w, h], to = launch >= 0 ? [x, y, w, h] : this.geometry(partner);
      g.lineWidth = 1.5; g.beginPath(); g.moveTo(from[0], from[1] + from[3]); g.lineTo(to[0], to[1]); g.lineTo(to[0] - 4, to[1] - 6); g.moveTo(to[0], to[1]); g.lineTo(to[0] + 4, to[1] - 6); g.stroke();
    }
  }
}
