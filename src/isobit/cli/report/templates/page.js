"use strict";
// Reads values out of the charts. Everything that is seen is drawn without it.
(() => {
  const view = new DataView(new ArrayBuffer(8));
  const read = {
    f32: (word) => (view.setUint32(0, parseInt(word, 16)), view.getFloat32(0)),
    f64: (word) => (view.setBigUint64(0, BigInt("0x" + word)), view.getFloat64(0)),
  };
  const digits = { f32: 8, f64: 16 };

  function written(value, kind) {
    if (Number.isNaN(value)) return "NaN";
    if (!Number.isFinite(value)) return value > 0 ? "+∞" : "−∞";
    if (kind === "f32") {
      for (let n = 6; n < 10; n++) {
        const text = value.toPrecision(n);
        if (Math.fround(Number(text)) === value) return String(Number(text));
      }
    }
    return String(value);
  }

  class Line {
    constructor(data) {
      let step = 0;
      Object.assign(this, data);
      this.steps = data.steps.map((more) => (step += more));
    }
    value(i) {
      return this.kind ? read[this.kind](this.digits(i)) : Number(this.values[i]);
    }
    digits(i) {
      return this.bits.slice(i * digits[this.kind], (i + 1) * digits[this.kind]);
    }
    word(i) {
      return this.kind ? this.kind + ":" + this.digits(i) : this.words[i] || "";
    }
    // The first point at or after a step.
    after(step) {
      let low = 0, high = this.steps.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.steps[middle] < step) low = middle + 1;
        else high = middle;
      }
      return low;
    }
    // The point nearest to a step; of those within `reach` of it, the one nearest to `height`.
    near(step, reach, height, at) {
      let best = -1, least = Infinity;
      for (let i = this.after(step - reach); i < this.steps.length && this.steps[i] <= step + reach; i++) {
        const away = Math.abs(at(this.value(i)) - height);
        if (away < least) [best, least] = [i, away];
      }
      if (best >= 0) return best;
      const next = Math.min(this.after(step), this.steps.length - 1);
      return next > 0 && step - this.steps[next - 1] < this.steps[next] - step ? next - 1 : next;
    }
  }

  function start(figure) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const lines = data.lines.map((line) => new Line(line));
    const plot = figure.querySelector(".plot"), readout = figure.querySelector(".readout");
    const toggle = figure.querySelector(".toggle"), hint = [...readout.childNodes];
    const span = Math.max(1, data.last - data.first);
    let shown = [], index = -1;

    function height(value) {
      const log = toggle !== null && toggle.checked;
      const [low, high] = data.axes[log ? "log" : "linear"];
      if (value === Infinity) return 1;
      if (!Number.isFinite(value) || (log && value <= 0)) return 0;
      if (log) return Math.log(value / low) / Math.log(high / low);
      return (value / 2 - low / 2) / (high / 2 - low / 2);
    }
    function element(name, className, text = "") {
      const made = document.createElement(name);
      made.className = className;
      made.textContent = text;
      return made;
    }
    function clear() {
      shown.forEach((part) => part.remove());
      shown = [];
      readout.replaceChildren(...hint);
    }
    function show(picks, at) {
      clear();
      readout.replaceChildren();
      const cross = element("div", "cross");
      cross.style.left = at * 100 + "%";
      shown.push(cross);
      picks.forEach(([line, i]) => {
        const value = line.value(i), dot = element("span", "dot s" + (line.style % 8));
        dot.style.left = ((line.steps[i] - data.first) / span) * 100 + "%";
        dot.style.bottom = height(value) * 100 + "%";
        shown.push(dot);
        const row = element("span", "value"), unit = data.unit ? " " + data.unit : "";
        const word = line.word(i);
        const text = `${line.name} · step ${line.steps[i]} · ${written(value, line.kind)}${unit}${word && " · " + word}`;
        row.append(element("i", "line s" + (line.style % 8)), text);
        readout.append(row);
      });
      plot.append(...shown);
    }
    function pick(step, reach, level) {
      const picks = lines.map((line) => [line, line.near(step, reach, level, height)]);
      show(picks, Math.min(1, Math.max(0, (step - data.first) / span)));
    }
    const longest = lines.reduce((a, b) => (b.steps.length > a.steps.length ? b : a));
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: 20, PageDown: -20, Home: -Infinity, End: Infinity };

    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const step = data.first + ((event.clientX - box.left) / box.width) * span;
      pick(step, (2 * span) / box.width, (box.bottom - event.clientY) / box.height);
    });
    plot.addEventListener("pointerleave", clear);
    plot.addEventListener("blur", clear);
    plot.addEventListener("keydown", (event) => {
      if (event.key === "Escape") clear();
      if (!(event.key in moves)) return;
      event.preventDefault();
      index = Math.min(longest.steps.length - 1, Math.max(0, index + moves[event.key]));
      const level = height(longest.value(index));
      pick(longest.steps[index], 0, level);
    });
    if (toggle !== null) toggle.addEventListener("change", clear);
  }

  document.querySelectorAll(".chart").forEach(start);
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((part) => (part.open = true));
  });
  addEventListener("afterprint", () => opened.forEach((part) => (part.open = false)));
})();
