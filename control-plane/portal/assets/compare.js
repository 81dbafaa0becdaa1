/**
 * A stage shows a cut-out. The reader can choose its colour, and sees the original over the cut-out
 * up to a handle, which is an input for keys and screen readers. A script that adds a stage to
 * the page sends the event `stage`, with the original's address if the stage does not name it.
 */
// @ts-check

/** @param {HTMLElement} stage */
function offerOwnColour(stage) {
  const choice = stage.querySelector('[data-own]');
  const colour = choice?.querySelector('input[type="color"]');
  const radio = choice?.querySelector('input[type="radio"]');
  if (!(choice instanceof HTMLElement)) return;
  if (!(colour instanceof HTMLInputElement) || !(radio instanceof HTMLInputElement)) return;
  choice.hidden = false;
  const show = () => stage.style.setProperty('--own', colour.value);
  show();
  for (const name of ['input', 'click']) {
    colour.addEventListener(name, () => {
      radio.checked = true;
      show();
    });
  }
}

/**
 * Puts the original over the cut-out, unless their shapes differ.
 * @param {HTMLElement} stage
 * @param {HTMLImageElement} before
 */
async function compare(stage, before) {
  const canvas = stage.querySelector('.canvas');
  const after = canvas?.querySelector('img.picture');
  if (!(canvas instanceof HTMLElement) || !(after instanceof HTMLImageElement)) return;
  try {
    await Promise.all([before.decode(), after.decode()]);
  } catch {
    // The browser cannot show the original's format.
    return;
  }
  if (!isSameShape(before, after)) return;
  const slider = sliderOf(stage);
  const edge = spanOf('edge');
  canvas.append(before, slider, edge);
  canvas.append(spanOf('corner at-start', stage.dataset.before));
  canvas.append(spanOf('corner at-end', stage.dataset.after));
  const move = () => canvas.style.setProperty('--cut', `${slider.value}%`);
  slider.addEventListener('input', move);
  move();
  drag(canvas, share => {
    slider.value = String(100 * share);
    move();
  });
}

/** @param {HTMLElement} canvas @param {(share: number) => void} to */
function drag(canvas, to) {
  const follow = (/** @type {PointerEvent} */ event) => {
    const { left, width } = canvas.getBoundingClientRect();
    to((event.clientX - left) / width);
  };
  canvas.addEventListener('pointerdown', down => {
    follow(down);
    down.preventDefault();
    canvas.setPointerCapture(down.pointerId);
    canvas.addEventListener('pointermove', follow);
    const end = () => canvas.removeEventListener('pointermove', follow);
    canvas.addEventListener('pointerup', end, { once: true });
    canvas.addEventListener('pointercancel', end, { once: true });
  });
}

/** @param {HTMLImageElement} one @param {HTMLImageElement} other */
function isSameShape(one, other) {
  const wide = one.naturalWidth * other.naturalHeight;
  const high = one.naturalHeight * other.naturalWidth;
  return Math.abs(wide - high) <= 0.01 * Math.max(wide, high);
}

/** @param {string} name @param {string} [text] */
function spanOf(name, text = '') {
  const span = document.createElement('span');
  span.className = name;
  span.ariaHidden = 'true';
  span.textContent = text;
  return span;
}

/** @param {HTMLElement} stage */
function sliderOf(stage) {
  const slider = document.createElement('input');
  slider.type = 'range';
  slider.className = 'silent';
  slider.ariaLabel = stage.dataset.slider ?? '';
  slider.min = '0';
  slider.max = '100';
  slider.step = '1';
  slider.value = '50';
  return slider;
}

/** @param {HTMLElement} stage @param {string | undefined} href */
function begin(stage, href) {
  offerOwnColour(stage);
  const shown = stage.querySelector('img.before');
  if (shown instanceof HTMLImageElement) void compare(stage, shown);
  if (href === undefined) return;
  const before = new Image();
  before.className = 'before';
  before.alt = stage.dataset.before ?? '';
  before.src = href;
  void compare(stage, before);
}

/**
 * Loads the original once the fold around the stage is open.
 * @param {HTMLElement} stage
 * @param {string | undefined} href
 */
function offer(stage, href) {
  const start = () => begin(stage, href);
  const fold = stage.closest('details:not([open])');
  if (fold === null) start();
  else fold.addEventListener('toggle', start, { once: true });
}

document.addEventListener('stage', event => {
  const { target } = event;
  if (!(target instanceof HTMLElement) || !(event instanceof CustomEvent)) return;
  offer(target, event.detail ?? target.dataset.original);
});

for (const stage of document.querySelectorAll('.stage')) {
  if (stage instanceof HTMLElement) offer(stage, stage.dataset.original);
}
