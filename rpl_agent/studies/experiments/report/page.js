"use strict";
// Charts: each has panels (one per world) of traces; a select picks the panel, boxes pick the kinds of lines.
const charts = JSON.parse(document.getElementById("charts").textContent);
const root = document.documentElement;

function colours() {
  const style = getComputedStyle(root);
  const ink = style.getPropertyValue("--ink").trim(), line = style.getPropertyValue("--line").trim();
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line };
  return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink }, xaxis: axis };
}

function merged(layout) {
  const theme = colours(), narrow = window.innerWidth < 640;
  const legend = narrow ? { orientation: "h", y: -0.4 } : {};
  return {
    ...layout, ...theme, legend: layout.legend || legend,
    ...Object.fromEntries(Object.keys({ xaxis: 0, yaxis: 0, ...layout }).filter((key) => /^[xy]axis/.test(key))
      .map((key) => [key, { ...theme.xaxis, ...(layout[key] || {}) }])),
    margin: narrow ? { l: 48, r: 8, t: 24, b: 48 } : { l: 64, r: 16, t: 28, b: 52 }, hovermode: layout.hovermode || "closest",
  };
}

function draw(chart) {
  const host = document.getElementById(chart.id);
  const names = Object.keys(chart.panels);
  const select = host.querySelector("select");
  const panel = chart.panels[select ? select.value : names[0]];
  const on = new Set([...host.querySelectorAll("input[type=checkbox]:checked")].map((box) => box.value));
  const traces = panel.traces.filter((trace) => !trace.meta || !trace.meta.kind || on.has(trace.meta.kind));
  const bars = window.innerWidth < 640 ? { orientation: "h", y: -0.25, yanchor: "top", thickness: 12 } : {};
  const fitted = traces.map((trace) => (trace.colorbar ? { ...trace, colorbar: { ...trace.colorbar, ...bars } } : trace));
  host.querySelector(".panel-note").textContent = panel.note || "";
  const place = host.querySelector(".chart");
  place.style.height = panel.layout.height ? panel.layout.height + "px" : "";
  // not `react`, which leaves a logarithmic axis at 0.1 … 10^6 if the lines are those of before
  Plotly.newPlot(place, fitted, merged(panel.layout), { responsive: true, displaylogo: false });
}

function build(chart) {
  const host = document.getElementById(chart.id), controls = host.querySelector(".controls");
  const names = Object.keys(chart.panels);
  if (names.length > 1) {
    const select = document.createElement("select");
    select.setAttribute("aria-label", "world");
    for (const name of names) select.add(new Option(name, name));
    select.addEventListener("change", () => draw(chart));
    controls.append(select);
  }
  for (const [kind, label, shown] of chart.kinds || []) {
    const wrap = document.createElement("label"), box = document.createElement("input");
    Object.assign(box, { type: "checkbox", value: kind, checked: shown });
    box.addEventListener("change", () => draw(chart));
    wrap.append(box, " " + label);
    controls.append(wrap);
  }
  draw(chart);
}

function setTheme(name) {
  root.dataset.theme = name;
  charts.forEach(draw);
}

// Tables: a click on a heading sorts, the field above filters.
function value(cell) {
  const text = cell.textContent.trim();
  if (text.startsWith("∞")) return Infinity;
  if (text.startsWith("-∞")) return -Infinity;
  const number = parseFloat(text.replace(/[,\s\[]/g, ""));
  return Number.isNaN(number) ? text : number;
}

function sortable(table) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...body.rows].sort((a, b) => {
        const x = value(a.cells[column]), y = value(b.cells[column]);
        const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
        return up ? order : -order;
      });
      body.append(...rows);
    });
  });
}

for (const section of document.querySelectorAll("section.table")) {
  const table = section.querySelector("table");
  sortable(table);
  section.querySelector("input").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}

root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
charts.forEach(build);
document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
