/** Nobody pays. The job counts as in flight in the account's row. */
import { closeFreeJob, openFreeJob } from '@matting/accounts/ledger/ledger-writer.ts';
import type { EndFunding, Funding } from './funding.ts';

const end: EndFunding = async (database, tx, { accountId }, { close, takeSteps }) => {
  if (!(await closeFreeJob(database, tx, accountId))) return 'nothing-reserved';
  const closed = await close();
  await takeSteps();
  return closed;
};

export const free: Funding = {
  async hold(database, tx, job, insertJob) {
    const isOpen = await openFreeJob(database, tx, job);
    if (!isOpen) return { kind: 'too-many-in-flight' };
    await insertJob(null);
    return undefined;
  },
  settle: end,
  release: end,
};
