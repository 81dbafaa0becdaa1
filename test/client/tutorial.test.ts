/** Runs docs/rest.md as printed, and its retry function against faults. Needs: curl. */
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import ava from 'ava';
import { verifyWebhook } from '../../client/src/webhooks.ts';
import { pngHeader } from '../../control-plane/core/test/support/test-app.ts';
import { openSource } from '../../control-plane/http/test/loopback-source.ts';
import { Replicas } from '../../control-plane/test/programs.ts';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { ROOT } from '../running-service.ts';
import { until } from '../support/processes.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const test = ava.serial;
const FOLDER = await temporaryFolder({ teardown: test.after.always });
const PAGE = readFileSync(path.join(ROOT, 'docs/rest.md'), 'utf8');
const CALLBACK_SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
const noPython = spawnSync('python3', ['--version']).error !== undefined;
const execute = promisify(execFile);
const names = (value: object) => Object.keys(value).sort();

/** @param named words that only the wanted block has */
function blockOf(language: string, named: string): string {
  const blocks = [...PAGE.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)];
  const found = blocks.filter(([, of, text]) => of === language && text?.includes(named));
  assert.equal(found.length, 1, named);
  // The first block sets the address.
  return String(found[0]?.[2]).replaceAll(/^(?:BASE|MATTING_API_KEY)=.*$/gm, '');
}

async function run(program: string, args: string[], env: Record<string, string>) {
  const options = { cwd: FOLDER, env: { PATH: process.env.PATH, ...env } };
  return (await execute(program, args, options)).stdout;
}

test('the tutorial › submits a photo, hears of it, downloads and deletes it', async t => {
  const [port] = await findFreePorts(1);
  const base = `http://127.0.0.1:${port}`;
  const replicas = await Replicas.open('sqlite', {
    replicas: 1,
    env: {
      MATTING_PORT: String(port),
      MATTING_BASE_URL: base,
      MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
      MATTING_ALLOW_HTTP_CALLBACKS: 'true',
    },
  });
  t.teardown(() => replicas.close());
  await replicas.addNode({ script: exchange => exchange.cutOut({}) });
  const heard: ReturnType<typeof verifyWebhook>[] = [];
  const receiver = await openSource(async (request, response) => {
    heard.push(verifyWebhook(await buffer(request), request.headers, CALLBACK_SECRET));
    response.writeHead(204).end();
  });
  t.teardown(() => receiver[Symbol.asyncDispose]());
  const { token } = await replicas.createCaller(10);
  const step = (named: string, env: Record<string, string> = {}) =>
    run('sh', ['-euc', blockOf('sh', named)], { BASE: base, MATTING_API_KEY: token, ...env });
  writeFileSync(path.join(FOLDER, 'photo.jpg'), pngHeader(20, 30));
  await step('cutout.png');
  const callback = { CALLBACK_URL: receiver.url, CALLBACK_SECRET };
  const job = JSON.parse(await step('callback_url', callback));
  t.deepEqual(names(job), names(JSON.parse(blockOf('json', '"queued"'))));
  await until(() => heard.length > 0, { timeoutMs: 20_000, what: 'a webhook' });
  const [event] = heard;
  assert.ok(event?.type === 'matting.job.succeeded' && event.job_id === job.job_id);
  const { data } = JSON.parse(blockOf('json', '"matting.job.succeeded"'));
  t.deepEqual(names(event.data.result), names(data.result));
  await step('RESULT_URL', { RESULT_URL: event.data.result.url });
  for (const name of ['cutout.png', 'cutout.webp']) t.true(existsSync(path.join(FOLDER, name)));
  t.is(JSON.parse(await step('DELETE', { JOB_ID: job.job_id })).status, 'expired');
  t.is((await fetch(event.data.result.url)).status, 410);
});

const problem = (retryable: boolean) => JSON.stringify({ code: 'X', retryable });
/** Without a status: breaks the connection. */
const FAULTS = [{}, { status: 503, after: '0' }, { status: 502, body: '<html>' }] as const;

test.skipIf(noPython)('the tutorial › its function retries until an answer counts', async t => {
  const asked: string[] = [];
  const answers: { status?: number; after?: string; body?: string }[] = [];
  const server = await openSource((request, response) => {
    asked.push(`${request.method} ${request.headers['idempotency-key']}`);
    const { status, after, body = '' } = answers.shift() ?? {};
    if (status === undefined) return void request.socket.destroy();
    response.writeHead(status, after === undefined ? {} : { 'retry-after': after }).end(body);
  });
  t.teardown(() => server[Symbol.asyncDispose]());
  const call = (lines: string) => {
    const program = `${blockOf('python', 'def call(')}\n${lines}\nprint(json.dumps(job))`;
    return run('python3', ['-c', program], { MATTING_API_KEY: 'mk_1' });
  };
  const submission = blockOf('python', 'job = call(').replace('base', JSON.stringify(server.url));
  answers.push(...FAULTS, { status: 422, body: problem(true), after: '0' });
  answers.push({ status: 202, body: '{"status":"queued"}' });
  t.deepEqual(JSON.parse(await call(submission)), { status: 'queued' });
  t.deepEqual(asked.splice(0), Array(5).fill('POST order-4711-photo-3'));
  answers.push({ status: 503, body: problem(false) });
  await t.throwsAsync(call(submission), { message: /RuntimeError: \{"code":"X"/ });
  const late = submission.replace('photo)', 'photo, give_up_s=0.1)');
  await t.throwsAsync(call(late), { message: /TimeoutError/ });
  t.is(asked.length, 2);
});
