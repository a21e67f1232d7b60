"use strict";
// Elements and charts of a page. Texts become text nodes, always: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; texts and numbers become text. */
function h(tag, attributes, ...children) {
  const isSvg = ["svg", "g", "path", "line", "circle", "rect", "text", "title", "polygon"].includes(tag);
  const element = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

const colour = (index) => `var(--c${index % 8})`;
const plain = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
/** Lines beyond the eighth repeat the colours, dashed. */
const dashes = (index) => [[], [6, 4], [2, 3]][Math.floor(index / 8) % 3];

/** A number as people read it: four digits that count. */
function short(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  return String(Number(value.toPrecision(size >= 1000 ? Math.ceil(Math.log10(size + 1)) : 4)));
}

/** A figure with its table behind it. `table` makes [head, rows] when it is opened. */
function figure(title, note, chart, table) {
  const details = h("details", {}, h("summary", {}, "Table"));
  details.table = table;
  details.fill = () => { if (!details.querySelector("table")) details.append(tableOf(...table())); };
  details.addEventListener("toggle", () => { if (details.open) details.fill(); });
  const caption = h("figcaption", {}, h("span", {}, title), note ? h("span", { class: "note" }, note) : null);
  // A drawing has a largest width, and so has a figure of it that stands alone.
  return h("figure", { class: chart.querySelector("svg") ? "drawn" : null }, caption, chart, details);
}

/** A table in which numbers stand as the JSON has them. */
function tableOf(head, rows, wide) {
  const cell = (value) => {
    if (value instanceof Node) return h("td", { class: "wide" }, value);
    const isNumber = typeof value === "number";
    const text = value === null || value === undefined ? "–" : String(value);
    return h("td", { class: isNumber ? undefined : text.length > 60 ? "text wide" : "text" }, text);
  };
  const isText = head.map((_, column) => rows.length > 0 && rows.every((row) => typeof row[column] !== "number"));
  const names = head.map((name, column) => h("th", { scope: "col", class: isText[column] ? "text" : undefined }, name));
  const body = rows.map((row) => h("tr", {}, row.map(cell)));
  const table = h("table", {}, h("thead", {}, h("tr", {}, names)), h("tbody", {}, body));
  return h("div", { class: wide ? "scroll free" : "scroll", tabindex: 0, role: "region", "aria-label": "Table" }, table);
}

/** A box beside the pointer, inside of `chart`. */
function tip(chart) {
  const box = h("div", { class: "tip", hidden: "" });
  chart.append(box);
  return {
    show(text, x, y) {
      box.textContent = text;
      box.hidden = false;
      const right = x + 14 + box.offsetWidth < chart.clientWidth;
      box.style.left = `${Math.max(0, right ? x + 14 : x - 14 - box.offsetWidth)}px`;
      box.style.top = `${Math.max(0, y - 10)}px`;
    },
    hide() { box.hidden = true; },
  };
}

// --- over time

const overTime = [];
let zooming = false;

/** Lines over time, drawn by uPlot. `series`: {name, values, unit}. All of a page zoom together. */
function timeChart(label, x, series, unit) {
  const chart = h("div", { class: "chart", tabindex: 0, role: "img", "aria-label": `${label}: lines over time; the table below has the numbers` });
  const make = (before) => {
    chart.replaceChildren();
    // Paper has more pixels to an inch: a drawing of twice the size, which `page.css` shows at half of it.
    const fine = isOnPaper() ? 2 : 1;
    const axis = {
      stroke: plain("--soft"), font: `${12 * fine}px system-ui, sans-serif`, gap: 5 * fine, space: 50 * fine, size: 50 * fine,
      grid: { stroke: plain("--grid"), width: fine }, ticks: { stroke: plain("--line"), width: fine, size: 10 * fine },
    };
    const box = tip(chart);
    const lines = series.map((line, index) => ({
      label: line.name, stroke: plain(`--c${index % 8}`), width: 1.6 * fine, dash: dashes(index).map((length) => length * fine), spanGaps: false, points: { show: x.length < 3 },
      show: before?.series[index + 1].show ?? true,
      value: (_, value) => (value === null || value === undefined ? "–" : `${short(value)}${unit ? " " + unit : ""}`),
    }));
    const plot = new uPlot({
      width: Math.max(240, chart.clientWidth || 600) * fine, height: 210 * fine,
      scales: { x: { time: false } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((tick) => `${short(tick)} s`) },
        { ...axis, size: 62 * fine, space: 30 * fine, values: (_, ticks) => ticks.map(short) },
      ],
      series: [{ label: "time", value: (_, value) => (value === null ? "–" : `${short(value)} s`) }, ...lines],
      cursor: { sync: { key: "time" }, drag: { x: true, y: false } },
      legend: { show: true, live: !isOnPaper() },
      hooks: {
        setCursor: [(plot) => {
          const { idx, left, top } = plot.cursor;
          if (idx === null || idx === undefined || left < 0 || !chart.matches(":hover, :focus")) return box.hide();
          const shown = series.map((line, index) => [line, index]).filter(([, index]) => plot.series[index + 1].show);
          const rows = shown.slice(0, 12).map(([line]) => `${line.name}: ${short(line.values[idx])}`);
          box.show([`${short(x[idx])} s`, ...rows].join("\n"), left + 62, top);
        }],
        setScale: [(plot, key) => {
          if (key !== "x" || zooming) return;
          zooming = true;
          const { min, max } = plot.scales.x;
          overTime.forEach((other) => { if (other.plot !== plot) other.plot?.setScale("x", { min, max }); });
          zooming = false;
        }],
      },
    }, [x, ...series.map((line) => line.values)], chart);
    chart.append(chart.querySelector(".tip"));
    return plot;
  };
  const entry = { chart, plot: null, make, x };
  overTime.push(entry);
  chart.addEventListener("keydown", (event) => timeKeys(event, entry));
  chart.addEventListener("mouseleave", () => { chart.querySelector(".tip").hidden = true; });
  return chart;
}

function timeKeys(event, { plot, x }) {
  if (!plot) return;
  const { min, max } = plot.scales.x;
  const at = plot.cursor.idx ?? 0;
  const move = (index) => plot.setCursor({ left: plot.valToPos(x[Math.min(x.length - 1, Math.max(0, index))], "x"), top: 40 });
  const zoom = (factor) => {
    const middle = x[at] >= min && x[at] <= max ? x[at] : (min + max) / 2;
    const [first, last] = [x[0], x[x.length - 1]];
    plot.setScale("x", { min: Math.max(first, middle - (middle - min) * factor), max: Math.min(last, middle + (max - middle) * factor) });
  };
  const keys = {
    ArrowLeft: () => move(at - 1), ArrowRight: () => move(at + 1), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
    0: () => plot.setScale("x", { min: x[0], max: x[x.length - 1] }),
  };
  if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
}

/** Charts over time are drawn when their width is known, and again for other colours: with the same lines and the same times. */
function drawOverTime() {
  zooming = true;
  for (const entry of overTime) {
    const before = entry.plot;
    entry.plot = entry.make(before);
    if (before) entry.plot.setScale("x", { min: before.scales.x.min, max: before.scales.x.max });
    before?.destroy();
  }
  zooming = false;
}

function resizeOverTime() {
  for (const { plot, chart } of overTime) plot?.setSize({ width: Math.max(240, chart.clientWidth), height: 210 });
}

// --- x against y

/** Ticks of an axis from `min` to `max`. */
function ticksOf(min, max, isLog, count = 6) {
  if (isLog) {
    const [first, last] = [Math.floor(Math.log10(min)), Math.ceil(Math.log10(max))];
    const decades = Math.log10(max / min);
    const steps = decades > 4 ? [1] : decades > 2 ? [1, 3] : decades > 0.9 ? [1, 2, 5] : decades > 0.4 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : Array.from({ length: 36 }, (_, index) => 1 + index / 4);
    const all = Array.from({ length: last - first + 1 }, (_, index) => steps.map((step) => step * 10 ** (first + index))).flat();
    return all.filter((tick) => tick >= min * 0.999 && tick <= max * 1.001);
  }
  const rough = (max - min || 1) / count;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((step) => step >= rough);
  const ticks = [];
  for (let tick = Math.ceil(min / step - 1e-9) * step; tick <= max + step * 1e-6; tick += step) ticks.push(Math.abs(tick) < step * 1e-6 ? 0 : Number(tick.toPrecision(12)));
  return ticks;
}

/** The numbers of ticks, with as many digits as tell them apart. */
function tickTexts(ticks) {
  let texts = ticks.map(short);
  for (let digits = 5; new Set(texts).size < ticks.length && digits < 12; digits += 1) texts = ticks.map((tick) => String(Number(tick.toPrecision(digits))));
  return texts;
}

/** A scale that leads from values to pixels. */
function scaleOf(values, isLog, from, to, zero, whole) {
  const known = values.filter((value) => Number.isFinite(value) && (!isLog || value > 0));
  let [min, max] = [Math.min(...known), Math.max(...known)];
  if (!known.length) [min, max] = [isLog ? 1 : 0, isLog ? 10 : 1];
  if (zero && !isLog) [min, max] = [Math.min(0, min), Math.max(0, max)];
  if (min === max) [min, max] = isLog ? [min / 2, max * 2] : [min - Math.abs(min || 1) / 2, max + Math.abs(max || 1) / 2];
  const pad = isLog ? 1.06 : zero ? 0 : (max - min) * 0.04;
  if (isLog) [min, max] = [min / pad, max * pad];
  else [min, max] = [zero && min === 0 ? 0 : min - pad, max + (zero ? (max - min) * 0.04 : pad)];
  const of = isLog ? Math.log10 : (value) => value;
  const at = (value) => from + ((of(value) - of(min)) / (of(max) - of(min))) * (to - from);
  const ticks = ticksOf(min, max, isLog);
  return { at, min, max, ticks: whole ? ticks.filter(Number.isInteger) : ticks };
}

/**
 * Lines and points of x against y. `lines`: {name, points: [[x, y, text]], line, marks, index}; `rules`: horizontal limits
 * {y, name}. Axes: {label, log, zero, whole}.
 */
function xyChart(label, xAxis, yAxis, lines, rules = []) {
  return fitted((isNarrow) => drawXy(label, xAxis, yAxis, lines, rules, isNarrow));
}

function drawXy(label, xAxis, yAxis, lines, rules, isNarrow) {
  const [width, height, right, top, bottom] = isNarrow ? [350, 240, 10, 12, 44] : [620, 300, 14, 12, 44];
  const all = lines.flatMap((line) => line.points);
  const y = scaleOf([...all.map((point) => point[1]), ...rules.map((rule) => rule.y)], yAxis.log, height - bottom, top, yAxis.zero);
  const yTexts = tickTexts(y.ticks);
  const left = Math.max(isNarrow ? 50 : 62, 30 + 7 * Math.max(0, ...yTexts.map((text) => text.length)));
  const x = scaleOf(all.map((point) => point[0]), xAxis.log, left, width - right, xAxis.zero, xAxis.whole);
  const svg = h("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const tick of x.ticks) {
    svg.append(h("line", { class: "grid", x1: x.at(tick), x2: x.at(tick), y1: top, y2: height - bottom }));
    svg.append(h("text", { x: x.at(tick), y: height - bottom + 16, "text-anchor": "middle" }, short(tick)));
  }
  y.ticks.forEach((tick, index) => {
    svg.append(h("line", { class: "grid", x1: left, x2: width - right, y1: y.at(tick), y2: y.at(tick) }));
    svg.append(h("text", { x: left - 6, y: y.at(tick) + 4, "text-anchor": "end" }, yTexts[index]));
  });
  svg.append(h("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xAxis.label));
  svg.append(h("text", { transform: `translate(13 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, yAxis.label));
  for (const rule of rules) {
    svg.append(h("line", { x1: left, x2: width - right, y1: y.at(rule.y), y2: y.at(rule.y), stroke: colour(7), "stroke-dasharray": "5 4" }));
    // On the left, where lines of latency over load are low; below the rule if there is no room above it.
    svg.append(h("text", { x: left + 6, y: y.at(rule.y) + (y.at(rule.y) < top + 20 ? 18 : -5), class: "strong" }, rule.name));
  }
  const shown = [];
  lines.forEach((line, number) => {
    const index = line.index ?? number;
    const group = h("g", { "data-line": number });
    const points = line.points.filter(([px, py]) => Number.isFinite(px) && Number.isFinite(py) && (!xAxis.log || px > 0) && (!yAxis.log || py > 0));
    if (line.line !== false && points.length > 1) {
      const path = points.map(([px, py], at) => `${at ? "L" : "M"}${x.at(px).toFixed(1)} ${y.at(py).toFixed(1)}`).join("");
      group.append(h("path", { d: path, fill: "none", stroke: colour(index), "stroke-width": 2, "stroke-dasharray": dashes(index).join(" ") || null }));
    }
    for (const [px, py, text, mark] of points) {
      if (line.marks !== false) group.append(h("circle", { cx: x.at(px), cy: y.at(py), r: 4, fill: colour(index) }));
      if (mark) {
        group.append(h("circle", { cx: x.at(px), cy: y.at(py), r: 8, fill: "none", stroke: "var(--text)", "stroke-width": 1.6 }));
        group.append(h("text", { x: x.at(px), y: y.at(py) - 12, "text-anchor": "middle", class: "strong" }, mark));
      }
      shown.push({ x: x.at(px), y: y.at(py), number, text: text ?? `${line.name}\n${xAxis.label}: ${short(px)}\n${yAxis.label}: ${short(py)}` });
    }
    svg.append(group);
  });
  const chart = h("div", { class: "chart", tabindex: 0 }, svg);
  nearest(chart, svg, shown, width);
  return h("div", {}, chart, legend(lines, svg));
}

/** What `make` draws for a wide screen or a narrow one, and draws again when the width changes: texts keep their size. */
function fitted(make) {
  const narrow = matchMedia("(max-width: 560px)");
  const box = h("div", {}, make(narrow.matches));
  narrow.addEventListener("change", () => box.replaceChildren(make(narrow.matches)));
  return box;
}

/** The nearest point to the pointer has its text shown; ← and → go from point to point. */
function nearest(chart, svg, points, width) {
  const box = tip(chart);
  const ring = h("circle", { r: 5, fill: "none", stroke: "var(--text)", visibility: "hidden" });
  svg.append(ring);
  let at = -1;
  const isShown = (point) => svg.querySelector(`[data-line="${point.number}"]`)?.getAttribute("visibility") !== "hidden";
  const show = (index) => {
    at = index;
    const scale = svg.clientWidth / width || 1;
    const { x, y, text } = points[index];
    ring.setAttribute("cx", x); ring.setAttribute("cy", y); ring.setAttribute("visibility", "visible");
    box.show(text, x * scale, y * scale);
  };
  chart.addEventListener("mousemove", (event) => {
    const frame = svg.getBoundingClientRect();
    const scale = frame.width / width || 1;
    const [px, py] = [(event.clientX - frame.left) / scale, (event.clientY - frame.top) / scale];
    let best = -1, distance = 60 ** 2;
    points.forEach((point, index) => {
      const far = (point.x - px) ** 2 + (point.y - py) ** 2;
      if (far < distance && isShown(point)) [best, distance] = [index, far];
    });
    if (best >= 0) show(best); else hide();
  });
  const hide = () => { box.hide(); ring.setAttribute("visibility", "hidden"); };
  chart.addEventListener("mouseleave", hide);
  chart.addEventListener("blur", hide);
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !points.length) return;
    show((at + step + points.length) % points.length);
    event.preventDefault();
  });
}

/** The names of lines; a click hides or shows one. */
function legend(lines, svg) {
  const entries = lines.map((line, number) => {
    const index = line.index ?? number;
    const sample = h("i", { style: `border-top-color:${colour(index)};border-top-style:${dashes(index).length ? "dashed" : "solid"}` });
    const box = h("input", { type: "checkbox", checked: "", "aria-label": `show ${line.name}` });
    box.addEventListener("change", () => {
      svg.querySelector(`[data-line="${number}"]`).setAttribute("visibility", box.checked ? "visible" : "hidden");
    });
    return h("li", {}, h("label", {}, box, sample, line.name));
  });
  return h("ul", { class: "legend" }, entries);
}

// --- bars, intervals, heat map

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Stacked bars: `names` of the parts, `bars` {name, values}. */
function stackedBars(label, names, bars, unit) {
  return fitted((isNarrow) => drawBars(label, names, bars, unit, isNarrow));
}

function drawBars(label, names, bars, unit, isNarrow) {
  const [width, left, bar, gap] = [isNarrow ? 350 : 620, isNarrow ? 110 : 140, 18, 6];
  const letters = isNarrow ? 13 : 17;
  const height = bars.length * (bar + gap) + 34;
  const most = Math.max(...bars.map((one) => one.values.reduce((sum, value) => sum + value, 0)), 1e-9);
  const scale = scaleOf([0, most], false, left, width - 16, true);
  const svg = h("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const points = [];
  for (const tick of scale.ticks) {
    svg.append(h("line", { class: "grid", x1: scale.at(tick), x2: scale.at(tick), y1: 0, y2: height - 30 }));
    svg.append(h("text", { x: scale.at(tick), y: height - 16, "text-anchor": "middle" }, short(tick)));
  }
  svg.append(h("text", { x: (left + width) / 2, y: height - 2, "text-anchor": "middle" }, unit));
  const groups = names.map((_, number) => h("g", { "data-line": number }));
  bars.forEach((one, row) => {
    const y = row * (bar + gap);
    svg.append(h("text", { x: left - 8, y: y + 13, "text-anchor": "end", class: "strong" }, cut(one.name, letters)));
    let sum = 0;
    one.values.forEach((value, number) => {
      const [from, to] = [scale.at(sum), scale.at(sum + value)];
      sum += value;
      groups[number].append(h("rect", { x: from, y, width: Math.max(0, to - from), height: bar, fill: colour(number) }));
      if (value > 0) points.push({ x: (from + to) / 2, y: y + bar / 2, number, text: `${one.name}\n${names[number]}: ${short(value)} ${unit}` });
    });
  });
  svg.append(...groups);
  const chart = h("div", { class: "chart", tabindex: 0 }, svg);
  nearest(chart, svg, points, width);
  return h("div", {}, chart, legend(names.map((name) => ({ name })), svg));
}

/** Intervals around a mean beside 0: `rows` {name, mean, low, high, result, text}. */
function intervals(label, rows, unit) {
  return fitted((isNarrow) => drawIntervals(label, rows, unit, isNarrow));
}

function drawIntervals(label, rows, unit, isNarrow) {
  const [width, left, line] = isNarrow ? [350, 130, 24] : [620, 230, 24];
  const height = rows.length * line + 40;
  const scale = scaleOf(rows.flatMap((row) => [row.low ?? row.mean, row.high ?? row.mean, 0]), false, left, width - 20, false);
  const svg = h("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const tick of scale.ticks) {
    svg.append(h("line", { class: "grid", x1: scale.at(tick), x2: scale.at(tick), y1: 0, y2: height - 34 }));
    svg.append(h("text", { x: scale.at(tick), y: height - 20, "text-anchor": "middle" }, short(tick)));
  }
  svg.append(h("line", { x1: scale.at(0), x2: scale.at(0), y1: 0, y2: height - 34, stroke: "var(--text)" }));
  svg.append(h("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, unit));
  const group = h("g", { "data-line": 0 });
  const points = rows.map((row, index) => {
    const y = index * line + line / 2;
    const stroke = colour({ better: 2, worse: 1 }[row.result] ?? 7);
    svg.append(h("text", { x: left - 10, y: y + 4, "text-anchor": "end", class: "strong" }, cut(isNarrow ? row.name.replace(/ \((higher|lower) is better\)$/, "") : row.name, isNarrow ? 15 : 34)));
    if (Number.isFinite(row.low) && Number.isFinite(row.high)) {
      group.append(h("line", { x1: scale.at(row.low), x2: scale.at(row.high), y1: y, y2: y, stroke, "stroke-width": 3 }));
    }
    const x = scale.at(row.mean);
    const shape = { better: [x - 6, y + 5, x + 6, y + 5, x, y - 6], worse: [x - 6, y - 5, x + 6, y - 5, x, y + 6] }[row.result];
    group.append(shape ? h("polygon", { points: shape.join(" "), fill: stroke }) : h("circle", { cx: x, cy: y, r: 4.5, fill: stroke }));
    return { x, y, number: 0, text: row.text };
  });
  svg.append(group);
  const chart = h("div", { class: "chart", tabindex: 0 }, svg);
  nearest(chart, svg, points, width);
  return chart;
}

/** Instances × time: `rows` {name, values}, a value from low to high a shade. */
function heatMap(label, x, rows, format) {
  const chart = h("div", { class: "chart", tabindex: 0, role: "img", "aria-label": `${label}: shades; the table below has the numbers` });
  const canvas = h("canvas", { class: "heat" });
  const box = tip(chart);
  chart.prepend(canvas);
  const most = rows.reduce((most, row) => row.values.reduce((most, value) => Math.max(most, value ?? 0), most), 1e-9);
  const rgb = (name) => [1, 3, 5].map((at) => parseInt(plain(name).slice(at, at + 2), 16));
  const draw = () => {
    const columns = Math.min(x.length, 400);
    const height = Math.max(6, Math.min(26, Math.floor(320 / rows.length)));
    Object.assign(canvas, { width: columns, height: rows.length });
    canvas.style.height = `${rows.length * height}px`;
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows.length);
    const [low, high] = [rgb("--low"), rgb("--high")];
    rows.forEach((row, y) => {
      for (let column = 0; column < columns; column += 1) {
        // The largest value of the moments in a column.
        const [from, to] = [column, column + 1].map((edge) => Math.floor((edge * x.length) / columns));
        const part = row.values.slice(from, Math.max(to, from + 1)).filter((value) => value !== null && value !== undefined);
        const share = part.length ? Math.max(...part) / most : null;
        const shade = share === null ? [0, 0, 0, 0] : [0, 1, 2].map((at) => low[at] + (high[at] - low[at]) * share).concat(255);
        image.data.set(shade, (y * columns + column) * 4);
      }
    });
    context.putImageData(image, 0, 0);
  };
  canvas.addEventListener("mousemove", (event) => {
    const frame = canvas.getBoundingClientRect();
    const at = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
    const row = rows[at((event.clientY - frame.top) / frame.height, rows.length)];
    const column = at((event.clientX - frame.left) / frame.width, x.length);
    box.show(`${row.name}\n${short(x[column])} s: ${format(row.values[column])}`, event.clientX - frame.left, event.clientY - frame.top);
  });
  canvas.addEventListener("mouseleave", () => box.hide());
  draw();
  redraws.push(draw);
  const scale = h("p", { class: "note" }, `shades from 0 to ${format(most)}; rows: ${rows[0].name} (top) to ${rows[rows.length - 1].name}; ${short(x[0])} s (left) to ${short(x[x.length - 1])} s`);
  return h("div", {}, chart, scale);
}

/** What is drawn again when the colours change. */
const redraws = [];
