/** Other packages answer with these: they wait for a job, and send its result or refusal. */
export { type Batch, batchStatus } from '../jobs/batch.ts';
export { jobErrorOf, withJob } from './job-errors.ts';
export { serverTimingOf } from './job-headers.ts';
export { etagOf, fileHeaders, openForReader } from './result-download.ts';
export { waitForEnd } from './wait-for-job.ts';
