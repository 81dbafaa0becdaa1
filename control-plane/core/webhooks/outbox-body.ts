/** The body of a job's notification, rendered once, when the job ends. Pure. */
import type { Job } from '../jobs/job.ts';
import type { JobViews } from '../results/job-view.ts';

export function renderOutboxBody(views: JobViews, job: Job): string {
  if (job.finishedAtMs === null) throw new Error(`job ${job.id} is not final`);
  return JSON.stringify({
    type: job.state === 'succeeded' ? 'matting.job.succeeded' : 'matting.job.failed',
    timestamp: new Date(job.finishedAtMs).toISOString(),
    job_id: job.id,
    data: views.viewWithoutCallback(job),
  });
}
