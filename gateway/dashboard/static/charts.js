// Draws every [data-chart] and draws it again when its data, its size or the theme changes.
// data-chart: {"x": [unix s], "series": [{"label", "y"}], and where wanted
//   "span": [unix s, unix s], the axis; else it is that of the data,
//   "marks": [[unix s, words]], lines from top to bottom,
//   "max": upper end, "unit": words behind figures, "target": a line across, "stack": on each other,
//   "pairs": so many colours, and what comes after these series is drawn in them again, dashed}
(() => {
  const drawn = new WeakMap();
  const HEIGHT = 190;
  // Whole seconds at least: a finer mark would repeat the words of its neighbour.
  const MARKS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const two = (n) => String(n).padStart(2, "0");
  const day = (at) => `${two(at.getMonth() + 1)}-${two(at.getDate())}`;

  // Local time. Where the window is longer than two days, the date stands before it.
  const when = (span) => (s) => {
    const at = new Date(s * 1000);
    const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
    return (span > 2 * 86400 ? `${day(at)} ` : "") + (span > 1800 ? time : `${time}:${two(at.getSeconds())}`);
  };
  // Under the axis: days alone where a mark is a day or more.
  const tick = (span) => (s, _i, all) => (all.length > 1 && all[1] - all[0] >= 86400 - 3600 ? day(new Date(s * 1000)) : when(span)(s));
  const utc = (s) => `${new Date(s * 1000).toISOString().slice(11, 19)} UTC`;

  // Marks of what happened: a line each, and its words where somebody points at it.
  const marks = (data) => ({ hooks: { draw: (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = color("--warn");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const [s] of data.marks) {
      const x = Math.round(plot.valToPos(s, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  } } });

  // What uPlot gets: stacked lines stand on the sum of those before them, a target is a line more.
  function columns(data) {
    const ys = data.series.map((one) => one.y);
    const stacked = !data.stack ? ys : ys.map((y, n) => y.map((v, i) => (v == null ? null : ys.slice(0, n + 1).reduce((sum, one) => sum + (one[i] ?? 0), 0))));
    // The highest is drawn first, so that the lower ones are painted over it.
    const order = data.stack ? stacked.toReversed() : stacked;
    return [data.x, ...order, ...(data.target == null ? [] : [data.x.map(() => data.target)])];
  }

  // Points between gaps: no line shows them.
  const alone = (plot, n) => plot.data[n].flatMap((v, i, all) => (v != null && all[i - 1] == null && all[i + 1] == null ? [i] : []));

  function make(element, data) {
    const strokes = [color("--run"), color("--flex"), data.stack ? color("--good") : color("--warn")];
    const axis = { font: `12px ${getComputedStyle(document.body).fontFamily}`, stroke: color("--soft-ink"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
    const unit = data.unit ? ` ${data.unit}` : "";
    const [from, to] = data.span ?? [data.x[0] ?? 0, data.x[data.x.length - 1] ?? 0];
    const span = to - from;
    // Where nobody points, the legend says the newest figures.
    const newest = Math.max(0, data.x.findLastIndex((_, i) => data.series.some((one) => one.y[i] != null)));
    const said = (v) => (v == null ? "–" : `${v.toLocaleString("en", { maximumFractionDigits: v < 10 ? 1 : 0 })}${unit}`);
    const lines = data.series.map((one, i) => ({
      label: one.label,
      stroke: strokes[i % (data.pairs ?? strokes.length)],
      dash: i >= (data.pairs ?? Infinity) ? [3, 3] : undefined,
      width: data.stack ? 1 : 2,
      fill: data.stack ? strokes[i] + "cc" : i === 0 && !data.pairs ? strokes[i] + "22" : undefined,
      points: { show: false, filter: alone, size: 5 },
      value: (_u, _v, _s, at) => said(one.y[at ?? newest]),
    }));
    const target = { label: "target", stroke: color("--bad"), width: 1.5, dash: [6, 4], points: { show: false }, value: () => said(data.target) };
    const options = {
      width: element.clientWidth || 600,
      height: HEIGHT,
      cursor: { y: false, drag: { x: false, y: false } },
      legend: { live: true, markers: { dash: (plot, i) => (plot.series[i].dash ? "dotted" : "solid") } },
      padding: [null, 30, null, null],
      plugins: data.marks?.length ? [marks(data)] : [],
      scales: { x: data.span ? { range: () => data.span } : {}, y: { range: (_u, _min, max) => [0, Math.max(data.max ?? 0, (data.target ?? 0) * 1.1, (max ?? 0) * 1.05, 1)] } },
      axes: [{ ...axis, values: (_u, ticks) => ticks.map(tick(span)), space: 90, incrs: MARKS_S }, { ...axis, size: 84, values: (_u, ticks) => ticks.map((v) => v.toLocaleString("en") + (unit.length > 3 ? "" : unit)), incrs: [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000] }],
      series: [
        { label: "Time", value: (_u, s) => (!data.x.length ? "–" : s == null ? when(span)(data.x[newest]) : `${when(span)(s)} (${utc(s)})`) },
        ...(data.stack ? lines.toReversed() : lines),
        ...(data.target == null ? [] : [target]),
      ],
    };
    element.replaceChildren();
    return new uPlot(options, columns(data), element);
  }

  function draw(element, again = false) {
    const text = element.dataset.chart;
    const known = drawn.get(element);
    if (!again && known?.text === text) return;
    const data = JSON.parse(text);
    if (element.clientWidth === 0) return; // hidden: drawn when it gets a size
    known?.plot.destroy();
    drawn.set(element, { plot: make(element, data), text });
  }

  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const known = drawn.get(target);
      if (!known) draw(target);
      else if (Math.abs(known.plot.width - target.clientWidth) > 1 && target.clientWidth) known.plot.setSize({ width: target.clientWidth, height: HEIGHT });
    }
  });

  function drawAll(again = false) {
    for (const element of document.querySelectorAll("[data-chart]")) {
      resized.observe(element);
      draw(element, again);
    }
  }

  document.addEventListener("DOMContentLoaded", () => drawAll());
  document.addEventListener("htmx:after:swap", () => drawAll());
  document.addEventListener("theme-changed", () => drawAll(true));
})();
