import type { GraphInput } from './graph-io.ts';
import { env, InferenceSession, Tensor } from './onnx-runtime.ts';
import type { RuntimeSpec, Session } from './session.ts';

// Before the first session: ONNX Runtime warns on stderr about normal things.
env.logLevel = 'error';
const LOG_SEVERITY_ERROR = 3;

/**
 * Microseconds that a thread spins for the others of its engine, if engines of other models run on
 * its cores. The plan `standard` on two saturated cores made 1.07 times the images a second, and a
 * single caller waited no longer.
 */
const SHARED_SPIN_US = '300';

/**
 * Threads spin if a model has the cores alone: without that ISNet on two cores took 3 % longer. The
 * optimised graph is not saved: it would load in 0.25 s instead of 0.5 s, but add 176 MB bound to
 * instruction set and runtime.
 */
function sessionOptions(spec: RuntimeSpec): InferenceSession.SessionOptions {
  return {
    executionProviders: [spec.provider],
    graphOptimizationLevel: 'all',
    executionMode: 'sequential',
    // By default the runtime counts the host's cores, whatever the cgroup allows.
    intraOpNumThreads: spec.intraOpThreads,
    interOpNumThreads: 1,
    // With the pattern, ISNet at 1024x1024 holds twice the memory (1.8 GB) and is no faster.
    enableMemPattern: false,
    enableCpuMemArena: spec.keepsNoMemory !== true,
    logSeverityLevel: LOG_SEVERITY_ERROR,
    // The binding ignores values that are not strings.
    extra: {
      session: {
        ...(spec.allowCpuNodes ? {} : { disable_cpu_ep_fallback: '1' }),
        ...(spec.sharesCores ? { intra_op: { spin_duration_us: SHARED_SPIN_US } } : {}),
      },
    },
  };
}

const NODES_ON_CPU = /\bnodes that are assigned to the default CPU EP\b/;

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

/**
 * Logs operators without a CUDA kernel, which run on the CPU with copies both ways: nothing else
 * shows them.
 */
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
  // Otherwise the tensor wraps them in a Float16Array, whose bytes the binding does not see.
  return Object.defineProperty(new Tensor('float16', bits, dims), 'data', { value: bits });
}
