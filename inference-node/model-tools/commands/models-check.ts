/**
 * `models check <file>`: loads any ONNX file as a matting model, prints its tensors, runs it on a
 * sample and writes the cut-out: what is needed to write a manifest.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { runOnce } from '../../serving/engine/choice/answer-picture.ts';
import { ModelError } from '../../serving/models/model-error.ts';
import { ElementType, type Graph, type GraphValue } from '../../serving/onnx/graph.ts';
import { decodeModel } from '../../serving/onnx/model-file.ts';
import { decodeFile } from '../../serving/picture/codecs/decode.ts';
import { createModelInput } from '../../serving/picture/matte/model-input.ts';
import type { RgbaPicture } from '../../serving/picture/rgba-picture.ts';
import { finishPicture } from '../../serving/picture/worker/finish.ts';

/** As commander gives them. */
export interface ModelsCheckOptions {
  readonly image?: string;
  readonly out: string;
  readonly size?: string;
  readonly mean: string;
  readonly std: string;
  readonly bgr?: boolean;
  readonly sigmoid?: boolean;
  readonly output?: string;
}

/** Where the graph leaves the size open and --size is not given. */
const SIDE_PX = 512;
const SIDE_MAX_PX = 4096;
const SAMPLE_SIDE_PX = 640;
/** Load and run together, of the largest models on a slow machine. */
const TIMEOUT_MS = 300_000;
const THREADS = 2;

/** @throws ModelError `settings` where options and graph do not fit, `prepare` where it fails. */
export async function modelsCheck(
  file: string,
  options: ModelsCheckOptions,
  out: Writable,
): Promise<void> {
  const path = resolve(file);
  const graph = decodeModel(await read(path), path);
  for (const value of graph.inputs) out.write(`input   ${describe(value)}\n`);
  for (const value of graph.outputs) out.write(`output  ${describe(value)}\n`);
  const spec = { path, ...createSpec(graph, options) };
  const { inputWidth: width, inputHeight: height } = spec;
  out.write(`run     ${spec.outputName} at ${width} x ${height}\n`);
  const picture = options.image === undefined ? paintSample() : await readImage(options.image);
  const rgb = createModelInput(picture, { width, height });
  const alpha = await runOnce({ spec, rgb, childEnv: {}, timeoutMs: TIMEOUT_MS }).catch(error => {
    throw new ModelError('prepare', `${path}: ${(error as Error).message}`, error);
  });
  out.write(`matte   ${summary(alpha)}\n`);
  const { file: cutout } = await finishPicture(
    picture,
    [{ alpha, width, height, role: 'subject' }],
    { refinement: true, foregroundEstimation: true, outputFormat: 'png', resultKind: 'cutout' },
  );
  await writeFile(options.out, cutout);
  out.write(`cut-out ${resolve(options.out)}\n`);
}

async function read(path: string): Promise<Buffer> {
  return await readFile(path).catch(error => {
    throw new ModelError('settings', `cannot read ${path}: ${(error as Error).message}`, error);
  });
}

function createSpec(graph: Graph, options: ModelsCheckOptions) {
  const [input] = graph.inputs;
  const output = options.output ?? graph.outputs[0]?.name;
  if (input === undefined || output === undefined) {
    throw new ModelError('settings', 'the graph has no input or no output');
  }
  return {
    // The operator's own file: there is nothing to hold it against.
    sha256: undefined,
    provider: 'cpu' as const,
    intraOpThreads: THREADS,
    sharesCores: false,
    allowCpuNodes: true,
    inputName: input.name,
    outputName: output,
    ...inputSize(input, options.size),
    normalisation: { mean: triple('--mean', options.mean), std: triple('--std', options.std) },
    colourOrder: options.bgr ? ('bgr' as const) : ('rgb' as const),
    activation: options.sigmoid ? ('sigmoid' as const) : ('none' as const),
  };
}

function inputSize({ dims }: GraphValue, wanted: string | undefined) {
  const side = wanted === undefined ? undefined : Number(wanted);
  if (side !== undefined && !(Number.isInteger(side) && side > 0 && side <= SIDE_MAX_PX)) {
    throw new ModelError('settings', `--size must be a whole number from 1 to ${SIDE_MAX_PX}`);
  }
  const [, channels, height, width] = dims;
  if (dims.length !== 4 || (channels !== 3 && channels !== null)) {
    throw new ModelError(
      'settings',
      `the input is not [batch, 3, height, width]: [${dims.join()}]`,
    );
  }
  const inputWidth = side ?? width ?? SIDE_PX;
  const inputHeight = side ?? height ?? SIDE_PX;
  for (const own of [inputWidth, inputHeight]) {
    if (Number.isInteger(own) && own > 0 && own <= SIDE_MAX_PX) continue;
    // A graph of a fixed size may still run at another one, if its author says so.
    const asked = `the graph asks for a picture of ${inputWidth} x ${inputHeight}`;
    throw new ModelError('settings', `${asked}: each side must be 1 to ${SIDE_MAX_PX} (--size)`);
  }
  return { inputWidth, inputHeight };
}

function triple(option: string, text: string): readonly [number, number, number] {
  const values = text.split(',').map(Number);
  const [red, green, blue] = values.every(Number.isFinite) && values.length === 3 ? values : [];
  if (red === undefined || green === undefined || blue === undefined) {
    throw new ModelError('settings', `${option} must be three numbers, for red, green and blue`);
  }
  return [red, green, blue];
}

function describe({ name, elementType, dims }: GraphValue): string {
  const known = Object.entries(ElementType).find(([, value]) => value === elementType);
  const type = known?.[0] ?? `type ${elementType}`;
  return `${name}: ${type} [${dims.map(dim => dim ?? '?').join(', ')}]`;
}

function summary(alpha: Buffer): string {
  const sorted = Buffer.from(alpha).sort();
  const opaque = alpha.reduce((count, value) => count + (value > 127 ? 1 : 0), 0) / alpha.length;
  const [least, most] = [sorted[0], sorted[sorted.length - 1]];
  return `${least} to ${most} of 255, ${Math.round(100 * opaque)} % above half`;
}

async function readImage(path: string): Promise<RgbaPicture> {
  const options = { declared: undefined, onOpened: () => undefined };
  return await decodeFile(await read(resolve(path)), options);
}

/** A red ball before a pale wall: what every matting model cuts out. */
function paintSample(): RgbaPicture {
  const side = SAMPLE_SIDE_PX;
  const rgba = new Uint32Array(side * side);
  for (let i = 0; i < rgba.length; i++) {
    const x = (i % side) / side - 0.5;
    const y = Math.floor(i / side) / side - 0.5;
    const light = 1 - 1.5 * Math.hypot(x + 0.1, y + 0.1);
    const ball = Math.hypot(x, y) < 0.28;
    const [red, green, blue] = ball ? [90 + 150 * light, 60 * light, 50 * light] : [205, 214, 220];
    rgba[i] = red | (green << 8) | (blue << 16) | 0xff000000;
  }
  return { width: side, height: side, rgba, translucent: false };
}
