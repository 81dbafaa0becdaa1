/** Server-Timing: how long each stage of a finished job took. */
import type { Job } from '../../jobs/job.ts';

/** The header; empty while the job has no stage times. */
export function serverTimingOf({ timings }: Job): Record<string, string> {
  const stages = Object.entries(timings ?? {});
  if (stages.length === 0) return {};
  const metrics = stages.map(([stage, ms]) => {
    const token = stage.replaceAll(/[^A-Za-z0-9_-]/g, '_');
    return `${token};dur=${Number(ms.toFixed(1))}`;
  });
  return { 'server-timing': metrics.join(', ') };
}
