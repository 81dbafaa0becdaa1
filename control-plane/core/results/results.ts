/** Other packages answer with these: they wait for a job, and send its result or refusal. */
export { type Batch, batchStatus } from '../jobs/batch.ts';
export { jobErrorOf, serverTimingOf } from './job-view.ts';
export { etagOf, fileHeaders, openForReader } from './result-download.ts';
export { waitForEnd, withJob } from './wait-for-job.ts';
