/**
 * Chooses the provider. Nothing falls back silently: a provider that the operator names runs, or
 * the node does not start. A driver may hang or crash, so a separate process first runs a small
 * graph on the GPU, and its answer is compared with the CPU's.
 */
import type { ExecutionProvider } from '../../models/prepared-model.ts';
import { drawCheckPicture, type Matte } from '../../prepared/answer-check.ts';
import { encodeProbeGraph, PROBE_SIZE_PX, PROBE_SPEC } from './gpu-probe-graph.ts';
import { runOnce } from './run-once.ts';

type RequestedProvider = 'auto' | ExecutionProvider;

/**
 * A cold CUDA context on a host of many GPUs takes over ten seconds. The first start reads 1.3 GB
 * of libraries, half a minute from a slow disk.
 */
export const PROBE_TIMEOUT_MS = 120_000;

export interface ProviderChoice {
  readonly requested: RequestedProvider;
  readonly selected: ExecutionProvider;
  readonly fallbacks: readonly { readonly provider: ExecutionProvider; readonly reason: string }[];
}

interface ProbeOptions {
  readonly childEnv: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

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
  if (requested === 'cpu') return { requested, selected: 'cpu', fallbacks: [] };
  const reason = await probeCuda(options);
  if (reason === undefined) return { requested, selected: 'cuda', fallbacks: [] };
  if (requested === 'cuda') throw new ExecutionProviderError('cuda', reason);
  return { requested, selected: 'cpu', fallbacks: [{ provider: 'cuda', reason }] };
}

/** Returns in one line why CUDA does not run; undefined: it runs. */
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

/** Levels of 255. Rounding moves a matte by well under one, a wrong backend by tens. */
const PARITY_MEAN_DIFFERENCE_MAX = 2;

export function compareAlphas(one: Uint8Array, other: Uint8Array) {
  if (one.length !== other.length) throw new Error('alphas of different sizes');
  let sum = 0;
  let max = 0;
  for (let i = 0; i < one.length; i++) {
    const difference = Math.abs(one[i]! - other[i]!);
    sum += difference;
    if (difference > max) max = difference;
  }
  return { mean: sum / one.length, max };
}
