// What cannot be done without a script: copying, and following the log. It draws no rows of its
// own: those come from the server, where everything is text already.

"use strict";

const TAIL_MS = 2000;
const TAIL_ROWS = 200;

function copying(button) {
  const said = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    button.textContent = (await copied(source)) ? "Copied" : "Select and copy";
    setTimeout(() => (button.textContent = said), 2000);
  });
}

async function copied(source) {
  try {
    await navigator.clipboard.writeText(source.textContent);
    return true;
  } catch {
    // No clipboard where the page did not come over TLS: what is selected can be copied by hand.
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return document.execCommand("copy");
  }
}

function following(rows) {
  const place = document.querySelector("[data-tail-switch]");
  if (!place) return;
  const button = document.createElement("button");
  button.type = "button";
  const status = document.createElement("span");
  status.className = "hint";
  status.setAttribute("role", "status");
  place.append(button, " ", status);
  let on = false;

  const show = (words) => {
    button.textContent = on ? "Stop following" : "Follow live";
    button.setAttribute("aria-pressed", String(on));
    if (status.textContent !== words) status.textContent = words;
  };
  const look = async () => {
    if (!on) return;
    let words = "Following.";
    try {
      if ((await newer(rows)) === null) {
        on = false;
        words = "Signed out: reload the page.";
      }
    } catch {
      words = "The gateway does not answer; trying again.";
    }
    if (on) setTimeout(look, TAIL_MS);
    show(on || words !== "Following." ? words : "");
  };
  let looking = Promise.resolve();
  button.addEventListener("click", () => {
    on = !on;
    show(on ? "Following." : "");
    if (on) looking = looking.then(look);
  });
  show("");
}

async function newer(rows) {
  const address = new URL(rows.dataset.tail, location.href);
  const open = [...rows.querySelectorAll("tr[data-open]")].map((row) => row.dataset.id);
  if (rows.dataset.newest) address.searchParams.set("after", rows.dataset.newest);
  if (open.length) address.searchParams.set("watched", open.join(","));
  const answer = await fetch(address, { headers: { accept: "text/html" } });
  if (answer.redirected || answer.status === 401 || answer.status === 403) return null;
  if (!answer.ok) throw new Error(String(answer.status));
  const template = document.createElement("template");
  template.innerHTML = await answer.text();
  const fresh = [];
  for (const row of template.content.querySelectorAll("tr[data-id]")) {
    const shown = rows.querySelector(`tr[data-id="${CSS.escape(row.dataset.id)}"]`);
    if (shown?.innerHTML === row.innerHTML) continue;
    row.classList.add("fresh");
    if (shown) shown.replaceWith(row);
    else fresh.push(row);
    // Ids sort by time.
    if (row.dataset.id > (rows.dataset.newest ?? "")) rows.dataset.newest = row.dataset.id;
  }
  rows.prepend(...fresh);
  while (rows.rows.length > TAIL_ROWS) rows.rows[rows.rows.length - 1].remove();
  return fresh.length;
}

document.querySelectorAll("button[data-copy]").forEach(copying);
document.querySelectorAll("[data-tail]").forEach(following);
