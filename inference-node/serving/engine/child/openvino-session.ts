/** OpenVINO on a CPU, by its C interface (openvino/c/openvino.h) and koffi. It sends nothing. */
import { createHash } from 'node:crypto';
import koffi, { type TypeObject } from 'koffi';
import { type CompiledGraph, channelsOf, type GraphForm } from '../../models/prepared-model.ts';
import type { GraphInput, GraphValue } from './graph-io.ts';
import { mapFile } from './mapped-file.ts';
import type { RuntimeSpec, Session, TensorFacts } from './session.ts';

/** `ov_element_type_e` of the types of pictures and mattes. */
const ELEMENT_TYPES = { float16: 3, float32: 4, uint8: 16 } as const;
type ElementName = keyof typeof ELEMENT_TYPES;
const ARRAYS = { float16: Float16Array, float32: Float32Array, uint8: Uint8Array } as const;

type Type = string | TypeObject | ReturnType<typeof koffi.out>;
type Handle = unknown;
type Out = [Handle];

const property = koffi.struct('ov_property_t', { key: 'str', value: 'str' });
const shape = koffi.struct('ov_shape_t', { rank: 'int64', dims: 'int64 *' });
const dimension = koffi.struct('ov_dimension_t', { min: 'int64', max: 'int64' });
/** Ranges of the rank and of each size. A range that begins with -1 has no bounds. */
const partialShape = koffi.struct('ov_partial_shape_t', {
  rank: dimension,
  dims: koffi.pointer(dimension),
});

/** Functions of version 2026.4. */
function bind(library: string) {
  const loaded = koffi.load(library);
  const status = (name: string, ...types: Type[]) => {
    const call = loaded.func(name, 'int', types);
    return (...given: unknown[]) => {
      const code = call(...given) as number;
      if (code !== 0) throw new Error(`${name} failed with ${code}: ${lastError()}`);
    };
  };
  const lastError = loaded.func('ov_get_last_err_msg', 'str', []) as () => string | null;
  const [handle, out] = ['void *', koffi.out(koffi.pointer('void *'))] as const;
  return {
    createCore: status('ov_core_create', out),
    readModel: status('ov_core_read_model', handle, 'str', 'str', out),
    modelInput: status('ov_model_const_input', handle, out),
    reshape: status('ov_model_reshape_single_input', handle, partialShape),
    isDynamic: loaded.func('ov_model_is_dynamic', 'bool', [handle]) as (model: Handle) => boolean,
    compile: status(
      'ov_core_compile_model_props',
      ...[handle, handle, 'str', 'size_t', koffi.pointer(property), out],
    ),
    setProperties: status(
      'ov_core_set_properties',
      ...[handle, 'str', 'size_t', koffi.pointer(property)],
    ),
    importModel: status('ov_core_import_model', handle, 'void *', 'size_t', 'str', out),
    exportModel: status('ov_compiled_model_export_model', handle, 'str'),
    countInputs: status('ov_compiled_model_inputs_size', handle, koffi.out('size_t *')),
    countOutputs: status('ov_compiled_model_outputs_size', handle, koffi.out('size_t *')),
    inputAt: status('ov_compiled_model_input_by_index', handle, 'size_t', out),
    outputAt: status('ov_compiled_model_output_by_index', handle, 'size_t', out),
    inputNamed: status('ov_compiled_model_input_by_name', handle, 'str', out),
    outputNamed: status('ov_compiled_model_output_by_name', handle, 'str', out),
    nameOf: status('ov_port_get_any_name', handle, out),
    portTypeOf: status('ov_port_get_element_type', handle, koffi.out('int *')),
    portShapeOf: status(
      'ov_port_get_partial_shape',
      handle,
      koffi.out(koffi.pointer(partialShape)),
    ),
    freePortShape: loaded.func('ov_partial_shape_free', 'void', [koffi.pointer(partialShape)]),
    freeModel: loaded.func('ov_model_free', 'void', [handle]),
    createRequest: status('ov_compiled_model_create_infer_request', handle, out),
    createTensor: status('ov_tensor_create', 'int', shape, out),
    freeTensor: loaded.func('ov_tensor_free', 'void', [handle]),
    setInput: status('ov_infer_request_set_tensor', handle, 'str', handle),
    outputTensor: status('ov_infer_request_get_tensor', handle, 'str', out),
    dataOf: status('ov_tensor_data', handle, out),
    bytesOf: status('ov_tensor_get_byte_size', handle, koffi.out('size_t *')),
    typeOf: status('ov_tensor_get_element_type', handle, koffi.out('int *')),
    shapeOf: status('ov_tensor_get_shape', handle, koffi.out(koffi.pointer(shape))),
    freeShape: status('ov_shape_free', koffi.pointer(shape)),
    infer: status('ov_infer_request_infer', handle),
  };
}

type Openvino = ReturnType<typeof bind>;

export function openOpenvinoSession(spec: RuntimeSpec, source: string | Uint8Array): Session {
  const { openvino, intraOpThreads } = spec;
  if (openvino === undefined) throw new Error('no folder of OpenVINO');
  if (typeof source !== 'string') throw new Error('OpenVINO loads a graph from its file');
  const library = bind(openvino.library);
  const core = made(out => library.createCore(out));
  const properties = Object.entries({
    INFERENCE_NUM_THREADS: String(intraOpThreads),
    NUM_STREAMS: '1',
    // The default is bf16 on processors with instructions for it.
    INFERENCE_PRECISION_HINT: 'f32',
    // Engines do not know of each other: pinned, they would share a core and leave others idle.
    ENABLE_CPU_PINNING: 'NO',
  }).map(([key, value]) => ({ key, value }));
  library.setProperties(core, 'CPU', properties.length, properties);
  const { compiled: file, exportTo } = openvino;
  const compiled = file ? restore(library, core, file) : compile(library, core, source, spec);
  if (exportTo !== undefined) library.exportModel(compiled, exportTo);
  const request = made(out => library.createRequest(compiled, out));
  return new OpenvinoSession(library, request, {
    inputs: factsOf(library, compiled, {
      count: library.countInputs,
      portAt: library.inputAt,
      portNamed: library.inputNamed,
      wanted: spec.inputName,
    }),
    outputs: factsOf(library, compiled, {
      count: library.countOutputs,
      portAt: library.outputAt,
      portNamed: library.outputNamed,
      wanted: spec.outputName,
    }),
  });
}

function compile(library: Openvino, core: Handle, path: string, spec: RuntimeSpec): Handle {
  using freed = new DisposableStack();
  const model = made(out => library.readModel(core, path, null, out));
  freed.defer(() => library.freeModel(model));
  if (spec.form !== undefined) fixSizes(library, model, spec, spec.form);
  return made(out => library.compile(core, model, 'CPU', 0, [], out));
}

/**
 * Requires a fixed size of every tensor. A maker's graph may leave sizes open, even to a picture's
 * content. OpenVINO allocates for them during a run, and if that fails, 2026.4 silently answers
 * with the previous picture's matte.
 */
function fixSizes(
  library: Openvino,
  model: Handle,
  { inputWidth: w = 0, inputHeight: h = 0 }: RuntimeSpec,
  form: GraphForm,
): void {
  const port = made(out => library.modelInput(model, out));
  const { shape: given } = portShape(library, port);
  const own: Readonly<Record<string, number>> = { n: 1, c: channelsOf({ form }), h, w };
  const sizes = [...form.layout].map((axis, at) => {
    const size = given?.[at];
    return rangeOf(typeof size === 'number' ? size : (own[axis] ?? 1));
  });
  library.reshape(model, { rank: rangeOf(sizes.length), dims: sizes });
  if (library.isDynamic(model)) throw new Error('a size in the graph is open');
}

function rangeOf(size: number): Range {
  return { min: BigInt(size), max: BigInt(size) };
}

/**
 * Releases the file's pages: OpenVINO copies the model, and reads only 0.5 MB of the file again.
 */
function restore(library: Openvino, core: Handle, { path, sha256 }: CompiledGraph): Handle {
  const file = mapFile(path);
  // Check first: native code parses the file.
  if (createHash('sha256').update(file.bytes).digest('hex') !== sha256)
    throw new Error(`${path} was altered since it was checked and is not loaded`);
  const { length } = file.bytes;
  const restored = made(out => library.importModel(core, file.address, length, 'CPU', out));
  file.letGo();
  return restored;
}

function made(make: (out: Out) => void): Handle {
  const out: Out = [null];
  make(out);
  return out[0];
}

interface Ports {
  readonly count: Openvino['countInputs'];
  readonly portAt: Openvino['inputAt'];
  readonly portNamed: Openvino['inputNamed'];
  readonly wanted: string | undefined;
}

/** OpenVINO may return another of a tensor's names, so this looks up `wanted` too. */
function factsOf(library: Openvino, compiled: Handle, { count, portAt, portNamed, wanted }: Ports) {
  const length = Number(made(out => count(compiled, out)));
  const facts = Array.from({ length }, (_none, index) => {
    const port = made(out => portAt(compiled, index, out));
    const name = koffi.decode(
      made(out => library.nameOf(port, out)),
      'char',
      -1,
    ) as string;
    return portFacts(library, port, name);
  });
  if (wanted === undefined || facts.some(({ name }) => name === wanted)) return facts;
  try {
    const named = portFacts(
      library,
      made(out => portNamed(compiled, wanted, out)),
      wanted,
    );
    return length === 1 ? [named] : [...facts, named];
  } catch {
    // No tensor has this name: requireNames reports it.
    return facts;
  }
}

function portFacts(library: Openvino, port: Handle, name: string): TensorFacts {
  const code = Number(made(out => library.portTypeOf(port, out)));
  const type = nameOfType(code) ?? `of OpenVINO's type ${code}`;
  return { name, isTensor: true, type, ...portShape(library, port) };
}

interface Range {
  readonly min: number | bigint;
  readonly max: number | bigint;
}

function portShape(library: Openvino, port: Handle): Pick<TensorFacts, 'shape'> {
  const found = made(out => library.portShapeOf(port, out)) as { rank: Range; dims: Handle };
  const { min, max } = found.rank;
  if (min !== max) return {};
  const dims = koffi.decode(found.dims, koffi.array(dimension, Number(min))) as Range[];
  library.freePortShape(found);
  return { shape: dims.map(each => (each.min === each.max ? Number(each.min) : 'open')) };
}

class OpenvinoSession implements Session {
  readonly inputs: readonly TensorFacts[];
  readonly outputs: readonly TensorFacts[];
  readonly #library: Openvino;
  readonly #request: Handle;
  constructor(
    library: Openvino,
    request: Handle,
    { inputs, outputs }: Pick<OpenvinoSession, 'inputs' | 'outputs'>,
  ) {
    this.#library = library;
    this.#request = request;
    this.inputs = inputs;
    this.outputs = outputs;
  }

  async run(feeds: Readonly<Record<string, GraphInput>>, outputNames: readonly string[]) {
    const tensors = Object.entries(feeds).map(([name, input]) => this.#feed(name, input));
    try {
      this.#library.infer(this.#request);
      return Object.fromEntries(outputNames.map(name => [name, this.#read(name)]));
    } finally {
      for (const tensor of tensors) this.#library.freeTensor(tensor);
    }
  }

  /** Copies the input, so the caller may reuse its buffer. */
  #feed(name: string, { type, dims, data }: GraphInput): Handle {
    const dimensions = { rank: dims.length, dims: BigInt64Array.from(dims.map(BigInt)) };
    const tensor = made(out => this.#library.createTensor(ELEMENT_TYPES[type], dimensions, out));
    const memory = made(out => this.#library.dataOf(tensor, out));
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    new Uint8Array(koffi.view(memory, bytes.length)).set(bytes);
    this.#library.setInput(this.#request, name, tensor);
    return tensor;
  }

  #read(name: string): GraphValue {
    const library = this.#library;
    using freed = new DisposableStack();
    const tensor = made(out => library.outputTensor(this.#request, name, out));
    freed.defer(() => library.freeTensor(tensor));
    const type = elementName(Number(made(out => library.typeOf(tensor, out))), name);
    const bytes = Number(made(out => library.bytesOf(tensor, out)));
    const memory = made(out => library.dataOf(tensor, out));
    const data = new ARRAYS[type](koffi.view(memory, bytes).slice(0));
    return { type, dims: this.#dimsOf(tensor), data };
  }

  #dimsOf(tensor: Handle): number[] {
    const found = made(out => this.#library.shapeOf(tensor, out)) as {
      rank: number;
      dims: Handle;
    };
    const rank = Number(found.rank);
    const dims = koffi.decode(found.dims, koffi.array('int64', rank)) as number[];
    this.#library.freeShape(found);
    return Array.from(dims, Number);
  }
}

function nameOfType(code: number): ElementName | undefined {
  const found = Object.entries(ELEMENT_TYPES).find(([, each]) => each === code);
  return found?.[0] as ElementName | undefined;
}

function elementName(code: number, name: string): ElementName {
  const found = nameOfType(code);
  if (found === undefined) throw new Error(`the output ${name} is of OpenVINO's type ${code}`);
  return found;
}
