/**
 * An autoscaler of nodes follows these counts: the megapixels that are submitted and those that
 * wait, by the model that jobs name (docs/scaling.md, "Start nodes on demand"). The names that the
 * operator offers are labels; jobs of any other name count as jobs that name none.
 */
import type { GaugeValues, KnownCounter, MetricSet } from '@matting/program/metric-set.ts';
import type { QueuedWork } from '@matting/queue/queue.ts';
import type { Job } from '../jobs/job.ts';
import { queuedMegapixels } from '../queue/queue-bound.ts';

type SubmittedJob = Pick<Job, 'model' | 'finishing' | 'input'>;

/** @returns what counts a job that was submitted here */
export function countSubmitted(
  metrics: MetricSet,
  offered: readonly string[],
): (job: SubmittedJob) => void {
  const counter: KnownCounter<{ readonly model: readonly string[] }> = metrics.counter(
    'matting_control_submitted_megapixels_total',
    'Megapixels of the jobs submitted here, by the model that they name',
    { model: ['', ...offered] },
  );
  return job => {
    counter.inc({ model: labelOf(job.model, offered) }, queuedMegapixels(job));
  };
}

/** Every label has a value: an autoscaler takes a missing one for a metric that it cannot read. */
export function waitingMegapixels(
  { byModel }: Pick<QueuedWork, 'byModel'>,
  offered: readonly string[],
): GaugeValues {
  const sums = new Map(['', ...offered].map(model => [model, 0]));
  for (const [model, megapixels] of byModel) {
    const label = labelOf(model, offered);
    sums.set(label, (sums.get(label) ?? 0) + megapixels);
  }
  return [...sums].map(([model, megapixels]) => [megapixels, { model }]);
}

function labelOf(model: string | null, offered: readonly string[]): string {
  return model !== null && offered.includes(model) ? model : '';
}
