"use strict";
// The page: a section for each result, of the charts that its kind has.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");

/** The kinds of results: how each is told from the others, and its sections. The first that fits is used. */
const KINDS = [
  [(result) => result.conservation && "completed_requests" in result, runSections],
  [(result) => result.policies && result.metrics && result.seeds, compareSections],
  [(result) => result.points && result.figures, sweepSections],
  [(result) => result.checks && "replicas" in result, sizeSections],
  [(result) => Array.isArray(result.policies) && result.policies[0]?.capacity !== undefined, capacitySections],
  [(result) => result.search !== undefined && Array.isArray(result.candidates), searchSections],
  [(result) => result.combined_score !== undefined && result.scenarios, evaluateSections],
  [() => true, otherSections],
];

function drawPage() {
  for (const one of data.results) {
    const [, sections] = KINDS.find(([fits]) => fits(one.result ?? {}));
    const title = data.results.length > 1 ? one.name : null;
    if (title) main.append(heading(title));
    main.append(...opening(one.result ?? {}, title));
    try {
      sections(one.result, one.charts, title);
    } catch (error) {
      main.append(h("p", {}, `This result cannot be drawn (${error.message}); its data:`));
      otherSections(one.result);
    }
  }
  if (data.results.filter((one) => KINDS[0][0](one.result ?? {})).length > 1) main.prepend(sideBySide());
  if (data.live) followSearch();
  drawOverTime();
  let width = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; resizeOverTime(); } });
  window.addEventListener("beforeprint", toPaper);
  window.addEventListener("afterprint", fromPaper);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (!isOnPaper()) drawAgain(); });
}

/** What every result begins with: what follows from it, what it is about, what limits it, and the command. */
function opening(result, title) {
  const { conclusion, run } = result;
  const { subject, caveats } = run ?? {};
  if (!conclusion?.text) return [];
  const shown = new Set((run?.warnings ?? []).map((one) => one.what));
  const limits = (caveats ?? []).filter((one) => !shown.has(one.text));
  // The page of one result is about its conclusion.
  const headline = title ? null : document.querySelector("h1");
  if (headline) headline.textContent = conclusion.text;
  const parts = [
    headline ? null : h("p", { class: "conclusion" }, conclusion.text),
    subject?.text ? h("p", { class: "subject" }, subject.text) : null,
    limits.length ? h("div", { class: "warnings", role: "note" }, limits.map((one) => h("p", {}, one.text))) : null,
    run?.command ? h("p", { class: "note" }, h("code", {}, run.command), ` (BLIS ${run.version ?? ""}${run.digest ? `, digest ${run.digest.slice(0, 12)}` : ""})`) : null,
  ];
  return parts.filter((part) => part);
}

/** A heading with its entry in the contents. */
function heading(text) {
  const id = `s${document.querySelectorAll("h2").length}`;
  document.getElementById("contents").append(h("a", { href: `#${id}` }, text));
  return h("h2", { id }, text);
}

function sectionName(name, title) {
  return title ? `${title}: ${name.toLowerCase()}` : name;
}

function tiles(entries) {
  const known = entries.filter(([, value]) => value !== undefined && value !== null);
  return h("div", { class: "tiles" }, known.map(([name, value, unit]) => h("div", { class: "tile" }, h("b", {}, short(value), unit ? ` ${unit}` : ""), h("span", {}, name))));
}

function warningsOf(result) {
  const warnings = result.run?.warnings ?? [];
  if (!warnings.length) return null;
  return h("div", { class: "warnings", role: "note" }, warnings.map((one) => h("p", {}, h("strong", {}, "Warning: "), one.what, one.hint ? h("span", { class: "note" }, ` – ${one.hint}`) : null)));
}

// --- a run

function runSections(result, charts, title) {
  if (!title) main.append(heading("Summary"));
  const { run } = result;
  if (run && !run.subject) main.append(h("p", {}, `${run.model} on ${run.num_instances} × ${run.tensor_parallel_size} ${run.hardware}, ${run.workload}; seed ${run.seed}.`));
  main.append(warningsOf(result) ?? "");
  main.append(tiles([
    ["completed requests", result.completed_requests], ["throughput", result.responses_per_sec, "/s"], ["output", result.tokens_per_sec, "tokens/s"],
    ["TTFT p50", result.ttft_p50_ms, "ms"], ["TTFT p90", result.ttft_p90_ms, "ms"], ["TTFT p99", result.ttft_p99_ms, "ms"],
    ["within SLO", result.slo_attainment === undefined ? null : 100 * result.slo_attainment, "%"], ["TPOT p50", result.tpot_p50_ms, "ms"], ["TPOT p90", result.tpot_p90_ms, "ms"], ["E2E p90", result.e2e_p90_ms, "ms"], ["prefix-cache hit rate", result.cache_hit_rate],
    ["timed out", result.timed_out_requests || null], ["rejected", result.rejected_requests || null], ["preemptions", result.preemption_count || null],
    ["state", (result.state ?? result.load?.state)?.replaceAll("_", " ")],
  ]));
  figuresTable(result);
  if (charts) {
    main.append(heading(sectionName("Over time", title)));
    overTimeSection(charts);
    main.append(heading(sectionName("Latencies", title)));
    latencySection(charts);
    main.append(heading(sectionName("Stages", title)));
    stageSection(charts);
    main.append(heading(sectionName("The slowest requests", title)));
    slowestSection(charts);
  }
  if (result.regret?.worst?.length) {
    main.append(heading(sectionName("Worst decisions", title)));
    regretSection(result.regret);
  }
  if (run?.settings) {
    main.append(heading(sectionName("Settings", title)));
    main.append(h("details", {}, h("summary", {}, "All settings of the run"), tableOf(["setting", "value"], Object.entries(run.settings).map(([name, value]) => [name, textOf(value)]))));
  }
}

const textOf = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : value);

/** The figures as the JSON has them: cluster and instances; classes and tenants where it has them. */
function figuresTable(result) {
  const columns = ["completed_requests", "responses_per_sec", "tokens_per_sec", "ttft_mean_ms", "ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms", "itl_mean_ms", "itl_p90_ms",
    "itl_p99_ms", "e2e_mean_ms", "e2e_p50_ms", "e2e_p90_ms", "e2e_p99_ms", "scheduling_delay_p99_ms", "preemption_count", "mean_queue_length"];
  const instances = result.instances ?? [];
  const rows = [result, ...instances].map((one) => [one.instance_id, ...columns.map((name) => one[name])]);
  const table = tableOf(["", ...columns], rows);
  table.dataset.table = "figures";
  main.append(h("details", { open: instances.length <= 8 ? "" : null }, h("summary", {}, "Figures of the cluster and its instances, as in the JSON"), table));
  for (const [name, values] of Object.entries(result)) {
    const entries = values && typeof values === "object" && !Array.isArray(values) ? Object.entries(values) : [];
    const isGroup = entries.length && entries.every(([, value]) => value && typeof value === "object" && !Array.isArray(value));
    if (!isGroup || ["run", "regret", "anomalies", "conservation", "metrics", "conclusion"].includes(name)) continue;
    const flat = entries.map(([key, value]) => [key, flatten(value)]);
    const names = [...new Set(flat.flatMap(([, value]) => Object.keys(value)))].slice(0, 40);
    main.append(h("details", {}, h("summary", {}, name.replaceAll("_", " ")), tableOf(["", ...names], flat.map(([key, value]) => [key, ...names.map((column) => value[column])]))));
  }
}

function flatten(value, prefix = "") {
  const entries = Object.entries(value).map(([name, inner]) => (inner && typeof inner === "object" && !Array.isArray(inner) ? Object.entries(flatten(inner, `${prefix}${name}.`)) : [[`${prefix}${name}`, textOf(inner)]]));
  return Object.fromEntries(entries.flat());
}

function overTimeSection(charts) {
  const { time_s: time, rates_s: rates, cluster, instances } = charts;
  const figures = [];
  const add = (title, note, series, unit, x = time) => figures.push(figure(title, note, timeChart(title, x, series, unit), () => [["time_s", ...series.map((line) => line.name)], x.map((at, index) => [at, ...series.map((line) => line.values[index])])]));
  add("Arrivals and completions", "requests per second", [
    { name: "arrivals", values: cluster.arrivals_per_s }, { name: "completions", values: cluster.completions_per_s },
    ...[["rejections", cluster.rejections_per_s], ["timeouts", cluster.timeouts_per_s]].filter(([, values]) => values.some((value) => value > 0)).map(([name, values]) => ({ name, values })),
  ], "/s", rates);
  for (const [key, title, note] of [["waiting", "Waiting requests", ""], ["running", "Running requests", ""], ["kv", "KV cache in use", "share of the blocks"], ["hit", "Prefix-cache hit rate", "share of the blocks of prompts"]]) {
    if (key === "hit" && instances.every((one) => one.hit.every((value) => !value))) continue;
    add(title, note, linesOf(instances, key), undefined, key === "hit" ? rates : time);
  }
  if (cluster.gateway_queue) add("Gateway queue", "requests", [{ name: "waiting in the gateway", values: cluster.gateway_queue }]);
  const replicas = ["active", "starting", "draining"].map((name) => ({ name, values: cluster[`replicas_${name}`] }));
  if (replicas.some((line) => new Set(line.values).size > 1)) add("Replicas", "", replicas);
  add("Output tokens of completed requests", "tokens per second", [{ name: "output tokens", values: cluster.output_tokens_per_s }], "/s", rates);
  main.append(h("p", { class: "note" }, `A point is the state at a moment: ${time.length} moments, ${short(time[1] - time[0])} s apart. Rates are means over ${short(rates[1] - rates[0])} s.`));
  main.append(h("div", { class: "pair" }, figures));
  if (instances.length > 1) main.append(heatSection(charts));
}

/** A line for each instance; of many instances the least, the mean and the most. */
function linesOf(instances, key) {
  if (instances.length <= 8) return instances.map((one) => ({ name: one.name, values: one[key] }));
  const at = (index) => instances.map((one) => one[key][index]).filter((value) => value !== null);
  const over = (of) => instances[0][key].map((_, index) => { const values = at(index); return values.length ? of(values) : null; });
  return [
    { name: "most of all instances", values: over((values) => Math.max(...values)) },
    { name: "mean", values: over((values) => Number((values.reduce((sum, value) => sum + value, 0) / values.length).toPrecision(6))) },
    { name: "least", values: over((values) => Math.min(...values)) },
  ];
}

function heatSection({ time_s: all, rates_s: rates, instances }) {
  const of = { "running requests": "running", "waiting requests": "waiting", "KV cache in use": "kv", "hit rate": "hit" };
  const choice = h("select", { "aria-label": "figure of the heat map" }, Object.keys(of).map((name) => h("option", {}, name)));
  const time = () => (of[choice.value] === "hit" ? rates : all);
  const rows = () => instances.map((one) => ({ name: one.name, values: one[of[choice.value]] }));
  const box = h("div", {});
  let redraw = null;
  const element = figure("Instances over time", "is routing balanced?", box, () => [["time_s", ...instances.map((one) => one.name)], time().map((at, index) => [at, ...rows().map((row) => row.values[index])])]);
  const draw = () => {
    if (redraw) redraws.splice(redraws.indexOf(redraw), 1);
    box.replaceChildren(heatMap(`Instances over time: ${choice.value}`, time(), rows(), short));
    redraw = redraws[redraws.length - 1];
    const details = element.querySelector("details");
    [details.open] = [false];
    details.querySelector(".scroll")?.remove();
  };
  choice.addEventListener("change", draw);
  element.querySelector("figcaption").append(choice);
  draw();
  return element;
}

const LATENCIES = [["ttft", "Time to first token"], ["tpot", "Time per output token"], ["e2e", "End-to-end latency"]];

function latencySection({ quantiles, windows_s: windows, latencies }) {
  main.append(h("p", { class: "note" }, "Of completed requests; percentiles over time by the window in which they arrived. TPOT is the mean gap between the tokens of a request."));
  const by = h("select", { "aria-label": "groups of requests" }, [...new Set(latencies.map((one) => one.by))].map((name) => h("option", { value: name }, { all: "all requests", class: "by class", tenant: "by tenant" }[name])));
  const box = h("div", { class: "pair" });
  const draw = () => {
    overTime.splice(0, overTime.length, ...overTime.filter((entry) => !box.contains(entry.chart)));
    const groups = latencies.filter((one) => one.by === by.value);
    box.replaceChildren(...LATENCIES.flatMap(([key, title]) => {
      const known = groups.filter((one) => one[key].quantiles.length);
      if (!known.length) return [];
      const lines = known.map((one) => ({ name: `${one.name} (${one.completed})`, marks: false, points: one[key].quantiles.map((value, index) => [value, quantiles[index] * 100, `${one.name}\n${short(quantiles[index] * 100)} % within ${short(value)} ms`]) }));
      const cdf = xyChart(`${title}: cumulative distribution`, { label: `${key.toUpperCase()}, ms`, log: true }, { label: "requests within, %", zero: true }, lines);
      const head = ["quantile", ...known.map((one) => one.name)];
      const percentiles = groups.length === 1 ? ["p50", "p90", "p99"] : ["p90"];
      const series = groups.flatMap((one) => percentiles.map((name) => ({ name: groups.length === 1 ? name : `${one.name} ${name}`, values: one[key][name] })));
      return [
        figure(title, "share of requests within a latency", cdf, () => [head, quantiles.map((q, index) => [q, ...known.map((one) => one[key].quantiles[index])])]),
        figure(`${title} over time`, "by window of arrival, ms", timeChart(`${title} over time`, windows, series, "ms"), () => [["begin_s", ...series.map((line) => line.name)], windows.map((at, index) => [at, ...series.map((line) => line.values[index])])]),
      ];
    }));
  };
  const redraw = () => { draw(); drawOverTime(); };
  by.addEventListener("change", redraw);
  if (by.options.length > 1) main.append(h("p", {}, h("label", {}, "Show ", by)));
  main.append(box);
  draw();
}

const STAGES = ["gateway", "queue", "prefill", "decode"];

function stageSection({ latencies, stages }) {
  const size = 100 / Math.max(1, stages.length);
  const values = (one) => STAGES.map((name) => one[name]);
  const parts = stages.map((one, index) => ({ name: `${short(index * size)} – ${short((index + 1) * size)} %`, values: values(one) }));
  const groups = latencies.map((one) => ({ name: one.name, values: values(one.stages) }));
  const first = STAGES.slice(0, 3);
  const before = parts.map((one) => ({ name: one.name, values: one.values.slice(0, 3) }));
  const table = (bars) => () => [["", ...STAGES.map((name) => `${name}_ms`)], bars.map((bar) => [bar.name, ...bar.values])];
  main.append(h("p", { class: "note" }, "Means of completed requests. Queue: from the gateway to the last admission to the batch; decode contains the time after preemptions."));
  main.append(h("div", { class: "pair" },
    figure("Stages from the fastest to the slowest requests", "", stackedBars("Stages of requests by latency", STAGES, parts, "ms"), table(parts)),
    figure("The same before the first token", "", stackedBars("Stages before the first token", first, before, "ms"), () => [["", ...first.map((name) => `${name}_ms`)], before.map((bar) => [bar.name, ...bar.values])]),
    figure("Stages by class and tenant", "", stackedBars("Stages by class and tenant", STAGES, groups, "ms"), table(groups))));
}

function slowestSection({ slowest }) {
  const most = Math.max(...slowest.map((one) => one.e2e_ms), 1e-9);
  const story = (one) => {
    const about = [one.class && `class ${one.class}`, one.tenant && `tenant ${one.tenant}`, one.session && `session ${one.session}`].filter(Boolean).join(", ");
    const parts = [`Arrived at ${short(one.arrival_s)} s with ${one.input_tokens} prompt tokens (${one.cached_tokens} in the prefix cache).`];
    if (one.stages.gateway > 0) parts.push(`Waited ${short(one.stages.gateway)} ms in the gateway.`);
    if (one.instance) parts.push(`Waited ${short(one.stages.queue)} ms for ${one.instance}${one.found ? `, which had ${one.found[0]} waiting and ${one.found[1]} running requests and ${short(one.found[2] * 100)} % of its KV blocks in use at that moment` : ""}.`);
    parts.push(`Prefill took ${short(one.stages.prefill)} ms: first token after ${short(one.ttft_ms)} ms.`);
    parts.push(`Decode of ${one.output_tokens} tokens took ${short(one.stages.decode)} ms, ${short(one.tpot_ms)} ms per token.`);
    if (one.preemptions) parts.push(`Preempted ${one.preemptions === 1 ? "once" : `${one.preemptions} times`}.`);
    const bar = h("div", { class: "bar", role: "img", "aria-label": STAGES.map((name) => `${name} ${short(one.stages[name])} ms`).join(", "), title: STAGES.map((name) => `${name} ${short(one.stages[name])} ms`).join(", ") },
      STAGES.map((name, index) => h("i", { style: `width:${(one.stages[name] / most) * 100}%;background:${colour(index)}` })));
    return h("div", { class: "story" }, h("div", {}, h("strong", {}, one.request), h("br"), `${short(one.e2e_ms)} ms`, about ? h("div", { class: "note" }, about) : null), h("div", {}, bar, h("div", {}, parts.join(" "))));
  };
  const names = h("ul", { class: "legend" }, STAGES.map((name, index) => h("li", {}, h("i", { style: `border-top-color:${colour(index)}` }), name)));
  const columns = ["request", "class", "tenant", "instance", "arrival_s", "input_tokens", "output_tokens", "cached_tokens", "preemptions", "ttft_ms", "tpot_ms", "e2e_ms"];
  main.append(figure("By end-to-end latency", "", h("div", {}, names, slowest.map(story)), () => [[...columns, ...STAGES.map((name) => `${name}_ms`)], slowest.map((one) => [...columns.map((name) => one[name]), ...STAGES.map((name) => one.stages[name])])]));
}

function regretSection({ worst }) {
  main.append(h("p", { class: "note" }, "Regret: request-seconds that the best alternative would have saved, of all requests together; each alternative was simulated."));
  for (const [index, one] of worst.slice(0, 10).entries()) {
    const branches = [...new Set(one.branches.flatMap((branch) => Object.keys(branch)))];
    const state = Object.entries(one.state ?? {}).filter(([, values]) => Array.isArray(values));
    const count = Math.max(0, ...state.map(([, values]) => values.length));
    main.append(h("details", { open: index ? null : "" },
      h("summary", {}, `${one.kind} of ${one.request_id} at ${short(one.time_us / 1e6)} s: ${short(one.regret_s)} request-seconds`),
      h("p", {}, `${one.input_tokens} prompt tokens${one.slo_class ? `, class ${one.slo_class}` : ""}${one.situations?.length ? `; ${one.situations.join(", ")}` : ""}. The first of the alternatives is the decision that was made.`),
      tableOf(branches, one.branches.map((branch) => branches.map((name) => textOf(branch[name])))),
      count ? h("p", {}, "The instances at that time:") : "",
      count ? tableOf(["instance", ...state.map(([name]) => name)], Array.from({ length: count }, (_, index) => [`instance_${index}`, ...state.map(([, values]) => values[index])])) : ""));
  }
}

/** Runs beside each other, if a page has several. */
function sideBySide() {
  const runs = data.results.filter((one) => KINDS[0][0](one.result ?? {}));
  const columns = ["completed_requests", "responses_per_sec", "tokens_per_sec", "ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms", "tpot_p50_ms", "e2e_p50_ms", "e2e_p90_ms", "e2e_p99_ms", "cache_hit_rate"];
  return h("div", {}, h("h3", {}, "Runs beside each other"), tableOf(["", ...columns], runs.map((one) => [one.name, ...columns.map((name) => one.result[name])])));
}

// --- comparisons and plans

function compareSections(result, _charts, title) {
  const { metrics, policies, seeds } = result;
  if (!title) main.append(heading("Summary"));
  main.append(h("p", {}, `${policies.slice(1).join(", ")} against ${policies[0]}, under the same requests: ${seeds.length} seeds. Intervals of ${short(result.confidence * 100)} %.`));
  const named = Object.entries(metrics);
  main.append(heading(sectionName("Differences", title)));
  main.append(h("p", { class: "note" }, "Relative to the mean of the baseline. ▲ better, ▼ worse, ● undecided: the interval contains 0."));
  const figures = policies.slice(1).map((candidate) => {
    const rows = named.flatMap(([name, metric]) => {
      const one = metric.differences.find((difference) => difference.candidate === candidate);
      const base = Math.abs(metric.means[0]);
      if (!one || !base || !Number.isFinite(one.mean)) return [];
      const share = (value) => (Number.isFinite(value) ? (value / base) * 100 : null);
      const text = `${name}: ${one.result}\n${short(one.mean)} ${metric.unit} (${short(one.low)} … ${short(one.high)})\n${short(share(one.mean))} % of ${short(metric.means[0])}`;
      return [{ name: `${name} (${metric.better} is better)`, mean: share(one.mean), low: share(one.low), high: share(one.high), result: one.result, text }];
    });
    const table = () => [["figure", "unit", "better", policies[0], candidate, "mean difference", "low", "high", "result"], named.map(([name, metric]) => {
      const one = metric.differences.find((difference) => difference.candidate === candidate) ?? {};
      return [name, metric.unit, metric.better, metric.means[0], metric.means[policies.indexOf(candidate)], one.mean, one.low, one.high, one.result];
    })];
    return figure(`${candidate} against ${policies[0]}`, "", intervals(`${candidate} against ${policies[0]}`, rows, "% of the baseline"), table);
  });
  main.append(h("div", { class: "pair" }, figures));
  main.append(heading(sectionName("Every seed", title)));
  const choice = h("select", { "aria-label": "figure" }, named.map(([name]) => h("option", {}, name)));
  choice.value = metrics.mean_ttft ? "mean_ttft" : named[0][0];
  const box = h("div", {});
  const draw = () => {
    const metric = metrics[choice.value];
    const lines = policies.map((policy, index) => ({ name: policy, points: metric.values[index].map((value, seed) => [seed + 1, value, `${policy}, seed ${seeds[seed]}\n${short(value)} ${metric.unit}`]) }));
    box.replaceChildren(figure(choice.value, "", xyChart(choice.value, { label: "run", whole: true }, { label: metric.unit }, lines), () => [["seed", ...policies], seeds.map((seed, at) => [seed, ...policies.map((_, index) => metric.values[index][at])])]));
  };
  choice.addEventListener("change", draw);
  draw();
  main.append(h("p", {}, h("label", {}, "Figure ", choice)), box);
}

function sweepSections(result, _charts, title) {
  const { points, figures } = result;
  const names = points[0].settings.map((setting) => setting.name);
  const valuesOf = (name) => [...new Set(points.map((point) => setting(point, name)))];
  const isNumeric = (name) => valuesOf(name).every((value) => Number.isFinite(Number(value)));
  const varied = names.filter((name) => valuesOf(name).length > 1);
  const x = varied.find((name) => isNumeric(name) && ["rate", "concurrency"].includes(name)) ?? varied.find(isNumeric);
  const others = names.filter((name) => name !== x);
  const lineOf = (point) => others.map((name) => `${name}=${setting(point, name)}`).join(", ") || "all points";
  const labels = [...new Set(points.map(lineOf))];
  const head = [...names, "load", "gpus", "cost", ...figures, "meets_slos", "non_dominated", "saturated_seeds"];
  const table = () => [head, points.map(({ settings, measured }) => [...settings.map((one) => one.value), measured.load, measured.gpus, measured.cost, ...measured.values_ms, measured.meets_slos, measured.non_dominated, measured.saturated_seeds])];
  if (!title) main.append(heading("Sweep"));
  const drawn = figures.map((name, index) => [name, index, (point) => point.measured.values_ms[index]]);
  const charts = x === undefined ? [] : drawn.map(([name, index, value]) => {
    const lines = labels.map((label) => {
      const own = points.filter((point) => lineOf(point) === label).sort((a, b) => setting(a, x) - setting(b, x));
      const knee = kneeOf(own);
      return { name: label, points: own.map((point) => [Number(setting(point, x)), value(point), pointText(point, figures), point === knee ? "knee" : null]) };
    });
    const limit = limitOf(name);
    return figure(`${name.split("=")[0]} over ${x}`, "the knee: the last point within all limits", xyChart(name, { label: x, zero: true }, { label: "ms", log: true }, lines, limit ? [{ y: limit, name }] : []), table);
  });
  const pareto = drawn.map(([name, , value]) => {
    const best = points.filter((point) => point.measured.non_dominated);
    const rest = points.filter((point) => !point.measured.non_dominated);
    const mark = (point) => [point.measured.cost, value(point), pointText(point, figures)];
    return figure(`Cost and ${name.split("=")[0]}`, "non-dominated: no other point is better in everything", xyChart(`cost and ${name}`, { label: "cost (GPUs per load, or price)" }, { label: "ms", log: true }, [
      { name: "non-dominated", points: best.map(mark).sort((a, b) => a[0] - b[0]), index: 2 }, { name: "dominated", points: rest.map(mark), line: false, index: 7 }]), table);
  });
  main.append(h("div", { class: "pair" }, charts, pareto));
}

const setting = (point, name) => point.settings.find((one) => one.name === name)?.value;
const pointText = ({ settings, measured }, figures) => [...settings.map((one) => `${one.name}=${one.value}`), ...figures.map((name, index) => `${name.split("=")[0]}: ${short(measured.values_ms[index])} ms`), `cost ${short(measured.cost)}`, measured.meets_slos ? "within all limits" : "beyond a limit"].join("\n");

/** The last point of a line within all limits. */
function kneeOf(points) {
  const within = points.filter((point) => point.measured.meets_slos);
  return within.length < points.length ? within[within.length - 1] : undefined;
}

/** The limit of `ttft_p90=500ms`, ms. */
function limitOf(name) {
  const found = /=([\d.]+)(us|µs|ms|s)$/.exec(name);
  return found ? Number(found[1]) * { us: 1e-3, "µs": 1e-3, ms: 1, s: 1e3 }[found[2]] : null;
}

function sizeSections(result, _charts, title) {
  if (!title) main.append(heading("Size"));
  main.append(tiles([["replicas", result.replicas], ["GPUs", result.gpus], [result.unit?.replaceAll("_", " ") ?? "load", result.load], ["policy", result.policy]]));
  const checks = [...result.checks].sort((a, b) => a.replicas - b.replicas);
  const head = ["replicas", "result", ...result.slo, "saturated_seeds"];
  const table = () => [head, checks.map((one) => [one.replicas, one.result, ...(one.values_ms ?? []), one.saturated_seeds])];
  const charts = result.slo.map((name, index) => {
    const points = checks.filter((one) => one.values_ms?.[index] !== undefined).map((one) => [one.replicas, one.values_ms[index], `${one.replicas} replicas: ${one.result}\n${short(one.values_ms[index])} ms`, one.replicas === result.replicas ? "found" : null]);
    return figure(`${name.split("=")[0]} by replicas`, "", xyChart(name, { label: "replicas", whole: true }, { label: "ms", log: true }, [{ name: result.policy ?? "service", points }], [{ y: limitOf(name), name }].filter((rule) => rule.y)), table);
  });
  main.append(h("div", { class: "pair" }, charts));
  for (const note of result.notes ?? []) main.append(h("p", { class: "note" }, note));
}

const several = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

function capacitySections(result, _charts, title) {
  const { policies, slo } = result;
  const unit = result.unit.replaceAll("_", " ");
  if (!title) main.append(heading("Capacity"));
  main.append(h("p", {}, `The highest load within ${slo.join(", ")}: ${several(result.replicas, "replica")} of ${several(result.gpus_per_replica, "GPU")}, ${several(result.seeds.length, "seed")}, intervals of ${short(result.confidence * 100)} %.`));
  const rows = policies.map((one) => ({ name: one.policy, mean: one.capacity, low: one.low, high: one.high, text: `${one.policy}: ${short(one.capacity)} ${unit}\n${short(one.low)} … ${short(one.high)}\nlimited by ${one.binding ?? "nothing"}` }));
  const table = () => [["policy", "gpus", `capacity, ${unit}`, "low", "high", "limited by", ...slo, ...result.seeds.map((seed) => `seed ${seed}`)],
    policies.map((one) => [one.policy, one.gpus, one.capacity, one.low, one.high, one.binding, ...(one.values_ms ?? slo.map(() => null)), ...(one.by_seed ?? [])])];
  main.append(figure("Capacity", unit, intervals("Capacity with its interval", rows, unit), table));
  for (const note of result.notes ?? []) main.append(h("p", { class: "note" }, note));
}

function evaluateSections(result, _charts, title) {
  if (!title) main.append(heading("Summary"));
  const paired = result.paired ?? {};
  main.append(tiles([["combined score", result.combined_score], ["stage", result.stage], ["against", paired.reference], ["mean difference", paired.diff_mean],
    ["interval of the difference, 95 %", paired.ci95 ? paired.ci95.map(short).join(" … ") : null], ["probability that it is better", paired.p_better], ["status", result.status]]));
  const rows = result.scenarios.map((one) => ({ name: `${one.id} (${one.stage})`, mean: one.score - 1, result: one.score > 1.0005 ? "better" : one.score < 0.9995 ? "worse" : "equal",
    text: [`${one.id}, seed ${one.seed}: ${short(one.score)}`, ...Object.entries(one.objectives ?? {}).map(([name, of]) => `${name}: ${short(of.own)} (reference ${short(of.reference)})`)].join("\n") }));
  const figures = [...new Set(result.scenarios.flatMap((one) => Object.keys(one.metrics ?? {})))];
  main.append(heading(sectionName("Scenarios", title)));
  main.append(figure("Score of each scenario", "difference from 1, the reference; ▲ better", intervals("Score of each scenario", rows, "score − 1"), () => [["scenario", "stage", "family", "seed", "score", ...figures], result.scenarios.map((one) => [one.id, one.stage, one.family, one.seed, one.score, ...figures.map((name) => one.metrics?.[name])])]));
  const texts = Object.entries(result.artifacts ?? {}).filter(([, text]) => text);
  if (texts.length) main.append(heading(sectionName("Feedback", title)));
  for (const [name, text] of texts) main.append(h("h3", {}, name.replaceAll("_", " ")), h("pre", {}, textOf(text)));
}

/** A result of a kind without charts: its figures as tables. */
function otherSections(result, _charts, title) {
  if (!title) main.append(heading("Result"));
  const lists = [];
  const rows = [];
  for (const [name, value] of Object.entries(result ?? {})) {
    if (name === "conclusion") continue;
    const isList = Array.isArray(value) && value.length && value.every((one) => one && typeof one === "object" && !Array.isArray(one));
    if (isList) lists.push([name, value.map((one) => flatten(one))]); else rows.push(...Object.entries(flatten({ [name]: value })));
  }
  main.append(tableOf(["figure", "value"], rows));
  for (const [name, list] of lists) {
    const columns = [...new Set(list.flatMap((one) => Object.keys(one)))].slice(0, 40);
    main.append(h("h3", {}, name.replaceAll("_", " ")), tableOf(columns, list.map((one) => columns.map((column) => one[column]))));
  }
}

drawPage();
