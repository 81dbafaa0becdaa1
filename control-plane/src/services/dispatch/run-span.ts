/**
 * The spans of a claim: how long its job had waited, the claim itself, and the run that follows.
 * All are under the submission's, whichever replica made the claim.
 */

import { carrierOf, recordSpan, underSpan } from '#program/tracing/active-span.ts';
import type { StartedSpan, Tracing } from '#program/tracing/span.ts';
import { type Job, modeOf } from '../../domain/job.ts';

export interface ClaimTimes {
  /** UTC milliseconds of this process: when the claim was asked for, and answered. */
  readonly askedMs: number;
  readonly answeredMs: number;
}

/** The run, to be ended by its owner; undefined: nothing is traced here. */
export function beginRunSpan(
  tracing: Tracing | undefined,
  job: Job,
  { askedMs, answeredMs }: ClaimTimes,
): StartedSpan | undefined {
  if (tracing === undefined) return undefined;
  const parent = carrierOf(job.traceContext);
  const attributes = {
    'matting.job.id': job.id,
    'matting.job.mode': modeOf(job),
    'matting.job.fence': job.fence,
    'matting.job.taken_over': job.takeovers > 0,
  };
  // What came before a second claim is not known: its first run may have ended with its process.
  if (parent !== undefined && job.fence === 1) {
    const submittedMs = answeredMs - (job.readAtMs - job.createdAtMs);
    const startTime = Math.min(submittedMs, askedMs);
    tracing.start({ name: 'queue', attributes, startTime }, parent).span.end(askedMs);
  }
  const begin = { name: 'run', kind: 'CONSUMER', attributes, startTime: askedMs } as const;
  const run = tracing.start(begin, parent);
  underSpan(run, () => recordSpan({ name: 'claim', startTime: askedMs }, answeredMs));
  return run;
}
