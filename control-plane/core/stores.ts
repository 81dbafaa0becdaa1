import { createAccountStore } from '@matting/accounts/account-store.ts';
import { createAuditStore } from '@matting/accounts/audit-log.ts';
import { createFirstAccount } from '@matting/accounts/first-account.ts';
import { createApiKeyStore } from '@matting/accounts/keys/api-key-store.ts';
import type { KeyRevokedStep } from '@matting/accounts/keys/change-api-keys.ts';
import { createLedgerStore } from '@matting/accounts/ledger/ledger-store.ts';
import { createRateQuotaStore } from '@matting/accounts/rates/rate-limits.ts';
import type { Database } from '@matting/database/database.ts';
import { requireWritable } from '@matting/database/probe.ts';
import { createNodeStore } from '@matting/nodes/node-store.ts';
import { createSightingStore } from '@matting/nodes/sighting-store.ts';
import { JobEnds } from '@matting/queue/end-job.ts';
import type { SubmissionStep } from '@matting/queue/submit-job.ts';
import { type UnsettledJobs, unsettledJobs } from '@matting/queue/unsettled-jobs.ts';
import { ledgerAudits } from './audit/ledger-audit.ts';
import type { LedgerAuditPart } from './audit/ledger-comparisons.ts';
import { jobDeletion } from './deletion/remove-job.ts';
import { groupReading, type JobGroups, jobGroups } from './groups/job-groups.ts';
import { createJobStore } from './jobs/job-store.ts';
import { endsOf, type MattingEndOptions, succeedBy } from './queue/matting-ends.ts';
import { mattingQueue } from './queue/matting-queue.ts';
import { mattingSubmission } from './queue/matting-submission.ts';
import type { Queue } from './queue/queue.ts';
import { createLostResultStore } from './results/lost-result-store.ts';
import { jobRetention } from './retention/job-retention.ts';
import { createSweepStore } from './retention/sweep-store.ts';
import { createSecretsCanaryStore } from './secrets/secrets-key.ts';
import { createOutboxStore } from './webhooks/outbox-store.ts';

export interface PackageSteps {
  readonly submission: readonly SubmissionStep[];
  readonly keyRevoked: readonly KeyRevokedStep[];
  readonly ledgerAudit: readonly LedgerAuditPart[];
}

const NO_STEPS: PackageSteps = { submission: [], keyRevoked: [], ledgerAudit: [] };

export type StoresWithoutEnds = ReturnType<typeof storesWithoutEnds>;

export type Stores = Omit<StoresWithoutEnds, 'groups' | 'queue'> & {
  readonly groups: JobGroups;
  readonly queue: Queue;
  readonly unsettled: UnsettledJobs;
};

/** @param database open and migrated; `close` closes it */
export function createStores(
  database: Database,
  options: MattingEndOptions,
  steps?: PackageSteps,
): Stores;
export function createStores(
  database: Database,
  options?: undefined,
  steps?: PackageSteps,
): StoresWithoutEnds;
export function createStores(
  database: Database,
  options?: MattingEndOptions,
  steps: PackageSteps = NO_STEPS,
): StoresWithoutEnds {
  const stores = storesWithoutEnds(database, steps);
  if (options === undefined) return stores;
  const payload = endsOf(options);
  const ends = new JobEnds(database, payload, options);
  const queue: Queue = {
    ...stores.queue,
    succeed: succeedBy(database, ends),
    fail: (claim, failure, giveUp) => ends.fail(claim, failure, giveUp),
    ...jobDeletion(database, ends),
  };
  const groups = { ...stores.groups, ...jobGroups(database, ends) };
  const unsettled = unsettledJobs(database, payload, options);
  const whole: Stores = { ...stores, queue, groups, unsettled };
  return whole;
}

function storesWithoutEnds(database: Database, steps: PackageSteps) {
  return {
    accounts: createAccountStore(database),
    apiKeys: createApiKeyStore(database, steps.keyRevoked),
    audit: createAuditStore(database),
    jobs: { ...createJobStore(database), ...jobRetention(database) },
    queue: { ...mattingQueue(database), ...mattingSubmission(database, steps.submission) },
    groups: groupReading(database),
    ledger: { ...createLedgerStore(database), ...ledgerAudits(database, steps.ledgerAudit) },
    lostResults: createLostResultStore(database),
    nodes: createNodeStore(database),
    outbox: createOutboxStore(database),
    rateQuotas: createRateQuotaStore(database),
    secretsCanary: createSecretsCanaryStore(database),
    sightings: createSightingStore(database),
    sweeps: createSweepStore(database),
    shares: database.shares,
    bootstrap: (accountName: string, credits: number) =>
      createFirstAccount(database, accountName, credits),
    /** Rejects with SERVICE_UNAVAILABLE while the database is silent or read-only. */
    check: () =>
      requireWritable(database, db =>
        db.updateTable('secrets_canary').set({ key_id: '' }).where('id', '=', '').execute(),
      ),
    close: () => database.close(),
  };
}
