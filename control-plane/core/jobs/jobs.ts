/** Other packages use these of jobs: a job by its parts, its states, what its end may need. */
export { backgroundBlob, thumbnailBlob } from './blob-names.ts';
export {
  FINAL_STATES,
  isFinal,
  isUnpaid,
  type Job,
  type JobState,
  type JobStatus,
  OPEN_STATES,
  publicState,
} from './job.ts';
export { callbackFailureOf } from './job-callback.ts';
export type { JobOutcome } from './job-outcome.ts';
export { type Claim, JOB_MS_MAX } from './lease-rules.ts';
