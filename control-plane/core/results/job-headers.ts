import { type Sight, warningsOf } from '@matting/proto/contract/finishing.ts';
import type { JobOutcome } from '../jobs/job-outcome.ts';

/**
 * `X-Subject-Box`: left, top, width, height in pixels of the input. `X-Subject-Share`: 0 to 1 of
 * its area. Empty if the node reported nothing.
 */
export function subjectHeaders(sight: Sight | null): Record<string, string> {
  if (sight === null) return {};
  const warnings = warningsOf(sight).join(', ');
  const warned = warnings === '' ? {} : { 'x-warnings': warnings };
  if (sight.subject === null) return { 'x-subject-share': '0', ...warned };
  const { inputBox, share } = sight.subject;
  const { left, top, width, height } = inputBox;
  return {
    'x-subject-box': [left, top, width, height].join(','),
    // Resolves one pixel of the largest picture.
    'x-subject-share': String(Number(share.toPrecision(6))),
    ...warned,
  };
}

export function serverTimingOf({ timings }: Pick<JobOutcome, 'timings'>): Record<string, string> {
  const stages = Object.entries(timings ?? {});
  if (stages.length === 0) return {};
  const metrics = stages.map(([stage, ms]) => {
    const token = stage.replaceAll(/[^A-Za-z0-9_-]/g, '_');
    return `${token};dur=${Number(ms.toFixed(1))}`;
  });
  return { 'server-timing': metrics.join(', ') };
}
