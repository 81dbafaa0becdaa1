import type { Job } from '@matting/core/jobs/job.ts';
import type { VNode } from 'preact';
import { html } from '../page/html.ts';
import type { Locale } from '../session/visit.ts';

const WIDTH = 1000;
/** Keeps a short stage visible. */
const BAR_MIN = 6;
const WAITS: readonly string[] = ['queue', 'worker_wait', 'engine_wait'];

export function stageBars({ words, formats }: Locale, timings: NonNullable<Job['timings']>): VNode {
  const names: Readonly<Record<string, string>> = words.jobs.stages;
  const shown = Object.entries(timings).filter(([, ms]) => Math.round(ms) > 0);
  const totalMs = Math.max(
    1,
    shown.reduce((sum, [, ms]) => sum + ms, 0),
  );
  let beforeMs = 0;
  const rows = shown.map(([stage, ms]) => {
    const width = Math.max(BAR_MIN, (WIDTH * ms) / totalMs);
    const x = Math.min(WIDTH - width, (WIDTH * beforeMs) / totalMs);
    beforeMs += ms;
    return html`<li><span>${names[stage] ?? stage}</span>
      <svg viewBox=${`0 0 ${WIDTH} 10`} preserveAspectRatio="none" aria-hidden="true"><rect
        class=${WAITS.includes(stage) ? 'wait' : 'work'} x=${x.toFixed(1)} width=${width.toFixed(1)} height="10" /></svg>
      <span class="end">${formats.duration(ms)}</span></li>`;
  });
  return html`<ol class="panel stage-bars">${rows}</ol>`;
}
