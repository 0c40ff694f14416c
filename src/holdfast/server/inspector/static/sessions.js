// The list of sessions: sorting by a column, without loading the page again.

import { $ } from "./inspector.js";

document.addEventListener("click", (event) => {
  const heading = event.target.closest("[data-sort]");
  if (!heading) return;
  event.preventDefault();
  const form = $("form[data-live]");
  const { sort, order } = form.elements;
  const isSame = (sort.value || "time") === heading.dataset.sort;
  order.value = isSame && order.value !== "reverse" ? "reverse" : "";
  sort.value = heading.dataset.sort;
  form.requestSubmit();
});
