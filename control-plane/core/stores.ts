/** Everything the core has in the database, and what is made there at the very first start. */

import { randomUUID } from 'node:crypto';
import { type Database, type Db, transact } from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { requireWritable } from '@matting/database/probe.ts';
import { createNodeStore } from '@matting/nodes/node-store.ts';
import { createSightingStore } from '@matting/nodes/sighting-store.ts';
import { createAccountStore, insertAccount, requireName } from './accounts/account-store.ts';
import { createAuditStore } from './accounts/audit.ts';
import { groupReading, type JobGroups, jobGroups } from './groups/job-groups.ts';
import { createJobStore } from './jobs/job-store.ts';
import { createApiKeyStore } from './keys/api-key-store.ts';
import { createApiKeyToken } from './keys/api-key-token.ts';
import { insertApiKey, type KeyRevokedStep } from './keys/change-api-keys.ts';
import type { LedgerAuditPart } from './ledger/ledger-comparisons.ts';
import { createLedgerStore } from './ledger/ledger-store.ts';
import { enterOperatorEntry } from './ledger/ledger-writer.ts';
import { type JobCompletionOptions, jobCompletion } from './queue/end-job.ts';
import { mattingQueue } from './queue/matting-queue.ts';
import type { Queue } from './queue/queue.ts';
import { jobDeletion } from './queue/remove-job.ts';
import type { SubmissionStep } from './queue/submission-steps.ts';
import { jobSubmission } from './queue/submit-job.ts';
import { createRateQuotaStore } from './rates/rate-limits.ts';
import { createLostResultStore } from './results/lost-result-store.ts';
import { jobRetention } from './retention/job-retention.ts';
import { createSweepStore } from './retention/sweep-store.ts';
import { type UnsettledJobs, unsettledJobs } from './retention/unsettled-jobs.ts';
import { createSecretsCanaryStore } from './secrets/secrets-key.ts';
import { createOutboxStore } from './webhooks/outbox-store.ts';

/** Packages take part in what these stores do. */
export interface PackageSteps {
  readonly submission: readonly SubmissionStep[];
  readonly keyRevoked: readonly KeyRevokedStep[];
  readonly ledgerAudit: readonly LedgerAuditPart[];
}

const NO_STEPS: PackageSteps = { submission: [], keyRevoked: [], ledgerAudit: [] };

/** Commands, checks and backups work on these: they end no job. */
export type StoresWithoutEnds = ReturnType<typeof storesWithoutEnds>;

export type Stores = Omit<StoresWithoutEnds, 'groups' | 'queue'> & {
  readonly groups: JobGroups;
  readonly queue: Queue;
  readonly unsettled: UnsettledJobs;
};

/** Creates the stores on a database that is open and current. `close` closes it. */
export function createStores(
  database: Database,
  ends: JobCompletionOptions,
  steps?: PackageSteps,
): Stores;
export function createStores(
  database: Database,
  ends?: undefined,
  steps?: PackageSteps,
): StoresWithoutEnds;
export function createStores(
  database: Database,
  ends?: JobCompletionOptions,
  steps: PackageSteps = NO_STEPS,
): StoresWithoutEnds {
  const stores = storesWithoutEnds(database, steps);
  if (ends === undefined) return stores;
  const queue: Queue = {
    ...stores.queue,
    ...jobCompletion(database, ends),
    ...jobDeletion(database, ends),
  };
  const groups = { ...stores.groups, ...jobGroups(database, ends) };
  const unsettled = unsettledJobs(database, ends);
  const whole: Stores = { ...stores, queue, groups, unsettled };
  return whole;
}

function storesWithoutEnds(database: Database, steps: PackageSteps) {
  return {
    accounts: createAccountStore(database),
    apiKeys: createApiKeyStore(database, steps.keyRevoked),
    audit: createAuditStore(database),
    jobs: { ...createJobStore(database), ...jobRetention(database) },
    queue: { ...mattingQueue(database), ...jobSubmission(database, steps.submission) },
    groups: groupReading(database),
    ledger: createLedgerStore(database, steps.ledgerAudit),
    lostResults: createLostResultStore(database),
    nodes: createNodeStore(database),
    outbox: createOutboxStore(database),
    rateQuotas: createRateQuotaStore(database),
    secretsCanary: createSecretsCanaryStore(database),
    sightings: createSightingStore(database),
    sweeps: createSweepStore(database),
    shares: database.shares,
    bootstrap: (accountName: string, credits: number) => bootstrap(database, accountName, credits),
    /** Rejects with SERVICE_UNAVAILABLE while the database does not answer or takes no writes. */
    check: () =>
      requireWritable(database, db =>
        db.updateTable('secrets_canary').set({ key_id: '' }).where('id', '=', '').execute(),
      ),
    close: () => database.close(),
  };
}

/* The very first start. */

type BootstrapOutcome =
  | { readonly created: true; readonly accountId: string; readonly token: string }
  | { readonly created: false };

/** @param credits at least 1. */
async function bootstrap(
  database: Database,
  accountName: string,
  credits: number,
): Promise<BootstrapOutcome> {
  requireName(accountName);
  // The id is made once, outside of what is repeated: after a lost answer the account exists, and
  // only this call knows its key.
  const accountId = randomUUID();
  const key = createApiKeyToken();
  const ours: BootstrapOutcome = { created: true, accountId, token: key.text };
  try {
    return await transact(database, async tx => {
      if (await isThere(tx, accountId)) return ours;
      const any = await tx.selectFrom('accounts').select('id').limit(1).executeTakeFirst();
      if (any !== undefined) return { created: false };
      await insertAccount(database, tx, accountId, accountName);
      const grant = { accountId, amount: credits, reference: 'bootstrap' };
      await enterOperatorEntry(database, tx, { kind: 'grant', ...grant });
      await insertApiKey(database, tx, accountId, accountName, key);
      return ours;
    });
  } catch (error) {
    // Two first starts at once: the other one made the account.
    if (databaseErrorKind(error) === 'duplicate') return { created: false };
    throw error;
  }
}

async function isThere(tx: Db, accountId: string): Promise<boolean> {
  const row = await tx
    .selectFrom('accounts')
    .select('id')
    .where('id', '=', accountId)
    .executeTakeFirst();
  return row !== undefined;
}
