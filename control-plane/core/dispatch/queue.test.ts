/** The queue lane by lane, and the size of the fleet that it asks for, on both databases. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { CompiledQuery, createQueryId, type RootOperationNode, sql } from 'kysely';
import type { Database } from '../../database/database.ts';
import { FleetSizing, HOLD_MS } from '../../fleet-size/fleet-sizing.ts';
import { onStores, type Stores, storesOn } from '../../test/every-store.ts';
import { JobEvents } from '../results/job-view.ts';
import { claimed, fundedAccount, newJob, storedInput, submitted } from '../test/fixtures.ts';
import { silent } from '../test/harness.ts';
import type { JobLane } from './dispatch-core.ts';
import type { NodeSnapshot } from './dispatch-policy.ts';

const test = ava.serial;

/** Many times what a round reads. */
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
    // As the server itself does every now and then; its choice must not depend on when.
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

/** The statements that reach the database, as they are compiled for it. */
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

const POLICY = { waitTargetMs: 60_000, nodesMin: 0, nodesMax: 100 };

onStores(
  test,
  'the size of a fleet',
  (test, { database, stores }) => {
    let nowMs = 0;

    const cleanUp = async () => {
      for (const table of ['fleet_reports', 'jobs'] as const) {
        await database.kysely.deleteFrom(table).execute();
      }
    };

    function replica(name: string, nodes: readonly NodeSnapshot[] = []) {
      const events = new JobEvents();
      const sizing = new FleetSizing({
        jobs: stores.jobs,
        reports: stores.fleetReports,
        fleet: { snapshots: () => nodes, unroutableMs: () => nowMs },
        running: () => 0,
        events,
        policy: POLICY,
        replica: name,
        log: silent,
        now: () => nowMs,
      });
      return { events, sizing };
    }

    /** As if all reports had been made so long ago. */
    async function age(ageMs: number): Promise<void> {
      await database.kysely
        .updateTable('fleet_reports')
        .set(eb => ({ reported_at: eb('reported_at', '-', ageMs) }))
        .execute();
    }

    /** A pace of 10 MP/s. */
    async function remember(wantedNodes: number): Promise<void> {
      const work = { megapixels: 1000, nodeMs: 100_000 };
      await stores.fleetReports.save('before', { inflowPerS: 0, work, wantedNodes });
    }

    async function queue(count: number): Promise<void> {
      const account = await fundedAccount(stores, count);
      const { key } = await stores.apiKeys.create(account, 'test');
      for (let made = 0; made < count; made += 1) {
        const job = newJob(account, { apiKeyId: key.id });
        const input = { ...storedInput(job.id), width: 6000, height: 5000 };
        await stores.jobs.submit({ ...job, input }, { jobsInFlightMax: 1000 });
      }
    }

    test('is not said before anybody has measured', async t => {
      t.teardown(cleanUp);
      const { sizing } = replica('a');
      t.is(await sizing.wanted(), undefined);
      await sizing.report();
      t.is(await sizing.wanted(), 0);
    });

    test('is the same for all replicas, by what waits, with no node at all', async t => {
      t.teardown(cleanUp);
      await remember(0);
      const [a, b] = [replica('a'), replica('b')];
      await a.sizing.report();
      // 1200 MP: twice what a node does in the target.
      await queue(40);
      await b.sizing.report();
      t.deepEqual([await a.sizing.wanted(), await b.sizing.wanted()], [2, 2]);
      await a.sizing.report();
      await a.sizing.report();
      t.deepEqual([await a.sizing.wanted(), await b.sizing.wanted()], [2, 2]);
      const rows = await stores.fleetReports.list();
      t.deepEqual(rows.map(row => row.replica).sort(), ['a', 'b', 'before']);
    });

    test('is remembered when every replica starts anew, however long they were away', async t => {
      t.teardown(cleanUp);
      await remember(7);
      await age(HOLD_MS - 60_000);
      t.is(await replica('unborn').sizing.wanted(), undefined, 'nobody has said it lately');
      await queue(40);
      const soon = replica('soon');
      await soon.sizing.report();
      t.is(await soon.sizing.wanted(), 7, 'what was wanted a while ago is still held');
      await age(30 * 24 * 3_600_000);
      const late = replica('late');
      await late.sizing.report();
      t.is(await late.sizing.wanted(), 2, 'the pace is known, what was wanted is over');
      const rows = await stores.fleetReports.list();
      t.deepEqual(
        rows.map(row => row.replica),
        ['late'],
        'nothing piles up',
      );
    });

    test('leaves out a replica that is gone, and adds what comes to the others', async t => {
      t.teardown(cleanUp);
      const work = { megapixels: 1000, nodeMs: 100_000 };
      await stores.fleetReports.save('gone', { inflowPerS: 400, work, wantedNodes: 50 });
      await age(40_000);
      await stores.fleetReports.save('other', { inflowPerS: 24, work, wantedNodes: 3 });
      const { sizing } = replica('a');
      await sizing.report();
      t.is(await sizing.wanted(), 3);
      await stores.fleetReports.save('other', { inflowPerS: 80, work, wantedNodes: 3 });
      await sizing.report();
      t.is(await sizing.wanted(), 10);
    });

    test('counts what is submitted here, but for the playground', async t => {
      t.teardown(cleanUp);
      await remember(0);
      const { sizing, events } = replica('a');
      sizing.start();
      try {
        await sizing.report();
        nowMs += 1;
        const account = await fundedAccount(stores, 1);
        const { key } = await stores.apiKeys.create(account, 'test');
        const outcome = await stores.jobs.submit(newJob(account, { apiKeyId: key.id }), {
          jobsInFlightMax: 1,
        });
        assert.ok(outcome.kind === 'created');
        const input = { ...outcome.job.input!, width: 6000, height: 5000 };
        for (let sent = 0; sent < 10_000; sent += 1) {
          events.jobSubmitted({ ...outcome.job, input, class: 'playground' });
        }
        nowMs += 60_000;
        await sizing.report();
        const [before] = (await stores.fleetReports.list()).filter(row => row.replica === 'a');
        t.is(before?.inflowPerS, 0);
        for (let sent = 0; sent < 100; sent += 1) events.jobSubmitted({ ...outcome.job, input });
        nowMs += 60_000;
        await sizing.report();
        const [row] = (await stores.fleetReports.list()).filter(one => one.replica === 'a');
        // 3000 MP in a minute, as far as a minute counts.
        t.true(Math.abs((row?.inflowPerS ?? 0) - 50 * (1 - 1 / Math.E)) < 1);
      } finally {
        await sizing.stop();
      }
    });
  },
  { serverInCi: true },
);
