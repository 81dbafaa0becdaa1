/** Everything the core has in the database. */

import type { Database } from '../database/database.ts';
import { MemberClocks } from '../database/member-clocks.ts';
import { requireWritable } from '../database/probe.ts';
import { createAccountStore } from './accounts/account-store.ts';
import { createAuditStore } from './accounts/audit.ts';
import { bootstrap } from './accounts/bootstrap.ts';
import { createFleetReportStore } from './fleet-size/fleet-sizing.ts';
import {
  type JobCompletion,
  type JobCompletionOptions,
  jobCompletion,
} from './jobs/job-completion.ts';
import { createJobStore, type JobStore } from './jobs/job-store.ts';
import { createApiKeyStore } from './keys/api-key-store.ts';
import { createLedgerStore } from './ledger/ledger-store.ts';
import { createNodeStore } from './nodes/node-store.ts';
import { createRateQuotaStore } from './rates/rate-limits.ts';
import { createLostResultStore } from './results/lost-result-store.ts';
import { createSweepStore } from './retention/sweep-store.ts';
import { type UnsettledJobs, unsettledJobs } from './retention/unsettled-jobs.ts';
import { createSecretsCanaryStore } from './secrets/secrets-canary-store.ts';
import { createOutboxStore } from './webhooks/outbox-store.ts';

/** What commands, checks and backups work on: they end no job. */
export type StoresWithoutEnds = ReturnType<typeof storesWithoutEnds>;

export type Stores = Omit<StoresWithoutEnds, 'jobs'> & {
  readonly jobs: JobStore & JobCompletion;
  readonly unsettled: UnsettledJobs;
};

/** On a database that is open and current. `close` closes it. */
export function createStores(database: Database, ends: JobCompletionOptions): Stores;
export function createStores(database: Database): StoresWithoutEnds;
export function createStores(database: Database, ends?: JobCompletionOptions): StoresWithoutEnds {
  const stores = storesWithoutEnds(database);
  if (ends === undefined) return stores;
  const jobs = { ...stores.jobs, ...jobCompletion(database, ends) };
  const whole: Stores = { ...stores, jobs, unsettled: unsettledJobs(database, ends) };
  return whole;
}

/** Rejects with SERVICE_UNAVAILABLE while the database does not answer or takes no writes. */
export function requireWrites(database: Database): Promise<void> {
  return requireWritable(database, db =>
    db.updateTable('secrets_canary').set({ key_id: '' }).where('id', '=', '').execute(),
  );
}

function storesWithoutEnds(database: Database) {
  const clocks = new MemberClocks(database);
  return {
    accounts: createAccountStore(database),
    apiKeys: createApiKeyStore(database),
    audit: createAuditStore(database),
    fleetReports: createFleetReportStore(database),
    jobs: createJobStore(database),
    ledger: createLedgerStore(database),
    lostResults: createLostResultStore(database),
    nodes: createNodeStore(database),
    outbox: createOutboxStore(database),
    rateQuotas: createRateQuotaStore(database),
    secretsCanary: createSecretsCanaryStore(database),
    sweeps: createSweepStore(database),
    shares: database.shares,
    /** The first account, with credits and a key, only where there is none; all of it or nothing. */
    bootstrap: (accountName: string, credits: number) => bootstrap(database, accountName, credits),
    /**
     * Looks at the clock of a member of the database, and compares it with those seen within a
     * minute; undefined: it has one.
     */
    compareClocks: () => clocks.look(),
    check: () => requireWrites(database),
    close: () => database.close(),
  };
}
