/**
 * Sends the strokes of paint.js and shows the corrected cut-out without leaving the page. The
 * painter, the stage and the focus stay, also when the reader follows the link back.
 */
// @ts-check

const POLL_MS_MIN = 250;
const POLL_MS_MAX = 2000;
/** After this many failed requests in a row the reader gets a message. The job continues. */
const FAILED_POLLS_MAX = 5;
const ANSWER_MS_MAX = 30_000;
const ONCE_BYTES = 32;

/** @typedef {{ page: Document, href: string, isGood: boolean }} Answer */

let unanswered = '';

document.addEventListener('submit', event => {
  const form = event.target;
  if (!(form instanceof HTMLFormElement) || !form.matches('.painter')) return;
  event.preventDefault();
  if (form.dataset.busy === undefined) void apply(form);
});

document.addEventListener('click', event => {
  const link = event.target instanceof Element ? event.target.closest('a[data-back]') : null;
  const form = link?.closest('form');
  const isElsewhere = event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
  if (!(link instanceof HTMLAnchorElement) || !form || isElsewhere) return;
  event.preventDefault();
  if (form.dataset.busy !== undefined) return;
  void whileBusy(form, async () => {
    const answer = await load(link.href);
    if (answer.isGood) await go(form, answer);
    else location.assign(link.href);
  });
});

addEventListener('popstate', () => {
  const form = document.querySelector('form.painter');
  const isShown = form?.getAttribute('action')?.startsWith(`${location.pathname}/`) ?? true;
  if (!isShown) location.reload();
});

/** @param {HTMLFormElement} form */
async function apply(form) {
  const marks = ['keep', 'erase'].map(name => inputOf(form, name)?.value).join(' ');
  if (marks.trim() === '') return say(form, 'empty');
  const once = inputOf(form, 'once');
  const sent = `${form.action} ${marks}`;
  if (once && sent !== unanswered) once.value = createOnce();
  unanswered = sent;
  const body = new FormData(form);
  await whileBusy(form, async () => {
    say(form, 'sending');
    const answer = await settled(form, await load(form.action, { method: 'POST', body }));
    unanswered = '';
    await go(form, answer);
  });
}

/** @param {HTMLFormElement} form @param {() => Promise<void>} work */
async function whileBusy(form, work) {
  form.dataset.busy = '';
  try {
    await work();
  } catch {
    say(form, 'failed');
  } finally {
    delete form.dataset.busy;
  }
}

/**
 * @param {HTMLFormElement} form @param {string} words their name in the form's data, or the words
 */
function say(form, words) {
  const status = form.querySelector('[role="status"]');
  const text = form.dataset[words] ?? words;
  if (status && status.textContent !== text) status.textContent = text;
}

/** @param {string} href @param {RequestInit} [request] @returns {Promise<Answer>} */
async function load(href, request = {}) {
  const signal = AbortSignal.timeout(ANSWER_MS_MAX);
  const answer = await fetch(href, { headers: { accept: 'text/html' }, signal, ...request });
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
  return { page, href: answer.url, isGood: answer.ok };
}

/** @param {Document} page */
function stateOf(page) {
  return page.querySelector('[data-state]')?.getAttribute('data-state');
}

/**
 * Polls the job's page until the job has ended.
 * @param {HTMLFormElement} form
 * @param {Answer} answer
 */
async function settled(form, answer) {
  let failed = 0;
  for (let waitMs = POLL_MS_MIN; ; waitMs = Math.min(2 * waitMs, POLL_MS_MAX)) {
    const state = stateOf(answer.page) ?? '';
    const isOpen = answer.isGood && ['queued', 'processing'].includes(state);
    if (!isOpen || !form.isConnected) return answer;
    say(form, state);
    await new Promise(resolve => setTimeout(resolve, waitMs));
    try {
      const next = await load(answer.href);
      if (!next.isGood) throw new Error('no page of the job');
      answer = next;
      failed = 0;
    } catch (error) {
      failed += 1;
      if (failed > FAILED_POLLS_MAX) throw error;
    }
  }
}

/**
 * Shows a page's cut-out. If there is none, shows the reason and keeps the marks.
 * @param {HTMLFormElement} form
 * @param {Answer} answer
 */
async function go(form, { page, href, isGood }) {
  // Another picture was sent meanwhile.
  if (!form.isConnected) return;
  const why = page.querySelector(isGood ? '[data-state="failed"] .notice' : '[data-refusal]');
  if (why) return say(form, why.textContent.trim());
  if (!isGood) throw new Error('the form was not answered');
  const next = page.querySelector('form.painter');
  // A page without a painter, such as the sign-in, is shown as it is.
  if (!(next instanceof HTMLFormElement)) return location.assign(href);
  const before = document.activeElement;
  await replaceNeighbours(form, next);
  takeOver(form, next);
  history.pushState(null, '', href);
  document.title = page.title;
  const title = document.querySelector('h1');
  if (title) title.textContent = page.querySelector('h1')?.textContent ?? '';
  const isThere = before?.isConnected && !before.matches('[hidden]');
  const focused = isThere ? before : form.querySelector('canvas[tabindex]');
  if (focused instanceof HTMLElement) focused.focus({ preventScroll: true });
  form.dispatchEvent(new CustomEvent('corrected'));
}

/**
 * Replaces the neighbours of the form by those of the next form.
 * @param {HTMLFormElement} form
 * @param {HTMLFormElement} next
 */
async function replaceNeighbours(form, next) {
  const here = form.parentElement;
  const there = next.parentElement;
  if (here === null || there === null) return;
  const fresh = await keepStage(here, there);
  for (const old of [...here.childNodes]) if (old !== form) old.remove();
  const parts = [...there.childNodes];
  const at = parts.indexOf(next);
  form.before(...parts.slice(0, at));
  form.after(...parts.slice(at + 1));
  here.dispatchEvent(new CustomEvent('part', { bubbles: true }));
  fresh?.dispatchEvent(new CustomEvent('stage', { bubbles: true }));
}

/**
 * Keeps the stage of this page, with the next picture on it. If the shapes differ, the next page's
 * stage is shown.
 * @param {Element} here
 * @param {Element} there
 */
async function keepStage(here, there) {
  const [old, next] = [here, there].map(part => part.querySelector('.whole, .stage'));
  const [picture, after] = [old, next].map(one => one?.querySelector('img.picture'));
  if (!old || !next) return null;
  if (picture instanceof HTMLImageElement && after instanceof HTMLImageElement) {
    const isSame = await isAsLarge(after.src, picture);
    if (isSame || picture.naturalWidth === 0) {
      picture.setAttribute('src', after.getAttribute('src') ?? '');
      next.replaceWith(old);
      return null;
    }
  }
  if (old instanceof HTMLDetailsElement && next instanceof HTMLDetailsElement) next.open = old.open;
  return next.matches('.stage') ? next : next.querySelector('.stage');
}

/** @param {string} href @param {HTMLImageElement} picture */
async function isAsLarge(href, { naturalWidth, naturalHeight }) {
  const image = new Image();
  image.src = href;
  try {
    await image.decode();
  } catch {
    // The stage shows that the picture is broken.
    return false;
  }
  return image.naturalWidth === naturalWidth && image.naturalHeight === naturalHeight;
}

/**
 * Copies the next form's attributes. It has no marks yet. @param {HTMLFormElement} form @param
 * {HTMLFormElement} next
 */
function takeOver(form, next) {
  for (const { name, value } of next.attributes)
    if (name !== 'hidden') form.setAttribute(name, value);
  for (const selector of ['[data-template]', '[data-back]']) {
    const [mine, theirs] = [form, next].map(one => one.querySelector(selector));
    if (!(mine instanceof HTMLElement) || !(theirs instanceof HTMLElement)) continue;
    for (const { name, value } of theirs.attributes) mine.setAttribute(name, value);
    mine.hidden = theirs.hidden;
  }
}

/** @param {HTMLFormElement} form @param {string} name */
function inputOf(form, name) {
  const input = form.elements.namedItem(name);
  return input instanceof HTMLInputElement ? input : undefined;
}

function createOnce() {
  const bytes = crypto.getRandomValues(new Uint8Array(ONCE_BYTES));
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}
