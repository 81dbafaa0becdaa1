/** Everything the database holds, opened and closed as one. */
import { type AccountStore, createAccountStore } from './accounts/account-store.ts';
import { type ApiKeyStore, createApiKeyStore } from './accounts/api-key-store.ts';
import { createRateQuotaStore, type RateQuotaStore } from './accounts/rate-quota-store.ts';
import { type AlertSettingsStore, alertSettings } from './alerts/alert-settings.ts';
import { type AlertStore, alertLooking } from './alerts/alert-store.ts';
import { type BootstrapOutcome, bootstrap } from './bootstrap.ts';
import { createFleetReportStore, type FleetReportStore } from './cluster/fleet-report-store.ts';
import { createNodeStore, type NodeStore } from './cluster/node-store.ts';
import {
  createSecretsCanaryStore,
  type SecretsCanaryStore,
} from './cluster/secrets-canary-store.ts';
import { createSweepStore, type SweepStore } from './cluster/sweep-store.ts';
import {
  type Database,
  DatabaseOpenError,
  openDatabase,
  type StoreLog,
} from './database/connect.ts';
import {
  type ClockComparison,
  MemberClocks,
  requireAgreeingClocks,
} from './database/member-clocks.ts';
import { migrate, requireCurrentSchema } from './database/migrate.ts';
import { requireWritable } from './database/probe.ts';
import type { RequestShares } from './database/request-shares.ts';
import {
  type JobCompletion,
  type JobCompletionOptions,
  jobCompletion,
} from './jobs/job-completion.ts';
import { createJobStore, type JobStore } from './jobs/job-store.ts';
import { createLostResultStore, type LostResultStore } from './jobs/lost-results.ts';
import { createPlaygroundStore, type PlaygroundStore } from './jobs/playground-store.ts';
import { createLedgerStore, type LedgerStore } from './ledger/ledger-store.ts';
import { createOutboxStore, type OutboxStore } from './outbox/outbox-store.ts';
import { type AuditStore, createAuditStore } from './people/audit.ts';
import { createIdentityStore, type IdentityStore } from './people/identity-entry.ts';
import { createLinkStore, type LinkStore } from './people/link-store.ts';
import { type PeopleRetention, peopleRetention } from './people/people-retention.ts';
import { createPeopleStore, type PeopleStore } from './people/people-store.ts';
import { createSessionStore, type SessionStore } from './people/session-store.ts';
import { createSignInThrottleStore, type SignInThrottleStore } from './people/sign-in-throttle.ts';
import { orderPaying } from './sales/order-paying.ts';
import { orderPlacing } from './sales/order-placing.ts';
import { orderRefunding } from './sales/order-refunding.ts';
import type { OrderStore } from './sales/order-store.ts';
import { orderListing } from './sales/order-store.ts';
import { createUsageStore, type UsageStore } from './usage/usage-store.ts';

export interface Stores {
  readonly accounts: AccountStore;
  readonly alerts: AlertStore;
  readonly alertSettings: AlertSettingsStore;
  readonly apiKeys: ApiKeyStore;
  readonly audit: AuditStore;
  readonly fleetReports: FleetReportStore;
  readonly jobs: JobStore & JobCompletion;
  readonly identities: IdentityStore;
  readonly ledger: LedgerStore;
  readonly links: LinkStore;
  readonly lostResults: LostResultStore;
  readonly nodes: NodeStore;
  readonly outbox: OutboxStore;
  readonly playground: PlaygroundStore;
  readonly orders: OrderStore;
  readonly people: PeopleStore & PeopleRetention;
  readonly rateQuotas: RateQuotaStore;
  readonly secretsCanary: SecretsCanaryStore;
  readonly sessions: SessionStore;
  readonly signInThrottles: SignInThrottleStore;
  readonly sweeps: SweepStore;
  readonly usage: UsageStore;
  readonly shares: RequestShares;
  /** The first account, with credits and a key, only where there is none; all of it or nothing. */
  bootstrap(accountName: string, credits: number): Promise<BootstrapOutcome>;
  /**
   * Looks at the clock of a member of the database, and compares it with those seen within a
   * minute; undefined: it has one.
   */
  compareClocks(): Promise<ClockComparison | undefined>;
  /** Rejects with SERVICE_UNAVAILABLE while the database does not answer or takes no writes. */
  check(): Promise<void>;
  close(): Promise<void>;
}

/** What commands, checks and backups work on: they end no job. */
export type StoresWithoutEnds = Omit<Stores, 'jobs'> & { readonly jobs: JobStore };

export interface StoresOptions {
  readonly log: StoreLog;
  /**
   * 'run', for a control plane: pending migrations are run, under a lock that lets any number of
   * processes start at once, and clocks of members that differ too much are an error. 'require':
   * pending migrations are an error.
   */
  readonly migrations: 'run' | 'require';
}

/** @throws DatabaseOpenError, SchemaError: for the operator, in one line. */
export async function openStores(
  databaseUrl: string,
  options: StoresOptions & JobCompletionOptions,
): Promise<Stores>;
export async function openStores(
  databaseUrl: string,
  options: StoresOptions,
): Promise<StoresWithoutEnds>;
export async function openStores(
  databaseUrl: string,
  options: StoresOptions | (StoresOptions & JobCompletionOptions),
): Promise<StoresWithoutEnds> {
  const database = await openDatabase(databaseUrl, options);
  try {
    if (options.migrations === 'run') {
      await requireClocks(database);
      const ran = await migrate(database);
      if (ran.length > 0) options.log.info({ migrations: ran }, 'the database was migrated');
    } else {
      await requireCurrentSchema(database);
    }
  } catch (error) {
    await database.close();
    throw error;
  }
  return 'renderOutboxBody' in options ? createStores(database, options) : createStores(database);
}

async function requireClocks(database: Database): Promise<void> {
  try {
    await requireAgreeingClocks(database);
  } catch (error) {
    throw new DatabaseOpenError(error instanceof Error ? error.message : String(error), error);
  }
}

/** On a database that is open and current. `close` closes it. */
export function createStores(database: Database, ends: JobCompletionOptions): Stores;
export function createStores(database: Database): StoresWithoutEnds;
export function createStores(database: Database, ends?: JobCompletionOptions): StoresWithoutEnds {
  const jobs = createJobStore(database);
  const clocks = new MemberClocks(database);
  return {
    accounts: createAccountStore(database),
    alerts: alertLooking(database),
    alertSettings: alertSettings(database),
    apiKeys: createApiKeyStore(database),
    audit: createAuditStore(database),
    fleetReports: createFleetReportStore(database),
    jobs: ends === undefined ? jobs : { ...jobs, ...jobCompletion(database, ends) },
    identities: createIdentityStore(database),
    ledger: createLedgerStore(database),
    links: createLinkStore(database),
    lostResults: createLostResultStore(database),
    nodes: createNodeStore(database),
    outbox: createOutboxStore(database),
    playground: createPlaygroundStore(database),
    orders: {
      ...orderPlacing(database),
      ...orderPaying(database),
      ...orderRefunding(database),
      ...orderListing(database),
    },
    people: { ...createPeopleStore(database), ...peopleRetention(database) },
    rateQuotas: createRateQuotaStore(database),
    secretsCanary: createSecretsCanaryStore(database),
    sessions: createSessionStore(database),
    signInThrottles: createSignInThrottleStore(database),
    sweeps: createSweepStore(database),
    usage: createUsageStore(database),
    shares: database.shares,
    bootstrap: (accountName, credits) => bootstrap(database, accountName, credits),
    compareClocks: () => clocks.look(),
    check: () => requireWritable(database),
    close: () => database.close(),
  };
}
