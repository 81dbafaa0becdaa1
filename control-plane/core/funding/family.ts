/**
 * Nobody pays for a correction. Its family bounds it, and the account's row
 * counts it among the jobs in flight (docs/adr/0052).
 */

import { closeCorrection, openCorrection } from '@matting/accounts/ledger/ledger-writer.ts';
import { countInFamily } from '../corrections/family.ts';
import type { EndFunding, Funding } from './funding.ts';

const end: EndFunding = async (database, tx, { accountId }, { close, takeSteps }) => {
  if (!(await closeCorrection(database, tx, accountId))) return 'nothing-reserved';
  const closed = await close();
  await takeSteps();
  return closed;
};

export const family: Funding = {
  async hold(database, tx, { correction, ...job }, insertJob) {
    const isOpen = await openCorrection(database, tx, job);
    if (!isOpen) return { kind: 'too-many-in-flight' };
    await insertJob(await countInFamily(database, tx, correction));
    return undefined;
  },
  settle: end,
  release: end,
};
