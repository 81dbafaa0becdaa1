/** deploy/compose without Grafana. Needs: object-storage. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava from 'ava';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { ROOT } from '../running-service.ts';
import { findProgram } from '../support/foreign-program.ts';
import { until } from '../support/processes.ts';
import { isNotTested } from '../support/skip.ts';
import { requireTeapot } from '../support/teapot.ts';
import { podman, skipWithoutPodman, tried } from './podman.ts';
import { makeStandIns, skipWithoutStandIns } from './stand-ins.ts';

const test = ava.serial.skipIf(isNotTested(skipReason()));

const PROJECT = `matting-test-${process.pid}`;
const START_MS_MAX = 280_000;
const PHOTO = readFileSync(path.join(ROOT, 'docs/images/demo.jpg'));
const CONTROL_PLANES = ['control-plane-1', 'control-plane-2'];
const SERVICES = [
  ...['database', 'storage', 'proxy', ...CONTROL_PLANES, 'schedule'],
  ...['models', 'node-1', 'node-2', 'prometheus', 'jaeger'],
];

function skipReason(): string | false {
  if (findProgram('podman-compose') === undefined) return 'no podman-compose here';
  return skipWithoutPodman() || skipWithoutStandIns();
}

const folder = mkdtempSync(path.join(tmpdir(), 'matting-compose-'));
const compose = path.join(folder, 'compose');
const env: NodeJS.ProcessEnv = { ...process.env, COMPOSE_PROJECT_NAME: PROJECT };
const nameOf = (service: string) => `${PROJECT}_${service}_1`;
const isReady = (service: string) =>
  tried(['exec', nameOf(service), 'matting-healthcheck', 'readyz']).code === 0;
const origin = (variable: string) => `http://127.0.0.1:${env[variable]}`;

function down(): void {
  const args = ['down', '--volumes', '--timeout', '20'];
  spawnSync('podman-compose', args, { cwd: compose, env });
}

async function json<Value>(url: string): Promise<Value> {
  const answer = await fetch(url);
  assert.equal(answer.status, 200, url);
  return (await answer.json()) as Value;
}

async function prometheus(query: string): Promise<number> {
  const url = `${origin('PROMETHEUS_PORT')}/api/v1/query?query=${encodeURIComponent(query)}`;
  type Answer = { data: { result: readonly { value: readonly [number, string] }[] } };
  return Number((await json<Answer>(url)).data.result[0]?.value[1] ?? 0);
}

let apiKey = '';

ava.serial.before(async t => {
  t.timeout(2 * START_MS_MAX);
  makeStandIns();
  for (const name of ['compose', 'grafana', 'prometheus', 'proxy']) {
    cpSync(path.join(ROOT, 'deploy', name), path.join(folder, name), { recursive: true });
  }
  rmSync(path.join(compose, '.env'), { force: true });
  const variables = ['PORT', 'TLS_PORT', 'OPERATOR_PORT', 'PROMETHEUS_PORT', 'JAEGER_PORT'];
  const ports = await findFreePorts(variables.length);
  for (const [at, variable] of variables.entries()) env[variable] = String(ports[at]);
  env.PATH = `${path.dirname(findProgram('podman-compose') ?? '')}:${env.PATH}`;
  const up = spawnSync('sh', [path.join(compose, 'up'), ...SERVICES], {
    env,
    encoding: 'utf8',
  });
  assert.equal(up.status, 0, up.stderr);
  await until(() => CONTROL_PLANES.every(isReady), {
    timeoutMs: START_MS_MAX,
    what: 'both control planes are ready',
    detail: () =>
      SERVICES.map(name => tried(['logs', '--tail', '5', nameOf(name)]).output).join('\n'),
  });
  const matting = (...args: string[]) =>
    podman(['exec', nameOf('control-plane-1'), 'matting', ...args]);
  matting('accounts', 'create', 'shop');
  matting('credits', 'grant', 'shop', '10');
  ({ api_key: apiKey } = JSON.parse(matting('keys', 'create', '--account', 'shop', '--json')));
});
ava.serial.after.always(() => {
  down();
  rmSync(folder, { recursive: true, force: true });
});

test('makes its secrets once, for its owner alone', t => {
  const file = path.join(compose, '.env');
  t.is(statSync(file).mode & 0o777, 0o600);
  t.regex(readFileSync(file, 'utf8'), /^SECRETS_KEY=[0-9a-f]{64}$/m);
});

test('has both nodes live', async t => {
  await t.notThrowsAsync(
    until(
      () => {
        const said = podman(['exec', nameOf('control-plane-2'), 'matting', 'nodes', 'list']);
        return /node-1\b.*\blive/.test(said) && /node-2\b.*\blive/.test(said);
      },
      { timeoutMs: START_MS_MAX, what: 'two nodes are live' },
    ),
  );
});

async function requireCutout(jobId: string, key: string): Promise<void> {
  const read = await fetch(`${origin('PORT')}/v1/matting/jobs/${jobId}`, {
    headers: { authorization: `Bearer ${apiKey}`, 'idempotency-key': key },
  });
  const { result } = (await read.json()) as { result: { url: string } };
  const link = new URL(result.url);
  const picture = await fetch(`${origin('PORT')}${link.pathname}${link.search}`);
  assert.equal(picture.status, 200);
  await requireTeapot(new Uint8Array(await picture.arrayBuffer()));
}

let jobId = '';

test('takes a photo at its one address and gives the cut-out there', async t => {
  const answer = await fetch(`${origin('PORT')}/v1/matting`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${apiKey}`,
      'idempotency-key': 'compose-1',
      'content-type': 'image/jpeg',
    },
    body: PHOTO,
  });
  const job = (await answer.json()) as { status: string; job_id: string };
  t.is(answer.status, 200, JSON.stringify(job));
  jobId = job.job_id;
  await t.notThrowsAsync(requireCutout(jobId, 'compose-2'));
});

test('checks its ledger and has made a backup that can be restored', async t => {
  const files = () => tried(['exec', nameOf('schedule'), 'ls', '-A', '/backups']).output;
  await until(() => /\.done-restore-check/.test(files()), {
    timeoutMs: START_MS_MAX,
    what: 'all commands by the clock have passed',
    detail: () => tried(['logs', nameOf('schedule')]).output,
  });
  t.deepEqual(files().match(/\.done-\S+/g), [
    ...['.done-backup', '.done-credits-check', '.done-restore-check'],
  ]);
  const [day = ''] = /^20\S+/m.exec(files()) ?? [];
  const said = podman(['exec', nameOf('schedule'), 'cat', `/backups/${day}/backup.json`]);
  t.is(JSON.parse(said).database.kind, 'mysql', said);
  t.is(tried(['healthcheck', 'run', nameOf('schedule')]).code, 0);
});

test('kept the picture in the bucket', async t => {
  const files = podman(['exec', nameOf('storage'), 'find', '/data/matting/compose', '-type', 'f']);
  t.regex(files, /\/results\//);
  await until(async () => (await prometheus('sum(matting_control_attempts_total)')) > 0, {
    timeoutMs: 60_000,
    what: 'Prometheus saw the attempt',
  });
});

test('is watched: all four programs, the rules, and the trace of the photo', async t => {
  t.is(await prometheus('sum(up)'), 4);
  type Rules = { data: { groups: readonly unknown[] } };
  const rules = await json<Rules>(`${origin('PROMETHEUS_PORT')}/api/v1/rules`);
  t.true(rules.data.groups.length >= 2);
  const services = ['matting-control-plane', 'matting-inference-node'];
  await until(
    async () => {
      const { data } = await json<{ data: readonly string[] | null }>(
        `${origin('JAEGER_PORT')}/api/services`,
      );
      return services.every(name => (data ?? []).includes(name));
    },
    { timeoutMs: 60_000, what: 'Jaeger has spans of both programs' },
  );
});

test('gives the cut-out while either control plane is gone', async t => {
  for (const name of CONTROL_PLANES) {
    podman(['kill', nameOf(name)]);
    await t.notThrowsAsync(requireCutout(jobId, `compose-without-${name}`));
    podman(['start', nameOf(name)]);
    await until(() => isReady(name), { timeoutMs: START_MS_MAX, what: `${name} is back` });
  }
});
