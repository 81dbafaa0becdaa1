/**
 * The playground without leaving its page: drops and pastes, progress, and the outcome of the job's
 * own page with the original. Without this script the form works page by page.
 */
// @ts-check

const POLL_MS = 1000;
const SECOND_MS = 1000;
const REFERENCE_LENGTH_MAX = 100;
/** After this many failed requests in a row the reader gets a message. The job continues. */
const FAILED_POLLS_MAX = 5;
/** The cache's name for a picture from overview.js. */
const HANDED_OVER = 'playground';

/** @type {string | undefined} */
let originalHref;
/** The number of sent forms. Answers to an older form are dropped. */
let sends = 0;

const found = document.getElementById('playground-form');
if (found instanceof HTMLFormElement) {
  begin(found);
  void takeHandedOver(found);
}

/** @param {HTMLFormElement} form */
function begin(form) {
  offerDrop(form);
  form.addEventListener('submit', event => {
    event.preventDefault();
    void send(form, event.submitter);
  });
  form.addEventListener('change', ({ target }) => unmark(form, target), { capture: true });
  form.addEventListener('change', () => {
    showReady(form);
    void showCall(form);
  });
  showReady(form);
}

/** Without a picture the browser asks for one. @param {HTMLFormElement} form */
function showReady(form) {
  const button = form.querySelector('.send-row button');
  if (button) button.ariaDisabled = String(!fileInput(form)?.files?.length);
}

/**
 * Removes an error, which was about the field's previous value. @param {HTMLFormElement} form
 * @param {EventTarget | null} changed
 */
function unmark(form, changed) {
  const field = changed instanceof Element ? changed.closest('.field') : null;
  if (!field?.querySelector('.error')) return;
  field.classList.remove('wrong');
  for (const one of [field, ...field.querySelectorAll('[aria-invalid]')]) one.ariaInvalid = null;
  field.querySelector('.error')?.remove();
  if (!form.querySelector('[aria-invalid]')) form.querySelector('[data-refusal]')?.remove();
}

/** @param {HTMLFormElement} form */
function fileInput(form) {
  const input = form.elements.namedItem('image_file');
  return input instanceof HTMLInputElement ? input : undefined;
}

/** @param {HTMLFormElement} form */
function offerDrop(form) {
  const input = fileInput(form);
  const zone = form.querySelector('[data-drop]');
  if (input === undefined || !(zone instanceof HTMLElement)) return;
  input.addEventListener('change', () => {
    // Removes the outcome of the previous picture.
    document.getElementById('outcome')?.replaceChildren();
    refuseOthers(zone, input);
    preview(zone, input.files?.[0]);
  });
  for (const name of ['dragover', 'dragleave', 'drop']) {
    zone.addEventListener(name, event => {
      event.preventDefault();
      zone.classList.toggle('over', name === 'dragover');
    });
  }
  zone.addEventListener('drop', event => take(input, event.dataTransfer?.files));
  document.addEventListener('paste', event => take(input, event.clipboardData?.files));
}

/**
 * Refuses a file that is not a picture. Some browsers know no type for some pictures.
 * @param {HTMLElement} zone
 * @param {HTMLInputElement} input
 */
function refuseOthers(zone, input) {
  const file = input.files?.[0];
  const known = input.accept.split(',');
  const isWrong =
    file !== undefined &&
    file.type !== '' &&
    !known.some(one => one === file.type || file.name.toLowerCase().endsWith(one));
  if (!isWrong) return;
  zone.classList.add('wrong');
  input.value = '';
  input.ariaInvalid = 'true';
  const error = document.createElement('span');
  error.className = 'error';
  error.setAttribute('role', 'alert');
  error.textContent = zone.dataset.wrong ?? '';
  zone.append(error);
}

/** @param {HTMLInputElement} input @param {Iterable<File> | undefined} given */
function take(input, given) {
  const [file] = given ?? [];
  if (file === undefined) return;
  choose(input, file);
  input.dispatchEvent(new Event('change', { bubbles: true }));
}

/** @param {HTMLInputElement} input @param {File} file */
function choose(input, file) {
  const chosen = new DataTransfer();
  chosen.items.add(file);
  input.files = chosen.files;
}

/** @param {HTMLFormElement} form */
async function takeHandedOver(form) {
  const input = fileInput(form);
  if (input === undefined || !('caches' in window)) return;
  const held = await (await caches.open(HANDED_OVER)).match(location.pathname);
  await caches.delete(HANDED_OVER);
  if (held === undefined) return;
  const name = decodeURIComponent(held.headers.get('x-name') ?? '');
  const bytes = await held.blob();
  take(input, [new File([bytes], name, { type: bytes.type })]);
  form.requestSubmit();
}

/**
 * Shows the chosen picture, over which paint.js draws the subject's box. @param {HTMLElement} zone
 * @param {File | undefined} file
 */
function preview(zone, file) {
  for (const old of zone.querySelectorAll('.painting, .box-hint')) old.remove();
  if (file === undefined) return;
  const figure = document.createElement('figure');
  figure.className = 'canvas painting';
  const image = new Image();
  image.className = 'picture';
  image.alt = `${zone.dataset.drop ?? ''}: ${file.name}`;
  image.src = URL.createObjectURL(file);
  const canvas = document.createElement('canvas');
  canvas.tabIndex = 0;
  canvas.role = 'application';
  canvas.ariaLabel = zone.dataset.box ?? '';
  const hint = document.createElement('span');
  hint.className = 'soft box-hint';
  hint.textContent = zone.dataset.hint ?? '';
  const title = zone.querySelector('.drop-title');
  if (title) title.textContent = zone.dataset.other ?? '';
  image.addEventListener('load', () => {
    URL.revokeObjectURL(image.src);
    figure.dispatchEvent(new CustomEvent('chosen', { bubbles: true }));
  });
  image.addEventListener('error', () => {
    figure.remove();
    hint.remove();
  });
  // Next to a result the preview is small until the canvas has the focus.
  figure.addEventListener('click', () => canvas.focus());
  figure.append(image, canvas);
  zone.prepend(figure, hint);
}

/** Keeps only one original in memory. @param {HTMLFormElement} form @param {string} [sample] */
function keepOriginal(form, sample) {
  if (originalHref?.startsWith('blob:')) URL.revokeObjectURL(originalHref);
  const file = fileInput(form)?.files?.[0];
  originalHref = sample ?? (file && URL.createObjectURL(file));
}

/** The file's name, cut to what the API allows for a reference. @param {File} file */
function nameOf({ name }) {
  return [...name.replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, '')].slice(0, REFERENCE_LENGTH_MAX).join('');
}

/** @param {HTMLFormElement} form @param {HTMLElement | null} submitter */
async function send(form, submitter) {
  sends += 1;
  const mine = sends;
  const fields = new FormData(form, submitter);
  const sample = submitter?.querySelector('img');
  const file = sample ? undefined : fileInput(form)?.files?.[0];
  if (file) fields.set('reference', nameOf(file));
  if (sample) fields.delete('image_file');
  keepOriginal(form, sample?.src);
  setBusy(form, true);
  const stage = showWorking(form, String(fields.get('model') ?? ''));
  try {
    const answer = await post(form, fields, share => {
      stage.say((stage.words.sending ?? '').replace('{share}', share));
    });
    if (mine !== sends) return;
    await follow(answer, mine, stage);
  } catch {
    if (mine === sends) stage.fail(form.dataset.failed ?? '');
  } finally {
    stage.rest();
    setBusy(form, false);
  }
}

/**
 * Dims the original during the work. Screen readers hear changes of the state, not the seconds.
 * @param {HTMLFormElement} form
 * @param {string} model
 */
function showWorking(form, model) {
  const outcome = document.getElementById('outcome');
  const template = document.getElementById('working');
  const section =
    template instanceof HTMLTemplateElement
      ? template.content.firstElementChild?.cloneNode(true)
      : undefined;
  if (outcome === null || !(section instanceof HTMLElement)) throw new Error('no stage');
  const status = section.querySelector('[data-say]');
  const seconds = section.querySelector('[data-seconds]');
  if (originalHref !== undefined) {
    const image = new Image();
    image.className = 'picture';
    image.alt = '';
    image.src = originalHref;
    image.addEventListener('error', () => image.remove());
    section.querySelector('.working')?.prepend(image);
  }
  outcome.replaceChildren(section);
  // The pressed button is hidden until there is an answer.
  if (!document.activeElement?.closest('.options')) section.focus({ preventScroll: true });
  outcome.scrollIntoView({ block: 'nearest' });
  const words = section.dataset;
  const expected = Number(JSON.parse(form.dataset.seconds ?? '{}')[model] ?? 0);
  let state = '';
  let sinceMs = 0;
  const tick = () => {
    const passed = Math.floor((performance.now() - sinceMs) / SECOND_MS);
    const left = Math.ceil(expected) - passed;
    const isAbout = state === 'processing' && left > 0;
    const text = (isAbout ? words.about : words.elapsed) ?? '';
    if (seconds) seconds.textContent = text.replace('{seconds}', String(isAbout ? left : passed));
  };
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  const rest = () => clearInterval(timer);
  /** @param {string} text */
  const say = text => {
    if (status && status.textContent !== text) status.textContent = text;
  };
  return {
    words,
    say,
    rest,
    /** @param {string} next */
    become(next) {
      if (next === state) return;
      state = next;
      sinceMs = performance.now();
      say(words[next] ?? '');
      rest();
      timer = setInterval(tick, SECOND_MS / 4);
      tick();
    },
    /** @param {string} text */
    fail(text) {
      section.classList.add('failed');
      if (seconds) seconds.textContent = '';
      say(text);
    },
  };
}

/** @param {HTMLFormElement} form @param {boolean} busy */
function setBusy(form, busy) {
  form.ariaBusy = String(busy);
  document.querySelector('.playground')?.classList.toggle('busy', busy);
  for (const button of form.querySelectorAll('button[type="submit"]')) {
    if (button instanceof HTMLButtonElement) button.disabled = busy;
  }
}

/**
 * XMLHttpRequest, since fetch does not report an upload's progress. Resolves with the next page.
 * @param {HTMLFormElement} form
 * @param {FormData} fields
 * @param {(share: string) => void} onProgress
 * @returns {Promise<{ href: string, text: string }>}
 */
function post(form, fields, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open('POST', form.action);
    request.setRequestHeader('accept', 'text/html');
    const percent = new Intl.NumberFormat(document.documentElement.lang, { style: 'percent' });
    request.upload.addEventListener('progress', ({ loaded, total }) => {
      onProgress(percent.format(total === 0 ? 0 : loaded / total));
    });
    request.addEventListener('load', () =>
      resolve({ href: request.responseURL, text: request.responseText }),
    );
    request.addEventListener('error', () => reject(new Error('not sent')));
    request.addEventListener('abort', () => reject(new Error('not sent')));
    request.send(fields);
  });
}

/**
 * Shows the page's outcome, and polls until it is final.
 * @param {{ href: string, text: string }} answer
 * @param {number} mine
 * @param {{ become(state: string): void }} stage
 */
async function follow(answer, mine, stage) {
  let { href, text } = answer;
  let failed = 0;
  for (;;) {
    const page = new DOMParser().parseFromString(text, 'text/html');
    const state = page.querySelector('[data-state]')?.getAttribute('data-state');
    if (state === undefined || state === null) {
      // A refused form shows why. The browser shows other pages.
      if (page.getElementById('try') === null) return location.assign(href);
      return keepFocus(() => {
        document.getElementById('outcome')?.replaceChildren();
        replaceForm(page);
      });
    }
    history.replaceState(null, '', href);
    if (state !== 'queued' && state !== 'processing') {
      keepFocus(() => {
        replacePart('outcome', page);
        replaceForm(page);
      });
      showResult();
      return;
    }
    stage.become(state);
    await new Promise(resolve => setTimeout(resolve, POLL_MS));
    if (mine !== sends) return;
    try {
      const next = await fetch(href, { headers: { accept: 'text/html' } });
      text = await next.text();
      href = next.url;
      failed = 0;
    } catch (error) {
      failed += 1;
      if (failed > FAILED_POLLS_MAX) throw error;
    }
  }
}

/**
 * If the change removes the focused element, the same field or the new part gets the focus.
 * @param {() => void} change
 */
function keepFocus(change) {
  const before = document.activeElement;
  change();
  // A hidden element cannot have the focus.
  document.querySelector('.playground')?.classList.remove('busy');
  if (before?.isConnected && before !== document.body) return;
  const next =
    (before?.id ? document.getElementById(before.id) : null) ??
    document.querySelector('#outcome > section') ??
    document.querySelector('#try [aria-invalid="true"]') ??
    document.getElementById('image_file');
  if (next instanceof HTMLElement) next.focus({ preventScroll: true });
}

/**
 * Replaces the form, which can be sent once. The picture and the typed text stay.
 * @param {Document} page
 */
function replaceForm(page) {
  const before = document.getElementById('playground-form');
  const file = before instanceof HTMLFormElement ? fileInput(before)?.files?.[0] : undefined;
  replacePart('try', page);
  const form = document.getElementById('playground-form');
  if (!(form instanceof HTMLFormElement)) return;
  begin(form);
  const input = fileInput(form);
  if (file === undefined || input === undefined) return;
  choose(input, file);
  showReady(form);
  const zone = form.querySelector('[data-drop]');
  if (zone instanceof HTMLElement) preview(zone, file);
}

/** @param {string} id @param {Document} page */
function replacePart(id, page) {
  const next = page.getElementById(id);
  const here = document.getElementById(id);
  if (next === null || here === null) return;
  here.replaceChildren(...[...next.childNodes].map(node => document.importNode(node, true)));
  here.dispatchEvent(new CustomEvent('part', { bubbles: true }));
}

function showResult() {
  const stage = document.querySelector('#outcome .stage');
  stage?.dispatchEvent(new CustomEvent('stage', { bubbles: true, detail: originalHref }));
  document.getElementById('outcome')?.scrollIntoView({ block: 'nearest' });
}

/** Replaces only the texts, so that the copy buttons stay. @param {Document} page */
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

/** The equivalent call with the current options. @param {HTMLFormElement} form */
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
    // The page keeps the call that it shows.
  }
}
