/**
 * Several models' mattes to one, at one size: pure arithmetic. What a plan calls its subject decides
 * what is cut out (several are averaged); an opinion is listened to only where the subject's edge
 * is, and only when both mean the same thing: elsewhere it has nothing to add, or the wrong thing.
 */
import type { MatteRole } from '../models/prepared-model.ts';
import type { Size } from './picture-pool.ts';
import { resample } from './resample.ts';

export interface RoleMatte extends Size {
  /** One byte a pixel, 255 opaque. */
  readonly alpha: Uint8Array;
  readonly role: MatteRole;
}

/**
 * Overlap of the two (intersection over union at half opacity) from which they mean the same thing.
 * 0.85 and 0.95 were measured and make no difference.
 */
const AGREEMENT_MIN = 0.9;
/** The subject is uncertain between these, of 255. */
const CERTAIN_BELOW = 5;
const CERTAIN_ABOVE = 250;
/** The band reaches this share of the picture's long side beyond what is uncertain. */
const BAND_REACH = 1 / 150;
/** What a matte at half opacity weighs, where one that is sure weighs 1.05. */
const UNSURE_WEIGHT = 0.05;

/**
 * One byte a pixel of `size`; the result is the caller's.
 * @param mattes at least one of them a subject.
 */
export function mergeMattes(mattes: readonly RoleMatte[], size: Size): Uint8Array {
  const planes = (role: MatteRole) =>
    mattes.filter(matte => matte.role === role).map(matte => bringTo(matte, size));
  const merged = average(planes('subject'));
  for (const opinion of planes('opinion')) hear(opinion, merged, size);
  return merged;
}

function bringTo(matte: RoleMatte, size: Size): Uint8Array {
  const { alpha, width, height } = matte;
  if (width === size.width && height === size.height) return Uint8Array.from(alpha);
  return resample({ data: alpha, width, height, channels: 1 }, size, 'triangle');
}

function average(planes: readonly Uint8Array[]): Uint8Array {
  const [first, ...others] = planes;
  if (first === undefined) throw new Error('a plan without a subject');
  if (others.length === 0) return first;
  for (let i = 0; i < first.length; i++) {
    let sum = first[i];
    for (const plane of others) sum += plane[i];
    first[i] = Math.round(sum / planes.length);
  }
  return first;
}

/**
 * In place: the surer of the two has the say, pixel by pixel; where both are sure of the
 * opposite the subject's stands, since half of each would be a hole that nobody meant.
 */
function hear(opinion: Uint8Array, merged: Uint8Array, size: Size): void {
  if (agreement(opinion, merged) < AGREEMENT_MIN) return;
  const band = bandAroundEdge(merged, size);
  for (let i = 0; i < merged.length; i++) {
    if (band[i] === 0) continue;
    const own = weight(merged[i]);
    const other = weight(opinion[i]) * hearing(merged[i], opinion[i]);
    merged[i] = Math.round((own * merged[i] + other * opinion[i]) / (own + other));
  }
}

/** 1, down to 0 where the subject is sure and the opinion is of the opposite. */
function hearing(own: number, other: number): number {
  const sureness = Math.abs((2 * own) / 255 - 1);
  return 1 - (sureness * Math.abs(own - other)) / 255;
}

function weight(value: number): number {
  const sureness = (2 * value) / 255 - 1;
  return sureness * sureness + UNSURE_WEIGHT;
}

/** 0 where there is nothing in either. */
function agreement(one: Uint8Array, other: Uint8Array): number {
  let both = 0;
  let either = 0;
  for (let i = 0; i < one.length; i++) {
    const here = one[i] >>> 7;
    const there = other[i] >>> 7;
    both += here & there;
    either += here | there;
  }
  return either === 0 ? 0 : both / either;
}

/** 1 where a pixel lies within reach of an uncertain one. */
function bandAroundEdge(alpha: Uint8Array, { width, height }: Size): Uint8Array {
  const reach = Math.max(1, Math.round(Math.max(width, height) * BAND_REACH));
  const uncertain = alpha.map(value => (value > CERTAIN_BELOW && value < CERTAIN_ABOVE ? 1 : 0));
  const across = new Uint8Array(alpha.length);
  const band = new Uint8Array(alpha.length);
  for (let y = 0; y < height; y++) widen(uncertain, across, y * width, 1, width, reach);
  for (let x = 0; x < width; x++) widen(across, band, x, width, height, reach);
  return band;
}

/** Widens the ones of a line by `reach` to both sides. */
function widen(
  from: Uint8Array,
  out: Uint8Array,
  start: number,
  step: number,
  length: number,
  reach: number,
): void {
  let last = Number.NEGATIVE_INFINITY;
  for (let i = 0, at = start; i < length; i++, at += step) {
    if (from[at] === 1) last = i;
    if (i - last <= reach) out[at] = 1;
  }
  last = Number.POSITIVE_INFINITY;
  for (let i = length - 1, at = start + i * step; i >= 0; i--, at -= step) {
    if (from[at] === 1) last = i;
    if (last - i <= reach) out[at] = 1;
  }
}
