/**
 * `matting up` as a person meets it: what goes wrong before anything starts, the first start, the
 * second, and every way it ends.
 */
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import ava, { type ExecutionContext } from 'ava';
import sharp from 'sharp';
import { at } from '../support/at.ts';
import {
  descendantsOf,
  isolatedEnv,
  processesOf,
  ROOT,
  type RunningService,
  requireNothingLeft,
  spawnMatting,
  startService,
  until,
} from '../support/running-service.ts';

const test = ava.serial;

const run = promisify(execFile);
const services: RunningService[] = [];
test.after.always(async () => {
  for (const service of services) if (service.process.exitCode === null) await service.close();
});

const untilReady = (output: () => string, isEnded = () => false) =>
  until(() => output().includes('Ready:') || isEnded(), {
    timeoutMs: 240_000,
    what: 'it is ready',
    detail: output,
  });

async function failsToStart(t: ExecutionContext, env: Record<string, string>): Promise<string> {
  const { exited, output } = spawnMatting(['up'], env);
  const code = await exited;
  t.not(code, 0, output());
  t.notRegex(output(), /\n\s+at /, 'a stack trace');
  return output();
}

test('a port in use is one line that names the port and its variable', async t => {
  const { env, dataDir } = await isolatedEnv();
  const server = createServer().listen(Number(env.MATTING_PORT), '127.0.0.1');
  try {
    const output = await failsToStart(t, env);
    t.regex(output, new RegExp(`port ${env.MATTING_PORT} is in use.*MATTING_PORT`));
    await requireNothingLeft(dataDir);
  } finally {
    server.close();
  }
});

test('wrong variables are all named, with the form they should have and without their values', async t => {
  const wrong: Record<string, string>[] = [
    { MATTING_PORT: 'eighty-SECRET' },
    { MATTING_SYNC_WAIT_MS: 'soon-SECRET', MATTING_RESULT_TTL_MS: 'SECRET' },
    { MATTING_EXECUTION_PROVIDER: 'SECRET' },
    { MATTING_MODEL: 'SECRET' },
  ];
  for (const extra of wrong) {
    const { env, dataDir } = await isolatedEnv(extra);
    const output = await failsToStart(t, env);
    for (const name of Object.keys(extra)) t.regex(output, new RegExp(name), output);
    t.false(output.includes('SECRET'), output);
    await requireNothingLeft(dataDir);
  }
});

test('a port that the system would choose, and one for two, are named', async t => {
  const { env, dataDir } = await isolatedEnv({ MATTING_NODE_HTTP_PORT: '0' });
  const output = await failsToStart(t, { ...env, MATTING_NODE_PORT: String(env.MATTING_PORT) });
  t.regex(output, /MATTING_NODE_HTTP_PORT must be .*1 to 65535/);
  t.regex(output, /MATTING_NODE_PORT must be another port than MATTING_PORT/);
  await requireNothingLeft(dataDir);
});

test('a data directory that cannot be written is one line that names its variable', async t => {
  const { env, dataDir } = await isolatedEnv();
  const file = path.join(dataDir, 'a-file');
  writeFileSync(file, '');
  const output = await failsToStart(t, { ...env, MATTING_DATA_DIR: path.join(file, 'data') });
  t.regex(output, /cannot use the directory.*MATTING_DATA_DIR/);
  const models = await failsToStart(t, { ...env, MATTING_MODEL_DIR: path.join(file, 'models') });
  t.regex(models, /cannot use the directory.*MATTING_MODEL_DIR/);
  rmSync(path.join(dataDir, 'node-token'));
  mkdirSync(path.join(dataDir, 'node-token'));
  t.regex(await failsToStart(t, env), /node-token cannot be read/);
  rmSync(path.join(dataDir, 'node-token'), { recursive: true });
  writeFileSync(path.join(dataDir, 'node-token'), '');
  t.regex(await failsToStart(t, env), /node-token does not hold a token: remove it/);
  rmSync(path.join(dataDir, 'node-token'));
  rmSync(path.join(dataDir, 'logs'), { recursive: true, force: true });
  mkdirSync(path.join(dataDir, 'logs/control-plane.log'), { recursive: true });
  t.regex(await failsToStart(t, env), /matting: EISDIR.*control-plane\.log/);
  await requireNothingLeft(dataDir);
});

test('a first start that fails late has shown every key it made', async t => {
  // The node fails when it starts its engine; where it does not, this is a start that is stopped.
  const { env, dataDir } = await isolatedEnv({ MATTING_EXECUTION_PROVIDER: 'cuda' });
  const { child, exited, output } = spawnMatting(['up'], env);
  await untilReady(output, () => child.exitCode !== null);
  child.kill('SIGTERM');
  await exited;
  await requireNothingLeft(dataDir);
  const listing = await run(process.execPath, ['bin/matting.ts', 'keys', 'list', '--json'], {
    cwd: ROOT,
    env,
  });
  const made = (JSON.parse(listing.stdout) as { prefix: string }[]).map(({ prefix }) => prefix);
  const shown = output().match(/(?<=API key.*: {2})mk_[\w-]+/g) ?? [];
  t.is(shown.length, made.length, output());
  for (const [index, key] of shown.entries()) t.true(key.startsWith(at(made, index)), output());
  rmSync(dataDir, { recursive: true, force: true });
});

test('logs that cannot be written stop nothing', async t => {
  const { env, dataDir } = await isolatedEnv();
  mkdirSync(path.join(dataDir, 'logs'));
  // A disk without room, for the logs alone.
  for (const name of ['control-plane.log', 'inference-node.log']) {
    symlinkSync('/dev/full', path.join(dataDir, 'logs', name));
  }
  const { child, exited, output } = spawnMatting(['up'], env);
  await untilReady(output, () => child.exitCode !== null);
  child.kill('SIGTERM');
  t.is(await exited, 0, output());
  await requireNothingLeft(dataDir);
  rmSync(dataDir, { recursive: true, force: true });
});

for (const [what, command, args] of [
  [
    'a make that was killed',
    'sh',
    ['-c', '"$0" bin/matting.ts up --end-with-parent & wait', process.execPath],
  ],
  [
    'a terminal that is closed, whichever process leads its session,',
    'script',
    // The leader is told, and does not tell its children.
    ['-qec', `trap '' HUP; '${process.execPath}' bin/matting.ts up; :`, '/dev/null'],
  ],
] as const) {
  test(`${what} takes the service with it`, async t => {
    const { env, dataDir } = await isolatedEnv();
    const starter = spawn(command, args, { cwd: ROOT, env, stdio: 'pipe' });
    let output = '';
    starter.stdout.setEncoding('utf8').on('data', text => {
      output += text;
    });
    await untilReady(() => output);
    starter.kill('SIGKILL');
    await t.notThrowsAsync(requireNothingLeft(dataDir));
    rmSync(dataDir, { recursive: true, force: true });
  });
}

test('the first start, a pasted curl line, a second start, and the end of everything', async t => {
  const service = await startService();
  services.push(service);
  const curl = /^curl .*$/m.exec(service.output())?.[0];
  t.truthy(curl?.endsWith(' -o cutout.png'), service.output());
  const file = path.join(service.dataDir, 'cutout.png');
  const line = String(curl).replace('-o cutout.png', `-o ${file} -D -`);
  const { stdout } = await run('sh', ['-c', line], { cwd: ROOT });
  const { width, height, hasAlpha } = await sharp(file).metadata();
  t.deepEqual({ width, height, hasAlpha }, { width: 1200, height: 900, hasAlpha: true });
  const statusUrl = /^link: <([^>]+)>/im.exec(stdout)?.[1];
  assert.ok(statusUrl, stdout);
  t.is(statSync(path.join(service.dataDir, 'node-token')).mode & 0o777, 0o600);

  const before = descendantsOf(service.process.pid ?? 0);
  t.true(before.length >= 4, JSON.stringify(before));
  service.process.kill('SIGINT');
  // The same signal again at once, as make and a terminal send it, is one signal.
  service.process.kill('SIGINT');
  await until(() => service.process.exitCode !== null, { timeoutMs: 120_000, what: 'it ends' });
  t.is(service.process.exitCode, 0, service.output());
  await requireNothingLeft(service.dataDir);
  for (const { pid } of before) t.true(!existsSync(`/proc/${pid}`), `${pid} is left over`);

  const second = spawnMatting(['up'], { ...service.env });
  await untilReady(second.output);
  t.false(second.output().includes('API key, shown'), second.output());
  // The key of the first start still works, and the first job is still there.
  const again = await service.get(statusUrl);
  t.is(again.body.status, 'succeeded');
  second.child.kill('SIGTERM');
  t.is(await second.exited, 0);
  await requireNothingLeft(service.dataDir);
  rmSync(service.dataDir, { recursive: true, force: true });
});

test('a supervisor killed outright takes every process with it', async t => {
  const service = await startService();
  services.push(service);
  t.true(processesOf(service.dataDir).length >= 3);
  const before = descendantsOf(service.process.pid ?? 0);
  service.process.kill('SIGKILL');
  await requireNothingLeft(service.dataDir);
  await until(() => before.every(({ pid }) => !existsSync(`/proc/${pid}`)), {
    timeoutMs: 60_000,
    what: 'no child is left',
    detail: () => JSON.stringify(before.filter(({ pid }) => existsSync(`/proc/${pid}`))),
  });
  rmSync(service.dataDir, { recursive: true, force: true });
});

test('a command that is none, and the help of one that another program has', async t => {
  for (const args of [['bogus'], ['__proto__'], ['up', '--wrong'], ['up', 'extra']]) {
    const { exited, output } = spawnMatting(args, {});
    t.is(await exited, 64, output());
    t.regex(output(), /^matting: (unknown|too many)/);
  }
  const { exited, output } = spawnMatting(['help', 'keys'], {});
  t.is(await exited, 0);
  t.regex(output(), /create .*\n(.*\n)*.*revoke/);
});

test('a truncated or altered weights file is not loaded, and it is said', async t => {
  const modelDir = mkdtempSync(path.join(tmpdir(), 'matting-models-'));
  // It may be a link to a cache that several checkouts share.
  cpSync(realpathSync(path.join(ROOT, 'model-cache')), modelDir, {
    recursive: true,
    filter: source => !source.includes('isnet'),
  });
  try {
    const found = await run('find', [modelDir, '-name', '*.onnx', '-size', '+100k']);
    const files = found.stdout.trim().split('\n');
    t.true(files.length > 0, 'the model was fetched by the tests before');
    for (const file of files) truncateSync(file, statSync(file).size - 1000);
    const { env, dataDir } = await isolatedEnv({ MATTING_MODEL_DIR: modelDir });
    // Nothing to fetch it from: a damaged file must not be used instead.
    const output = await failsToStart(t, { ...env, npm_config_registry: 'http://127.0.0.1:9' });
    t.regex(output, /u2netp/);
    await requireNothingLeft(dataDir);
  } finally {
    rmSync(modelDir, { recursive: true, force: true });
  }
});
