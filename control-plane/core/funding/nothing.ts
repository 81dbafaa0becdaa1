/** An unpaid job costs nothing (docs/adr/0022). A correction of one counts in its family. */
import { takeAccount } from '@matting/accounts/account-store.ts';
import { countInFamily } from '../corrections/family.ts';
import type { EndFunding, Funding } from './funding.ts';

const end: EndFunding = async (database, tx, { accountId }, { close, takeSteps }) => {
  await takeAccount(database, tx, accountId);
  const closed = await close();
  await takeSteps();
  return closed;
};

export const nothing: Funding = {
  async hold(database, tx, { accountId, correction, unpaidDayMs = null }, insertJob) {
    await takeAccount(database, tx, accountId);
    const counted =
      correction === undefined
        ? { playground_day: unpaidDayMs }
        : await countInFamily(database, tx, correction);
    await insertJob(counted);
    return undefined;
  },
  settle: end,
  release: end,
};
