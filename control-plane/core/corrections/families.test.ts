import assert from 'node:assert/strict';
import { UNPAID } from '@matting/queue/job.ts';
import { laneOf } from '@matting/queue/lanes.ts';
import ava from 'ava';
import type { Job } from '../jobs/job.ts';
import type { Stores } from '../stores.ts';
import { correctionOf, firstOf, matteOf, SUBJECT, succeedCorrection } from '../test/families.ts';
import {
  claimed,
  fundedAccount,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  onBalancedStores,
  reread,
  SERVICE_FAULT,
  submitted,
  successOf,
  UNPAID_DAY_MS,
} from '../test/fixtures.ts';
import { CORRECTIONS_MAX } from './family.ts';

const test = ava.serial;

const blobsOf = (job: Job) => [job.kept!.input!.blob, job.kept!.matte.blob];

const named = async ({ jobs }: Stores, blobs: string[]) =>
  [...(await jobs.referencedBlobs(blobs))].sort();

onBalancedStores(test, 'a correction', (test, { database, stores, replica }) => {
  const other = replica();
  const beginning = async (credits = 1) => {
    const account = await fundedAccount(stores, credits);
    return { account, first: await firstOf(stores, account) };
  };
  const expire = (...ids: string[]) =>
    database.kysely.updateTable('jobs').set({ kept_until: 1 }).where('id', 'in', ids).execute();

  test('needs no credit, and has no entry', async t => {
    const { account, first } = await beginning();
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 0 });
    const job = await submitted(stores, correctionOf(first));
    t.deepEqual(job.correction, { of: first.id, first: first.id, matte: first.kept!.matte });
    t.deepEqual(job.input, first.kept!.input);
    await stores.ledger.check(account).then(problems => t.deepEqual(problems, []));
    const done = await succeedCorrection(stores, job);
    t.deepEqual(done.result?.models, [SUBJECT]);
    t.deepEqual([done.kept?.untilMs, done.kept?.input], [first.expiresAtMs, null]);
    const entries = database.kysely.selectFrom('ledger_entries').where('job_id', '=', job.id);
    t.deepEqual(await entries.selectAll().execute(), []);
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 0 });
  });

  test('begins with the matte of the job that it corrects, itself a correction', async t => {
    const { first } = await beginning();
    const one = await succeedCorrection(stores, await submitted(stores, correctionOf(first)));
    const two = await submitted(stores, correctionOf(one, first));
    t.deepEqual(two.correction, { of: one.id, first: first.id, matte: one.kept!.matte });
    t.is((await reread(stores, first.id)).corrections, 2);
  });

  test('that may need a run on crops says so, and by which model, until its end', async t => {
    const { first } = await beginning();
    const cropRun = { model: 'm'.repeat(64) };
    const correction = { of: first.id, first: first.id, cropRun };
    const job = await submitted(stores, correctionOf(first, first, { correction }));
    const matte = first.kept?.matte;
    t.deepEqual(job.correction, { ...correction, matte: first.kept!.matte });
    const listed = async (among = {}) => {
      const jobs = await stores.queue.listClaimable(9, [{ ...laneOf(job), ...among }]);
      return jobs.map(({ id, correction: of }) => [id, of?.cropRun]);
    };
    t.deepEqual(await listed(), [[job.id, cropRun]]);
    t.deepEqual(await listed({ unboundOnly: true }), []);
    const done = await succeedCorrection(stores, job);
    t.deepEqual(done.correction, { of: first.id, first: first.id, matte: null });
    t.deepEqual(Object.keys(done.kept!.matte), Object.keys(matte!));
    const next = await submitted(stores, correctionOf(done, first));
    t.deepEqual(await listed({ unboundOnly: true }), [[next.id, undefined]]);
  });

  test('is one of so many of its family, however many come to two replicas at once', async t => {
    const { first } = await beginning();
    const both = Array.from({ length: CORRECTIONS_MAX + 6 }, (_, at) =>
      (at % 2 ? stores : other).queue.submit(correctionOf(first), LIMITS),
    );
    const kinds = (await Promise.all(both)).map(({ kind }) => kind);
    t.is(kinds.filter(kind => kind === 'created').length, CORRECTIONS_MAX);
    t.is(kinds.filter(kind => kind === 'refused').length, 6);
    t.is((await reread(stores, first.id)).corrections, CORRECTIONS_MAX);
  });

  test('is in flight as any job, and one that is refused counts nowhere', async t => {
    const { account, first } = await beginning(3);
    const limits = { jobsInFlightMax: 2 };
    const one = await stores.queue.submit(correctionOf(first), limits);
    t.is(one.kind, 'created');
    t.is((await stores.queue.submit(newJob(account), limits)).kind, 'created');
    t.is((await stores.queue.submit(newJob(account), limits)).kind, 'too-many-in-flight');
    t.is((await stores.queue.submit(correctionOf(first), limits)).kind, 'too-many-in-flight');
    t.is((await reread(stores, first.id)).corrections, 1);
    const { job } = one as { job: Job };
    const claim = await claimed(stores, job);
    t.true(await stores.queue.fail(claim, SERVICE_FAULT));
    t.is((await stores.queue.submit(newJob(account), limits)).kind, 'created');
  });

  test('with one idempotency key is made once on two replicas', async t => {
    const { first } = await beginning();
    const { idempotencyKeyHash } = correctionOf(first);
    const made = await Promise.all(
      [stores, other, stores, other].map(at =>
        at.queue.submit(correctionOf(first, first, { idempotencyKeyHash }), LIMITS),
      ),
    );
    t.deepEqual(made.map(({ kind }) => kind).sort(), ['created', 'exists', 'exists', 'exists']);
    t.is(new Set(made.map(outcome => (outcome as { job: Job }).job.id)).size, 1);
    t.is((await reread(stores, first.id)).corrections, 1);
  });

  test('is not made of a job that keeps nothing, or whose time is over', async t => {
    const account = await fundedAccount(stores, 3);
    const plain = newJob(account);
    const claim = await claimed(stores, await submitted(stores, plain));
    t.true(await stores.queue.admitted(claim));
    t.true(await stores.queue.succeed(claim, successOf(claim)));
    const late = await firstOf(stores, account, { ttlMs: 0 });
    const failed = newJob(account, { correctable: {} });
    const lost = await claimed(stores, await submitted(stores, failed));
    t.true(await stores.queue.fail(lost, IMAGE_FAULT));
    for (const id of [plain.id, late.id, failed.id]) {
      const of = await reread(stores, id);
      const order = correctionOf(of, of, { input: late.kept!.input });
      t.is((await stores.queue.submit(order, LIMITS)).kind, 'refused', id);
    }
    t.is((await reread(stores, plain.id)).kept, null);
  });

  test('of an unpaid job is unpaid, and counts in no allowance', async t => {
    const account = await fundedAccount(stores, 0);
    const made = newJob(account, { class: UNPAID, correctable: {} });
    const job = await submitted(stores, made);
    const claim = await claimed(stores, job);
    t.true(await stores.queue.admitted(claim));
    const matte = matteOf(claim);
    t.true(await stores.queue.succeed(claim, successOf(claim, { matte })));
    const first = await reread(stores, job.id);
    const order = correctionOf(first, first, { class: UNPAID });
    const correction = await submitted(stores, order);
    t.deepEqual([correction.class, correction.unpaidDayMs], [UNPAID, UNPAID_DAY_MS]);
    await succeedCorrection(stores, correction);
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 0 });
  });

  test('that is claimed again ends once, and a late result of the first claim is refused', async t => {
    const { first } = await beginning();
    const job = await submitted(stores, correctionOf(first));
    const late = await claimed(stores, job);
    await stores.queue.endLease(job.id);
    const claim = await claimed(other, await reread(stores, job.id), { holder: 'replica-2' });
    t.true(await other.queue.admitted(claim));
    t.false(await stores.queue.succeed(late, successOf(late, { matte: matteOf(late) })));
    t.true(await other.queue.succeed(claim, successOf(claim, { matte: matteOf(claim) })));
    t.false(await stores.queue.fail(late, SERVICE_FAULT));
    t.deepEqual((await reread(stores, job.id)).kept?.matte, matteOf(claim));
  });

  test('that is open keeps its input after the first job expires', async t => {
    const { first } = await beginning();
    const blobs = blobsOf(first).sort();
    const done = await succeedCorrection(stores, await submitted(stores, correctionOf(first)));
    const open = await submitted(stores, correctionOf(done, first));
    const own = done.kept!.matte.blob;
    t.deepEqual(await named(stores, [...blobs, own]), [...blobs, own].sort());
    await expire(first.id, done.id);
    const taken = await stores.jobs.takeExpiredKept(100);
    t.true([...blobs, own].every(blob => taken.includes(blob)));
    t.deepEqual(await stores.jobs.takeExpiredKept(10), []);
    // Only the first job used its matte; its input and the open correction's start stay.
    t.deepEqual(await named(stores, [...blobs, own]), [first.kept!.input!.blob, own].sort());
    const last = await succeedCorrection(stores, open);
    t.is(last.kept, null);
    t.truthy(last.result);
    t.deepEqual(
      await named(stores, [...blobs, own, matteOf({ jobId: open.id, holder: '', fence: 1 }).blob]),
      [],
    );
  });

  test('is not made any more once the sweep took what it needs', async t => {
    const { first } = await beginning();
    await expire(first.id);
    const racing = [
      stores.jobs.takeExpiredKept(10),
      other.queue.submit(correctionOf(first), LIMITS),
    ] as const;
    const [taken, outcome] = await Promise.all(racing);
    t.true(blobsOf(first).every(blob => taken.includes(blob)));
    t.is(outcome.kind, 'refused');
    assert.equal((await reread(stores, first.id)).kept, null);
  });
});
