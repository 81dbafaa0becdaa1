/**
 * The ONNX Runtime sessions of a model, one for each number of pictures that it takes at once:
 * loads prepared graphs and turns model-size RGB into alpha. It runs in an engine's process alone,
 * because run() blocks its thread's event loop for its whole length, has no cancel, and gives
 * memory back only by exit.
 */
import { hashFile } from '../../models/cache-files.ts';
import type { SessionSpec } from '../engine-protocol.ts';
import { type GraphEnds, type GraphInput, graphEnds } from './graph-ends.ts';
import { env, InferenceSession, Tensor } from './onnx-runtime.ts';

// Before the first session: ONNX Runtime writes to stderr what it logs, and warns of what is
// normal.
env.logLevel = 'error';
const LOG_SEVERITY_ERROR = 3;

/** A GPU's first run chooses kernels and allocates: the second shows what a run takes. */
const WARM_UP_RUNS_CPU = 1;
const WARM_UP_RUNS_GPU = 2;

/**
 * How long a thread spins for the others of its engine, microseconds, where engines of other models
 * run on its cores: what it waits for is then often a thread that another engine keeps from
 * running. With the plan `standard` on two cores a saturated node made 1.07 times the images a
 * second (five rounds, 1.02 to 1.13), and one caller waited no longer.
 */
const SHARED_SPIN_US = '300';

/**
 * Two things are left as they are. Spinning threads, where a model has the cores for itself:
 * without them ISNet took 3 % longer alone and 3 to 5 % less beside a busy process, on two cores.
 * The optimised graph is not saved: loaded again it takes 0.25 s instead of 0.5, but is a second
 * file of 176 MB, bound to the instruction set and the version of the runtime, and what it saves in
 * memory spawn-engine-child.ts saves too.
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

/**
 * The file was checked when the node started, but an engine that died is loaded again hours later:
 * by then a disk may have lost a bit, or another release on the same cache have made its own file
 * of the same name. 0.15 s for 176 MB.
 */
async function requireUnaltered(path: string, sha256: string | undefined): Promise<void> {
  if (sha256 === undefined) return;
  if ((await hashFile(path)) === sha256) return;
  throw new Error(`${path} was altered since it was checked and is not loaded`);
}

export class EngineSession {
  /** By the number of pictures. */
  readonly #graphs: ReadonlyMap<number, LoadedGraph>;
  readonly #rgbBytes: number;

  private constructor(graphs: ReadonlyMap<number, LoadedGraph>, spec: SessionSpec) {
    this.#graphs = graphs;
    this.#rgbBytes = 3 * spec.inputWidth * spec.inputHeight;
  }

  /**
   * Loads and warms up. Models come by path, since a buffer would hold the weights twice; `graph`
   * is a probe's.
   */
  static async load(
    spec: SessionSpec,
    graph?: Uint8Array,
  ): Promise<{ session: EngineSession; warmMs: number }> {
    const source = spec.path ?? graph;
    if (source === undefined) throw new Error('neither a path nor a graph to load');
    if (spec.path !== undefined) await requireUnaltered(spec.path, spec.sha256);
    const graphs = new Map([[1, await loadGraph(spec, source, 1)]]);
    for (const { images, path, sha256 } of spec.batches ?? []) {
      await requireUnaltered(path, sha256);
      graphs.set(images, await loadGraph(spec, path, images));
    }
    const session = new EngineSession(graphs, spec);
    // One at a time last: the next picture comes alone.
    let warmMs = 0;
    for (const images of [...graphs.keys()].reverse()) {
      warmMs = await session.#warmUp(images, spec.provider);
    }
    return { session, warmMs };
  }

  /**
   * @param pictures HWC bytes of the model's input size, as many as one of its graphs takes.
   * @returns of each picture one byte a pixel, good until the next run: they must have left before.
   */
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

  /** Returns the time of the last run, ms. */
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
 * Of CUDA every node is expected to have a kernel: one without runs on a core, its tensors are
 * copied there and back in each run, and the runtime says so nowhere that we log. It does run, so
 * that is told and no more. TensorRT would build its kernels twice for it.
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
