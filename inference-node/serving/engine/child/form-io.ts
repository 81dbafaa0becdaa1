/**
 * Converts between pictures and an added model's graph, which runs as its maker wrote it: element
 * types, axis order, fixed batch sizes, letterboxes, mattes of any type and shape.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { type Activation, channelsOf, type GraphForm } from '../../models/prepared-model.ts';
import { ANSWER_VALUES_MAX, type SessionSpec } from '../engine-protocol.ts';
import {
  createPlaneTables,
  type GraphInput,
  type GraphIo,
  type GraphValue,
  requireNumbers,
} from './graph-io.ts';
import type { TensorFacts } from './session.ts';

export type { TensorFacts };

interface Matte {
  readonly alpha: Uint8Array;
  readonly size: Size;
}

interface Placement extends Size {
  readonly left: number;
  readonly top: number;
}

export type FormSpec = Pick<
  SessionSpec,
  | 'inputName'
  | 'outputName'
  | 'inputWidth'
  | 'inputHeight'
  | 'normalisation'
  | 'colourOrder'
  | 'activation'
> & { readonly form: GraphForm };

type IoSpec = Omit<FormSpec, 'form'>;

export function formIo(
  spec: IoSpec,
  form: GraphForm,
  graph: { readonly input: TensorFacts; readonly output: TensorFacts },
): GraphIo {
  const { inputName, outputName, activation } = spec;
  const images = requireInput(spec, form, graph.input);
  if (!graph.output.isTensor) throw new Error(`the graph's output ${outputName} is no tensor`);
  const canvas = new Canvas(spec, form, images);
  return {
    inputName,
    outputNames: [outputName],
    input(rgb, size = canvas.whole) {
      requirePicture(canvas.whole, form, rgb, size);
      return canvas.paint(rgb, size);
    },
    answer(outputs) {
      const output = outputs[outputName];
      if (output === undefined) throw new Error(`the graph gave no output ${outputName}`);
      requireAnswerSize(output);
      const matte = readMatte(output, { form, activation, images });
      return cutOut(matte, canvas.size, canvas.placement);
    },
  };
}

/** @returns the batch size that the graph requires */
function requireInput(spec: IoSpec, form: GraphForm, { type, shape }: TensorFacts): number {
  const { inputWidth: width, inputHeight: height } = spec;
  const { layout } = form;
  if (type !== form.inputType) {
    throw new Error(`the graph's input is ${type}, not ${form.inputType}`);
  }
  if (shape === undefined || shape.length === 0) return 1;
  const is = `the graph's input is [${shape.join(', ')}]`;
  if (shape.length !== layout.length) throw new Error(`${is}, not ${layout}`);
  const at = (axis: string) => shape[layout.indexOf(axis)];
  const differs = (axis: string, wanted: number) =>
    typeof at(axis) === 'number' && at(axis) !== wanted;
  const channels = channelsOf({ form });
  if (differs('c', channels)) {
    throw new Error(`${is}: it has ${at('c')} channels, not ${channels}`);
  }
  if (differs('h', height) || differs('w', width)) {
    throw new Error(`${is}: it takes pictures of ${at('w')}x${at('h')}, not ${width}x${height}`);
  }
  const images = at('n');
  if (typeof images !== 'number') return 1;
  if (images < 1 || images > IMAGES_MAX) throw new Error(`${is}: it takes ${images} at once`);
  return images;
}

/** Largest fixed batch of a graph. The batch repeats the same picture. */
export const IMAGES_MAX = 8;

/** Refuses a picture that does not fit into the tensor: nothing else checks where its rows go. */
function requirePicture(whole: Size, form: GraphForm, rgb: Uint8Array, size: Size): void {
  const { width, height } = size;
  const { fit } = form;
  const bytes = channelsOf({ form }) * width * height;
  const isBoxed = fit === 'letterbox' || fit === 'top-left';
  if (isBoxed && (width > whole.width || height > whole.height)) {
    throw new Error(
      `${width}x${height} is no picture in an input of ${whole.width}x${whole.height}`,
    );
  }
  if (rgb.length === bytes) return;
  throw new Error(`${rgb.length} bytes of pixels where the model takes ${bytes}`);
}

type Values = Float32Array | Float16Array | Uint8Array;

function toShare(byte: number): number {
  return byte / 255;
}

const ARRAYS = { float32: Float32Array, float16: Float16Array, uint8: Uint8Array } as const;

class Canvas {
  readonly whole: Size;
  readonly #form: GraphForm;
  readonly #images: number;
  readonly #channels: readonly { readonly sourceChannel: number; readonly values: Values }[];
  #values: Values = new Uint8Array();
  size: Size = { width: 0, height: 0 };
  placement: Placement = { left: 0, top: 0, width: 0, height: 0 };

  constructor(spec: IoSpec, form: GraphForm, images: number) {
    this.whole = { width: spec.inputWidth, height: spec.inputHeight };
    this.#form = form;
    this.#images = images;
    // A graph that takes bytes normalises them itself.
    const { inputType } = form;
    const bytes = Uint8Array.from({ length: 256 }, (_, value) => value);
    const tables = createPlaneTables(spec.normalisation, spec.colourOrder);
    if (form.trimap) tables.push({ sourceChannel: 3, values: Float32Array.from(bytes, toShare) });
    this.#channels = tables.map(({ sourceChannel, values }) => ({
      sourceChannel,
      values: inputType === 'uint8' ? bytes : ARRAYS[inputType].from(values),
    }));
  }

  get #count(): number {
    return this.#channels.length;
  }

  paint(rgb: Uint8Array, size: Size): GraphInput {
    if (size.width !== this.placement.width || size.height !== this.placement.height)
      this.#resize(size);
    const { width, height } = this.size;
    const each = this.#count * width * height;
    for (const [channel, { sourceChannel, values }] of this.#channels.entries()) {
      this.#paintChannel(rgb, sourceChannel, values, channel);
    }
    for (let image = 1; image < this.#images; image++) {
      this.#values.copyWithin(image * each, 0, each);
    }
    const { inputType: type, layout } = this.#form;
    const sides: Readonly<Record<string, number>> = {
      ...{ n: this.#images, c: this.#count, h: height, w: width },
    };
    const dims = [...layout].map(axis => sides[axis] ?? 1);
    return { type, dims, data: this.#values } as GraphInput;
  }

  #paintChannel(rgb: Uint8Array, source: number, values: Values, channel: number): void {
    const { left, top, width, height } = this.placement;
    const [origin, step] = this.#channelAt(channel);
    const count = this.#count;
    const target = this.#values;
    for (let y = 0, from = source; y < height; y++) {
      let to = origin + step * ((top + y) * this.size.width + left);
      for (let x = 0; x < width; x++, from += count, to += step) {
        target[to] = values[rgb[from]!]!;
      }
    }
  }

  #channelAt(channel: number): readonly [origin: number, step: number] {
    const { layout } = this.#form;
    const last = layout.endsWith('c');
    return last ? [channel, this.#count] : [channel * this.size.width * this.size.height, 1];
  }

  /** Pads with black. A black trimap means surely background. */
  #resize(size: Size): void {
    const { fit, inputType } = this.#form;
    const boxed = fit === 'letterbox' || fit === 'top-left';
    this.size = boxed ? this.whole : size;
    const middle = fit === 'letterbox' ? 0.5 : 0;
    this.placement = {
      ...size,
      left: Math.floor((this.size.width - size.width) * middle),
      top: Math.floor((this.size.height - size.height) * middle),
    };
    const pixels = this.size.width * this.size.height;
    this.#values = new ARRAYS[inputType](this.#images * this.#count * pixels);
    if (size.width * size.height === pixels) return;
    for (const [channel, { values }] of this.#channels.entries()) {
      const [origin, step] = this.#channelAt(channel);
      const black = values[0] ?? 0;
      for (let i = 0; i < pixels; i++) this.#values[origin + step * i] = black;
    }
  }
}

/** Opacity, 0 to 1, of an output's value: for two classes, of the second minus the first. */
const OPACITIES: Readonly<Record<Activation, (value: number) => number>> = {
  none: value => value,
  sigmoid,
  softmax: sigmoid,
  scale255: value => value / 255,
  signed: value => (value + 1) / 2,
  logit: value => {
    const inside = Math.min(1, Math.max(0, value));
    return Math.log(inside / (1 - inside));
  },
};

function sigmoid(value: number): number {
  return 1 / (1 + Math.exp(-value));
}

export function valuesIn({ dims }: Pick<GraphValue, 'dims'>): number {
  return dims.reduce((product, dim) => product * dim, 1);
}

function requireAnswerSize(output: GraphValue): void {
  const values = valuesIn(output);
  if (values > 0 && values <= ANSWER_VALUES_MAX) return;
  const is = `the graph's output is ${output.type} ${output.dims.join('x')}`;
  throw new Error(values === 0 ? `${is}: nothing` : `${is}: over ${ANSWER_VALUES_MAX} values`);
}

interface Reading {
  readonly form: GraphForm;
  readonly activation: Activation;
  readonly images: number;
}

function readMatte(output: GraphValue, { form, activation, images }: Reading): Matte {
  const values = numbersOf(output);
  const { width, height, classes, classStep, step } = matteShape(output, form, images);
  const opacity = OPACITIES[activation];
  const alpha = new Uint8ClampedArray(width * height);
  // The second class is the subject.
  const first = (classes - 1) * classStep;
  const isDifference = classes === 2 && activation === 'softmax';
  let sum = 0;
  for (let i = 0, at = first; i < alpha.length; i++, at += step) {
    const value = isDifference ? values[at]! - values[at - first]! : values[at]!;
    sum += value;
    const shown = opacity(value);
    alpha[i] = 255 * (form.inverted ? 1 - shown : shown);
  }
  requireNumbers(Number.isFinite(sum));
  return { alpha: Buffer.from(alpha.buffer), size: { width, height } };
}

interface MatteShape extends Size {
  readonly classes: 1 | 2;
  readonly classStep: number;
  readonly step: number;
}

/** [images, C, H, W], [images, H, W, C], the same without images, [images, H, W] or [H, W]. */
function matteShape(output: GraphValue, { layout }: GraphForm, images: number): MatteShape {
  const { dims, type } = output;
  const shown = () => new Error(`the graph's output is ${type} ${dims.join('x')}: no matte`);
  const isPictures = dims.length === 4 || (dims.length === 3 && images > 1 && dims[0] === images);
  const own = isPictures ? dims.slice(1) : dims;
  const [first = 0, second = 0, third = 0] = own;
  if (own.length === 2) return { width: second, height: first, ...ofClasses(1, 0, 1) };
  if (own.length !== 3) throw shown();
  const isClasses = (count: number): count is 1 | 2 => count === 1 || count === 2;
  const pixelsFirst = { width: third, height: second };
  const pixelsLast = { width: second, height: first };
  const isFirst = isClasses(first) && !(layout.endsWith('c') && isClasses(third));
  if (isFirst) return { ...pixelsFirst, ...ofClasses(first, second * third, 1) };
  if (isClasses(third)) return { ...pixelsLast, ...ofClasses(third, 1, third) };
  throw shown();
}

function ofClasses(classes: 1 | 2, classStep: number, step: number) {
  return { classes, classStep, step };
}

/** If the runtime does not know Float16Array, halves come as their bits. */
export function numbersOf({ type, data, dims }: GraphValue): ArrayLike<number> {
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) {
    return Float64Array.from(data, Number);
  }
  if (type === 'float16' && data instanceof Uint16Array) {
    return new Float16Array(data.buffer, data.byteOffset, data.length);
  }
  if (ArrayBuffer.isView(data) && !(data instanceof DataView)) {
    return data as unknown as ArrayLike<number>;
  }
  throw new Error(`the graph's output is ${type} ${dims.join('x')}: no numbers`);
}

/**
 * Cuts the padding off. In a matte of another size, the cut lies between pixels, so each pixel
 * interpolates its neighbours and nothing shifts by a fraction of a pixel.
 */
function cutOut(matte: Matte, canvas: Size, placement: Placement): Matte {
  const { alpha, size } = matte;
  if (placement.width === canvas.width && placement.height === canvas.height) return matte;
  const columns = samplesOf(placement.left, placement.width, canvas.width, size.width);
  const rows = samplesOf(placement.top, placement.height, canvas.height, size.height);
  const cut = new Uint8ClampedArray(columns.length * rows.length);
  let to = 0;
  for (const row of rows) {
    const [above, below] = [row.near * size.width, row.far * size.width];
    for (const { near, far, share } of columns) {
      const upper = alpha[above + near]! * (1 - share) + alpha[above + far]! * share;
      const lower = alpha[below + near]! * (1 - share) + alpha[below + far]! * share;
      cut[to++] = upper * (1 - row.share) + lower * row.share;
    }
  }
  const cutSize = { width: columns.length, height: rows.length };
  return { alpha: Buffer.from(cut.buffer), size: cutSize };
}

/** For each output pixel its two neighbours along one axis, and the weight of the second. */
function samplesOf(start: number, length: number, canvas: number, matte: number) {
  const scale = matte / canvas;
  const count = Math.max(1, Math.round(length * scale));
  return Array.from({ length: count }, (_, index) => {
    const at = (start + ((index + 0.5) * length) / count) * scale - 0.5;
    const inside = Math.min(matte - 1, Math.max(0, at));
    const near = Math.floor(inside);
    return { near, far: Math.min(matte - 1, near + 1), share: inside - near };
  });
}
