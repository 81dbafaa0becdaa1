/** Readers of results: what they wait for, and what is found to be gone. */

import assert from 'node:assert/strict';
import { rename, unlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import { openDirectoryBlobStore } from '@matting/storage/directory-store.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava, { type ExecutionContext } from 'ava';
import type { Job } from '../jobs/job.ts';
import { fundedAccount, HOUR_MS, newJob, onStores, resultOf, running } from '../test/fixtures.ts';
import { imageBody, useTestApp } from '../test/support/test-app.ts';
import { JobEvents } from './job-events.ts';
import { LostResults } from './lost-results.ts';
import { resultLookStep } from './result-look.ts';
import { WaitForJob } from './wait-for-job.ts';

const test = ava.serial;

const app = useTestApp(test);

const LONG_MS = 60_000;
const never = new AbortController().signal;

async function submit(): Promise<Job> {
  const { job_id: id } = (await app.post('/v1/matting/jobs', imageBody())).json();
  return (await app.stores.jobs.find(id))!;
}

async function untilWaiting(waits: WaitForJob, count = 1): Promise<void> {
  await until(
    () => `${count} waits, of ${waits.waiting}`,
    () => waits.waiting >= count,
  );
}

test('the wait for a job › a job that is final already is not waited for', async t => {
  const waits = new WaitForJob(app.stores.jobs, app.events);
  const job = await submit();
  await app.succeedJob(job.id);
  t.is((await waits.wait(job, LONG_MS, never)).state, 'succeeded');
  t.is(waits.waiting, 0);
});

test('the wait for a job › an event between the read and the wait is not lost', async t => {
  const events = new JobEvents();
  const job = await submit();
  let reads = 0;
  const waits = new WaitForJob(
    {
      findForKey: (...args) => app.stores.jobs.findForKey(...args),
      findFinal: async ids => {
        const seen = await app.stores.jobs.findFinal(ids);
        reads += 1;
        if (reads === 1) {
          await app.succeedJob(job.id);
          events.jobFinal(job.id);
        }
        return seen;
      },
    },
    events,
  );
  t.is((await waits.wait(job, LONG_MS, never)).state, 'succeeded');
  t.is(reads, 2);
});

test('the wait for a job › the end of a job in another replica is found without an event', async t => {
  const waits = new WaitForJob(app.stores.jobs, new JobEvents());
  const job = await submit();
  const waiting = waits.wait(job, LONG_MS, never);
  await untilWaiting(waits);
  await app.succeedJob(job.id);
  t.is((await waiting).state, 'succeeded');
});

test('the wait for a job › time, a hang-up and a drain end the wait and change nothing', async t => {
  const waits = new WaitForJob(app.stores.jobs, app.events);
  const job = await submit();
  t.is((await waits.wait(job, 0, never)).state, 'ready');
  t.is((await waits.wait(job, 20, never)).state, 'ready');

  t.is((await waits.wait(job, LONG_MS, AbortSignal.abort())).state, 'ready');
  const hangUp = new AbortController();
  const waiting = waits.wait(job, LONG_MS, hangUp.signal);
  await untilWaiting(waits);
  hangUp.abort();
  t.is((await waiting).state, 'ready');

  const drained = waits.wait(job, LONG_MS, never);
  await untilWaiting(waits);
  waits.endAllWaits();
  t.is((await drained).state, 'ready');
  t.is((await waits.wait(job, LONG_MS, never)).state, 'ready');
  t.is(waits.waiting, 0);
});

test('the wait for a job › many waits of many jobs share one poll, and each gets its own job', async t => {
  const asked: number[] = [];
  const waits = new WaitForJob(
    {
      findForKey: (...args) => app.stores.jobs.findForKey(...args),
      findFinal: ids => {
        asked.push(ids.length);
        return app.stores.jobs.findFinal(ids);
      },
    },
    app.events,
  );
  const jobs = await Promise.all(Array.from({ length: 20 }, submit));
  const waiting = jobs.flatMap(job => [
    waits.wait(job, LONG_MS, never),
    waits.wait(job, LONG_MS, never),
  ]);
  await untilWaiting(waits, 40);
  for (const job of jobs) await app.succeedJob(job.id);
  const ended = await Promise.all(waiting);
  t.deepEqual(
    ended.map(({ id, state }) => [id, state]),
    jobs.flatMap(({ id }) => [
      [id, 'succeeded'],
      [id, 'succeeded'],
    ]),
  );
  t.is(asked[0], 20);
  t.is(waits.waiting, 0);
});

test('the wait for a job › a database that is away does not end a wait, any other error does', async t => {
  const away = new ContractError('SERVICE_UNAVAILABLE', 'away');
  const job = await submit();
  let reads = 0;
  const waits = new WaitForJob(
    {
      findForKey: () => Promise.reject(away),
      findFinal: async ids => {
        reads += 1;
        if (reads === 1) throw away;
        return app.stores.jobs.findFinal(ids);
      },
    },
    new JobEvents(),
  );
  await rejectsWith(t, waits.wait(job, 20, never), away);
  reads = 0;
  const waiting = waits.wait(job, LONG_MS, never);
  await app.succeedJob(job.id);
  t.is((await waiting).state, 'succeeded');
  t.true(reads >= 2);

  const broken = {
    findForKey: () => Promise.reject(new Error('no read')),
    findFinal: () => Promise.reject(new Error('no answer')),
  };
  const failing = new WaitForJob(broken, app.events);
  await t.throwsAsync(failing.wait(job, LONG_MS, never), { message: /no answer/ });
  t.is(failing.waiting, 0);
});

const MINUTE_MS = 60_000;
const FIRST = { atMs: 0, id: '' };

onStores(
  test,
  'the look over results',
  (test, { database, stores }) => {
    let root: string;
    let blobs: BlobStore;
    let account: string;
    let told: string[];
    let results: { jobId: string; file: string }[];

    const prepare = async (t: ExecutionContext, count = 0) => {
      root = await temporaryFolder(t);
      blobs = await openDirectoryBlobStore(root);
      account = await fundedAccount(stores, 100);
      told = [];
      results = [];
      const { kysely } = database;
      await kysely.deleteFrom('lost_results').execute();
      await kysely.deleteFrom('sweeps').execute();
      await kysely
        .updateTable('jobs')
        .set({ result_blob: null, result_blob_expires_at: null })
        .where('result_blob', 'is not', null)
        .execute();
      // The sweeper's row is there since its claim.
      const won = await stores.sweeps.claim('replica', MINUTE_MS);
      assert.ok(won);
      for (let made = 0; made < count; made += 1) await succeeded(HOUR_MS + made * MINUTE_MS);
    };

    async function succeeded(ttlMs: number): Promise<void> {
      const { claim } = await running(stores, newJob(account));
      const result = resultOf(claim);
      assert.ok(await stores.queue.succeed(claim, result, ttlMs, {}));
      const file = path.join(root, result.blob);
      await writeFile(file, 'cut-out');
      results.push({ jobId: claim.jobId, file });
    }

    function step(nowMs = 0) {
      const { jobs, lostResults } = stores;
      const asked: string[] = [];
      const rests: number[] = [];
      const losses = new LostResults({
        ...{ jobs, lostResults, blobs },
        observer: {
          resultLost: by => told.push(by),
          resultsMissing: () => told.push('missing'),
        },
        log: { error: (_: unknown, message: string) => told.push(message) } as never,
        now: () => nowMs,
      });
      const look = resultLookStep({
        ...{ lostResults, losses },
        blobs: {
          stat: name => {
            asked.push(name);
            return blobs.stat(name);
          },
        },
        rest: async ms => rests.push(ms),
      });
      return { look, asked, rests };
    }

    async function wholeLook(pages = 100) {
      const { look, asked, rests } = step();
      let lost = 0;
      for (let page = 0; page < pages; page += 1) {
        const { done, more } = await look.page(200);
        lost += done;
        if (!more) break;
      }
      return { lost, asked, rests };
    }

    const found = async () =>
      (await stores.lostResults.open(FIRST, 100)).map(({ jobId }) => jobId).sort();

    test('asks for each file once a day, page by page, at a bounded rate', async t => {
      await prepare(t);
      // Some end at one instant, as those of one second do.
      for (let count = 0; count < 25; count += 1) {
        await succeeded(HOUR_MS + Math.floor(count / 4) * MINUTE_MS);
      }
      const { lost, asked, rests } = await wholeLook();
      t.deepEqual([lost, asked.length, new Set(asked).size], [0, 25, 25]);
      // Ten of them are a fifth of a second.
      t.deepEqual(rests, [200, 200]);
      t.is((await wholeLook()).asked.length, 0, 'none is due for a day');
      await due();
      t.is((await wholeLook()).asked.length, 25);
    });

    test('continues where another replica stopped', async t => {
      await prepare(t, 12);
      const first = await wholeLook(1);
      const second = await wholeLook();
      t.deepEqual([first.asked.length, second.asked.length], [10, 2]);
      t.is(new Set([...first.asked, ...second.asked]).size, 12);
    });

    test('writes one row for a missing file, and reports it once', async t => {
      await prepare(t, 9);
      const gone = [results[2], results[6]];
      for (const result of gone) await unlink(result?.file ?? '');
      t.is((await wholeLook()).lost, 2);
      t.deepEqual(await found(), gone.map(result => result?.jobId).sort());
      const once = ['look', 'a result is lost'];
      t.deepEqual(told, [...once, ...once]);
      await due();
      await wholeLook();
      t.deepEqual(told, [...once, ...once]);
    });

    test('ends, and writes nothing, if the newest file is gone, too', async t => {
      await prepare(t, 9);
      await rename(path.join(root, 'results'), path.join(root, 'aside'));
      await openDirectoryBlobStore(root);
      const { lost, asked } = await wholeLook();
      t.deepEqual([lost, asked.length], [0, 1]);
      t.deepEqual(await found(), []);
      t.deepEqual(told, ['missing', 'results are missing from the storage']);
      t.is((await wholeLook()).asked.length, 0, 'it comes again in an hour');
      const { look_due_at: dueAt } = await database.kysely
        .selectFrom('sweeps')
        .select('look_due_at')
        .executeTakeFirstOrThrow();
      t.true((dueAt ?? 0) - Date.now() < 2 * HOUR_MS);
    });

    test('fails, and keeps its position, if the storage does not answer', async t => {
      await prepare(t);
      await succeeded(HOUR_MS);
      await rename(path.join(root, 'results'), path.join(root, 'aside'));
      await t.throwsAsync(step().look.page(10), { code: 'SERVICE_UNAVAILABLE' });
      await rename(path.join(root, 'aside'), path.join(root, 'results'));
      t.is((await wholeLook()).asked.length, 1);
      t.deepEqual([await found(), told], [[], []]);
    });

    test('skips results that expire within this minute', async t => {
      await prepare(t);
      await succeeded(MINUTE_MS / 2);
      t.is((await wholeLook()).asked.length, 0);
    });

    async function due(): Promise<void> {
      await database.kysely.updateTable('sweeps').set({ look_due_at: 1 }).execute();
    }
  },
  { serverInCi: true },
);
