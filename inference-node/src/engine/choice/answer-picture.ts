/** Runs a prepared model in an engine of its own, to see what it answers on this machine. */
import { cpus } from 'node:os';
import { takingAtMost } from '../../models/prepared-model.ts';
import type { AnswerRuns } from '../../models/preparing/check-batches.ts';
import type { Answering } from '../../models/preparing/prepare.ts';
import { createSessionSpec } from '../engine-protocol.ts';
import { runtimeVersion } from '../runtime-version.ts';
import { runOnce, runSeries } from './run-once.ts';

/** A load and two runs: half a minute on the slowest machine that is of any use. */
const ANSWER_TIMEOUT_MS = 120_000;

export interface AnsweringOptions {
  /** As for engines: what it lets them see is what the model runs on. */
  readonly childEnv: Readonly<Record<string, string>>;
  readonly threads: number;
  /** For load and runs together. */
  readonly timeoutMs?: number;
}

/** Runs a prepared model once, with the graph for one picture alone. */
export function answerOnce({
  childEnv,
  threads,
  timeoutMs = ANSWER_TIMEOUT_MS,
}: AnsweringOptions): Answering['answer'] {
  const session = { intraOpThreads: threads, sharesCores: false, allowCpuNodes: true };
  return (model, rgb) => {
    const spec = createSessionSpec(takingAtMost(model, 1), session);
    return runOnce({ spec, rgb, childEnv, timeoutMs });
  };
}

/** The same of several runs of any number of pictures. */
export function answerRuns({
  childEnv,
  threads,
  timeoutMs = ANSWER_TIMEOUT_MS,
}: AnsweringOptions): AnswerRuns {
  const session = { intraOpThreads: threads, sharesCores: false, allowCpuNodes: true };
  return async (model, runs) => {
    const spec = createSessionSpec(model, session);
    return await runSeries({ spec, runs, childEnv, timeoutMs });
  };
}

export function createAnswering(options: AnsweringOptions): Answering {
  const machine = `${cpus()[0]?.model ?? 'unknown'}, ONNX Runtime ${runtimeVersion()}`;
  return { machine, answer: answerOnce(options) };
}
