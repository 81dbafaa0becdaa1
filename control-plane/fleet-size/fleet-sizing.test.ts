/** The size of the fleet that the queue asks for, as replicas report it, on both databases. */
import assert from 'node:assert/strict';
import type { NodeSnapshot } from '@matting/core/nodes/node-view.ts';
import { JobEvents } from '@matting/core/results/job-events.ts';
import { fundedAccount, newJob, storedInput } from '@matting/core/test/fixtures.ts';
import { silent } from '@matting/core/test/harness.ts';
import ava from 'ava';
import { FleetSizing, HOLD_MS } from './fleet-sizing.ts';
import { FLEET_SIZE_FIXTURES } from './test/fixtures.ts';

const test = ava.serial;

const { onStores } = FLEET_SIZE_FIXTURES;

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
