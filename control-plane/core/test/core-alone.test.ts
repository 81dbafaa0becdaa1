import assert from 'node:assert/strict';
import ava from 'ava';
import { assertBalanced } from './fixtures.ts';
import { until } from './harness.ts';
import { Receiver } from './receiver.ts';
import { runCli } from './support/cli.ts';
import { pictureBody, Replicas } from './support/replicas.ts';

const test = ava.serial;

const SECRET = 'a secret of 24 characters';
const KEY = 'an-operator-key-that-only-a-test-knows';
const replicas = Replicas.use(test, 'sqlite', {
  replicas: 1,
  env: {
    MATTING_OPERATOR_KEY: KEY,
    MATTING_ALLOW_HTTP_CALLBACKS: 'true',
    MATTING_ALLOWED_NETWORKS: '127.0.0.1/32',
  },
});

async function command(...args: string[]) {
  const env = { MATTING_DATABASE_URL: replicas.databaseUrl };
  const { code, out, err } = await runCli(env, ...args, '--json');
  assert.equal(code, 0, err);
  return JSON.parse(out);
}

test('a photo › is cut out, charged, told of and shown, by what the core has alone', async t => {
  await replicas.addNode();
  await using receiver = await Receiver.open(SECRET);
  await command('accounts', 'create', 'shop');
  await command('credits', 'grant', 'shop', '5', '--reference', 'first');
  const { api_key: token } = await command('keys', 'create', '--account', 'shop');
  const caller = { accountId: '', apiKeyId: '', token };

  const callback = { callback_url: receiver.url(), callback_secret: SECRET };
  const answer = await replicas.post(caller, pictureBody(callback));
  t.is(answer.status, 200, JSON.stringify(answer.body));
  t.is(answer.headers.get('x-credits-charged'), '1');
  const { job_id: jobId, result } = answer.body;
  t.is((await replicas.download(0, result.url)).status, 200);
  const { credits } = (await replicas.get(caller, '/v1/account')).body;
  t.deepEqual(credits, { available: 4, reserved: 0 });
  await until(() => receiver.of(jobId).length === 1, 'the notification');
  t.true(receiver.of(jobId)[0]?.signatureHolds);

  const listed = await command('nodes', 'list');
  t.is(listed.length, 1);
  await command('credits', 'check');
  const { metrics } = replicas.plane(0).ports;
  const operated = await fetch(`http://127.0.0.1:${metrics}/operator/jobs/${jobId}`, {
    headers: { authorization: `Bearer ${KEY}` },
  });
  t.is(((await operated.json()) as { state: string }).state, 'succeeded');
  await assertBalanced(replicas.stores);
});
