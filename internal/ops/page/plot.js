// Plot draws lines of the last minutes on a canvas. null is a gap: what is not
// known is not drawn as 0.
export class Plot {
  constructor(canvas, { span, format, colors, names, base, nothing = "unknown" }) {
    Object.assign(this, { canvas, span, format, colors, names, base, nothing, points: [] });
    canvas.tabIndex = 0; // arrow keys move the mark, as the pointer does
    canvas.addEventListener("pointermove", e => this.#mark(this.points.at(this.#nearest(e.offsetX))));
    canvas.addEventListener("pointerleave", () => this.#mark(undefined));
    canvas.addEventListener("blur", () => this.#mark(undefined));
    canvas.addEventListener("keydown", e => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (!step || this.points.length === 0) return;
      e.preventDefault();
      const at = this.marked ? this.points.indexOf(this.marked) : this.points.length - 1;
      this.#mark(this.points[Math.min(this.points.length - 1, Math.max(0, at + step))]);
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // add takes the values of one moment (milliseconds of this machine's clock, which
  // may differ from the server's), one for each line.
  add(at, values) {
    this.points.push({ at, values });
    while (this.points[0].at < at - this.span) this.points.shift();
    this.canvas.setAttribute("aria-label", "last values: " + this.#words(this.points.at(-1)));
    this.draw();
  }

  draw() {
    const c = this.canvas, g = c.getContext("2d"), scale = devicePixelRatio || 1;
    const w = c.clientWidth, h = c.clientHeight, style = getComputedStyle(c);
    if (w === 0) return;
    c.width = w * scale; c.height = h * scale;
    g.scale(scale, scale);
    g.font = "11px system-ui, sans-serif";
    const top = 4, foot = h - 16, max = this.#top(), y = v => foot - (foot - top) * v / max;
    g.strokeStyle = style.getPropertyValue("--line"); g.fillStyle = style.getPropertyValue("--soft");
    for (const v of max === null ? [] : [0, max / 2, max]) {
      g.beginPath(); g.moveTo(0, y(v)); g.lineTo(w, y(v)); g.stroke();
      g.fillText(this.format(v), 2, v === max ? y(v) + 11 : y(v) - 3);
    }
    if (max === null) { g.textAlign = "center"; g.fillText(this.nothing, w / 2, foot / 2); }
    g.textAlign = "right"; g.fillText("now", w, h - 3);
    g.textAlign = "left"; g.fillText(`${Math.round(this.span / 60000)} min ago`, 0, h - 3);
    this.colors.forEach((color, line) => {
      g.strokeStyle = g.fillStyle = style.getPropertyValue(color); g.lineWidth = 1.5; g.beginPath();
      let before = null;
      for (const p of this.points) {
        const v = p.values[line];
        if (v === null) { before = null; continue; }
        if (before === null) g.fillRect(this.#x(p) - 1, y(v) - 1, 2, 2);
        g[before === null ? "moveTo" : "lineTo"](this.#x(p), y(v));
        before = v;
      }
      g.stroke();
    });
    if (this.marked) this.#label(g, style, w);
  }

  #label(g, style, w) {
    const x = this.#x(this.marked), text = this.#words(this.marked), wide = g.measureText(text).width + 10;
    const left = Math.max(0, Math.min(x - wide / 2, w - wide));
    g.strokeStyle = style.getPropertyValue("--soft"); g.lineWidth = 1;
    g.beginPath(); g.moveTo(x, 0); g.lineTo(x, this.canvas.clientHeight - 16); g.stroke();
    g.fillStyle = style.getPropertyValue("--text"); g.fillRect(left, 0, wide, 18);
    g.fillStyle = style.getPropertyValue("--card"); g.fillText(text, left + 5, 13);
  }

  #words(p) {
    const many = this.names.length > 1;
    const parts = p.values.map((v, i) => (many ? this.names[i] + " " : "") + (v === null ? this.nothing : this.format(v)));
    return new Date(p.at).toLocaleTimeString() + "  " + parts.join(", ");
  }

  #mark(point) {
    this.marked = point;
    if (point) this.canvas.setAttribute("aria-label", this.#words(point));
    this.draw();
  }

  #x(p) { return this.canvas.clientWidth * (1 - (this.points.at(-1).at - p.at) / this.span); }

  #nearest(x) {
    let best = -1;
    this.points.forEach((p, i) => {
      if (best < 0 || Math.abs(this.#x(p) - x) < Math.abs(this.#x(this.points[best]) - x)) best = i;
    });
    return best;
  }

  // #top is the end of the scale: a round number in the unit it is shown in; null
  // when there is nothing to draw.
  #top() {
    const values = this.points.flatMap(p => p.values).filter(v => v !== null);
    if (values.length === 0) return null;
    const max = Math.max(...values);
    if (max === 0) return 1;
    let unit = 1;
    while (this.base && max >= unit * this.base) unit *= this.base;
    const power = 10 ** Math.floor(Math.log10(max / unit));
    return [1, 2, 5, 10].find(n => n * power * unit >= max) * power * unit;
  }
}
