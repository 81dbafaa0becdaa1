import { randomUUID } from 'node:crypto';
import type { Database } from '@matting/database/database.ts';
import { addTo, rowOf } from '@matting/database/test/rows.ts';
import ava from 'ava';
import { CompiledQuery, createQueryId, type RootOperationNode, sql } from 'kysely';
import type { Stores } from '../stores.ts';
import {
  fundedAccount,
  newJob,
  onBalancedStores,
  onStores,
  reread,
  storesOn,
  submitted,
} from '../test/fixtures.ts';
import { testQueue } from '../test/queue.contract.ts';

const test = ava.serial;

onBalancedStores(test, 'the queue', (test, { database, stores }) => {
  testQueue(test, () => ({
    queue: stores.queue,
    account: () => fundedAccount(stores, 20),
    find: jobId => reread(stores, jobId),
    async add({ accountId, ...asked }, ageMs) {
      const job = newJob(accountId, asked);
      await submitted(stores, job);
      const older = { created_at: -ageMs, queue_at: -ageMs };
      if (ageMs > 0) await addTo(database.kysely, 'jobs', { id: job.id }, older);
      return reread(stores, job.id);
    },
  }));
});

const FLOOD = 3000;
const ROWS_A_STATEMENT = 250;

async function flood(database: Database, jobId: string, count: number): Promise<void> {
  const { kysely } = database;
  const row = await rowOf(kysely, 'jobs', { id: jobId });
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
  test('a round reads no more of the flood than it takes', async t => {
    const account = await fundedAccount(stores, 2);
    const key = { apiKeyId: 'key-of-downloads', sourceUrl: 'https://slow.example/1' };
    const flooding = await submitted(stores, newJob(account, key));
    await flood(database, flooding.id, FLOOD);
    const ready = await submitted(stores, newJob(account, { apiKeyId: key.apiKeyId }));
    // The server does so now and then; its plan must not depend on when.
    if (dialect === 'mysql') await sql`analyze table jobs`.execute(database.kysely);
    const asked = await statementsOf(database, async ({ queue }) => {
      const lanes = await queue.listLanes();
      const own = lanes.filter(({ apiKeyId }) => apiKeyId === key.apiKeyId);
      t.is(own.length, 2);
      const exceptHosts = [ready.sourceHost ?? 'another'];
      const reads = own.map(lane => (lane.needsDownload ? { ...lane, exceptHosts } : lane));
      const listed = await queue.listClaimable(16, reads);
      t.is(listed.length, 8 + 1);
      t.true(listed.some(({ id }) => id === ready.id));
    });
    for (const statement of asked) {
      const plan = await planOf(database, statement);
      t.regex(plan, /jobs_lane_state\b/);
      t.notRegex(
        plan,
        /filesort|TEMP B-TREE FOR (GROUP|DISTINCT|ORDER)|"table":"jobs","type":"ALL"|SCAN jobs/i,
      );
    }
  });
});

async function statementsOf(database: Database, act: (stores: Stores) => Promise<void>) {
  const nodes: RootOperationNode[] = [];
  const kysely = database.kysely.withPlugin({
    transformQuery: ({ node }) => {
      nodes.push(node);
      return node;
    },
    transformResult: async ({ result }) => result,
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
