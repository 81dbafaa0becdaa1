/**
 * The daily look: whether every result whose link is good still has its file. It is a step of the
 * sweeper, so one replica at a time does it, and its place is kept. It reads no file: it takes a
 * page of rows, asks the storage about each, and rests, so that it asks RATE_MAX times a second at
 * most. Where most of what is beside a result is gone too it ends, and comes again in an hour
 * (LostResults).
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { BlobStore } from '../../storage/blob-store.ts';
import type { LostResultStore } from '../../store/jobs/lost-results.ts';
import type { SweepStep } from '../sweeping/sweep.ts';
import type { LostResults } from './lost-results.ts';

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
/** Results of a page, and questions to the storage a second: 50 are 4 million a day. */
const PAGE_MAX = 10;
const RATE_MAX = 50;
/** What ends so soon is not looked at: the sweeper may remove it meanwhile. */
const AHEAD_MS = 60_000;

export interface ResultLookDependencies {
  readonly lostResults: Pick<LostResultStore, 'live' | 'dueLook' | 'saveLook'>;
  readonly losses: Pick<LostResults, 'judge'>;
  readonly blobs: Pick<BlobStore, 'stat'>;
  /** Resolves after so many ms. */
  readonly rest?: (ms: number) => Promise<unknown>;
}

export function resultLookStep(dependencies: ResultLookDependencies): SweepStep {
  const { lostResults, rest = delay } = dependencies;
  return {
    name: 'look over results',
    async page(size) {
      const after = await lostResults.dueLook();
      if (after === undefined) return { done: 0, more: false };
      const limit = Math.min(size, PAGE_MAX);
      const page = await lostResults.live(after, AHEAD_MS, limit);
      let lost = 0;
      for (const { jobId, blob } of page) {
        const verdict = await lookAt(dependencies, jobId, blob);
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

async function lookAt(
  { losses, blobs }: ResultLookDependencies,
  jobId: string,
  blob: string,
): Promise<'there' | Awaited<ReturnType<LostResults['judge']>>> {
  return (await blobs.stat(blob)) === undefined ? await losses.judge(jobId, 'look') : 'there';
}
