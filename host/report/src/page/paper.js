"use strict";
// The page on paper: as wide as it, on white, with tables that are short enough, and nothing cut off at the right.

/** Most rows of a table that is printed though it is closed on the screen: behind a chart, and elsewhere. */
const ROWS_BEHIND_CHART = 40;
const ROWS_ON_PAPER = 200;
/** What was opened for paper. */
const opened = [];

const isOnPaper = () => document.documentElement.classList.contains("paper");

function toPaper() {
  if (isOnPaper()) return;
  document.documentElement.classList.add("paper");
  drawAgain();
  for (const details of main.querySelectorAll("details:not([open])")) {
    const [rows, most] = details.table ? [details.table()[1].length, ROWS_BEHIND_CHART] : [details.querySelectorAll("tr").length, ROWS_ON_PAPER];
    if (rows > most) continue;
    details.fill?.();
    details.open = true;
    opened.push(details);
  }
  main.querySelectorAll(".scroll > table").forEach(foldTable);
}

function fromPaper() {
  document.documentElement.classList.remove("paper");
  opened.splice(0).forEach((details) => { details.open = false; });
  main.querySelectorAll(".folded").forEach((part) => part.remove());
  main.querySelectorAll(".unfolded").forEach((table) => table.classList.remove("unfolded"));
  drawAgain();
}

/** Charts in other colours or another width. */
function drawAgain() {
  drawOverTime();
  redraws.forEach((draw) => draw());
}

/** A table that is wider than the paper becomes several below each other; all begin with the first column. */
function foldTable(table) {
  const room = table.parentElement.clientWidth;
  // Rounded up: seventeen columns that are each rounded to the nearest pixel may be wider than their sum.
  const [first, ...widths] = [...table.rows[0].cells].map((cell) => Math.ceil(cell.getBoundingClientRect().width));
  if (!room || table.offsetWidth <= room) return;
  const parts = [[]];
  let used = first;
  widths.forEach((width, index) => {
    if (used + width > room && parts[parts.length - 1].length) { parts.push([]); used = first; }
    parts[parts.length - 1].push(index + 1);
    used += width;
  });
  table.after(...parts.map((columns) => columnsOf(table, [0, ...columns])));
  table.classList.add("unfolded");
}

function columnsOf(table, columns) {
  const row = (row) => h("tr", {}, columns.map((column) => row.cells[column].cloneNode(true)));
  const [head, ...rows] = table.rows;
  return h("table", { class: "folded" }, h("thead", {}, row(head)), h("tbody", {}, rows.map(row)));
}
