import { invalidParameter } from './errors.ts';
import { parseLength, parseNumber } from './finishing/measures.ts';
import type { Length, Region } from './finishing.ts';
import { type HintShape, type Hints, requireShapes } from './hints.ts';

/** `keep` and `erase` are JSON lists, also as a text. */
export const HINT_FIELDS = ['subject_box', 'keep', 'erase'] as const;
type HintField = (typeof HINT_FIELDS)[number];

/** 4,096 points in whole pixels take 50 KB. */
export const HINT_LIST_BYTES_MAX = 128 * 1024;

export function isHintList(field: string | undefined): field is 'keep' | 'erase' {
  return field === 'keep' || field === 'erase';
}

/**
 * undefined: no hints.
 * @param fileGiven the request has a hints file
 * @throws ContractError INVALID_PARAMETER
 */
export function parseHints(
  texts: ReadonlyMap<HintField, string>,
  fileGiven: boolean,
): Hints | undefined {
  const box = texts.get('subject_box');
  const hints: Hints = {
    ...(box === undefined ? {} : { subjectBox: boxOf(box) }),
    ...listOf('keep', texts.get('keep')),
    ...listOf('erase', texts.get('erase')),
    ...(fileGiven ? { picture: true as const } : {}),
  };
  if (fileGiven && (hints.keep ?? hints.erase) !== undefined) {
    throw invalidParameter('hints_file', 'cannot be combined with keep or erase. Send one of them');
  }
  requireShapes(hints);
  return Object.keys(hints).length > 0 ? hints : undefined;
}

const SPACES = / +/;

function boxOf(text: string): Region {
  const lengths = text.split(SPACES).map(part => pixelsOf(part) ?? parseLength(part));
  const [left, top, right, bottom] = lengths;
  if (lengths.length !== 4 || !left || !top || !right || !bottom) {
    throw invalidParameter('subject_box', 'must be x1 y1 x2 y2, each in pixels or %');
  }
  for (const [from, to] of [
    [left, right],
    [top, bottom],
  ] as const) {
    requireOrder(from, to);
  }
  return { left, top, right, bottom };
}

/** A plain number means pixels. */
function pixelsOf(text: string): Length | undefined {
  const px = parseNumber(text);
  return px === undefined ? undefined : { px };
}

/** Mistakes for any picture. The node checks the rest. */
function requireOrder(from: Length, to: Length): void {
  const isOver = (length: Length) => 'percent' in length && length.percent > 100;
  if (isOver(from) || isOver(to))
    throw invalidParameter('subject_box', 'must lie inside the image');
  const isEmpty =
    ('px' in from && 'px' in to && from.px >= to.px) ||
    ('percent' in from && 'percent' in to && from.percent >= to.percent) ||
    ('px' in to && to.px === 0);
  if (isEmpty) throw invalidParameter('subject_box', 'must have x1 < x2 and y1 < y2');
}

/** Refuses an empty list, whose effect a caller would wait for. */
function listOf(field: 'keep' | 'erase', text: string | undefined) {
  if (text === undefined) return {};
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    throw invalidParameter(field, `must be a list in JSON, such as ${EXAMPLE}`);
  }
  if (!Array.isArray(list) || list.length === 0) {
    throw invalidParameter(field, `must be a list of at least one shape, such as ${EXAMPLE}`);
  }
  return { [field]: list.map((shape, index) => shapeOf(field, shape, index)) };
}

const EXAMPLE = '[{"line": [[10, 20], [30, 40]], "radius": 5}]';

function shapeOf(field: string, shape: unknown, index: number): HintShape {
  const { box, line, radius, ...others } = (shape ?? {}) as Record<string, unknown>;
  if (Object.keys(others).length === 0) {
    if (isNumbers(box, 4) && line === undefined && radius === undefined) {
      return { box: box as unknown as [number, number, number, number] };
    }
    const isLine = Array.isArray(line) && line.every(point => isNumbers(point, 2));
    if (isLine && typeof radius === 'number' && box === undefined) {
      return { line: line as [number, number][], radius };
    }
  }
  const wrong = 'must be {"box": [x1, y1, x2, y2]} or {"line": [[x, y], ...], "radius": r}';
  throw invalidParameter(`${field}[${index}]`, wrong);
}

function isNumbers(value: unknown, length: number): value is number[] {
  if (!Array.isArray(value) || value.length !== length) return false;
  return value.every(number => typeof number === 'number');
}
