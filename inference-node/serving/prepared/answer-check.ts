/**
 * Checks that this machine computes a prepared graph like the machine its answer comes from.
 * Runs once on each kind of machine that uses the file, and is recorded beside it: a start that
 * finds the record does not check again.
 */
import { readFile } from 'node:fs/promises';
import { isMissing, writeRecord } from '../models/cache-files.ts';
import { diskError } from '../models/model-error.ts';
import type { PreparedModel } from '../models/prepared-model.ts';
import {
  CHECK_BLOCKS,
  compareAnswers,
  drawCheckPicture,
  summariseAnswer,
} from './check-picture.ts';

/** Computes the alpha of a picture, HWC RGB of the model's input size, one byte per pixel. */
export type AnswerPicture = (model: PreparedModel, rgb: Uint8Array) => Promise<Uint8Array>;

/**
 * What computes and the runtime, in words: another one is checked again. Undefined: nothing says
 * what it is, so that it is checked at every start.
 */
export type Machine = string | undefined;

/** Runs a prepared graph on this machine. */
export interface Answering {
  readonly answer: AnswerPicture;
  /** The CPU and the runtime, in words. */
  readonly machine: string;
}

interface AnswerRecord {
  /** The prepared file's. */
  readonly sha256: string;
  readonly machines: readonly string[];
  /** What they were held against: one that is checked again needs no CPU, and no weights. */
  readonly answer?: readonly number[];
}

/** Recorded machines; the oldest is dropped. */
const MACHINES_MAX = 32;

/**
 * Undefined where the answer is the stored one; else one line that says what is wrong.
 * @param stored means of blocks; asked for only where no answer was recorded yet. May reject.
 */
export async function checkAnswer(
  model: PreparedModel,
  stored: () => Promise<readonly number[]>,
  { answer, machine }: { readonly answer: AnswerPicture; readonly machine: Machine },
): Promise<string | undefined> {
  if (await isKnownMachine(model, machine)) return undefined;
  const { inputWidth: width, inputHeight: height } = model;
  let alpha: Uint8Array;
  try {
    alpha = await answer(model, drawCheckPicture(width, height));
  } catch (error) {
    return `it does not run: ${(error as Error).message}`;
  }
  let expected: readonly number[];
  try {
    expected = (await readRecord(model)).answer ?? (await stored());
  } catch (error) {
    return `there is no answer to hold its own against: ${(error as Error).message}`;
  }
  const difference = compareAnswers(summariseAnswer(alpha, width, height), expected);
  if (difference !== undefined) return `its answer to the check picture is wrong: ${difference}`;
  await rememberMachine(model, machine, expected);
  return undefined;
}

/** Whether it was seen to compute the prepared file rightly. */
export async function isKnownMachine(model: PreparedModel, machine: Machine): Promise<boolean> {
  return machine !== undefined && (await readRecord(model)).machines.includes(machine);
}

/** @param answer what its own was held against. */
export async function rememberMachine(
  model: PreparedModel,
  machine: Machine,
  answer?: readonly number[],
): Promise<void> {
  if (machine === undefined) return;
  const known = await readRecord(model);
  const machines = [...known.machines, machine].slice(-MACHINES_MAX);
  const record: AnswerRecord = { ...known, machines, ...(answer && { answer }) };
  await writeRecord(answerRecordPath(model.path), record);
}

/** Path of the record of a prepared file, which is removed with that file. */
export function answerRecordPath(preparedPath: string): string {
  return `${preparedPath}.answers.json`;
}

async function readRecord(model: PreparedModel): Promise<AnswerRecord> {
  const path = answerRecordPath(model.path);
  const none: AnswerRecord = { sha256: model.sha256, machines: [] };
  try {
    const record = parseRecord(await readFile(path, 'utf8'));
    return record?.sha256 === model.sha256 ? record : none;
  } catch (error) {
    // Damaged or missing: the machine is checked again.
    if (error instanceof SyntaxError || isMissing(error)) return none;
    throw diskError(error, 'read', path);
  }
}

/** Undefined where the JSON is not a record. @throws SyntaxError where it is not JSON. */
function parseRecord(text: string): AnswerRecord | undefined {
  const json = JSON.parse(text) as Partial<AnswerRecord> | null;
  if (typeof json?.sha256 !== 'string' || !Array.isArray(json.machines)) return undefined;
  if (!json.machines.every(machine => typeof machine === 'string')) return undefined;
  const { sha256, machines, answer } = json;
  const isWhole = Array.isArray(answer) && answer.length === CHECK_BLOCKS;
  return { sha256, machines, ...(isWhole && answer.every(Number.isFinite) && { answer }) };
}
