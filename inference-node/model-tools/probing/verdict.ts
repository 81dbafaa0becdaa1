/** Judges outputs by their values. Pure; what they leave open stays undefined. */
import { matteShape } from '@matting/serving/engine/child/form-ends.ts';
import type { OutputValues } from '@matting/serving/engine/probe/probe-process.ts';
import type { Activation } from '@matting/serving/models/prepared-model.ts';
import { hasMatteShape, type PictureInput } from './ends.ts';

type ValueRange = readonly [least: number, most: number];

/** Over what a matte of 0 to 1 reaches where it was enlarged by a cubic filter. */
const OVERSHOOT = 0.1;
/** A sigmoid's answers to a matte, and half a level of 255 on both sides. */
const SIGMOID_OF_MATTE: ValueRange = [0.498, 0.733];
/** Logits end below, mattes of 0 to 255 above. */
const LOGITS_MAX = 32;
const LEVELS: ValueRange = [-3, 260];
/** Relative: less is rounding. */
const CONSTANT_WITHIN = 1e-5;

export function rangeOf(outputs: readonly OutputValues[]): ValueRange {
  const least = Math.min(...outputs.map(({ range }) => range[0]));
  return [least, Math.max(...outputs.map(({ range }) => range[1]))];
}

export function rangeText(range: ValueRange): string {
  return range.map(value => value.toPrecision(3)).join(' to ');
}

export function isConstant([least, most]: ValueRange): boolean {
  return most - least <= CONSTANT_WITHIN * Math.max(1, Math.abs(most));
}

/** @param range over pictures with a subject and a background @param classes 1 or 2 */
export function activationOf(range: ValueRange, classes: number): Activation | undefined {
  const [least, most] = range;
  if (isConstant(range)) return undefined;
  const isProbable = isWithin(range, [-OVERSHOOT, 1 + OVERSHOOT]);
  if (classes === 2) return isProbable ? 'none' : 'softmax';
  if (isWithin(range, SIGMOID_OF_MATTE)) return most - least > 0.1 ? 'logit' : undefined;
  // A matte of pictures with a subject goes from nearly 0 to nearly 1.
  if (isProbable) return most - least > 0.5 ? 'none' : undefined;
  if (isWithin(range, [-1 - OVERSHOOT, 1 + OVERSHOOT])) {
    return least < OVERSHOOT - 1 ? 'signed' : undefined;
  }
  if (most > LOGITS_MAX && isWithin(range, LEVELS)) return 'scale255';
  return least < -OVERSHOOT ? 'sigmoid' : undefined;
}

function isWithin([least, most]: ValueRange, [from, to]: ValueRange): boolean {
  return least >= from && most <= to;
}

/** Two: the first is the background's. */
export function classesOf({ type, dims }: OutputValues, { layout, input }: PictureInput): number {
  const images = layout.startsWith('n') ? input.shape?.[0] : 1;
  const form = { layout } as Parameters<typeof matteShape>[1];
  const value = { type, dims, data: undefined };
  return matteShape(value, form, typeof images === 'number' ? images : 1).classes;
}

/** Mean alphas of a check picture, 0 to 1. */
interface SubjectAlphas {
  readonly subject: number;
  readonly background: number;
}

/** Less may be a network that does not know what is drawn: of one picture, and in the mean. */
const APART_EACH = 0.15;
const APART = 0.3;

/** True: every picture's background is opaque, and its subject is not. False: none is. */
export function isInverted(pictures: readonly SubjectAlphas[]): boolean | undefined {
  const apart = pictures.map(({ subject, background }) => subject - background);
  const mean = apart.reduce((sum, value) => sum + value, 0) / apart.length;
  if (mean < -APART && apart.every(value => value < -APART_EACH)) return true;
  return apart.some(value => value > APART) && !apart.some(value => value < -APART)
    ? false
    : undefined;
}

const MATTE_NAME = /alpha|matte|mask|pha\b/i;

/** The largest that varies; of those of one size one that is named so, else the first. */
export function chooseOutput(outputs: readonly OutputValues[]): OutputValues | undefined {
  const able = outputs.filter(({ dims, count }) => count > 0 && hasMatteShape(dims));
  const varying = able.filter(({ range, notFinite }) => !notFinite && !isConstant(range));
  const rank = ({ name, count }: OutputValues) => 2 * count + Number(MATTE_NAME.test(name));
  return (varying.length > 0 ? varying : able).toSorted((a, b) => rank(b) - rank(a))[0];
}
