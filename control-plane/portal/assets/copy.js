/** Buttons with data-copy put that text on the clipboard and say so for a moment. */
// @ts-check

const SAID_MS = 2000;

for (const button of document.querySelectorAll('button[data-copy]')) {
  if (!(button instanceof HTMLButtonElement) || navigator.clipboard === undefined) continue;
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
    }, SAID_MS);
  });
}
