import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { hold } from '@matting/http/test/held-form.ts';
import ava, { type ExecutionContext } from 'ava';
import { IMAGE_FAULT } from '../test/fixtures.ts';
import { imageBody, openTestApp, pngHeader, useTestApp } from '../test/support/test-app.ts';

const test = ava.serial;
const app = useTestApp(test, { syncWaitMs: 2000, credits: 1000 });

const pathOf = (jobId: string) => `/v1/matting/jobs/${jobId}/corrections`;

async function firstOf(more: Record<string, unknown> = { correctable: true }, of = app) {
  const key = { 'idempotency-key': randomUUID() };
  const made = await of.post('/v1/matting/jobs', imageBody(more), key);
  assert.equal(made.statusCode, 202, made.body);
  const { job_id: jobId } = made.json();
  await of.succeedJob(jobId);
  return jobId as string;
}

async function correct(jobId: string, body: unknown = {}, headers: Record<string, string> = {}) {
  const key = { 'idempotency-key': randomUUID() };
  return app.post(pathOf(jobId), body, { ...key, ...headers });
}

async function refused(
  t: ExecutionContext,
  answer: Awaited<ReturnType<typeof correct>>,
  status: number,
  code: string,
  field?: string,
) {
  const problem = answer.json();
  t.deepEqual([answer.statusCode, problem.code], [status, code], answer.body);
  if (field !== undefined) t.is(problem.errors?.[0]?.field, field, answer.body);
}

test('a correction is a job of its own, which costs nothing', async t => {
  const jobId = await firstOf();
  const before = await app.stores.ledger.credits(app.accountId);
  const made = await correct(jobId);
  t.is(made.statusCode, 202, made.body);
  t.is(made.headers['x-credits-charged'], '0');
  const job = made.json();
  t.is(made.headers.location, job.status_url);
  t.deepEqual([job.corrects, job.credits], [jobId, { reserved: 0, charged: 0 }]);
  await app.succeedJob(job.job_id);
  const read = (await app.get(`/v1/matting/jobs/${job.job_id}`)).json();
  t.deepEqual([read.status, read.corrects], ['succeeded', jobId]);
  t.deepEqual(read.credits, { reserved: 0, charged: 0 });
  t.deepEqual(read.models, [{ name: 'isnet', role: 'subject' }]);
  t.deepEqual(await app.stores.ledger.credits(app.accountId), before);
  t.deepEqual(await app.stores.ledger.check(), []);
});

test('a correction of no job of the caller is refused before its body is read', async t => {
  const payload = JSON.stringify({ background: 'white' });
  const held = { headers: app.headers(), payload };
  const port = await app.listen();
  for (const id of [randomUUID(), 'x']) {
    await t.throwsAsync(hold(port, { ...held, path: pathOf(id) }), { message: /refused: 404/ });
  }
  const jobId = await firstOf();
  const { status } = await (await hold(port, { ...held, path: pathOf(jobId) })).release();
  t.is(status, 202);
});

test('a correction with Prefer: wait answers with the result', async t => {
  const jobId = await firstOf();
  const done = app.onSubmitted(id => app.succeedJob(id));
  const answer = await correct(jobId, {}, { prefer: 'wait=1' });
  await done.stop();
  t.is(answer.statusCode, 200, answer.body);
  t.is(answer.json().status, 'succeeded');
  t.is(answer.headers['preference-applied'], 'wait=1');
  t.is(answer.headers['x-credits-charged'], '0');
});

test('the input stays as long as the result of a job that asked for it, and of no other', async t => {
  const kept = await firstOf();
  const plain = await firstOf({});
  const stillThere = async (id: string) => (await app.stores.jobs.find(id))?.kept?.input?.blob;
  t.is(await stillThere(kept), `inputs/${kept}`);
  t.is(await stillThere(plain), undefined);
});

test('a correction takes over the fields that it does not send', async t => {
  const fields = { correctable: true, crop: true, crop_margin: '5%', output_format: 'webp' };
  const jobId = await firstOf({ ...fields, background: 'red' });
  const made = (await correct(jobId, { background: 'white' })).json();
  const job = await app.stores.jobs.find(made.job_id);
  t.is(job?.outputFormat, 'webp');
  const margin = { percent: 5 };
  t.deepEqual(job?.finishing, {
    crop: { top: margin, right: margin, bottom: margin, left: margin },
    background: { kind: 'colour', rgba: 0xffffffff },
  });
  await app.succeedJob(made.job_id);
  const next = (await correct(made.job_id, { output_format: 'png' })).json();
  const again = await app.stores.jobs.find(next.job_id);
  t.deepEqual([again?.outputFormat, again?.finishing], ['png', job?.finishing]);
  t.deepEqual(again?.correction?.first, jobId);
});

test('a correction has the reference of the corrected job, unless it sends its own', async t => {
  const jobId = await firstOf({ correctable: true, reference: 'bowl é図' });
  const { job_id: made } = (await correct(jobId)).json();
  const listed = await app.get(`/v1/matting/jobs?reference=${encodeURIComponent('bowl é図')}`);
  t.deepEqual(
    new Set(listed.json().jobs.map(({ job_id }: { job_id: string }) => job_id)),
    new Set([made, jobId]),
  );
  await app.succeedJob(made);
  const own = await correct(made, { reference: 'vase' });
  t.is(own.json().reference, 'vase');
  t.is((await correct(made)).json().reference, 'bowl é図');
});

test('a background picture must be sent again', async t => {
  const kept = await firstOf();
  const form = new FormData();
  form.append('background_file', new Blob([new Uint8Array(pngHeader(4, 3))]), 'b.png');
  const body = new Response(form);
  const type = body.headers.get('content-type')!;
  const sent = Buffer.from(await body.arrayBuffer());
  const made = await correct(kept, sent, { 'content-type': type });
  t.is(made.statusCode, 202, made.body);
  const { job_id: jobId } = made.json();
  t.is((await app.stores.jobs.find(jobId))?.background?.input?.blob, `backgrounds/${jobId}`);
  await app.succeedJob(jobId);
  await refused(t, await correct(jobId), 400, 'INVALID_PARAMETER', 'background');
  t.is((await correct(jobId, { background: 'transparent' })).statusCode, 202);
});

test('no correction makes a result again that was paid back', async t => {
  const jobId = await firstOf();
  const key = { 'idempotency-key': randomUUID() };
  const { job_id: done } = (await correct(jobId, {}, key)).json();
  await app.succeedJob(done);
  const loss = { jobId, accountId: app.accountId };
  const repayment = { missing: new Set<string>([done]), auditId: randomUUID() };
  t.is(await app.stores.lostResults.repay(loss, repayment), 'paid');
  for (const sweep of [async () => [], () => app.stores.jobs.takeExpiredKept(10)]) {
    await sweep();
    for (const id of [jobId, done]) {
      const answer = await correct(id);
      await refused(t, answer, 409, 'JOB_NOT_CORRECTABLE');
      t.regex(answer.json().detail, /credit returned/);
    }
  }
  const replayed = await correct(jobId, {}, key);
  t.deepEqual([replayed.statusCode, replayed.json().job_id], [200, done]);
  t.deepEqual(await app.stores.ledger.check(), []);
});

test('a key makes one correction, and is of one kind', async t => {
  const jobId = await firstOf();
  const key = { 'idempotency-key': randomUUID() };
  const made = await correct(jobId, { crop: true }, key);
  const joined = await correct(jobId, { crop: true }, key);
  t.is(joined.json().job_id, made.json().job_id);
  await refused(t, await correct(jobId, {}, key), 409, 'IDEMPOTENCY_CONFLICT');
  const other = await firstOf();
  await refused(t, await correct(other, { crop: true }, key), 409, 'IDEMPOTENCY_CONFLICT');
  const matting = await app.post('/v1/matting/jobs', imageBody(), key);
  await refused(t, matting, 409, 'IDEMPOTENCY_CONFLICT');
  const first = { 'idempotency-key': randomUUID() };
  t.is((await app.post('/v1/matting/jobs', imageBody(), first)).statusCode, 202);
  await refused(t, await correct(jobId, {}, first), 409, 'IDEMPOTENCY_CONFLICT');
  await app.succeedJob(made.json().job_id);
  const replayed = await correct(jobId, { crop: true }, key);
  t.deepEqual([replayed.statusCode, replayed.headers['idempotent-replayed']], [200, 'true']);
  t.is((await app.stores.jobs.find(jobId))?.corrections, 1);
});

test('is refused for a job that takes none', async t => {
  await refused(t, await correct(await firstOf({})), 409, 'JOB_NOT_CORRECTABLE');
  const open = await app.post('/v1/matting/jobs', imageBody({ correctable: true }), {
    'idempotency-key': randomUUID(),
  });
  const { job_id: jobId } = open.json();
  await refused(t, await correct(jobId), 409, 'JOB_NOT_CORRECTABLE');
  await app.failJob(jobId, IMAGE_FAULT);
  await refused(t, await correct(jobId), 409, 'JOB_NOT_CORRECTABLE');
  await refused(t, await correct(randomUUID()), 404, 'JOB_NOT_FOUND');
  await refused(t, await correct('no-uuid'), 404, 'JOB_NOT_FOUND');
  const foreign = { authorization: `Bearer ${await app.createKey()}` };
  await refused(t, await correct(await firstOf(), {}, foreign), 404, 'JOB_NOT_FOUND');
});

test('is refused past the end of the first job, and beyond twenty', async t => {
  const { kysely } = app.database;
  const late = await firstOf();
  await kysely.updateTable('jobs').set({ expires_at: 1 }).where('id', '=', late).execute();
  await refused(t, await correct(late), 410, 'RESULT_EXPIRED');
  const full = await firstOf();
  await kysely.updateTable('jobs').set({ corrections: 20 }).where('id', '=', full).execute();
  await refused(t, await correct(full), 409, 'CORRECTIONS_EXHAUSTED');
  t.deepEqual(await app.stores.ledger.check(), []);
});

test('has no image, model or source of its own', async t => {
  const jobId = await firstOf();
  for (const field of ['image_url', 'image_base64', 'model', 'no_subject', 'correctable']) {
    await refused(t, await correct(jobId, { [field]: 'x' }), 400, 'INVALID_REQUEST', field);
  }
  t.is((await app.stores.jobs.find(jobId))?.corrections, 0);
});

test('a correction that is refused leaves the files of the first', async t => {
  const narrow = await openTestApp({ jobsInFlightMax: 1 }, t);
  const first = await firstOf({ correctable: true }, narrow);
  const send = () => narrow.post(pathOf(first), {}, { 'idempotency-key': randomUUID() });
  t.is((await send()).statusCode, 202);
  await refused(t, await send(), 429, 'RATE_LIMITED');
  t.truthy(await narrow.blobs.stat(`inputs/${first}`));
  t.is((await narrow.stores.jobs.find(first))?.corrections, 1);
});

test('is not offered where the operator keeps nothing', async t => {
  const off = await openTestApp({ corrections: false }, t);
  const key = { 'idempotency-key': randomUUID() };
  const answer = await off.post('/v1/matting/jobs', imageBody({ correctable: true }), key);
  await refused(t, answer, 400, 'INVALID_PARAMETER', 'correctable');
  const plain = await off.post('/v1/matting/jobs', imageBody({ correctable: false }), key);
  t.is(plain.statusCode, 202);
  await refused(t, await correct(await firstOf(), { correctable: 'x' }), 400, 'INVALID_REQUEST');
});
