import { IMAGES_MAX, type TensorFacts } from '@matting/serving/engine/child/form-io.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import {
  INPUT_SIDE_MAX,
  INPUT_TYPES,
  type InputType,
  type Layout,
} from '@matting/serving/models/prepared-model.ts';

export interface PictureInput {
  readonly input: TensorFacts;
  readonly type: InputType;
  readonly layout: Layout;
  /** Null: the graph leaves it open. 4: with a trimap. */
  readonly channels: 3 | 4 | null;
  readonly width: number | null;
  readonly height: number | null;
}

export function describeTensor({ name, isTensor, type, shape = [] }: TensorFacts): string {
  if (!isTensor) return `${name}: no tensor`;
  const dims = shape.map(dim => (typeof dim === 'number' ? dim : dim || '?'));
  return `${name}: ${type} [${dims.length === 0 ? 'any shape' : dims.join(', ')}]`;
}

export function describeTensors(tensors: readonly TensorFacts[]): string {
  return tensors.map(describeTensor).join('; ') || 'nothing';
}

type Dims = readonly (number | null)[];

/** Null: the graph leaves the size open. Undefined: no shape is stated. */
function dimsOf({ shape = [] }: TensorFacts): Dims | undefined {
  if (shape.length === 0) return undefined;
  return shape.map(dim => (typeof dim === 'number' && dim > 0 ? dim : null));
}

function refuse(why: string): never {
  throw new ModelError('prepare', why);
}

export function pictureInput(inputs: readonly TensorFacts[]): PictureInput {
  const [input, ...others] = inputs;
  const takes = `the graph takes ${describeTensors(inputs)}`;
  if (input === undefined || others.length > 0) refuse(`${takes}: not one picture`);
  const type = INPUT_TYPES.find(known => known === input.type);
  if (type === undefined) refuse(`${takes}: not numbers of a picture`);
  // Four open dims are the commonest shape, if the graph states none.
  const dims = dimsOf(input) ?? [null, null, null, null];
  const layout = layoutOf(dims);
  if (layout === undefined) refuse(`${takes}: no picture`);
  const at = (axis: string) => dims[layout.indexOf(axis)] ?? null;
  const [channels, images, width, height] = [at('c'), at('n'), at('w'), at('h')];
  if (channels !== null && !isPixel(channels)) {
    refuse(`${takes}: not the three channels of a picture in colour`);
  }
  if (images !== null && images > IMAGES_MAX) {
    refuse(`${takes}: ${images} pictures at once; export it for one`);
  }
  if (Math.max(width ?? 0, height ?? 0) > INPUT_SIDE_MAX) {
    refuse(`${takes}: a picture of over ${INPUT_SIDE_MAX} a side`);
  }
  return { input, type, layout, channels, width, height };
}

/** A larger dim is a side, not channels. */
const CHANNELS_MAX = 8;

function layoutOf(dims: Dims): Layout | undefined {
  const [first = null, second = null, third = null, fourth = null] = dims;
  const isFew = (dim: number | null) => dim !== null && dim <= CHANNELS_MAX;
  if (dims.length === 4) {
    const isLast = second !== 3 && (fourth === 3 || (isFew(fourth) && !isFew(second)));
    return isLast ? 'nhwc' : 'nchw';
  }
  if (dims.length !== 3) return undefined;
  if (isPixel(first)) return 'chw';
  return isPixel(third) ? 'hwc' : undefined;
}

function isPixel(dim: number | null): dim is 3 | 4 {
  return dim === 3 || dim === 4;
}

/** @throws ModelError `settings` if there is none of that name, `prepare` if none can be a matte */
export function matteOutputs(
  outputs: readonly TensorFacts[],
  wished?: string,
): readonly [TensorFacts, ...TensorFacts[]] {
  const isWished = ({ name }: TensorFacts) => name === wished;
  const [first, ...others] = outputs.filter(wished === undefined ? canBeMatte : isWished);
  if (first !== undefined) return [first, ...others];
  const given = describeTensors(outputs);
  if (wished === undefined) return refuse(`no output of the graph is a matte: ${given}`);
  throw new ModelError('settings', `the graph has no output ${wished}: its outputs are ${given}`);
}

function canBeMatte(output: TensorFacts): boolean {
  const dims = dimsOf(output);
  const isNumbers = output.isTensor && output.type !== 'string';
  return isNumbers && (dims === undefined || hasMatteShape(dims));
}

/** A matte has one channel, or two classes, before or after the sides, in any batch. */
function hasMatteShape(dims: Dims): boolean {
  if (dims.length === 2) return true;
  const [first = null, , last = null] = dims.slice(dims.length === 4 ? 1 : 0);
  const isShort = (dim: number | null) => dim === null || dim === 1 || dim === 2;
  return (dims.length === 3 || dims.length === 4) && (isShort(first) || isShort(last));
}
