/** A deformable convolution as deform_conv2d_onnx_exporter 1.2.0 writes it. */
import {
  ElementType,
  elementCount,
  encodeModel,
  float32Tensor,
  type Graph,
  type GraphNode,
  int64Tensor,
  integer,
  integers,
  nodeOf,
  type Tensor as StoredTensor,
  text,
} from '@matting/serving/onnx/graph.ts';
import { runOnce } from '@matting/serving/test/run-graph.ts';

export interface StockOptions {
  readonly pictures?: number;
  readonly offsetGroups?: number;
  readonly group?: number;
  readonly kernel?: number;
  readonly stride?: number;
  readonly dilation?: number;
  readonly height?: number;
  readonly width?: number;
  readonly mask?: boolean;
  readonly bias?: boolean;
  /** 4 if absent, also of `output`. */
  readonly channels?: number;
  readonly outputs?: number;
  /** A Reshape for OpenVINO. */
  readonly patch?: boolean;
  readonly opset?: number;
}

/** In [-0.5, 0.5). */
function createSequence(): () => number {
  let state = 7;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
}

/** Pixels: many points lie beyond the border. */
const OFFSET_REACH = 16;

class Stock {
  readonly nodes: GraphNode[] = [];
  readonly initialisers = new Map<string, StoredTensor>();
  readonly #next = createSequence();

  add(
    opType: string,
    inputs: readonly string[],
    output: string,
    attributes: GraphNode['attributes'] = [],
  ): string {
    this.nodes.push(nodeOf(opType, inputs, output, attributes));
    return output;
  }

  ints(name: string, values: readonly number[], dims = [values.length]): string {
    this.initialisers.set(name, int64Tensor(values, dims));
    return name;
  }

  floats(name: string, values: readonly number[], dims: readonly number[] = []): string {
    this.initialisers.set(name, float32Tensor(values, dims));
    return name;
  }

  random(name: string, dims: readonly number[], scale: number): string {
    const values = Array.from({ length: elementCount(dims) }, () => scale * this.#next());
    return this.floats(name, values, dims);
  }

  reshape(input: string, dims: readonly number[], output: string): string {
    return this.add('Reshape', [input, this.ints(`${output}.shape`, dims)], output);
  }

  part(input: string, axis: number, output: string): string {
    const bounds = [axis, axis + 1, 3].map((bound, at) => this.ints(`${output}.${at}`, [bound]));
    return this.add('Slice', [input, ...bounds], output);
  }
}

/** `input` [b, 3, height, width] to `output`, with `picture`, `offset` and `mask` in between. */
export function stockDeformable(options: StockOptions = {}): Graph {
  const { pictures: b = 1, offsetGroups: g = 1, group = 1, kernel = 3, stride = 1 } = options;
  const { dilation = 1, height = 9, width = 7, mask = true, bias = false, opset = 17 } = options;
  const { channels = 4, outputs: answers = 4 } = options;
  const stock = new Stock();
  const taps = kernel * kernel;
  const pad = Math.floor(kernel / 2) * dilation;
  const outputs = (side: number) =>
    Math.floor((side + 2 * pad - dilation * (kernel - 1) - 1) / stride) + 1;
  const [h, w] = [outputs(height), outputs(width)];
  const conv = (output: string, count: number, scale: number) => {
    const weights = stock.random(`${output}.weights`, [count, 3, 3, 3], scale);
    const attributes = [integers('pads', [1, 1, 1, 1]), integers('kernel_shape', [3, 3])];
    const strided = output === 'picture' ? [] : [integers('strides', [stride, stride])];
    return stock.add('Conv', ['input', weights], output, [...attributes, ...strided]);
  };
  conv('picture', channels, 1);
  conv('offset', 2 * g * taps, OFFSET_REACH);
  if (mask) stock.add('Sigmoid', [conv('mask.logits', g * taps, 4)], 'mask');
  positions(stock, { b, g, kernel, stride, dilation, border: pad === 0 ? 1 : 0, h, w });
  const border = pad === 0 ? 1 : pad;
  const padded = [height + 2 * border, width + 2 * border] as const;
  const ch = channels / g;
  const pads = stock.ints('pads', [0, 0, border, border, 0, 0, border, border]);
  stock.add('Pad', ['picture', pads], 'padded', [text('mode', 'constant')]);
  stock.reshape('padded', [b, g, ch, ...padded], 'five');
  coordinates(stock, padded);
  const corners = ['tl', 'br', 'bl', 'tr'].map(corner =>
    cornerOf(stock, corner, { b, g, ch, taps, h, w, patch: options.patch === true }),
  );
  let sum = stock.add('Sum', corners, 'sum');
  if (mask) {
    stock.reshape('mask', [b, g, 1, taps, h, w], 'mask.taps');
    sum = stock.add('Mul', [sum, 'mask.taps'], 'masked');
  }
  stock.reshape(sum, [b, channels, kernel, kernel, h, w], 'by-taps');
  stock.add('Transpose', ['by-taps'], 'turned', [integers('perm', [0, 1, 4, 2, 5, 3])]);
  stock.reshape('turned', [b, channels, h * kernel, w * kernel], 'laid-out');
  const weights = stock.random('weights', [answers, channels / group, kernel, kernel], 1);
  const biases = bias ? [stock.random('bias', [answers], 1)] : [];
  stock.add('Conv', ['laid-out', weights, ...biases], 'conv', [
    integer('group', group),
    integers('kernel_shape', [kernel, kernel]),
    integers('strides', [kernel, kernel]),
  ]);
  stock.add('Add', ['conv', stock.random('added', [1, answers, 1, 1], 1)], 'output');
  return {
    ...{ irVersion: 8, opsets: [{ domain: '', version: opset }] },
    ...{ nodes: stock.nodes, initialisers: stock.initialisers },
    inputs: [{ name: 'input', elementType: ElementType.float32, dims: [b, 3, height, width] }],
    outputs: [{ name: 'output', elementType: ElementType.float32, dims: [b, answers, h, w] }],
  };
}

interface Points {
  readonly b: number;
  readonly g: number;
  readonly kernel: number;
  readonly stride: number;
  readonly dilation: number;
  readonly border: number;
  readonly h: number;
  readonly w: number;
}

function positions(stock: Stock, points: Points): void {
  const { b, g, kernel, stride, dilation, border, h, w } = points;
  const taps = kernel * kernel;
  const base: number[] = [];
  for (let tap = 0; tap < taps; tap++) {
    const [tapY, tapX] = [Math.floor(tap / kernel) * dilation, (tap % kernel) * dilation];
    for (let at = 0; at < h * w; at++) base.push(border + tapY + Math.floor(at / w) * stride);
    for (let at = 0; at < h * w; at++) base.push(border + tapX + (at % w) * stride);
  }
  stock.floats('base', base, [1, 1, taps, 2, h, w]);
  stock.reshape('offset', [b, g, taps, 2, h, w], 'offset.taps');
  stock.add('Add', ['base', 'offset.taps'], 'p');
  stock.add('Floor', ['p'], 'floor');
  stock.add('Sub', ['p', 'floor'], 'd');
}

/** The exporter's t, l, b, r, and d and 1 - d of y and x. */
function coordinates(stock: Stock, [height, width]: readonly [number, number]): void {
  stock.add('Cast', ['floor'], 'whole', [integer('to', ElementType.int64)]);
  for (const [axis, name, next, end] of [
    [0, 't', 'b', height - 1],
    [1, 'l', 'r', width - 1],
  ] as const) {
    stock.part('whole', axis, `${name}.whole`);
    stock.add('Add', [`${name}.whole`, stock.ints(`${next}.one`, [1], [])], `${next}.whole`);
    for (const side of [name, next]) {
      const bounds = [stock.ints(`${side}.from`, [0], []), stock.ints(`${side}.end`, [end], [])];
      stock.add('Clip', [`${side}.whole`, ...bounds], `${side}.clipped`);
    }
    stock.part('d', axis, `${next}.d`);
    stock.add('Sub', [stock.floats(`${name}.1`, [1]), `${next}.d`], `${name}.d`);
  }
}

interface Corner {
  readonly b: number;
  readonly g: number;
  readonly ch: number;
  readonly taps: number;
  readonly h: number;
  readonly w: number;
  readonly patch: boolean;
}

function cornerOf(stock: Stock, corner: string, shape: Corner): string {
  const { b, g, ch, taps, h, w, patch } = shape;
  const [y = '', x = ''] = corner;
  const product = stock.add('Mul', [`${x}.d`, `${y}.d`], `${corner}.product`);
  const weight = stock.reshape(product, [b, g, 1, taps, h, w], `${corner}.weight`);
  const flat = [y, x].map(side =>
    stock.reshape(`${side}.clipped`, [b, g, taps * h * w, 1], `${corner}.${side}`),
  );
  stock.add('Concat', flat, `${corner}.indices`, [integer('axis', 3)]);
  stock.add('Transpose', ['five'], `${corner}.five`, [integers('perm', [0, 1, 3, 4, 2])]);
  const indices = [`${corner}.five`, `${corner}.indices`];
  let value = stock.add('GatherND', indices, `${corner}.gathered`, [integer('batch_dims', 2)]);
  if (patch) value = stock.reshape(value, [b, g, taps * h * w, ch], `${corner}.patched`);
  stock.add('Transpose', [value], `${corner}.turned`, [integers('perm', [0, 1, 3, 2])]);
  stock.reshape(`${corner}.turned`, [b, g, ch, taps, h, w], `${corner}.value`);
  return stock.add('Mul', [weight, `${corner}.value`], `${corner}.term`);
}

/** Without optimisations, which would rewrite both forms alike. */
export function runOnNoise(graph: Graph, output = 'output'): Promise<Float32Array> {
  const dims = graph.inputs[0]?.dims.map(Number) ?? [];
  const data = Float32Array.from({ length: elementCount(dims) }, createSequence());
  const bytes = Buffer.concat([...encodeModel(graph)]);
  return runOnce(bytes, { input: { data, dims } }, output, 'disabled');
}
