/**
 * A job with all its parts by their readers: the queue, the request, the outcome, the callback, the
 * family of corrections. A function takes the part that it uses.
 */
import type { JobStatus, QueueJob } from '@matting/queue/job.ts';
import type { CallbackJob } from './job-callback.ts';
import type { FamilyJob, JobCorrection } from './job-family.ts';
import type { JobOutcome } from './job-outcome.ts';
import type { JobRequest } from './job-request.ts';

/** A row with all its parts. */
export type Job = QueueJob & JobRequest & JobOutcome & CallbackJob & FamilyJob;

/** Lists and answers show this of a job. */
export type ViewedJob = JobStatus &
  JobOutcome &
  CallbackJob &
  Pick<Job, 'reference' | 'group'> & { readonly correction: Pick<JobCorrection, 'of'> | null };
