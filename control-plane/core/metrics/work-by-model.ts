/**
 * Work by model, for an autoscaler of nodes (docs/scaling.md, "Start nodes on demand"). Only
 * offered models are labels. Jobs for others count as jobs that name no model.
 */
import type { GaugeValues, KnownCounter, MetricSet } from '@matting/program/metric-set.ts';
import type { QueuedWork } from '@matting/queue/queue.ts';
import type { Job } from '../jobs/job.ts';
import { queuedMegapixels } from '../queue/queue-bound.ts';

type SubmittedJob = Pick<Job, 'model' | 'finishing' | 'input'>;

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

/** Every offered model has a value: autoscalers cannot read a metric without its label. */
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
