/** The daily look whether every live result has its file. */

import { setTimeout as delay } from 'node:timers/promises';
import { DAY_MS, HOUR_MS } from '@matting/program/durations.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import type { LostResultStore } from './lost-result-store.ts';
import type { LostResults } from './lost-results.ts';

/** Results of a page, and questions to the storage a second: 50 are 4 million a day. */
const PAGE_MAX = 10;
const RATE_MAX = 50;
/** The look leaves out what ends so soon: the sweeper may remove it meanwhile. */
const AHEAD_MS = 60_000;

interface ResultLookDependencies {
  readonly lostResults: Pick<LostResultStore, 'live' | 'dueLook' | 'saveLook'>;
  readonly losses: Pick<LostResults, 'judge'>;
  readonly blobs: Pick<BlobStore, 'stat'>;
  readonly rest?: (ms: number) => Promise<unknown>;
}

/** A step of the sweep. If the newest result is gone too, the look begins again in an hour. */
export function resultLookStep({
  lostResults,
  losses,
  blobs,
  rest = delay,
}: ResultLookDependencies) {
  return {
    name: 'look over results',
    async page(size: number) {
      const after = await lostResults.dueLook();
      if (after === undefined) return { done: 0, more: false };
      const limit = Math.min(size, PAGE_MAX);
      const page = await lostResults.live(after, AHEAD_MS, limit);
      let lost = 0;
      for (const { jobId, blob } of page) {
        if ((await blobs.stat(blob)) !== undefined) continue;
        const verdict = await losses.judge(jobId, 'look');
        if (verdict === 'storage') {
          await lostResults.saveLook({ inMs: HOUR_MS });
          return { done: lost, more: false };
        }
        if (verdict === 'lost') lost += 1;
      }
      const last = page.at(-1);
      const more = last !== undefined && page.length === limit;
      await lostResults.saveLook(
        more ? { after: { atMs: last.expiresAtMs, id: last.jobId } } : { inMs: DAY_MS },
      );
      if (more) await rest((page.length / RATE_MAX) * 1000);
      return { done: lost, more };
    },
  };
}
