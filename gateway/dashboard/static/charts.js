// Draws every [data-chart] and draws it again when its data, its size or the theme changes.
// data-chart: {"x": [unix s], "series": [{"label", "y"}], "max": optional upper end}
(() => {
  const drawn = new WeakMap();
  const HEIGHT = 190;
  // Whole seconds at least: a finer mark would repeat the words of its neighbour.
  const MARKS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // UTC, as every other time of the dashboard.
  const time = (s) => new Date(s * 1000).toISOString().slice(11, 19);

  function make(element, data) {
    const strokes = [color("--run"), color("--warn"), color("--good")];
    const axis = { stroke: color("--soft-ink"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
    const options = {
      width: element.clientWidth || 600,
      height: HEIGHT,
      cursor: { y: false, drag: { x: false, y: false } },
      legend: { live: true },
      scales: { y: { range: (_u, _min, max) => [0, Math.max(data.max ?? 0, max ?? 0, 1)] } },
      axes: [{ ...axis, values: (_u, ticks) => ticks.map(time), space: 90, incrs: MARKS_S }, { ...axis, size: 56, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000] }],
      series: [
        { label: "UTC", value: (_u, s) => (s == null ? "–" : time(s)) },
        ...data.series.map((one, i) => ({
          label: one.label,
          stroke: strokes[i],
          width: 2,
          fill: i === 0 ? strokes[i] + "22" : undefined,
          points: { show: false },
        })),
      ],
    };
    element.replaceChildren();
    return new uPlot(options, [data.x, ...data.series.map((one) => one.y)], element);
  }

  function draw(element, again = false) {
    const text = element.dataset.chart;
    const known = drawn.get(element);
    if (!again && known?.text === text) return;
    const data = JSON.parse(text);
    if (element.clientWidth === 0) return; // hidden: drawn when it gets a size
    if (known && !again && known.max === data.max) {
      known.plot.setData([data.x, ...data.series.map((one) => one.y)]);
      known.text = text;
      return;
    }
    known?.plot.destroy();
    drawn.set(element, { plot: make(element, data), text, max: data.max });
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
