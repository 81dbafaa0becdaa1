/**
 * A package's allowance of a day counts an unpaid job, in a row that stands in for the account's
 * (docs/adr/0022). A correction of an unpaid job counts in its family alone.
 */
import { takeAccount } from '../accounts/account-store.ts';
import { countInFamily } from '../corrections/family.ts';
import type { EndFunding, Funding } from './funding.ts';

/** The package's step, which may give the allowance back, takes its row first, as a hold does. */
const end: EndFunding = async (_database, _tx, _job, { close, takeSteps }) => {
  await takeSteps();
  return await close();
};

export const allowance: Funding = {
  async hold(database, tx, { correction, allowance: by, ...job }, insertJob) {
    if (correction !== undefined) {
      await takeAccount(database, tx, job.accountId);
      await insertJob(await countInFamily(database, tx, correction));
      return undefined;
    }
    if (by === undefined) throw new Error('an unpaid job is one within an allowance');
    const taken = await by.take(database, tx, job);
    if (typeof taken === 'string') return { kind: 'refused', reason: taken };
    await insertJob({ playground_day: taken });
    return undefined;
  },
  settle: end,
  release: end,
};
