import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { fundedAccount, resultOf, successOf } from '@matting/core/test/fixtures.ts';
import { thumbnailBlob } from '@matting/core/test/internals.ts';
import { imageBody } from '@matting/core/test/support/test-app.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { writeBlob } from '@matting/storage/blob-store.ts';
import ava from 'ava';
import { createSecret } from '../session/secret.ts';
import { multipartOf } from '../test/area/person.ts';
import { useTestApp } from '../test/portal-app.ts';
import { type SignedInBrowser, signIn, signInElsewhere } from '../test/signed-in-browser.ts';
import { AccountJobs } from './account-jobs.ts';

const RESEND_EVERY_MS = 60_000;
const test = ava.serial;

let owner: SignedInBrowser;
let viewer: SignedInBrowser;
let stranger: SignedInBrowser;
const modelsOffered = ['standard', 'fast'];
const app = useTestApp(test, { credits: 1234, modelsOffered }, async () => {
  owner = await signIn(app, { mail: 'owner@example.org' });
  viewer = await signIn(app, { role: 'viewer' });
  stranger = await signInElsewhere(app);
});

const PAGE = '/account/jobs';
const CALLBACK = {
  callback_url: 'https://receiver.example/hook?token=hostile',
  callback_secret: 'a secret of 24 characters',
};
const FAULT = { code: 'PROCESSING_FAILED', detail: 'it cannot be decoded' } as const;

async function submitted(more: Record<string, unknown> = {}, token = app.token): Promise<string> {
  const answer = await app.post('/v1/matting/jobs', imageBody(more), {
    authorization: `Bearer ${token}`,
  });
  assert.equal(answer.statusCode, 202, answer.body);
  return answer.json().job_id;
}

const listed = async (query = '', by = owner) => {
  const { body } = await by.get(`${PAGE}${query}`);
  return [...body.matchAll(/href="\/account\/jobs\/([0-9a-f-]{36})"/g)].map(([, id]) => id);
};

test('jobs › by the key of another account are none, and none of that key are read', async t => {
  const elsewhere = await fundedAccount(app.stores, 0);
  const { key: foreign } = await app.stores.apiKeys.create(elsewhere, 'theirs');
  let lists = 0;
  const count = async () => {
    lists += 1;
    return [];
  };
  const jobs = { ...app.stores.jobs, list: count };
  const accountJobs = new AccountJobs({ ...app.stores, jobs, operateWebhooks: {} as never });
  const question = { group: 'all', days: 30, search: undefined, after: undefined } as const;
  const list = (apiKeyId: string) => accountJobs.list(app.accountId, { ...question, apiKeyId });
  t.deepEqual(await list(foreign.id), { jobs: [], next: undefined });
  t.is(lists, 0);
  await list(app.token.slice(3, 15));
  t.is(lists, 1);
});

test('jobs › list those of all keys, by state, key and days, a page at a time', async t => {
  const other = await app.createKey();
  const otherId = other.slice(3, 15);
  const open = await submitted();
  const done = await submitted({}, other);
  await app.succeedJob(done);
  const failed = await submitted();
  await app.failJob(failed, { ...FAULT, retryable: false });
  t.deepEqual(await listed(), [open, failed, done]);
  t.deepEqual(await listed('?state=failed'), [failed]);
  t.deepEqual(await listed('?state=open'), [open]);
  t.deepEqual(await listed(`?key=${otherId}&days=7`), [done]);
  t.deepEqual(await listed('?state=nonsense&key=%27&days=x&after=x'), [open, failed, done]);
  t.deepEqual(await listed('', viewer), [open, failed, done]);
  t.deepEqual(await listed('', stranger), []);
  const many: string[] = [];
  for (let count = 0; count < 51; count += 1) many.push(await submitted());
  const first = await owner.get(`${PAGE}?state=open`);
  const next = /href="(\/account\/jobs\?[^"]*after=[^"]*)"/.exec(first.body)?.[1];
  assert.ok(next);
  const rest = await listed(next.replaceAll('&amp;', '&').slice(PAGE.length));
  t.is(rest.length, 2);
  for (const id of [open, ...many]) await app.succeedJob(id);
});

const UNSURE = {
  ...{ inputBox: { left: 0, top: 0, width: 2, height: 1 }, share: 1, unsure: true },
  resultBox: { left: 0, top: 0, width: 2, height: 1 },
};

/** The result warns that its subject is unclear. */
async function warnedJob(more: Record<string, unknown> = {}, token = app.token): Promise<string> {
  const id = await submitted(more, token);
  app.sight = { inputWidth: 2, inputHeight: 1, subject: UNSURE };
  await app.succeedJob(id);
  app.sight = null;
  return id;
}

test('jobs › with a warning have a mark, and a list that is full a page at a time', async t => {
  const other = await app.createKey();
  const first = await warnedJob({}, other);
  const plain = await submitted();
  await app.succeedJob(plain);
  const last = await warnedJob();
  t.deepEqual(await listed('?state=look'), [last, first]);
  t.deepEqual(await listed(`?state=look&key=${other.slice(3, 15)}`), [first]);
  t.deepEqual(await listed('?state=look', stranger), []);
  const { body } = await owner.get(PAGE);
  t.is(body.match(/class="badge warning">Unclear</g)?.length, 2);
  const many = [last];
  for (let count = 0; count < 50; count += 1) many.unshift(await warnedJob());
  const page = await owner.get(`${PAGE}?state=look`);
  const next = /href="(\/account\/jobs\?[^"]*after=[^"]*)"/.exec(page.body)?.[1] ?? '';
  t.deepEqual(await listed('?state=look'), many.slice(0, 50));
  const rest = next.replaceAll('&amp;', '&').slice(PAGE.length);
  t.deepEqual(await listed(rest), [last, first]);
  for (const id of [first, ...many]) await app.stores.jobs.noteLooked(app.accountId, id);
});

test('jobs › need no look once somebody looked, corrected or deleted them, or they expired', async t => {
  const list = () => listed('?state=look');
  const ids: string[] = [];
  for (let count = 0; count < 4; count += 1) ids.unshift(await warnedJob({ correctable: true }));
  const [seen = '', corrected = '', deleted = '', expired = ''] = ids;
  const form = `action="${PAGE}/${seen}/looked"`;
  t.true((await owner.get(`${PAGE}/${seen}`)).body.includes(form));
  t.false((await viewer.get(`${PAGE}/${seen}`)).body.includes(form));
  t.is((await viewer.post(`${PAGE}/${seen}/looked`)).statusCode, 403);
  t.is((await stranger.post(`${PAGE}/${seen}/looked`)).statusCode, 404);
  t.deepEqual(await list(), ids);
  const ticked = await owner.post(`${PAGE}/${seen}/looked`);
  t.is(ticked.headers.location, `${PAGE}?state=look&said=looked`);
  t.true((await owner.get(String(ticked.headers.location))).body.includes('Ticked off.'));
  t.deepEqual(await list(), ids.slice(1));
  t.false((await owner.get(`${PAGE}/${seen}`)).body.includes(form), 'once');
  const made = await app.post(`/v1/matting/jobs/${corrected}/corrections`, {});
  app.sight = { inputWidth: 2, inputHeight: 1, subject: UNSURE };
  await app.succeedJob(made.json().job_id);
  app.sight = null;
  t.deepEqual(await list(), [deleted, expired], 'and its correction needs none');
  const headers = app.headers({ 'content-type': undefined });
  await app.app.inject({ method: 'DELETE', url: `/v1/matting/jobs/${deleted}`, headers });
  t.deepEqual(await list(), [expired]);
  const { kysely } = app.database;
  const past = { expires_at: 1, look_until: 1 };
  await kysely.updateTable('jobs').set(past).where('id', '=', expired).execute();
  t.deepEqual(await list(), []);
});

test('jobs › that cannot be corrected say how the next one can', async t => {
  const hint = '/docs/batches-and-corrections#correct-a-result';
  const pageOf = async (id: string, by = owner) => (await by.get(`${PAGE}/${id}`)).body;
  const fixed = await warnedJob();
  t.true((await pageOf(fixed)).includes(hint));
  t.false((await pageOf(fixed, viewer)).includes(hint));
  t.false((await pageOf(await warnedJob({ correctable: true }))).includes(hint));
  const plain = await submitted();
  await app.succeedJob(plain);
  t.false((await pageOf(plain)).includes(hint));
});

test('jobs › show their reference as text', async t => {
  const id = await submitted({ reference: '<script>alert(1)</script>' });
  const { body } = await owner.get(`${PAGE}/${id}`);
  t.true(body.includes('&lt;script>alert(1)') || body.includes('&lt;script&gt;alert(1)'));
  t.false(body.includes('<script>alert(1)'));
  await app.succeedJob(id);
});

test('jobs › say in the words of the API why one failed', async t => {
  const detail = 'image_url: the host name has no address.';
  const id = await submitted();
  await app.failJob(id, { code: 'IMAGE_DOWNLOAD_FAILED', detail, retryable: false });
  for (const browser of [owner, viewer]) {
    const { body } = await browser.get(`${PAGE}/${id}`);
    t.true(body.includes('IMAGE_DOWNLOAD_FAILED') && body.includes(detail));
    t.regex(body, /The same request would fail again/);
  }
});

test('jobs › say which models ran, whether one was named or not', async t => {
  const id = await submitted({ model: 'fast' });
  const models = async (of = id) =>
    /<dt>Models<\/dt><dd>(.*?)<\/dd>/.exec((await owner.get(`${PAGE}/${of}`)).body)?.[1];
  t.is(await models(), 'fast');
  await app.succeedJob(id);
  t.is(await models(), '<div>fast, subject</div>');
  const unnamed = await submitted();
  await app.succeedJob(unnamed);
  t.is(await models(unnamed), '<div>isnet, subject</div>');
});

test('jobs › say what a result is warned of', async t => {
  t.teardown(() => {
    app.sight = null;
  });
  const notes = async () => {
    const id = await submitted();
    await app.succeedJob(id);
    return /<dt>Note<\/dt><dd>(.*?)<\/dd>/.exec((await owner.get(`${PAGE}/${id}`)).body)?.[1];
  };
  t.is(await notes(), undefined);
  app.sight = { inputWidth: 2, inputHeight: 1, subject: null };
  t.regex(String(await notes()), /No subject was found/);
});

test('jobs › show one with its stages, and its result to those who may see results', async t => {
  const id = await submitted({ output_format: 'webp' });
  await app.succeedJob(id, Buffer.from('its bytes'), { decode: 12, infer: 250 });
  const path = `${PAGE}/${id}`;
  const { body } = await owner.get(path);
  t.regex(body, new RegExp(`<img[^>]*src="${path}/result"`));
  const file = await owner.get(`${path}/result`);
  t.is(file.body, 'its bytes');
  t.regex(String(file.headers['content-security-policy']), /sandbox/);
  const job = await app.stores.jobs.find(id);
  assert.ok(job?.result);
  for (const page of [body, (await viewer.get(path)).body]) {
    t.false(page.includes(job.result.token), 'no page has the public link');
  }
  const seen = (await viewer.get(path)).body;
  t.false(seen.includes('/result'), 'no preview and no link for viewers');
  t.is((await viewer.get(`${path}/result`)).statusCode, 403);
});

const STROKE = '[{"line":[[1,1],[2,2]],"radius":1}]';

async function correctable(): Promise<string> {
  const id = await submitted({ correctable: true });
  app.sight = { inputWidth: 4, inputHeight: 3, subject: null };
  await app.succeedJob(id, Buffer.from('its cut-out'));
  app.sight = null;
  return id;
}

const correct = async (id: string, keep = STROKE, by = owner) => {
  const fields = { csrf: by.csrf, once: createSecret(), keep };
  const form = { csrf: null, ...multipartOf(fields) };
  return await by.post(`${PAGE}/${id}/corrections`, {}, form);
};

test('jobs › show what was sent, below what people paint, while it is kept', async t => {
  const id = await correctable();
  const path = `${PAGE}/${id}`;
  const { body } = await owner.get(path);
  t.regex(body, new RegExp(`action="${path}/corrections"`));
  t.regex(body, new RegExp(`data-width="4" data-height="3"\\s+data-original="${path}/original"`));
  t.regex(body, new RegExp(`/v1/matting/jobs/${id}/corrections`));
  t.notRegex((await viewer.get(path)).body, /corrections|original/);
  const original = await owner.get(`${path}/original`);
  t.deepEqual(original.rawPayload, Buffer.from(imageBody().image_base64 as string, 'base64'));
  const { headers } = original;
  t.deepEqual(
    [headers['content-type'], headers['x-content-type-options'], headers['cache-control']],
    ['image/png', 'nosniff', 'private, no-cache'],
  );
  t.regex(String(headers['content-security-policy']), /sandbox/);
  t.regex(String(headers['content-disposition']), /^attachment/);
  const known = { headers: { 'if-none-match': String(headers.etag) } };
  t.is((await owner.get(`${path}/original`, known)).statusCode, 304);
  t.is((await viewer.get(`${path}/original`)).statusCode, 403);
  t.is((await stranger.get(`${path}/original`)).statusCode, 404);
  const plain = await submitted();
  await app.succeedJob(plain);
  t.is((await owner.get(`${PAGE}/${plain}/original`)).statusCode, 404);
  t.notRegex((await owner.get(`${PAGE}/${plain}`)).body, /painter/);
});

test('jobs › are corrected on their page, for no credit, by one more job of their key', async t => {
  const id = await correctable();
  const before = await app.stores.ledger.balances(app.accountId);
  const answer = await correct(id);
  t.is(answer.statusCode, 303, answer.body);
  const path = String(answer.headers.location);
  const made = path.slice(PAGE.length + 1);
  const job = await app.stores.jobs.find(made);
  const first = await app.stores.jobs.find(id);
  t.like(job, { class: 'async', correction: { of: id, cropRun: {} } });
  t.is(job?.apiKeyId, first?.apiKeyId);
  t.deepEqual((await listed()).slice(0, 2), [made, id]);
  const waiting = await owner.get(path);
  t.is(waiting.headers.refresh, '2');
  t.regex(waiting.body, new RegExp(`Corrects</dt><dd><a href="${PAGE}/${id}"`));
  t.regex(waiting.body, /<div data-state="queued">/);
  app.sight = { inputWidth: 4, inputHeight: 3, subject: null };
  await app.succeedJob(made);
  app.sight = null;
  const corrected = await owner.get(path);
  t.is(corrected.headers.refresh, undefined);
  t.true(corrected.body.includes(`data-back="true" href="${PAGE}/${id}"`));
  t.deepEqual(await app.stores.ledger.balances(app.accountId), before);
  const originals = [id, made].map(one => `${PAGE}/${one}/original`);
  for (const url of originals) t.is((await owner.get(url)).statusCode, 200);
  const gone = { authorization: `Bearer ${app.token}`, 'idempotency-key': 'gone' };
  const url = `/v1/matting/jobs/${id}`;
  const deleted = await app.app.inject({ method: 'DELETE', url, headers: gone });
  t.is(deleted.statusCode, 200, deleted.body);
  for (const one of originals) t.is((await owner.get(one)).statusCode, 404);
  t.notRegex((await owner.get(path)).body, /painter/);
  t.is((await correct(made)).statusCode, 410);
});

test('jobs › say why a correction is refused, and make nothing', async t => {
  const id = await correctable();
  const refused = async (status: number, text: RegExp, keep?: string) => {
    const answer = await correct(id, keep);
    t.is(answer.statusCode, status);
    t.regex(answer.body, text);
    t.regex(answer.body, /<div data-refusal/);
    t.regex(answer.body, new RegExp(`src="${PAGE}/${id}/result"`));
  };
  await refused(422, /cannot be used as it was sent/, '[{"box":[1,1,0,0]}]');
  app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'full', { retryAfterS: 9 }));
  await refused(503, /service is busy/);
  app.refuseNewJobs(undefined);
  const { kysely } = app.database;
  await kysely.updateTable('jobs').set({ corrections: 20 }).where('id', '=', id).execute();
  await refused(409, /takes no more corrections/);
  t.is((await correct(id, STROKE, viewer)).statusCode, 403);
  t.is((await correct(id, STROKE, stranger)).statusCode, 404);
  const { kept } = (await app.stores.jobs.find(id))!;
  await app.blobs.remove(kept!.input!.blob);
  t.is((await owner.get(`${PAGE}/${id}/original`)).statusCode, 404, 'gone from the storage');
  await kysely.updateTable('jobs').set({ kept_until: 1 }).where('id', '=', id).execute();
  t.notRegex((await owner.get(`${PAGE}/${id}`)).body, /painter/);
});

test('jobs › show the thumbnail of a result where one is, to those who may see results', async t => {
  const none = await submitted();
  await app.succeedJob(none);
  app.thumbnail = Buffer.from('RIFF of a thumbnail');
  t.teardown(() => {
    app.thumbnail = undefined;
  });
  const id = await submitted();
  await app.succeedJob(id, Buffer.from('its bytes'));
  const path = `${PAGE}/${id}`;
  const small = `${path}/thumbnail`;
  for (const page of [PAGE, path]) {
    t.true((await owner.get(page)).body.includes(`src="${small}"`), page);
    t.false((await viewer.get(page)).body.includes(small), `${page} for a viewer`);
  }
  t.regex((await owner.get(path)).body, /<details class="section whole"><summary>/);
  t.false((await owner.get(PAGE)).body.includes(`${none}/thumbnail`));

  const answer = await owner.get(small);
  t.deepEqual([answer.statusCode, answer.body], [200, 'RIFF of a thumbnail']);
  const { etag, 'cache-control': cached, 'content-type': type } = answer.headers;
  t.deepEqual([type, cached], ['image/webp', 'private, max-age=600']);
  t.regex(String(answer.headers['content-security-policy']), /sandbox/);
  const again = await owner.get(small, { headers: { 'if-none-match': String(etag) } });
  t.deepEqual([again.statusCode, again.body], [304, '']);
  t.is((await viewer.get(small)).statusCode, 403);
  t.is((await stranger.get(small)).statusCode, 404);
  t.is((await owner.get(`${PAGE}/${none}/thumbnail`)).statusCode, 404);

  const { result } = (await app.stores.jobs.find(id))!;
  await app.blobs.remove(thumbnailBlob(result!.blob));
  t.is((await owner.get(small)).statusCode, 404, 'gone from the storage');
});

test('jobs › show no thumbnail of a result that is over, though its file is there', async t => {
  const id = await submitted();
  const claim = await app.startJob(id);
  const result = { ...resultOf(claim), thumbnailBytes: 4 };
  await writeBlob(app.blobs, thumbnailBlob(result.blob), Buffer.from('RIFF'));
  await app.stores.queue.succeed(claim, successOf(claim, { result, resultTtlMs: 0 }));
  const small = `${PAGE}/${id}/thumbnail`;
  t.is((await owner.get(small)).statusCode, 404);
  const known = { headers: { 'if-none-match': `"${result.sha256}-thumbnail"` } };
  t.is((await owner.get(small, known)).statusCode, 404);
  t.false((await owner.get(PAGE)).body.includes(small));
});

test('jobs › are called by their reference, and found by it and by their ids', async t => {
  const other = await app.createKey();
  const [one, two] = [await submitted({ reference: 'Füße 7' }), await submitted({}, other)];
  const three = await submitted({ reference: 'Füße 7' }, other);
  const found = async (text: string, by = owner) =>
    (await listed(`?search=${encodeURIComponent(text)}`, by)).sort();
  t.deepEqual(await found(' Füße 7 '), [one, three].sort());
  t.regex((await owner.get(PAGE)).body, /class="address">Füße 7</);
  t.deepEqual(await found(two), [two]);
  t.deepEqual(await found(two.slice(0, 8).toUpperCase()), [two]);
  for (const none of [two.slice(0, 7), 'Füße', '%', 'g'.repeat(36), 'x'.repeat(256)]) {
    t.deepEqual(await found(none), [], none);
  }
  t.deepEqual(await found('Füße 7', stranger), []);
  t.deepEqual(await found(one, stranger), []);
  for (const id of [one, two, three]) await app.succeedJob(id);
});

test('webhooks › lists those of the account alone, by their state, and sends one again', async t => {
  const { outbox } = app.stores;
  const [good, bad] = [await submitted(CALLBACK), await submitted(CALLBACK)];
  const claim = (id: string, fence = 1) => ({ id, holder: 'replica-1', fence });
  for (const id of [good, bad]) {
    await app.succeedJob(id);
    t.truthy(await outbox.claim(claim(id), 60_000));
  }
  await outbox.delivered(claim(good), { statusCode: 204, durationMs: 5 });
  const refused = { statusCode: 500, error: 'status', durationMs: RESEND_EVERY_MS };
  t.truthy(await outbox.failed(claim(bad), refused, { eraseSecret: false }));
  const shown = async (query = '', by = owner) => {
    const { body } = await by.get(`/account/webhooks${query}`);
    return { body, ids: [good, bad].filter(id => body.includes(`/account/jobs/${id}"`)) };
  };
  t.deepEqual((await shown()).ids, [good, bad]);
  t.deepEqual((await shown('?status=delivered')).ids, [good]);
  t.deepEqual((await shown('?status=failed', viewer)).ids, [bad]);
  t.deepEqual((await shown('', stranger)).ids, []);
  const { body } = await shown('?status=failed');
  t.regex(body, /HTTP 500/);
  t.regex(body, new RegExp(`action="/account/jobs/${bad}/resend"`));
  t.notRegex((await shown('', viewer)).body, /resend"/);
  t.false(body.includes('hostile'), 'the receiver alone, not its URL');
  const answer = await owner.post(`${PAGE}/${bad}/resend`, { from: 'webhooks' });
  t.is(answer.headers.location, '/account/webhooks?said=retried');
  t.deepEqual((await shown('?status=failed')).ids, []);
  t.is((await owner.get('/account/webhooks?after=x')).statusCode, 400);
});

test('jobs › show every attempt of a notification, send it again while it is not delivered', async t => {
  const id = await submitted(CALLBACK);
  await app.succeedJob(id);
  const path = `${PAGE}/${id}`;
  const { outbox, audit } = app.stores;
  const claim = (fence: number) => ({ id: id, holder: 'replica-1', fence });
  t.truthy(await outbox.claim(claim(1), 60_000));
  await outbox.retryLater(claim(1), { statusCode: null, error: 'tls', durationMs: 1234 }, 0);
  const { body } = await owner.get(path);
  t.regex(body, /receiver\.example:443/);
  t.regex(body, /The TLS certificate is not valid/);
  t.false(body.includes('hostile'), 'the receiver alone, not its URL');
  t.false((await viewer.get(path)).body.includes('/resend'));
  t.is((await viewer.post(`${path}/resend`)).statusCode, 403);
  t.is((await owner.post(`${path}/resend`, { csrf: 'wrong' })).statusCode, 403);
  const soon = await owner.post(`${path}/resend`);
  t.is(soon.headers.location, `${path}?said=too-soon`);
  // The attempt began a minute ago.
  t.truthy(await outbox.claim(claim(2), 60_000));
  const late = { statusCode: 502, durationMs: RESEND_EVERY_MS };
  t.truthy(await outbox.retryLater(claim(2), late, 60_000));
  const answer = await owner.post(`${path}/resend`);
  t.is(answer.headers.location, `${path}?said=retried`);
  t.truthy(await outbox.claim(claim(3), 60_000), 'its time is now');
  await outbox.delivered(claim(3), { statusCode: null, durationMs: 5 });
  const after = (await owner.get(path)).body;
  t.false(after.includes('/resend'));
  t.is((await owner.post(`${path}/resend`)).headers.location, `${path}?said=delivered`);
  const records = await audit.list(app.accountId, { limit: 10 });
  const resent = records.filter(one => one.action === 'job.resent' && one.subject === id);
  t.deepEqual(
    resent.map(({ subject, mail }) => [subject, mail]),
    [[id, owner.mail]],
  );
});

async function submit(body: unknown): Promise<string> {
  return (await app.post('/v1/matting/jobs', body)).json().job_id;
}

test('the overview › shows credits, a month of days, what runs, what failed in words, and how to begin', async t => {
  await app.succeedJob(await submit(imageBody()));
  const failed = await submit(imageBody());
  const failure = { code: 'PROCESSING_FAILED', detail: '<b>no</b>', retryable: false } as const;
  await app.failJob(failed, failure);
  const open = await submit(imageBody());
  for (const browser of [owner, viewer]) {
    const { statusCode, body, headers } = await browser.get('/account');
    t.is(statusCode, 200);
    t.is(headers['cache-control'], 'no-store');
    const { available = 0 } = (await app.stores.ledger.balances(app.accountId)) ?? {};
    t.true(body.includes(`<dd class="figure">${available.toLocaleString('en')}</dd>`));
    t.true(body.includes(`/account/jobs/${failed}`) && body.includes(`/account/jobs/${open}`));
    t.is(body.match(/<g class="day">/g)?.length, 30);
    t.notRegex(body, /<b>no/);
    t.true(Buffer.byteLength(body) < 100_000);
  }
  const theirs = (await stranger.get('/account')).body;
  t.true(!theirs.includes(failed) && !theirs.includes(open));
  await app.succeedJob(open);
});

test('the page of usage › agrees with the API, in every group and as CSV', async t => {
  const { key } = await app.stores.apiKeys.create(app.accountId, '=cmd|"x"');
  await app.stores.apiKeys.revoke(key.id);
  for (const group of ['day', 'key', 'outcome', 'format']) {
    const { total, usage } = (await app.get(`/v1/account/usage?group=${group}`)).json();
    const page = await viewer.get(`/account/usage?group=${group}&from=&to=`);
    t.is(page.statusCode, 200);
    for (const figure of [total.images, total.failed, total.credits]) {
      t.regex(page.body, new RegExp(`<dd class="figure">${figure}</dd>`));
    }
    const csv = await viewer.get(`/account/usage.csv?group=${group}`);
    t.regex(String(csv.headers['content-type']), /^text\/csv/);
    t.regex(String(csv.headers['content-disposition']), /attachment; filename="usage-/);
    t.is(csv.body.trimEnd().split('\r\n').length, usage.length + 1);
  }
  const theirs = await stranger.get('/account/usage.csv?group=day');
  t.is(theirs.body, '"day","images","failed","credits"\r\n');
});

test('the page of usage › says beside the field what is wrong, and shows nothing then', async t => {
  const wrong = await viewer.get('/account/usage?from=2026-05-02&to=2026-05-01');
  t.is(wrong.statusCode, 422);
  t.regex(wrong.body, /value="2026-05-02"/);
  const long = await viewer.get('/account/usage?from=2024-01-01&to=2026-01-01');
  t.is(long.statusCode, 422);
  const never = await viewer.get('/account/usage?to=%3Cscript%3E');
  t.is(never.statusCode, 422);
  t.false(never.body.includes('<script>'));
  t.is((await viewer.get('/account/usage?group=month')).statusCode, 400);
  t.is((await viewer.get('/account/usage?group=day&group=key')).statusCode, 400);
  t.is((await viewer.get('/account/usage.csv?from=never')).statusCode, 400);
});

test('the settings › take thresholds, and show what was typed where they do not', async t => {
  const path = '/account/settings/thresholds';
  const wrong = await owner.post(path, { threshold: 'ten' });
  t.is(wrong.statusCode, 422);
  t.regex(wrong.body, /value="ten"/);
  const saved = await owner.post(path, { threshold: '2000' });
  t.is(saved.headers.location, '/account/settings?said=thresholds');
});

test('the settings › make the secret of an address, and show it once', async t => {
  const path = '/account/settings/webhook';
  const first = await owner.post(`${path}/test`);
  t.is(first.headers.location, '/account/settings?said=noWebhook');
  const wrong = await owner.post(path, { url: 'http://10.0.0.1/<b>' });
  t.is(wrong.statusCode, 422);
  t.false(wrong.body.includes('/<b>'));
  const url = 'https://hooks.example.com/credits';
  const made = await owner.post(path, { url });
  t.is(made.headers['cache-control'], 'no-store');
  const secret = /whsec_[A-Za-z0-9+/=]+/.exec(made.body)?.[0];
  assert.ok(secret);
  const page = await owner.get('/account/settings');
  t.true(!page.body.includes('whsec_') && page.body.includes(url));
  t.true(page.body.includes('sends no email') && !page.body.includes('Alerts go to'));
  t.is((await owner.post(path, { url })).statusCode, 303);
  const next = await owner.post(path, { url, new_secret: 'on' });
  t.true(next.body.includes('whsec_') && !next.body.includes(secret));
  t.is((await owner.post(`${path}/test`)).headers.location, '/account/settings?said=tested');
  const again = await owner.post(`${path}/test`);
  t.is(again.headers.location, '/account/settings?said=tooSoon');
  t.is((await owner.post(`${path}/remove`)).statusCode, 303);
  t.false((await owner.get('/account/settings')).body.includes(url));
  const log = (await owner.get('/account/audit')).body;
  t.false(log.includes('whsec_'));
});

const TOKEN = /mk_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}/;
const ALL = ['submit', 'read', 'account'];
const FORM = { name: 'shop', expires: '90', cap: '', period: 'month', rate: '', networks: '' };

async function made(fields: Record<string, string | string[]> = {}) {
  const answer = await owner.post('/account/keys', { ...FORM, scopes: ALL, ...fields });
  assert.equal(answer.statusCode, 200, answer.body);
  const token = TOKEN.exec(answer.body)?.[0] ?? '';
  return { token, id: token.slice(3, 15), path: `/account/keys/${token.slice(3, 15)}`, answer };
}

const statusOf = async (token: string) =>
  (await app.get('/v1/account', { authorization: `Bearer ${token}` })).statusCode;

test('keys › show a new key once, with a line that works', async t => {
  const { token, path, answer } = await made({ name: 'once' });
  t.is(answer.headers['cache-control'], 'no-store');
  t.regex(
    answer.body,
    new RegExp(`export MATTING_API_KEY=${token}\nkey=.*\\ncurl -sS https://matting`),
  );
  t.regex(answer.body, new RegExp(`data-copy="${token}"`));
  const toDocs = answer.body.match(/<a [^>]*href="\/docs"/g);
  t.is(toDocs?.length, 2, 'the documents, in the side column and beside the line');
  t.regex(answer.body, /This key expires on <time [^>]*>\d{1,2} \w{3} 20\d\d, [\d:]+ UTC/);
  t.regex(answer.body, /This service sends no email/);
  t.regex((await made({ expires: 'never' })).answer.body, /This key does not expire/);
  t.is(await statusOf(token), 200);
  const page = (await owner.get(path)).body;
  const list = (await owner.get('/account/keys')).body;
  for (const body of [page, list]) {
    t.regex(body, /once/);
    t.false(body.includes(token.slice(16)), 'nothing of its secret');
  }
  const reader = await made({ scopes: ['read'] });
  t.false(reader.answer.body.includes('curl -sS'), 'one that may not submit has no such line');
});

test('keys › take limits, and show them with what is used', async t => {
  const { token, path } = await made({
    ...{ name: 'limited', expires: '7', cap: '3', period: 'day', rate: '60' },
    ...{ scopes: ['submit'], networks: '127.0.0.0/8\n2001:DB8::/32' },
  });
  await app.post('/v1/matting/jobs', imageBody(), { authorization: `Bearer ${token}` });
  t.is(await statusOf(token), 403);
  const page = (await owner.get(path)).body;
  t.true(page.includes('1 of 3') && page.includes('2001:db8::/32'));
});

test('keys › keep what was typed beside what is wrong with it', async t => {
  const answer = await owner.post('/account/keys', {
    ...{ name: '<i>-</i>', expires: '8', cap: '1.5', period: 'week', rate: '0' },
    networks: '10.0.0.1/8',
  });
  t.is(answer.statusCode, 422);
  for (const field of ['expires', 'cap', 'period', 'rate', 'scopes', 'networks']) {
    t.regex(answer.body, new RegExp(`id="${field}-error"`), field);
  }
  t.false(answer.body.includes('<i>'));
  t.regex(answer.body, /value="1\.5"/);
  t.regex(answer.body, />10\.0\.0\.1\/8<\/textarea>/);
  const nameless = await owner.post('/account/keys', { ...FORM, scopes: ALL, name: ' ' });
  t.regex(nameless.body, /id="name-error"/);
  t.false(TOKEN.test(nameless.body));
});

test('keys › change a key, and leave its expiry where it is to stay', async t => {
  const { token, id, path } = await made({ name: 'before' });
  const expiresAtMs = (await app.stores.apiKeys.find(id))?.expiresAtMs;
  const form = { ...FORM, name: 'after', expires: 'keep', scopes: ['read', 'account'] };
  const answer = await owner.post(path, form);
  t.is(answer.statusCode, 303);
  t.is(answer.headers.location, `${path}?said=changed`);
  const key = await app.stores.apiKeys.find(id);
  t.deepEqual([key?.name, key?.policy.scopes], ['after', ['read', 'account']]);
  t.is(key?.expiresAtMs, expiresAtMs);
  const authorization = `Bearer ${token}`;
  const refused = await app.post('/v1/matting/jobs', imageBody(), { authorization });
  t.is(refused.statusCode, 403);
  t.is((await owner.post(path, { ...form, cap: 'x' })).statusCode, 422);
  await owner.post(path, { ...form, expires: 'never', scopes: ALL });
  const freed = await app.stores.apiKeys.find(id);
  t.deepEqual([freed?.expiresAtMs, freed?.policy], [null, {}]);
});

test('keys › name the models that they may, those too that are offered no more', async t => {
  const wrong = await owner.post('/account/keys', { ...FORM, scopes: ALL, models: ['-', 'fast'] });
  t.is(wrong.statusCode, 422);
  t.regex(wrong.body, /id="models-error"/);
  const { token, id, path } = await made({ models: ['fast', 'withdrawn', 'fast'] });
  const policyOf = async () => (await app.stores.apiKeys.find(id))?.policy;
  t.deepEqual(await policyOf(), { models: ['fast', 'withdrawn'] });
  const ticked = /name="models" value="(\w+)" checked/g;
  const { body } = await owner.get(path);
  t.deepEqual(
    [...body.matchAll(ticked)].map(([, name]) => name),
    ['fast', 'withdrawn'],
  );
  t.regex(body, /name="models" value="standard" id/);
  const refused = await app.post('/v1/matting/jobs', imageBody({ model: 'standard' }), {
    authorization: `Bearer ${token}`,
  });
  t.is(refused.statusCode, 403);
  await owner.post(path, { ...FORM, expires: 'keep', scopes: ALL });
  t.deepEqual(await policyOf(), {});
});

test('keys › rotate with an overlap and at once, each secret shown once', async t => {
  const { token, path } = await made();
  const first = await owner.post(`${path}/rotate`, { overlap: '24h' });
  const second = TOKEN.exec(first.body)?.[0] ?? '';
  t.not(second, token);
  t.regex(first.body, /The old secret works until/);
  t.deepEqual([await statusOf(token), await statusOf(second)], [200, 200]);
  const last = await owner.post(`${path}/rotate`, { overlap: 'at-once' });
  const third = TOKEN.exec(last.body)?.[0] ?? '';
  t.deepEqual(
    [await statusOf(token), await statusOf(second), await statusOf(third)],
    [401, 401, 200],
  );
  t.is((await owner.post(`${path}/rotate`, { overlap: '2h' })).statusCode, 400);
});

test('keys › revoke with a look at the last use', async t => {
  const { token, path } = await made();
  t.is(await statusOf(token), 200);
  const answer = await owner.post(`${path}/revoke`);
  t.is(answer.headers.location, `${path}?said=revoked`);
  t.is(await statusOf(token), 401);
  const page = (await owner.get(path)).body;
  t.false(page.includes(`action="${path}`), 'nothing is left to be done');
  t.is((await owner.post(`${path}/rotate`, { overlap: '1h' })).statusCode, 404);
});

test('a result whose file is gone › is a page of its own in the account area', async t => {
  const id = await submitted();
  const { blob } = await app.succeedJob(id);
  await rm(path.join(app.storageDir, blob));
  const answer = await owner.get(`/account/jobs/${id}/result`);
  t.is(answer.statusCode, 500);
  t.regex(answer.body, /This result was lost/);
  t.regex((await owner.get(`/account/jobs/${id}`)).body, new RegExp(id));
});
