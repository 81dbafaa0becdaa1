/**
 * Draws docs/images/demo.jpg, the picture the demo cuts out: a glazed teapot on a table,
 * ray-marched over signed distance fields (the technique of Hart 1996, the primitives' formulas are
 * textbook geometry). `draw-demo.ts duck` (or cactus, camera) draws a sample of the playground
 * instead. Run: `sh bin/node24 docs/images/draw-demo.ts`. Same picture every time.
 */
import path from 'node:path';
import sharp from 'sharp';

/** Samples a pixel and side: edges must be as soft as a lens makes them. */
const SUPERSAMPLING = 3;
const STEPS_MAX = 140;
const FAR = 14;

type V3 = readonly [number, number, number];
const add = (a: V3, b: V3): V3 => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
const sub = (a: V3, b: V3): V3 => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const scale = (a: V3, k: number): V3 => [a[0] * k, a[1] * k, a[2] * k];
const dot = (a: V3, b: V3): number => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const length = (a: V3): number => Math.sqrt(dot(a, a));
const normalise = (a: V3): V3 => scale(a, 1 / length(a));
const mix = (a: number, b: number, t: number): number => a + (b - a) * t;
const clamp01 = (x: number): number => Math.min(1, Math.max(0, x));
const mix3 = (a: V3, b: V3, t: number): V3 => [
  mix(a[0], b[0], t),
  mix(a[1], b[1], t),
  mix(a[2], b[2], t),
];

function smoothMin(a: number, b: number, k: number): number {
  const h = clamp01(0.5 + (0.5 * (b - a)) / k);
  return mix(b, a, h) - k * h * (1 - h);
}

function ellipsoid(p: V3, r: V3): number {
  const k0 = length([p[0] / r[0], p[1] / r[1], p[2] / r[2]]);
  const k1 = length([p[0] / (r[0] * r[0]), p[1] / (r[1] * r[1]), p[2] / (r[2] * r[2])]);
  return (k0 * (k0 - 1)) / k1;
}

/** A capsule whose radius goes from ra to rb. */
function taperedCapsule(p: V3, a: V3, b: V3, ra: number, rb: number): number {
  const pa = sub(p, a);
  const ba = sub(b, a);
  const t = clamp01(dot(pa, ba) / dot(ba, ba));
  return length(sub(pa, scale(ba, t))) - mix(ra, rb, t);
}

/** A box with rounded edges; `half` are its half sizes, the rounding included. */
function roundBox(p: V3, half: V3, radius: number): number {
  const q = half.map((size, axis) => Math.abs(p[axis] as number) - size + radius);
  const outside = Math.hypot(...q.map(one => Math.max(one, 0)));
  return outside + Math.min(Math.max(...q), 0) - radius;
}

/** A cylinder with rounded edges; `u` and `v` lie across its axis, `along` on it. */
function disc(u: number, v: number, along: number, radius: number, half: number): number {
  const edge = 0.03;
  const across = Math.hypot(u, v) - radius + edge;
  const beyond = Math.abs(along) - half + edge;
  return (
    Math.min(Math.max(across, beyond), 0) +
    Math.hypot(Math.max(across, 0), Math.max(beyond, 0)) -
    edge
  );
}

/** A ring in the x-y plane. */
function torus(p: V3, major: number, minor: number): number {
  const q = Math.hypot(p[0], p[1]) - major;
  return Math.hypot(q, p[2]) - minor;
}

function teapot(p: V3): number {
  let d = ellipsoid(sub(p, [0, 0.92, 0]), [1.05, 0.86, 1.05]);
  d = Math.max(d, 0.1 - p[1]);
  const foot = Math.max(Math.hypot(p[0], p[2]) - 0.62, Math.abs(p[1] - 0.1) - 0.1) - 0.02;
  d = smoothMin(d, foot, 0.1);
  d = smoothMin(d, ellipsoid(sub(p, [0, 1.72, 0]), [0.52, 0.16, 0.52]), 0.06);
  d = smoothMin(d, ellipsoid(sub(p, [0, 1.98, 0]), [0.16, 0.15, 0.16]), 0.07);
  const lower = taperedCapsule(p, [0.7, 0.72, 0], [1.34, 1.12, 0], 0.27, 0.17);
  const upper = taperedCapsule(p, [1.34, 1.12, 0], [1.66, 1.66, 0], 0.17, 0.11);
  d = smoothMin(d, smoothMin(lower, upper, 0.14), 0.12);
  const ring = torus(sub(p, [-1.12, 1.02, 0]), 0.5, 0.095);
  return smoothMin(d, ring, 0.07);
}

/** Two glazes meet in a wavy line, as a dipped pot's do. */
function teapotColour(p: V3): V3 {
  const line = 0.93 + 0.05 * Math.sin(Math.atan2(p[2], p[0]) * 5);
  return mix3([0.86, 0.8, 0.68], [0.06, 0.27, 0.33], clamp01((p[1] - line) / 0.03));
}

const BEAK: V3 = [1.02, 1.5, 0.22];

function beak(p: V3): number {
  const q = sub(p, BEAK);
  return Math.min(
    ellipsoid(sub(q, [0, 0.05, 0]), [0.34, 0.07, 0.2]),
    ellipsoid(sub(q, [-0.05, -0.06, 0]), [0.27, 0.06, 0.17]),
  );
}

function duck(p: V3): number {
  let d = ellipsoid(sub(p, [-0.15, 0.62, 0]), [1.15, 0.66, 0.86]);
  d = Math.max(d, 0.06 - p[1]);
  d = smoothMin(d, taperedCapsule(p, [-0.9, 0.75, 0], [-1.42, 1.16, 0], 0.36, 0.06), 0.22);
  d = smoothMin(d, length(sub(p, [0.52, 1.5, 0.08])) - 0.52, 0.22);
  const wing = ellipsoid(sub(p, [-0.3, 0.74, 0.74]), [0.58, 0.33, 0.2]);
  return Math.min(smoothMin(d, wing, 0.08), beak(p));
}

function duckColour(p: V3): V3 {
  if (beak(p) < 0.012) return [0.9, 0.3, 0.04];
  const eye = length(sub(p, [0.8, 1.66, 0.49]));
  if (eye < 0.035) return [0.9, 0.9, 0.9];
  return eye < 0.085 ? [0.02, 0.02, 0.025] : [0.96, 0.72, 0.06];
}

const POT_TOP = 0.86;

/** As a cactus has them: folds along an axis that is upright. */
function ribs(p: V3, x: number): number {
  return 0.035 * Math.cos(Math.atan2(p[2], p[0] - x) * 13);
}

function cactus(p: V3): number {
  const at = clamp01(p[1] / POT_TOP);
  const wall = Math.hypot(p[0], p[2]) - mix(0.44, 0.62, at);
  const pot = Math.max(wall * 0.96, Math.abs(p[1] - POT_TOP / 2) - POT_TOP / 2) - 0.02;
  const rim = disc(p[0], p[2], p[1] - POT_TOP, 0.72, 0.12);
  let d = taperedCapsule(p, [0, 0.9, 0], [0, 2.05, 0], 0.33, 0.27) - ribs(p, 0);
  const left = Math.min(
    taperedCapsule(p, [-0.2, 1.3, 0], [-0.72, 1.4, 0], 0.13, 0.15),
    taperedCapsule(p, [-0.72, 1.4, 0], [-0.76, 1.86, 0], 0.15, 0.13) - 0.4 * ribs(p, -0.74),
  );
  const right = Math.min(
    taperedCapsule(p, [0.2, 1.5, 0], [0.64, 1.62, 0], 0.12, 0.13),
    taperedCapsule(p, [0.64, 1.62, 0], [0.68, 2.1, 0], 0.13, 0.11) - 0.4 * ribs(p, 0.66),
  );
  d = smoothMin(d, smoothMin(left, right, 0.01), 0.08);
  const flower = ellipsoid(sub(p, [0, 2.4, 0]), [0.17, 0.12, 0.17]);
  return Math.min(d * 0.8, pot, rim, flower);
}

function cactusColour(p: V3): V3 {
  if (p[1] > 2.33 && Math.abs(p[0]) < 0.2) return [0.88, 0.16, 0.35];
  const across = Math.hypot(p[0], p[2]);
  if (p[1] < POT_TOP + 0.14 && across > 0.42) return [0.62, 0.26, 0.13];
  const fold = Math.cos(Math.atan2(p[2], p[0]) * 13);
  return mix3([0.1, 0.27, 0.1], [0.26, 0.5, 0.2], clamp01(0.5 + 0.5 * fold));
}

const LENS: V3 = [0.08, 0.72, 0];

function camera(p: V3): number {
  let d = roundBox(sub(p, [0, 0.72, 0]), [1.32, 0.7, 0.36], 0.14);
  d = smoothMin(d, roundBox(sub(p, [LENS[0], 1.46, 0]), [0.44, 0.2, 0.3], 0.08), 0.06);
  const [x, y, z] = sub(p, LENS);
  d = Math.min(d, disc(x, y, z - 0.5, 0.56, 0.24), disc(x, y, z - 0.82, 0.49, 0.14));
  d = Math.max(d, -disc(x, y, z - 0.98, 0.38, 0.1));
  d = Math.min(d, disc(p[0] + 0.86, p[2], p[1] - 1.48, 0.2, 0.1));
  return Math.min(d, disc(p[0] - 0.92, p[2], p[1] - 1.47, 0.26, 0.07));
}

function cameraColour(p: V3): V3 {
  const [x, y, z] = sub(p, LENS);
  const across = Math.hypot(x, y);
  if (z > 0.38 && across < 0.57) {
    if (across < 0.375) return across < 0.3 ? [0.03, 0.035, 0.09] : [0.05, 0.05, 0.06];
    return Math.abs(z - 0.7) < 0.03 ? [0.75, 0.2, 0.1] : [0.07, 0.07, 0.08];
  }
  const isGlass = Math.abs(x) < 0.2 && Math.abs(p[1] - 1.5) < 0.08 && z > 0.27;
  if (isGlass) return [0.05, 0.08, 0.11];
  const grain = 0.015 * Math.sin(p[0] * 70) * Math.sin(p[1] * 70);
  return p[1] < 1.08 && p[1] > 0.26 ? [0.2 + grain, 0.1 + grain, 0.06] : [0.66, 0.67, 0.69];
}

interface Scene {
  /** Below the root of the repository. */
  readonly file: string;
  readonly width: number;
  readonly height: number;
  readonly subject: (p: V3) => number;
  readonly colour: (p: V3) => V3;
  /** How much of what is around it a head-on surface shows. */
  readonly gloss: number;
  readonly wall: readonly [low: V3, high: V3];
  readonly boards: readonly [dark: V3, light: V3];
}

const SAMPLE = { width: 960, height: 720 } as const;
const SCENES: Readonly<Record<string, Scene>> = {
  demo: {
    file: 'docs/images/demo.jpg',
    width: 1200,
    height: 900,
    subject: teapot,
    colour: teapotColour,
    gloss: 0.04,
    wall: [
      [0.34, 0.29, 0.25],
      [0.52, 0.55, 0.53],
    ],
    boards: [
      [0.4, 0.25, 0.14],
      [0.54, 0.36, 0.21],
    ],
  },
  duck: {
    ...SAMPLE,
    file: 'control-plane/portal/assets/sample-duck.jpg',
    subject: duck,
    colour: duckColour,
    gloss: 0.05,
    wall: [
      [0.3, 0.42, 0.5],
      [0.42, 0.58, 0.66],
    ],
    boards: [
      [0.5, 0.6, 0.62],
      [0.62, 0.7, 0.72],
    ],
  },
  cactus: {
    ...SAMPLE,
    file: 'control-plane/portal/assets/sample-cactus.jpg',
    subject: cactus,
    colour: cactusColour,
    gloss: 0.02,
    wall: [
      [0.52, 0.3, 0.24],
      [0.68, 0.46, 0.36],
    ],
    boards: [
      [0.5, 0.42, 0.34],
      [0.64, 0.56, 0.46],
    ],
  },
  camera: {
    ...SAMPLE,
    file: 'control-plane/portal/assets/sample-camera.jpg',
    subject: camera,
    colour: cameraColour,
    gloss: 0.07,
    wall: [
      [0.2, 0.26, 0.22],
      [0.34, 0.42, 0.36],
    ],
    boards: [
      [0.16, 0.1, 0.07],
      [0.27, 0.18, 0.12],
    ],
  },
};

const name = process.argv[2] ?? 'demo';
const scene = SCENES[name];
if (scene === undefined) throw new Error(`usage: draw-demo.ts ${Object.keys(SCENES).join('|')}`);
const { width: WIDTH, height: HEIGHT, subject } = scene;

const LIGHT = normalise([-0.55, 0.85, 0.5]);

function march(origin: V3, direction: V3): number | undefined {
  let t = 2;
  for (let step = 0; step < STEPS_MAX && t < FAR; step++) {
    const d = subject(add(origin, scale(direction, t)));
    if (d < 0.0006 * t) return t;
    t += d * 0.85;
  }
  return undefined;
}

function normalAt(p: V3): V3 {
  const e = 0.0012;
  return normalise([
    subject(add(p, [e, 0, 0])) - subject(sub(p, [e, 0, 0])),
    subject(add(p, [0, e, 0])) - subject(sub(p, [0, e, 0])),
    subject(add(p, [0, 0, e])) - subject(sub(p, [0, 0, e])),
  ]);
}

function shadow(p: V3): number {
  let lit = 1;
  let t = 0.05;
  for (let step = 0; step < 48 && t < 6; step++) {
    const d = subject(add(p, scale(LIGHT, t)));
    if (d < 0.001) return 0;
    lit = Math.min(lit, (7 * d) / t);
    t += Math.max(0.02, d * 0.8);
  }
  return clamp01(lit);
}

function occlusion(p: V3, n: V3): number {
  let sum = 0;
  for (let i = 1; i <= 4; i++) {
    const h = 0.09 * i;
    sum += (h - subject(add(p, scale(n, h)))) / 2 ** i;
  }
  return clamp01(1 - 1.6 * sum);
}

/** The room out of focus: a wall with a window's glow and a few blurred lights. */
function room(direction: V3): V3 {
  const up = clamp01(direction[1] * 1.1 + 0.42);
  let colour = mix3(...scene.wall, up);
  const glow = Math.exp(-6 * ((direction[0] + 0.42) ** 2 + (direction[1] - 0.1) ** 2));
  colour = add(colour, scale([0.34, 0.3, 0.2], glow));
  const lights: [number, number, number, V3][] = [
    [0.3, 0.1, 0.05, [0.3, 0.22, 0.1]],
    [0.42, 0.0, 0.035, [0.12, 0.2, 0.16]],
    [0.16, 0.2, 0.03, [0.22, 0.2, 0.12]],
    [-0.2, 0.17, 0.045, [0.2, 0.18, 0.12]],
  ];
  for (const [x, y, r, tint] of lights) {
    const d = Math.hypot(direction[0] - x, direction[1] - y);
    colour = add(colour, scale(tint, clamp01((r - d) / (0.35 * r))));
  }
  return colour;
}

/** Boards along x, with grain from a few sine waves. */
function table(p: V3): V3 {
  const board = Math.floor(p[2] / 0.8);
  const grain =
    Math.sin(p[0] * 2.1 + board * 12.9 + 0.9 * Math.sin(p[2] * 9 + board)) * 0.5 +
    Math.sin(p[2] * 61 + 1.4 * Math.sin(p[0] * 1.7 + board * 3)) * 0.25;
  const seam = Math.abs(p[2] / 0.8 - Math.round(p[2] / 0.8)) < 0.012 ? 0.55 : 1;
  return scale(mix3(...scene.boards, 0.5 + 0.4 * grain), seam);
}

function shaded(p: V3, direction: V3): V3 {
  const n = normalAt(p);
  const albedo = scene.colour(p);
  const lit = clamp01(dot(n, LIGHT)) * shadow(add(p, scale(n, 0.01)));
  const ambient = (0.28 + 0.2 * (n[1] * 0.5 + 0.5)) * occlusion(p, n);
  let colour = scale(albedo, 0.95 * lit + ambient);
  const reflected = sub(direction, scale(n, 2 * dot(direction, n)));
  const fresnel = scene.gloss + 0.5 * (1 - clamp01(-dot(direction, n))) ** 4;
  colour = mix3(colour, reflected[1] < 0 ? [0.3, 0.2, 0.13] : room(reflected), fresnel);
  const highlight = clamp01(dot(reflected, LIGHT)) ** 90;
  return add(colour, scale([1, 0.97, 0.9], 0.8 * highlight));
}

const CAMERA: V3 = [0.25, 1.75, 6.2];
const FORWARD = normalise(sub([0.18, 0.98, 0], CAMERA));
const RIGHT = normalise([-FORWARD[2], 0, FORWARD[0]]);
const UP: V3 = [
  RIGHT[1] * FORWARD[2] - RIGHT[2] * FORWARD[1],
  RIGHT[2] * FORWARD[0] - RIGHT[0] * FORWARD[2],
  RIGHT[0] * FORWARD[1] - RIGHT[1] * FORWARD[0],
];

function colourAt(x: number, y: number): V3 {
  const u = ((x - WIDTH / 2) / HEIGHT) * 0.72;
  const v = ((HEIGHT / 2 - y) / HEIGHT) * 0.72;
  const direction = normalise(add(FORWARD, add(scale(RIGHT, u), scale(UP, v))));
  const hit = march(CAMERA, direction);
  const floorAt = direction[1] < 0 ? -CAMERA[1] / direction[1] : Number.POSITIVE_INFINITY;
  if (hit !== undefined && hit < floorAt + 0.05) {
    return shaded(add(CAMERA, scale(direction, hit)), direction);
  }
  if (floorAt < 11) {
    const p = add(CAMERA, scale(direction, floorAt));
    const above: V3 = [p[0], 0.002, p[2]];
    const lit = 0.32 + 0.68 * shadow(above) * LIGHT[1];
    const near = clamp01(subject(above) / 0.6) ** 0.5;
    const wood = scale(table(p), lit * mix(0.5, 1, near));
    return mix3(wood, room(direction), clamp01((floorAt - 7) / 4) ** 1.5);
  }
  return room(direction);
}

/** A small deterministic noise, as a sensor has. */
function noise(index: number): number {
  const x = Math.sin(index * 12.9898) * 43758.5453;
  return x - Math.floor(x) - 0.5;
}

const pixels = Buffer.alloc(WIDTH * HEIGHT * 3);
for (let y = 0; y < HEIGHT; y++) {
  for (let x = 0; x < WIDTH; x++) {
    let sum: V3 = [0, 0, 0];
    for (let s = 0; s < SUPERSAMPLING ** 2; s++) {
      const dx = ((s % SUPERSAMPLING) + 0.5) / SUPERSAMPLING;
      const dy = (Math.floor(s / SUPERSAMPLING) + 0.5) / SUPERSAMPLING;
      const c = colourAt(x + dx, y + dy);
      sum = add(sum, [clamp01(c[0]), clamp01(c[1]), clamp01(c[2])]);
    }
    for (let channel = 0; channel < 3; channel++) {
      const index = (y * WIDTH + x) * 3 + channel;
      const linear = sum[channel] / SUPERSAMPLING ** 2;
      const value = 255 * clamp01(linear) ** (1 / 1.6) + 4 * noise(index);
      pixels[index] = Math.round(Math.min(255, Math.max(0, value)));
    }
  }
}
await sharp(pixels, { raw: { width: WIDTH, height: HEIGHT, channels: 3 } })
  .jpeg({ quality: 88, mozjpeg: true })
  .toFile(path.join(import.meta.dirname, '../..', scene.file));
