/**
 * What a job's run learns of its picture that a submission would have been refused for: the same
 * rules, once the image is there.
 */
import type { ContractError } from '#contract/errors.ts';
import { frameRefusal } from '#contract/finishing/frame.ts';
import { type JobNeeds, needsOf, sizeOf } from '../../domain/dispatch/job-needs.ts';
import type { Job } from '../../domain/job.ts';
import { failureOf } from './attempt-failure.ts';
import type { Ending } from './claimed-job.ts';
import type { Pictures } from './pictures.ts';

/** What a node must be able to do for a job with these pictures. */
export function needsOfPictures(job: Job, { input, background }: Pictures): JobNeeds {
  return needsOf(input, { ...job, background: { input: background } });
}

/**
 * Why no node can do what was just seen or refused; undefined: some can, or may come. Only the
 * replica that found it out asks: others may not know a node yet, and let the job wait.
 */
export type RefusalOfNodes = (jobId: string, needs: JobNeeds) => ContractError | undefined;

/** Undefined: nothing is known against it. */
export function endingByPicture(
  job: Job,
  pictures: Pictures,
  ofNodes: RefusalOfNodes,
): Extract<Ending, { kind: 'failed' }> | undefined {
  const needs = needsOfPictures(job, pictures);
  const size = sizeOf(pictures.input);
  const { steps, frame } = needs.finishing ?? {};
  const tooLarge = steps && frame && size && frameRefusal(steps, size, frame.least);
  const refusal = tooLarge ?? ofNodes(job.id, needs);
  return refusal && { kind: 'failed', failure: failureOf(refusal) };
}
