/**
 * Flags, the catalogue and files of settings beside a model's file state facts about it.
 * The first who states a fact decides it. Pure.
 */
import type { Normalisation } from '@matting/serving/models/prepared-model.ts';
import type { ProbeWishes } from '../probing/probe.ts';
import type { CatalogueModel } from './catalogue.ts';

export interface Facts extends Omit<ProbeWishes, 'picture'> {
  /** Sides of an open size have to be multiples of this. */
  readonly multipleOf?: number;
}

export interface Stated {
  readonly by: string;
  readonly facts: Facts;
}

const FACTS = [
  'normalisation',
  'size',
  'multipleOf',
  'fit',
  'activation',
  'output',
  'colourOrder',
] as const satisfies readonly (keyof Facts)[];

/** @returns the facts, and a line for each who decided some */
export function decide(stated: readonly Stated[]): {
  readonly facts: Facts;
  readonly lines: readonly string[];
} {
  const entries: [string, unknown][] = [];
  const by = new Map<string, string[]>();
  for (const fact of FACTS) {
    const first = stated.find(({ facts }) => facts[fact] !== undefined);
    if (first === undefined) continue;
    entries.push([fact, first.facts[fact]]);
    by.set(first.by, [...(by.get(first.by) ?? []), fact]);
  }
  const lines = [...by].map(([who, facts]) => `${who} decides ${facts.join(', ')}`);
  return { facts: Object.fromEntries(entries) as Facts, lines };
}

export function factsOfCatalogue(model: CatalogueModel): Facts {
  const { size, outputName, normalisation, fit, activation, colourOrder } = model;
  return {
    ...(normalisation !== undefined && { normalisation }),
    ...(size !== undefined && { size: { width: size.width, height: size.height } }),
    ...(size?.multipleOf !== undefined && { multipleOf: size.multipleOf }),
    ...(fit !== undefined && { fit }),
    ...(activation !== undefined && { activation }),
    ...(outputName !== undefined && { output: outputName }),
    ...(colourOrder !== undefined && { colourOrder }),
  };
}

const BYTE_MAX = 255;

/** Reads withoutBG's settings beside its file, `<file>.onnx.json`; undefined: another form. */
export function readGraphSettings(json: unknown): Facts | undefined {
  const { canvas_size: side, input_name: input, output_name: output, pipeline } = fieldsOf(json);
  // One of several graphs: how they work together is in none of them.
  if (!isSide(side) || typeof input !== 'string' || pipeline !== undefined) return undefined;
  return {
    normalisation: { mean: [0, 0, 0], std: [BYTE_MAX, BYTE_MAX, BYTE_MAX] },
    size: { width: side, height: side },
    fit: 'top-left',
    ...(typeof output === 'string' && { output }),
  };
}

/** Reads `preprocessor_config.json` as Hugging Face's image processors do. */
export function readPreprocessor(json: unknown): Facts | undefined {
  const config = fieldsOf(json);
  const { do_rescale: rescales = true, do_normalize: normalises = true } = config;
  const { rescale_factor: factor = 1 / BYTE_MAX, image_mean: mean, image_std: std } = config;
  // The scale comes before mean and std: without it they are of values to 255.
  const scale = rescales === false ? 1 : factor;
  const size = sizeOf(config);
  if (typeof scale !== 'number' || !(scale > 0)) return undefined;
  const normalisation = normalises === false ? plain(scale) : normalised(mean, std, scale);
  if (normalisation === undefined && size === undefined) return undefined;
  return { ...(normalisation !== undefined && { normalisation }), ...size };
}

function plain(scale: number): Normalisation {
  const std = round(1 / scale);
  return { mean: [0, 0, 0], std: [std, std, std] };
}

function normalised(mean: unknown, std: unknown, scale: number): Normalisation | undefined {
  const [means, stds] = [triple(mean), triple(std)];
  if (means === undefined || stds === undefined || stds.some(value => value <= 0)) return undefined;
  const scaled = ([red, green, blue]: Triple): Triple => [
    round(red / scale),
    round(green / scale),
    round(blue / scale),
  ];
  return { mean: scaled(means), std: scaled(stds) };
}

/** 1 / 255 is written with some digits: 123.675 is meant, not 123.67500000000001. */
function round(value: number): number {
  return Number(value.toPrecision(9));
}

/** A number, or a longest side without padding, stands for several ways to fit: it is left open. */
function sizeOf({ size, do_pad: pads, do_resize: resizes }: Record<string, unknown>) {
  if (resizes === false) return undefined;
  const { width, height, shortest_edge: short, longest_edge: long } = fieldsOf(size);
  if (isSide(width) && isSide(height)) {
    return { size: { width, height }, ...(pads !== true && { fit: 'stretch' as const }) };
  }
  if (isSide(short) && long === undefined) {
    return { size: { width: short, height: short }, fit: 'short-side' as const };
  }
  if (isSide(long) && short === undefined && pads === true) {
    return { size: { width: long, height: long }, fit: 'top-left' as const };
  }
  return undefined;
}

type Triple = readonly [number, number, number];

function triple(value: unknown): Triple | undefined {
  const values = typeof value === 'number' ? [value, value, value] : value;
  if (!Array.isArray(values) || values.length !== 3) return undefined;
  const [red, green, blue] = values as number[];
  if (![red, green, blue].every(Number.isFinite)) return undefined;
  return [red!, green!, blue!];
}

function isSide(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) > 0;
}

function fieldsOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}
