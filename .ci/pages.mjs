// Pages of `--report` in a headless Chromium: charts are drawn, tables have the numbers of the JSON, nothing leaves the page.
//
//     node .ci/pages.mjs FOLDER OUT
//
// FOLDER has pages NAME.html, and beside some of them NAME.json, what the same command printed. OUT gets pictures of each at
// 1280×800 and 390×844. Needs playwright-core (NODE_PATH) and a Chromium (CHROMIUM, or `chromium`).

import { createRequire } from "node:module";
import { existsSync, mkdirSync, readFileSync, readdirSync } from "node:fs";
import { spawn } from "node:child_process";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const { chromium } = createRequire(resolve(process.env.NODE_PATH ?? ".", "x.js"))("playwright-core");
const [folder, out] = process.argv.slice(2);
mkdirSync(out, { recursive: true });
const failures = [];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

for (const file of readdirSync(folder).filter((name) => name.endsWith(".html")).sort()) {
  const name = basename(file, ".html");
  const before = failures.length;
  await checkPage(name, resolve(folder, file)).catch((error) => failures.push(`${name}: ${error.message}`));
  console.log(`${failures.length > before ? "FAILED" : "ok"}  ${name}`);
}
await checkLive().catch((error) => failures.push(`live: ${error.message}`));
console.log(`${failures.some((failure) => failure.startsWith("live")) ? "FAILED" : "ok"}  live`);
await browser.close();
failures.forEach((failure) => console.error(failure));
process.exit(failures.length ? 1 : 0);

async function checkPage(name, path) {
  const expect = (what, holds) => { if (!holds) failures.push(`${name}: ${what}`); };
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "light" });
  const page = await context.newPage();
  page.setDefaultTimeout(5000);
  const own = pathToFileURL(path).href;
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) failures.push(`${name}: console: ${message.text()}`); });
  page.on("pageerror", (error) => failures.push(`${name}: error: ${error.message}`));
  page.on("request", (request) => { if (request.url() !== own && !request.url().startsWith("data:")) failures.push(`${name}: requests ${request.url()}`); });
  page.on("dialog", (dialog) => { failures.push(`${name}: a name became a script`); dialog.dismiss(); });
  await page.goto(own);

  const data = await page.evaluate(() => JSON.parse(document.getElementById("data").textContent));
  expect("title", (await page.title()) === data.title);
  expect("no section is drawn as an error", (await page.getByText("This result cannot be drawn").count()) === 0);
  const figures = await page.locator("figure").count();
  expect("figures", figures > 0 || data.results.every((one) => !one.charts));
  expect("every figure has a table", (await page.locator("figure > details").count()) === figures);
  expect("no chart is empty", await page.evaluate(() => [...document.querySelectorAll("figure .chart")].every((chart) => chart.querySelector("canvas, svg") && chart.clientHeight > 40)));
  expect("nothing is wider than the page", await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));

  // Tables are made when they are opened; numbers are those of the data.
  await page.evaluate(() => document.querySelectorAll("main details").forEach((details) => { details.open = true; }));
  await page.waitForFunction(() => [...document.querySelectorAll("figure > details")].every((details) => details.querySelector("table")));
  const json = join(folder, `${name}.json`);
  if (existsSync(json)) {
    const printed = JSON.parse(readFileSync(json, "utf8"));
    expect("the data are what was printed", JSON.stringify(data.results[0].result) === JSON.stringify(printed));
    const table = page.locator("[data-table=figures]");
    if (await table.count()) {
      const cells = await table.evaluate((element) => [...element.querySelectorAll("tr")].map((row) => [...row.children].map((cell) => cell.textContent)));
      const [head, ...rows] = cells;
      const all = [printed, ...(printed.instances ?? [])];
      rows.forEach((row, index) => row.slice(1).forEach((cell, column) => {
        const value = all[index][head[column + 1]];
        expect(`table: ${head[column + 1]} of row ${index} is ${cell}`, value === null || value === undefined ? cell === "–" : Number(cell) === value);
      }));
    }
  }
  await page.evaluate(() => document.querySelectorAll("main details").forEach((details) => { details.open = false; }));
  if (data.results[0].charts) await checkCharts(page, data.results[0].charts, expect);
  if (data.results[0].result.search !== undefined) await checkSearch(page, data.results[0].result, expect);

  await page.evaluate(() => { window.scrollTo(0, 0); document.activeElement?.blur(); });
  await page.mouse.move(1, 1);
  for (const [width, height, scheme] of [[1280, 800, "light"], [1280, 800, "dark"], [390, 844, "light"]]) {
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: scheme });
    await page.waitForTimeout(150);
    expect(`nothing is wider than ${width} px`, await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await page.screenshot({ path: join(out, `${name}-${width}x${height}-${scheme}.png`), fullPage: true });
  }
  await checkPaper(page, join(out, `${name}.pdf`), expect);
  const ofReadme = { run: 4, sweep: 2 }[name];
  if (ofReadme) await firstFigures(page, join(out, `readme-${name}.png`), ofReadme);
  await context.close();
}

/** The page on paper: white though the screen is dark, and nothing is cut off; the screen afterwards is as before. */
async function checkPaper(page, path, expect) {
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.emulateMedia({ colorScheme: "dark" });
  await page.waitForTimeout(150);
  const before = await page.evaluate(() => document.documentElement.scrollHeight);
  await page.emulateMedia({ media: "print" });
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  await page.waitForTimeout(150);
  expect("paper is white", await page.evaluate(() => getComputedStyle(document.body).backgroundColor === "rgb(255, 255, 255)"));
  const beyond = () => [...document.querySelectorAll("main *")].filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > document.body.getBoundingClientRect().right + 1).map((one) => `${one.tagName} ${one.textContent.slice(0, 30)}`);
  const cut = await page.evaluate(beyond);
  expect(`nothing is cut off on paper: ${cut.slice(0, 3)}`, cut.length === 0);
  expect("charts over time have the colours of paper", await page.evaluate(() => overTime.every(({ plot }) => plot.series.slice(1).every((line, index) => line.stroke() === plain(`--c${index % 8}`)) && plain("--c0") === "#0072b2")));
  await page.evaluate(() => dispatchEvent(new Event("afterprint")));
  await page.emulateMedia({ media: null });
  await page.waitForTimeout(150);
  expect("the screen is as before it was printed", (await page.evaluate(() => document.documentElement.scrollHeight)) === before);
  await page.pdf({ path, format: "A4", printBackground: true, margin: { top: "12mm", bottom: "12mm", left: "11mm", right: "11mm" } });
}

/** A picture of the first figures of a page: those of `docs/pictures`, which README.md shows. */
async function firstFigures(page, path, count) {
  await page.setViewportSize({ width: 1040, height: 800 });
  await page.emulateMedia({ colorScheme: "light" });
  await page.waitForTimeout(150);
  const corners = (figures, count) => figures.slice(0, count).map((figure) => figure.getBoundingClientRect()).map((box) => [box.left + scrollX, box.top + scrollY, box.right + scrollX, box.bottom + scrollY]);
  const boxes = await page.locator("main .pair figure").evaluateAll(corners, count);
  const [left, top] = [0, 1].map((side) => Math.min(...boxes.map((box) => box[side])) - 8);
  const [right, bottom] = [2, 3].map((side) => Math.max(...boxes.map((box) => box[side])) + 8);
  await page.screenshot({ path, fullPage: true, clip: { x: left, y: top, width: right - left, height: bottom - top } });
}

/** Scores, the champion and the rejected candidates of a search. */
async function checkSearch(page, { candidates }, expect) {
  const scored = candidates.filter((one) => one.score > 0);
  expect("a mark for each score", (await page.locator("#search figure circle[r='4']").count()) === scored.length);
  const champion = candidates.filter((one) => one.champion).pop();
  expect("the champion", (await page.locator("#search h3").first().textContent()) === `The champion: ${champion.name}`);
  expect("its difference", (await page.locator(".difference .added").count()) > 0 && (await page.locator(".difference .removed").count()) > 0);
  const text = await page.locator("#search").textContent();
  expect("rejected candidates and reasons are text", candidates.filter((one) => one.status !== "ok").every((one) => text.includes(one.name) && text.includes(one.reason)));
  expect("no name became an element", (await page.locator("#search script, #search img").count()) === 0);
}

/** The page of a server: candidates appear as they are evaluated, also after the connection was lost. */
async function checkLive() {
  const expect = (what, holds) => { if (!holds) failures.push(`live: ${what}`); };
  const server = spawn(resolve(process.env.BLIS), ["serve", "--http", "127.0.0.1:0", "--ui"], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((done) => server.on("exit", done));
  const first = await new Promise((done) => server.stdout.once("data", (text) => done(JSON.parse(text))));
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "light" });
  try {
    const page = await context.newPage();
    page.on("pageerror", (error) => failures.push(`live: error: ${error.message}`));
    page.on("request", (request) => { if (!request.url().startsWith(first.listening) && !request.url().startsWith("data:")) failures.push(`live: requests ${request.url()}`); });
    page.on("dialog", (dialog) => { failures.push("live: a name became a script"); dialog.dismiss(); });
    await page.goto(`${first.listening}/?token=${first.token}`);
    const evaluate = (candidate, id) => fetch(`${first.listening}/evaluate`, {
      method: "POST",
      headers: { Authorization: `Bearer ${first.token}` },
      body: JSON.stringify({ id, candidate, stage: "smoke" }),
    });
    const shows = (text) => page.waitForFunction((text) => document.getElementById("search")?.textContent.includes(text), text, { timeout: 60000 });
    await page.waitForFunction(() => document.querySelector("[role=status]").textContent.startsWith("Connected"));
    await evaluate("fn route(r, s) { 0 }", "first");
    await shows("The champion: first");
    await context.setOffline(true);
    await evaluate("fn route(r, s) { <b>", "<b>broken</b>");
    await evaluate("fn route(r, s) { -s.in_flight }", "second");
    await context.setOffline(false);
    await shows("The champion: second");
    await shows("<b>broken</b>");
    expect("every candidate once", (await page.locator("#search .tile b").first().textContent()) === "3");
    expect("the difference", (await page.locator(".difference .added").textContent()).includes("in_flight"));
    await page.screenshot({ path: join(out, "live-1280x800-light.png"), fullPage: true });
    await page.setViewportSize({ width: 390, height: 844 });
    expect("nothing is wider than 390 px", await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await page.screenshot({ path: join(out, "live-390x844-light.png"), fullPage: true });
  } finally {
    await context.close();
    server.kill("SIGTERM");
  }
  expect("the server ends", (await ended) === 0);
}

/** Legends, tooltips and zoom of the charts of a run. */
async function checkCharts(page, charts, expect) {
  const plot = page.locator(".uplot").first();
  await plot.scrollIntoViewIfNeeded();
  const entries = await plot.locator(".u-legend .u-series").count();
  expect("the legend names the lines", entries >= 3);
  const area = await plot.locator(".u-over").boundingBox();
  const ticks = () => page.evaluate(() => overTime.map(({ plot }) => [plot.scales.x.min, plot.scales.x.max]));
  const full = await ticks();
  await page.mouse.move(area.x + area.width / 2, area.y + area.height / 2);
  const tip = page.locator("figure .tip:not([hidden])").first();
  expect("a tooltip follows the pointer", (await tip.textContent())?.includes("arrivals: "));
  await page.mouse.move(area.x + area.width * 0.3, area.y + 50);
  await page.mouse.down();
  await page.mouse.move(area.x + area.width * 0.6, area.y + 50, { steps: 4 });
  await page.mouse.up();
  const zoomed = await ticks();
  expect("a drag zooms", zoomed[0][1] - zoomed[0][0] < (full[0][1] - full[0][0]) * 0.5);
  expect("all charts over time zoom together", zoomed.every(([min, max]) => Math.abs(min - zoomed[0][0]) < 1e-6 && Math.abs(max - zoomed[0][1]) < 1e-6));
  await plot.locator("xpath=ancestor::*[contains(@class,'chart')]").focus();
  await page.keyboard.press("0");
  expect("0 shows all", JSON.stringify((await ticks())[0]) === JSON.stringify(full[0]));
  await page.keyboard.press("+");
  expect("+ zooms", (await ticks())[0][1] - (await ticks())[0][0] < full[0][1] - full[0][0]);
  await page.keyboard.press("0");
  const shown = page.locator(".uplot").first().locator(".u-series").nth(1);
  await shown.locator("th").click();
  expect("a click on the legend hides a line", (await shown.getAttribute("class")).includes("u-off"));
  await shown.locator("th").click();
  const names = charts.latencies.map((one) => one.name);
  const groups = page.getByLabel("groups of requests");
  for (const by of [...new Set(charts.latencies.map((one) => one.by))].filter((by) => by !== "all")) {
    await groups.selectOption(by);
    const text = await page.locator("main").textContent();
    expect(`${by}: every name is text`, charts.latencies.filter((one) => one.by === by).every((one) => text.includes(one.name)));
  }
  expect("no name became an element", (await page.locator("main script").count()) === 0 && names.length > 0);
  if (await groups.count()) await groups.selectOption("all");
}
