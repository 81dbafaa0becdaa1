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
  /** As for engines. */
  readonly childEnv: Readonly<Record<string, string>>;
  readonly threads: number;
}

/**
 * Runs a prepared model once, with the graph for one picture alone, on what `childEnv` lets an engine see.
 * @param timeoutMs for load and run together.
 */
export function answerOnGpu(
  childEnv: Readonly<Record<string, string>>,
  timeoutMs: number,
): Answering['answer'] {
  const session = { deviceId: 0, intraOpThreads: 1, sharesCores: false, allowCpuNodes: true };
  return (model, rgb) => {
    const spec = createSessionSpec(takingAtMost(model, 1), session);
    return runOnce({ spec, rgb, childEnv, timeoutMs });
  };
}

export interface AnswerRunsOptions extends AnsweringOptions {
  /** For load and runs together. */
  readonly timeoutMs: number;
}

/** The same of several runs of any number of pictures. */
export function answerRuns({ childEnv, threads, timeoutMs }: AnswerRunsOptions): AnswerRuns {
  const session = { intraOpThreads: threads, sharesCores: false, allowCpuNodes: true };
  return async (model, runs) => {
    const spec = createSessionSpec(model, { deviceId: 0, ...session });
    const answers = await runSeries({ spec, runs, childEnv, timeoutMs });
    return answers.map(({ alphas }) => alphas);
  };
}

export function createAnswering({ childEnv, threads }: AnsweringOptions): Answering {
  return {
    machine: `${cpus()[0]?.model ?? 'unknown'}, ONNX Runtime ${runtimeVersion()}`,
    answer: (model, rgb) => {
      const session = {
        deviceId: 0,
        intraOpThreads: threads,
        sharesCores: false,
        allowCpuNodes: true,
      };
      const spec = createSessionSpec(takingAtMost(model, 1), session);
      return runOnce({ spec, rgb, childEnv, timeoutMs: ANSWER_TIMEOUT_MS });
    },
  };
}
