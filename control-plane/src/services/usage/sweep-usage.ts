/** What the sweeper does for the figures of usage. */
import type { UsageStore } from '../../store/usage/usage-store.ts';
import type { SweepStep } from '../sweeping/sweep.ts';

/** Counts what control planes from before the figures ended, while the rows of their jobs are there. */
export function usageSweepSteps(usage: Pick<UsageStore, 'walk' | 'removeOld'>): SweepStep[] {
  return [
    {
      name: 'usage of older control planes',
      page: async size => {
        const { counted, more } = await usage.walk(size);
        return { done: counted, more };
      },
    },
    {
      name: 'old usage',
      page: async size => {
        const removed = await usage.removeOld(size);
        return { done: removed, more: removed === size };
      },
    },
  ];
}
