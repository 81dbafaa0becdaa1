/** The program of a probe's process: one graph, one run at a time (probe-protocol.ts). */

// This import is first: what follows imports ONNX Runtime.
import '../child/runtime-redirect.ts';
import { readTensorHeads, requireDataBeside } from '../../onnx/tensor-heads.ts';
import type { Frame } from '../../process/frames.ts';
import { readPeakBytes, readResidentBytes } from '../../process/proc-files.ts';
import { serveParent } from '../../process/serve-parent.ts';
import { formEnds, numbersOf, type TensorFacts, valuesIn } from '../child/form-ends.ts';
import type { GraphValue } from '../child/graph-ends.ts';
import { openSession } from '../child/loaded-model.ts';
import type { Session } from '../child/session.ts';
import { ANSWER_VALUES_MAX } from '../engine-protocol.ts';
import {
  type FromProbeChild,
  MESSAGE_LENGTH_MAX,
  NAME_LENGTH_MAX,
  type OutputValues,
  TENSORS_MAX,
  type ToProbeChild,
} from './probe-protocol.ts';

type Told = ToProbeChild[keyof ToProbeChild];
type Said = FromProbeChild[keyof FromProbeChild];

let loaded: Session | undefined;

const channel = serveParent<Told>(frame => void serve(frame));

async function serve({ head, parts }: Frame<Told>): Promise<void> {
  try {
    if (head.kind === 'load') await say(await load(head));
    else await run(head, parts);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    await say({ kind: 'failed', message: message.slice(0, MESSAGE_LENGTH_MAX) });
  }
}

function say(said: Said, parts: readonly Uint8Array[] = []): Promise<void> {
  return channel.send(said, parts);
}

async function load({ spec }: ToProbeChild['load']): Promise<FromProbeChild['loaded']> {
  const { path } = spec;
  const { halves, dataFiles } = await readTensorHeads(path);
  requireDataBeside(path, dataFiles);
  const session = await openSession(spec, path);
  loaded = session;
  const loadedBytes = readResidentBytes(process.pid) ?? 0;
  const [inputs, outputs] = [factsOf(session.inputs), factsOf(session.outputs)];
  return { kind: 'loaded', inputs, outputs, halves, loadedBytes };
}

function factsOf(tensors: readonly TensorFacts[]): readonly TensorFacts[] {
  if (tensors.length > TENSORS_MAX) {
    throw new Error(`the graph has ${tensors.length} inputs or outputs, over ${TENSORS_MAX}`);
  }
  const long = tensors.find(({ name }) => name.length > NAME_LENGTH_MAX);
  if (long === undefined) return tensors;
  const { length } = long.name;
  throw new Error(`the name of a tensor has ${length} characters, over ${NAME_LENGTH_MAX}`);
}

async function run(
  { spec, size, outputs: names }: ToProbeChild['run'],
  [rgb]: readonly Uint8Array[],
): Promise<void> {
  const { form } = spec;
  const [name = ''] = names;
  const input = loaded?.inputs.find(tensor => tensor.name === spec.inputName);
  const output = loaded?.outputs.find(tensor => tensor.name === name);
  if (!loaded || !rgb || !input || !output) throw new Error('a run before its graph');
  const ends = formEnds(spec, form, { input, output });
  const feeds = { [spec.inputName]: ends.input(rgb, size) };
  const startMs = performance.now();
  const results = await loaded.run(feeds, names);
  const seconds = (performance.now() - startMs) / 1000;
  const peakBytes = readPeakBytes(process.pid) ?? 0;
  const values = names.map(each => floatsOf(results[each]));
  const [first, ...others] = names.map((each, index) =>
    summarise(each, results[each], values[index]),
  );
  if (first === undefined) throw new Error('a run without outputs');
  const outputs = [first, ...others] as const;
  await say(
    { kind: 'ran', seconds, peakBytes, outputs },
    names.length === 1 ? values.map(bytesOf) : [],
  );
}

/** Empty: of what holds no numbers, or too many. */
function floatsOf(value: GraphValue | undefined): Float32Array {
  // A value that is no tensor has no dims, whatever the types of the runtime say.
  if (value?.dims === undefined || valuesIn(value) > ANSWER_VALUES_MAX) return new Float32Array();
  const numbers = numbersOf(value);
  return numbers instanceof Float32Array ? numbers : Float32Array.from(numbers);
}

function bytesOf({ buffer, byteOffset, byteLength }: Float32Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

function summarise(
  name: string,
  { type, dims }: GraphValue = { type: 'none', dims: [], data: undefined },
  values: Float32Array = new Float32Array(),
): OutputValues {
  let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  let notFinite = false;
  for (const value of values) {
    if (!Number.isFinite(value)) notFinite = true;
    else {
      if (value < least) least = value;
      if (value > most) most = value;
    }
  }
  // JSON has no infinities.
  const range = least > most ? ([0, 0] as const) : ([least, most] as const);
  return { name, type, dims, range, notFinite, count: values.length };
}
