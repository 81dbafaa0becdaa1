/**
 * Submissions whose key changes after it was asked for: while their body is on its way, or the name
 * of their receiver is looked up. What counts is what the key may when the job is made.
 */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { hold } from '../../support/area/held-form.ts';
import { imageBody, pngHeader, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const BY = { actor: { kind: 'operator' } } as const;
const CALLBACK = {
  callback_url: 'https://receiver.example.com/hook',
  callback_secret: `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
};

/** Runs while the name of a receiver is looked up. */
let onResolve: () => Promise<unknown> = async () => undefined;
const app = useTestApp(test, {
  resolveHost: async () => {
    await onResolve();
    return ['93.184.215.14'];
  },
});
let port: number;
test.before(async () => {
  port = await app.listen();
});

const key = () => app.stores.apiKeys.create(app.accountId, 'leaked');
const bodyOf = (more = {}) => JSON.stringify(imageBody(more));
const left = async () => [
  await app.countJobs(),
  await app.storedFiles(),
  app.services.uploads.open,
  await app.stores.ledger.balances(app.accountId),
];

/** The same picture is the same request there: another size for each. */
let width = 10;
const interfaces = {
  '/v1/matting/jobs': (token: string) => ({
    headers: {
      authorization: `Bearer ${token}`,
      'idempotency-key': randomUUID(),
      'content-type': 'application/json',
    },
    payload: bodyOf(),
  }),
  '/v1.0/removebg': (token: string) => {
    width += 1;
    const image_file_b64 = pngHeader(width, 3).toString('base64');
    return {
      headers: { 'x-api-key': token, 'content-type': 'application/json' },
      payload: JSON.stringify({ image_file_b64 }),
    };
  },
};

for (const [path, requestOf] of Object.entries(interfaces)) {
  test(`makes no job by a key that was revoked: ${path}`, async t => {
    const { key: made, token } = await key();
    const before = await left();
    const held = await hold(port, { path, ...requestOf(token) });
    await app.stores.apiKeys.revoke(made.id);
    const { status, body } = await held.release();
    t.true(status === 401 || status === 403, body);
    t.deepEqual(await left(), before);
  });

  test(`counts for a cap that the key was given: ${path}`, async t => {
    const { key: made, token } = await key();
    const before = await app.countJobs();
    const held = await hold(port, { path, ...requestOf(token) });
    const by = { accountId: app.accountId, ...BY };
    const cap = { credits: 1, period: 'total' } as const;
    await app.stores.apiKeys.change(made.id, by, { policy: { cap } });
    t.is((await app.post('/v1/matting/jobs', imageBody(), bearer(token))).statusCode, 202);
    const { status, body } = await held.release();
    t.is(status, 402, body);
    t.regex(body, /cap/i);
    t.is(await app.countJobs(), before + 1);
  });
}

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

test('makes no job by a key that was revoked while a name was looked up', async t => {
  const { key: made, token } = await key();
  const before = await left();
  onResolve = () => app.stores.apiKeys.revoke(made.id);
  const answer = await app.post('/v1/matting/jobs', imageBody(CALLBACK), bearer(token));
  onResolve = async () => undefined;
  t.is(answer.json().code, 'INVALID_API_KEY');
  t.deepEqual(await left(), before);
});
