// Charts: what the pointer finds, one cursor for all charts with the same buckets, a click that
// leads to the requests of a bucket.

"use strict";

const tooltip = document.createElement("div");
tooltip.className = "tooltip";
tooltip.setAttribute("role", "status");
tooltip.hidden = true;
document.body.append(tooltip);

const plots = [...document.querySelectorAll("svg.plot")].map((plot) => [
  ...plot.querySelectorAll("rect.column"),
]);

function point(number, count) {
  for (const columns of plots) {
    columns.forEach((column, place) =>
      column.classList.toggle("pointed", place === number && columns.length === count),
    );
  }
}

function show(column, event) {
  tooltip.textContent = column.dataset.text;
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const right = event.clientX + 12 + width < innerWidth;
  tooltip.style.left = `${right ? event.clientX + 12 : Math.max(0, event.clientX - 12 - width)}px`;
  tooltip.style.top = `${Math.max(0, event.clientY - 12 - height)}px`;
}

for (const columns of plots) {
  columns.forEach((column, number) => {
    // The browser's own tooltip would come as well, later.
    const title = column.querySelector("title");
    column.dataset.text = title.textContent;
    title.remove();
    column.addEventListener("pointermove", (event) => show(column, event));
    column.addEventListener("pointerenter", () => point(number, columns.length));
    column.addEventListener("pointerleave", () => {
      point(-1, 0);
      tooltip.hidden = true;
    });
    column.addEventListener("click", () => {
      if (column.dataset.url) location.assign(column.dataset.url);
    });
  });
}
