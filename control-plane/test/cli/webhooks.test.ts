/** `webhooks list`, `retry` and `listen`: what they print, what they change, when they refuse. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import ava from 'ava';
import { signingKeyOf } from '../../src/secrets/callback-secret.ts';
import { signMessage } from '../../src/services/notification/signature.ts';
import {
  fundedAccount,
  IMAGE_FAULT,
  newJob,
  running,
  submitted,
  useStores,
} from '../store/fixtures.ts';
import { runCli } from '../support/cli.ts';

const test = ava.serial;

const PROGRAM = path.resolve(import.meta.dirname, '../../src/cli/main.ts');
const CALLBACK = {
  url: 'https://hooks.example.com/a-token-in-the-path',
  secret: Uint8Array.of(1),
  secretKeyId: 'k',
};
const END = { statusCode: 503, durationMs: 1 };

const { databases, stores } = useStores(test);
let accountId: string;

test.before(async () => {
  accountId = await fundedAccount(stores, 100);
});

const run = (...args: string[]) =>
  runCli({ MATTING_DATABASE_URL: databases.url() }, 'webhooks', ...args);

async function ended(): Promise<string> {
  const { job, claim } = await running(stores, newJob(accountId, { callback: CALLBACK }));
  assert.ok(await stores.jobs.fail(claim, IMAGE_FAULT));
  return job.id;
}

async function claimed(jobId: string, fence = 1) {
  const claim = { id: jobId, holder: 'r', fence };
  assert.ok(await stores.outbox.claim(claim, 1000));
  return claim;
}

test('list shows how far each came, and of its URL the receiver alone', async t => {
  const jobId = await ended();
  await stores.outbox.retryLater(await claimed(jobId), END, 3_600_000);
  const { code, out } = await run('list');
  t.is(code, 0);
  t.regex(out, new RegExp(`^${jobId}  job +pending  1 +503 .*hooks\\.example\\.com:443$`, 'm'));
  t.false(out.includes('a-token'));
  const json = await run('list', jobId.toUpperCase(), '--json');
  const [row, ...more] = JSON.parse(json.out);
  t.deepEqual(more, []);
  t.deepEqual(
    [row.job_id, row.status, row.attempts, row.last_status_code, row.account_id],
    [jobId, 'pending', 1, 503, accountId],
  );
  t.false(json.out.includes('a-token'));
  t.deepEqual(JSON.parse((await run('list', '--status', 'delivered', '--json')).out), []);
  t.deepEqual(JSON.parse((await run('list', randomUUID(), '--json')).out), []);
});

test('retry makes the next attempt due, of a failed one too', async t => {
  const jobId = await ended();
  await stores.outbox.failed(await claimed(jobId), END, { eraseSecret: false });
  const { code, out } = await run('retry', jobId, '--json');
  t.deepEqual([code, JSON.parse(out)], [0, { job_id: jobId, outcome: 'retried' }]);
  const [row] = await stores.outbox.list({ jobId, limit: 1 });
  t.is(row?.status, 'pending');
  await claimed(jobId, 2);
});

test('retry says why not', async t => {
  const gone = await ended();
  await stores.outbox.failed(await claimed(gone), END, { eraseSecret: true });
  const delivered = await ended();
  await stores.outbox.delivered(await claimed(delivered), END);
  const plain = (await submitted(stores, newJob(accountId))).id;
  const open = (await submitted(stores, newJob(accountId, { callback: CALLBACK }))).id;
  for (const [job, why] of [
    [gone, /secret and its body are erased/],
    [delivered, /was delivered/],
    [plain, /asked for no notification/],
    [open, /has not ended/],
    [randomUUID(), /no such job/],
    ['nonsense', /no such job/],
  ] as const) {
    const { code, out, err } = await run('retry', job);
    t.deepEqual([code, out], [1, '']);
    t.regex(err, why);
  }
});

test('refuse arguments that are none', async t => {
  for (const args of [
    ['list', '--status', 'lost'],
    ['list', '--limit', '0'],
    ['list', '--limit', '1001'],
    ['retry'],
    ['listen', '--port', '70000'],
    ['listen', '--status', '99'],
  ]) {
    t.is((await run(...args)).code, 64, args.join(' '));
  }
  t.is((await run('listen', '--secret', 'short')).code, 1);
});

test('listen says of each delivery whether its signature holds', async t => {
  const secret = `whsec_${Buffer.alloc(32, 5).toString('base64')}`;
  const args = [PROGRAM, 'webhooks', 'listen', '--port', '0', '--secret', secret, '--json'];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
    const next = async () => JSON.parse(String((await lines.next()).value));
    const { callback_url, callback_secret } = await next();
    t.is(callback_secret, secret);
    const body = JSON.stringify({ type: 'matting.job.failed', job_id: 'j-1' });
    const timestampS = Math.floor(Date.now() / 1000);
    const message = { id: 'msg_j-1', timestampS, body: Buffer.from(body) };
    const send = async (sent: string) => {
      const headers = { ...signMessage(signingKeyOf(secret), message) };
      return (await fetch(callback_url, { method: 'POST', headers, body: sent })).status;
    };
    const told = async () => {
      const { job_id, type, signature_holds, repeat, answered } = await next();
      return [job_id, type, signature_holds, repeat, answered];
    };
    t.is(await send(body), 204);
    t.deepEqual(await told(), ['j-1', 'matting.job.failed', true, false, 204]);
    t.is(await send(body), 204);
    t.deepEqual(await told(), ['j-1', 'matting.job.failed', true, true, 204]);
    t.is(await send(`${body} `), 401);
    t.deepEqual(await told(), ['j-1', 'matting.job.failed', false, false, 401]);
    t.is(await send('no JSON'), 401);
    t.deepEqual(await told(), [null, null, false, false, 401]);
    const exited = once(child, 'exit');
    child.kill('SIGINT');
    t.deepEqual(await exited, [0, null]);
  } finally {
    child.kill('SIGKILL');
  }
});
