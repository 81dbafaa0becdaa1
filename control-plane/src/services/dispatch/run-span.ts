/**
 * The spans of a claim: how long its job had waited, the claim itself, and the run that follows.
 * All are under the submission's, whichever replica made the claim.
 */

import { carrierOf } from '#program/tracing/kept-context.ts';
import type { Span, Tracing } from '#program/tracing/span.ts';
import type { Job } from '../../domain/job.ts';

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
): Span | undefined {
  if (tracing === undefined) return undefined;
  const parent = job.traceContext === null ? undefined : carrierOf(job.traceContext);
  const attributes = {
    'matting.job.id': job.id,
    'matting.job.mode': job.mode,
    'matting.job.fence': job.fence,
    'matting.job.taken_over': job.takeovers > 0,
  };
  // What came before a second claim is not known: its first run may have ended with its process.
  if (parent !== undefined && job.fence === 1) {
    const submittedMs = answeredMs - (job.readAtMs - job.createdAtMs);
    const startMs = Math.min(submittedMs, askedMs);
    tracing.start({ name: 'queue', attributes, startMs }, parent).end(askedMs);
  }
  const run = tracing.start(
    { name: 'run', kind: 'consumer', attributes, startMs: askedMs },
    parent,
  );
  if (run.recording) run.child({ name: 'claim', startMs: askedMs }).end(answeredMs);
  return run;
}
