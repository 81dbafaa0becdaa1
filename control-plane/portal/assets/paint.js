/**
 * Strokes and boxes over a picture, by which people say what a cut-out keeps and what it loses. The
 * shapes are the API's own: pixels of the upright input. The form carries them as the fields `keep`
 * and `erase`; page/painter.ts made it. The same draws the one box of the playground's field
 * `subject_box`, in %, over the picture that was chosen. A pointer paints, and so do the keys of the
 * canvas.
 */
// @ts-check

/** The API takes so many in one request. */
const SHAPES_MAX = 64;
const POINTS_MAX = 4096;
/** Least distance of a stroke's points, as a part of the brush's radius. */
const STEP_SHARE = 0.4;
/** Per notch of the size, as a part of the picture's longer side. */
const NOTCH_SHARE = 0.005;
/** Cursor of the subject's box, as a part of the picture's longer side. */
const CURSOR_SHARE = 0.02;
const COLOURS = {
  keep: 'rgb(0 170 90 / 55%)',
  erase: 'rgb(229 50 60 / 55%)',
  subject: 'rgb(0 170 90 / 25%)',
};

/** @typedef {[x: number, y: number]} Point */
/** @typedef {{ line: Point[], radius: number } | { box: [number, number, number, number] }} Shape */
/** @typedef {{ kind: keyof typeof COLOURS, shape: Shape }} Mark */
/**
 * Marks and their painter. `begin` gives the kind of the next mark; undefined: there is no room.
 * @typedef {object} Use
 * @property {Mark[]} marks
 * @property {() => number} radius
 * @property {() => { kind: Mark['kind'], isBox: boolean } | undefined} begin
 * @property {(all: Mark[]) => void} changed
 */

/**
 * The pictures are loaded once people open the form: a page of a job has them otherwise nowhere.
 * @param {HTMLFormElement} form
 * @param {string} [originalHref] absent: where the form says
 */
function offer(form, originalHref = form.dataset.original) {
  const fold = form.querySelector('details');
  form.hidden = false;
  fold?.addEventListener('toggle', () => void show(form, originalHref), { once: true });
}

/**
 * Hides the form if the browser can show no picture to paint on.
 * @param {HTMLFormElement} form
 * @param {string | undefined} originalHref
 */
async function show(form, originalHref) {
  const cutOut = document.querySelector('.stage .canvas img.picture');
  const original = originalHref === undefined ? undefined : await loaded(originalHref);
  const width = Number(form.dataset.width);
  const height = Number(form.dataset.height);
  const shown = cutOut instanceof HTMLImageElement ? await loaded(cutOut.src) : undefined;
  const over = shown && isSameShape(shown, width, height) ? shown : undefined;
  const ground = original ?? over;
  const canvas = form.querySelector('canvas');
  const figure = form.querySelector('.canvas');
  form.hidden = ground === undefined;
  if (ground === undefined || canvas === null || figure === null) return;
  ground.className = original && over ? 'picture faint' : 'picture';
  ground.alt = '';
  figure.prepend(ground);
  if (original && over) {
    over.className = 'over';
    over.alt = '';
    ground.after(over);
  }
  correctBy(form, canvas, { width, height });
}

/** Undefined: this browser does not show it. @param {string} href */
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

/** @param {HTMLImageElement} image @param {number} width @param {number} height */
function isSameShape({ naturalWidth, naturalHeight }, width, height) {
  const [wide, high] = [naturalWidth * height, naturalHeight * width];
  return Math.abs(wide - high) <= 0.01 * Math.max(wide, high);
}

/**
 * @param {HTMLFormElement} form
 * @param {HTMLCanvasElement} canvas
 * @param {{ width: number, height: number }} picture
 */
function correctBy(form, canvas, picture) {
  /** @type {Mark[]} */
  const marks = [];
  const field = (/** @type {string} */ name) => {
    const found = form.elements.namedItem(name);
    if (found instanceof HTMLInputElement || found instanceof RadioNodeList) return found;
    throw new Error(`no field ${name}`);
  };
  const { draw, undo, end } = paintOn(canvas, picture, {
    marks,
    radius: () => {
      const longer = Math.max(picture.width, picture.height);
      return Math.max(1, Math.round(Number(field('size').value) * NOTCH_SHARE * longer));
    },
    begin: () => {
      if (isFull(marks)) return undefined;
      const kind = field('kind').value === 'erase' ? 'erase' : 'keep';
      return { kind, isBox: field('tool').value === 'box' };
    },
    changed: all => {
      for (const kind of /** @type {const} */ (['keep', 'erase'])) {
        const shapes = all.filter(mark => mark.kind === kind).map(({ shape }) => shape);
        field(kind).value = shapes.length === 0 ? '' : JSON.stringify(shapes);
      }
      showCall(form);
      showState(form, all);
    },
  });
  form.querySelector('[data-undo]')?.addEventListener('click', undo);
  // The API has no such fields.
  form.addEventListener('formdata', ({ formData }) => {
    for (const name of ['kind', 'tool', 'size']) formData.delete(name);
  });
  form.addEventListener('submit', end, { capture: true });
  form.addEventListener('input', draw);
}

/**
 * The subject's box over the picture that was chosen. The field is what counts: it is drawn as it
 * was written, too.
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
  const { draw } = paintOn(
    canvas,
    { width, height },
    {
      marks,
      radius: () => CURSOR_SHARE * Math.max(width, height),
      begin: () => {
        marks.length = 0;
        return { kind: 'subject', isBox: true };
      },
      changed: ([mark]) => {
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
      // Another picture was chosen since: its own canvas listens.
      if (!canvas.isConnected) return replaced.abort();
      read();
      draw();
    },
    { signal: replaced.signal },
  );
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{ width: number, height: number }} picture
 * @param {Use} use
 */
function paintOn(canvas, picture, use) {
  const { marks, radius } = use;
  /** @type {Mark | undefined} */
  let open;
  /** The keys move it. @type {Point} */
  let cursor = [picture.width / 2, picture.height / 2];
  const clip = (/** @type {Point} */ [x, y]) =>
    /** @type {Point} */ ([
      Math.min(picture.width, Math.max(0, Math.round(x))),
      Math.min(picture.height, Math.max(0, Math.round(y))),
    ]);
  const draw = () => {
    const box = canvas.getBoundingClientRect();
    canvas.width = Math.round(box.width * devicePixelRatio);
    canvas.height = Math.round(box.height * devicePixelRatio);
    const context = canvas.getContext('2d');
    if (context === null || canvas.width === 0) return;
    context.scale(canvas.width / picture.width, canvas.height / picture.height);
    for (const mark of open ? [...marks, open] : marks) drawMark(context, mark);
    drawBrush(context, cursor, radius(), picture.width / box.width);
  };
  const change = () => {
    use.changed(open ? [...marks, open] : marks);
    draw();
  };
  const begin = (/** @type {Point} */ at) => {
    const next = use.begin();
    if (next === undefined) return;
    cursor = clip(at);
    const [x, y] = cursor;
    const shape = next.isBox
      ? { box: /** @type {[number, number, number, number]} */ ([x, y, x, y]) }
      : { line: [cursor], radius: radius() };
    open = { kind: next.kind, shape };
    draw();
  };
  const move = (/** @type {Point} */ at) => {
    cursor = clip(at);
    if (open !== undefined) extend(open.shape, cursor, POINTS_MAX - pointsOf(marks));
    draw();
  };
  const end = () => {
    if (open === undefined) return;
    if (!isEmpty(open.shape)) marks.push(upright(open));
    open = undefined;
    change();
  };
  const undo = () => {
    if (open === undefined) marks.pop();
    open = undefined;
    change();
  };
  followPointer(canvas, picture, { begin, move, end });
  followKeys(canvas, {
    toggle: () => (open === undefined ? begin(cursor) : end()),
    step: (x, y) => move([cursor[0] + x * radius(), cursor[1] + y * radius()]),
    undo,
  });
  new ResizeObserver(draw).observe(canvas);
  change();
  return { draw, undo, end };
}

/** The API takes no more. @param {readonly Mark[]} marks */
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

/** A box without an area marks nothing; a line of one point is a dot. @param {Shape} shape */
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
  // A path of one point draws nothing; one that ends where it begins is a dot.
  if (rest.length === 0) context.lineTo(x, y);
  for (const [nextX, nextY] of rest) context.lineTo(nextX, nextY);
  context.stroke();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Point} at
 * @param {number} radius
 * @param {number} pixel the side of one pixel of the page, in pixels of the picture
 */
function drawBrush(context, [x, y], radius, pixel) {
  for (const [colour, width] of /** @type {const} */ ([
    ['#000', 3],
    ['#fff', 1.5],
  ])) {
    context.strokeStyle = colour;
    context.lineWidth = width * pixel;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.stroke();
  }
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{ width: number, height: number }} picture
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
    // Between two frames a quick hand passes several points.
    const passed = event.getCoalescedEvents();
    for (const each of passed.length === 0 ? [event] : passed) brush.move(at(each));
  });
  for (const name of /** @type {const} */ (['pointerup', 'pointercancel'])) {
    canvas.addEventListener(name, () => brush.end());
  }
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{ toggle(): void, step(x: number, y: number): void, undo(): void }} brush
 */
function followKeys(canvas, brush) {
  /** @type {Readonly<Record<string, Point>>} */
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.addEventListener('keydown', event => {
    const step = steps[event.key];
    const isUndo =
      event.key === 'Backspace' || (event.key === 'z' && (event.ctrlKey || event.metaKey));
    if (step) brush.step(...step);
    else if (event.key === ' ') brush.toggle();
    else if (isUndo) brush.undo();
    else return;
    event.preventDefault();
  });
}

/** Shows the call with the shapes as they stand. @param {HTMLFormElement} form */
function showCall(form) {
  const place = form.querySelector('[data-template]');
  const code = place?.querySelector('code');
  if (!(place instanceof HTMLElement) || !code) return;
  const fields = new FormData(form);
  const text = (place.dataset.template ?? '').replace(
    /\{(keep|erase)\}/g,
    (_, /** @type {string} */ name) => String(fields.get(name) || '[]'),
  );
  code.textContent = text;
  const copy = place.querySelector('button[data-copy]');
  if (copy instanceof HTMLButtonElement) copy.dataset.copy = text;
}

/** @param {HTMLFormElement} form @param {Mark[]} marks */
function showState(form, marks) {
  const count = marks.length;
  const apply = form.querySelector('button[type="submit"]');
  if (apply instanceof HTMLButtonElement) apply.disabled = count === 0;
  const undo = form.querySelector('[data-undo]');
  if (undo instanceof HTMLButtonElement) undo.disabled = count === 0;
  const status = form.querySelector('[role="status"]');
  const words = form.dataset[isFull(marks) ? 'full' : count === 1 ? 'one' : 'other'] ?? '';
  if (status) status.textContent = words.replace('{count}', String(count));
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
