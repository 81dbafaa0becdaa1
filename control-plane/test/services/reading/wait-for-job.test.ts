import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ContractError } from '#contract/errors.ts';
import type { Job } from '../../../src/domain/job.ts';
import { JobEvents } from '../../../src/services/job-events.ts';
import { WaitForJob } from '../../../src/services/reading/wait-for-job.ts';
import { imageBody, useTestApp } from '../../support/test-app.ts';

const app = useTestApp();

const LONG_MS = 60_000;
const never = new AbortController().signal;

async function submit(): Promise<Job> {
  const { job_id: id } = (await app.post('/v1/matting/jobs', imageBody())).json();
  return (await app.stores.jobs.find(id))!;
}

async function untilWaiting(waits: WaitForJob, count = 1): Promise<void> {
  while (waits.waiting < count) await new Promise(setImmediate);
}

test('a job that is final already is not waited for', async () => {
  const waits = new WaitForJob(app.stores.jobs, app.events);
  const job = await submit();
  await app.succeedJob(job.id);
  assert.equal((await waits.wait(job, LONG_MS, never)).state, 'succeeded');
  assert.equal(waits.waiting, 0);
});

test('an event of this replica ends the wait', async () => {
  const waits = new WaitForJob(app.stores.jobs, app.events);
  const job = await submit();
  const waiting = [waits.wait(job, LONG_MS, never), waits.wait(job, LONG_MS, never)];
  await untilWaiting(waits, 2);
  await app.succeedJob(job.id);
  for (const done of await Promise.all(waiting)) assert.equal(done.state, 'succeeded');
});

test('an event between the read and the wait is not lost', async () => {
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
  assert.equal((await waits.wait(job, LONG_MS, never)).state, 'succeeded');
  assert.equal(reads, 2);
});

test('the end of a job in another replica is found without an event', async () => {
  const waits = new WaitForJob(app.stores.jobs, new JobEvents());
  const job = await submit();
  const waiting = waits.wait(job, LONG_MS, never);
  await untilWaiting(waits);
  await app.succeedJob(job.id);
  assert.equal((await waiting).state, 'succeeded');
});

test('time, a hang-up and a drain end the wait and change nothing', async () => {
  const waits = new WaitForJob(app.stores.jobs, app.events);
  const job = await submit();
  assert.equal((await waits.wait(job, 0, never)).state, 'ready');
  assert.equal((await waits.wait(job, 20, never)).state, 'ready');

  assert.equal((await waits.wait(job, LONG_MS, AbortSignal.abort())).state, 'ready');
  const hangUp = new AbortController();
  const waiting = waits.wait(job, LONG_MS, hangUp.signal);
  await untilWaiting(waits);
  hangUp.abort();
  assert.equal((await waiting).state, 'ready');

  const drained = waits.wait(job, LONG_MS, never);
  await untilWaiting(waits);
  waits.endAllWaits();
  assert.equal((await drained).state, 'ready');
  assert.equal((await waits.wait(job, LONG_MS, never)).state, 'ready');
  assert.equal(waits.waiting, 0);
});

test('many waits of many jobs share one poll, and each gets its own job', async () => {
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
  assert.deepEqual(
    ended.map(({ id, state }) => [id, state]),
    jobs.flatMap(({ id }) => [
      [id, 'succeeded'],
      [id, 'succeeded'],
    ]),
  );
  assert.equal(asked[0], 20);
  assert.equal(waits.waiting, 0);
});

test('a database that is away does not end a wait, any other error does', async () => {
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
  await assert.rejects(waits.wait(job, 20, never), away);
  reads = 0;
  const waiting = waits.wait(job, LONG_MS, never);
  await app.succeedJob(job.id);
  assert.equal((await waiting).state, 'succeeded');
  assert.ok(reads >= 2);

  const broken = {
    findForKey: () => Promise.reject(new Error('no read')),
    findFinal: () => Promise.reject(new Error('no answer')),
  };
  const failing = new WaitForJob(broken, app.events);
  await assert.rejects(failing.wait(job, LONG_MS, never), /no answer/);
  assert.equal(failing.waiting, 0);
});
