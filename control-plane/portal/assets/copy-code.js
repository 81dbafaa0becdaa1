/** Adds a button for copying to each block of code. */
// @ts-check

const SHOWN_MS = 2000;

for (const block of navigator.clipboard ? document.querySelectorAll('pre') : []) {
  const box = Object.assign(document.createElement('div'), { className: 'code' });
  const button = Object.assign(document.createElement('button'), {
    type: 'button',
    className: 'button quiet small copy',
  });
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(block.textContent ?? '');
    button.textContent = 'Copied';
    setTimeout(() => {
      button.textContent = 'Copy';
    }, SHOWN_MS);
  });
  block.replaceWith(box);
  box.append(block, button);
}
