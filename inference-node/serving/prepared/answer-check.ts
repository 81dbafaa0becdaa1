/** Each kind of machine checks once that it computes a prepared graph like the reference. */

import { createHash } from 'node:crypto';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { readRecord, writeRecord } from '../models/cache-files.ts';
import { channelsOf, type PreparedModel, type Runtime } from '../models/prepared-model.ts';
import { TRIMAP, withTrimap } from '../models/trimap.ts';

export interface Matte<Alpha extends Uint8Array = Uint8Array> extends Size {
  readonly alpha: Alpha;
}

/** `rgb`: HWC, of the model's input size. */
export type AnswerPicture = (model: PreparedModel, rgb: Uint8Array) => Promise<Matte>;

/** The hardware's name. Answers are checked once per name; `undefined`: at every start. */
export type Machine = string | undefined;

export interface Answering {
  readonly answer: AnswerPicture;
  readonly machine: string;
  readonly runtimes?: RuntimeTools;
}

interface RuntimeComparison {
  readonly timeShare: number;
  readonly peakBytes: number;
  readonly alphas: Readonly<Record<Runtime, Uint8Array>>;
}

/** OpenVINO refuses the graph itself, not for lack of memory, disk or time. */
export class GraphRefusedError extends Error {}

export interface RuntimeTools {
  /**
   * Compiles the graph by OpenVINO into `exportTo`. Like `compare` it rejects in bounded time and
   * memory, with GraphRefusedError if another attempt would fail, too.
   */
  compile(
    model: PreparedModel,
    library: string,
    exportTo: string,
    signal: AbortSignal,
  ): Promise<void>;
  compare(
    onnxruntime: PreparedModel,
    openvino: PreparedModel,
    signal: AbortSignal,
  ): Promise<RuntimeComparison>;
}

interface AnswerRecord {
  readonly sha256: string;
  readonly machines: readonly string[];
  /** The reference, so that a new check needs no CPU run and no weights. */
  readonly answer?: readonly number[];
}

const MACHINES_MAX = 32;

/**
 * Undefined if the answer is right, else the fault in one line. Calls `stored` only if no record
 * has the answer.
 */
export async function checkAnswer(
  model: PreparedModel,
  stored: () => Promise<readonly number[]>,
  { answer, machine }: { readonly answer: AnswerPicture; readonly machine: Machine },
): Promise<string | undefined> {
  if (await isKnownMachine(model, machine)) return undefined;
  let matte: Matte;
  try {
    matte = await answer(model, drawCheckInput(model));
  } catch (error) {
    return `it does not run: ${(error as Error).message}`;
  }
  let expected: readonly number[];
  try {
    expected = (await readAnswerRecord(model)).answer ?? (await stored());
  } catch (error) {
    return `there is no answer to hold its own against: ${(error as Error).message}`;
  }
  const difference = compareAnswers(summariseAnswer(matte), expected);
  if (difference !== undefined) return `its answer to the check picture is wrong: ${difference}`;
  await rememberMachine(model, machine, expected);
  return undefined;
}

async function isKnownMachine(model: PreparedModel, machine: Machine): Promise<boolean> {
  return machine !== undefined && (await readAnswerRecord(model)).machines.includes(machine);
}

async function rememberMachine(model: PreparedModel, machine: Machine, answer: readonly number[]) {
  if (machine === undefined) return;
  const known = await readAnswerRecord(model);
  const machines = [...known.machines, machine].slice(-MACHINES_MAX);
  const record: AnswerRecord = { ...known, machines, answer };
  await writeRecord(answerRecordPath(model.recordsBeside ?? model.path), record);
}

function answerRecordPath(preparedPath: string): string {
  return `${preparedPath}.answers.json`;
}

/**
 * What determines an answer. An added model's graph may get a new description, such as another
 * normalisation.
 */
export function identityOf(model: PreparedModel): string {
  const { form, sha256, normalisation, colourOrder, activation, outputName } = model;
  if (form === undefined) return sha256;
  const deciding = [sha256, form, normalisation, colourOrder, activation, outputName];
  return createHash('sha256').update(JSON.stringify(deciding)).digest('hex');
}

async function readAnswerRecord(model: PreparedModel): Promise<AnswerRecord> {
  const record = recordIn(await readRecord(answerRecordPath(model.recordsBeside ?? model.path)));
  const sha256 = identityOf(model);
  return record?.sha256 === sha256 ? record : { sha256, machines: [] };
}

function recordIn(value: unknown): AnswerRecord | undefined {
  const json = value as Partial<AnswerRecord> | null | undefined;
  if (typeof json?.sha256 !== 'string' || !Array.isArray(json.machines)) return undefined;
  if (!json.machines.every(machine => typeof machine === 'string')) return undefined;
  const { sha256, machines, answer } = json;
  const isWhole = Array.isArray(answer) && answer.length === CHECK_BLOCKS;
  return { sha256, machines, ...(isWhole && answer.every(Number.isFinite) && { answer }) };
}

/**
 * The check picture. Sound integer kernels differ by a level here and there; a CPU whose 8-bit
 * products saturate in 16-bit sums, or a faulty driver, gives another matte.
 */

const BLOCKS_A_SIDE = 16;
export const CHECK_BLOCKS = BLOCKS_A_SIDE ** 2;

/** Levels of 255. ISNet in int8 and float32 differ by 0.02 in the mean and 1 at most. */
const MEAN_DIFFERENCE_MAX = 1;
const BLOCK_DIFFERENCE_MAX = 16;

/** A lit ball with a stem, by additions, products and roots: the same on every machine. */
export function drawCheckPicture(width: number, height: number): Buffer {
  const rgb = Buffer.alloc(3 * width * height);
  let state = 1;
  for (let row = 0; row < height; row++) {
    const y = row / height - 0.48;
    for (let column = 0; column < width; column++) {
      const x = column / width - 0.5;
      const distance = Math.sqrt(x * x + y * y);
      const light = 1 - 1.6 * Math.sqrt((x + 0.1) ** 2 + (y + 0.12) ** 2);
      const stem = y > 0 && Math.abs(x) < 0.012 + 0.02 * y;
      const at = 3 * (row * width + column);
      const background = 120 + 70 * y;
      for (let channel = 0; channel < 3; channel++) {
        state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
        const noise = state / 2 ** 32 - 0.5;
        const ball = (channel === 0 ? 235 : channel === 1 ? 120 : 60) * light + 15;
        const subject = distance < 0.27 ? ball : 70 - 20 * channel;
        const value = distance < 0.27 || stem ? subject : background + 14 * channel;
        rgb[at + channel] = Math.max(0, Math.min(255, Math.round(value + 12 * noise)));
      }
    }
  }
  return rgb;
}

export function drawCheckInput(
  model: Pick<PreparedModel, 'inputWidth' | 'inputHeight' | 'form'>,
): Buffer {
  const { inputWidth: width, inputHeight: height } = model;
  const rgb = drawCheckPicture(width, height);
  if (channelsOf(model) === 3) return rgb;
  const trimap = Uint8Array.from({ length: width * height }, (_, at) => {
    const x = (at % width) / width - 0.5;
    const y = Math.floor(at / width) / height - 0.48;
    const distance = Math.sqrt(x * x + y * y);
    if (distance < 0.22) return TRIMAP.subject;
    return distance < 0.32 ? TRIMAP.unsure : TRIMAP.background;
  });
  return withTrimap(rgb, trimap);
}

export function summariseAnswer({ alpha, width, height }: Matte): number[] {
  const sums = new Float64Array(CHECK_BLOCKS);
  const counts = new Float64Array(CHECK_BLOCKS);
  for (let row = 0; row < height; row++) {
    const first = Math.floor((row * BLOCKS_A_SIDE) / height) * BLOCKS_A_SIDE;
    for (let column = 0; column < width; column++) {
      const block = first + Math.floor((column * BLOCKS_A_SIDE) / width);
      sums[block] = (sums[block] ?? 0) + (alpha[row * width + column] ?? 0);
      counts[block] = (counts[block] ?? 0) + 1;
    }
  }
  return Array.from(sums, (sum, block) => Math.round(sum / (counts[block] ?? 1)));
}

/** Undefined if the answers agree, else the difference in one line. */
export function compareAnswers(
  found: readonly number[],
  stored: readonly number[],
): string | undefined {
  const differences = found.map((level, block) => Math.abs(level - (stored[block] ?? Number.NaN)));
  const mean = differences.reduce((sum, difference) => sum + difference, 0) / differences.length;
  const largest = Math.max(...differences);
  if (mean <= MEAN_DIFFERENCE_MAX && largest <= BLOCK_DIFFERENCE_MAX) return undefined;
  return `it differs by ${mean.toFixed(1)} levels of 255 in the mean, ${largest} at most`;
}
