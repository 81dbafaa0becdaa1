/**
 * Buttons with data-copy copy that text, and confirm it for a moment. A script that adds a part to
 * the page sends the event `part`.
 */
// @ts-check

const SHOWN_MS = 2000;

/** @param {HTMLButtonElement} button */
function offer(button) {
  const words = button.querySelector('span') ?? button;
  const before = words.textContent;
  /** @type {number | undefined} */
  let timer;
  button.hidden = false;
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(button.dataset.copy ?? '');
    words.textContent = button.dataset.copied ?? before;
    clearTimeout(timer);
    timer = setTimeout(() => {
      words.textContent = before;
    }, SHOWN_MS);
  });
}

/** @param {ParentNode} part */
function offerAll(part) {
  for (const button of part.querySelectorAll('button[data-copy][hidden]')) {
    if (button instanceof HTMLButtonElement && navigator.clipboard !== undefined) offer(button);
  }
}

offerAll(document);
document.addEventListener('part', ({ target }) => {
  if (target instanceof HTMLElement) offerAll(target);
});
