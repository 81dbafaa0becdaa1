import { hash, randomBytes, randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { openDatabase } from '@matting/database/connect.ts';
import type { Database } from '@matting/database/database.ts';
import { hold } from '@matting/http/test/held-form.ts';
import ava, { type ExecutionContext } from 'ava';
import { CallbackSecrets, notificationBody, SecretBox } from '../secrets/secret-box.ts';
import { fingerprintOf } from '../submission/fingerprint.ts';
import { linesLogger } from '../test/support/raw-http.ts';
import { imageBody, openTestApp, TEST_SECRETS_KEY, useTestApp } from '../test/support/test-app.ts';

const test = ava.serial;

const SYNC = '/v1/matting';
const ASYNC = '/v1/matting/jobs';
const SECRETS = new CallbackSecrets(new SecretBox(TEST_SECRETS_KEY));
const SECRET = 'callback secret in the clear';
const HOOK = { callback_url: 'https://hooks.example.com:8443/x?y=1', callback_secret: SECRET };
const base64Of = (bytes: number) => randomBytes(bytes).toString('base64');
const UNREADABLE_SECRETS = [
  base64Of(16),
  base64Of(23),
  base64Of(65),
  base64Of(32).toUpperCase().replace(/.{4}/, '-_-_'),
  randomBytes(32).toString('hex').replace(/^./, '#'),
  ` ${base64Of(32)}`,
  `${base64Of(32)}=`,
  '#'.repeat(30),
].map(text => `whsec_${text}`);
const PENDING = {
  url: HOOK.callback_url,
  status: 'pending',
  attempts: 0,
  last_status_code: null,
  last_failure: null,
  last_attempt_at: null,
  next_attempt_at: null,
};

/** By host; others get a public address. */
const addresses = new Map<string, readonly string[]>([['moved.example.com', ['10.0.0.1']]]);
const asked: string[] = [];
let onResolve: () => Promise<unknown> = async () => undefined;
const { lines, logger } = linesLogger('trace');
const app = useTestApp(test, {
  jobsInFlightMax: 20,
  logger,
  resolveHost: async host => {
    asked.push(host);
    await onResolve();
    return addresses.get(host) ?? ['93.184.215.14'];
  },
});
test.afterEach.always(() => app.refuseNewJobs(undefined));

async function credits() {
  return (await app.get('/v1/account')).json().credits;
}

async function assertRefused(t: ExecutionContext, body: unknown, field: string): Promise<void> {
  const before = [await credits(), await app.countJobs(), await app.storedFiles()];
  for (const url of [SYNC, ASYNC]) {
    const answer = await app.post(url, body);
    t.is(answer.statusCode, 400, answer.payload);
    t.is(answer.headers['content-type'], 'application/problem+json');
    const problem = answer.json();
    t.deepEqual([problem.code, problem.retryable], ['INVALID_CALLBACK', false]);
    t.is(problem.errors[0].field, field);
    t.false(answer.payload.includes(SECRET));
  }
  t.deepEqual([await credits(), await app.countJobs(), await app.storedFiles()], before);
}

function bodyIn(row: { readonly id: string; readonly body: string }) {
  return JSON.parse(SECRETS.openText(row.body, notificationBody(row.id)) ?? '');
}

async function onDatabase<T>(work: (database: Database) => Promise<T>): Promise<T> {
  const log = { info: () => undefined, warn: () => undefined };
  const database = await openDatabase(`sqlite:${app.databaseFile}`, { log });
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}

const outboxOf = (jobId: string) =>
  onDatabase(({ kysely }) =>
    kysely.selectFrom('outbox').selectAll().where('id', '=', jobId).executeTakeFirst(),
  );

async function submit(more: Record<string, unknown> = HOOK, key: string = randomUUID()) {
  return app.post(ASYNC, imageBody(more), { 'idempotency-key': key });
}

test('half a pair, wrong text, wrong secret: refused, and nothing is left of it', async t => {
  const { callback_url, callback_secret } = HOOK;
  // submission/request-fields.test.ts has the other bad texts.
  for (const [fields, field] of [
    [{ callback_url }, 'callback_secret'],
    [{ callback_secret }, 'callback_url'],
    [{ callback_url, callback_secret: null }, 'callback_secret'],
    [{ ...HOOK, callback_secret: 's'.repeat(23) }, 'callback_secret'],
    [{ ...HOOK, callback_url: 'http://a.example.com' }, 'callback_url'],
    // A Standard Webhooks receiver would decode these differently.
    ...UNREADABLE_SECRETS.map(
      callback_secret => [{ ...HOOK, callback_secret }, 'callback_secret'] as const,
    ),
    // CallbackAddressCheck refuses these by text and by resolved address.
    [{ ...HOOK, callback_url: 'https://127.0.0.1/' }, 'callback_url'],
    [{ ...HOOK, callback_url: 'https://moved.example.com/' }, 'callback_url'],
  ] as const) {
    await assertRefused(t, imageBody(fields), field);
  }
});

test('a secret that is not Base64 behind whsec_ goes on where a request is repeated', async t => {
  const hook = { ...HOOK, callback_secret: `whsec_${'#'.repeat(30)}` };
  const key = randomUUID();
  // As an earlier version stored it.
  const { job_id: jobId } = (await submit(HOOK, key)).json();
  const image = Buffer.from(String(imageBody().image_base64), 'base64');
  const fingerprint = fingerprintOf({
    source: { imageSha256: hash('sha256', image, 'hex') },
    outputFormat: 'png',
    callback: { url: hook.callback_url, secret: hook.callback_secret },
  });
  await onDatabase(({ kysely }) =>
    kysely.updateTable('jobs').set({ fingerprint }).where('id', '=', jobId).execute(),
  );
  t.is((await submit(hook, key)).json().job_id, jobId, 'a join');
  t.is((await submit(HOOK, key)).json().code, 'IDEMPOTENCY_CONFLICT');
  const other = { ...hook, output_format: 'webp' };
  t.is((await submit(other, key)).json().code, 'IDEMPOTENCY_CONFLICT', 'a conflict comes first');
  await app.succeedJob(jobId);
  t.is((await submit(hook, key)).headers['idempotent-replayed'], 'true');
});

test('a twin that made the job while the address was looked up is joined', async t => {
  const key = { 'idempotency-key': randomUUID() };
  const { promise: late, resolve: answer } = Promise.withResolvers<readonly string[]>();
  const { promise: lookedUp, resolve: onLookUp } = Promise.withResolvers<void>();
  let lookUps = 0;
  const slow = await openTestApp({
    resolveHost: async () => {
      lookUps += 1;
      if (lookUps > 1) return ['93.184.215.14'];
      onLookUp();
      return late;
    },
  });
  t.teardown(() => slow.close());
  const first = slow.post(ASYNC, imageBody(HOOK), key);
  await lookedUp;
  const second = await slow.post(ASYNC, imageBody(HOOK), key);
  answer(['10.0.0.1']);
  t.deepEqual([(await first).statusCode, second.statusCode], [202, 202]);
  t.is((await first).json().job_id, second.json().job_id);
  t.is((await slow.get('/v1/account')).json().credits.reserved, 1);
  t.is((await slow.storedFiles()).length, 1, 'the upload of the first is gone');
});

test('a job shows its callback in every state, the notification does not', async t => {
  const answer = await submit();
  t.is(answer.statusCode, 202, answer.payload);
  const { job_id: jobId, callback } = answer.json();
  t.deepEqual(callback, PENDING);
  const read = async () => (await app.get(`${ASYNC}/${jobId}`)).json();
  t.deepEqual((await read()).callback, PENDING);
  t.is(await outboxOf(jobId), undefined, 'written with the final state, not before');
  const claim = await app.startJob(jobId);
  t.deepEqual((await read()).callback, PENDING);
  await app.succeedJob(jobId, undefined, undefined, claim);
  const job = await read();
  t.deepEqual(job.callback, { ...PENDING, next_attempt_at: job.callback.next_attempt_at });
  t.regex(job.callback.next_attempt_at, /^20\d\d-.*Z$/);
  const row = (await outboxOf(jobId))!;
  const { callback: _told, ...data } = job;
  t.false(row.body.includes(job.result.url), 'sealed: who reads the row cannot use the link');
  t.deepEqual(bodyIn(row), {
    type: 'matting.job.succeeded',
    timestamp: job.finished_at,
    job_id: jobId,
    data,
  });
  t.deepEqual([row.address, row.status, row.attempts], [PENDING.url, 'pending', 0]);
});

test('a job without a callback has neither the field nor a row in the outbox', async t => {
  const { job_id: jobId, ...job } = (await submit({ callback_url: null })).json();
  t.false('callback' in job);
  await app.succeedJob(jobId);
  t.false('callback' in (await app.get(`${ASYNC}/${jobId}`)).json());
  t.is(await outboxOf(jobId), undefined);
});

test('the secret is stored sealed for its job, and is neither logged nor shown', async t => {
  const decoded = Buffer.from('0123456789abcdefghijklmnopqrstuv');
  const text = `whsec_${decoded.toString('base64')}`;
  for (const [secret, key] of [
    [SECRET, Buffer.from(SECRET)],
    [text, decoded],
  ] as const) {
    const answer = await submit({ ...HOOK, callback_secret: secret });
    const { job_id: jobId } = answer.json();
    await app.succeedJob(jobId);
    const row = (await outboxOf(jobId))!;
    const sealed = { secret: row.secret, secretKeyId: row.secret_key_id };
    t.deepEqual(SECRETS.open(jobId, sealed), key);
    const logged = JSON.stringify(lines);
    const told = answer.payload + (await app.get(`${ASYNC}/${jobId}`)).payload + row.body + logged;
    t.true(logged.includes('req_'), 'the log was read');
    for (const form of [secret, key.toString('hex'), key.toString('base64')]) {
      t.false(told.includes(form));
    }
  }
  for (const file of [app.databaseFile, `${app.databaseFile}-wal`]) {
    const bytes = await readFile(file).catch(() => Buffer.alloc(0));
    for (const form of [SECRET, text, decoded]) t.false(bytes.includes(form), file);
  }
});

const BY = { actor: { kind: 'operator' } } as const;
const key = () => app.stores.apiKeys.create(app.accountId, 'leaked');
const bodyOf = (more = {}) => JSON.stringify(imageBody(more));
const left = async () => [
  await app.countJobs(),
  await app.storedFiles(),
  app.services.uploads.open,
  await app.stores.ledger.balances(app.accountId),
];

const held = (token: string) => ({
  path: ASYNC,
  headers: {
    ...bearer(token),
    'idempotency-key': randomUUID(),
    'content-type': 'application/json',
  },
  payload: bodyOf(),
});

test(`a held submission › makes no job by a key that was revoked: ${ASYNC}`, async t => {
  const { key: made, token } = await key();
  const before = await left();
  const waiting = await hold(await app.listen(), held(token));
  await app.stores.apiKeys.revoke(made.id);
  const { status, body } = await waiting.release();
  t.true(status === 401 || status === 403, body);
  t.deepEqual(await left(), before);
});

test(`a held submission › counts for a cap that the key was given: ${ASYNC}`, async t => {
  const { key: made, token } = await key();
  const before = await app.countJobs();
  const waiting = await hold(await app.listen(), held(token));
  const by = { accountId: app.accountId, ...BY };
  const cap = { credits: 1, period: 'total' } as const;
  await app.stores.apiKeys.change(made.id, by, { policy: { cap } });
  t.is((await app.post(ASYNC, imageBody(), bearer(token))).statusCode, 202);
  const { status, body } = await waiting.release();
  t.is(status, 402, body);
  t.regex(body, /cap/i);
  t.is(await app.countJobs(), before + 1);
});

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

test('a held submission › makes no job by a key that was revoked while a name was looked up', async t => {
  const { key: made, token } = await key();
  const before = await left();
  onResolve = () => app.stores.apiKeys.revoke(made.id);
  const answer = await app.post(ASYNC, imageBody(HOOK), bearer(token));
  onResolve = async () => undefined;
  t.is(answer.json().code, 'INVALID_API_KEY');
  t.deepEqual(await left(), before);
});
