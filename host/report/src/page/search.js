"use strict";
// The section of a search: scores over evaluations, the champion and how it differs from the one before, what was rejected and why.
// A finished search is a result like others; of one that runs, the candidates come as events (`live.js`).

const MOST_ROWS = 200;

function searchSections(result, _charts, title) {
  if (!title) main.append(heading("Search"));
  const box = h("div", { id: "search" });
  main.append(box);
  drawSearch(box, result);
  redraws.push(() => drawSearch(box, result));
}

function drawSearch(box, { candidates, finished }) {
  const champions = candidates.filter((one) => one.champion);
  const [champion, before] = [champions[champions.length - 1], champions[champions.length - 2]];
  const rejected = candidates.filter((one) => one.status !== "ok");
  const opened = new Set([...box.querySelectorAll("details[data-key]")].filter((one) => one.open).map((one) => one.dataset.key));
  const parts = [
    tiles([["evaluations", candidates.length], ["best score", champion?.score], ["champions so far", champions.length], ["rejected", rejected.length], ["state", finished ? "finished" : "running"]]),
    candidates.length ? scoresFigure(candidates, champions) : h("p", { class: "note" }, "No candidate has been evaluated so far."),
  ];
  if (champion) parts.push(h("h3", {}, `The champion: ${champion.name}`), championPart(champion, before));
  parts.push(h("h3", {}, "Rejected candidates"));
  if (rejected.length) {
    const rows = rejected.slice(-MOST_ROWS).reverse().map((one) => [one.number, one.name, one.status.replaceAll("_", " "), one.reason ?? ""]);
    if (rejected.length > rows.length) parts.push(h("p", { class: "note" }, `The last ${rows.length} of ${rejected.length}.`));
    parts.push(tableOf(["evaluation", "candidate", "kind", "reason"], rows));
  } else parts.push(h("p", { class: "note" }, "None."));
  box.replaceChildren(...parts);
  box.querySelectorAll("details").forEach((details, index) => {
    details.dataset.key = index;
    if (opened.has(String(index))) details.open = true;
  });
}

function scoresFigure(candidates, champions) {
  const scored = candidates.filter((one) => one.score > 0);
  const text = (one) => `${one.name}\nevaluation ${one.number}: ${short(one.score)}`;
  const steps = champions.flatMap((one, index) => {
    const end = champions[index + 1]?.number ?? candidates.length;
    return [[one.number, one.score, `champion: ${text(one)}`], [end, one.score, `champion: ${text(one)}`]];
  });
  const lines = [
    { name: "best so far", points: steps, marks: false, index: 1 },
    { name: `candidates (${scored.length})`, points: scored.map((one) => [one.number, one.score, text(one)]), line: false, index: 0 },
  ];
  const rejected = candidates.length - scored.length;
  const note = rejected ? `${rejected} without a score ${rejected === 1 ? "is" : "are"} not drawn` : "";
  return figure("Score over evaluations", note, xyChart("Score over evaluations", { label: "evaluation", whole: true }, { label: "score" }, lines),
    () => [["evaluation", "candidate", "score", "status", "champion"], candidates.map((one) => [one.number, one.name, one.score, one.status, one.champion])]);
}

function championPart(champion, before) {
  if (champion.text === undefined) return h("p", { class: "note" }, `Score ${short(champion.score)}; its text was not kept.`);
  if (before?.text === undefined) return h("div", {}, h("p", { class: "note" }, `Score ${short(champion.score)}.`), h("pre", {}, champion.text));
  const lines = differenceOf(before.text.split("\n"), champion.text.split("\n"));
  const sign = { "+": "added", "-": "removed", " ": "kept" };
  return h("div", {}, h("p", { class: "note" }, `Score ${short(champion.score)}, before ${short(before.score)} (${before.name}). Lines with − were in the champion before, lines with + are new.`),
    h("pre", { class: "difference" }, lines.map(([mark, line]) => h("span", { class: sign[mark] }, `${mark === "-" ? "−" : mark} ${line}\n`))));
}

/** The lines of both texts, each with "-" (in the first only), "+" (in the second only) or " ": a longest common subsequence. */
function differenceOf(first, second) {
  if (first.length * second.length > 4e6) return [...first.map((line) => ["-", line]), ...second.map((line) => ["+", line])];
  const common = Array.from({ length: first.length + 1 }, () => new Uint16Array(second.length + 1));
  for (let i = first.length - 1; i >= 0; i -= 1) {
    for (let j = second.length - 1; j >= 0; j -= 1) common[i][j] = first[i] === second[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < first.length || j < second.length) {
    if (i < first.length && j < second.length && first[i] === second[j]) { lines.push([" ", first[i]]); i += 1; j += 1; }
    else if (j >= second.length || (i < first.length && common[i + 1][j] >= common[i][j + 1])) { lines.push(["-", first[i]]); i += 1; }
    else { lines.push(["+", second[j]]); j += 1; }
  }
  return lines;
}
