/** Runs a prepared model in an engine of its own, to see what it answers on this machine. */
import { cpus } from 'node:os';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { takingAtMost } from '../../models/prepared-model.ts';
import type { Answering, AnswerRuns, Matte } from '../../prepared/answer-check.ts';
import { runtimeVersion } from '../../providers/provider-files.ts';
import { type Answer, type SessionSpec, shortenNativeError } from '../engine-protocol.ts';
import { spawnEngineChild } from '../pool/engine.ts';
import { RUNTIME_RESERVED_BYTES } from '../pool/engine-bounds.ts';

/** A load and two runs: half a minute on the slowest machine that is of any use. */
const ANSWER_TIMEOUT_MS = 120_000;

export interface AnsweringOptions {
  /** As for engines: what it lets them see is what the model runs on. */
  readonly childEnv: Readonly<Record<string, string>>;
  readonly threads: number;
  readonly timeoutMs?: number;
  /** Of the process; absent: what the machine has. */
  readonly memoryMaxBytes?: number;
}

/** Runs a prepared model once, with the graph for one picture alone. */
export function answerOnce(options: AnsweringOptions): Answering['answer'] {
  return async (model, rgb) => {
    return requireOne(await answerRuns(options)(takingAtMost(model, 1), [[rgb]]));
  };
}

export function answerRuns(options: AnsweringOptions): AnswerRuns {
  const { childEnv, threads, timeoutMs = ANSWER_TIMEOUT_MS, memoryMaxBytes } = options;
  const keepsNoMemory = memoryMaxBytes !== undefined;
  const session = {
    intraOpThreads: threads,
    sharesCores: false,
    allowCpuNodes: true,
    keepsNoMemory,
  };
  const child = { childEnv, timeoutMs, memoryMaxBytes };
  return (model, runs) => runSeries({ spec: { ...model, ...session }, runs, ...child });
}

export function createAnswering(options: AnsweringOptions): Answering {
  const machine = `${cpus()[0]?.model ?? 'unknown'}, ONNX Runtime ${runtimeVersion()}`;
  return { machine, answer: answerOnce(options) };
}

const OUTPUT_LENGTH_MAX = 64 * 1024;
const LAST_WORDS_LENGTH_MAX = 200;

export interface RunSeriesOptions {
  readonly spec: SessionSpec;
  /** Where spec.path is undefined. */
  readonly graph?: Uint8Array;
  /** One after the other; the pictures of each, as many as a graph of the model takes. */
  readonly runs: readonly (readonly Uint8Array[])[];
  /** Of the pictures in the input (models/input-size.ts); absent: they fill it. */
  readonly size?: Size | undefined;
  readonly childEnv: Readonly<Record<string, string>>;
  /** For load and runs together. A driver that hangs is killed then. */
  readonly timeoutMs: number;
  readonly memoryMaxBytes?: number | undefined;
  /** Told what the last run of the warm-up took, ms. */
  readonly onWarm?: (warmMs: number) => void;
  /** From the kill until its process counts as stuck: KILL_WAIT_MAX_MS where absent. */
  readonly killWaitMaxMs?: number;
}

export async function runOnce({
  rgb,
  ...options
}: Omit<RunSeriesOptions, 'runs'> & { readonly rgb: Uint8Array }): Promise<Matte<Buffer>> {
  return requireOne(await runSeries({ ...options, runs: [[rgb]] }));
}

function requireOne<Alpha extends Uint8Array>([answer]: readonly Answer<Alpha>[]): Matte<Alpha> {
  const [alpha] = answer?.alphas ?? [];
  if (answer === undefined || alpha === undefined) {
    throw new Error('the engine answered without an alpha');
  }
  return { alpha, ...answer.size };
}

/** The answer to each run once the process is gone; rejects also where it does not die. */
export function runSeries(options: RunSeriesOptions): Promise<readonly Answer<Buffer>[]> {
  const { spec, graph, runs, size, childEnv, timeoutMs, memoryMaxBytes, killWaitMaxMs } = options;
  const { promise, resolve, reject } = Promise.withResolvers<readonly Answer<Buffer>[]>();
  let output = '';
  const answers: Answer<Buffer>[] = [];
  let failure: string | undefined;
  const timer = setTimeout(() => {
    failure = `no answer within ${timeoutMs} ms`;
    child.kill();
  }, timeoutMs);
  const sendNext = () => {
    const pictures = runs[answers.length];
    if (pictures === undefined) child.kill();
    else void child.send({ kind: 'run', id: 1 + answers.length, size }, pictures);
  };
  const child = spawnEngineChild(childEnv, {
    killWaitMaxMs,
    dataBytesMax: memoryMaxBytes && memoryMaxBytes + RUNTIME_RESERVED_BYTES,
    onOutput: text => {
      output = (output + text).slice(-OUTPUT_LENGTH_MAX);
    },
    onFrame: ({ head, parts }) => {
      if (head.kind === 'ready') {
        options.onWarm?.(head.warmMs);
        return sendNext();
      }
      if (head.kind === 'started') return;
      if (head.kind === 'done') {
        answers.push({ alphas: parts, size: head.size });
        return sendNext();
      }
      failure = head.message;
      child.kill();
    },
    onStuck: () => {
      clearTimeout(timer);
      const stuck = `process ${child.pid} was killed and does not die`;
      reject(new Error(failure === undefined ? stuck : `${explain(failure, output)}; ${stuck}`));
    },
    // Only now has all of its standard error come.
    onExit: exit => {
      clearTimeout(timer);
      if (answers.length === runs.length) return resolve(answers);
      const how = exit.signal ?? `code ${exit.code}`;
      failure ??= exit.error?.message ?? describeEnd(how, output);
      reject(new Error(explain(failure, output)));
    },
  });
  void child.send({ kind: 'init', spec }, graph === undefined ? [] : [graph]);
  return promise;
}

/** cuDNN ends a process that lacks one of its parts, and what it says before is all that tells. */
function describeEnd(how: string, output: string): string {
  const ended = `the process ended: ${how}`;
  const lastWords = output.trim().split('\n').at(-1)?.trim().slice(0, LAST_WORDS_LENGTH_MAX);
  return lastWords ? `${ended} after "${lastWords}"` : ended;
}

/** Where a library lacks, the linker or cuDNN names it on stderr, the binding does not. */
function explain(failure: string, output: string): string {
  const short = shortenNativeError(failure);
  const missing =
    /([\w.+-]+\.so[\w.]*): cannot open shared object file/.exec(output) ??
    /Unable to load any of \{([\w.+-]+)/.exec(output);
  return missing === null ? short : `${missing[1]} is missing (${short})`;
}
