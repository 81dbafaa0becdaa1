/** What replicas say of the wanted number of nodes: on a real database, by clocks of the test. */
import assert from 'node:assert/strict';
import { afterEach, it } from 'node:test';
import type { NodeSnapshot } from '../../../src/domain/dispatch/dispatch-policy.ts';
import { FleetSizing, HOLD_MS } from '../../../src/services/fleet-size/fleet-sizing.ts';
import { JobEvents } from '../../../src/services/job-events.ts';
import { describeStores, fundedAccount, newJob, storedInput } from '../../store/fixtures.ts';
import { silent } from '../dispatch/harness.ts';

const POLICY = { waitTargetMs: 60_000, nodesMin: 0, nodesMax: 100 };

describeStores('the size of a fleet', ({ database, stores }) => {
  let nowMs = 0;

  afterEach(async () => {
    for (const table of ['fleet_reports', 'jobs'] as const) {
      await database.kysely.deleteFrom(table).execute();
    }
  });

  function replica(name: string, nodes: readonly NodeSnapshot[] = []) {
    const events = new JobEvents();
    const sizing = new FleetSizing({
      jobs: stores.jobs,
      playground: stores.playground,
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

  it('is not said before anybody has measured', async () => {
    const { sizing } = replica('a');
    assert.equal(await sizing.wanted(), undefined);
    await sizing.report();
    assert.equal(await sizing.wanted(), 0);
  });

  it('is the same for all replicas, by what waits, with no node at all', async () => {
    await remember(0);
    const [a, b] = [replica('a'), replica('b')];
    await a.sizing.report();
    // 1200 MP: twice what a node does in the target.
    await queue(40);
    await b.sizing.report();
    assert.deepEqual([await a.sizing.wanted(), await b.sizing.wanted()], [2, 2]);
    await a.sizing.report();
    await a.sizing.report();
    assert.deepEqual([await a.sizing.wanted(), await b.sizing.wanted()], [2, 2]);
    const rows = await stores.fleetReports.list();
    assert.deepEqual(rows.map(row => row.replica).sort(), ['a', 'b', 'before']);
  });

  it('is one until the pace is known', async () => {
    await queue(40);
    const { sizing } = replica('a');
    await sizing.report();
    assert.equal(await sizing.wanted(), 1);
  });

  it('is remembered when every replica starts anew, however long they were away', async () => {
    await remember(7);
    await age(HOLD_MS - 60_000);
    assert.equal(await replica('unborn').sizing.wanted(), undefined, 'nobody has said it lately');
    await queue(40);
    const soon = replica('soon');
    await soon.sizing.report();
    assert.equal(await soon.sizing.wanted(), 7, 'what was wanted a while ago is still held');
    await age(30 * 24 * 3_600_000);
    const late = replica('late');
    await late.sizing.report();
    assert.equal(await late.sizing.wanted(), 2, 'the pace is known, what was wanted is over');
    const rows = await stores.fleetReports.list();
    assert.deepEqual(
      rows.map(row => row.replica),
      ['late'],
      'nothing piles up',
    );
  });

  it('leaves out a replica that is gone, and adds what comes to the others', async () => {
    const work = { megapixels: 1000, nodeMs: 100_000 };
    await stores.fleetReports.save('gone', { inflowPerS: 400, work, wantedNodes: 50 });
    await age(40_000);
    await stores.fleetReports.save('other', { inflowPerS: 24, work, wantedNodes: 3 });
    const { sizing } = replica('a');
    await sizing.report();
    assert.equal(await sizing.wanted(), 3);
    await stores.fleetReports.save('other', { inflowPerS: 80, work, wantedNodes: 3 });
    await sizing.report();
    assert.equal(await sizing.wanted(), 10);
  });

  it('counts what is submitted here, but for the playground', async () => {
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
      assert.equal(before?.inflowPerS, 0);
      for (let sent = 0; sent < 100; sent += 1) events.jobSubmitted({ ...outcome.job, input });
      nowMs += 60_000;
      await sizing.report();
      const [row] = (await stores.fleetReports.list()).filter(one => one.replica === 'a');
      // 3000 MP in a minute, as far as a minute counts.
      assert.ok(Math.abs((row?.inflowPerS ?? 0) - 50 * (1 - 1 / Math.E)) < 1);
    } finally {
      await sizing.stop();
    }
  });
});
