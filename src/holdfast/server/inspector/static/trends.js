// The charts of Trends: the numbers of a column are below the chart, for a pointer, a finger and the arrow keys.

import { $, $$ } from "./inspector.js";

function watch(figure) {
  const drawing = $(".bars", figure);
  if (!drawing) return;
  const line = $(".readout", figure);
  const columns = $$("g", drawing);
  const words = columns.map((column) => $("title", column).textContent);
  // The line replaces the tooltips, which pages without scripts have.
  for (const column of columns) $("title", column).remove();
  let at = columns.findIndex((column) => column.classList.contains("at"));

  const show = (place) => {
    at = Math.max(0, Math.min(columns.length - 1, place));
    for (const column of columns) column.classList.toggle("at", column === columns[at]);
    line.textContent = words[at];
    drawing.setAttribute("aria-valuenow", String(at + 1));
    drawing.setAttribute("aria-valuetext", words[at]);
  };
  const showUnder = (event) => {
    const place = columns.indexOf(event.target.closest("g"));
    if (place >= 0) show(place);
  };
  drawing.addEventListener("pointerover", showUnder);
  drawing.addEventListener("click", showUnder);
  drawing.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -columns.length, End: columns.length };
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(at + steps[event.key]);
  });
  drawing.setAttribute("role", "slider");
  drawing.setAttribute("tabindex", "0");
  drawing.setAttribute("aria-valuemin", "1");
  drawing.setAttribute("aria-valuemax", String(columns.length));
  show(at);
}

document.documentElement.classList.add("scripted");
for (const figure of $$(".trend")) watch(figure);
