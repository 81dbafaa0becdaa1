/** `matting support-bundle` of a service with secrets planted wherever one can be. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import ava from 'ava';
import { unzipSync } from 'fflate';
import { sql } from 'kysely';
import { onDatabases } from '../../../test/support/database.ts';
import { TEST_TOKEN } from '../nodes/scripted-node.ts';
import { claimed, newJob, submitted } from '../store/fixtures.ts';
import { type Env, runCli } from '../support/cli.ts';
import { Replicas } from '../support/replicas.ts';

const test = ava.serial;

/** None is like another, and none is a word. */
const planted = () => `planted-${randomBytes(18).toString('base64url')}`;
const SECRETS = {
  operatorKey: planted() + planted(),
  paymentSecret: planted(),
  mailPassword: planted(),
  proxyPassword: planted(),
  bucketKey: planted(),
  callbackSecret: planted(),
  callbackPath: planted(),
  sourcePath: planted(),
  detailPath: planted(),
  signature: planted(),
  loggedToken: planted(),
  unknownVariable: planted(),
  strayLine: planted(),
};
const KEY = randomBytes(32).toString('hex');

async function filesOf(archive: string): Promise<Map<string, string>> {
  const entries = Object.entries(unzipSync(await readFile(archive)));
  return new Map(
    entries.map(([name, bytes]) => [path.basename(name), Buffer.from(bytes).toString('utf8')]),
  );
}

onDatabases(test, 'a support bundle', (test, dialect) => {
  let directory: string;
  let replicas: Replicas;
  let env: Env;
  let apiKey: string;
  let failedId: string;
  const place = (name: string) => path.join(directory, name);

  test.before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'matting-bundle-'));
    replicas = await Replicas.open(dialect, {
      replicas: 1,
      env: { MATTING_SECRETS_KEY: KEY },
    });
    const { http, metrics } = replicas.plane(0).ports;
    env = {
      MATTING_DATA_DIR: directory,
      MATTING_DATABASE_URL: replicas.databaseUrl,
      MATTING_SECRETS_KEY: KEY,
      MATTING_NODE_TOKEN: TEST_TOKEN,
      MATTING_OPERATOR_KEY: SECRETS.operatorKey,
      MATTING_PAYMENT_SECRET: SECRETS.paymentSecret,
      MATTING_SMTP_URL: `smtps://mailer:${SECRETS.mailPassword}@mail.example:465`,
      MATTING_MAIL_FROM: 'matting@shop.example',
      MATTING_PORT: String(http),
      MATTING_METRICS_PORT: String(metrics),
      MATTING_MISSPELT: SECRETS.unknownVariable,
      HTTPS_PROXY: `http://me:${SECRETS.proxyPassword}@proxy.example:3128`,
      AWS_SECRET_ACCESS_KEY: SECRETS.bucketKey,
    };
    const caller = await replicas.createCaller(10);
    apiKey = caller.token;
    const { jobs } = replicas.stores;
    const failing = await submitted(replicas.stores, newJob(caller.accountId));
    failedId = failing.id;
    const detail = `https://shop.example/${SECRETS.detailPath}?X-Amz-Signature=${SECRETS.signature} is gone`;
    const failure = { code: 'IMAGE_DOWNLOAD_FAILED', detail, retryable: true } as const;
    assert.ok(await jobs.fail(await claimed(replicas.stores, failing), failure));
    const open = newJob(caller.accountId, {
      sourceUrl: `https://shop.example/${SECRETS.sourcePath}`,
      callback: {
        url: `https://hook.example/${SECRETS.callbackPath}`,
        secret: Buffer.from(SECRETS.callbackSecret),
        secretKeyId: 'abcdefabcdefabcd',
      },
    });
    await submitted(replicas.stores, open);
  });
  test.after.always(async () => {
    await replicas.close();
    await rm(directory, { recursive: true });
  });

  /** As a program and its shell might have written it. */
  const log = () =>
    [
      {
        level: 50,
        time: new Date().toISOString(),
        msg: `failed at https://x.example/${SECRETS.signature}`,
        jobId: failedId,
        authorization: `Bearer ${apiKey}`,
        err: {
          type: 'Error',
          message: `Bearer ${SECRETS.loggedToken} with ${KEY} for ${apiKey}`,
          stack: `Error: ${SECRETS.mailPassword}\n    at ${SECRETS.bucketKey}`,
        },
      },
      { level: 30, msg: 'answered', reqId: randomUUID(), status: 200, path: SECRETS.sourcePath },
    ]
      .map(line => JSON.stringify(line))
      .concat(`export TOKEN=${SECRETS.strayLine}`)
      .join('\n');

  test('has what a maintainer asks for, and none of the secrets', async t => {
    await writeFile(place('control-plane.log'), log());
    const archive = place('bundle.zip');
    const { code, out, err } = await runCli(
      env,
      ...['support-bundle', archive, '--log', place('control-plane.log'), place('none.log')],
    );
    t.is(code, 0, err);
    t.is((await stat(archive)).mode & 0o777, 0o600);
    const files = await filesOf(archive);
    const all = [...files.values(), out, err].join('\n');
    const databasePassword = new URL(replicas.databaseUrl.replace(/^sqlite:/, 'file://')).password;
    const secrets = { ...SECRETS, KEY, apiKey, TEST_TOKEN, databasePassword };
    for (const [name, secret] of Object.entries(secrets)) {
      if (secret === '') continue;
      t.false(all.includes(secret), name);
      t.false(all.includes(encodeURIComponent(secret)), name);
    }
    for (const host of ['shop.example', 'hook.example', 'mail.example', 'proxy.example']) {
      t.false(all.includes(host), host);
    }

    const read = (name: string) => JSON.parse(files.get(name) ?? 'null');
    t.is(read('configuration.json').variables.MATTING_OPERATOR_KEY, 'set');
    t.deepEqual(read('configuration.json').unknown, ['MATTING_MISSPELT']);
    t.true(read('doctor.json').findings.length > 10);
    t.regex(read('versions.json').runtime.node, /^24\./);
    t.regex(files.get('metrics-control-plane.txt') ?? '', /^matting_control_info/m);
    t.deepEqual(read('database.json').pending, []);
    t.true(Object.keys(read('database.json').counters).length >= 3);
    // The other may have failed by now, too: its source does not exist.
    const jobs = read('jobs-failed.json') as { job_id: string; error: object }[];
    const failed = jobs.find(({ job_id }) => job_id === failedId);
    t.deepEqual(failed?.error, {
      code: 'IMAGE_DOWNLOAD_FAILED',
      detail: '[URL] is gone',
      retryable: true,
    });
    t.true(Array.isArray(read('jobs-open.json')));
    t.is(typeof read('work.json').queued.jobs, 'number');
    const [head, first, second] = (files.get('log-1.jsonl') ?? '').split(/\n(?=\{"level)/);
    t.regex(head ?? '', /"leftOut": 1/);
    t.is(JSON.parse(first ?? '').jobId, failedId);
    t.is(JSON.parse(second ?? '').status, 200);
    t.regex(files.get('log-2.jsonl') ?? '', /^not to be had: .*ENOENT/);
  });

  test('replaces no file, and takes a bounded number of logs', async t => {
    const again = await runCli(env, 'support-bundle', place('bundle.zip'));
    t.deepEqual([again.code, /EEXIST/.test(again.err)], [1, true]);
    const logs = Array.from({ length: 11 }, () => place('control-plane.log'));
    const many = await runCli(env, 'support-bundle', place('many.zip'), '--log', ...logs);
    t.regex(many.err, /10 files at most/);
  });

  test('is made where nothing works: that is what it is for', async t => {
    const broken = {
      ...env,
      MATTING_DATABASE_URL: `mysql://matting:${SECRETS.mailPassword}@127.0.0.1:1/matting`,
      MATTING_METRICS_PORT: '1',
    };
    const { code, err } = await runCli(broken, 'support-bundle', place('broken.zip'));
    t.is(code, 0, err);
    const files = await filesOf(place('broken.zip'));
    t.regex(files.get('database.json') ?? '', /^not to be had: .*ECONNREFUSED/);
    t.regex(files.get('metrics-control-plane.txt') ?? '', /^not to be had/);
    t.false([...files.values()].join().includes(SECRETS.mailPassword));
    t.false(JSON.parse(files.get('doctor.json') ?? '').ok);
  });

  test('names no address of a node, and calls nothing late that the configuration keeps', async t => {
    const { nodes } = replicas.stores;
    const at = { address: 'gpu-7.shop.internal:1', httpAddress: 'gpu-7.shop.internal:2' };
    await nodes.register({ nodeId: 'seven', bootId: 'b', version: '1', ...at }, 60_000);
    await sql`update jobs set finished_at = finished_at - ${8 * 86_400_000}
      where id = ${failedId}`.execute(replicas.database.kysely);
    const { code, err } = await runCli(env, 'support-bundle', place('nodes.zip'));
    t.is(code, 0, err);
    const files = await filesOf(place('nodes.zip'));
    t.regex(files.get('doctor.json') ?? '', /"node seven"/);
    t.regex(files.get('nodes.json') ?? '', /"seven"/);
    for (const [name, text] of files) t.false(text.includes('gpu-7'), name);
    t.is(JSON.parse(files.get('work.json') ?? '').sweep_backlog.rowsMs, 0);
  });
});

test('a support bundle of a database that is not the service’s › is made all the same, and the file stays as it is', async t => {
  const directory = await mkdtemp(path.join(tmpdir(), 'matting-bundle-foreign-'));
  const place = (name: string) => path.join(directory, name);
  try {
    const database = new DatabaseSync(place('matting.sqlite'));
    database.exec('create table letters (id integer)');
    const { code, err } = await runCli(
      { MATTING_DATA_DIR: directory },
      ...['support-bundle', place('bundle.zip')],
    );
    t.is(code, 0, err);
    const files = await filesOf(place('bundle.zip'));
    for (const name of ['jobs-failed.json', 'work.json', 'nodes.json']) {
      t.regex(files.get(name) ?? '', /^not to be had: no such table/, name);
    }
    t.true(JSON.parse(files.get('database.json') ?? '').pending.length > 0);
    const tables = database.prepare('select name from sqlite_schema').all();
    t.deepEqual(
      tables.map(({ name }) => name),
      ['letters'],
    );
    database.close();
  } finally {
    await rm(directory, { recursive: true });
  }
});
