import { ContractError } from '@matting/proto/contract/errors.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import type { Job } from '../jobs/job.ts';
import { imageBody, useTestApp } from '../test/support/test-app.ts';
import { JobEvents } from './job-events.ts';
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
