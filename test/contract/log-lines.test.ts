import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Ajv } from 'ajv';
import formats from 'ajv-formats';
import ava from 'ava';
import { runCommand } from '../../control-plane/core/run-command.ts';
import { until } from '../../control-plane/core/test/harness.ts';
import { pictureBody, submitTo } from '../../control-plane/core/test/support/replicas.ts';
import { TEST_TOKEN } from '../../control-plane/nodes/test/scripted-node.ts';
import { PACKAGES } from '../../control-plane/packages.ts';
import { ROOT } from '../running-service.ts';
import { FakeCollector } from '../support/fake-collector.ts';
import { loggedMessages } from '../support/log-calls.ts';
import { Program } from '../support/program.ts';

const test = ava.serial;

const SCHEMA = JSON.parse(readFileSync(path.join(ROOT, 'docs/log-line.schema.json'), 'utf8'));
const LEVELS: Readonly<Record<string, number>> = {
  debug: 20,
  info: 30,
  warn: 40,
  error: 50,
  fatal: 60,
};
const OPERATOR_KEY = 'an-operator-key-of-these-tests-of-lines';

test('every message that a program has is in the schema, at the levels it has', t => {
  const listed = new Map(
    Object.entries(SCHEMA['x-messages'] as Record<string, string[]>).map(([message, levels]) => [
      message,
      [...levels].sort(),
    ]),
  );
  const written = [...loggedMessages()].map(
    ([message, levels]) => [message, [...levels].sort()] as const,
  );
  t.deepEqual(new Map([...listed].sort()), new Map([...written].sort()));
  t.true(written.length > 80);
});

const directory = mkdtempSync(path.join(tmpdir(), 'matting-lines-'));
const traceId = randomBytes(16).toString('hex');
const programs: Program[] = [];
let collector: FakeCollector;

test.before(async () => {
  collector = await FakeCollector.open();
  const common = {
    MATTING_NODE_TOKEN: TEST_TOKEN,
    MATTING_LOG_LEVEL: 'debug',
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint,
  };
  const control = new Program('control plane', [path.join(ROOT, 'control-plane/main.ts')], {
    ...common,
    MATTING_DATA_DIR: directory,
    MATTING_PORT: '0',
    MATTING_REGISTRY_PORT: '0',
    MATTING_METRICS_PORT: '0',
    MATTING_BASE_URL: 'http://links.example',
    MATTING_OPERATOR_KEY: OPERATOR_KEY,
    MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
    MATTING_ALLOW_HTTP_CALLBACKS: 'true',
    MATTING_UNKNOWN: 'a variable that nothing reads',
  });
  programs.push(control);
  control.start();
  const ports = await control.line<Ports>('listening');
  const fakeModules = path.join(ROOT, 'inference-node/serving/test/fake-modules-hook.ts');
  const main = path.join(ROOT, 'inference-node/main.ts');
  const node = new Program('node', ['--import', fakeModules, main], {
    ...common,
    MATTING_NODE_ID: 'node-of-lines',
    MATTING_NODE_PORT: '0',
    MATTING_NODE_HTTP_PORT: '0',
    MATTING_MODEL_DIR: directory,
    MATTING_REGISTRY_ADDRESS: `127.0.0.1:${ports.registry}`,
  });
  programs.push(node);
  node.start();
  await live(ports);
  await node.stop();
  await control.stop();
});
test.after.always(async () => {
  for (const program of programs) await program.kill();
  collector?.close();
  rmSync(directory, { recursive: true, force: true });
});

interface Ports {
  readonly http: number;
  readonly metrics: number;
}

async function live({ http, metrics }: Ports): Promise<void> {
  const origin = `http://127.0.0.1:${http}`;
  const operator = `http://127.0.0.1:${metrics}/operator`;
  const asOperator = { authorization: `Bearer ${OPERATOR_KEY}` };
  await until(async () => (await fetch(`${origin}/readyz`)).ok, 'readiness');
  const setup = ['bootstrap', '--account', 'caller', '--credits', '10', '--json'];
  let stdout = '';
  const out = (text: string) => {
    stdout += text;
  };
  const env = { PATH: process.env.PATH, MATTING_DATA_DIR: directory };
  assert.equal(await runCommand(setup, { out, err: out }, env, PACKAGES), 0, stdout);
  const { api_key: apiKey } = JSON.parse(stdout);
  const traceparent = () => `00-${traceId}-${randomBytes(8).toString('hex')}-01`;
  const post = (body: unknown, token = apiKey) => {
    const headers = { traceparent: traceparent() };
    return submitTo(origin, token, body, { path: '/v1/matting', headers });
  };
  const hook = {
    callback_url: 'http://127.0.0.1:9/',
    callback_secret: 'a callback secret of the lines',
  };
  const answer = await post(pictureBody(hook));
  assert.equal(answer.status, 200, await answer.text());
  await post({});
  await post({}, 'none');
  await fetch(`${origin}/v1/nowhere`);
  await fetch(`${operator}/jobs`, { headers: asOperator });
  await fetch(`${operator}/jobs`);
  const broken = connect(http, '127.0.0.1', () => broken.write('this is no request\r\n\r\n'));
  await once(broken.resume(), 'close');
  await programs[0]?.line('notification');
}

test('lines of both programs › have the fields of the schema, of its types, and no other', t => {
  const ajv = new Ajv({ allErrors: true, strict: false });
  formats.default(ajv);
  const isLine = ajv.compile(SCHEMA);
  for (const { lines } of programs) {
    t.true(lines.length > 8);
    for (const line of lines) {
      t.truthy(isLine(line), `${JSON.stringify(line)}\n${JSON.stringify(isLine.errors)}`);
    }
  }
});

test('lines of both programs › have messages of the schema at their levels, or such as are put together', t => {
  const known = SCHEMA['x-messages'] as Record<string, string[]>;
  const seen = new Set<string>();
  for (const { level, msg } of programs.flatMap(({ lines }) => lines)) {
    const levels = known[msg];
    if (levels === undefined) continue;
    seen.add(msg);
    t.true(levels.map(name => LEVELS[name]).includes(level), `${msg} at ${level}`);
  }
  const common = ['answered', 'job', 'notification', 'image done', 'listening', 'drained'];
  const some = ['signal', 'registered', 'answered without a route', 'answered the operator'];
  for (const msg of [...common, ...some]) t.true(seen.has(msg), msg);
});

test('lines of both programs › name the trace that they were written under, in both programs, and no other line does', t => {
  const ofTrace = (program: number) =>
    new Set(programs[program]?.lines.filter(line => line.trace_id === traceId).map(l => l.msg));
  const control = ofTrace(0);
  for (const msg of ['answered', 'job', 'notification']) t.true(control.has(msg), msg);
  t.true(ofTrace(1).has('image done'));
  const done = programs[1]?.lines.find(({ msg }) => msg === 'image done');
  t.deepEqual(done?.models, [{ model: 'tiny', input_size: '4', role: 'subject' }]);
  const untraced = ['listening', 'draining', 'drained', 'signal', 'node state', 'state', 'serving'];
  for (const { msg, trace_id } of programs.flatMap(({ lines }) => lines)) {
    if (untraced.includes(msg)) t.is(trace_id, undefined, msg);
  }
});
