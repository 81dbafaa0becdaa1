/** Loads graphs by ONNX Runtime. */

import type { GraphInput } from './graph-ends.ts';
import { env, InferenceSession, Tensor } from './onnx-runtime.ts';
import type { RuntimeSpec, Session } from './session.ts';

// Set this before the first session: ONNX Runtime warns on stderr of normal things.
env.logLevel = 'error';
const LOG_SEVERITY_ERROR = 3;

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
function sessionOptions(spec: RuntimeSpec): InferenceSession.SessionOptions {
  return {
    executionProviders: [spec.provider],
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

/** The runtime says this of a graph if the provider has no kernel for one of its nodes. */
const NODES_ON_CPU = /\bnodes that are assigned to the default CPU EP\b/;

/**
 * A node without a kernel of CUDA runs on a core, with copies both ways, and the runtime reports
 * that nowhere that we log: so this writes a line.
 */
export async function openOnnxSession(
  spec: RuntimeSpec,
  source: string | Uint8Array,
): Promise<Session> {
  const native = await createNative(spec, source);
  return {
    inputs: native.inputMetadata,
    outputs: native.outputMetadata,
    run: (feeds, outputNames) =>
      native.run(
        Object.fromEntries(Object.entries(feeds).map(([name, input]) => [name, tensorOf(input)])),
        outputNames,
      ),
  };
}

async function createNative(spec: RuntimeSpec, source: string | Uint8Array) {
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

function tensorOf(input: GraphInput): Tensor {
  const { dims } = input;
  if (input.type === 'uint8') return new Tensor('uint8', input.data, dims);
  if (input.type === 'float32') return new Tensor('float32', input.data, dims);
  const { buffer, byteOffset, length } = input.data;
  const bits = new Uint16Array(buffer, byteOffset, length);
  // A tensor makes a Float16Array of them, of which the binding sees no byte.
  return Object.defineProperty(new Tensor('float16', bits, dims), 'data', { value: bits });
}
