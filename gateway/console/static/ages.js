// Ages of a page that stays open grow, by the clock of the gateway.

"use strict";

const AGES = [[172800, 86400, "d"], [3600, 3600, "h"], [60, 60, "min"], [0, 1, "s"]];
const clockAhead = Date.now() - Number(document.body.dataset.now);

setInterval(() => {
  for (const time of document.querySelectorAll("time[data-age]")) {
    const passed = Date.now() - clockAhead - Date.parse(time.dateTime);
    const seconds = Math.max(0, Math.floor(passed / 1000));
    const [, scale, unit] = AGES.find(([from]) => seconds >= from);
    const text = `${Math.floor(seconds / scale)} ${unit}`;
    if (time.textContent !== text) time.textContent = text;
  }
}, 5000);
