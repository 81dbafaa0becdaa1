/**
 * Passes a picture that is dropped or pasted on the first page to the playground, by the browser's
 * cache (playground.js). Without this script the area is a link.
 */
// @ts-check

/** The name of the browser's cache, as in playground.js. */
const HANDED_OVER = 'playground';

const found = document.querySelector('a[data-drop-link]');
if (found instanceof HTMLAnchorElement && 'caches' in window) offer(found);

/** @param {HTMLAnchorElement} link */
function offer(link) {
  for (const name of ['dragover', 'dragleave', 'drop']) {
    link.addEventListener(name, event => {
      event.preventDefault();
      link.classList.toggle('over', name === 'dragover');
    });
  }
  link.addEventListener('drop', event => void handOver(link, event.dataTransfer?.files[0]));
  document.addEventListener('paste', event => void handOver(link, event.clipboardData?.files[0]));
}

/** @param {HTMLAnchorElement} link @param {File | undefined} file */
async function handOver(link, file) {
  if (file === undefined) return;
  const headers = { 'x-name': encodeURIComponent(file.name) };
  try {
    const held = await caches.open(HANDED_OVER);
    await held.put(link.href, new Response(file, { headers }));
  } finally {
    // If the cache fails, the reader drops the picture again in the playground.
    location.assign(link.href);
  }
}
