// Following the log. Rows come from the server as HTML in which all text is escaped.

"use strict";

const REFRESH_DELAY_MS = 300;
const RETRY_MS = 5000;
const MAX_ROWS = 200;

function addFollowing(rows) {
  const container = document.querySelector("[data-tail-switch]");
  if (!container) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "small";
  button.textContent = "Live";
  const status = document.createElement("span");
  status.className = "hint";
  status.setAttribute("role", "status");
  status.setAttribute("aria-live", "polite");
  container.append(button, " ", status);
  let enabled = false;
  let feed = null;
  let reconnectTimer = null;
  let refreshTimer = null;
  let refreshing = Promise.resolve();

  const show = (message) => {
    button.setAttribute("aria-pressed", String(enabled));
    if (status.textContent !== message) status.textContent = message;
  };
  const close = () => {
    feed?.close();
    feed = null;
    clearTimeout(reconnectTimer);
    clearTimeout(refreshTimer);
    refreshTimer = null;
  };
  const stop = (message) => {
    enabled = false;
    close();
    show(message);
  };
  const refresh = async () => {
    if (!enabled) return;
    try {
      if (!(await loadNewRows(rows))) stop("Signed out: reload the page.");
    } catch {
      scheduleRefresh(RETRY_MS);
    }
  };
  // An event says only that there are new rows; one refresh handles several.
  const scheduleRefresh = (delay) => {
    refreshTimer ??= setTimeout(() => {
      refreshTimer = null;
      refreshing = refreshing.then(refresh);
    }, delay);
  };
  const open = () => {
    close();
    feed = new EventSource(rows.dataset.feed);
    feed.addEventListener("open", () => {
      show("Connected.");
      scheduleRefresh(0); // rows from before, and from while it was disconnected
    });
    for (const type of ["message", "opened", "skipped"]) {
      feed.addEventListener(type, () => scheduleRefresh(REFRESH_DELAY_MS));
    }
    feed.addEventListener("error", () => {
      show("Reconnecting …");
      if (feed?.readyState !== EventSource.CLOSED) return;
      // The browser does not retry, and hides the reason: no session, or too many subscribers.
      scheduleRefresh(0);
      reconnectTimer = setTimeout(open, RETRY_MS);
    });
  };
  button.addEventListener("click", () => {
    if (enabled) {
      stop("");
      return;
    }
    enabled = true;
    show("Connecting …");
    open();
  });
  // A hidden page closes its connection: browsers allow six for a site.
  document.addEventListener("visibilitychange", () => {
    if (enabled) document.hidden ? close() : open();
  });
  show("");
}

// What can change of a row: its age does all the time.
function contentOf(row) {
  return [...row.cells].slice(1).map((cell) => cell.innerHTML).join();
}

// False without a session.
async function loadNewRows(rows) {
  const url = new URL(rows.dataset.tail, location.href);
  const running = [...rows.querySelectorAll("tr[data-running]")].map((row) => row.dataset.id);
  if (rows.dataset.newest) url.searchParams.set("after", rows.dataset.newest);
  if (running.length) url.searchParams.set("watched", running.join(","));
  const response = await fetch(url, { headers: { accept: "text/html" } });
  if (response.redirected || response.status === 401 || response.status === 403) return false;
  if (!response.ok) throw new Error(String(response.status));
  const template = document.createElement("template");
  template.innerHTML = await response.text();
  const added = [];
  for (const row of template.content.querySelectorAll("tr[data-id]")) {
    const displayed = rows.querySelector(`tr[data-id="${CSS.escape(row.dataset.id)}"]`);
    if (displayed && contentOf(displayed) === contentOf(row)) continue;
    row.classList.add("fresh");
    if (displayed) displayed.replaceWith(row);
    else added.push(row);
    // Ids sort by time.
    if (row.dataset.id > (rows.dataset.newest ?? "")) rows.dataset.newest = row.dataset.id;
  }
  if (added.length) document.querySelector("p.empty")?.remove();
  rows.prepend(...added);
  while (rows.rows.length > MAX_ROWS) rows.rows[rows.rows.length - 1].remove();
  return true;
}

document.querySelectorAll("[data-tail]").forEach(addFollowing);
