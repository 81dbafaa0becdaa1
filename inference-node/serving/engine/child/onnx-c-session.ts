/** ONNX Runtime by its C interface (onnxruntime_c_api.h) and koffi. */
// First: the library reads the variable while it loads.
import './telemetry-off.ts';
import koffi, { type KoffiFunc, type LibraryHandle } from 'koffi';
import type { GraphInput, GraphValue } from './graph-io.ts';
import type { RuntimeSpec, Session, TensorFacts } from './session.ts';

/** No other version is used. */
export const TESTED_VERSION = '1.30.0';
/** The header that has these places. Later libraries keep them. */
const HEADER_VERSION = 29;

const HANDLE = 'void *';
const OUT = '_Out_ void **';
const SIZE = 'size_t';
/** Places in the struct OrtApi, and the types of the parameters. */
const FUNCTIONS = {
  GetErrorMessage: [2, HANDLE],
  CreateEnv: [3, 'int', 'str', OUT],
  CreateSession: [7, HANDLE, 'str', HANDLE, OUT],
  CreateSessionFromArray: [8, HANDLE, HANDLE, SIZE, HANDLE, OUT],
  Run: [9, HANDLE, HANDLE, 'str *', HANDLE, SIZE, 'str *', SIZE, HANDLE],
  CreateSessionOptions: [10, OUT],
  DisableMemPattern: [17, HANDLE],
  SetIntraOpNumThreads: [24, HANDLE, 'int'],
  SessionGetInputCount: [30, HANDLE, '_Out_ size_t *'],
  SessionGetOutputCount: [31, HANDLE, '_Out_ size_t *'],
  SessionGetInputName: [36, HANDLE, SIZE, HANDLE, OUT],
  SessionGetOutputName: [37, HANDLE, SIZE, HANDLE, OUT],
  CreateTensorWithDataAsOrtValue: [49, HANDLE, HANDLE, SIZE, HANDLE, SIZE, 'int', OUT],
  GetTensorMutableData: [51, HANDLE, OUT],
  GetTensorElementType: [60, HANDLE, '_Out_ int *'],
  GetDimensionsCount: [61, HANDLE, '_Out_ size_t *'],
  GetDimensions: [62, HANDLE, HANDLE, SIZE],
  GetTensorTypeAndShape: [65, HANDLE, OUT],
  CreateCpuMemoryInfo: [69, 'int', 'int', OUT],
  AllocatorFree: [76, HANDLE, HANDLE],
  GetAllocatorWithDefaultOptions: [78, OUT],
  ReleaseStatus: [93, HANDLE],
  ReleaseSession: [95, HANDLE],
  ReleaseValue: [96, HANDLE],
  ReleaseTensorTypeAndShapeInfo: [99, HANDLE],
  ReleaseSessionOptions: [100, HANDLE],
  AddSessionConfigEntry: [130, HANDLE, 'str', 'str'],
  SessionOptionsAppendExecutionProvider_CUDA_V2: [204, HANDLE, HANDLE],
  CreateCUDAProviderOptions: [205, OUT],
  UpdateCUDAProviderOptions: [206, HANDLE, 'str *', 'str *', SIZE],
  ReleaseCUDAProviderOptions: [208, HANDLE],
} as const;
type Name = keyof typeof FUNCTIONS;

/** `OrtLoggingLevel`, `OrtAllocatorType` and `OrtMemType`. */
const LOG_ERRORS = 3;
const DEVICE_ALLOCATOR = 0;
const DEFAULT_MEMORY = 0;
/** `ONNXTensorElementDataType` of pictures and mattes. */
const TYPES = {
  float32: { code: 1, Values: Float32Array },
  uint8: { code: 2, Values: Uint8Array },
  float16: { code: 10, Values: Float16Array },
  float64: { code: 11, Values: Float64Array },
} as const;

type Handle = bigint | null;
const HANDLE_BYTES = 8;
type NativeFunction = KoffiFunc<(...given: unknown[]) => unknown>;

/** Koffi unloads a library once its object is garbage, whatever still uses its functions. */
const libraries: LibraryHandle[] = [];
function load(file: string): LibraryHandle {
  try {
    const library = koffi.load(file);
    libraries.push(library);
    return library;
  } catch (error) {
    throw new Error(`${file}: ${(error as Error).message}`, { cause: error });
  }
}

class Runtime {
  static readonly #loaded = new Map<string, Runtime>();
  readonly environment: Handle;
  readonly #memory: Handle;
  readonly #functions: Readonly<Record<Name, NativeFunction>>;
  readonly #inUse = new Set<unknown>();

  static of(file: string): Runtime {
    const loaded = Runtime.#loaded.get(file) ?? new Runtime(file);
    Runtime.#loaded.set(file, loaded);
    return loaded;
  }

  private constructor(file: string) {
    const at = (table: Handle, place: number, result: string, types: readonly string[]) => {
      const address = koffi.decode(table, place * HANDLE_BYTES, HANDLE) as Handle;
      if (address === null) throw new Error(`${file} lacks the function ${place}`);
      return koffi.decode(address, koffi.proto(result, [...types])) as NativeFunction;
    };
    const base = load(file).func('OrtGetApiBase', HANDLE, [])() as Handle;
    const version = at(base, 1, 'str', [])() as string;
    if (version !== TESTED_VERSION)
      throw new Error(`${file} is of version ${version}, not ${TESTED_VERSION}`);
    const api = at(base, 0, HANDLE, ['uint32_t'])(HEADER_VERSION) as Handle;
    const functions = Object.entries(FUNCTIONS).map(([name, [place, ...types]]) => {
      const result = name.startsWith('Release') ? 'void' : HANDLE;
      return [name, at(api, place, name === 'GetErrorMessage' ? 'str' : result, types)];
    });
    this.#functions = Object.fromEntries(functions);
    this.environment = this.read('CreateEnv', LOG_ERRORS, 'matting');
    this.#memory = this.read('CreateCpuMemoryInfo', DEVICE_ALLOCATOR, DEFAULT_MEMORY);
  }

  call(name: Name, ...given: unknown[]): void {
    this.#check(name, this.#functions[name](...given) as Handle | undefined);
  }

  /** @param kept lives as long as the call, as the parameters do: nothing else keeps them */
  callOnThread(kept: object, name: Name, ...given: unknown[]): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<Handle>();
    const inUse = [kept, given];
    this.#inUse.add(inUse);
    this.#functions[name].async(...given, (error: Error | null, status) => {
      this.#inUse.delete(inUse);
      if (error) reject(error);
      else resolve(status as Handle);
    });
    return promise.then(status => this.#check(name, status));
  }

  /** Returns the last parameter. */
  read<Value = Handle>(name: Name, ...given: unknown[]): Value {
    const out: unknown[] = [null];
    this.call(name, ...given, out);
    return out[0] as Value;
  }

  /** A tensor in the input's own memory. */
  wrap({ type, dims, data }: GraphInput): bigint {
    const memory = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const shape = [BigInt64Array.from(dims, BigInt), dims.length] as const;
    const facts = [memory, memory.length, ...shape, TYPES[type].code] as const;
    return this.read<bigint>('CreateTensorWithDataAsOrtValue', this.#memory, ...facts);
  }

  /** The tensor's own memory. */
  valueOf(name: string, tensor: bigint): GraphValue {
    using released = new DisposableStack();
    const facts = this.read('GetTensorTypeAndShape', tensor);
    released.defer(() => this.call('ReleaseTensorTypeAndShapeInfo', facts));
    const code = this.read<number>('GetTensorElementType', facts);
    const found = Object.entries(TYPES).find(([, each]) => each.code === code);
    if (found === undefined)
      throw new Error(`the output ${name} is of ONNX Runtime's type ${code}`);
    const [type, { Values }] = found;
    const shape = new BigInt64Array(Number(this.read('GetDimensionsCount', facts)));
    this.call('GetDimensions', facts, shape, shape.length);
    const dims = Array.from(shape, Number);
    const bytes = dims.reduce((product, size) => product * size, Values.BYTES_PER_ELEMENT);
    const memory = koffi.view(this.read('GetTensorMutableData', tensor), bytes);
    return { type, dims, data: new Values(memory) };
  }

  namesOf(session: Handle, which: 'Input' | 'Output'): TensorFacts[] {
    const allocator = this.read('GetAllocatorWithDefaultOptions');
    const length = Number(this.read(`SessionGet${which}Count`, session));
    return Array.from({ length }, (_none, index) => {
      const text = this.read(`SessionGet${which}Name`, session, index, allocator);
      const name = koffi.decode(text, 'char', -1) as string;
      this.call('AllocatorFree', allocator, text);
      return { name, isTensor: true };
    });
  }

  #check(name: Name, status: Handle | undefined): void {
    if (status === null || status === undefined) return;
    const message = this.#functions.GetErrorMessage(status) as string;
    this.call('ReleaseStatus', status);
    throw new Error(`${name} failed: ${message}`);
  }
}

/** Opens a prepared graph. On a GPU all of it must run there. */
export function openOnnxCSession(spec: RuntimeSpec, source: string | Uint8Array): OnnxCSession {
  const { cInterface, provider, intraOpThreads } = spec;
  if (cInterface === undefined) throw new Error('no library of ONNX Runtime');
  const runtime = Runtime.of(cInterface.library);
  using released = new DisposableStack();
  const options = runtime.read('CreateSessionOptions');
  released.defer(() => runtime.call('ReleaseSessionOptions', options));
  // As in onnx-session.ts.
  runtime.call('DisableMemPattern', options);
  runtime.call('SetIntraOpNumThreads', options, intraOpThreads);
  if (provider === 'cuda') {
    if (cInterface.blockingWaits) blockWaits();
    const cuda = runtime.read('CreateCUDAProviderOptions');
    released.defer(() => runtime.call('ReleaseCUDAProviderOptions', cuda));
    const nhwc = cInterface.nhwc ? '1' : '0';
    runtime.call('UpdateCUDAProviderOptions', cuda, ['prefer_nhwc'], [nhwc], 1);
    runtime.call('SessionOptionsAppendExecutionProvider_CUDA_V2', options, cuda);
    runtime.call('AddSessionConfigEntry', options, 'session.disable_cpu_ep_fallback', '1');
  }
  const { environment } = runtime;
  const session =
    typeof source === 'string'
      ? runtime.read('CreateSession', environment, source, options)
      : runtime.read('CreateSessionFromArray', environment, source, source.length, options);
  return new OnnxCSession(runtime, session);
}

const CU_CTX_SCHED_BLOCKING_SYNC = 4;

/** Must come before the first session, which opens the GPU's context. */
function blockWaits(): void {
  const driver = load('libcuda.so.1');
  const call = (name: string, ...given: number[]) => {
    const code = driver.func(name, 'int', Array(given.length).fill('int'))(...given) as number;
    if (code !== 0) throw new Error(`${name} failed with ${code}`);
  };
  call('cuInit', 0);
  call('cuDevicePrimaryCtxSetFlags_v2', 0, CU_CTX_SCHED_BLOCKING_SYNC);
}

/** Does one run at a time, on a thread. Several on one graph can run at once. */
export class OnnxCSession implements Session, Disposable {
  readonly inputs: readonly TensorFacts[];
  readonly outputs: readonly TensorFacts[];
  readonly #runtime: Runtime;
  readonly #session: Handle;
  readonly #isFirst: boolean;
  /** A graph's outputs keep their sizes, so each run writes to the memory of the first. */
  readonly #kept = new Map<string, { readonly tensor: bigint; readonly value: GraphValue }>();

  constructor(runtime: Runtime, session: Handle, isFirst = true) {
    this.#runtime = runtime;
    this.#session = session;
    this.#isFirst = isFirst;
    this.inputs = runtime.namesOf(session, 'Input');
    this.outputs = runtime.namesOf(session, 'Output');
  }

  /** Shares the weights. Dispose of the first session last. */
  another(): OnnxCSession {
    return new OnnxCSession(this.#runtime, this.#session, false);
  }

  async run(feeds: Readonly<Record<string, GraphInput>>, outputNames: readonly string[]) {
    const runtime = this.#runtime;
    using released = new DisposableStack();
    const tensors = BigUint64Array.from(Object.values(feeds), input =>
      released.adopt(runtime.wrap(input), tensor => runtime.call('ReleaseValue', tensor)),
    );
    const inputs = [Object.keys(feeds), tensors, tensors.length];
    // The library allocates an output whose handle is 0.
    const results = BigUint64Array.from(outputNames, name => this.#kept.get(name)?.tensor ?? 0n);
    const outputs = [outputNames, results.length, results];
    await runtime.callOnThread(feeds, 'Run', this.#session, null, ...inputs, ...outputs);
    const values = outputNames.map((name, index) => {
      const tensor = results[index]!;
      const kept = this.#kept.get(name) ?? { tensor, value: runtime.valueOf(name, tensor) };
      this.#kept.set(name, kept);
      return [name, kept.value] as const;
    });
    return Object.fromEntries(values);
  }

  /** Ends the values of its runs, too. */
  [Symbol.dispose](): void {
    for (const { tensor } of this.#kept.values()) this.#runtime.call('ReleaseValue', tensor);
    if (this.#isFirst) this.#runtime.call('ReleaseSession', this.#session);
  }
}
