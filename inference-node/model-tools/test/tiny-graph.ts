/** A few kilobytes with the properties of the real graphs. */
import {
  ElementType,
  encodeModel,
  float32Tensor,
  type Graph,
  type GraphNode,
  int64Tensor,
  integer,
  integers,
  nodeOf,
  type Tensor,
  text,
} from '@matting/serving/onnx/graph.ts';
import { AttributeProto } from '@matting/serving/test/onnx-messages.ts';
import { runOnce } from '@matting/serving/test/run-graph.ts';
import { at } from '@matting/test-support/at.ts';
import { prepareGraph } from '../preparing/prepare.ts';

export interface TinyGraphOptions {
  /** Side in pixels, for literal Resize targets. */
  readonly side: number;
  /** Half-precision weights, float32 at both ends and around Resize. */
  readonly half?: boolean;
  /** `literal` if absent. */
  readonly sizes?: 'literal' | 'computed';
  /** Height and width are free, and `computed` targets follow. */
  readonly free?: boolean;
}

const CHANNELS = 4;

/** `input` to the matte `output`, with side outputs `side` (another matte) and `deep`. */
export function tinyGraph({ side, half, sizes, free }: TinyGraphOptions): Graph {
  const builder = new Builder(half === true);
  const start = builder.enter('input');
  const skip = builder.relu(builder.conv(start, 3, CHANNELS));
  const deep = builder.relu(builder.conv(builder.pool(skip), CHANNELS, CHANNELS));
  const upTo = (small: string, like: string) => {
    const literal = () => builder.literalSizes(small, side);
    return builder.resize(small, sizes === 'computed' ? builder.sizesOf(like, small) : literal());
  };
  const up = upTo(deep, skip);
  const joined = builder.concat(up, skip);
  builder.leave(builder.node('Sigmoid', [builder.conv(joined, CHANNELS * 2, 1)]), 'output');
  const sideUp = upTo(builder.conv(deep, CHANNELS, 1), skip);
  builder.leave(builder.node('Sigmoid', [sideUp]), 'side');
  builder.leave(deep, 'deep');
  const dim = free ? null : side;
  const value = (name: string, channels: number) => ({
    name,
    elementType: ElementType.float32,
    dims: [1, channels, dim, dim],
  });
  return {
    irVersion: 8,
    opsets: [{ domain: '', version: 13 }],
    nodes: builder.nodes,
    initialisers: builder.initialisers,
    inputs: [value('input', 3)],
    outputs: [
      value('output', 1),
      value('side', 1),
      { ...value('deep', CHANNELS), dims: [1, CHANNELS, null, null] },
    ],
  };
}

/** The graph was exported for 64 pixels. */
export function prepareTinyGraph(
  source: Graph,
  side = 64,
  precision: 'fp32' | 'fp16' = 'fp32',
): Graph {
  return prepareGraph(source, {
    ...{ inputName: 'input', outputName: 'output', precision },
    exported: { width: 64, height: 64 },
    wanted: { width: side, height: side },
  });
}

class Builder {
  readonly nodes: GraphNode[] = [];
  readonly initialisers = new Map<string, Tensor>();
  readonly #half: boolean;
  #count = 0;
  #random = 1;

  constructor(half: boolean) {
    this.#half = half;
  }

  node(
    opType: string,
    inputs: readonly string[],
    attributes: readonly AttributeProto[] = [],
    output = this.#name(opType),
  ): string {
    this.nodes.push(nodeOf(opType, inputs, output, attributes));
    return output;
  }

  enter(input: string): string {
    return this.#half ? this.#cast(input, ElementType.float16) : input;
  }

  leave(value: string, output: string): void {
    if (this.#half) this.#cast(value, ElementType.float32, output);
    else this.node('Identity', [value], [], output);
  }

  conv(input: string, channelsIn: number, channelsOut: number): string {
    const weights = this.#weights([channelsOut, channelsIn, 3, 3]);
    const bias = this.#weights([channelsOut]);
    return this.node(
      'Conv',
      [input, weights, bias],
      [integers('kernel_shape', [3, 3]), integers('pads', [1, 1, 1, 1])],
    );
  }

  relu(input: string): string {
    return this.node('Relu', [input]);
  }

  pool(input: string): string {
    return this.node(
      'MaxPool',
      [input],
      [integers('kernel_shape', [2, 2]), integers('strides', [2, 2]), integer('ceil_mode', 1)],
    );
  }

  concat(...inputs: readonly string[]): string {
    return this.node('Concat', inputs, [integer('axis', 1)]);
  }

  resize(input: string, sizes: string): string {
    const attributes = [
      text('mode', 'linear'),
      text('coordinate_transformation_mode', 'half_pixel'),
    ];
    if (!this.#half) return this.node('Resize', [input, '', '', sizes], attributes);
    const wide = this.#cast(input, ElementType.float32);
    const resized = this.node('Resize', [wide, '', '', sizes], attributes);
    return this.#cast(resized, ElementType.float16);
  }

  /** As ISNet was exported: the first two dims of `batch`, then numbers. */
  literalSizes(batch: string, side: number): string {
    return this.#sizes(batch, this.#constant(int64Tensor([side, side], [2])));
  }

  /** As U-2-Net was exported: the first two dims of `batch`, then the sides of `like`. */
  sizesOf(like: string, batch: string): string {
    const shape = this.node('Shape', [like]);
    const sides = [2, 3].map(axis => {
      const index = this.#constant(int64Tensor([axis], []));
      const axes = this.#constant(int64Tensor([0], [1]));
      return this.node('Unsqueeze', [
        this.node('Gather', [shape, index], [integer('axis', 0)]),
        axes,
      ]);
    });
    const pair = this.node('Concat', sides, [integer('axis', 0)]);
    return this.#sizes(batch, this.#cast(pair, ElementType.int64));
  }

  #sizes(batch: string, pair: string): string {
    const shape = this.node('Shape', [batch]);
    const bounds = [0, 2, 0].map(value => this.#constant(int64Tensor([value], [1])));
    const first = this.node('Slice', [shape, ...bounds]);
    return this.node('Concat', [first, pair], [integer('axis', 0)]);
  }

  #cast(input: string, to: number, output?: string): string {
    return this.node('Cast', [input], [integer('to', to)], output);
  }

  #constant(tensor: Tensor): string {
    const { elementType: dataType, data: rawData } = tensor;
    const t = { dims: tensor.dims.map(BigInt), dataType, rawData };
    return this.node('Constant', [], [AttributeProto.fromPartial({ name: 'value', type: 4, t })]);
  }

  #weights(dims: readonly number[]): string {
    const count = dims.reduce((product, dim) => product * dim, 1);
    // Multiples of 1/64 below 1 are exact in half precision.
    const values = Array.from({ length: count }, () => (this.#next() % 64) / 64 - 0.5);
    const name = this.#name('weights');
    const tensor = this.#half ? halfTensor(values, dims) : float32Tensor(values, dims);
    this.initialisers.set(name, tensor);
    return name;
  }

  #next(): number {
    this.#random = (this.#random * 48271) % 2147483647;
    return this.#random;
  }

  #name(kind: string): string {
    this.#count += 1;
    return `${kind}.${this.#count}`;
  }
}

/** Multiples of 1/64 from -0.5 to 0.5 need no rounding. */
function halfTensor(values: readonly number[], dims: readonly number[]): Tensor {
  const halves = Uint16Array.from(values, value => {
    if (value === 0) return 0;
    const exponent = Math.floor(Math.log2(Math.abs(value)));
    const fraction = (Math.abs(value) / 2 ** exponent - 1) * 1024;
    return (value < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | fraction;
  });
  return { elementType: ElementType.float16, dims, data: new Uint8Array(halves.buffer) };
}

export function graphBytes(graph: Graph): Buffer {
  return Buffer.concat([...encodeModel(graph)]);
}

export function runGraph(
  bytes: Uint8Array,
  side: number,
  output = 'output',
): Promise<Float32Array> {
  const data = Float32Array.from({ length: 3 * side * side }, (_, index) => Math.sin(index * 0.37));
  return runOnce(bytes, { input: { data, dims: [1, 3, side, side] } }, output);
}

/** On the picture of runGraph; includes 0. */
export async function measureRanges(graph: Graph, names: readonly string[], side: number) {
  const ranges = new Map<string, readonly [number, number]>();
  for (const name of names) {
    const outputs = [{ name, elementType: ElementType.float32, dims: [1, null, null, null] }];
    const values = await runGraph(graphBytes({ ...graph, outputs }), side, name);
    ranges.set(name, [Math.min(0, ...values), Math.max(1e-6, ...values)]);
  }
  return ranges;
}

export function largestDifference(a: Float32Array, b: Float32Array): number {
  if (a.length !== b.length) return Number.POSITIVE_INFINITY;
  return a.reduce((largest, value, index) => Math.max(largest, Math.abs(value - at(b, index))), 0);
}
