/**
 * Strokes and boxes over a picture, for what a cut-out keeps and erases, in the API's form: pixels
 * of the upright input. The form (page/painter.ts) has them as `keep` and `erase`, and correct.js
 * sends it. The playground uses the same code for the box of its field `subject_box`, in %. Works
 * with pointers and keys.
 */
// @ts-check

/** Limits of the API for one request. */
const SHAPES_MAX = 64;
const POINTS_MAX = 4096;
/** Least distance of a stroke's points, as a share of the brush's radius. */
const STEP_SHARE = 0.4;
/** A step of the size, as a share of the picture's longer side. */
const NOTCH_SHARE = 0.005;
/** An arrow key moves the cursor by this many notches with Shift, else by one. */
const LARGE_STEP = 10;
const CROSS = 12;
const CHANGE_MS = 3500;
/** Least difference of a channel, of 255. Encoders change photos by less. */
const DIFFERENCE_MIN = 24;
const CHANGE_COLOUR = [255, 0, 170, 190];
const COLOURS = {
  keep: 'rgb(0 170 90 / 55%)',
  erase: 'rgb(229 50 60 / 55%)',
  subject: 'rgb(0 170 90 / 25%)',
};

/** @typedef {[x: number, y: number]} Point */
/** @typedef {{ width: number, height: number }} Size */
/** @typedef {{ line: Point[], radius: number } | { box: [number, number, number, number] }} Shape */
/** @typedef {{ kind: keyof typeof COLOURS, shape: Shape }} Mark */
/**
 * `begin` gives the kind of the next mark. Undefined: no more marks.
 * @typedef {object} Use
 * @property {Mark[]} marks
 * @property {HTMLElement} keys the element in which the keys for undo and redo work
 * @property {() => number | undefined} radius undefined: the next mark is a box
 * @property {() => Mark['kind'] | undefined} begin
 * @property {(all: Mark[], canRedo: boolean) => void} changed
 */

/** Forms that are ready: a page that changes in place can send `stage` again for one. */
const offered = new WeakSet();

/**
 * Loads the pictures once the form is open.
 * @param {HTMLFormElement} form
 * @param {string} [originalHref] absent: that of the form
 */
function offer(form, originalHref = form.dataset.original) {
  if (offered.has(form)) return;
  offered.add(form);
  const fold = form.querySelector('details');
  form.hidden = false;
  fold?.addEventListener('toggle', () => void show(form, originalHref), { once: true });
}

/**
 * Hides the form if the browser can show no picture.
 * @param {HTMLFormElement} form
 * @param {string | undefined} originalHref
 */
async function show(form, originalHref) {
  const original = originalHref === undefined ? undefined : await loaded(originalHref);
  const canvas = form.querySelector('canvas');
  const figure = form.querySelector('.canvas');
  const picture = { width: Number(form.dataset.width), height: Number(form.dataset.height) };
  let cutOut = await cutOutOf(picture);
  form.hidden = original === undefined && cutOut === undefined;
  if (form.hidden || canvas === null || figure === null) return;
  dress(figure, original, cutOut);
  const marks = correctBy(form, canvas, picture);
  form.addEventListener('corrected', async () => {
    marks.clear();
    const [before, after] = [cutOut, await cutOutOf(picture)];
    cutOut = after;
    dress(figure, original, after);
    const change = before && after && changeOf(before, after, canvas);
    if (change?.isSeen) showForAMoment(change.sheet, figure);
    const words = change === undefined ? 'done' : change.isSeen ? 'changed' : 'unchanged';
    const status = form.querySelector('[role="status"]');
    if (status) status.textContent = form.dataset[words] ?? '';
  });
}

/** Undefined: the browser cannot show the cut-out, or its shape differs. @param {Size} picture */
async function cutOutOf(picture) {
  const shown = document.querySelector('.stage .canvas img.picture');
  const image = shown instanceof HTMLImageElement ? await loaded(shown.src) : undefined;
  return image && isSameShape(image, picture) ? image : undefined;
}

/**
 * The cut-out lies over the faint original, or one of them is alone.
 * @param {Element} figure
 * @param {HTMLImageElement | undefined} original
 * @param {HTMLImageElement | undefined} cutOut
 */
function dress(figure, original, cutOut) {
  for (const image of figure.querySelectorAll('img')) image.remove();
  const ground = original ?? cutOut;
  if (ground === undefined) return;
  ground.className = original && cutOut ? 'picture faint' : 'picture';
  ground.alt = '';
  figure.prepend(ground);
  if (cutOut === undefined || cutOut === ground) return;
  cutOut.className = 'over';
  cutOut.alt = '';
  ground.after(cutOut);
}

/**
 * Compares two cut-outs at the size of the page.
 * @param {HTMLImageElement} before
 * @param {HTMLImageElement} after
 * @param {HTMLCanvasElement} shown
 */
function changeOf(before, after, { width, height }) {
  // The form was closed meanwhile.
  if (width === 0 || height === 0) return undefined;
  const [sheet, other] = [canvasOf(before, width, height), canvasOf(after, width, height)];
  const context = sheet.getContext('2d');
  const theirs = other.getContext('2d')?.getImageData(0, 0, width, height).data;
  const image = context?.getImageData(0, 0, width, height);
  if (!context || !image || !theirs) return undefined;
  const { data } = image;
  let isSeen = false;
  for (let at = 0; at < data.length; at += 4) {
    const [mine = 0, yours = 0] = [data[at + 3], theirs[at + 3]];
    let most = Math.abs(mine - yours);
    for (let channel = at; channel < at + 3; channel += 1) {
      const shown = (data[channel] ?? 0) * mine - (theirs[channel] ?? 0) * yours;
      most = Math.max(most, Math.abs(shown) / 255);
    }
    const isChanged = most >= DIFFERENCE_MIN;
    data.set(isChanged ? CHANGE_COLOUR : [0, 0, 0, 0], at);
    isSeen ||= isChanged;
  }
  context.putImageData(image, 0, 0);
  return { isSeen, sheet };
}

/** @param {HTMLImageElement} image @param {number} width @param {number} height */
function canvasOf(image, width, height) {
  const canvas = document.createElement('canvas');
  canvas.width = width;
  canvas.height = height;
  canvas.getContext('2d', { willReadFrequently: true })?.drawImage(image, 0, 0, width, height);
  return canvas;
}

/**
 * Shows a change until the person paints again. @param {HTMLCanvasElement} sheet @param {Element}
 * figure
 */
function showForAMoment(sheet, figure) {
  figure.querySelector('.changed')?.remove();
  sheet.className = 'changed';
  sheet.ariaHidden = 'true';
  figure.querySelector('canvas')?.before(sheet);
  setTimeout(() => sheet.remove(), CHANGE_MS);
  figure.addEventListener('pointerdown', () => sheet.remove(), { once: true });
}

/** Undefined: this browser cannot show the image. @param {string} href */
async function loaded(href) {
  const image = new Image();
  image.src = href;
  try {
    await image.decode();
    return image;
  } catch {
    return undefined;
  }
}

/** @param {HTMLImageElement} image @param {Size} picture */
function isSameShape({ naturalWidth, naturalHeight }, { width, height }) {
  const [wide, high] = [naturalWidth * height, naturalHeight * width];
  return Math.abs(wide - high) <= 0.01 * Math.max(wide, high);
}

/**
 * @param {HTMLFormElement} form
 * @param {HTMLCanvasElement} canvas
 * @param {Size} picture
 */
function correctBy(form, canvas, picture) {
  /** @type {Mark[]} */
  const marks = [];
  const field = (/** @type {string} */ name) => {
    const found = form.elements.namedItem(name);
    if (found instanceof HTMLInputElement || found instanceof RadioNodeList) return found;
    throw new Error(`no field ${name}`);
  };
  const { draw, undo, redo, end, clear } = paintOn(canvas, picture, {
    marks,
    keys: form,
    radius: () =>
      field('tool').value === 'box' ? undefined : notches(Number(field('size').value), picture),
    begin: () => {
      if (isFull(marks)) return undefined;
      return field('kind').value === 'erase' ? 'erase' : 'keep';
    },
    changed: (all, canRedo) => {
      for (const kind of /** @type {const} */ (['keep', 'erase'])) {
        const shapes = all.filter(mark => mark.kind === kind).map(({ shape }) => shape);
        field(kind).value = shapes.length === 0 ? '' : JSON.stringify(shapes);
      }
      showCall(form);
      showState(form, all, canRedo);
    },
  });
  form.querySelector('[data-undo]')?.addEventListener('click', undo);
  form.querySelector('[data-redo]')?.addEventListener('click', redo);
  form.addEventListener('formdata', ({ formData }) => {
    for (const name of ['kind', 'tool', 'size']) formData.delete(name);
  });
  form.addEventListener('submit', end, { capture: true });
  const hint = () => {
    const hint = form.querySelector('[data-hint]');
    const words = form.getAttribute(`data-${field('kind').value}-${field('tool').value}`);
    if (hint) hint.textContent = words;
    draw();
  };
  form.addEventListener('input', hint);
  hint();
  return { clear };
}

/** @param {number} count @param {Size} picture */
function notches(count, { width, height }) {
  return Math.max(1, Math.round(count * NOTCH_SHARE * Math.max(width, height)));
}

/**
 * The subject's box over the chosen picture. Also draws a box that was typed.
 * @param {HTMLImageElement} image
 * @param {HTMLCanvasElement} canvas
 * @param {HTMLInputElement} input
 */
function boxOn({ naturalWidth: width, naturalHeight: height }, canvas, input) {
  const sides = [width, height, width, height];
  /** @type {Mark[]} */
  const marks = [];
  const read = () => {
    const edges = input.value.split(/\s+/).map((text, index) => {
      const share = text.endsWith('%') ? (sides[index] ?? 0) / 100 : 1;
      return share * Number.parseFloat(text);
    });
    const box = /** @type {[number, number, number, number]} */ (edges);
    const isBox = edges.length === sides.length && edges.every(Number.isFinite);
    marks.splice(
      0,
      1,
      ...(isBox ? [{ kind: /** @type {const} */ ('subject'), shape: { box } }] : []),
    );
  };
  read();
  // Typed text stays until somebody draws.
  let isDrawn = false;
  const { draw } = paintOn(
    canvas,
    { width, height },
    {
      marks,
      keys: canvas,
      radius: () => undefined,
      begin: () => {
        isDrawn = true;
        marks.length = 0;
        return 'subject';
      },
      changed: ([mark]) => {
        if (!isDrawn) return;
        const edges = mark && 'box' in mark.shape ? mark.shape.box : [];
        const text = edges.map((edge, at) => `${+((100 * edge) / (sides[at] ?? 1)).toFixed(1)}%`);
        if (input.value === text.join(' ')) return;
        input.value = text.join(' ');
        input.dispatchEvent(new Event('change', { bubbles: true }));
      },
    },
  );
  const replaced = new AbortController();
  input.addEventListener(
    'input',
    () => {
      if (!canvas.isConnected) return replaced.abort();
      read();
      draw();
    },
    { signal: replaced.signal },
  );
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Size} picture
 * @param {Use} use
 */
function paintOn(canvas, picture, use) {
  const { marks, radius } = use;
  /** @type {Mark[]} */
  const undone = [];
  /** @type {Mark | undefined} */
  let open;
  /** The cursor that keys move. @type {Point} */
  let cursor = [picture.width / 2, picture.height / 2];
  const isBusy = () => canvas.closest('[data-busy]') !== null;
  const all = () => (open ? [...marks, open] : marks);
  const draw = () => drawOn(canvas, picture, { marks: all(), cursor, radius: radius() });
  const change = () => {
    use.changed(all(), undone.length > 0);
    draw();
  };
  const begin = (/** @type {Point} */ at) => {
    const kind = isBusy() ? undefined : use.begin();
    if (kind === undefined) return;
    cursor = clip(at, picture);
    const [x, y] = cursor;
    const brush = radius();
    const shape =
      brush === undefined
        ? { box: /** @type {[number, number, number, number]} */ ([x, y, x, y]) }
        : { line: [cursor], radius: brush };
    open = { kind, shape };
    draw();
  };
  const move = (/** @type {Point} */ at) => {
    cursor = clip(at, picture);
    if (open !== undefined) extend(open.shape, cursor, POINTS_MAX - pointsOf(marks));
    draw();
  };
  const drop = () => {
    open = undefined;
    change();
  };
  const put = (/** @type {Mark} */ mark) => {
    if (!isEmpty(mark.shape)) marks.push(upright(mark));
    drop();
  };
  const end = () => {
    if (open === undefined) return;
    undone.length = 0;
    put(open);
  };
  const undo = () => {
    if (isBusy()) return;
    const last = open === undefined ? marks.pop() : undefined;
    if (last) undone.push(last);
    drop();
  };
  const redo = () => {
    const next = open || isBusy() ? undefined : undone.pop();
    if (next === undefined) return;
    use.begin();
    put(next);
  };
  const clear = () => {
    marks.length = 0;
    undone.length = 0;
    drop();
  };
  followPointer(canvas, picture, { begin, move, end });
  followKeys(canvas, {
    isDrawing: () => open !== undefined,
    begin: () => begin(cursor),
    end,
    drop,
    step: ([x, y], notch) => {
      const by = notches(notch, picture);
      move([cursor[0] + x * by, cursor[1] + y * by]);
    },
  });
  followUndo(use.keys, { undo, redo });
  new ResizeObserver(draw).observe(canvas);
  change();
  return { draw, undo, redo, end, clear };
}

/** @param {Point} at @param {Size} picture @returns {Point} */
function clip([x, y], { width, height }) {
  const within = (/** @type {number} */ at, /** @type {number} */ max) =>
    Math.min(max, Math.max(0, Math.round(at)));
  return [within(x, width), within(y, height)];
}

/** True if the API allows no more. @param {readonly Mark[]} marks */
function isFull(marks) {
  return marks.length >= SHAPES_MAX || pointsOf(marks) >= POINTS_MAX;
}

/** @param {readonly Mark[]} marks */
function pointsOf(marks) {
  let points = 0;
  for (const { shape } of marks) points += 'line' in shape ? shape.line.length : 2;
  return points;
}

/** @param {Shape} shape @param {Point} to @param {number} pointsMax */
function extend(shape, [x, y], pointsMax) {
  if ('box' in shape) {
    const [left, top] = shape.box;
    shape.box = [left, top, x, y];
    return;
  }
  const [lastX, lastY] = shape.line.at(-1) ?? [x, y];
  if (shape.line.length >= pointsMax) return;
  if (Math.hypot(x - lastX, y - lastY) >= STEP_SHARE * shape.radius) shape.line.push([x, y]);
}

/** A box without an area. A line of one point is a dot. @param {Shape} shape */
function isEmpty(shape) {
  return 'box' in shape && (shape.box[0] === shape.box[2] || shape.box[1] === shape.box[3]);
}

/** @param {Mark} mark @returns {Mark} */
function upright({ kind, shape }) {
  if ('line' in shape) return { kind, shape };
  const [x1, y1, x2, y2] = shape.box;
  const [left, right] = [Math.min(x1, x2), Math.max(x1, x2)];
  const [top, bottom] = [Math.min(y1, y2), Math.max(y1, y2)];
  return { kind, shape: { box: [left, top, right, bottom] } };
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Size} picture
 * @param {{ marks: readonly Mark[], cursor: Point, radius: number | undefined }} shown
 */
function drawOn(canvas, picture, { marks, cursor, radius }) {
  const box = canvas.getBoundingClientRect();
  canvas.width = Math.round(box.width * devicePixelRatio);
  canvas.height = Math.round(box.height * devicePixelRatio);
  const context = canvas.getContext('2d');
  if (context === null || canvas.width === 0) return;
  context.scale(canvas.width / picture.width, canvas.height / picture.height);
  for (const mark of marks) drawMark(context, mark);
  drawCursor(context, cursor, radius, picture.width / box.width);
}

/** @param {CanvasRenderingContext2D} context @param {Mark} mark */
function drawMark(context, { kind, shape }) {
  context.fillStyle = COLOURS[kind];
  context.strokeStyle = COLOURS[kind];
  if ('box' in shape) {
    const [x1, y1, x2, y2] = shape.box;
    context.fillRect(x1, y1, x2 - x1, y2 - y1);
    return;
  }
  const [[x, y] = [0, 0], ...rest] = shape.line;
  context.lineWidth = 2 * shape.radius;
  context.lineCap = 'round';
  context.lineJoin = 'round';
  context.beginPath();
  context.moveTo(x, y);
  // A path of one point draws nothing. A line to itself draws a dot.
  if (rest.length === 0) context.lineTo(x, y);
  for (const [nextX, nextY] of rest) context.lineTo(nextX, nextY);
  context.stroke();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Point} at
 * @param {number | undefined} radius undefined: a cross, for the corner of a box
 * @param {number} pixel a pixel of the page, in pixels of the picture
 */
function drawCursor(context, [x, y], radius, pixel) {
  const reach = CROSS * pixel;
  for (const [colour, width] of /** @type {const} */ ([
    ['#000', 3],
    ['#fff', 1.5],
  ])) {
    context.strokeStyle = colour;
    context.lineWidth = width * pixel;
    context.beginPath();
    if (radius === undefined) {
      context.moveTo(x - reach, y);
      context.lineTo(x + reach, y);
      context.moveTo(x, y - reach);
      context.lineTo(x, y + reach);
    } else context.arc(x, y, radius, 0, 2 * Math.PI);
    context.stroke();
  }
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Size} picture
 * @param {{ begin(at: Point): void, move(at: Point): void, end(): void }} brush
 */
function followPointer(canvas, picture, brush) {
  const at = (/** @type {PointerEvent} */ event) => {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const x = ((event.clientX - left) / width) * picture.width;
    return /** @type {Point} */ ([x, ((event.clientY - top) / height) * picture.height]);
  };
  canvas.addEventListener('pointerdown', event => {
    if (event.button !== 0) return;
    event.preventDefault();
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    brush.begin(at(event));
  });
  canvas.addEventListener('pointermove', event => {
    // A fast pointer passes several points between two frames.
    const passed = event.getCoalescedEvents();
    for (const each of passed.length === 0 ? [event] : passed) brush.move(at(each));
  });
  for (const name of /** @type {const} */ (['pointerup', 'pointercancel'])) {
    canvas.addEventListener(name, () => brush.end());
  }
}

/**
 * Space and Enter draw while they are held. A press without a move leaves the brush down until the
 * next press.
 * @param {HTMLCanvasElement} canvas
 * @param {{ isDrawing(): boolean, begin(): void, end(): void, drop(): void, step(to: Point, notch:
 * number): void }} brush
 */
function followKeys(canvas, brush) {
  /** @type {Readonly<Record<string, Point>>} */
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const isPen = (/** @type {KeyboardEvent} */ { key }) => key === ' ' || key === 'Enter';
  let isHeld = false;
  let hasMoved = false;
  canvas.addEventListener('keydown', event => {
    const step = steps[event.key];
    if (step) {
      brush.step(step, event.shiftKey ? LARGE_STEP : 1);
      hasMoved = true;
    } else if (isPen(event)) {
      if (event.repeat) return event.preventDefault();
      isHeld = !brush.isDrawing();
      hasMoved = false;
      if (isHeld) brush.begin();
      else brush.end();
    } else if (event.key === 'Escape' && brush.isDrawing()) brush.drop();
    else return;
    event.preventDefault();
  });
  canvas.addEventListener('keyup', event => {
    if (isPen(event) && isHeld && hasMoved) brush.end();
    if (isPen(event)) isHeld = false;
  });
}

/** @param {HTMLElement} target @param {{ undo(): void, redo(): void }} marks */
function followUndo(target, { undo, redo }) {
  target.addEventListener('keydown', event => {
    const key = event.key.toLowerCase();
    const hasCommand = event.ctrlKey || event.metaKey;
    if (hasCommand && (key === 'y' || (key === 'z' && event.shiftKey))) redo();
    else if ((hasCommand && key === 'z') || key === 'backspace') undo();
    else return;
    event.preventDefault();
  });
}

/** @param {HTMLFormElement} form */
function showCall(form) {
  const template = form.querySelector('[data-template]');
  const code = template?.querySelector('code');
  if (!(template instanceof HTMLElement) || !code) return;
  const fields = new FormData(form);
  const text = (template.dataset.template ?? '').replace(
    /\{(keep|erase)\}/g,
    (_, /** @type {string} */ name) => String(fields.get(name) || '[]'),
  );
  code.textContent = text;
  const copy = template.querySelector('button[data-copy]');
  if (copy instanceof HTMLButtonElement) copy.dataset.copy = text;
}

/**
 * Keeps the buttons enabled, since a disabled one would lose the focus.
 * @param {HTMLFormElement} form
 * @param {Mark[]} marks
 * @param {boolean} canRedo
 */
function showState(form, marks, canRedo) {
  const count = marks.length;
  const uses = {
    'button[type="submit"]': count > 0,
    '[data-undo]': count > 0,
    '[data-redo]': canRedo,
  };
  for (const [name, isOfUse] of Object.entries(uses)) {
    const button = form.querySelector(name);
    if (button) button.ariaDisabled = String(!isOfUse);
  }
  const status = form.querySelector('[role="status"]');
  const words = isFull(marks) ? 'full' : count === 1 ? 'one' : 'other';
  const text = count === 0 ? '' : (form.dataset[words] ?? '');
  if (status) status.textContent = text.replace('{count}', String(count));
}

document.addEventListener('chosen', ({ target }) => {
  if (!(target instanceof HTMLElement)) return;
  const [image, canvas] = [target.querySelector('img'), target.querySelector('canvas')];
  const input = document.getElementById('subject_box');
  if (image && canvas && input instanceof HTMLInputElement) boxOn(image, canvas, input);
});

document.addEventListener('stage', event => {
  const form = document.querySelector('form.painter');
  if (!(form instanceof HTMLFormElement) || !(event instanceof CustomEvent)) return;
  offer(form, typeof event.detail === 'string' ? event.detail : undefined);
});

const shown = document.querySelector('form.painter');
if (shown instanceof HTMLFormElement) offer(shown);
