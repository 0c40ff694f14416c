// What if: follow a replay until it is done, and show the numbers of a turn in both charts. Without this script, one
// reloads the page.

import { findColumn } from "./chart.js";

const box = document.querySelector("#whatif-result");
async function follow() {
  if (!box?.querySelector("[data-busy]")) return;
  const address = new URL(location.href);
  address.searchParams.set("part", "1");
  const answer = await fetch(address);
  if (!answer.ok) return;
  box.innerHTML = await answer.text();
  setTimeout(follow, 700);
}
setTimeout(follow, 400);

// Shows the numbers of a turn below both charts.
function point(turn) {
  for (const column of box.querySelectorAll(".turn")) {
    const isPointedAt = column.dataset.turn === turn;
    column.classList.toggle("over", isPointedAt);
    if (isPointedAt) column.closest("section").querySelector(".readout").textContent = column.dataset.label;
  }
}
box?.addEventListener("pointermove", (event) => {
  const chart = event.target.closest(".chart");
  if (chart) point(findColumn(chart, event)?.dataset.turn);
});
box?.addEventListener("click", (event) => {
  const chart = event.target.closest(".chart");
  const turn = chart && findColumn(chart, event)?.dataset.turn;
  if (turn) location.assign(`${chart.closest("[data-session]").dataset.session}&turn=${turn}`);
});
