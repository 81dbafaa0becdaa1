/**
 * Which execution provider the node runs on. The only place that chooses.
 *
 * Neither ONNX Runtime's binding nor we fall back in silence: one asked for by name runs or the
 * node does not start; `auto` tries CUDA, then takes the CPU, and says why.
 * A driver may hang or crash, so a GPU is tried in a process of its own, on a small graph of the
 * models' operators, and its answer held against the CPU's.
 */
import type { ExecutionProvider } from '../../models/prepared-model.ts';
import {
  ElementType,
  elementCount,
  encodeModel,
  float32Tensor,
  integer,
  integers,
  nodeOf,
  text,
} from '../../onnx/graph.ts';
import { drawCheckPicture, type Matte } from '../../prepared/answer-check.ts';
import type { SessionSpec } from '../engine-protocol.ts';
import { runOnce } from './answer-picture.ts';

export const PROBE_SIZE_PX = 64;
const CHANNELS = 8;
const KERNEL = 3;
/** The models use this version, which came before ONNX 1.12: every provider knows it. */
const OPSET = 13;
const IR_VERSION = 7;

export const PROBE_SPEC: Omit<SessionSpec, 'provider'> = {
  path: undefined,
  sha256: undefined,
  inputName: 'input',
  outputName: 'output',
  inputWidth: PROBE_SIZE_PX,
  inputHeight: PROBE_SIZE_PX,
  normalisation: { mean: [128, 128, 128], std: [64, 64, 64] },
  colourOrder: 'rgb',
  activation: 'none',
  intraOpThreads: 1,
  sharesCores: false,
  // A GPU that leaves a convolution to the CPU is no GPU.
  allowCpuNodes: false,
};

/** A fixed sequence in [-0.5, 0.5): the lower bits of a linear congruential generator are poor. */
function createSequence(): () => number {
  let state = 1;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
}

export function encodeProbeGraph(): Uint8Array {
  const next = createSequence();
  const weights = (outputs: number, inputs: number) => {
    const dims = [outputs, inputs, KERNEL, KERNEL];
    return float32Tensor(Array.from({ length: elementCount(dims) }, next), dims);
  };
  const image = (name: string, channels: number) => ({
    name,
    elementType: ElementType.float32,
    dims: [1, channels, PROBE_SIZE_PX, PROBE_SIZE_PX],
  });
  const conv = (input: string, weight: string, output: string) =>
    nodeOf('Conv', [input, weight], output, [
      integers('kernel_shape', [KERNEL, KERNEL]),
      integers('pads', [1, 1, 1, 1]),
    ]);
  const pieces = encodeModel({
    irVersion: IR_VERSION,
    opsets: [{ domain: '', version: OPSET }],
    inputs: [image('input', 3)],
    outputs: [image('output', 1)],
    initialisers: new Map([
      ['w1', weights(CHANNELS, 3)],
      ['w2', weights(CHANNELS, CHANNELS)],
      ['w3', weights(1, 2 * CHANNELS)],
      ['scales', float32Tensor([1, 1, 2, 2], [4])],
    ]),
    nodes: [
      conv('input', 'w1', 'c1'),
      nodeOf('Relu', ['c1'], 'full'),
      nodeOf('MaxPool', ['full'], 'half', [
        integers('kernel_shape', [2, 2]),
        integers('strides', [2, 2]),
      ]),
      conv('half', 'w2', 'c2'),
      nodeOf('Relu', ['c2'], 'deep'),
      nodeOf('Resize', ['deep', '', 'scales'], 'up', [
        text('mode', 'linear'),
        text('coordinate_transformation_mode', 'half_pixel'),
      ]),
      nodeOf('Concat', ['full', 'up'], 'both', [integer('axis', 1)]),
      conv('both', 'w3', 'logits'),
      nodeOf('Sigmoid', ['logits'], 'output'),
    ],
  });
  return Buffer.concat([...pieces]);
}

type RequestedProvider = 'auto' | ExecutionProvider;

/**
 * A cold CUDA context on a host of many GPUs takes ten seconds and more, and the first start reads
 * 1.3 GB of libraries, half a minute from a slow disk; longer is a hang.
 */
export const PROBE_TIMEOUT_MS = 120_000;

export interface ProviderChoice {
  readonly requested: RequestedProvider;
  readonly selected: ExecutionProvider;
  /** The providers that `auto` tried before, and in one line why they do not run here. */
  readonly fallbacks: readonly { readonly provider: ExecutionProvider; readonly reason: string }[];
}

interface ProbeOptions {
  readonly childEnv: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

/** CUDA's part of the runtime is not in the npm package. */
const NOT_INSTALLED = /libonnxruntime_providers_\w+\.so is missing/;
const HOW_TO_INSTALL = ': it is installed by "matting providers install cuda", see docs/gpu.md';

export class ExecutionProviderError extends Error {
  readonly provider: ExecutionProvider;
  readonly reason: string;

  constructor(provider: ExecutionProvider, reason: string, cause?: unknown) {
    super(`execution provider ${provider} does not run here: ${reason}`, { cause });
    this.name = 'ExecutionProviderError';
    this.provider = provider;
    this.reason = reason;
  }
}

export async function selectExecutionProvider(
  requested: RequestedProvider,
  options: ProbeOptions,
): Promise<ProviderChoice> {
  // The CPU's is in the package, and the engine's own load shows the rest.
  if (requested === 'cpu') return { requested, selected: 'cpu', fallbacks: [] };
  const reason = await probeCuda(options);
  if (reason === undefined) return { requested, selected: 'cuda', fallbacks: [] };
  if (requested === 'cuda') throw new ExecutionProviderError('cuda', reason);
  return { requested, selected: 'cpu', fallbacks: [{ provider: 'cuda', reason }] };
}

/** Returns undefined if CUDA runs; else in one line why it does not. */
async function probeCuda(options: ProbeOptions): Promise<string | undefined> {
  const { childEnv, timeoutMs = PROBE_TIMEOUT_MS } = options;
  const graph = encodeProbeGraph();
  const rgb = drawCheckPicture(PROBE_SIZE_PX, PROBE_SIZE_PX);
  const runOn = (provider: ExecutionProvider) => {
    const allowCpuNodes = provider === 'cpu';
    const spec = { ...PROBE_SPEC, provider, allowCpuNodes };
    return runOnce({ spec, graph, rgb, childEnv, timeoutMs });
  };
  let answer: Matte;
  try {
    answer = await runOn('cuda');
  } catch (error) {
    const { message } = error as Error;
    return NOT_INSTALLED.test(message) ? message + HOW_TO_INSTALL : message;
  }
  return differenceFrom(await runOn('cpu'), answer);
}

function differenceFrom(expected: Matte, actual: Matte): string | undefined {
  const { mean, max } = compareAlphas(expected.alpha, actual.alpha);
  if (mean <= PARITY_MEAN_DIFFERENCE_MAX) return undefined;
  const levels = `mean difference ${mean.toFixed(1)}, max ${max} of 255`;
  return `it computes another matte than the CPU (${levels})`;
}

/** Levels of 255: rounding moves a matte by well under one, a wrong backend by tens. */
const PARITY_MEAN_DIFFERENCE_MAX = 2;

export function compareAlphas(one: Uint8Array, other: Uint8Array) {
  if (one.length !== other.length) throw new Error('alphas of different sizes');
  let sum = 0;
  let max = 0;
  for (let i = 0; i < one.length; i++) {
    // Without checks: both have the same length.
    const difference = Math.abs(one[i]! - other[i]!);
    sum += difference;
    if (difference > max) max = difference;
  }
  return { mean: sum / one.length, max };
}
