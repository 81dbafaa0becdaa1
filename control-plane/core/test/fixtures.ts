import assert from 'node:assert/strict';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import type { ServiceActor } from '@matting/accounts/audit-log.ts';
import type { PageCursor } from '@matting/accounts/ledger/ledger-lines.ts';
import { openCurrentDatabase } from '@matting/database/connect.ts';
import { type Database, RequestShares } from '@matting/database/database.ts';
import type { DatabaseDialect } from '@matting/database/engines.ts';
import type { FullSlots } from '@matting/http/outgoing/shared-slots.ts';
import { UNPAID } from '@matting/queue/job.ts';
import { type Claim, LEASE_MS } from '@matting/queue/lease-rules.ts';
import {
  type GroupTest,
  type OnDatabases,
  onDatabases,
  SILENT_LOG,
  useTestDatabase,
} from '@matting/test-support/database.ts';
import type { ExecutionContext, SerialFn } from 'ava';
import { backgroundBlob } from '../jobs/blob-names.ts';
import type { Job, ViewedJob } from '../jobs/job.ts';
import type { JobResult } from '../jobs/job-outcome.ts';
import type { JobInput } from '../jobs/job-request.ts';
import { migrationsOf, type Package, stepsOf } from '../package.ts';
import type { NewJob } from '../queue/matting-submission.ts';
import type { JobSuccess } from '../queue/queue.ts';
import { createStores, type Stores } from '../stores.ts';

export const LIMITS = { jobsInFlightMax: 1000 };
export const HOUR_MS = 3_600_000;
export const UNPAID_DAY_MS = 86_400_000;
export const OPERATOR: ServiceActor = { kind: 'operator' };
export const NONE_FULL: FullSlots = {
  destinations: [],
  accounts: [],
  uses: [],
  slow: { accounts: [], destinations: [] },
};

interface Suite<More extends object> {
  readonly packages?: readonly Package[];
  readonly more?: (database: Database, stores: Stores) => More;
}

interface OpenedStores<S extends Stores> {
  readonly dialect: DatabaseDialect;
  readonly databases: ReturnType<typeof useTestDatabase>;
  readonly database: Database;
  readonly stores: S;
  readonly replica: () => S;
}

type Group<S extends Stores> = (test: GroupTest, opened: OpenedStores<S>) => void;

export function storeFixtures<More extends object = object>(suite: Suite<More> = {}) {
  type S = Stores & More;
  const { packages = [], more = () => ({}) as More } = suite;
  const series = migrationsOf(packages);
  const settled = packages.flatMap(one => one.settled ?? []);

  function storesOn(database: Database, renderOutboxBody: (job: ViewedJob) => string = bodyOf): S {
    const stores = createStores(database, { renderOutboxBody, settled }, stepsOf(packages));
    return { ...stores, ...more(database, stores) };
  }

  function useStores(
    test: Pick<GroupTest, 'before' | 'after'>,
    dialect: DatabaseDialect = 'sqlite',
    databases = useTestDatabase(test, dialect, { series }),
  ) {
    const database = {} as Database;
    const stores = {} as S;
    test.before(async () => {
      fill(database, await databases.open());
      fill(stores, storesOn(database));
    });
    return { databases, database, stores };
  }

  /** On each database (onDatabases). */
  function onStores(test: SerialFn, name: string, group: Group<S>, where: OnDatabases = {}): void {
    const onDialect = (test: GroupTest, dialect: DatabaseDialect) => {
      const opened = useStores(test, dialect);
      const { databases } = opened;
      const replica = () => useStores(test, dialect, databases).stores;
      group(test, { dialect, ...opened, replica });
    };
    onDatabases(test, name, onDialect, where);
  }

  /** For tests that do not concern SQL, money, leases or lost answers (OnDatabases). */
  function onStoresInCi(test: SerialFn, name: string, group: Group<S>): void {
    onStores(test, name, group, { serverInCi: true });
  }

  /** Also checks the ledger after each test. */
  function onBalancedStores(test: SerialFn, name: string, group: Group<S>): void {
    onStores(test, name, (test, opened) => group(balancing(test, opened.stores), opened));
  }

  async function openStores(databaseUrl: string): Promise<S> {
    const options = { log: SILENT_LOG, migrations: 'run', packages: series } as const;
    return storesOn(await openCurrentDatabase(databaseUrl, options), () => '{}');
  }

  async function openCaller(databaseUrl: string, credits: number): Promise<string> {
    const stores = await openStores(databaseUrl);
    try {
      return (await fundedCaller(stores, credits)).token;
    } finally {
      await stores.close();
    }
  }

  const on = { onStores, onBalancedStores, onStoresInCi };
  return { series, storesOn, useStores, ...on, openStores, openCaller };
}

export const { series, storesOn, useStores, onStores, onBalancedStores, onStoresInCi } =
  storeFixtures();

function balancing(test: GroupTest, stores: Stores): GroupTest {
  return Object.assign(
    (title: string, body: (t: ExecutionContext) => unknown) =>
      test(title, async t => {
        await body(t);
        await assertBalanced(stores);
      }),
    { before: test.before, after: test.after },
  );
}

/** Groups receive the stores when declared, before they are open. */
function fill(target: object, source: object): void {
  Object.defineProperties(target, Object.getOwnPropertyDescriptors(source));
}

export function bodyOf(job: ViewedJob): string {
  return JSON.stringify({ job_id: job.id, state: job.state });
}

export function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

type MoneyStores = Pick<Stores, 'accounts' | 'apiKeys' | 'ledger'>;

export async function fundedAccount(stores: MoneyStores, credits: number): Promise<string> {
  const account = await stores.accounts.create(`test ${randomUUID().slice(0, 8)}`);
  assert.ok(account);
  if (credits > 0) {
    const { kind } = await stores.ledger.grant(account.id, credits, 'first');
    assert.equal(kind, 'entered');
  }
  return account.id;
}

export async function fundedCaller(stores: MoneyStores, credits: number) {
  const accountId = await fundedAccount(stores, credits);
  const { key, token } = await stores.apiKeys.create(accountId, 'test');
  return { accountId, apiKeyId: key.id, token };
}

export function storedInput(jobId: string): JobInput {
  return { blob: `inputs/${jobId}`, bytes: 1234, format: 'png', width: 2000, height: 1500 };
}

export const WITH_PICTURE = { finishing: { background: { kind: 'picture' } } } as const;
export const BACKGROUND_URL = { background: { url: 'https://b.example/b.png', input: null } };

export function storedBackground(jobId: string): JobInput {
  const blob = backgroundBlob(jobId);
  return { blob, bytes: 4321, format: 'jpeg', width: 300, height: 200 };
}

export function newJob(accountId: string, overrides: Partial<NewJob> = {}): NewJob {
  const id = overrides.id ?? randomUUID();
  return {
    id,
    accountId,
    apiKeyId: 'key000000001',
    idempotencyKeyHash: sha256(randomUUID()),
    fingerprint: sha256('content'),
    class: 'async',
    outputFormat: 'png',
    input: overrides.sourceUrl ? null : storedInput(id),
    sourceUrl: null,
    ...(overrides.class === UNPAID && { unpaidDayMs: UNPAID_DAY_MS }),
    ...overrides,
  };
}

export async function submitted(stores: Stores, job: NewJob): Promise<Job> {
  const outcome = await stores.queue.submit(job, LIMITS);
  assert.equal(outcome.kind, 'created');
  return (outcome as { job: Job }).job;
}

/** Ignores other open jobs. */
export async function claimed(
  stores: Stores,
  job: Pick<Job, 'id'>,
  options: { holder?: string; leaseMs?: number } = {},
): Promise<Claim> {
  const found = await stores.jobs.find(job.id);
  assert.ok(found);
  const { holder = 'replica-1', leaseMs = LEASE_MS } = options;
  const won = await stores.queue.claim(found, holder, leaseMs);
  assert.ok(won, 'the claim was lost');
  return won.claim;
}

export async function running(stores: Stores, job: NewJob): Promise<{ job: Job; claim: Claim }> {
  const open = await submitted(stores, job);
  const claim = await claimed(stores, open);
  assert.ok(await stores.queue.admitted(claim));
  return { job: await reread(stores, open.id), claim };
}

export async function runningOf(stores: Stores, credits = 1, overrides: Partial<NewJob> = {}) {
  const account = await fundedAccount(stores, credits);
  return { account, ...(await running(stores, newJob(account, overrides))) };
}

export async function reread(stores: Stores, jobId: string): Promise<Job> {
  const job = await stores.jobs.find(jobId);
  assert.ok(job);
  return job;
}

/** Its link's token takes the place of the sealed one. */
export function resultOf(claim: Claim): JobResult {
  const token = randomBytes(32).toString('base64url');
  return {
    blob: `results/${claim.jobId}-${claim.fence}`,
    token: sha256(token),
    sealedToken: token,
    format: 'png',
    bytes: 4321,
    width: 2000,
    height: 1500,
    sha256: sha256(claim.jobId),
    sight: null,
    models: null,
    thumbnailBytes: null,
  };
}

export function successOf(claim: Claim, changes: Partial<JobSuccess> = {}): JobSuccess {
  return { result: resultOf(claim), resultTtlMs: HOUR_MS, timings: {}, ...changes };
}

export const IMAGE_FAULT = {
  code: 'PROCESSING_FAILED',
  detail: 'the image cannot be decoded',
  retryable: false,
} as const;

export const SERVICE_FAULT = {
  code: 'PROCESSING_FAILED',
  detail: 'every attempt was lost',
  retryable: true,
} as const;

export async function creditsOf({ ledger }: Pick<Stores, 'ledger'>, accountId: string) {
  const sums = { grant: 0, revoke: 0, reserve: 0, charge: 0, release: 0 };
  const page = (after?: PageCursor) => ledger.list(accountId, { limit: 500, after });
  for (let entries = await page(); entries.length > 0; entries = await page(entries.at(-1))) {
    for (const { kind, amount } of entries) sums[kind] += amount;
  }
  const balances = await ledger.balances(accountId);
  return balances && { ...balances, sums };
}

export async function assertBalanced(stores: Stores, accountId?: string): Promise<void> {
  assert.deepEqual(await stores.ledger.check(accountId), []);
}

export async function actionsOf(
  { audit }: Pick<Stores, 'audit'>,
  accountId: string,
): Promise<string[]> {
  const entries = await audit.list(accountId, { limit: 50 });
  return entries.map(({ action }) => action).sort();
}

/** Grants and revocations, ordered by reference. */
export async function movements(database: Database, accountId: string): Promise<string[]> {
  const rows = await database.kysely
    .selectFrom('ledger_entries')
    .select(['kind', 'reference', 'amount'])
    .where('account_id', '=', accountId)
    .where('kind', 'in', ['grant', 'revoke'])
    .execute();
  return rows.map(({ kind, reference, amount }) => `${kind} ${reference} ${amount}`).sort();
}

export function methodsOf(stores: object): string[] {
  return Object.entries(stores).flatMap(([store, value]) => {
    if (typeof value === 'function') return [store];
    if (typeof value !== 'object' || value instanceof RequestShares) return [];
    return namesOf(value).map(method => `${store}.${method}`);
  });
}

function namesOf(store: object): string[] {
  const names = new Set<string>();
  for (let part = store; part !== Object.prototype; part = Object.getPrototypeOf(part)) {
    for (const name of Object.getOwnPropertyNames(part)) {
      if (typeof store[name as never] === 'function') names.add(name);
    }
  }
  names.delete('constructor');
  return [...names];
}
