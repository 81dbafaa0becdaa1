/**
 * Draws docs/images/demo.jpg, the picture the demo cuts out: a glazed teapot on a table,
 * ray-marched over signed distance fields (the technique of Hart 1996, the primitives' formulas are
 * textbook geometry). Run: `sh bin/node24 docs/images/draw-demo.ts`. Same picture every time.
 */
import path from 'node:path';
import sharp from 'sharp';

const WIDTH = 1200;
const HEIGHT = 900;
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

const LIGHT = normalise([-0.55, 0.85, 0.5]);

function march(origin: V3, direction: V3): number | undefined {
  let t = 2;
  for (let step = 0; step < STEPS_MAX && t < FAR; step++) {
    const d = teapot(add(origin, scale(direction, t)));
    if (d < 0.0006 * t) return t;
    t += d * 0.85;
  }
  return undefined;
}

function normalAt(p: V3): V3 {
  const e = 0.0012;
  return normalise([
    teapot(add(p, [e, 0, 0])) - teapot(sub(p, [e, 0, 0])),
    teapot(add(p, [0, e, 0])) - teapot(sub(p, [0, e, 0])),
    teapot(add(p, [0, 0, e])) - teapot(sub(p, [0, 0, e])),
  ]);
}

function shadow(p: V3): number {
  let lit = 1;
  let t = 0.05;
  for (let step = 0; step < 48 && t < 6; step++) {
    const d = teapot(add(p, scale(LIGHT, t)));
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
    sum += (h - teapot(add(p, scale(n, h)))) / 2 ** i;
  }
  return clamp01(1 - 1.6 * sum);
}

/** The room out of focus: a wall with a window's glow and a few blurred lights. */
function room(direction: V3): V3 {
  const up = clamp01(direction[1] * 1.1 + 0.42);
  let colour = mix3([0.34, 0.29, 0.25], [0.52, 0.55, 0.53], up);
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
  return scale(mix3([0.4, 0.25, 0.14], [0.54, 0.36, 0.21], 0.5 + 0.4 * grain), seam);
}

function glaze(p: V3, direction: V3): V3 {
  const n = normalAt(p);
  // Two glazes meet in a wavy line, as a dipped pot's do.
  const line = 0.93 + 0.05 * Math.sin(Math.atan2(p[2], p[0]) * 5);
  const dipped = clamp01((p[1] - line) / 0.03);
  const albedo = mix3([0.86, 0.8, 0.68], [0.06, 0.27, 0.33], dipped);
  const lit = clamp01(dot(n, LIGHT)) * shadow(add(p, scale(n, 0.01)));
  const ambient = (0.28 + 0.2 * (n[1] * 0.5 + 0.5)) * occlusion(p, n);
  let colour = scale(albedo, 0.95 * lit + ambient);
  const reflected = sub(direction, scale(n, 2 * dot(direction, n)));
  const fresnel = 0.04 + 0.5 * (1 - clamp01(-dot(direction, n))) ** 4;
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
    return glaze(add(CAMERA, scale(direction, hit)), direction);
  }
  if (floorAt < 11) {
    const p = add(CAMERA, scale(direction, floorAt));
    const above: V3 = [p[0], 0.002, p[2]];
    const lit = 0.32 + 0.68 * shadow(above) * LIGHT[1];
    const near = clamp01(teapot(above) / 0.6) ** 0.5;
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
  .toFile(path.join(import.meta.dirname, 'demo.jpg'));
