/** Reads what a graph takes and gives, from ONNX Runtime; refuses one without a picture. Pure. */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { IMAGES_MAX, type TensorFacts } from '@matting/serving/engine/child/form-ends.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import {
  INPUT_SIDE_MAX,
  INPUT_TYPES,
  type InputType,
  type Layout,
} from '@matting/serving/models/prepared-model.ts';
import { PROBE_SIDE_PX } from './probe.ts';

export interface PictureInput {
  readonly type: InputType;
  readonly layout: Layout;
  readonly dynamic: boolean;
  readonly size: Size;
  /** 4: with a trimap. Null: the graph leaves it open. */
  readonly channels: 3 | 4 | null;
}

export function describeTensor({ name, isTensor, type, shape = [] }: TensorFacts): string {
  if (!isTensor) return `${name}: no tensor`;
  const dims = shape.map(dim => (typeof dim === 'number' ? dim : dim || '?'));
  return `${name}: ${type} [${dims.length === 0 ? 'any shape' : dims.join(', ')}]`;
}

/** Null: open. */
function dimsOf({ shape = [] }: TensorFacts): (number | null)[] | undefined {
  if (shape.length === 0) return undefined;
  return shape.map(dim => (typeof dim === 'number' && dim > 0 ? dim : null));
}

function refuse(why: string): never {
  throw new ModelError('prepare', why);
}

/** @throws ModelError `prepare` where it takes no picture, `settings` where not of that size */
export function pictureInput(
  inputs: readonly TensorFacts[],
  wished?: Size,
): PictureInput & { readonly input: TensorFacts } {
  const [input, ...others] = inputs;
  if (input === undefined) refuse('the graph takes nothing');
  if (others.length > 0) refuseInputs(inputs);
  const type = INPUT_TYPES.find(known => known === input.type);
  if (type === undefined)
    refuse(`the graph takes ${describeTensor(input)}, not numbers of a picture`);
  // A graph that states nothing is tried with the commonest.
  const { layout, channels, batch, width, height } = readAxes(
    dimsOf(input) ?? [null, null, null, null],
  );
  if (layout === undefined) refuse(`the graph takes no picture: ${describeTensor(input)}`);
  if (channels !== null && !isPixel(channels)) refuseChannels(channels, describeTensor(input));
  if (batch !== null && batch > IMAGES_MAX) {
    refuse(`the graph takes ${batch} pictures at once, no fewer: export it for one`);
  }
  const dynamic = width === null || height === null;
  const size = {
    width: width ?? wished?.width ?? PROBE_SIDE_PX,
    height: height ?? wished?.height ?? PROBE_SIDE_PX,
  };
  for (const side of [size.width, size.height]) {
    if (side <= INPUT_SIDE_MAX) continue;
    refuse(`the graph takes a picture of ${sizeText(size)}, over ${INPUT_SIDE_MAX} a side`);
  }
  if (wished !== undefined && sizeText(wished) !== sizeText(size)) {
    const sizes = dynamic ? `a side of ${width ?? height}` : `pictures of ${sizeText(size)}`;
    throw new ModelError('settings', `the graph takes ${sizes} alone, not ${sizeText(wished)}`);
  }
  return { input, type, layout, dynamic, size, channels };
}

/** `size`, but for sides that are fixed. */
export function openSides({ shape = [] }: TensorFacts, layout: Layout, size: Size): Size {
  const side = (axis: string, open: number) => {
    const own = shape[layout.indexOf(axis)];
    return typeof own === 'number' && own > 0 ? own : open;
  };
  return { width: side('w', size.width), height: side('h', size.height) };
}

export function sizeText({ width, height }: Size): string {
  return `${width}x${height}`;
}

type Axes = { readonly layout?: Layout } & Record<
  'channels' | 'batch' | 'width' | 'height',
  number | null
>;

function readAxes(dims: readonly (number | null)[]): Axes {
  const [first = null, second = null, third = null, fourth = null] = dims;
  if (dims.length === 4) {
    const batch = first;
    // Few: a picture's sides are longer.
    const isLast = second !== 3 && (fourth === 3 || (isFew(fourth) && !isFew(second)));
    return isLast
      ? { layout: 'nhwc', batch, channels: fourth, width: third, height: second }
      : { layout: 'nchw', batch, channels: second, width: fourth, height: third };
  }
  const batch = null;
  if (dims.length === 3 && isPixel(first)) {
    return { layout: 'chw', batch, channels: first, width: third, height: second };
  }
  if (dims.length === 3 && isPixel(third)) {
    return { layout: 'hwc', batch, channels: third, width: second, height: first };
  }
  return { batch, channels: null, width: null, height: null };
}

/** A picture's, or with a trimap. */
function isPixel(dim: number | null): dim is 3 | 4 {
  return dim === 3 || dim === 4;
}

const CHANNELS_MAX = 8;

function isFew(dim: number | null): boolean {
  return dim !== null && dim <= CHANNELS_MAX;
}

function refuseChannels(channels: number, end: string): never {
  if (channels === 1) refuse(`the graph takes one channel, grey, not a picture in colour (${end})`);
  return refuse(`the graph takes ${channels} channels, not the three of a picture (${end})`);
}

function refuseInputs(inputs: readonly TensorFacts[]): never {
  const ends = inputs.map(describeTensor).join('; ');
  const trimap = inputs.slice(1).find(other => /trimap|mask/i.test(other.name) || isGrey(other));
  const what = trimap === undefined ? 'more than a picture' : `a picture and a trimap`;
  return refuse(`the graph takes ${what}, ${inputs.length} inputs: ${ends}`);
}

function isGrey(tensor: TensorFacts): boolean {
  const dims = dimsOf(tensor);
  return dims?.length === 4 && (dims[1] === 1 || dims[3] === 1);
}

/**
 * Gives the outputs whose type and shape can be a matte's, in the graph's order.
 * @throws ModelError `settings` where there is none of that name, `prepare` where none can be
 */
export function matteOutputs(
  outputs: readonly TensorFacts[],
  wished?: string,
): readonly [TensorFacts, ...TensorFacts[]] {
  const names = outputs.map(({ name }) => name).join(', ') || 'none';
  if (wished !== undefined) {
    const output = outputs.find(({ name }) => name === wished);
    if (output !== undefined) return [output];
    throw new ModelError('settings', `the graph has no output ${wished}: its outputs are ${names}`);
  }
  const [first, ...others] = outputs.filter(canBeMatte);
  if (first !== undefined) return [first, ...others];
  return refuse(`no output of the graph is a matte: ${outputs.map(describeTensor).join('; ')}`);
}

function canBeMatte(output: TensorFacts): boolean {
  const dims = dimsOf(output);
  const isNumbers = output.isTensor && output.type !== 'string';
  return isNumbers && (dims === undefined || hasMatteShape(dims));
}

/** A matte has one channel, or two classes, before or after the sides; its batch may be any. */
export function hasMatteShape(dims: readonly (number | null)[]): boolean {
  if (dims.length === 2) return true;
  const [first = null, , last = null] = dims.slice(dims.length === 4 ? 1 : 0);
  const isShort = (dim: number | null) => dim === null || dim === 1 || dim === 2;
  return (dims.length === 3 || dims.length === 4) && (isShort(first) || isShort(last));
}
