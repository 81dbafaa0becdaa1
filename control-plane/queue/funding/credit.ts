/** The account pays a credit, which counts for the cap of the job's key (docs/adr/0024). */
import { countForCap, giveBackToCap } from '@matting/accounts/keys/key-caps.ts';
import { CREDITS_PER_JOB } from '@matting/accounts/ledger/ledger.ts';
import { reserveCredit, settleCredit } from '@matting/accounts/ledger/ledger-writer.ts';
import type { EndFunding, Funding } from './funding.ts';

export const credit: Funding = {
  async hold(database, tx, { id: jobId, apiKeyId, keyHasCap, ...job }, insertJob) {
    const reservation = { ...job, jobId };
    const kind = await reserveCredit(database, tx, reservation, async () => {
      const cap = keyHasCap ? await countForCap(database, tx, apiKeyId, CREDITS_PER_JOB) : null;
      await insertJob(cap);
    });
    return kind === 'reserved' ? undefined : { kind };
  },
  settle: endingBy('charge'),
  release: endingBy('release'),
};

function endingBy(kind: 'charge' | 'release'): EndFunding {
  return async (database, tx, job, { close, takeSteps }) => {
    const { id: jobId, accountId, apiKeyId, capWindowStartMs } = job;
    const ended = await settleCredit(database, tx, { kind, accountId, jobId }, async () => {
      const closed = await close();
      if (kind === 'release' && capWindowStartMs !== null) {
        await giveBackToCap(tx, apiKeyId, capWindowStartMs, CREDITS_PER_JOB);
      }
      return closed;
    });
    if (ended !== 'nothing-reserved') await takeSteps();
    return ended;
  };
}
