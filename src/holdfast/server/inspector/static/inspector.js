// The inspector: search as you type, live updates, the timeline, keys, and the buttons. Pages work without it as well.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

async function request(address, options) {
  try {
    const answer = await fetch(address, options);
    showLost("");
    return answer;
  } catch (error) {
    showLost("The server does not answer: what you see may be old. If it was stopped, run `holdfast ui` again and open the address that it prints.");
    throw error;
  }
}

async function load(address) {
  const answer = await request(address);
  if (!answer.ok && answer.status !== 404) throw new Error(await answer.text());
  return answer.text();
}

function showLost(text) {
  const line = $("#lost");
  line.hidden = !text;
  if (line.textContent !== text) line.textContent = text;
  $("#live").classList.toggle("on", !text);
  $("#live").textContent = text ? "not connected" : "live";
}

function explain(error) {
  const problem = document.createElement("p");
  problem.className = "problem";
  problem.textContent = error instanceof TypeError ? "No answer: the server cannot be reached." : "The server could not answer this.";
  return problem;
}

// A call whose failure is shown already: by `request` if the server is gone, else in the place of the answer.
addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  if (!(event.reason instanceof TypeError)) say("The server could not answer this.");
});

function say(text, undo) {
  const line = $("#said");
  $("#said-text").textContent = text;
  $("#undo").hidden = !undo;
  $("#undo").dataset.undo = undo ?? "";
  line.classList.add("on");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => line.classList.remove("on"), undo ? 12000 : 4000);
}

function join(address, query) {
  return query ? address + (address.includes("?") ? "&" : "?") + query : address;
}

// --- theme -------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");
function setTheme(name) {
  document.documentElement.dataset.theme = name;
}
if (localStorage.getItem("theme")) setTheme(localStorage.getItem("theme"));
function changeTheme() {
  const now = document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const name = now === "dark" ? "light" : "dark";
  localStorage.setItem("theme", name);
  setTheme(name);
}
$("#theme").addEventListener("click", changeTheme);

// --- forms that answer while one types ----------------------------------------

for (const form of $$("form[data-live]")) {
  let timer = 0;
  let wanted = 0;
  const update = async () => {
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value)).toString();
    const number = ++wanted;
    history.replaceState(null, "", join(form.getAttribute("action"), query));
    try {
      const text = await load(join(form.dataset.live, query));
      if (number === wanted) $(form.dataset.target).innerHTML = text;
      if (form.dataset.live === "search") await followList(query);
    } catch (error) {
      if (number === wanted) $(form.dataset.target).replaceChildren(explain(error));
    }
    watchEnds();
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(update, form.hasAttribute("data-slow") ? 350 : 120);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    update();
  });
}

async function followList(query) {
  const list = $("#sessions");
  if (!list) return;
  const text = await load(join(list.dataset.follow, query));
  const key = list.contains(document.activeElement) && document.activeElement.closest("[data-key]")?.dataset.key;
  list.innerHTML = text;
  for (const row of $$("[data-key]", list)) if (key && row.dataset.key === key) $("a", row).focus();
  clearTimeout(followList.timer);
  if ($("[data-pending]", list)) followList.timer = setTimeout(refresh, 1000);
}

// --- lists that grow while one scrolls ----------------------------------------

const seen = new IntersectionObserver(async (entries) => {
  for (const { target: mark } of entries.filter((one) => one.isIntersecting)) {
    // What is loaded is reported again if the mark is watched again, or was seen twice before this could run.
    if (growing.has(mark) || !mark.isConnected) continue;
    if (mark.dataset.before && !scrollerOf(mark) && !scrollY) continue; // a page that has just been opened stays at its title
    growing.add(mark);
    seen.unobserve(mark);
    try {
      await (mark.dataset.before ? addEarlier(mark) : addMore(mark));
    } finally {
      growing.delete(mark);
    }
    watchEnds();
  }
}, { rootMargin: "400px" });
const growing = new Set();

async function addEarlier(mark) {
  const box = mark.closest("#messages");
  const first = $(".message", box);
  const text = await load(join(box.dataset.follow, `before=${mark.dataset.before}`));
  const at = first?.getBoundingClientRect().top ?? 0; // now: the page may have been scrolled meanwhile
  mark.remove();
  if (text.trim()) box.insertAdjacentHTML("afterbegin", text);
  if (first) (scrollerOf(box) ?? window).scrollBy(0, first.getBoundingClientRect().top - at);
}

async function addMore(mark) {
  const form = $("form[data-live]");
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  query.set("start", mark.dataset.more);
  const follow = mark.closest("[data-follow]").dataset.follow;
  mark.outerHTML = await load(join(follow, query.toString()));
}

// The box in which an element scrolls; none on a narrow screen, where the whole page does.
function scrollerOf(element) {
  const pane = element.closest(".pane");
  return pane && getComputedStyle(pane).overflowY === "auto" ? pane : null;
}
function watchEnds() {
  for (const mark of $$(".earlier[data-before], [data-more]")) seen.observe(mark);
}

// --- buttons ----------------------------------------------------------------------

function scopeOf(element) {
  return element.closest("[data-scope]")?.dataset.scope ?? "";
}

async function act(element, values) {
  const body = new URLSearchParams(scopeOf(element).replace(/^\?/, ""));
  for (const [name, value] of Object.entries(values)) if (value !== undefined) body.set(name, value);
  const answer = await request("act", { method: "POST", body });
  say(await answer.text(), answer.headers.get("x-undo"));
  if (!answer.ok) return false;
  closeMenus();
  // The element that has the focus is not drawn again: it may be a field that someone types into.
  if (element.isConnected && element.contains(document.activeElement)) document.activeElement.blur();
  await refresh();
  return true;
}
$("#undo").addEventListener("click", () => act($("#undo"), { action: "undo", undo: $("#undo").dataset.undo }));

// --- menus: drawn above everything, so that no scrolling box cuts them off -------------

function closeMenus(besides) {
  for (const menu of $$(".menu[open]")) if (menu !== besides) menu.open = false;
}
function placeMenu(menu) {
  const box = $(".actions", menu);
  if (!box) return;
  const from = $("summary", menu).getBoundingClientRect();
  box.classList.add("placed");
  const left = Math.max(8, Math.min(from.right - box.offsetWidth, innerWidth - box.offsetWidth - 8));
  const isBelow = from.bottom + box.offsetHeight + 8 <= innerHeight || from.top < box.offsetHeight + 8;
  box.style.left = `${left}px`;
  box.style.top = `${isBelow ? from.bottom + 2 : from.top - box.offsetHeight - 2}px`;
}
document.addEventListener("toggle", (event) => {
  const menu = event.target;
  if (!menu.matches?.(".menu") || !menu.open) return;
  closeMenus(menu);
  placeMenu(menu);
}, true);
const placeOpenMenu = () => { for (const menu of $$(".menu[open]")) placeMenu(menu); };
document.addEventListener("scroll", placeOpenMenu, true);
addEventListener("resize", placeOpenMenu);
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && $(".menu[open]");
  if (!menu) return;
  menu.open = false;
  $("summary", menu).focus();
});

document.addEventListener("click", async (event) => {
  const target = event.target;
  const button = target.closest("[data-act]");
  if (button) {
    await act(button, {
      action: button.dataset.act,
      message: button.dataset.message ?? button.closest("[data-message]")?.dataset.message,
      fact: button.closest("[data-fact]")?.dataset.fact,
    });
  }
  const eraser = target.closest("[data-erase]");
  if (eraser) {
    const query = new URLSearchParams(scopeOf(eraser).replace(/^\?/, ""));
    if (eraser.dataset.erase === "fact") query.set("fact", eraser.closest("[data-fact]").dataset.fact);
    else query.set("message", eraser.closest("[data-message]").dataset.message);
    $("#dialog").innerHTML = await load(`erase?${query}`);
    $("#dialog").showModal();
  }
  if (target.closest("[data-close]")) $("#dialog").close();
  const loader = target.closest("a[data-into]");
  if (loader) {
    event.preventDefault();
    loader.textContent = "Checking…";
    $(loader.dataset.into).innerHTML = await load(loader.getAttribute("href"));
  }
  closeMenus(target.closest(".menu .actions") ? undefined : target.closest(".menu[open]"));
});

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("[data-form]");
  if (!form) return;
  event.preventDefault();
  const { scope, confirm, ...values } = Object.fromEntries(new FormData(form));
  form.closest("tr.editor")?.toggleAttribute("hidden", true);
  const fields = { ...values, ...Object.fromEntries(new URLSearchParams(scope ?? "")), action: form.dataset.form };
  fields.fact = form.dataset.fact ?? form.closest("[data-fact]")?.dataset.fact;
  fields.message = form.dataset.message;
  if (await act(form, fields)) {
    $("#dialog").close();
    if (form.dataset.form === "add") form.reset();
  }
});

// --- live updates ------------------------------------------------------------------

const followers = [];
function onStored(follow) {
  followers.push(follow);
}

let drawn = Promise.resolve();
function refresh() {
  // One after the other: an answer that comes late must not replace a newer one.
  drawn = drawn.then(draw, draw);
  return drawn;
}
async function draw() {
  const page = document.body.dataset.page;
  const form = $("form[data-live]");
  const query = form ? new URLSearchParams([...new FormData(form)].filter(([, value]) => value)).toString() : "";
  // Rows that someone has scrolled to stay.
  if (page === "sessions" && $$("#sessions .row").length <= 60) await followList(query);
  for (const follow of followers) await follow(query);
  watchEnds();
}

for (const box of $$("[data-load]")) load(box.dataset.load).then((text) => { box.innerHTML = text; });

function followEvents() {
  const events = new EventSource("events");
  events.addEventListener("open", () => showLost(""));
  events.addEventListener("error", () => showLost("The connection to the server is lost: what you see may be old. If it was stopped, run `holdfast ui` again and open the address that it prints."));
  // The first one comes with the connection: something may have been stored since the page was made.
  events.addEventListener("message", refresh);
  addEventListener("pagehide", () => events.close());
}
// By then the scripts of all pages have said what they follow.
document.addEventListener("DOMContentLoaded", followEvents);
if ($("[data-pending]")) setTimeout(refresh, 400);
if ($("[data-reload]")) setTimeout(() => location.reload(), 1500);

// --- keys ----------------------------------------------------------------------------

let pending = "";
function move(step) {
  const rows = $$("main .row").filter((row) => row.offsetParent);
  const at = rows.findIndex((row) => row.contains(document.activeElement) || row.classList.contains("at"));
  const row = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
  if (!row) return;
  for (const one of rows) one.classList.toggle("at", one === row);
  (row.matches("[tabindex]") ? row : $("a", row) ?? row).focus();
  row.scrollIntoView({ block: "nearest" });
}
const pages = { s: "./", m: "memory", a: "ask", r: "trends", h: "health" };
const keys = {
  "/": () => $("#q")?.focus(),
  "?": showKeys,
  j: () => move(1),
  k: () => move(-1),
  t: changeTheme,
  g: () => { pending = "g"; setTimeout(() => { pending = ""; }, 1000); },
};
function showKeys() {
  $("#dialog").replaceChildren($("#key-help").content.cloneNode(true));
  $("#dialog").showModal();
}
$("#keys").addEventListener("click", showKeys);
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (pending && pages[event.key]) { location.href = pages[event.key]; return; }
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});
watchEnds();

export { $, $$, act, join, keys, load, onStored, say, scopeOf, scrollerOf, watchEnds };
