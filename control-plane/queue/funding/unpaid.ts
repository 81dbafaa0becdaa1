/** Nobody pays, and the job is not in flight (docs/adr/0022). */
import { takeAccount } from '@matting/accounts/account-store.ts';
import type { EndFunding, Funding } from './funding.ts';

const end: EndFunding = async (database, tx, { accountId }, { close, takeSteps }) => {
  await takeAccount(database, tx, accountId);
  const closed = await close();
  await takeSteps();
  return closed;
};

export const unpaid: Funding = {
  async hold(database, tx, { accountId }, insertJob) {
    await takeAccount(database, tx, accountId);
    await insertJob(null);
    return undefined;
  },
  settle: end,
  release: end,
};
