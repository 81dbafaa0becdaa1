/** The program as it is started: a process, its ports, its signals and its last words. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import sharp from 'sharp';
import { SILENT_LOG } from '../../../test/support/database.ts';
import { Program } from '../../../test/support/program.ts';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import { CallbackSecrets, notificationBody } from '../../src/secrets/callback-secret.ts';
import { SecretBox } from '../../src/secrets/secret-box.ts';
import { openDatabase } from '../../src/store/database/connect.ts';
import { cutOutOf } from '../nodes/scripted-exchange.ts';
import { ScriptedNode, TEST_TOKEN } from '../nodes/scripted-node.ts';
import { until } from '../services/dispatch/harness.ts';
import { openCaller } from '../store/fixtures.ts';
import { submitTo } from '../support/replicas.ts';

const MAIN = path.resolve(import.meta.dirname, '../../src/main.ts');

let directory: string;
let picture: Buffer;
const programs: Program[] = [];
const nodes: ScriptedNode[] = [];

beforeEach(async context => {
  directory = await temporaryFolder(context);
  const create = { width: 3, height: 2, channels: 3 as const, background: '#d04010' };
  picture = await sharp({ create }).png().toBuffer();
});

afterEach(async () => {
  for (const program of programs.splice(0)) await program.kill();
  for (const node of nodes.splice(0)) await node.down();
});

interface Ports {
  readonly http: number;
  readonly registry: number;
  readonly metrics: number;
}

function startMain(env: Readonly<Record<string, string>>): Program {
  const program = new Program('control plane', [MAIN], env, { channel: true });
  programs.push(program);
  program.start();
  return program;
}

const logOf = (program: Program) => JSON.stringify(program.lines);
const portsOf = (program: Program) => program.line<Ports>('listening');

function environment(changes: Readonly<Record<string, string>> = {}) {
  return {
    MATTING_DATA_DIR: directory,
    MATTING_PORT: '0',
    MATTING_REGISTRY_PORT: '0',
    MATTING_METRICS_PORT: '0',
    MATTING_BASE_URL: 'http://links.example',
    MATTING_NODE_TOKEN: TEST_TOKEN,
    ...changes,
  };
}

const databaseUrl = () => `sqlite:${path.join(directory, 'matting.sqlite')}`;
const createKey = () => openCaller(databaseUrl(), 10);

async function outboxRow() {
  const database = await openDatabase(databaseUrl(), { log: SILENT_LOG });
  try {
    return await database.kysely.selectFrom('outbox').selectAll().executeTakeFirstOrThrow();
  } finally {
    await database.close();
  }
}

/** Registers as a node does, and waits until /readyz says so. */
async function join(program: Program): Promise<ScriptedNode> {
  const { registry, http } = await portsOf(program);
  const node = await ScriptedNode.start();
  nodes.push(node);
  await node.join(registry);
  await until(async () => (await fetch(`http://127.0.0.1:${http}/readyz`)).ok, 'readiness');
  return node;
}

function submit(
  http: number,
  apiKey: string,
  key: string,
  more: Readonly<Record<string, string>> = {},
): Promise<Response> {
  const body = { image_base64: picture.toString('base64'), ...more };
  return submitTo(`http://127.0.0.1:${http}`, apiKey, body, { path: '/v1/matting', key });
}

describe('a control plane', () => {
  it('takes a picture over REST to a registered node and back, and ends with 0', async () => {
    const apiKey = await createKey();
    const program = startMain(environment());
    const { http, metrics } = await portsOf(program);
    assert.equal((await fetch(`http://127.0.0.1:${http}/readyz`)).status, 503, 'no node yet');
    await join(program);
    const answer = await submit(http, apiKey, 'one');
    const job = (await answer.json()) as { job_id: string; result: { url: string } };
    assert.equal(answer.status, 200, JSON.stringify(job));
    const link = new URL(job.result.url);
    assert.equal(link.origin, 'http://links.example');
    const result = await fetch(`http://127.0.0.1:${http}${link.pathname}`);
    assert.deepEqual(Buffer.from(await result.arrayBuffer()), cutOutOf(picture));

    assert.equal((await fetch(`http://127.0.0.1:${http}/metrics`)).status, 404);
    assert.equal((await fetch(`http://127.0.0.1:${metrics}/v1/account`)).status, 404);
    const page = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text();
    assert.match(
      page,
      /^matting_control_jobs_total\{outcome="succeeded",mode="sync",code="",retryable=""\} 1$/m,
    );
    assert.match(page, /^matting_control_nodes\{state="routable"\} 1$/m);
    assert.match(page, /^matting_control_queue_jobs 0$/m);
    // What never happened is counted as well: an alert sees the first time.
    for (const fault of [
      'status="500",code="INTERNAL_ERROR"',
      'status="503",code="SERVICE_UNAVAILABLE"',
    ]) {
      const series = `matting_control_http_requests_total{route="/v1/matting",method="POST",${fault}}`;
      assert.ok(page.includes(`\n${series} 0\n`), series);
    }
    for (const secret of [job.job_id, link.pathname.split('/').at(-1)!, apiKey, TEST_TOKEN]) {
      assert.ok(!page.includes(secret));
    }
    const { jobId, outcome } = await program.line('job');
    assert.deepEqual([jobId, outcome], [job.job_id, 'succeeded']);

    program.signal('SIGTERM');
    // A terminal and npm send it twice.
    program.signal('SIGTERM');
    assert.equal(await program.exited, 0);
    assert.equal(program.complaint, '');
  });

  it('shows the operator its nodes and jobs on the metrics port alone', async () => {
    const apiKey = await createKey();
    const operatorKey = 'k'.repeat(32);
    const program = startMain(environment({ MATTING_OPERATOR_KEY: operatorKey }));
    const { http, metrics } = await portsOf(program);
    const node = await join(program);
    const { job_id } = (await (await submit(http, apiKey, 'one')).json()) as { job_id: string };
    const ask = (port: number, place: string, method = 'GET') =>
      fetch(`http://127.0.0.1:${port}/operator/${place}`, {
        method,
        headers: { authorization: `Bearer ${operatorKey}` },
      });
    assert.equal((await ask(http, 'nodes')).status, 404);
    const retried = await ask(metrics, `jobs/${job_id}/retry`, 'POST');
    assert.equal(((await retried.json()) as { code: string }).code, 'JOB_FINAL');
    assert.equal((await ask(metrics, `nodes/${node.nodeId}/drain`, 'POST')).status, 200);
    const page = async () => (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text();
    await until(async () => /^matting_control_nodes\{state="routable"\} 0$/m.test(await page()));
    program.signal('SIGTERM');
    assert.equal(await program.exited, 0);
    assert.ok(!logOf(program).includes(operatorKey));
  });

  it('keeps a notification with its job, its secret sealed with the configured key', async () => {
    const apiKey = await createKey();
    const program = startMain(
      environment({
        MATTING_SECRETS_KEY: 'ab'.repeat(32),
        MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
        MATTING_ALLOW_HTTP_CALLBACKS: 'true',
        MATTING_ALLOWED_NETWORKS: '10.7.0.0/16',
      }),
    );
    const { http } = await portsOf(program);
    await join(program);
    const callback_secret = 'only the caller knows this';
    const hook = { callback_url: 'http://127.0.0.1:9/hook', callback_secret };
    const answer = await submit(http, apiKey, 'one', hook);
    const told = await answer.text();
    assert.equal(answer.status, 200, told);
    const { callback, ...job } = JSON.parse(told);
    assert.deepEqual([callback.url, callback.status], [hook.callback_url, 'pending']);
    program.signal('SIGTERM');
    assert.equal(await program.exited, 0);
    const row = await outboxRow();
    const secrets = new CallbackSecrets(new SecretBox(Buffer.alloc(32, 0xab)));
    const { data } = JSON.parse(secrets.openText(row.body, notificationBody(job.job_id)) ?? '');
    assert.deepEqual(data, job);
    const stored = { secret: row.secret, secretKeyId: row.secret_key_id };
    assert.equal(secrets.open(job.job_id, stored)?.toString(), callback_secret);
    assert.ok(!(told + logOf(program)).includes(callback_secret));
    for (const door of ['ALLOW_PRIVATE_ADDRESSES', 'ALLOW_HTTP_CALLBACKS', 'ALLOWED_NETWORKS']) {
      assert.ok(logOf(program).includes(`MATTING_${door}`), door);
    }
    assert.ok(!logOf(program).includes('127.0.0.1:9'), 'the URL is the caller’s');
  });

  it('answers those who wait for a running attempt before it ends', async () => {
    const apiKey = await createKey();
    const program = startMain(environment());
    const { http } = await portsOf(program);
    const node = await join(program);
    const { promise: go, resolve } = Promise.withResolvers<void>();
    node.script = async exchange => {
      await go;
      await exchange.cutOut();
    };
    const answered = submit(http, apiKey, 'one');
    await until(() => node.headers.length === 1);
    program.signal('SIGTERM');
    await program.line('draining');
    resolve();
    assert.equal((await answered).status, 200);
    assert.equal(await program.exited, 0);
  });

  it('that is hurried hands waits over and gives jobs back to the next start', async () => {
    const apiKey = await createKey();
    const program = startMain(environment());
    const { http } = await portsOf(program);
    const node = await join(program);
    node.script = async exchange => {
      exchange.admit();
      await exchange.cancelled;
    };
    const answered = submit(http, apiKey, 'one');
    await until(() => node.headers.length === 1);
    // Its parent is gone: no process would wait for a slow end.
    program.disconnect();
    const answer = await answered;
    const handedOver = (await answer.json()) as { job_id: string; sync_timeout?: boolean };
    assert.deepEqual([answer.status, handedOver.sync_timeout], [202, true]);
    assert.equal(await program.exited, 0);

    node.script = exchange => exchange.cutOut();
    const next = startMain(environment());
    const again = await portsOf(next);
    await join(next);
    const replay = await submit(again.http, apiKey, 'one');
    const job = (await replay.json()) as { job_id: string; status: string };
    assert.deepEqual([job.job_id, job.status], [handedOver.job_id, 'succeeded']);
  });

  it('takes no more when no node is there for longer than the grace', async () => {
    const apiKey = await createKey();
    const program = startMain(environment({ MATTING_NO_NODE_GRACE_MS: '0' }));
    const { http } = await portsOf(program);
    const answer = await submit(http, apiKey, 'one');
    const problem = (await answer.json()) as { code: string };
    assert.deepEqual([answer.status, problem.code], [503, 'SERVICE_UNAVAILABLE']);
    assert.ok(Number(answer.headers.get('retry-after')) > 0);
    program.signal('SIGINT');
    assert.equal(await program.exited, 0);
  });
});

describe('a control plane that cannot start', () => {
  it('names every wrong variable and ends with 78', async () => {
    const env = environment({ MATTING_SYNC_WAIT_MS: 'soon', MATTING_NODE_TOKEN: 'short' });
    const program = startMain(env);
    assert.equal(await program.exited, 78);
    assert.match(program.complaint, /MATTING_SYNC_WAIT_MS must be /);
    assert.match(program.complaint, /MATTING_NODE_TOKEN must be /);
  });

  for (const variable of ['MATTING_PORT', 'MATTING_REGISTRY_PORT', 'MATTING_METRICS_PORT']) {
    it(`says in one line that the port of ${variable} is in use`, async () => {
      const squatter = createServer().listen(0, '127.0.0.1');
      await once(squatter, 'listening');
      const { port } = squatter.address() as { port: number };
      const program = startMain(environment({ [variable]: String(port) }));
      const code = await program.exited;
      squatter.close();
      assert.equal(code, 1);
      assert.match(
        program.complaint,
        new RegExp(`^control plane: port ${port} .* ${variable} .*\n$`),
      );
    });
  }

  it('says that its data directory cannot be used', async () => {
    // The superuser may write into any directory: a device stands for one that cannot be.
    const program = startMain(environment({ MATTING_DATA_DIR: '/dev/null/data' }));
    assert.equal(await program.exited, 1);
    assert.match(program.complaint, /^control plane: .*MATTING_STORAGE_URL.*\n$/);
  });

  it('says that the secrets key is another than the database knows', async () => {
    const first = startMain(environment({ MATTING_SECRETS_KEY: 'ab'.repeat(32) }));
    await portsOf(first);
    first.signal('SIGTERM');
    assert.equal(await first.exited, 0);
    const second = startMain(environment({ MATTING_SECRETS_KEY: 'cd'.repeat(32) }));
    assert.equal(await second.exited, 1);
    assert.match(second.complaint, /^control plane: MATTING_SECRETS_KEY .*\n$/);
  });
});
