/** A call or more of each method of the stores, for statements.test.ts: every branch that asks. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import {
  accountOf,
  apiKeyOf,
  HANGING_RECEIVER,
  type LargeTables,
  SECRET_KEY_ID,
} from '../../../test/support/large-tables.ts';
import type { MeteredStatement } from '../../../test/support/statement-meter.ts';
import { NONE_FULL } from '../../src/domain/shared-places.ts';
import { destinationOf } from '../../src/domain/url-destination.ts';
import type { Database } from '../../src/store/database/connect.ts';
import type { Claim, NewJob } from '../../src/store/jobs/job-store.ts';
import { startOf } from '../../src/store/ledger/ledger-audit.ts';
import { LEDGER_PAGE_ROWS } from '../../src/store/ledger/ledger-pages.ts';
import type { NotificationClaim } from '../../src/store/outbox/webhook-outbox-store.ts';
import type { Stores } from '../../src/store/stores.ts';
import {
  claimed,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  resultOf,
  running,
  SERVICE_FAULT,
  sha256,
  submitted,
} from './fixtures.ts';

const DAY_MS = 24 * HOUR_MS;

/** As those of production, but for their size: 97 of 100 rows are what nobody asks for. */
export const TABLES = {
  jobs: 8000,
  openJobs: 60,
  oldJobs: 60,
  dueNotifications: 3000,
  quietReceivers: 5,
  ledgerEntries: 24_000,
} satisfies LargeTables;

/** What a statement may read for each row that it answers or changes, and beside those. */
const READ_A_ROW_MAX = 6;
const READ_BESIDE_MAX = 40;

/** Those that read more than they may, in words. */
export function excessOf(
  statements: readonly MeteredStatement[],
  readsMax: number | undefined,
): string[] {
  return statements
    .filter(
      ({ rowsRead, rows }) => rowsRead > (readsMax ?? rows * READ_A_ROW_MAX + READ_BESIDE_MAX),
    )
    .map(({ rowsRead, rows, sql }) => `read ${rowsRead} for ${rows}: ${sql}`);
}

export interface Exercise {
  readonly run: (stores: Stores, database: Database) => Promise<void>;
  /** In place of the bound by what a statement answers. */
  readonly readsMax?: number;
  /** The reason of it. */
  readonly why?: string;
}

/** Entries of the queue's indexes and their rows, twice for how servers count. */
const OPEN_READS_MAX = 16 * TABLES.openJobs;
const OPEN_WHY = 'reads the open jobs, whose number is bounded';

/** Half of the entries are one account's: more than a page by far. */
const LEDGER_READS_MAX = 7 * LEDGER_PAGE_ROWS;
const LEDGER_WHY = 'reads a page of the ledger';

function jobOfLargest(overrides: Partial<NewJob> = {}): NewJob {
  return newJob(accountOf(0), { apiKeyId: apiKeyOf(0), ...overrides });
}

const CALLBACK = {
  url: 'https://statements.example/hook',
  secret: Uint8Array.of(1),
  secretKeyId: SECRET_KEY_ID,
};

async function notified(stores: Stores): Promise<string> {
  const { job, claim } = await running(stores, jobOfLargest({ callback: CALLBACK }));
  assert.ok(await stores.jobs.fail(claim, IMAGE_FAULT));
  return job.id;
}

async function notificationClaim(stores: Stores): Promise<NotificationClaim> {
  const claim = { jobId: await notified(stores), holder: 'replica-1', fence: 1 };
  assert.ok(await stores.webhookOutbox.claim(claim, HOUR_MS));
  return claim;
}

async function runningClaim(stores: Stores): Promise<Claim> {
  return (await running(stores, jobOfLargest())).claim;
}

const JOBS: Record<string, Exercise> = {
  'jobs.findByIdempotencyKey': {
    run: async ({ jobs }) => {
      await jobs.findByIdempotencyKey(apiKeyOf(0), sha256('none'));
    },
  },
  'jobs.findForKey': {
    run: async ({ jobs }) => {
      await jobs.findForKey(randomUUID(), apiKeyOf(0));
    },
  },
  'jobs.find': {
    run: async stores => {
      assert.ok(await stores.jobs.find(await notified(stores)));
    },
  },
  'jobs.findFinal': {
    run: async stores => {
      const id = await notified(stores);
      assert.equal((await stores.jobs.findFinal([id, randomUUID()])).length, 1);
    },
  },
  'jobs.findByResultToken': {
    run: async ({ jobs }) => {
      await jobs.findByResultToken('none');
    },
  },
  'jobs.submit': {
    run: async stores => {
      const job = jobOfLargest();
      await submitted(stores, job);
      assert.equal((await stores.jobs.submit(job, LIMITS)).kind, 'created');
      const none = await fundedAccount(stores, 0);
      const refused = await stores.jobs.submit(newJob(none), LIMITS);
      assert.equal(refused.kind, 'insufficient-credits');
    },
  },
  'jobs.listLanes': {
    run: async ({ jobs }) => {
      assert.ok((await jobs.listLanes()).length > 0);
    },
    readsMax: OPEN_READS_MAX,
    why: OPEN_WHY,
  },
  'jobs.listClaimable': {
    run: async ({ jobs }) => {
      assert.ok((await jobs.listClaimable(256)).length > 0);
      const lanes = await jobs.listLanes();
      await jobs.listClaimable(
        256,
        lanes.map(lane => ({ ...lane, exceptHosts: ['a', 'b'] })),
      );
    },
    readsMax: OPEN_READS_MAX,
    why: OPEN_WHY,
  },
  'jobs.claim': {
    run: async stores => {
      await claimed(stores, await submitted(stores, jobOfLargest()));
    },
  },
  'jobs.renew': {
    run: async stores => {
      assert.ok(await stores.jobs.renew(await runningClaim(stores), HOUR_MS));
    },
  },
  'jobs.release': {
    run: async stores => {
      assert.ok(await stores.jobs.release(await runningClaim(stores)));
    },
  },
  'jobs.inputStored': {
    run: async stores => {
      const job = await submitted(stores, jobOfLargest({ sourceUrl: 'https://a.example/i' }));
      const claim = await claimed(stores, job);
      const input = { blob: `inputs/${job.id}-1`, bytes: 1, format: 'png', width: 1, height: 1 };
      assert.ok(await stores.jobs.inputStored(claim, input as never));
      assert.ok(await stores.jobs.inputStored(claim, input as never));
    },
  },
  'jobs.admitted': {
    run: async stores => {
      await runningClaim(stores);
    },
  },
  'jobs.attemptLost': {
    run: async stores => {
      assert.ok(await stores.jobs.attemptLost(await runningClaim(stores), true));
    },
  },
  'jobs.succeed': {
    run: async stores => {
      const { claim } = await running(stores, jobOfLargest({ callback: CALLBACK }));
      assert.ok(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
    },
  },
  'jobs.fail': {
    run: async stores => {
      assert.ok(await stores.jobs.fail(await runningClaim(stores), SERVICE_FAULT));
    },
  },
  'jobs.list': {
    run: async ({ jobs }) => {
      const all = { endedWithinMs: 60 * DAY_MS, limit: 50 };
      for (const filter of [
        { states: ['failed'] as const },
        { states: ['succeeded', 'failed'] as const, accountId: accountOf(3) },
        { states: ['ready', 'running'] as const, limit: 10 },
      ]) {
        const page = await jobs.list({ ...all, ...filter });
        assert.ok(page.length > 0);
        await jobs.list({ ...all, ...filter, after: page.at(-1)!.cursor });
      }
      await jobs.list({ ...all, states: ['fetching'], accountId: accountOf(3) });
    },
    readsMax: 2 * OPEN_READS_MAX,
    why: 'reads the queue 500 rows at a time',
  },
  'jobs.endLease': {
    run: async stores => {
      const { jobId } = await runningClaim(stores);
      assert.equal((await stores.jobs.endLease(jobId)).kind, 'ended');
    },
  },
  'jobs.queued': {
    run: async ({ jobs }) => {
      assert.ok((await jobs.queued()).jobs > 0);
    },
    readsMax: OPEN_READS_MAX,
    why: OPEN_WHY,
  },
  'jobs.doneWithin': {
    run: async ({ jobs }) => {
      await jobs.doneWithin(60_000);
    },
    readsMax: 500,
    why: 'reads what ended within that time',
  },
  'jobs.takeExpiredResultBlobs': {
    run: async (stores, { kysely }) => {
      const { claim } = await running(stores, jobOfLargest());
      const result = resultOf(claim);
      assert.ok(await stores.jobs.succeed(claim, result, 0, {}));
      assert.ok(kysely);
      const expired = await stores.jobs.takeExpiredResultBlobs(50);
      // Results of large tables expire while they are filled.
      assert.ok(expired.length === 50 || expired.includes(result.blob));
    },
  },
  'jobs.removeFinalOlderThan': {
    run: async ({ jobs }) => {
      assert.equal((await jobs.removeFinalOlderThan(30 * DAY_MS, 20)).rows, 20);
    },
  },
  'jobs.referencedBlobs': {
    run: async ({ jobs }) => {
      const names = Array.from({ length: 200 }, (_, index) => `inputs/none-${index}`);
      assert.equal((await jobs.referencedBlobs(names)).size, 0);
    },
    readsMax: 210,
    why: 'reads an entry a name',
  },
};

const OUTBOX: Record<string, Exercise> = {
  'webhookOutbox.listDue': {
    run: async ({ webhookOutbox }) => {
      const asked = {
        limit: 32,
        secretKeyIds: [SECRET_KEY_ID],
        full: {
          ...NONE_FULL,
          destinations: [HANGING_RECEIVER, destinationOf(CALLBACK.url)],
        },
      };
      const due = await webhookOutbox.listDue(asked);
      assert.equal(due.length, TABLES.quietReceivers);
      const { length } = await webhookOutbox.listDue({ ...asked, full: NONE_FULL });
      assert.equal(length, asked.limit);
    },
  },
  'webhookOutbox.claim': { run: async stores => void (await notificationClaim(stores)) },
  'webhookOutbox.release': {
    run: async stores => {
      assert.ok(await stores.webhookOutbox.release(await notificationClaim(stores)));
    },
  },
  'webhookOutbox.delivered': {
    run: async stores => {
      const end = { statusCode: 204, durationMs: 5 };
      assert.ok(await stores.webhookOutbox.delivered(await notificationClaim(stores), end));
    },
  },
  'webhookOutbox.retryLater': {
    run: async stores => {
      const end = { statusCode: 500, durationMs: 5 };
      const claim = await notificationClaim(stores);
      assert.ok(await stores.webhookOutbox.retryLater(claim, end, HOUR_MS));
    },
  },
  'webhookOutbox.failed': {
    run: async stores => {
      const end = { statusCode: 410, durationMs: 5 };
      const claim = await notificationClaim(stores);
      assert.ok(await stores.webhookOutbox.failed(claim, end, { eraseSecret: true }));
    },
  },
  'webhookOutbox.due': {
    run: async ({ webhookOutbox }) => {
      assert.ok((await webhookOutbox.due()).count >= TABLES.dueNotifications);
    },
    readsMax: 20_000,
    why: 'counts entries of an index, 10,000 at most',
  },
  'webhookOutbox.countSealedWithOthers': {
    run: async ({ webhookOutbox }) => {
      assert.equal(await webhookOutbox.countSealedWithOthers([SECRET_KEY_ID]), 0);
      assert.ok((await webhookOutbox.countSealedWithOthers(['another'])) > 0);
    },
    readsMax: 20_000,
    why: 'counts entries of an index, 10,000 at most',
  },
  'webhookOutbox.list': {
    run: async stores => {
      assert.equal((await stores.webhookOutbox.list({ limit: 20 })).length, 20);
      assert.equal((await stores.webhookOutbox.list({ limit: 20, status: 'pending' })).length, 20);
      const jobId = await notified(stores);
      assert.equal((await stores.webhookOutbox.list({ limit: 20, jobId })).length, 1);
    },
  },
  'webhookOutbox.retry': {
    run: async stores => {
      assert.equal(await stores.webhookOutbox.retry(await notified(stores)), 'retried');
    },
  },
  'webhookOutbox.eraseDueSecrets': {
    run: async (stores, { kysely }) => {
      const jobId = await notified(stores);
      await kysely
        .updateTable('webhook_outbox')
        .set({ secret_erase_at: 1 })
        .where('job_id', '=', jobId)
        .execute();
      assert.equal(await stores.webhookOutbox.eraseDueSecrets(50), 1);
    },
  },
};

const NODE = {
  nodeId: 'node-1',
  bootId: randomUUID(),
  address: '127.0.0.1:1',
  httpAddress: '',
  version: '1',
};

const OTHERS: Record<string, Exercise> = {
  check: { run: stores => stores.check() },
  bootstrap: {
    run: async stores => {
      assert.deepEqual(await stores.bootstrap('first', 1), { created: false });
    },
  },
  'accounts.create': {
    run: async ({ accounts }) => {
      assert.ok(await accounts.create(`statements ${randomUUID().slice(0, 8)}`));
    },
  },
  'accounts.find': {
    run: async ({ accounts }) => {
      assert.ok(await accounts.find(accountOf(1)));
    },
  },
  'accounts.findByNameOrId': {
    run: async ({ accounts }) => {
      assert.ok(await accounts.findByNameOrId('large 1'));
    },
  },
  'accounts.list': { run: async ({ accounts }) => void (await accounts.list()) },
  'apiKeys.create': {
    run: async ({ apiKeys }) => void (await apiKeys.create(accountOf(0), 'statements')),
  },
  'apiKeys.authenticate': {
    run: async ({ apiKeys }) => {
      const { token, key } = await apiKeys.create(accountOf(0), 'statements');
      assert.deepEqual(await apiKeys.authenticate(token), {
        apiKeyId: key.id,
        accountId: accountOf(0),
      });
    },
  },
  'apiKeys.recall': {
    run: async ({ apiKeys }) => {
      const { token, key } = await apiKeys.create(accountOf(0), 'statements');
      assert.equal(apiKeys.recall(token), undefined);
      await apiKeys.authenticate(token);
      const recalled = apiKeys.recall(token);
      assert.ok(typeof recalled === 'object');
      assert.deepEqual(recalled.owner, { accountId: accountOf(0), apiKeyId: key.id });
    },
  },
  'apiKeys.revoke': {
    run: async ({ apiKeys }) => {
      const { key } = await apiKeys.create(accountOf(0), 'statements');
      assert.ok(await apiKeys.revoke(key.id));
    },
  },
  'apiKeys.list': {
    run: async ({ apiKeys }) => {
      await apiKeys.list();
      await apiKeys.list(accountOf(0));
    },
  },
  'ledger.grant': {
    run: async ({ ledger }) => {
      const reference = randomUUID();
      assert.equal((await ledger.grant(accountOf(0), 5, reference)).kind, 'entered');
      assert.equal((await ledger.grant(accountOf(0), 5, reference)).kind, 'already-entered');
    },
  },
  'ledger.revoke': {
    run: async ({ ledger }) => {
      assert.equal((await ledger.revoke(accountOf(0), 1, randomUUID())).kind, 'entered');
    },
  },
  'ledger.balances': {
    run: async ({ ledger }) => {
      assert.ok(await ledger.balances(accountOf(0)));
    },
  },
  'ledger.credits': {
    run: async ({ ledger }) => {
      assert.ok(await ledger.credits(accountOf(0)));
    },
    readsMax: LEDGER_READS_MAX,
    why: LEDGER_WHY,
  },
  'ledger.check': {
    run: async ({ ledger }, { kysely }) => {
      await kysely.deleteFrom('ledger_checkpoints').where('closed_to', '>', 0).execute();
      assert.deepEqual(await ledger.check(), []);
      assert.deepEqual(await ledger.check(accountOf(1)), []);
    },
    readsMax: LEDGER_READS_MAX,
    why: LEDGER_WHY,
  },
  'ledger.audit': {
    run: async ({ ledger }, { kysely }) => {
      await ledger.check();
      await kysely
        .updateTable('ledger_checkpoints')
        .set(eb => ({ granted: eb('granted', '+', 1) }))
        .where('account_id', '=', accountOf(1))
        .execute();
      // One was interrupted, a while ago.
      await kysely
        .updateTable('ledger_audits')
        .set({ run_id: randomUUID(), saved_at: 1, progress: JSON.stringify(startOf(1)) })
        .where('kind', '=', 'full')
        .execute();
      const options = { kind: 'full', renewCheckpoints: true } as const;
      assert.equal((await ledger.audit(options)).problemCount, 1);
      assert.equal((await ledger.audit(options)).problemCount, 0);
    },
    readsMax: LEDGER_READS_MAX,
    why: LEDGER_WHY,
  },
  'ledger.lastAudits': { run: async ({ ledger }) => void (await ledger.lastAudits()) },
  'nodes.register': {
    run: async ({ nodes }) => {
      assert.deepEqual(await nodes.register(NODE, HOUR_MS), { draining: false });
    },
  },
  'nodes.heartbeat': {
    run: async ({ nodes }) => {
      await nodes.register(NODE, HOUR_MS);
      const { known } = await nodes.heartbeat(NODE.nodeId, NODE.bootId, HOUR_MS);
      assert.ok(known);
    },
  },
  'nodes.deregister': {
    run: async ({ nodes }) => {
      await nodes.register(NODE, HOUR_MS);
      assert.ok(await nodes.deregister(NODE.nodeId, NODE.bootId));
    },
  },
  'nodes.find': { run: async ({ nodes }) => void (await nodes.find(NODE.nodeId)) },
  'nodes.listLive': { run: async ({ nodes }) => void (await nodes.listLive()) },
  'nodes.listAll': { run: async ({ nodes }) => void (await nodes.listAll()) },
  'nodes.setDraining': {
    run: async ({ nodes }) => void (await nodes.setDraining(NODE.nodeId, false)),
  },
  'sweeps.claim': {
    run: async ({ sweeps }) => {
      const won = await sweeps.claim('replica-1', HOUR_MS);
      assert.ok(won);
      assert.equal(await sweeps.claim('replica-2', HOUR_MS), undefined);
      assert.ok(await sweeps.release(won.claim));
    },
  },
  'sweeps.renew': {
    run: async ({ sweeps }) => {
      assert.equal(await sweeps.renew({ holder: 'nobody', fence: 0 }, HOUR_MS), false);
    },
  },
  'sweeps.release': {
    run: async ({ sweeps }) => {
      assert.equal(await sweeps.release({ holder: 'nobody', fence: 0 }), false);
    },
  },
  'sweeps.saveWalk': {
    run: async ({ sweeps }) => {
      assert.equal(await sweeps.saveWalk({ holder: 'nobody', fence: 0 }, 1, true), false);
    },
  },
  'sweeps.backlog': {
    run: async ({ sweeps }) => {
      assert.ok((await sweeps.backlog(30 * DAY_MS)).rowsMs > 0);
    },
  },
  'rateQuotas.nowMs': { run: async ({ rateQuotas }) => void (await rateQuotas.nowMs()) },
  'rateQuotas.lease': {
    run: async ({ rateQuotas }) => {
      const ask = { limit: 100, block: 10, advance: 0, windowStartMs: 0 };
      await rateQuotas.lease(randomUUID(), 'reads', ask);
    },
  },
  'secretsCanary.establish': {
    run: async ({ secretsCanary }) => {
      await secretsCanary.establish({ keyId: 'a', ciphertext: Uint8Array.of(1) });
    },
  },
  'secretsCanary.replace': {
    run: async ({ secretsCanary }) => {
      await secretsCanary.replace('a', { keyId: 'b', ciphertext: Uint8Array.of(1) });
    },
  },
};

/** By `store.method`. */
export const EXERCISES: Readonly<Record<string, Exercise>> = { ...JOBS, ...OUTBOX, ...OTHERS };
