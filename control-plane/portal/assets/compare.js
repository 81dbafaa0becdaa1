/**
 * A result's stage: a ground of the reader's own colour, and the original before the result, as far
 * as a slider says. The slider is an input of the browser's own: keys move it too. A script that put a
 * stage into the page tells it by the event `stage`, with the original's address where it has one.
 */
// @ts-check

/** @param {HTMLElement} stage */
function offerOwnColour(stage) {
  const choice = stage.querySelector('[data-own]');
  const colour = choice?.querySelector('input[type="color"]');
  const radio = choice?.querySelector('input[type="radio"]');
  const canvas = stage.querySelector('.canvas');
  if (!(choice instanceof HTMLElement) || !(canvas instanceof HTMLElement)) return;
  if (!(colour instanceof HTMLInputElement) || !(radio instanceof HTMLInputElement)) return;
  choice.hidden = false;
  const show = () => canvas.style.setProperty('--own', colour.value);
  show();
  colour.addEventListener('input', () => {
    radio.checked = true;
    show();
  });
}

/**
 * Puts the original over the result. Where the two have another shape there is nothing to slide.
 * @param {HTMLElement} stage
 * @param {string} originalHref
 */
async function compare(stage, originalHref) {
  const canvas = stage.querySelector('.canvas');
  const after = canvas?.querySelector('img');
  if (!(canvas instanceof HTMLElement) || !(after instanceof HTMLImageElement)) return;
  const before = new Image();
  before.className = 'before';
  before.alt = stage.dataset.before ?? '';
  before.src = originalHref;
  try {
    await Promise.all([before.decode(), after.decode()]);
  } catch {
    // A format that this browser does not show: the result stands alone.
    return;
  }
  if (!isSameShape(before, after)) return;
  const edge = document.createElement('span');
  edge.className = 'edge';
  canvas.append(before, edge);
  const slider = sliderOf(stage);
  const move = () => canvas.style.setProperty('--cut', `${slider.value}%`);
  slider.addEventListener('input', move);
  move();
  canvas.addEventListener('pointerdown', down => {
    const drag = (/** @type {PointerEvent} */ event) => {
      const { left, width } = canvas.getBoundingClientRect();
      slider.value = String(((event.clientX - left) / width) * 100);
      move();
    };
    drag(down);
    down.preventDefault();
    canvas.setPointerCapture(down.pointerId);
    canvas.addEventListener('pointermove', drag);
    const end = () => canvas.removeEventListener('pointermove', drag);
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

/** @param {HTMLElement} stage */
function sliderOf(stage) {
  const label = document.createElement('label');
  label.className = 'compare-slider';
  const words = document.createElement('span');
  words.textContent = stage.dataset.slider ?? '';
  const slider = document.createElement('input');
  slider.type = 'range';
  slider.min = '0';
  slider.max = '100';
  slider.step = '1';
  slider.value = '50';
  label.append(words, slider);
  stage.append(label);
  return slider;
}

document.addEventListener('stage', event => {
  const { target } = event;
  if (!(target instanceof HTMLElement) || !(event instanceof CustomEvent)) return;
  offerOwnColour(target);
  if (typeof event.detail === 'string') void compare(target, event.detail);
});

for (const stage of document.querySelectorAll('.stage')) {
  if (stage instanceof HTMLElement) offerOwnColour(stage);
}
