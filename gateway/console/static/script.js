// What cannot be done without a script: copying, and following the log. It draws no rows of its
// own: those come from the server, where everything is text already.

"use strict";

const GATHER_MS = 300;
const RETRY_MS = 5000;
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
  button.className = "small";
  button.textContent = "Live";
  const status = document.createElement("span");
  status.className = "hint";
  status.setAttribute("role", "status");
  status.setAttribute("aria-live", "polite");
  place.append(button, " ", status);
  let on = false;
  let feed = null;
  let retry = null;
  let soon = null;
  let looking = Promise.resolve();

  const show = (words) => {
    button.setAttribute("aria-pressed", String(on));
    if (status.textContent !== words) status.textContent = words;
  };
  const close = () => {
    feed?.close();
    feed = null;
    clearTimeout(retry);
    clearTimeout(soon);
    soon = null;
  };
  const stop = (words) => {
    on = false;
    close();
    show(words);
  };
  const look = async () => {
    if (!on) return;
    try {
      if ((await newer(rows)) === null) stop("Signed out: reload the page.");
    } catch {
      later(RETRY_MS);
    }
  };
  // An event only says that there is something new. Several are answered at once.
  const later = (wait) => {
    soon ??= setTimeout(() => {
      soon = null;
      looking = looking.then(look);
    }, wait);
  };
  const open = () => {
    close();
    feed = new EventSource(rows.dataset.feed);
    feed.addEventListener("open", () => {
      show("Connected.");
      later(0); // what came before, and while there was no connection
    });
    for (const kind of ["message", "opened", "skipped"]) {
      feed.addEventListener(kind, () => later(GATHER_MS));
    }
    feed.addEventListener("error", () => {
      show("Reconnecting …");
      if (feed?.readyState !== EventSource.CLOSED) return;
      // The browser tries no more, and does not say why: nobody is signed in, or there are too many.
      later(0);
      retry = setTimeout(open, RETRY_MS);
    });
  };
  button.addEventListener("click", () => {
    if (on) {
      stop("");
      return;
    }
    on = true;
    show("Connecting …");
    open();
  });
  // A page that nobody sees gives its connection back: browsers have six for a site.
  document.addEventListener("visibilitychange", () => {
    if (on) document.hidden ? close() : open();
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
  if (fresh.length) document.querySelector("p.empty")?.remove();
  rows.prepend(...fresh);
  while (rows.rows.length > TAIL_ROWS) rows.rows[rows.rows.length - 1].remove();
  return fresh.length;
}

document.querySelectorAll("button[data-copy]").forEach(copying);
document.querySelectorAll("[data-tail]").forEach(following);
