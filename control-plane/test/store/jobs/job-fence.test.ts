/**
 * Each guard of a job's fence by itself: what it refuses that no other guard would. Some stand
 * against a takeover between two statements; there another handle acts right after the first.
 */
import assert from 'node:assert/strict';
import ava from 'ava';
import type { KyselyPlugin, QueryId } from 'kysely';
import { LEASE_MS } from '../../../src/domain/lease.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import type { Claim } from '../../../src/store/jobs/job-lease.ts';
import type { ClaimableJob } from '../../../src/store/jobs/job-queue.ts';
import {
  assertBalanced,
  claimed,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  onStores,
  reread,
  resultOf,
  running,
  storedInput,
  storesOn,
  submitted,
} from '../fixtures.ts';

const test = ava.serial;

/** The same database; `act` runs once, after the first statement of that kind. */
function withActAfter(
  database: Database,
  kind: 'SelectQueryNode' | 'UpdateQueryNode',
  act: () => Promise<void>,
): Database {
  const ofKind = new WeakSet<QueryId>();
  let done = false;
  const plugin: KyselyPlugin = {
    transformQuery: ({ node, queryId }) => {
      if (node.kind === kind) ofKind.add(queryId);
      return node;
    },
    transformResult: async ({ result, queryId }) => {
      if (ofKind.has(queryId) && !done) {
        done = true;
        await act();
      }
      return result;
    },
  };
  return { ...database, kysely: database.kysely.withPlugin(plugin) };
}

onStores(test, 'the fence of a job', (test, { dialect, database, replica }) => {
  const stores = replica();
  const balanced = () => assertBalanced(stores);

  async function takenOver(claim: Claim, holder: string): Promise<Claim> {
    assert.ok(await stores.jobs.renew(claim, 0));
    return claimed(stores, await reread(stores, claim.jobId), { holder });
  }

  test('an ended job is claimed by nobody', async t => {
    t.teardown(balanced);
    const { job, claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    t.truthy(await stores.jobs.fail(claim, IMAGE_FAULT));
    const listed = { id: job.id, fence: claim.fence } as ClaimableJob;
    t.is(await stores.jobs.claim(listed, 'replica-2', LEASE_MS), undefined);
  });

  test('a claim that was overtaken before its answer came is no claim', async t => {
    t.teardown(balanced);
    const job = await submitted(stores, newJob(await fundedAccount(stores, 1)));
    const listed = { id: job.id, fence: job.fence } as ClaimableJob;
    let heir: Claim | undefined;
    const slow = withActAfter(database, 'UpdateQueryNode', async () => {
      heir = await claimed(stores, await reread(stores, job.id), { holder: 'heir' });
    });
    t.is(await storesOn(slow).jobs.claim(listed, 'slow', 0), undefined);
    assert.ok(heir);
    t.true(await stores.jobs.renew(heir, LEASE_MS));
  });

  test('an input that was stored under an earlier claim is not stored again by it', async t => {
    t.teardown(balanced);
    const sourceUrl = 'https://a.example/';
    const account = await fundedAccount(stores, 1);
    const old = await claimed(stores, await submitted(stores, newJob(account, { sourceUrl })));
    const input = storedInput(old.jobId);
    t.true(await stores.jobs.inputStored(old, input));
    await takenOver(old, 'heir');
    t.false(await stores.jobs.inputStored(old, input));
  });

  test('a job is ended by the holder of its lease alone', async t => {
    t.teardown(balanced);
    const { claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    const stranger = { ...claim, holder: 'stranger' };
    t.false(await stores.jobs.fail(stranger, IMAGE_FAULT));
    t.false(await stores.jobs.succeed(stranger, resultOf(claim), HOUR_MS, {}));
  });

  // SQLite runs one writing transaction at a time: nothing comes between its statements.
  if (dialect === 'sqlite') return;

  test('an ending that is overtaken by its own replica ends nothing', async t => {
    t.teardown(balanced);
    const { job, claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    const slow = withActAfter(database, 'SelectQueryNode', async () => {
      await takenOver(claim, claim.holder);
    });
    t.false(await storesOn(slow).jobs.fail(claim, IMAGE_FAULT));
    t.is((await reread(stores, job.id)).state, 'running');
  });

  test('an ending whose lease is given back meanwhile ends nothing', async t => {
    t.teardown(balanced);
    const { job, claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    const slow = withActAfter(database, 'SelectQueryNode', async () => {
      t.truthy(await stores.jobs.release(claim));
    });
    t.false(await storesOn(slow).jobs.fail(claim, IMAGE_FAULT));
    t.is((await reread(stores, job.id)).state, 'running');
  });

  test('of two endings that meet the second is told that it is none', async t => {
    t.teardown(balanced);
    const { job, claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    const slow = withActAfter(database, 'SelectQueryNode', async () => {
      t.truthy(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
    });
    t.false(await storesOn(slow).jobs.fail(claim, IMAGE_FAULT));
    t.is((await reread(stores, job.id)).state, 'succeeded');
  });
});
