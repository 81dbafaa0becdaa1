/** The queue lane by lane, on both databases. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { Database } from '@matting/database/database.ts';
import ava from 'ava';
import { CompiledQuery, createQueryId, type RootOperationNode, sql } from 'kysely';
import type { JobLane } from '../jobs/lanes.ts';
import type { Stores } from '../stores.ts';
import { claimed, fundedAccount, newJob, onStores, storesOn, submitted } from '../test/fixtures.ts';

const test = ava.serial;

const FLOOD = 3000;
const ROWS_A_STATEMENT = 250;
const nameOf = (lane: JobLane) =>
  `${lane.needsDownload ? 'download ' : ''}${lane.class} ${lane.apiKeyId}`;

/** Copies of a job's row: what so many submissions would leave. */
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
    await kysely.insertInto('jobs').values(rows).execute();
  }
}

onStores(test, 'lanes', (test, { dialect, database, stores }) => {
  test("thousands of older jobs of one key hide neither another's nor its own sync one", async t => {
    const loud = await fundedAccount(stores, 10);
    const quiet = await fundedAccount(stores, 1);
    const flooding = await submitted(stores, newJob(loud, { apiKeyId: 'key-of-flood' }));
    await flood(database, flooding.id, FLOOD);
    const own = await submitted(stores, newJob(loud, { apiKeyId: 'key-of-flood', class: 'sync' }));
    const sibling = await submitted(stores, newJob(loud, { apiKeyId: 'key-beside' }));
    const other = await submitted(stores, newJob(quiet, { apiKeyId: 'key-of-other' }));
    const lanes = await stores.jobs.listLanes();
    t.deepEqual(lanes.map(nameOf).sort(), [
      'async key-beside',
      'async key-of-flood',
      'async key-of-other',
      'sync key-of-flood',
    ]);
    const listed = await stores.jobs.listClaimable(256, lanes);
    const ids = new Set(listed.map(({ id }) => id));
    for (const job of [own, sibling, other]) t.true(ids.has(job.id));
    t.is(listed.length, 3 + 256 / 4);
    const first = lanes.find(lane => nameOf(lane) === 'async key-of-flood');
    const flooded = listed.filter(job => job.apiKeyId === 'key-of-flood' && job.class === 'async');
    t.is(first?.accountId, loud);
    // The oldest of the flood, in their order.
    t.deepEqual(
      flooded.map(({ id }) => id),
      await oldest(flooded.length),
    );
  });

  async function oldest(count: number): Promise<string[]> {
    const rows = await database.kysely
      .selectFrom('jobs')
      .select('id')
      .where('api_key_id', '=', 'key-of-flood')
      .where('class', '=', 'async')
      .orderBy('queue_at')
      .orderBy('id')
      .limit(count)
      .execute();
    return rows.map(({ id }) => id);
  }

  test('a round reads no more of the flood than it takes', async t => {
    const account = await fundedAccount(stores, 2);
    const key = { apiKeyId: 'key-of-downloads', sourceUrl: 'https://slow.example/1' };
    const flooding = await submitted(stores, newJob(account, key));
    await flood(database, flooding.id, FLOOD);
    const ready = await submitted(stores, newJob(account, { apiKeyId: key.apiKeyId }));
    // The server itself does so every now and then; its choice must not depend on when.
    if (dialect === 'mysql') await sql`analyze table jobs`.execute(database.kysely);
    const asked = await statementsOf(database, async ({ jobs }) => {
      const lanes = await jobs.listLanes();
      const own = lanes.filter(({ apiKeyId }) => apiKeyId === key.apiKeyId);
      t.deepEqual(own.map(nameOf).sort(), [
        'async key-of-downloads',
        'download async key-of-downloads',
      ]);
      const exceptHosts = [ready.sourceHost ?? 'another'];
      const reads = own.map(lane => (lane.needsDownload ? { ...lane, exceptHosts } : lane));
      const listed = await jobs.listClaimable(16, reads);
      t.is(listed.length, 8 + 1);
      t.true(listed.some(({ id }) => id === ready.id));
    });
    for (const statement of asked) {
      const plan = await planOf(database, statement);
      t.log(plan);
      t.regex(plan, /jobs_lane_state\b/);
      t.notRegex(
        plan,
        /filesort|TEMP B-TREE FOR (GROUP|DISTINCT|ORDER)|"table":"jobs","type":"ALL"|SCAN jobs/i,
      );
    }
  });

  test('passes over jobs that name a model', async t => {
    const account = await fundedAccount(stores, 10);
    const key = { apiKeyId: 'key-of-models' };
    const first = await submitted(stores, newJob(account, { ...key, model: 'heavy' }));
    const plain = await submitted(stores, newJob(account, key));
    const lanes = (await stores.jobs.listLanes()).filter(lane => lane.apiKeyId === key.apiKeyId);
    const modelsOf = async (namesNone: boolean) => {
      const reads = lanes.map(lane => ({ ...lane, namesNone }));
      const listed = await stores.jobs.listClaimable(10, reads);
      return Object.fromEntries(listed.map(({ id, model }) => [id, model]));
    };
    t.deepEqual(await modelsOf(false), { [first.id]: 'heavy', [plain.id]: null });
    t.deepEqual(await modelsOf(true), { [plain.id]: null });
  });

  test('passes over hosts that are full', async t => {
    const account = await fundedAccount(stores, 10);
    const from = (host: string) =>
      newJob(account, { apiKeyId: 'key-of-hosts', sourceUrl: `https://${host}/${randomUUID()}` });
    const slow = await submitted(stores, from('slow.example'));
    await submitted(stores, from('slow.example:443'));
    const fast = await submitted(stores, from('fast.example'));
    const lane = (await stores.jobs.listLanes()).find(
      ({ apiKeyId }) => apiKeyId === 'key-of-hosts',
    );
    assert.ok(lane && slow.sourceHost);
    const listed = await stores.jobs.listClaimable(10, [
      { ...lane, exceptHosts: [slow.sourceHost] },
    ]);
    t.deepEqual(
      listed.map(({ id }) => id),
      [fast.id],
    );
    t.not(fast.sourceHost, slow.sourceHost);
  });

  test('a lane whose jobs all run has none to claim', async t => {
    const account = await fundedAccount(stores, 1);
    const job = await submitted(stores, newJob(account, { apiKeyId: 'key-running' }));
    await claimed(stores, job);
    const lanes = await stores.jobs.listLanes();
    const lane = lanes.find(({ apiKeyId }) => apiKeyId === 'key-running');
    assert.ok(lane);
    t.deepEqual(await stores.jobs.listClaimable(10, [lane]), []);
  });
});

async function statementsOf(database: Database, act: (stores: Stores) => Promise<void>) {
  const compiled = new WeakMap<object, RootOperationNode>();
  const nodes: RootOperationNode[] = [];
  const kysely = database.kysely.withPlugin({
    transformQuery: ({ queryId, node }) => {
      compiled.set(queryId, node);
      return node;
    },
    transformResult: async ({ queryId, result }) => {
      nodes.push(compiled.get(queryId)!);
      return result;
    },
  });
  await act(storesOn({ ...database, kysely }));
  const executor = database.kysely.getExecutor();
  return nodes.map(node => executor.compileQuery(node, createQueryId()));
}

async function planOf(database: Database, statement: CompiledQuery): Promise<string> {
  const word = database.dialect === 'sqlite' ? 'explain query plan' : 'explain';
  const explain = CompiledQuery.raw(`${word} ${statement.sql}`, [...statement.parameters]);
  const { rows } = await database.kysely.executeQuery(explain);
  return JSON.stringify(rows);
}
