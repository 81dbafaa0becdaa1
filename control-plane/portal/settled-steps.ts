import type { SettledMattingStep } from '@matting/core/queue/matting-ends.ts';
import { takeReleased } from './orders/refund-order.ts';
import { giveImageBack } from './playground/playground-store.ts';
import { countSettledJob } from './usage/usage-store.ts';

export const SETTLED_STEPS: readonly SettledMattingStep[] = [
  {
    name: 'refunds',
    async settled(database, tx, job) {
      if (job.funding !== 'credit' || job.outcome === 'succeeded') return;
      await takeReleased(database, tx, job);
    },
  },
  {
    name: 'usage',
    async settled(database, tx, job) {
      if (job.funding !== 'unpaid') await countSettledJob(database, tx, job);
    },
  },
  {
    name: 'playground',
    async settled(_database, tx, { accountId, unpaidDayMs, retryable, isCorrection }) {
      // A failure that was not the picture's fault does not count. Corrections never count.
      if (unpaidDayMs !== null && retryable && !isCorrection)
        await giveImageBack(tx, accountId, unpaidDayMs);
    },
  },
];
