/** As a process. Needs: removebg, mcp, portal. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { CallbackSecrets, notificationBody, SecretBox } from '@matting/core/secrets/secret-box.ts';
import { silent, until } from '@matting/core/test/harness.ts';
import type { ControlPlane } from '@matting/core/test/internals.ts';
import {
  type DrainSteps,
  drainControlPlane,
  SecretsKeyError,
} from '@matting/core/test/internals.ts';
import { planeEnv } from '@matting/core/test/support/plane-env.ts';
import { pictureBody, submitTo } from '@matting/core/test/support/replicas.ts';
import { openDatabase } from '@matting/database/connect.ts';
import { cutOutAfter, cutOutOf } from '@matting/nodes/test/scripted-exchange.ts';
import { ScriptedNode, TEST_TOKEN } from '@matting/nodes/test/scripted-node.ts';
import { onDatabases, SILENT_LOG, useTestDatabase } from '@matting/test-support/database.ts';
import { Program } from '@matting/test-support/program.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import { openCaller } from '../fixtures.ts';
import { openTestPlane } from '../programs.ts';

const test = ava.serial;

const MAIN = path.resolve(import.meta.dirname, '../../main.ts');
const OPERATOR_KEY = 'k'.repeat(32);
const CALLBACK_SECRET = 'only the caller knows this';

let directory: string;
let apiKey: string;
let program: Program;
let node: ScriptedNode;
let ports: Ports;
const programs: Program[] = [];

interface Ports {
  readonly http: number;
  readonly registry: number;
  readonly metrics: number;
}

interface WireJob {
  readonly job_id: string;
  readonly result: { readonly url: string };
}

test.before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-main-'));
  apiKey = await openCaller(databaseUrl(), 10);
  program = startMain(
    environment({
      MATTING_OPERATOR_KEY: OPERATOR_KEY,
      MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
      MATTING_ALLOW_HTTP_CALLBACKS: 'true',
      MATTING_ALLOWED_NETWORKS: '10.7.0.0/16',
    }),
  );
  ports = await program.line<Ports>('listening');
  node = await ScriptedNode.start();
});
test.after.always(async () => {
  for (const one of programs) await one.kill();
  await node?.down();
  await rm(directory, { recursive: true });
});

function startMain(env: Readonly<Record<string, string>>): Program {
  const started = new Program('control plane', [MAIN], env, { channel: 'held' });
  programs.push(started);
  started.start();
  return started;
}

const databaseUrl = () => `sqlite:${path.join(directory, 'matting.sqlite')}`;

function environment(changes: Readonly<Record<string, string>> = {}) {
  return { ...planeEnv(directory, databaseUrl()), ...changes };
}

const urlOf = (port: number, place: string) => `http://127.0.0.1:${port}${place}`;
const metricsPage = async () => (await fetch(urlOf(ports.metrics, '/metrics'))).text();

async function join({ registry, http }: Ports): Promise<void> {
  await node.join(registry);
  await until(async () => (await fetch(urlOf(http, '/readyz'))).ok, 'readiness');
}

function submit(http: number, body: object, key?: string): Promise<Response> {
  const request = { path: '/v1/matting', ...(key !== undefined && { key }) };
  return submitTo(urlOf(http, ''), apiKey, body, request);
}

test('a control plane › takes a picture over REST to a registered node and back', async t => {
  t.is((await fetch(urlOf(ports.http, '/readyz'))).status, 503, 'no node yet');
  await join(ports);
  const body = pictureBody();
  const answer = await submit(ports.http, body);
  const job = (await answer.json()) as WireJob;
  t.is(answer.status, 200, JSON.stringify(job));
  const link = new URL(job.result.url);
  t.is(link.origin, 'http://links.example');
  const result = await fetch(urlOf(ports.http, link.pathname));
  const picture = Buffer.from(String(body.image_base64), 'base64');
  t.deepEqual(Buffer.from(await result.arrayBuffer()), cutOutOf(picture));

  const headers = { authorization: `Bearer ${OPERATOR_KEY}` };
  for (const [port, place, status] of [
    [ports.http, '/metrics', 404],
    [ports.http, '/operator/nodes', 404],
    [ports.metrics, '/operator/nodes', 200],
    [ports.metrics, '/v1/account', 404],
  ] as const) {
    t.is((await fetch(urlOf(port, place), { headers })).status, status, `${port} ${place}`);
  }
  const page = await metricsPage();
  const counted = 'outcome="succeeded",mode="sync",code="",retryable=""';
  const faults = ['"500",code="INTERNAL_ERROR"', '"503",code="SERVICE_UNAVAILABLE"'];
  for (const series of [
    `matting_control_jobs_total{${counted}} 1`,
    'matting_control_nodes{state="routable"} 1',
    'matting_control_queue_jobs 0',
    // Zero counters let an alert see the first fault.
    ...faults.map(
      fault =>
        `matting_control_http_requests_total{route="/v1/matting",method="POST",status=${fault}} 0`,
    ),
  ]) {
    t.true(page.includes(`\n${series}\n`), series);
  }
  for (const secret of [job.job_id, link.pathname.split('/').at(-1)!, apiKey, TEST_TOKEN]) {
    t.false(page.includes(secret));
  }
  const { jobId, outcome } = await program.line('job');
  t.deepEqual([jobId, outcome], [job.job_id, 'succeeded']);
});

test('a control plane › keeps a notification with its job, its secret sealed with the configured key', async t => {
  const hook = { callback_url: 'http://127.0.0.1:9/hook', callback_secret: CALLBACK_SECRET };
  const answer = await submit(ports.http, pictureBody(hook));
  const told = await answer.text();
  t.is(answer.status, 200, told);
  const { callback, ...job } = JSON.parse(told);
  t.deepEqual([callback.url, callback.status], [hook.callback_url, 'pending']);
  const database = await openDatabase(databaseUrl(), { log: SILENT_LOG });
  t.teardown(() => database.close());
  const row = await database.kysely.selectFrom('outbox').selectAll().executeTakeFirstOrThrow();
  const secrets = new CallbackSecrets(new SecretBox(Buffer.alloc(32, 0xab)));
  const { data } = JSON.parse(secrets.openText(row.body, notificationBody(job.job_id)) ?? '');
  t.deepEqual(data, job);
  const stored = { secret: row.secret, secretKeyId: row.secret_key_id };
  t.is(secrets.open(job.job_id, stored)?.toString(), CALLBACK_SECRET);
  t.false(told.includes(CALLBACK_SECRET));
});

test('a control plane › answers those who wait for a running attempt before it ends, with 0', async t => {
  const gate = Promise.withResolvers<void>();
  node.script = cutOutAfter(gate.promise);
  const before = node.headers.length;
  const answered = submit(ports.http, pictureBody());
  await until(() => node.headers.length > before);
  program.signal('SIGINT');
  // A terminal and npm send it twice.
  program.signal('SIGTERM');
  await program.line('draining');
  gate.resolve();
  t.is((await answered).status, 200);
  t.is(await program.exited, 0);
  t.is(program.complaint, '');
  const log = JSON.stringify(program.lines);
  for (const secret of [OPERATOR_KEY, CALLBACK_SECRET, '127.0.0.1:9']) {
    t.false(log.includes(secret), secret);
  }
  for (const door of ['ALLOW_PRIVATE_ADDRESSES', 'ALLOW_HTTP_CALLBACKS', 'ALLOWED_NETWORKS']) {
    t.true(log.includes(`MATTING_${door}`), door);
  }
});

test('a control plane › that is hurried hands waits over and gives jobs back to the next start', async t => {
  const hurried = startMain(environment());
  const { http, registry, metrics } = await hurried.line<Ports>('listening');
  await join({ http, registry, metrics });
  node.script = async exchange => {
    exchange.admit();
    await exchange.cancelled;
  };
  const before = node.headers.length;
  const [body, key] = [pictureBody(), 'one'];
  const answered = submit(http, body, key);
  await until(() => node.headers.length > before);
  // Without its parent it waits for nothing slow.
  hurried.disconnect();
  const answer = await answered;
  const handedOver = (await answer.json()) as { job_id: string; sync_timeout?: boolean };
  t.deepEqual([answer.status, handedOver.sync_timeout], [202, true]);
  t.is(await hurried.exited, 0);

  node.script = exchange => exchange.cutOut();
  const next = await open(t, environment());
  await join(next.ports);
  const replay = await submit(next.ports.http, body, key);
  const job = (await replay.json()) as { job_id: string; status: string };
  t.deepEqual([job.job_id, job.status], [handedOver.job_id, 'succeeded']);
});

test('a control plane that cannot start › names every wrong variable and ends with 78', async t => {
  const env = environment({ MATTING_SYNC_WAIT_MS: 'soon', MATTING_NODE_TOKEN: 'short' });
  const refused = startMain(env);
  t.is(await refused.exited, 78);
  t.regex(refused.complaint, /MATTING_SYNC_WAIT_MS must be /);
  t.regex(refused.complaint, /MATTING_NODE_TOKEN must be /);
});

test('a control plane that cannot start › says in one line which port is in use, and ends with 1', async t => {
  const squatter = createServer().listen(0, '127.0.0.1');
  t.teardown(() => squatter.close());
  await once(squatter, 'listening');
  const { port } = squatter.address() as { port: number };
  const taken = (variable: string) => environment({ [variable]: String(port) });
  const refused = startMain(taken('MATTING_PORT'));
  t.is(await refused.exited, 1);
  t.regex(refused.complaint, new RegExp(`^control plane: port ${port} .* MATTING_PORT .*\n$`));
  for (const variable of ['MATTING_REGISTRY_PORT', 'MATTING_METRICS_PORT']) {
    const message = new RegExp(`^port ${port} .* ${variable} `);
    await t.throwsAsync(open(t, taken(variable)), { message }, variable);
  }
});

test('a control plane that cannot start › says that a directory cannot be used, and ends with 78', async t => {
  // Root may write everywhere, so a device stands for a refused directory.
  const env = { ...environment(), MATTING_DATA_DIR: '/dev/null/data' };
  const refused = startMain(env);
  t.is(await refused.exited, 78);
  t.regex(refused.complaint, /^control plane: MATTING_STORAGE_URL: .* \(ENOTDIR\)\n$/);
});

/** Prints the loaded modules at its end. */
const TELL_LOADED = `
  import { registerHooks } from 'node:module';
  const loaded = [];
  registerHooks({ load(url, context, next) { loaded.push(url); return next(url, context); } });
  process.on('exit', () => console.error(JSON.stringify(loaded)));`;

test('a package that settings switch off is not loaded', async t => {
  const hook = `--import=data:text/javascript,${encodeURIComponent(TELL_LOADED)}`;
  const switches = ['MATTING_ACCOUNT_AREA', 'MATTING_MCP', 'MATTING_REMOVEBG_API'];
  const off = Object.fromEntries(switches.map(name => [name, 'false']));
  const told = new Program('control plane', [hook, MAIN], environment(off));
  programs.push(told);
  told.start();
  await told.line('listening');
  t.is(await told.stop(), 0);
  const loaded: string[] = JSON.parse(told.complaint);
  const ofPackage = (name: string) =>
    loaded.flatMap(url => url.split(`/control-plane/${name}/`)[1] ?? []).sort();
  t.true(ofPackage('storage').includes('blob-store.ts'));
  t.deepEqual(ofPackage('object-storage'), [
    'bucket/bucket-error.ts',
    'bucket/bucket-url.ts',
    'object-storage.ts',
  ]);
  t.false(ofPackage('removebg').some(name => /routes|interface|body/.test(name)));
  t.deepEqual(ofPackage('mcp'), [
    'mcp.ts',
    'migrations.ts',
    'migrations/0001-uploads.ts',
    'migrations/0002-known-uploads.ts',
    'upload-store.ts',
  ]);
  t.deepEqual(ofPackage('operations'), ['operations.ts']);
  t.deepEqual(
    ofPackage('portal').filter(name =>
      /^account-area|^(?!documents).*-pages\.ts$|^(session|operator-pages)\//.test(name),
    ),
    // The sweeper, commands, settings and documents need these, but not the pages' guard.
    ['attempt-windows', 'ended-operator-sessions', 'roles', 'secret', 'session-store', 'visit'].map(
      name => `session/${name}.ts`,
    ),
  );
  t.deepEqual(
    loaded.filter(url => /@aws-sdk|commander|modelcontextprotocol/.test(url)),
    [],
  );
});

async function open(
  t: ExecutionContext,
  env: Readonly<Record<string, string | undefined>>,
): Promise<ControlPlane> {
  const plane = await openTestPlane(env, 'in-process');
  t.teardown(() => plane.drain(AbortSignal.abort()));
  return plane;
}

onDatabases(test, 'the secrets key of replicas', (test, dialect) => {
  const databases = useTestDatabase(test, dialect, { migrated: false });
  const [OLD, NEXT, OTHER] = ['ab', 'cd', 'ef'].map(byte => byte.repeat(32)) as [
    string,
    string,
    string,
  ];

  test('is that of the first, or one that is shown beside it, and not the old one after', async t => {
    const folder = await temporaryFolder(t);
    const start = (secretsKey: string, previous?: string) =>
      open(t, {
        ...planeEnv(folder, databases.url()),
        MATTING_SECRETS_KEY: secretsKey,
        MATTING_SECRETS_KEY_PREVIOUS: previous,
      });
    const isAboutTheKey = (error: unknown) => {
      assert.ok(error instanceof SecretsKeyError, String(error));
      assert.match(error.message, /^MATTING_SECRETS_KEY is not the key/);
      for (const key of [OLD, NEXT]) assert.ok(!error.message.includes(key));
      return true;
    };
    const first = await start(OLD);
    await rejectsWith(t, start(NEXT), isAboutTheKey);
    await start(OLD);
    await first.drain(AbortSignal.abort());
    await rejectsWith(t, start(NEXT, OTHER), isAboutTheKey);
    await start(NEXT, OLD);
    await start(NEXT, OLD);
    await start(NEXT);
    await rejectsWith(t, start(OLD), isAboutTheKey);
  });
});

function steps(changes: Partial<DrainSteps> = {}) {
  const done: string[] = [];
  const note = (what: string) => async () => {
    done.push(what);
  };
  const all: DrainSteps = {
    announce: () => done.push('announce'),
    finishRuns: note('finish'),
    giveRunsBack: () => done.push('give back'),
    handOverWaits: () => done.push('hand over'),
    closePublic: note('public'),
    closePublicConnections: () => done.push('cut'),
    finishDeliveries: note('deliveries'),
    giveDeliveriesBack: () => done.push('give deliveries back'),
    closeRegistry: note('registry'),
    closeRest: [note('fleet'), note('database')],
    ...changes,
  };
  return { all, done };
}

const never = new AbortController().signal;

test('the end › goes in order, the database last', async t => {
  const { all, done } = steps();
  await drainControlPlane(all, { hurry: never, log: silent });
  t.deepEqual(done, [
    'announce',
    'finish',
    'hand over',
    'public',
    'deliveries',
    'registry',
    'fleet',
    'database',
  ]);
});

test('the end › tries every step, whatever became of the ones before', async t => {
  const broken = () => Promise.reject(new Error('broken'));
  const { all, done } = steps({
    finishRuns: broken,
    closePublic: broken,
    finishDeliveries: broken,
    closeRegistry: broken,
  });
  await drainControlPlane(all, { hurry: never, log: silent });
  t.deepEqual(done, ['announce', 'hand over', 'fleet', 'database']);
});

test('the end › gives the runs back and cuts the connections when it is hurried', async t => {
  const hurry = new AbortController();
  const { promise: given, resolve: giveBack } = Promise.withResolvers<void>();
  const { promise: cut, resolve: closeConnections } = Promise.withResolvers<void>();
  const { all, done } = steps({
    finishRuns: () => given,
    giveRunsBack: giveBack,
    closePublic: () => cut,
    closePublicConnections: closeConnections,
  });
  const drained = drainControlPlane(all, { hurry: hurry.signal, log: silent });
  hurry.abort();
  await drained;
  t.is(done.at(-1), 'database');
});

test('the end › waits for no step for ever', async t => {
  const hangs = () => new Promise<void>(() => undefined);
  const hanging = {
    finishRuns: hangs,
    finishDeliveries: hangs,
    closeRest: [hangs, async () => undefined],
  };
  const bounds = { finishMaxMs: 20, giveBackMaxMs: 20, deliverMaxMs: 20, restMaxMs: 20 };
  const { all, done } = steps(hanging);
  await drainControlPlane(all, { hurry: never, log: silent, ...bounds });
  t.deepEqual(done, ['announce', 'hand over', 'public', 'registry']);
  const hurried = steps(hanging);
  const patient = { ...bounds, finishMaxMs: 3_600_000, deliverMaxMs: 3_600_000 };
  await drainControlPlane(hurried.all, { hurry: AbortSignal.abort(), log: silent, ...patient });
  t.deepEqual(hurried.done, [
    'announce',
    'give back',
    'hand over',
    'public',
    'give deliveries back',
    'registry',
  ]);
});
