"use strict";
// The page of a search that runs.

/** Shows a search while it runs. The browser connects again by itself, and gets what it has missed. */
function followSearch() {
  const result = { candidates: [], finished: false };
  const state = h("p", { class: "note", role: "status" }, "Connecting …");
  main.append(heading("Search"), state);
  const box = h("div", { id: "search" });
  main.append(box);
  redraws.push(() => drawSearch(box, result));
  document.querySelector("footer p").textContent = "This page connects to its own server only. In a chart ← and → go from point to point.";
  let waiting = false;
  const draw = () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => { waiting = false; drawSearch(box, result); }, 250);
  };
  const events = new EventSource("events" + location.search);
  events.addEventListener("open", () => { state.textContent = "Connected: candidates appear as they are evaluated."; draw(); });
  events.addEventListener("error", () => { state.textContent = "The connection is lost; the browser tries again."; });
  events.addEventListener("message", (event) => {
    const line = JSON.parse(event.data);
    if (line.finished) {
      result.finished = true;
      events.close();
      state.textContent = "The search has finished.";
    } else result.candidates.push(line);
    draw();
  });
}
