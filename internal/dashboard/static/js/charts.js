// The charts of the last 15 minutes. Each is drawn by uPlot, and is also there
// in a sentence and in a table.

import { h, setText, svg } from "./dom.js";
import { now } from "./clock.js";
import { byMinute, Series } from "./series.js";
import { clockTime, count, milliseconds, rate } from "./words.js";

const height = 190;
const minuteTime = { second: undefined };

// The dashes tell the lines apart without their colours. A sparse line is drawn
// only where it is not 0, and no line but the first is drawn if all of it is 0.
const outcomeLines = [
  { label: "Held", name: "held", dash: [], of: (b) => b.held },
  { label: "Rejected", name: "rejected", dash: [7, 4], of: (b) => b.rejected },
  { label: "Committed", name: "committed", dash: [2, 3], of: (b) => b.committed },
  { label: "Released or expired", name: "ended", dash: [9, 3, 2, 3], of: (b) => b.released + b.expired },
  { label: "Failed", name: "failed", dash: [4, 2], width: 2.5, sparse: true, of: (b) => b.failed },
];

const latencyLines = [
  { label: "p50", name: "p50", dash: [], of: (b) => b.p50_ms },
  { label: "p95", name: "p95", dash: [7, 4], of: (b) => b.p95_ms },
  { label: "p99", name: "p99", dash: [2, 3], of: (b) => b.p99_ms },
];

/** Outcomes per second. */
export function outcomesChart(figure) {
  const series = new Series();
  return new Chart(figure, series, {
    title: "Outcomes per second",
    lines: outcomeLines,
    value: (line, bucket) => (bucket ? line.of(bucket) / series.bucketSeconds : 0),
    format: rate,
    least: 1,
    columns: ["Held", "Rejected", "Failed", "Committed", "Released", "Expired"],
    cells: (buckets) => ["held", "rejected", "failed", "committed", "released", "expired"].map((name) => count(sum(buckets, name))),
    caption: "Outcomes in each minute",
    summary: (points) => {
      const buckets = points.slice(-60 / series.bucketSeconds).map(([, bucket]) => bucket).filter(Boolean);
      const of = (name) => count(sum(buckets, name));
      if (!points.some(([, bucket]) => bucket)) return "No outcome in the last 15 minutes.";
      return `Last minute: ${of("held")} held, ${of("rejected")} rejected, ${of("failed")} failed, ${of("committed")} committed.`;
    },
  });
}

/** The time from a request's acceptance to its outcome. */
export function latencyChart(figure) {
  return new Chart(figure, new Series(), {
    title: "Time to an outcome",
    lines: latencyLines,
    value: (line, bucket) => (bucket && bucket.count > 0 ? line.of(bucket) : null),
    format: milliseconds,
    least: 10,
    columns: ["Outcomes", "Highest p50", "Highest p95", "Highest p99", "Longest"],
    cells: (buckets) => [
      count(sum(buckets, "count")),
      ...["p50_ms", "p95_ms", "p99_ms", "max_ms"].map((name) => milliseconds(largest(buckets, name))),
    ],
    caption: "Time to an outcome in each minute, by buckets of 5 seconds",
    summary: (points) => {
      const last = points.findLast(([, bucket]) => bucket?.count > 0);
      if (!last) return "No request was decided in the last 15 minutes.";
      const [at, b] = last;
      return `At ${clockTime(at * 1000)}: half within ${milliseconds(b.p50_ms)}, 95 % within ${milliseconds(b.p95_ms)}, 99 % within ${milliseconds(b.p99_ms)}.`;
    },
  });
}

class Chart {
  #figure;
  #series;
  #options;
  #plot = null;
  #points = [];
  #changed = true;
  #loaded = false;
  #lost = "Not loaded yet.";
  #behind = "";
  #summary = h("p", { class: "summary" });
  #canvas = h("div", { class: "plot", "aria-hidden": "true" });
  #values;
  #time = h("li", { class: "note" });
  #rows = h("tbody");
  #table;
  #error = h("p", { class: "note", hidden: true });

  constructor(figure, series, options) {
    this.#figure = figure;
    this.#series = series;
    this.#options = options;
    this.#values = options.lines.map(() => h("b"));
    const legend = options.lines.map((line, i) => h("li", {}, sample(line), line.label, " ", this.#values[i]));
    this.#table = h("details", { toggle: () => this.#drawTable() },
      h("summary", {}, "As a table"),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.caption },
        h("table", {}, h("caption", { class: "sr" }, options.caption),
          h("thead", {}, h("tr", {}, ...["Minute", ...options.columns].map((name) => h("th", { scope: "col" }, name)))), this.#rows)));
    figure.replaceChildren(
      h("figcaption", {}, h("h2", {}, options.title), this.#summary),
      this.#error, this.#canvas, h("ul", { class: "legend", "aria-hidden": "true" }, ...legend, this.#time), this.#table);
    this.#create();
    this.#resizes.observe(this.#canvas);
    this.#dark.addEventListener("change", this.#create);
  }

  #dark = matchMedia("(prefers-color-scheme: dark)");
  #resizes = new ResizeObserver(() => this.#plot?.setSize({ width: this.#canvas.clientWidth, height }));

  close() {
    this.#resizes.disconnect();
    this.#dark.removeEventListener("change", this.#create);
    this.#plot?.destroy();
    this.#figure.replaceChildren();
  }

  /**
   * Takes a frame of the chart's channel. Deltas come up to 20 times per second,
   * and mostly for the present bucket, which is not complete: they are drawn by
   * the next draw().
   */
  take(event, payload) {
    this.#error.hidden = true;
    this.#series.take(event, payload);
    this.#changed = true;
    this.#loaded = true;
    this.#lost = "";
    if (event !== "delta") this.draw();
  }

  /**
   * Says that the chart is not loaded, or no longer: it stays as it is, and makes
   * no statement about the present, until the next frame.
   */
  lose() {
    if (this.#lost !== "") return;
    this.#lost = `Not loaded since ${clockTime(now())}: there is no live connection.`;
    this.#summarize();
  }

  /** Says why the series may lack what happened; "" if it does not. */
  behind(text) {
    if (text === this.#behind) return;
    this.#behind = text;
    this.#summarize();
  }

  /** Shows why there is nothing to draw. */
  refuse(detail) {
    this.#error.hidden = false;
    setText(this.#error, detail);
  }

  /** Draws what the series has now, if that has changed. */
  draw() {
    if (this.#lost !== "" && this.#loaded) return;
    const points = this.#series.window(now());
    if (!this.#changed && points[0][0] === this.#points[0]?.[0]) return;
    this.#changed = false;
    this.#points = points;
    this.#plot?.setData(this.#data());
    this.#summarize();
    this.#label();
    this.#drawTable();
  }

  #summarize() {
    setText(this.#summary, this.#lost || this.#behind || this.#options.summary(this.#points));
  }

  /** The value of a line in a bucket; null if it is not known. */
  #value(line, bucket) {
    return this.#loaded ? this.#options.value(line, bucket) : null;
  }

  /** Makes the plot; again if the colours change. */
  #create = () => {
    this.#plot?.destroy();
    const css = getComputedStyle(document.documentElement);
    const color = (name) => css.getPropertyValue(name).trim();
    const axis = { stroke: color("--muted"), font: `11px ${css.getPropertyValue("--font")}`, ticks: { show: false } };
    const { lines, format, least } = this.#options;
    this.#points = this.#series.window(now());
    this.#plot = new window.uPlot({
      width: this.#canvas.clientWidth || 300,
      height,
      padding: [8, 18, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { y: { range: (_, low, high) => [0, Math.max(least, high ?? 0) * 1.08] } },
      axes: [
        { ...axis, size: 26, space: 70, incrs: [60, 180, 300], grid: { show: false }, values: (_, ticks) => ticks.map((at) => clockTime(at * 1000, minuteTime)) },
        { ...axis, size: 58, space: 34, grid: { stroke: color("--line"), width: 1 }, values: (_, ticks) => ticks.map(format) },
      ],
      series: [{}, ...lines.map((line) => ({ label: line.label, stroke: color(`--line-${line.name}`), width: line.width ?? 2, dash: line.dash, points: { show: this.#alone, fill: color("--surface") } }))],
      hooks: { setCursor: [() => this.#label()] },
    }, this.#data(), this.#canvas);
  };

  /** Shows points where a line has a single value, which has no length. */
  #alone = (plot, index, from, to) => {
    const values = plot.data[index];
    for (let i = from; i <= to; i++) {
      if (values[i] != null && values[i - 1] == null && values[i + 1] == null) return true;
    }
    return false;
  };

  #data() {
    const { lines } = this.#options;
    const drawn = (line, i) => {
      const values = this.#points.map(([, bucket]) => this.#value(line, bucket));
      return line.sparse || (i > 0 && values.every((v) => !v)) ? values.map((v) => v || null) : values;
    };
    return [this.#points.map(([at]) => at), ...lines.map(drawn)];
  }

  /** Writes the values under the pointer into the legend, or else the newest. */
  #label() {
    const index = this.#plot?.cursor.idx ?? this.#points.length - 1;
    const [at, bucket] = this.#points[index];
    setText(this.#time, `at ${clockTime(at * 1000)}`);
    this.#options.lines.forEach((line, i) => setText(this.#values[i], this.#options.format(this.#value(line, bucket))));
  }

  #drawTable() {
    if (!this.#table.open) return;
    const minutes = this.#loaded ? byMinute(this.#points) : [];
    const texts = minutes.map(([at, buckets]) => [clockTime(at * 1000, minuteTime), ...this.#options.cells(buckets)]);
    while (this.#rows.children.length > texts.length) this.#rows.lastChild.remove();
    texts.forEach((cells, i) => {
      const row = this.#rows.children[i] ?? this.#rows.appendChild(h("tr", {}, h("th", { scope: "row" }), ...cells.slice(1).map(() => h("td", { class: "number" }))));
      cells.forEach((text, j) => setText(row.children[j], text));
    });
  }
}

/** A sample of a line, for the legend. */
function sample(line) {
  return svg("svg", { class: "sample", width: 28, height: 8, viewBox: "0 0 28 8" },
    svg("line", { class: `line-${line.name}`, x1: 0, y1: 4, x2: 28, y2: 4, "stroke-width": line.width ?? 2, "stroke-dasharray": line.dash.join(" ") }));
}

function sum(buckets, name) {
  return buckets.reduce((total, bucket) => total + (bucket[name] ?? 0), 0);
}

function largest(buckets, name) {
  return buckets.length === 0 ? null : Math.max(...buckets.map((bucket) => bucket[name] ?? 0));
}
