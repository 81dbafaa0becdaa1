/**
 * A model's ONNX Runtime sessions, one for each number of pictures that it takes at once. In an
 * engine's process alone: run() blocks its thread, has no cancel, and gives memory back only by
 * exit.
 */

import assert from 'node:assert/strict';
import { hashFile } from '../../models/cache-files.ts';
import {
  ALPHA_OUTPUT,
  type Normalisation,
  type PreparedModel,
  RGB_INPUT,
  SUM_OUTPUT,
} from '../../models/prepared-model.ts';
import type { SessionSpec } from '../engine-protocol.ts';
import { env, InferenceSession, Tensor } from './onnx-runtime.ts';

// Before the first session: ONNX Runtime warns on stderr of what is normal.
env.logLevel = 'error';
const LOG_SEVERITY_ERROR = 3;

/** A GPU's first run chooses kernels and allocates: the second shows what a run takes. */
const WARM_UP_RUNS_CPU = 1;
const WARM_UP_RUNS_GPU = 2;

/**
 * How long a thread spins for the others of its engine, microseconds, where engines of other models
 * run on its cores. The plan `standard` on two saturated cores made 1.07 times the images a second
 * (five rounds, 1.02 to 1.13), and one caller waited no longer.
 */
const SHARED_SPIN_US = '300';

/**
 * Left as they are: spinning where a model has the cores for itself (without it ISNet took 3 %
 * longer alone, 3 to 5 % less beside a busy process, on two cores); the optimised graph, not saved
 * (loading 0.25 s instead of 0.5, for a second 176 MB bound to instruction set and runtime).
 */
function sessionOptions(spec: SessionSpec): InferenceSession.SessionOptions {
  return {
    executionProviders: executionProviders(spec),
    graphOptimizationLevel: 'all',
    executionMode: 'sequential',
    // Left unset it is the host's cores, whatever the cgroup allows.
    intraOpNumThreads: spec.intraOpThreads,
    interOpNumThreads: 1,
    // On, a session of ISNet at 1024x1024 holds twice the memory (1.8 GB), and is no faster.
    enableMemPattern: false,
    logSeverityLevel: LOG_SEVERITY_ERROR,
    // Values are strings, or they are ignored.
    extra: {
      session: {
        ...(spec.allowCpuNodes ? {} : { disable_cpu_ep_fallback: '1' }),
        ...(spec.sharesCores ? { intra_op: { spin_duration_us: SHARED_SPIN_US } } : {}),
      },
    },
  };
}

/** TensorRT leaves to CUDA what it has no kernel for; without CUDA behind it that went to the CPU. */
function executionProviders({ provider }: SessionSpec) {
  return provider === 'tensorrt' ? ['tensorrt', 'cuda'] : [provider];
}

/** Again: it may load hours after the start's check, from a worse disk. 0.15 s for 176 MB. */
async function requireUnaltered(path: string, sha256: string | undefined): Promise<void> {
  if (sha256 === undefined) return;
  if ((await hashFile(path)) === sha256) return;
  throw new Error(`${path} was altered since it was checked and is not loaded`);
}

export class LoadedModel {
  readonly #graphs: ReadonlyMap<number, LoadedGraph>;
  readonly #rgbBytes: number;

  private constructor(graphs: ReadonlyMap<number, LoadedGraph>, spec: SessionSpec) {
    this.#graphs = graphs;
    this.#rgbBytes = 3 * spec.inputWidth * spec.inputHeight;
  }

  /** Models come by path: a buffer would hold the weights twice. `graph` is a probe's. */
  static async load(
    spec: SessionSpec,
    graph?: Uint8Array,
  ): Promise<{ model: LoadedModel; warmMs: number }> {
    const source = spec.path ?? graph;
    if (source === undefined) throw new Error('neither a path nor a graph to load');
    if (spec.path !== undefined) await requireUnaltered(spec.path, spec.sha256);
    const graphs = new Map([[1, await loadGraph(spec, source, 1)]]);
    for (const { images, path, sha256 } of spec.batches ?? []) {
      await requireUnaltered(path, sha256);
      graphs.set(images, await loadGraph(spec, path, images));
    }
    const model = new LoadedModel(graphs, spec);
    // One at a time last: the next picture comes alone.
    let warmMs = 0;
    for (const images of [...graphs.keys()].reverse()) {
      warmMs = await model.#warmUp(images, spec.provider);
    }
    return { model, warmMs };
  }

  /** HWC bytes, as many as a graph takes. @returns alphas, good until the next run. */
  async run(pictures: readonly Uint8Array[]): Promise<readonly Uint8Array[]> {
    const graph = this.#graphs.get(pictures.length);
    if (graph === undefined) throw new Error(`no graph takes ${pictures.length} pictures at once`);
    for (const { length } of pictures) {
      if (length === this.#rgbBytes) continue;
      throw new Error(`${length} bytes of RGB where the model takes ${this.#rgbBytes}`);
    }
    const { native, ends } = graph;
    const feeds = { [ends.inputName]: tensorOf(ends.input(pictures)) };
    return ends.alphas(await native.run(feeds, ends.outputNames));
  }

  async #warmUp(images: number, provider: SessionSpec['provider']): Promise<number> {
    const grey = Buffer.alloc(this.#rgbBytes, 128);
    const pictures = Array.from({ length: images }, () => grey);
    let warmMs = 0;
    for (let i = 0; i < (provider === 'cpu' ? WARM_UP_RUNS_CPU : WARM_UP_RUNS_GPU); i++) {
      const start = performance.now();
      await this.run(pictures);
      warmMs = performance.now() - start;
    }
    return warmMs;
  }
}

interface LoadedGraph {
  readonly native: InferenceSession;
  readonly ends: GraphEnds;
}

async function loadGraph(
  spec: SessionSpec,
  source: string | Uint8Array,
  images: number,
): Promise<LoadedGraph> {
  const native = await createNative(spec, source);
  const ends = graphEnds(spec, native.inputNames, images);
  requireNames(native, ends);
  return { native, ends };
}

/** What the runtime says of a graph of which a node has no kernel on the provider. */
const NODES_ON_CPU = /\bnodes that are assigned to the default CPU EP\b/;

/**
 * A node without a kernel of CUDA runs on a core, with copies both ways, and the runtime says so
 * nowhere that we log: so it is told. TensorRT would build its kernels twice for it.
 */
async function createNative(
  spec: SessionSpec,
  source: string | Uint8Array,
): Promise<InferenceSession> {
  if (spec.provider !== 'cuda' || !spec.allowCpuNodes) return await create(spec, source);
  try {
    return await create({ ...spec, allowCpuNodes: false }, source);
  } catch (error) {
    if (!NODES_ON_CPU.test((error as Error).message)) throw error;
    const which = typeof source === 'string' ? source : 'the graph';
    process.stderr.write(`${which} has operators without a kernel of CUDA: they run on the CPU\n`);
    return await create(spec, source);
  }
}

function create(spec: SessionSpec, source: string | Uint8Array): Promise<InferenceSession> {
  const options = sessionOptions(spec);
  return typeof source === 'string'
    ? InferenceSession.create(source, options)
    : InferenceSession.create(source, options);
}

function requireNames(
  { inputNames, outputNames }: InferenceSession,
  { inputName, outputNames: wanted }: GraphEnds,
): void {
  if (!inputNames.includes(inputName) || inputNames.length !== 1) {
    throw new Error(`the graph's inputs are ${inputNames.join(', ')}, not ${inputName}`);
  }
  const missing = wanted.find(name => !outputNames.includes(name));
  if (missing !== undefined) {
    throw new Error(`the graph's outputs are ${outputNames.join(', ')}, without ${missing}`);
  }
}

function tensorOf(input: GraphInput): Tensor {
  const { dims } = input;
  return input.type === 'uint8'
    ? new Tensor('uint8', input.data, dims)
    : new Tensor('float32', input.data, dims);
}

/* One made for another device takes bytes (model-tools/onnx/rewrites.ts), others floats. */

interface GraphValue {
  readonly type: string;
  readonly dims: readonly number[];
  readonly data: unknown;
}

type GraphInput =
  | (GraphValue & { readonly type: 'uint8'; readonly data: Uint8Array })
  | (GraphValue & { readonly type: 'float32'; readonly data: Float32Array });

interface GraphEnds {
  readonly inputName: string;
  readonly outputNames: readonly string[];
  /** @param pictures as many as the graph takes, each HWC bytes of the model's input size. */
  input(pictures: readonly Uint8Array[]): GraphInput;
  /** Good until the next run. Throws where an answer has another shape, or is not of numbers. */
  alphas(outputs: Readonly<Record<string, GraphValue>>): readonly Uint8Array[];
}

function graphEnds(spec: SessionSpec, inputNames: readonly string[], images: number): GraphEnds {
  return inputNames.includes(RGB_INPUT) ? byteEnds(spec, images) : floatEnds(spec, images);
}

function byteEnds({ inputWidth, inputHeight }: SessionSpec, images: number): GraphEnds {
  const pixels = inputWidth * inputHeight;
  // One picture is taken where it lies.
  const joined = images === 1 ? undefined : new Uint8Array(images * 3 * pixels);
  return {
    inputName: RGB_INPUT,
    outputNames: [ALPHA_OUTPUT, SUM_OUTPUT],
    input(pictures) {
      const [first] = pictures;
      for (const [index, rgb] of pictures.entries()) joined?.set(rgb, index * 3 * pixels);
      const data = joined ?? (first as Uint8Array);
      return { type: 'uint8', dims: [images, inputHeight, inputWidth, 3], data };
    },
    alphas(outputs) {
      const sum = outputOf(outputs, SUM_OUTPUT, 'float64', []).data as Float64Array;
      requireNumbers(!Number.isNaN(sum[0]));
      const dims = [images, 1, inputHeight, inputWidth];
      return slices(outputOf(outputs, ALPHA_OUTPUT, 'uint8', dims).data as Uint8Array, images);
    },
  };
}

function floatEnds(spec: SessionSpec, images: number): GraphEnds {
  const { inputName, outputName, inputWidth, inputHeight } = spec;
  const { normalisation, colourOrder, activation } = spec;
  const pixels = inputWidth * inputHeight;
  const tables = createPlaneTables(normalisation, colourOrder);
  const planes = new Float32Array(images * 3 * pixels);
  const inputDims = [images, 3, inputHeight, inputWidth];
  const outputDims = [images, 1, inputHeight, inputWidth];
  const alpha = Buffer.alloc(images * pixels);
  const clamped = new Uint8ClampedArray(alpha.buffer, alpha.byteOffset, alpha.length);
  const alphas = slices(alpha, images);
  return {
    inputName,
    outputNames: [outputName],
    input(pictures) {
      for (const [index, rgb] of pictures.entries()) {
        fillPlanes(rgb, planes.subarray(index * 3 * pixels, (index + 1) * 3 * pixels), tables);
      }
      return { type: 'float32', dims: inputDims, data: planes };
    },
    alphas(outputs) {
      const { data } = outputOf(outputs, outputName, 'float32', outputDims);
      requireNumbers(fillAlpha(data as Float32Array, clamped, activation));
      return alphas;
    },
  };
}

function slices(bytes: Uint8Array, images: number): readonly Uint8Array[] {
  const each = bytes.length / images;
  return Array.from({ length: images }, (_, index) =>
    bytes.subarray(index * each, (index + 1) * each),
  );
}

function outputOf(
  outputs: Readonly<Record<string, GraphValue>>,
  name: string,
  type: string,
  dims: readonly number[],
): GraphValue {
  const output = outputs[name];
  assert(output !== undefined, 'the graph has the output: its names were checked');
  const shape = output.dims.join('x');
  const wanted = dims.join('x');
  if (output.type === type && shape === wanted) return output;
  throw new Error(`the graph's output is ${output.type} ${shape}, not ${type} ${wanted}`);
}

function requireNumbers(holds: boolean): void {
  if (!holds) throw new Error('the model answered with values that are not numbers');
}

/**
 * Pure, and tight: once an image on a thread that could be inferring. At 1024x1024 (one core of an
 * AMD EPYC, median of 30) 3.3 ms in, 1.5 ms out: a pass a plane over a table beats arithmetic.
 */

const CHANNELS = 3;
const VALUES = 256;

/** For each plane of the tensor: which byte of a pixel it is made of, and each byte's float. */
interface PlaneTable {
  readonly sourceChannel: number;
  readonly values: Float32Array;
}

export function createPlaneTables(
  normalisation: Normalisation,
  colourOrder: PreparedModel['colourOrder'],
): PlaneTable[] {
  // The normalisation is given in RGB order; only the planes' order follows the model.
  const order = colourOrder === 'rgb' ? ([0, 1, 2] as const) : ([2, 1, 0] as const);
  return order.map(sourceChannel => {
    const mean = normalisation.mean[sourceChannel];
    const std = normalisation.std[sourceChannel];
    const values = Float32Array.from({ length: VALUES }, (_, value) => (value - mean) / std);
    return { sourceChannel, values };
  });
}

/** HWC bytes to normalised CHW floats. `planes` has 3 floats for each pixel of `rgb`. */
export function fillPlanes(
  rgb: Uint8Array,
  planes: Float32Array,
  tables: readonly PlaneTable[],
): void {
  const pixels = rgb.length / CHANNELS;
  for (const [index, { sourceChannel, values }] of tables.entries()) {
    const plane = planes.subarray(index * pixels, (index + 1) * pixels);
    // Without checks: `at` stays below rgb.length, and a byte is below VALUES.
    for (let i = 0, at = sourceChannel; i < pixels; i++, at += CHANNELS) {
      plane[i] = values[rgb[at]!]!;
    }
  }
}

/** Clamped to [0, 1], then rounded; never rescaled. False: a value was not a number. */
export function fillAlpha(
  matte: Float32Array,
  alpha: Uint8ClampedArray,
  activation: PreparedModel['activation'],
): boolean {
  // Not a number once a term is not; infinities of both signs make one too.
  let sum = 0;
  // Without checks: i stays below matte.length.
  if (activation === 'sigmoid') {
    for (let i = 0; i < matte.length; i++) {
      const value = 1 / (1 + Math.exp(-matte[i]!));
      sum += value;
      alpha[i] = value * 255;
    }
  } else {
    for (let i = 0; i < matte.length; i++) {
      const value = matte[i]!;
      sum += value;
      alpha[i] = value * 255;
    }
  }
  return !Number.isNaN(sum);
}
