// The page of a session: its turns, the window of each, and why something was cut. The page works without it as well.

import { findColumn } from "./chart.js";
import { $, $$, join, keys, load, onStored, scopeOf, scrollerOf, watchEnds } from "./inspector.js";

const page = $(".session-page");
const slider = $("#turn");
const number = $("#turn-number");
document.documentElement.classList.add("scripted");

// --- turns -----------------------------------------------------------------------

const address = () => new URLSearchParams(location.search);
const shownTurn = () => Number($("#left").dataset.turn);
const lastTurn = () => Number(slider.max);
let wanted = 0;

// Shows what an address of this page names, without loading the chart again.
async function show(query) {
  const mine = ++wanted;
  const given = new URLSearchParams(query);
  if (!given.has("tab")) given.set("tab", given.has("turn") ? "window" : "conversation");
  const text = await load(join("turn", given.toString()));
  if (mine !== wanted) return;
  const fresh = new DOMParser().parseFromString(text, "text/html");
  if (!$("#left", fresh)) {
    $("#left").replaceChildren(...$("main", fresh).children);
    return;
  }
  const top = $("#left").dataset.tab === $("#left", fresh).dataset.tab ? $("#left").scrollTop : 0;
  $("#left").replaceWith($("#left", fresh));
  $("#turn-view").replaceWith($("#turn-view", fresh));
  $("#left").scrollTop = top;
  const found = $(".message.wanted");
  if (found) showFromTop(found);
  else if ($("#left").dataset.tab === "conversation") $("#left").scrollTop = $("#left").scrollHeight;
  markTurn();
  watchEnds();
}

// --- places ------------------------------------------------------------------------

// Measures the rows that stay at the top, under which no message may be scrolled: browsers scroll to `#m…` by themselves.
function measureStuck() {
  const rows = $$("#turn-form, #left > .tabs, #left > .tabs + .legend");
  const heights = rows.filter((row) => getComputedStyle(row).position === "sticky").map((row) => row.offsetHeight);
  const stuck = heights.reduce((sum, height) => sum + height, 0);
  document.documentElement.style.setProperty("--stuck", `${stuck}px`);
}
addEventListener("resize", measureStuck);

// Shows a message in the middle, or from its first line if it is too long for that.
function showFromTop(message) {
  measureStuck();
  const room = (scrollerOf(message)?.clientHeight ?? innerHeight) - parseFloat(getComputedStyle(message).scrollMarginTop);
  message.scrollIntoView({ block: message.offsetHeight < room ? "center" : "start" });
}

function markTurn() {
  measureStuck();
  if (!slider) return;
  const turn = shownTurn();
  slider.value = turn;
  number.value = turn;
  for (const [name, value] of [["previous", Math.max(1, turn - 1)], ["next", Math.min(lastTurn(), turn + 1)]]) {
    const link = $(`#${name}`);
    link.dataset.turn = value;
    link.href = addressOf(value);
  }
  const columns = $$(".chart .turn");
  // A column of several turns has the number of the last one. The chart may lack the first turns.
  const isDrawn = turn > Number($("#timeline").dataset.before);
  const at = isDrawn && columns.find((column) => Number(column.dataset.turn) >= turn);
  for (const column of columns) column.classList.toggle("at", column === at);
  if (at) $("#readout").textContent = at.dataset.label;
  document.title = `Turn ${turn} · ${document.title.replace(/^Turn \d+ · /, "")}`;
}

function addressOf(turn, tab = "") {
  const query = new URLSearchParams(scopeOf(page).replace(/^\?/, ""));
  query.set("turn", turn);
  if (tab) query.set("tab", tab);
  return `session?${query}`;
}

// Goes to a turn. While a person slides, the address is replaced: Back leads to where the sliding began.
async function goTo(turn, { slides = false } = {}) {
  if (!slider || turn < 1 || turn > lastTurn() || turn === shownTurn() && address().has("turn")) return;
  const tab = $("#left").dataset.tab === "request" ? "request" : "";
  const place = addressOf(turn, tab);
  if (turn <= Number($("#timeline").dataset.before)) { // the chart lacks it
    location.assign(place);
    return;
  }
  if (slides && history.state?.slides) history.replaceState({ slides }, "", place);
  else history.pushState({ slides }, "", place);
  await show(location.search);
}

addEventListener("popstate", () => show(location.search));
addEventListener("hashchange", () => reveal(location.hash.slice(2)));

if (slider) {
  let timer = 0;
  slider.addEventListener("input", () => {
    number.value = slider.value;
    clearTimeout(timer);
    timer = setTimeout(() => goTo(Number(slider.value), { slides: true }), 60);
  });
  number.addEventListener("change", () => goTo(Number(number.value)));
  $("#turn-form").addEventListener("submit", (event) => {
    event.preventDefault();
    goTo(Number(number.value));
  });
  const find = (event) => findColumn($(".chart"), event);
  const frame = $("#chart");
  frame.addEventListener("pointermove", (event) => {
    const column = find(event);
    if (!column) return;
    $("#readout").textContent = column.dataset.label;
    for (const one of $$(".turn.over", frame)) one.classList.remove("over");
    column.classList.add("over");
    if (event.buttons) goTo(Number(column.dataset.turn), { slides: true });
  });
  frame.addEventListener("pointerleave", () => {
    for (const one of $$(".turn.over", frame)) one.classList.remove("over");
    const at = $(".turn.at", frame);
    if (at) $("#readout").textContent = at.dataset.label;
  });
  frame.addEventListener("pointerdown", (event) => {
    const column = find(event);
    if (column) goTo(Number(column.dataset.turn));
  });
  keys.ArrowLeft = () => goTo(shownTurn() - 1, { slides: true });
  keys.ArrowRight = () => goTo(shownTurn() + 1, { slides: true });
}

// --- folded messages ---------------------------------------------------------------

async function fill(run, start = Number(run.dataset.start)) {
  const text = await load(join(run.dataset.run, `start=${start}`));
  const rows = $(".run-rows", run);
  if (start === Number(run.dataset.start)) rows.innerHTML = text;
  else {
    $(".more-rows", rows)?.remove();
    rows.insertAdjacentHTML("beforeend", text);
  }
}
document.addEventListener("toggle", (event) => {
  const run = event.target;
  if (run.matches?.("details[data-run]") && run.open && !run.dataset.filled) {
    run.dataset.filled = "1";
    run.filling = fill(run);
  }
}, true);

// Scrolls to a message of the window, and unfolds it. Returns whether it is there.
async function reveal(message) {
  if (!message) return false;
  if (!$(`#m${message}`)) {
    for (const run of $$("#left details[data-run]")) {
      if ($(`#m${message}`)) break;
      run.dataset.filled = "1";
      await fill(run);
      let next = $(".more-rows button", run);
      while (next && !$(`#m${message}`, run)) {
        await fill(run, Number(next.dataset.rows));
        next = $(".more-rows button", run);
      }
    }
  }
  const found = $(`#m${message}`);
  if (!found) return false;
  for (let fold = found.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  showFromTop(found);
  found.focus({ preventScroll: true });
  for (const one of $$(".message.wanted")) one.classList.remove("wanted");
  found.classList.add("wanted");
  return true;
}

// --- clicks ------------------------------------------------------------------------

document.addEventListener("click", async (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  const target = event.target;
  const why = target.closest("a[data-why]");
  if (why) {
    event.preventDefault();
    $("#dialog").innerHTML = await load(join(why.getAttribute("href"), "part=1"));
    if (!$("#dialog").open) $("#dialog").showModal();
    $("#dialog").scrollTop = 0;
    return;
  }
  const step = target.closest("a[data-turn]");
  if (step && slider) {
    event.preventDefault();
    goTo(Number(step.dataset.turn));
  }
  const tab = target.closest(".tabs a, .formats a");
  if (tab) {
    event.preventDefault();
    history.pushState({}, "", tab.getAttribute("href"));
    await show(location.search);
  }
  const inside = target.closest("#dialog a[href^='session?']");
  if (inside && new URLSearchParams(inside.search).get("session") === address().get("session")) {
    event.preventDefault();
    $("#dialog").close();
    history.pushState({}, "", inside.getAttribute("href"));
    await show(location.search);
    await reveal(location.hash.slice(2));
  }
  const rows = target.closest("[data-rows]");
  if (rows) await fill(rows.closest("[data-run]"), Number(rows.dataset.rows));
  const pointer = target.closest(".map [data-message], a[data-reveal]");
  if (pointer) {
    event.preventDefault();
    const message = pointer.dataset.message ?? pointer.dataset.reveal;
    if (await reveal(message)) return;
    history.pushState({}, "", addressOf(shownTurn()));
    await show(location.search);
    await reveal(message);
  }
});

// --- live updates ------------------------------------------------------------------

onStored(async () => {
  if ($("#messages .menu[open]")) return;
  const fresh = new DOMParser().parseFromString(await load(location.pathname + location.search), "text/html");
  if (!$(".session-page", fresh) || $("#messages .menu[open]")) return;
  const newest = $("#turn", fresh);
  if (Boolean(newest) !== Boolean(slider)) {
    location.reload();
    return;
  }
  for (const line of [".counts", ".totals"]) $(`#session-head ${line}`).replaceWith($(`#session-head ${line}`, fresh));
  $("#session-head h1").textContent = $("#session-head h1", fresh).textContent;
  if ($("#left").dataset.tab === "conversation") refreshConversation(fresh);
  if (!slider || newest.max === slider.max) return;
  slider.max = newest.max;
  number.max = newest.max;
  $("#last").textContent = newest.max;
  $("#chart").replaceChildren(...$("#chart", fresh).childNodes);
  // Without a turn in the address the page shows the newest one.
  if (!address().has("turn")) {
    $("#left").dataset.turn = newest.max;
    if ($("#left").dataset.tab === "conversation") $("#left .tabs").replaceWith($("#left .tabs", fresh));
    else $("#left").replaceWith($("#left", fresh));
    $("#turn-view").replaceWith($("#turn-view", fresh));
  }
  markTurn();
});

function refreshConversation(fresh) {
  const box = $("#left");
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
  const [old, next] = [document, fresh].map((root) => $$("#messages .message", root));
  const known = new Map(old.map((message) => [message.id, message]));
  for (const message of next) {
    const before = known.get(message.id);
    if (!before) $("#messages").append(message);
    else if (before.className !== message.className || $("header", before).textContent !== $("header", message).textContent) {
      if (!before.contains(document.activeElement)) before.replaceWith(message);
    }
  }
  for (const message of old) if (!$(`#${message.id}`, fresh) && next.length && Number(message.dataset.id) >= Number(next[0].dataset.id)) message.remove();
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

// --- where the page begins ------------------------------------------------------------

measureStuck();
const found = $(".message.wanted");
if (found) showFromTop(found);
else if (location.hash.startsWith("#m")) reveal(location.hash.slice(2));
else if ($("#left").dataset.tab === "conversation") {
  const scroller = scrollerOf($("#left"));
  if (scroller) scroller.scrollTop = scroller.scrollHeight;
}
markTurn();
