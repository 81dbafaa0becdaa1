/**
 * Program of a probe's process: loads one graph and runs it, one request at a time. It judges
 * nothing, since it may hang, crash or run out of memory. A failed run does not end it.
 *
 *   probe                              child
 *   load ─────────────────────────────► looks for external data, loads
 *        ◄──────────────────────────── loaded | failed
 *   run + rgb ────────────────────────►
 *        ◄──────────────────────────── ran + the values of the output | failed
 */

// Must come before the imports that load ONNX Runtime.
import '../child/runtime-redirect.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { readTensorHeads, requireDataBeside } from '../../onnx/tensor-heads.ts';
import { readPeakBytes, readResidentBytes } from '../../process/proc-files.ts';
import { serveParent } from '../../process/serve-parent.ts';
import { type FormSpec, formIo, numbersOf, type TensorFacts, valuesIn } from '../child/form-io.ts';
import type { GraphValue } from '../child/graph-io.ts';
import { openSession, type RuntimeSpec } from '../child/loaded-model.ts';
import type { Session } from '../child/session.ts';
import { ANSWER_VALUES_MAX } from '../engine-protocol.ts';

/** `rgb` comes as a part: HWC, a picture of `size` in the spec's input. */
export type ToProbeChild =
  | { readonly kind: 'load'; readonly spec: RuntimeSpec & { readonly path: string } }
  | { readonly kind: 'run'; readonly spec: FormSpec; readonly size: Size };

export interface OutputValues {
  readonly type: string;
  readonly dims: readonly number[];
  /** [0, 0] if no value is finite. */
  readonly range: readonly [least: number, most: number];
  readonly notFinite: boolean;
}

export interface FromProbeChild {
  readonly loaded: {
    readonly kind: 'loaded';
    readonly inputs: readonly TensorFacts[];
    readonly outputs: readonly TensorFacts[];
    /** Most of the weights are float16. */
    readonly halves: boolean;
    readonly loadedBytes: number;
  };
  /** The part has the values as float32. There is no part above ANSWER_VALUES_MAX. */
  readonly ran: {
    readonly kind: 'ran';
    readonly seconds: number;
    readonly peakBytes: number;
    readonly output: OutputValues;
  };
  readonly failed: { readonly kind: 'failed'; readonly message: string };
}

/** A network that makes a matte has fewer tensors, and shorter names. */
const TENSORS_MAX = 64;
const NAME_LENGTH_MAX = 256;
const MESSAGE_LENGTH_MAX = 4000;

let loaded: Session | undefined;

const channel = serveParent<ToProbeChild>(async ({ head, parts }) => {
  try {
    if (head.kind === 'load') await channel.send(await load(head.spec), []);
    else await run(head, parts);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    await channel.send({ kind: 'failed', message: message.slice(0, MESSAGE_LENGTH_MAX) }, []);
  }
});

async function load(
  spec: RuntimeSpec & { readonly path: string },
): Promise<FromProbeChild['loaded']> {
  const { halves, dataFiles } = await readTensorHeads(spec.path);
  requireDataBeside(spec.path, dataFiles);
  loaded = await openSession(spec, spec.path);
  const { inputs, outputs } = loaded;
  for (const tensors of [inputs, outputs]) requireFew(tensors);
  const loadedBytes = readResidentBytes(process.pid) ?? 0;
  return { kind: 'loaded', inputs, outputs, halves, loadedBytes };
}

function requireFew(tensors: readonly TensorFacts[]): void {
  if (tensors.length > TENSORS_MAX) {
    throw new Error(`the graph has ${tensors.length} inputs or outputs, over ${TENSORS_MAX}`);
  }
  const length = Math.max(...tensors.map(({ name }) => name.length));
  if (length <= NAME_LENGTH_MAX) return;
  throw new Error(`the name of a tensor has ${length} characters, over ${NAME_LENGTH_MAX}`);
}

async function run(
  { spec, size }: ToProbeChild & { kind: 'run' },
  [rgb]: readonly Uint8Array[],
): Promise<void> {
  const { inputName, outputName } = spec;
  const input = loaded?.inputs.find(({ name }) => name === inputName);
  const output = loaded?.outputs.find(({ name }) => name === outputName);
  if (!loaded || !rgb || !input || !output) throw new Error('a run before its graph');
  const { input: fill } = formIo(spec, spec.form, { input, output });
  const feeds = { [inputName]: fill(rgb, size) };
  const startMs = performance.now();
  const { [outputName]: answer } = await loaded.run(feeds, [outputName]);
  const seconds = (performance.now() - startMs) / 1000;
  const peakBytes = readPeakBytes(process.pid) ?? 0;
  const values = floatsOf(answer);
  const { type = 'none', dims = [] } = answer ?? {};
  const facts = { type, dims, ...summarise(values) };
  await channel.send({ kind: 'ran', seconds, peakBytes, output: facts }, [bytesOf(values)]);
}

function floatsOf(value: GraphValue | undefined): Float32Array {
  // A value that is not a tensor has no dims, whatever the runtime's types say.
  if (value?.dims === undefined || valuesIn(value) > ANSWER_VALUES_MAX) return new Float32Array();
  const numbers = numbersOf(value);
  return numbers instanceof Float32Array ? numbers : Float32Array.from(numbers);
}

function bytesOf({ buffer, byteOffset, byteLength }: Float32Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

function summarise(values: Float32Array): Pick<OutputValues, 'range' | 'notFinite'> {
  let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  let notFinite = false;
  for (const value of values) {
    if (Number.isFinite(value)) {
      if (value < least) least = value;
      if (value > most) most = value;
    } else notFinite = true;
  }
  // Without a finite value, infinities are left, which JSON cannot write.
  const range = least > most ? ([0, 0] as const) : ([least, most] as const);
  return { range, notFinite };
}
