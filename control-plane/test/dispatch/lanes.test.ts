/** The queue lane by lane, on both databases, and what a replica remembers of its lanes. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { before, describe, it } from 'node:test';
import { sql } from 'kysely';
import { DIALECTS, skipReason, useTestDatabase } from '../../../test/support/database.ts';
import type { JobLane } from '../../src/domain/job-turns.ts';
import { KnownLanes } from '../../src/services/known-lanes.ts';
import type { Database } from '../../src/store/connect.ts';
import type { Stores } from '../../src/store/stores.ts';
import { claimed, fundedAccount, newJob, storesOn, submitted } from '../store/fixtures.ts';

const FLOOD = 10_000;
const ROWS_A_STATEMENT = 500;
const nameOf = ({ mode, apiKeyId }: JobLane) => `${mode} ${apiKeyId}`;
const NONE = { accounts: new Map(), apiKeys: new Map() };

/** Copies of a job's row: what ten thousand submissions would leave, in a second. */
async function flood(database: Database, jobId: string, count: number): Promise<void> {
  const { kysely } = database;
  const row = await kysely
    .selectFrom('jobs')
    .selectAll()
    .where('id', '=', jobId)
    .executeTakeFirstOrThrow();
  for (let from = 0; from < count; from += ROWS_A_STATEMENT) {
    const rows = Array.from({ length: Math.min(ROWS_A_STATEMENT, count - from) }, (_, index) => {
      const id = randomUUID();
      const queueAt = row.queue_at! - count + from + index;
      return { ...row, id, idempotency_key_hash: null, queue_at: queueAt };
    });
    await kysely.transaction().execute(async tx => {
      for (let at = 0; at < rows.length; at += 50) {
        await tx
          .insertInto('jobs')
          .values(rows.slice(at, at + 50))
          .execute();
      }
    });
  }
}

for (const dialect of DIALECTS) {
  describe(`lanes on ${dialect}`, { skip: skipReason(dialect) }, () => {
    const databases = useTestDatabase(dialect);
    let database: Database;
    let stores: Stores;

    before(async () => {
      database = await databases.open();
      stores = storesOn(database);
    });

    it("ten thousand older jobs of one key hide neither another's nor its own sync one", async () => {
      const loud = await fundedAccount(stores, 10);
      const quiet = await fundedAccount(stores, 1);
      const flooding = await submitted(stores, newJob(loud, { apiKeyId: 'key-of-flood' }));
      await flood(database, flooding.id, FLOOD);
      const own = await submitted(stores, newJob(loud, { apiKeyId: 'key-of-flood', mode: 'sync' }));
      const sibling = await submitted(stores, newJob(loud, { apiKeyId: 'key-beside' }));
      const other = await submitted(stores, newJob(quiet, { apiKeyId: 'key-of-other' }));
      const lanes = await stores.jobs.listLanes();
      assert.deepEqual(lanes.map(nameOf).sort(), [
        'async key-beside',
        'async key-of-flood',
        'async key-of-other',
        'sync key-of-flood',
      ]);
      const listed = await stores.jobs.listClaimable(256, lanes);
      const ids = new Set(listed.map(({ id }) => id));
      for (const job of [own, sibling, other]) assert.ok(ids.has(job.id));
      assert.equal(listed.length, 3 + 256 / 4);
      const first = lanes.find(lane => nameOf(lane) === 'async key-of-flood');
      const flooded = listed.filter(job => job.apiKeyId === 'key-of-flood' && job.mode === 'async');
      assert.equal(first?.accountId, loud);
      // The oldest of the flood, in their order.
      assert.deepEqual(
        flooded.map(({ id }) => id),
        await oldest(flooded.length),
      );
    });

    async function oldest(count: number): Promise<string[]> {
      const rows = await database.kysely
        .selectFrom('jobs')
        .select('id')
        .where('api_key_id', '=', 'key-of-flood')
        .where('mode', '=', 'async')
        .orderBy('queue_at')
        .orderBy('id')
        .limit(count)
        .execute();
      return rows.map(({ id }) => id);
    }

    it('a look reads no more of the flood than it takes', async t => {
      const plan = await explain(database);
      t.diagnostic(plan);
      assert.match(plan, /jobs_lane\b/);
      assert.doesNotMatch(plan, /filesort|TEMP B-TREE FOR (GROUP|DISTINCT)/i);
    });

    it('a lane whose jobs all run has none to claim', async () => {
      const account = await fundedAccount(stores, 1);
      const job = await submitted(stores, newJob(account, { apiKeyId: 'key-running' }));
      await claimed(stores, job);
      const lanes = await stores.jobs.listLanes();
      const lane = lanes.find(({ apiKeyId }) => apiKeyId === 'key-running');
      assert.ok(lane);
      assert.deepEqual(await stores.jobs.listClaimable(10, [lane]), []);
    });
  });
}

/** How the database says it reads the head of a lane. */
async function explain(database: Database): Promise<string> {
  const words = database.dialect === 'sqlite' ? sql`explain query plan` : sql`explain`;
  const { rows } = await sql`${words} select id from jobs where api_key_id = 'key-of-flood'
    and mode = 'async' and queue_at > 0 and (lease_holder is null or lease_expires_at <= 5)
    order by queue_at, id limit 8`.execute(database.kysely);
  return JSON.stringify(rows);
}

describe('known lanes', () => {
  const lane = (apiKeyId: string): JobLane => ({
    mode: 'async',
    accountId: 'a',
    apiKeyId,
    firstQueueAtMs: 1,
    readAtMs: 2,
  });
  const job = (apiKeyId: string) => ({
    mode: 'async' as const,
    accountId: 'a',
    apiKeyId,
    createdAtMs: 1,
    readAtMs: 1,
  });
  const keysOf = (known: KnownLanes) => known.choose(NONE).lanes.map(({ apiKeyId }) => apiKeyId);

  it('are asked for at first and when they are outdated', () => {
    const known = new KnownLanes();
    assert.ok(known.stale);
    known.found([lane('1')]);
    assert.ok(!known.stale);
    known.outdate();
    assert.ok(known.stale);
  });

  it('are forgotten when a look finds nothing in them', () => {
    const known = new KnownLanes();
    known.found([lane('1'), lane('2')]);
    const { lanes } = known.choose(NONE);
    known.looked(lanes, [job('2')], []);
    assert.deepEqual(keysOf(known), ['2']);
  });

  it('are kept where a job came while the look was under way', () => {
    const known = new KnownLanes();
    known.found([lane('1')]);
    const { lanes } = known.choose(NONE);
    known.add(job('1'));
    known.add(job('3'));
    known.looked(lanes, [], []);
    assert.deepEqual(keysOf(known), ['1', '3']);
  });

  it('go behind the others where nothing of them found room', () => {
    const known = new KnownLanes();
    known.found(Array.from({ length: 40 }, (_, index) => lane(String(index))));
    const first = known.choose(NONE);
    assert.equal(first.all, false);
    known.looked(
      first.lanes,
      first.lanes.map(({ apiKeyId }) => job(apiKeyId)),
      [],
    );
    const second = keysOf(known);
    for (let index = 32; index < 40; index += 1) assert.ok(second.includes(String(index)));
  });
});
