/**
 * One ONNX Runtime session: loads a prepared graph and turns model-size RGB into alpha. The only
 * file that imports onnxruntime-node; it runs in an engine's process alone, because run() blocks
 * its thread's event loop for its whole length, has no cancel, and gives memory back only by exit.
 */
import { env, InferenceSession, Tensor } from 'onnxruntime-node';
import { hashFile } from '../../models/cache-files.ts';
import type { SessionSpec } from '../engine-protocol.ts';
import { type GraphEnds, type GraphInput, graphEnds } from './graph-ends.ts';

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
function executionProviders({ provider, deviceId }: SessionSpec) {
  if (provider === 'tensorrt') {
    return [
      { name: 'tensorrt', deviceId },
      { name: 'cuda', deviceId },
    ];
  }
  return [provider === 'cuda' ? { name: provider, deviceId } : provider];
}

/**
 * The file was checked when the node started, but an engine that died is loaded again hours later:
 * by then a disk may have lost a bit, or another release on the same cache have made its own file
 * of the same name. 0.15 s for 176 MB.
 */
async function requireUnaltered({ path, sha256 }: SessionSpec): Promise<void> {
  if (path === undefined || sha256 === undefined) return;
  if ((await hashFile(path)) === sha256) return;
  throw new Error(`${path} was altered since it was checked and is not loaded`);
}

export class EngineSession {
  readonly #session: InferenceSession;
  readonly #ends: GraphEnds;
  readonly #rgbBytes: number;

  private constructor(session: InferenceSession, spec: SessionSpec) {
    this.#session = session;
    this.#ends = graphEnds(spec, session.inputNames);
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
    await requireUnaltered(spec);
    const options = sessionOptions(spec);
    const native =
      typeof source === 'string'
        ? await InferenceSession.create(source, options)
        : await InferenceSession.create(source, options);
    const session = new EngineSession(native, spec);
    session.#requireNames();
    const grey = Buffer.alloc(session.#rgbBytes, 128);
    let warmMs = 0;
    for (let i = 0; i < (spec.provider === 'cpu' ? WARM_UP_RUNS_CPU : WARM_UP_RUNS_GPU); i++) {
      const start = performance.now();
      await session.run(grey);
      warmMs = performance.now() - start;
    }
    return { session, warmMs };
  }

  /**
   * @param rgb HWC bytes of the model's input size.
   * @returns one byte a pixel; good until the next run, so it must have left before.
   */
  async run(rgb: Uint8Array): Promise<Uint8Array> {
    if (rgb.length !== this.#rgbBytes) {
      throw new Error(`${rgb.length} bytes of RGB where the model takes ${this.#rgbBytes}`);
    }
    const { inputName, outputNames } = this.#ends;
    const feeds = { [inputName]: tensorOf(this.#ends.input(rgb)) };
    return this.#ends.alpha(await this.#session.run(feeds, outputNames));
  }

  #requireNames(): void {
    const { inputName, outputNames: wanted } = this.#ends;
    const { inputNames, outputNames } = this.#session;
    if (!inputNames.includes(inputName) || inputNames.length !== 1) {
      throw new Error(`the graph's inputs are ${inputNames.join(', ')}, not ${inputName}`);
    }
    const missing = wanted.find(name => !outputNames.includes(name));
    if (missing !== undefined) {
      throw new Error(`the graph's outputs are ${outputNames.join(', ')}, without ${missing}`);
    }
  }
}

function tensorOf(input: GraphInput): Tensor {
  const { dims } = input;
  return input.type === 'uint8'
    ? new Tensor('uint8', input.data, dims)
    : new Tensor('float32', input.data, dims);
}
