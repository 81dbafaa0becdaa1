/**
 * Static quantisation of float32 convolutions in QDQ form, which ONNX Runtime fuses to integer
 * kernels (Jacob et al. 2018, sections 2 and 3). Weights: int8, symmetric, a scale for each output
 * channel. Values: uint8 by measured ranges. Biases: int32 of the product of both scales.
 */
import { ModelError } from '@matting/serving/models/model-error.ts';
import {
  ElementType,
  float32Tensor,
  type Graph,
  type GraphNode,
  integer,
  nodeOf,
  type OpsetImport,
  onlyInput,
  type Tensor,
} from '@matting/serving/onnx/graph.ts';
import { planQuantisation } from './plan-quantisation.ts';
import { OPSET_OF_INT8, removeUnused } from './rewrites.ts';

/** 0 lies within. */
type Range = readonly [lower: number, upper: number];

export interface Quantisation {
  /** Keys are names of values, at least those that the plan measures. */
  readonly ranges: ReadonlyMap<string, Range>;
  readonly float32: ReadonlySet<string>;
  /** Undefined: the input has no whole steps, so the first convolution stays float32. */
  readonly input: Scale | undefined;
}

/** `value = (byte - zeroPoint) * scale`. */
export interface Scale {
  readonly scale: number;
  readonly zeroPoint: number;
}

const BYTE_STEPS = 255;
const WEIGHT_STEPS = 127;
/** For a channel of zeros, or a value that never changes. */
const SCALE_MIN = 1e-8;
/** A quarter of int32. With the scale of small weights an ordinary bias would overflow. */
const BIAS_STEPS_MAX = 2 ** 29;

/**
 * @param graph float32, with a fixed input size
 * @throws ModelError `prepare`
 */
export function quantise(graph: Graph, quantisation: Quantisation): Graph {
  requireOpset(graph.opsets);
  return new Quantiser(graph, quantisation).run();
}

function requireOpset(opsets: readonly OpsetImport[]): void {
  const version = opsets.find(({ domain }) => domain === '')?.version ?? 0;
  if (version >= OPSET_OF_INT8) return;
  throw new ModelError('prepare', `int8 needs opset ${OPSET_OF_INT8}, the graph has ${version}`);
}

class Quantiser {
  readonly #graph: Graph;
  readonly #quantisation: Quantisation;
  readonly #nodes: GraphNode[] = [];
  readonly #initialisers: Map<string, Tensor>;
  readonly #scales = new Map<string, Scale>();

  constructor(graph: Graph, quantisation: Quantisation) {
    this.#graph = graph;
    this.#quantisation = quantisation;
    this.#initialisers = new Map(graph.initialisers);
  }

  run(): Graph {
    const { input, float32 } = this.#quantisation;
    const inputIsExact = input !== undefined;
    const plan = planQuantisation(this.#graph, { inputIsExact, float32 });
    const measured = new Set(plan.measured);
    if (input !== undefined) this.#narrow(onlyInput(this.#graph).name, input);
    for (const node of this.#graph.nodes) {
      const [output] = node.outputs;
      const inputs = node.inputs.map(name => (this.#scales.has(name) ? wide(name) : name));
      if (plan.convolutions.has(output)) this.#nodes.push(this.#convolution(node, inputs));
      else this.#nodes.push({ ...node, inputs });
      const shared = plan.sharing.get(output);
      if (shared !== undefined) this.#narrow(output, this.#scaleOf(shared));
      else if (measured.has(output)) this.#narrow(output, this.#measuredScale(output));
    }
    const [nodes, initialisers] = [this.#nodes, this.#initialisers];
    return removeUnused({ ...this.#graph, nodes, initialisers });
  }

  /** This pair tells the runtime that a value may be bytes. */
  #narrow(name: string, value: Scale): void {
    const scale = this.#add(`${name}.scale`, float32Tensor([value.scale], []));
    const zeroPoint = this.#add(`${name}.zero`, byteTensor(value.zeroPoint));
    const narrow = `${name}.bytes`;
    this.#nodes.push(linear('QuantizeLinear', [name, scale, zeroPoint], narrow));
    this.#nodes.push(linear('DequantizeLinear', [narrow, scale, zeroPoint], wide(name)));
    this.#scales.set(name, value);
  }

  #convolution(node: GraphNode, inputs: readonly string[]): GraphNode {
    const [data = '', weights = '', bias = ''] = node.inputs;
    const [output] = node.outputs;
    const floatWeights = this.#requireFloats(weights);
    const floatBias = bias === '' ? undefined : this.#requireFloats(bias).values;
    const biases = Array.from(floatBias ?? new Float32Array(floatWeights.dims[0] ?? 0));
    const dataScale = this.#scaleOf(data).scale;
    const scaleMins = biases.map(value => Math.abs(value) / (BIAS_STEPS_MAX * dataScale));
    const { values, scales } = quantiseWeights(floatWeights.values, scaleMins);
    const quantised = { elementType: ElementType.int8, dims: floatWeights.dims, data: values };
    // Named after the convolution, since another one may read the same weights.
    const wideWeights = this.#widen(`${output}.weights`, quantised, scales);
    const [wideData = ''] = inputs;
    if (floatBias === undefined) return { ...node, inputs: [wideData, wideWeights] };
    const biasScales = scales.map(scale => Math.fround(scale * dataScale));
    const steps = biases.map((value, channel) => Math.round(value / (biasScales[channel] ?? 1)));
    const biasTensor = {
      elementType: ElementType.int32,
      dims: [steps.length],
      data: new Uint8Array(Int32Array.from(steps).buffer),
    };
    const wideBias = this.#widen(`${output}.bias`, biasTensor, biasScales);
    return { ...node, inputs: [wideData, wideWeights, wideBias] };
  }

  #widen(name: string, tensor: Tensor, scales: readonly number[]): string {
    const bytesAValue = tensor.elementType === ElementType.int32 ? 4 : 1;
    const inputs = [
      this.#add(`${name}.steps`, tensor),
      this.#add(`${name}.scales`, float32Tensor(scales, [scales.length])),
      this.#add(`${name}.zeros`, {
        elementType: tensor.elementType,
        dims: [scales.length],
        data: new Uint8Array(scales.length * bytesAValue),
      }),
    ];
    const node = linear('DequantizeLinear', inputs, name);
    this.#nodes.push({ ...node, attributes: [integer('axis', 0)] });
    return name;
  }

  #requireFloats(name: string) {
    const tensor = this.#graph.initialisers.get(name);
    if (tensor?.elementType !== ElementType.float32) {
      throw new ModelError('prepare', `${name} is not a float32 constant`);
    }
    // Copied: a view of the file may not be aligned to four bytes.
    const values = new Float32Array(new Uint8Array(tensor.data).buffer);
    return { dims: tensor.dims, values };
  }

  #scaleOf(name: string): Scale {
    const scale = this.#scales.get(name);
    if (scale === undefined) throw new ModelError('prepare', `${name} has no range`);
    return scale;
  }

  #measuredScale(name: string): Scale {
    const range = this.#quantisation.ranges.get(name);
    if (range === undefined) throw new ModelError('prepare', `the ranges do not have ${name}`);
    return scaleOfRange(range);
  }

  #add(name: string, tensor: Tensor): string {
    this.#initialisers.set(name, tensor);
    return name;
  }
}

function wide(name: string): string {
  return `${name}.wide`;
}

export function scaleOfRange([lower, upper]: Range): Scale {
  const scale = Math.fround(Math.max(SCALE_MIN, (upper - lower) / BYTE_STEPS));
  return { scale, zeroPoint: Math.max(0, Math.min(BYTE_STEPS, Math.round(-lower / scale))) };
}

function quantiseWeights(
  values: Float32Array,
  scaleMins: readonly number[],
): { readonly values: Uint8Array; readonly scales: readonly number[] } {
  const each = values.length / scaleMins.length;
  const steps = new Int8Array(values.length);
  const scales = scaleMins.map((scaleMin, channel) => {
    const from = channel * each;
    // For 44 million weights an indexed loop is 0.6 s faster than for-of.
    let greatest = 0;
    for (let i = from; i < from + each; i++) greatest = Math.max(greatest, Math.abs(values[i]!));
    const scale = Math.fround(Math.max(SCALE_MIN, scaleMin, greatest / WEIGHT_STEPS));
    for (let i = from; i < from + each; i++) {
      const step = Math.round(values[i]! / scale);
      steps[i] = Math.max(-WEIGHT_STEPS, Math.min(WEIGHT_STEPS, step));
    }
    return scale;
  });
  return { values: new Uint8Array(steps.buffer), scales };
}

function byteTensor(value: number): Tensor {
  return { elementType: ElementType.uint8, dims: [], data: Uint8Array.of(value) };
}

function linear(opType: string, inputs: readonly string[], output: string): GraphNode {
  return { ...nodeOf(opType, inputs, output), name: `${opType} of ${output}` };
}
