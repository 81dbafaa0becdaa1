/**
 * A model's ONNX Runtime session. It is in an engine's process alone: run() blocks its thread, has
 * no cancel, and gives memory back only by exit.
 */

import type { Size } from '@matting/proto/contract/finishing.ts';
import { hashFile } from '../../models/cache-files.ts';
import { drawCheckInput } from '../../prepared/answer-check.ts';
import type { Answer, SessionSpec } from '../engine-protocol.ts';
import { formEnds } from './form-ends.ts';
import { type GraphEnds, type GraphInput, preparedEnds } from './graph-ends.ts';
import { env, InferenceSession, Tensor } from './onnx-runtime.ts';

// Set this before the first session: ONNX Runtime warns on stderr of normal things.
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

/** The settings of a graph's session that do not depend on its tensors. */
export type RuntimeSpec = Pick<
  SessionSpec,
  'provider' | 'intraOpThreads' | 'sharesCores' | 'allowCpuNodes' | 'keepsNoMemory'
>;

/**
 * Left as they are: spinning where a model has the cores for itself (without it ISNet took 3 %
 * longer alone, 3 to 5 % less beside a busy process, on two cores); the optimised graph, not saved
 * (loading 0.25 s instead of 0.5, for a second 176 MB bound to instruction set and runtime).
 */
function sessionOptions(spec: RuntimeSpec): InferenceSession.SessionOptions {
  return {
    executionProviders: executionProviders(spec),
    graphOptimizationLevel: 'all',
    executionMode: 'sequential',
    // Left unset it is the host's cores, whatever the cgroup allows.
    intraOpNumThreads: spec.intraOpThreads,
    interOpNumThreads: 1,
    // With the pattern, a session of ISNet at 1024x1024 holds twice the memory (1.8 GB) and is no
    // faster.
    enableMemPattern: false,
    enableCpuMemArena: spec.keepsNoMemory !== true,
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
function executionProviders({ provider }: RuntimeSpec) {
  return provider === 'tensorrt' ? ['tensorrt', 'cuda'] : [provider];
}

/** Again: it may load hours after the start's check, from a worse disk. 0.15 s for 176 MB. */
async function requireUnaltered(path: string, sha256: string | undefined): Promise<void> {
  if (sha256 === undefined) return;
  if ((await hashFile(path)) === sha256) return;
  throw new Error(`${path} was altered since it was checked and is not loaded`);
}

/** The graph makes no matte of this picture alone: of another one it does. */
export class NoMatteError extends Error {
  constructor(cause: Error) {
    super(`${cause.message} for this picture`, { cause });
    this.name = 'NoMatteError';
  }
}

export class LoadedModel {
  readonly #graph: LoadedGraph;
  readonly #spec: SessionSpec;

  private constructor(graph: LoadedGraph, spec: SessionSpec) {
    this.#graph = graph;
    this.#spec = spec;
  }

  /** Models come by path: a buffer would hold the weights twice. `graph` is a probe's. */
  static async load(
    spec: SessionSpec,
    graph?: Uint8Array,
  ): Promise<{ model: LoadedModel; warmMs: number }> {
    const source = spec.path ?? graph;
    if (source === undefined) throw new Error('neither a path nor a graph to load');
    if (spec.path !== undefined) await requireUnaltered(spec.path, spec.sha256);
    for (const { path, sha256 } of spec.data ?? []) await requireUnaltered(path, sha256);
    const model = new LoadedModel(await loadGraph(spec, source), spec);
    return { model, warmMs: await model.#warmUp() };
  }

  /**
   * Takes HWC bytes. Returns an alpha that is good until the next run.
   *
   * A maker's graph may fail for one picture: it divides by zero over a flat one, its layers are
   * larger than a narrow one, it wants more memory than there is. The check picture then tells who
   * is at fault. If the graph still answers it, the engine is sound, and the picture is at fault.
   * @throws NoMatteError where the picture is at fault
   */
  async run(rgb: Uint8Array, size?: Size): Promise<Answer> {
    const input = this.#graph.ends.input(rgb, size);
    try {
      return await answerOf(this.#graph, input);
    } catch (error) {
      if (this.#spec.form === undefined || !(await this.#answersCheckPicture())) throw error;
      throw new NoMatteError(error as Error);
    }
  }

  async #answersCheckPicture(): Promise<boolean> {
    try {
      await answerOf(this.#graph, this.#graph.ends.input(this.#checkPicture()));
      return true;
    } catch {
      // The caller reports the first error, which says more than that it came again.
      return false;
    }
  }

  /**
   * A prepared graph gets flat grey, on which a graph that rescales by its least and most gives
   * 0/0.
   */
  #checkPicture(): Uint8Array {
    const { inputWidth, inputHeight, form } = this.#spec;
    if (form !== undefined) return drawCheckInput(this.#spec);
    return Buffer.alloc(3 * inputWidth * inputHeight, 128);
  }

  async #warmUp(): Promise<number> {
    const { provider } = this.#spec;
    const picture = this.#checkPicture();
    let warmMs = 0;
    for (let i = 0; i < (provider === 'cpu' ? WARM_UP_RUNS_CPU : WARM_UP_RUNS_GPU); i++) {
      const start = performance.now();
      await answerOf(this.#graph, this.#graph.ends.input(picture));
      warmMs = performance.now() - start;
    }
    return warmMs;
  }
}

interface LoadedGraph {
  readonly native: InferenceSession;
  readonly ends: GraphEnds;
}

async function answerOf({ native, ends }: LoadedGraph, input: GraphInput): Promise<Answer> {
  const feeds = { [ends.inputName]: tensorOf(input) };
  return ends.answer(await native.run(feeds, ends.outputNames));
}

async function loadGraph(spec: SessionSpec, source: string | Uint8Array): Promise<LoadedGraph> {
  const native = await createNative(spec, source);
  const { form, inputName, outputName } = spec;
  if (form === undefined) {
    const ends = preparedEnds(spec, native.inputNames);
    requireNames(native, ends);
    return { native, ends };
  }
  requireNames(native, { inputName, outputNames: [outputName] });
  const input = native.inputMetadata.find(({ name }) => name === inputName);
  const output = native.outputMetadata.find(({ name }) => name === outputName);
  if (!input || !output) throw new Error('the runtime does not describe its tensors');
  return { native, ends: formEnds(spec, form, { input, output }) };
}

/** The runtime says this of a graph if the provider has no kernel for one of its nodes. */
const NODES_ON_CPU = /\bnodes that are assigned to the default CPU EP\b/;

/**
 * A node without a kernel of CUDA runs on a core, with copies both ways, and the runtime reports
 * that nowhere that we log: so this writes a line. TensorRT would build its kernels twice for it.
 */
export async function createNative(
  spec: RuntimeSpec,
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

function create(spec: RuntimeSpec, source: string | Uint8Array): Promise<InferenceSession> {
  const options = sessionOptions(spec);
  return typeof source === 'string'
    ? InferenceSession.create(source, options)
    : InferenceSession.create(source, options);
}

function requireNames(
  { inputNames, outputNames }: InferenceSession,
  { inputName, outputNames: wanted }: Pick<GraphEnds, 'inputName' | 'outputNames'>,
): void {
  if (!inputNames.includes(inputName) || inputNames.length !== 1) {
    throw new Error(`the graph's inputs are ${inputNames.join(', ')}, not ${inputName}`);
  }
  const missing = wanted.find(name => !outputNames.includes(name));
  if (missing !== undefined) {
    throw new Error(`the graph's outputs are ${outputNames.join(', ')}, without ${missing}`);
  }
}

export function tensorOf(input: GraphInput): Tensor {
  const { dims } = input;
  if (input.type === 'uint8') return new Tensor('uint8', input.data, dims);
  if (input.type === 'float32') return new Tensor('float32', input.data, dims);
  const { buffer, byteOffset, length } = input.data;
  const bits = new Uint16Array(buffer, byteOffset, length);
  // A tensor makes a Float16Array of them, of which the binding sees no byte.
  return Object.defineProperty(new Tensor('float16', bits, dims), 'data', { value: bits });
}
