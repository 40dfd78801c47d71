// Copying a text of the page.

"use strict";

function addCopying(button) {
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    button.textContent = (await copyText(source)) ? "Copied" : "Select and copy";
    setTimeout(() => (button.textContent = label), 2000);
  });
}

async function copyText(source) {
  try {
    await navigator.clipboard.writeText(source.textContent);
    return true;
  } catch {
    // Without TLS there is no clipboard: select the text, so that it can be copied by hand.
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return document.execCommand("copy");
  }
}

document.querySelectorAll("button[data-copy]").forEach(addCopying);
