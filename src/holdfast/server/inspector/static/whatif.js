// What if: follow a replay until it is done. Without this script, one reloads the page.

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
