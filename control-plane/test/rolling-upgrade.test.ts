/** From the last release's recorded statements, with work in every state. Needs: batches. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { withBatches } from '@matting/batches/test/fixtures.ts';
import { correctionOf, succeedCorrection } from '@matting/core/test/families.ts';
import {
  assertBalanced,
  BACKGROUND_URL,
  claimed,
  HOUR_MS,
  LIMITS,
  newJob,
  reread,
  storedBackground,
  storedInput,
  submitted,
  successOf,
  WITH_PICTURE,
} from '@matting/core/test/fixtures.ts';
import type { NewJob, Stores } from '@matting/core/test/internals.ts';
import { brokenFor, readSchemaShape } from '@matting/core/test/schema-shape.ts';
import type { Database } from '@matting/database/database.ts';
import { migrate, requireCurrentSchema } from '@matting/database/migrate.ts';
import { rowOf } from '@matting/database/test/rows.ts';
import { isFinal } from '@matting/queue/job.ts';
import {
  createTestDatabase,
  DIALECTS,
  onDatabases,
  type TestDatabase,
} from '@matting/test-support/database.ts';
import ava from 'ava';
import { series, storesOn } from './fixtures.ts';
import { NOTHING_RECORDED, readSnapshot, replay } from './last-release/snapshot.ts';

const test = ava.serial;

/** Tables of a removed package; migrations remove nothing. */
const LEFT_BEHIND = /fleet_reports|kysely_migration_fleet-size/;

const OPEN = ['accepted', 'fetching', 'ready', 'given', 'running', 'lost', 'freed'] as const;
const FREE = randomUUID();
const OWN: readonly Partial<NewJob>[] = [
  {},
  { finishing: { outputWidth: 100 } },
  { finishing: {}, outputFormat: 'zip' },
  { finishing: {}, channels: 'alpha' },
  { ...WITH_PICTURE, ...BACKGROUND_URL, sourceUrl: 'https://a.example/' },
];

for (const dialect of DIALECTS) {
  if (readSnapshot(dialect)) continue;
  test.skip(`a rolling upgrade on ${dialect}`, t => t.fail(NOTHING_RECORDED));
}

onDatabases(test, 'a rolling upgrade', (test, dialect) => {
  const snapshot = readSnapshot(dialect);
  if (snapshot === undefined) return;
  const { legacy } = snapshot;

  let fixture: TestDatabase;
  let database: Database;
  let stores: Stores;
  /** Of the replica of the last release. */
  let left: readonly string[];

  test.before(async () => {
    fixture = await createTestDatabase(dialect, { migrated: false });
    database = await fixture.open();
    stores = storesOn(database);
    await replay(database, snapshot.schema);
    await replay(database, snapshot.before);
  });
  test.after.always(() => fixture?.close());

  async function openJobs(): Promise<string[]> {
    const jobs = await database.kysely.selectFrom('jobs').select(['id', 'state']).execute();
    return jobs.filter(job => !isFinal(job)).map(({ id }) => id);
  }

  /** As this version's dispatcher would. */
  async function finish(jobId: string): Promise<void> {
    const claim = await claimed(stores, await reread(stores, jobId), { holder: 'new-replica' });
    const { state } = await reread(stores, jobId);
    if (state === 'fetching') {
      const backgroundUrl = (await reread(stores, jobId)).background?.url ?? undefined;
      const input = storedInput(`${jobId}-new`);
      assert.ok(await stores.queue.inputStored(claim, input, { backgroundUrl }));
      if (backgroundUrl !== undefined) {
        assert.ok(await stores.queue.backgroundStored(claim, storedBackground(jobId)));
      }
    }
    assert.ok(await stores.queue.admitted(claim));
    assert.ok(await stores.queue.succeed(claim, successOf(claim)));
  }

  test('migrates what the last release made', async t => {
    await migrate(database, series);
    await requireCurrentSchema(database, series);
    const balances = await stores.ledger.balances(legacy.accountId);
    t.is(balances?.available, legacy.available, 'no balance moved');
    const fresh = await createTestDatabase(dialect, { series });
    const made = await readSchemaShape(await fresh.open()).finally(() => fresh.close());
    const now = await readSchemaShape(database);
    const differences = [...brokenFor(made, now), ...brokenFor(now, made)];
    t.deepEqual(
      differences.filter(difference => !LEFT_BEHIND.test(difference)),
      [],
      'as in a new database',
    );
  });

  test('lets a replica of the last release go on, statement by statement', async t => {
    const before = await openJobs();
    await t.notThrowsAsync(replay(database, snapshot.after));
    left = (await openJobs()).filter(id => !before.includes(id));
  });

  test('knows its keys, its results and its requests again', async t => {
    const { accountId, apiKeyId, token, jobs } = legacy;
    t.deepEqual(await stores.apiKeys.authenticate(token), { apiKeyId, accountId });
    const found = await stores.jobs.findByResultToken(legacy.resultToken);
    t.is(found?.id, jobs.untold);
    const hash = legacy.idempotencyKeyHash;
    const known = await stores.queue.findByKey(apiKeyId, { hash });
    t.true(known !== undefined && Object.values(jobs).includes(known.id));
    const again = { ...newJob(accountId, { apiKeyId }), idempotencyKeyHash: hash };
    const { kind } = await stores.queue.submit(again, LIMITS);
    t.is(kind, 'exists');
  });

  test('finishes what was left open, and work of its own', async t => {
    // From a playground of the last release.
    const { kysely } = database;
    const row = await rowOf(kysely, 'jobs', { id: legacy.jobs.ready });
    const own = { id: FREE, class: 'playground' as const, playground_day: 1 };
    const bare = { idempotency_key_hash: null, callback_url: null, callback_secret: null };
    const job = { ...row, ...own, ...bare, callback_secret_key_id: null };
    await kysely.insertInto('jobs').values(job).execute();
    t.is(left.length, OPEN.length);
    const seen = (await stores.queue.listClaimable(1000)).map(({ id }) => id);
    for (const jobId of [...OPEN.map(name => legacy.jobs[name]), ...left]) {
      t.true(seen.includes(jobId), `the dispatcher sees ${jobId}`);
    }
    for (const jobId of [...OPEN.map(name => legacy.jobs[name]), ...left, FREE]) {
      t.true(!isFinal(await reread(stores, jobId)), jobId);
      await finish(jobId);
    }
    for (const asked of OWN) {
      const { id } = await submitted(stores, newJob(legacy.accountId, asked));
      await finish(id);
    }
    t.deepEqual(await stores.queue.listLanes(), [], 'nothing is open');
    const credits = await stores.ledger.credits(legacy.accountId);
    const charged = OPEN.length + 3 + OWN.length;
    t.deepEqual([credits?.reserved, credits?.charged], [0, charged]);
    await assertBalanced(stores);
  });

  test('goes on with its corrections and its batches', async t => {
    const { accountId, correctable, openBatch } = legacy.families;
    const first = await reread(stores, correctable);
    t.is(first.corrections, 1);
    await succeedCorrection(stores, await submitted(stores, correctionOf(first)));
    const { batches } = withBatches(database, stores);
    t.true((await batches.listOpen()).some(({ id }) => id === openBatch));
    t.is(await batches.enterItems(openBatch, accountId, LIMITS.jobsInFlightMax), 1);
    const [job] = await stores.jobs.openOf(accountId, 5);
    assert.ok(job);
    await finish(job.id);
    t.true(await batches.finishBatch(openBatch));
    const credits = await stores.ledger.credits(accountId);
    t.deepEqual([credits?.reserved, credits?.charged], [0, 3]);
    await assertBalanced(stores);
  });

  test('delivers what was not', async t => {
    const pending = await stores.outbox.list({ status: 'pending', limit: 500 });
    const waiting = new Set(pending.map(({ jobId }) => jobId));
    for (const name of ['untold', 'expired', 'retried', ...OPEN] as const) {
      t.true(waiting.has(legacy.jobs[name]), name);
    }
    for (const { jobId, attempts } of pending) {
      // Each attempt had its own claim.
      const claim = { id: jobId, holder: 'new-replica', fence: attempts + 1 };
      t.truthy(await stores.outbox.claim(claim, HOUR_MS), jobId);
      const end = { statusCode: 204, durationMs: 5 };
      t.truthy(await stores.outbox.delivered(claim, end));
    }
    t.deepEqual(await stores.outbox.list({ status: 'pending', limit: 1 }), []);
  });

  test('removes what has expired, whichever release made it', async t => {
    await stores.jobs.takeExpiredResultBlobs(100);
    for (let removed = 1; removed > 0; ) {
      removed = (await stores.jobs.removeFinalOlderThan(-HOUR_MS, 100)).rows;
    }
    t.is((await stores.jobs.find(legacy.jobs.refused))?.id, undefined);
    await assertBalanced(stores);
  });
});
