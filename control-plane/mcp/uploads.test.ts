import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { assertBalanced, fundedCaller } from '@matting/core/test/fixtures.ts';
import { hold } from '@matting/http/test/held-form.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { IMAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import ava, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { Agent, image, openTestApp, put, useTestApp } from './test/mcp-client.ts';
import { ADDRESS_MS, createUploadStore, KEPT_MS, UPLOADS_OF_ACCOUNT_MAX } from './upload-store.ts';

const test = ava.serial;

let agent: Agent;
let port: number;
const app = useTestApp(test, { credits: 1000 }, async () => {
  port = await app.listen();
  agent = await Agent.at(port, app.token);
});

function succeeding(t: ExecutionContext): void {
  const jobs = app.onSubmitted(id => app.succeedJob(id, Buffer.from('a cut-out')));
  t.teardown(() => jobs.stop());
}

async function created(by = agent) {
  const { text, fields, isError } = await by.call('create_upload');
  if (isError) throw new Error(text);
  return { text, ...fields } as Record<'text' | 'image_id' | 'upload_url' | 'command', string>;
}

const age = (id: string, ms: number) =>
  app.database.kysely
    .updateTable('mcp_uploads')
    .set(eb => ({ created_at: eb('created_at', '-', ms) }))
    .where('id', '=', id)
    .execute();

const sweep = () => {
  const [removal] = app.plugged.flatMap(({ removals = [] }) => removals);
  return removal!.remove(1000);
};

const blobOf = async (id: string) => {
  const rows = app.database.kysely.selectFrom('mcp_uploads').select('blob').where('id', '=', id);
  return (await rows.executeTakeFirst())?.blob ?? undefined;
};

test('a file is sent to its address, and is the image of calls, as often as they name it', async t => {
  succeeding(t);
  const before = await app.stores.ledger.balances(app.accountId);
  const { text, image_id, upload_url, command } = await created();
  t.true(text.includes(command) && text.includes(image_id));
  t.is(command, `curl --fail-with-body -T photo.jpg '${upload_url}'`);
  const file = image(300_000);
  const sent = await put(port, upload_url, file);
  t.deepEqual(sent, {
    status: 201,
    fields: { image_id, format: 'png', width: 40, height: 30, size_bytes: file.length },
  });
  t.deepEqual(await app.stores.ledger.balances(app.accountId), before, 'nothing is charged yet');
  const made = await agent.remove({ image_id });
  t.false(made.isError, made.text);
  for (const same of [{ image_id }, { image_base64: file.toString('base64') }]) {
    t.is((await agent.remove(same)).fields.job_id, made.fields.job_id);
  }
  const other = await agent.remove({ image_id, background: 'white' });
  t.not(other.fields.job_id, made.fields.job_id, other.text);
  t.is((await app.stores.ledger.balances(app.accountId))!.available, before!.available - 2);
  await assertBalanced(app.stores);
});

test('the address of a key that is revoked takes no image', async t => {
  const { key, token } = await app.stores.apiKeys.create(app.accountId, 'leaked');
  const { upload_url, image_id } = await created(await Agent.at(port, token));
  const files = await app.storedFiles();
  await app.stores.apiKeys.revoke(key.id);
  t.is((await put(port, upload_url, image())).status, 404);
  t.is(await blobOf(image_id), undefined);
  t.deepEqual(await app.storedFiles(), files);
});

test('an address takes one image', async t => {
  const { upload_url, image_id } = await created();
  const bodies = [image(200_000), image(200_000)];
  const sent = await Promise.all(bodies.map(body => put(port, upload_url, body)));
  t.deepEqual(sent.map(({ status }) => status).sort(), [201, 404]);
  const again = await put(port, upload_url, image());
  t.is(again.status, 404);
  t.regex(again.fields.detail, /^An image has come to this address already\. Use its image_id/);
  const stored = await blobOf(image_id);
  const [first] = bodies.filter((_, index) => sent[index]?.status === 201);
  t.is((await app.blobs.stat(stored!))?.bytes, first?.length);
});

test('an upload that is not an image is refused, and the address stays open', async t => {
  const files = await app.storedFiles();
  const { upload_url, image_id } = await created();
  const refused = async (
    body: Buffer,
    type: string | undefined,
    status: number,
    code: string,
    message: RegExp,
  ) => {
    const answer = await put(port, upload_url, body, type);
    t.deepEqual([answer.status, answer.fields.code], [status, code]);
    t.regex(answer.fields.detail, message);
  };
  await refused(Buffer.from('GIF89a'), undefined, 400, 'UNSUPPORTED_IMAGE_FORMAT', /JPEG/);
  await refused(Buffer.alloc(0), undefined, 400, 'INVALID_IMAGE_SOURCE', /empty/);
  const form = 'multipart/form-data; boundary=x';
  for (const type of [
    form,
    'application/x-www-form-urlencoded',
    'application/json',
    'text/plain',
  ]) {
    await refused(image(), type, 415, 'UNSUPPORTED_MEDIA_TYPE', /send -T photo\.jpg/);
  }
  const large = Buffer.alloc(IMAGE_BYTES_MAX + 1);
  await refused(large, 'image/png', 413, 'IMAGE_TOO_LARGE', /50 MiB/);
  t.regex((await agent.remove({ image_id })).text, /^INVALID_IMAGE_SOURCE: image_id has no image/);
  t.deepEqual(await app.storedFiles(), files);
  t.is((await put(port, upload_url, image(), 'image/png')).status, 201);
});

test('an address that is unknown or over is refused before its body is read', async t => {
  const { upload_url, image_id } = await created();
  await age(image_id, ADDRESS_MS);
  for (const address of [upload_url, `${upload_url}x`, upload_url.replace(/[^/]+$/, 'x')]) {
    const { status, fields } = await put(port, address, image(2_000_000));
    t.deepEqual([status, fields.code], [404, 'NOT_FOUND']);
    t.regex(fields.detail, /^This address is unknown or over\. Call create_upload/);
  }
  const got = await app.app.inject({ method: 'GET', url: new URL(upload_url).pathname });
  t.deepEqual([got.statusCode, got.headers.allow], [405, 'PUT']);
});

test('the image is of its key alone, for its time, and is removed with its file', async t => {
  const { upload_url, image_id } = await created();
  await put(port, upload_url, image());
  const blob = path.join(app.storageDir, (await blobOf(image_id))!);
  t.true(existsSync(blob));
  const sibling = await Agent.at(port, await app.createKey());
  const { token } = await fundedCaller(app.stores, 5);
  const stranger = await Agent.at(port, token);
  for (const [other, id] of [
    [sibling, image_id],
    [stranger, image_id],
    [agent, randomUUID()],
    [agent, 'ü'],
  ] as const) {
    t.regex(
      (await other.remove({ image_id: id })).text,
      /^INVALID_IMAGE_SOURCE: image_id names no upload of this API key.* create_upload/,
    );
  }
  await sweep();
  t.true(existsSync(blob), 'it is young');
  await age(image_id, KEPT_MS);
  t.regex((await agent.remove({ image_id })).text, /^INVALID_IMAGE_SOURCE: image_id names no/);
  t.true((await sweep()) > 0);
  t.false(existsSync(blob));
  t.is(await blobOf(image_id), undefined);
});

function counting(t: ExecutionContext) {
  const { blobs } = app;
  const { openRead, createWriter } = blobs;
  const counts = { read: 0, begun: 0 };
  blobs.openRead = async (...of) => {
    counts.read += 1;
    return await openRead.apply(blobs, of);
  };
  blobs.createWriter = async name => {
    counts.begun += 1;
    return await createWriter.call(blobs, name);
  };
  t.teardown(() => Object.assign(blobs, { openRead, createWriter }));
  return counts;
}

async function uploaded(by: Agent): Promise<string> {
  const { upload_url, image_id } = await created(by);
  const { status } = await put(port, upload_url, image(300_000));
  if (status !== 201) throw new Error(`the upload was answered ${status}`);
  return image_id;
}

test('a call that is refused reads and copies nothing of its image', async t => {
  succeeding(t);
  const { token, accountId } = await fundedCaller(app.stores, 0);
  const poor = await Agent.at(port, token);
  const capped = await Agent.at(port, await app.createKey({ cap: { credits: 1, period: 'day' } }));
  await capped.remove({ image_base64: image().toString('base64') });
  const [ofPoor, ofCapped, own] = [
    await uploaded(poor),
    await uploaded(capped),
    await uploaded(agent),
  ];
  const counts = counting(t);
  const refused = async (by: Agent, given: object, code: string) => {
    const { text } = await by.remove({ image_id: ofPoor, ...given });
    t.true(text.startsWith(code), text);
    t.deepEqual(counts, { read: 0, begun: 0 }, code);
  };
  await refused(poor, {}, 'INSUFFICIENT_CREDITS');
  await refused(poor, { idempotency_key: 'mine' }, 'INSUFFICIENT_CREDITS');
  await refused(capped, { image_id: ofCapped }, 'KEY_CAP_REACHED');
  await refused(agent, { image_id: own, roi: '0% 0% 0% 0%' }, 'INVALID_PARAMETER');
  app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'The queue is full.'));
  t.teardown(() => app.refuseNewJobs(undefined));
  await refused(agent, { image_id: own }, 'SERVICE_UNAVAILABLE');
  t.deepEqual(await app.stores.ledger.balances(accountId), { available: 0, reserved: 0 });
});

test('a call that repeats a job has it whatever a new one would be refused for', async t => {
  const { token } = await fundedCaller(app.stores, 1);
  const last = await Agent.at(port, token);
  const image_id = await uploaded(last);
  const jobs = app.onSubmitted(id => app.succeedJob(id, Buffer.from('a cut-out')));
  t.teardown(() => jobs.stop());
  const [one, twin] = await Promise.all([last.remove({ image_id }), last.remove({ image_id })]);
  t.deepEqual([one.isError, twin.fields.job_id], [false, one.fields.job_id]);
  const counts = counting(t);
  app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'The queue is full.'));
  t.teardown(() => app.refuseNewJobs(undefined));
  t.is((await last.remove({ image_id })).fields.job_id, one.fields.job_id);
  t.deepEqual(counts, { read: 0, begun: 0 });
  const { text } = await last.remove({ image_id, background: 'white' });
  t.regex(text, /^SERVICE_UNAVAILABLE/);
  app.refuseNewJobs(undefined);
  t.regex((await last.remove({ image_id, background: 'white' })).text, /^INSUFFICIENT_CREDITS/);
});

test('an account with all its jobs in flight is refused before a copy', async t => {
  const full = await openTestApp({ jobsInFlightMax: 1 }, t);
  const at = await full.listen();
  const busy = await Agent.at(at, full.token);
  const { upload_url, image_id } = await created(busy);
  await put(at, upload_url, image());
  const first = await full.post('/v1/matting/jobs', { image_base64: image().toString('base64') });
  t.is(first.statusCode, 202);
  const files = await full.storedFiles();
  t.regex((await busy.remove({ image_id })).text, /^RATE_LIMITED: .*Wait until one ends/);
  t.deepEqual(await full.storedFiles(), files);
});

test('an upload whose row notes nothing of the image serves calls as well', async t => {
  succeeding(t);
  const image_id = await uploaded(agent);
  const { fields } = await agent.remove({ image_id });
  await app.database.kysely
    .updateTable('mcp_uploads')
    .set({ known: null })
    .where('id', '=', image_id)
    .execute();
  t.is((await agent.remove({ image_id })).fields.job_id, fields.job_id);
  t.false((await agent.remove({ image_id, background: 'black' })).isError);
});

test('a copy that reads other bytes than the upload had makes no job', async t => {
  const image_id = await uploaded(agent);
  const files = await app.storedFiles();
  const { openRead } = app.blobs;
  app.blobs.openRead = async () => Readable.from([image(10)]);
  t.teardown(() => Object.assign(app.blobs, { openRead }));
  const before = await app.stores.ledger.balances(app.accountId);
  t.regex((await agent.remove({ image_id })).text, /^INTERNAL_ERROR/);
  t.deepEqual(await app.stores.ledger.balances(app.accountId), before);
  t.deepEqual(await app.storedFiles(), files);
});

test('one image in one call', async t => {
  const { image_id } = await created();
  for (const more of [
    { image_url: 'https://images.example.com/a.jpg' },
    { image_base64: 'aaaa' },
  ]) {
    const { text } = await agent.remove({ image_id, ...more });
    t.regex(text, /^INVALID_IMAGE_SOURCE: The call has more than one image/);
  }
  const { text } = await agent.remove({ image_id, image_url: '', image_base64: '' });
  t.regex(text, /^INVALID_IMAGE_SOURCE: image_id has no image yet/);
});

test('an image that came too late leaves no file', async t => {
  const { upload_url, image_id } = await created();
  const files = await app.storedFiles();
  const waiting = await hold(port, {
    method: 'PUT',
    path: new URL(upload_url).pathname,
    headers: {},
    payload: image(20_000),
  });
  await age(image_id, KEPT_MS);
  const { status } = await waiting.release();
  t.is(status, 404);
  t.deepEqual(await app.storedFiles(), files);
});

test('an account that has all its uploads is told when to call again', async t => {
  const store = createUploadStore(app.database);
  const { accountId, apiKeyId, token } = await fundedCaller(app.stores, 5);
  for (let count = 0; count < UPLOADS_OF_ACCOUNT_MAX; count += 1) {
    await store.create({ accountId, apiKeyId });
  }
  const { text, isError } = await (await Agent.at(port, token)).call('create_upload');
  t.true(isError);
  t.regex(text, /^RATE_LIMITED: The account has 100 uploads .* again in 60 seconds/);
  await created();
});

test('the address is in no line of the log', async t => {
  const lines: string[] = [];
  const logger = pino({ level: 'trace' }, { write: line => void lines.push(line) });
  const logged = await openTestApp({ logger }, t);
  const at = await logged.listen();
  const { upload_url } = await created(await Agent.at(at, logged.token));
  for (const body of [Buffer.from('no image'), image()]) await put(at, upload_url, body);
  const text = lines.join('');
  t.false(text.includes(upload_url.split('/').at(-1)!));
  const [refused, taken] = lines
    .map(line => JSON.parse(line))
    .filter(({ msg, route }) => msg === 'answered' && route === '/mcp/uploads/:token');
  t.deepEqual([refused.status, taken.status, taken.accountId], [400, 201, logged.accountId]);
});

test('an upload from before /mcp was switched off is removed, too', async t => {
  const off = await openTestApp({ settings: { mcp: undefined } }, t);
  const uploads = createUploadStore(off.database);
  const { id } = (await uploads.create(await fundedCaller(off.stores, 0)))!;
  await off.database.kysely
    .updateTable('mcp_uploads')
    .set(eb => ({ created_at: eb('created_at', '-', KEPT_MS) }))
    .where('id', '=', id)
    .execute();
  const [removal] = off.plugged.flatMap(({ removals = [] }) => removals);
  t.is(await removal?.remove(1000), 1);
  t.is((await off.app.inject({ method: 'POST', url: '/mcp' })).statusCode, 404);
});
