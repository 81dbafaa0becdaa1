/**
 * The playground without leaving its page: a picture is dropped, pasted or chosen, the form is sent
 * with its progress, the outcome is that of the job's own page, with the original beside it. Without
 * this script the form does the same, page by page.
 */
// @ts-check

const LOOK_AGAIN_MS = 1000;
/** Looks that fail in a row before the reader is told; the job goes on without them. */
const FAILED_LOOKS_MAX = 5;
const DEMO = '/account/playground/demo.jpg';

/** @type {string | undefined} */
let originalHref;
/** Rises with every form that is sent: what belongs to an older one is dropped. */
let turn = 0;

const found = document.getElementById('playground-form');
if (found instanceof HTMLFormElement) begin(found);

/** @param {HTMLFormElement} form */
function begin(form) {
  offerDrop(form);
  form.addEventListener('submit', event => {
    event.preventDefault();
    void send(form, event.submitter);
  });
  form.addEventListener('change', () => void showCall(form));
}

/** @param {HTMLFormElement} form */
function fileInput(form) {
  const input = form.elements.namedItem('image_file');
  return input instanceof HTMLInputElement ? input : undefined;
}

/** @param {HTMLFormElement} form */
function offerDrop(form) {
  const input = fileInput(form);
  const place = form.querySelector('[data-drop]');
  if (input === undefined || !(place instanceof HTMLElement)) return;
  input.addEventListener('change', () => preview(place, input.files?.[0]));
  for (const name of ['dragover', 'dragleave', 'drop']) {
    place.addEventListener(name, event => {
      event.preventDefault();
      place.classList.toggle('over', name === 'dragover');
    });
  }
  place.addEventListener('drop', event => take(input, event.dataTransfer));
  document.addEventListener('paste', event => take(input, event.clipboardData));
}

/** @param {HTMLInputElement} input @param {DataTransfer | null} given */
function take(input, given) {
  // Some browsers do not know what files of these names are.
  const file = [...(given?.files ?? [])].find(
    ({ type, name }) => type.startsWith('image/') || /\.(heic|heif|jxl)$/i.test(name),
  );
  if (file === undefined) return;
  const chosen = new DataTransfer();
  chosen.items.add(file);
  input.files = chosen.files;
  input.dispatchEvent(new Event('change', { bubbles: true }));
}

/** @param {HTMLElement} place @param {File | undefined} file */
function preview(place, file) {
  place.querySelector('.picture')?.remove();
  if (file === undefined) return;
  const image = new Image();
  image.className = 'picture';
  image.alt = `${place.dataset.drop ?? ''}: ${file.name}`;
  image.src = hrefOf(file);
  image.addEventListener('error', () => image.remove());
  place.append(image);
}

/** One picture at a time is kept in memory. @param {Blob} file */
function hrefOf(file) {
  if (originalHref !== undefined) URL.revokeObjectURL(originalHref);
  originalHref = URL.createObjectURL(file);
  return originalHref;
}

/** @param {HTMLFormElement} form @param {HTMLElement | null} submitter */
async function send(form, submitter) {
  turn += 1;
  const mine = turn;
  const fields = new FormData(form, submitter);
  const isDemo = fields.has('demo');
  if (isDemo) {
    fields.delete('image_file');
    try {
      hrefOf(await (await fetch(DEMO)).blob());
    } catch {
      originalHref = undefined;
    }
  }
  const progress = form.querySelector('[data-progress]');
  /** @param {string} text */
  const say = text => {
    if (!(progress instanceof HTMLElement)) return;
    progress.hidden = text === '';
    progress.textContent = text;
  };
  setBusy(form, true);
  try {
    const answer = await post(form, fields, say);
    if (mine !== turn) return;
    await follow(answer, mine);
  } catch {
    if (mine === turn) say(form.dataset.failed ?? '');
  } finally {
    setBusy(form, false);
  }
}

/** @param {HTMLFormElement} form @param {boolean} busy */
function setBusy(form, busy) {
  form.ariaBusy = String(busy);
  for (const button of form.querySelectorAll('button[type="submit"]')) {
    if (button instanceof HTMLButtonElement) button.disabled = busy;
  }
}

/**
 * The page that the form leads to: fetch tells nothing of an upload's progress.
 * @param {HTMLFormElement} form
 * @param {FormData} fields
 * @param {(text: string) => void} say
 * @returns {Promise<{ href: string, text: string }>}
 */
function post(form, fields, say) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open('POST', form.action);
    request.setRequestHeader('accept', 'text/html');
    const percent = new Intl.NumberFormat(document.documentElement.lang, { style: 'percent' });
    request.upload.addEventListener('progress', ({ loaded, total }) => {
      const share = percent.format(total === 0 ? 0 : loaded / total);
      say((form.dataset.sending ?? '').replace('{share}', share));
    });
    request.upload.addEventListener('load', () => say(form.dataset.sent ?? ''));
    request.addEventListener('load', () =>
      resolve({ href: request.responseURL, text: request.responseText }),
    );
    request.addEventListener('error', () => reject(new Error('not sent')));
    request.addEventListener('abort', () => reject(new Error('not sent')));
    request.send(fields);
  });
}

/**
 * Shows the page's outcome, and looks again until it is final.
 * @param {{ href: string, text: string }} answer
 * @param {number} mine
 */
async function follow(answer, mine) {
  let { href, text } = answer;
  let failed = 0;
  for (;;) {
    const page = new DOMParser().parseFromString(text, 'text/html');
    const state = page.querySelector('[data-state]')?.getAttribute('data-state');
    if (state === undefined || state === null) {
      // Refused: the form says why. What is no page of ours is the browser's to show.
      if (page.getElementById('try') === null) location.assign(href);
      else replaceForm(page);
      return;
    }
    history.replaceState(null, '', href);
    const isOpen = state === 'queued' || state === 'processing';
    replacePart('outcome', page);
    if (!isOpen) {
      replaceForm(page);
      showResult();
      return;
    }
    await new Promise(resolve => setTimeout(resolve, LOOK_AGAIN_MS));
    if (mine !== turn) return;
    try {
      const next = await fetch(href, { headers: { accept: 'text/html' } });
      text = await next.text();
      href = next.url;
      failed = 0;
    } catch (error) {
      failed += 1;
      if (failed > FAILED_LOOKS_MAX) throw error;
    }
  }
}

/** Its token and its number are for one use; the picture and what was typed stay. @param {Document} page */
function replaceForm(page) {
  const before = document.getElementById('playground-form');
  const file = before instanceof HTMLFormElement ? fileInput(before)?.files?.[0] : undefined;
  replacePart('try', page);
  const form = document.getElementById('playground-form');
  if (!(form instanceof HTMLFormElement)) return;
  begin(form);
  const input = fileInput(form);
  if (file === undefined || input === undefined) return;
  const chosen = new DataTransfer();
  chosen.items.add(file);
  input.files = chosen.files;
  const place = form.querySelector('[data-drop]');
  if (place instanceof HTMLElement) preview(place, file);
}

/** @param {string} id @param {Document} page */
function replacePart(id, page) {
  const next = page.getElementById(id);
  const here = document.getElementById(id);
  if (next === null || here === null) return;
  here.replaceChildren(...[...next.childNodes].map(node => document.importNode(node, true)));
}

/** compare.js does the rest. */
function showResult() {
  const stage = document.querySelector('#outcome .stage');
  stage?.dispatchEvent(new CustomEvent('stage', { bubbles: true, detail: originalHref }));
}

/** The texts alone: the buttons that copy them stay. @param {Document} page */
function replaceCode(page) {
  const next = page.querySelectorAll('#call .code');
  for (const [index, here] of document.querySelectorAll('#call .code').entries()) {
    const text = next[index]?.querySelector('code')?.textContent;
    const code = here.querySelector('code');
    const copy = here.querySelector('button[data-copy]');
    if (typeof text !== 'string' || code === null) continue;
    code.textContent = text;
    if (copy instanceof HTMLButtonElement) copy.dataset.copy = text;
  }
}

/** The same call, with the options as they stand. @param {HTMLFormElement} form */
async function showCall(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (typeof value === 'string' && value !== '' && name !== 'csrf' && name !== 'once') {
      query.set(name, value);
    }
  }
  const mine = query.toString();
  try {
    const answer = await fetch(`/account/playground?${mine}`, { headers: { accept: 'text/html' } });
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    replaceCode(page);
  } catch {
    // It stays as it was.
  }
}
