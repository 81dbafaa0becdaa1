/** A job in parts: a function takes the part that it uses. */
import type { JobStatus, QueueJob } from '@matting/queue/job.ts';
import type { CallbackJob } from './job-callback.ts';
import type { FamilyJob, JobCorrection } from './job-family.ts';
import type { JobOutcome } from './job-outcome.ts';
import type { JobRequest } from './job-request.ts';

export type Job = QueueJob & JobRequest & JobOutcome & CallbackJob & FamilyJob;

export type ViewedJob = JobStatus &
  JobOutcome &
  CallbackJob &
  Pick<Job, 'reference' | 'group'> & { readonly correction: Pick<JobCorrection, 'of'> | null };
