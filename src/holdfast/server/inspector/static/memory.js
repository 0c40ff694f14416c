// The memory page: choosing facts, editing one, and deciding contradictions.

import { $, $$, act, join, load, onStored, scopeOf } from "./inspector.js";

function itemOf(element) {
  const row = element.closest("[data-fact]");
  return join(scopeOf(row), new URLSearchParams({ fact: row.dataset.fact }).toString());
}

// --- choosing --------------------------------------------------------------------

function chosen() {
  return $$("[data-choose]:checked");
}

function showBulk() {
  const count = chosen().length;
  const bar = $("#bulk");
  if (!bar) return;
  bar.hidden = !count;
  $("#chosen").textContent = `${count} chosen`;
  const all = $("[data-choose-all]");
  if (!all) return;
  all.checked = count > 0 && count === $$("[data-choose]").length;
  all.indeterminate = count > 0 && !all.checked;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-choose-all]")) {
    for (const box of $$("[data-choose]")) box.checked = event.target.checked;
  }
  if (event.target.matches("[data-choose], [data-choose-all]")) showBulk();
  if (event.target.matches("[data-submit]")) event.target.form.submit();
});

// --- buttons ---------------------------------------------------------------------

async function erase(items) {
  $("#dialog").innerHTML = await load(`erase?${new URLSearchParams({ items: items.join("\n") })}`);
  $("#dialog").showModal();
}

function openEditor(row) {
  const editor = row.nextElementSibling;
  editor.hidden = false;
  const field = $("textarea", editor);
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
}

function closeEditor(editor) {
  editor.hidden = true;
  $("form", editor).reset();
  editor.previousElementSibling.focus();
}

function sortBy(name) {
  const form = $("form[data-live]");
  const { sort, order } = form.elements;
  const isSame = (sort.value || "age") === name;
  order.value = isSame && order.value !== "reverse" ? "reverse" : "";
  sort.value = name;
  form.requestSubmit();
}

document.addEventListener("click", async (event) => {
  const target = event.target;
  const button = target.closest("[data-fact-act]");
  if (button) {
    const items = [itemOf(button), button.dataset.with].filter(Boolean);
    await act(button, { action: button.dataset.factAct, items: items.join("\n") });
  }
  const settled = target.closest("[data-settle]");
  if (settled) {
    const items = $$("[data-fact]", settled.closest("[data-conflict]")).map(itemOf);
    await act(settled, { action: "both hold", items: items.join("\n") });
  }
  const bulk = target.closest("[data-bulk]");
  if (bulk) {
    const items = chosen().map(itemOf);
    if (bulk.dataset.bulk === "forget") await erase(items);
    else if (bulk.dataset.bulk === "none") for (const box of chosen()) box.checked = false;
    else await act(bulk, { action: bulk.dataset.bulk, items: items.join("\n") });
    showBulk();
  }
  if (target.closest("[data-erase-facts]")) await erase([itemOf(target)]);
  if (target.closest("[data-edit]")) openEditor(target.closest("tr"));
  if (target.closest("[data-edit-end]")) closeEditor(target.closest("tr"));
  const heading = target.closest("[data-sort]");
  if (heading) {
    event.preventDefault();
    sortBy(heading.dataset.sort);
  }
});

document.addEventListener("keydown", (event) => {
  const editor = event.target.closest?.("tr.editor");
  if (!editor) return;
  if (event.key === "Escape") closeEditor(editor);
  if (event.key === "Enter" && !event.shiftKey && event.target.matches("textarea")) {
    event.preventDefault();
    $("form", editor).requestSubmit();
  }
});

// --- what is new -----------------------------------------------------------------

// Nothing is drawn again under someone who edits a fact or chooses facts, unless they have just changed something.
function isBusy(list) {
  if ($(".editor:not([hidden])", list) || $(".fact .menu[open]", list)) return true;
  return chosen().length > 0 && document.activeElement !== document.body;
}

onStored(async (query) => {
  const list = $("#facts");
  if (!list || isBusy(list)) return;
  const text = await load(join("memory?rows=1", query));
  if (isBusy(list)) return; // since it was asked for
  const kept = new Set(chosen().map(itemOf));
  const unfolded = new Set($$(".more-about[open]", list).map(itemOf));
  list.innerHTML = text;
  for (const details of $$(".more-about", list)) details.open = unfolded.has(itemOf(details));
  for (const box of $$("[data-choose]")) box.checked = kept.has(itemOf(box));
  showBulk();
  for (const box of $$("[data-load]", list)) box.innerHTML = await load(box.dataset.load);
});
