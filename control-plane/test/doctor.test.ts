/** Needs: portal, operations. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { SecretBox } from '@matting/core/secrets/secret-box.ts';
import { claimed, newJob, submitted } from '@matting/core/test/fixtures.ts';
import { until } from '@matting/core/test/harness.ts';
import type { Env } from '@matting/core/test/support/cli.ts';
import { TEST_TOKEN } from '@matting/nodes/test/scripted-node.ts';
import type { Finding } from '@matting/program/doctor/findings.ts';
import { onDatabases } from '@matting/test-support/database.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { Replicas, runCli as run } from './programs.ts';

const test = ava.serial;

interface Examined {
  readonly code: number;
  readonly summary: { readonly failures: number };
  readonly findings: readonly Finding[];
  of(subject: string): string[];
  statuses(subject: string): string[];
}

async function doctor(env: Env, ...args: string[]): Promise<Examined> {
  const { code, out } = await run(env, 'doctor', '--json', ...args);
  const { summary, findings } = JSON.parse(out) as Pick<Examined, 'summary' | 'findings'>;
  const about = (subject: string) => findings.filter(finding => finding.subject === subject);
  const of = (subject: string) => about(subject).map(({ status, found }) => `${status}: ${found}`);
  const statuses = (subject: string) => about(subject).map(({ status }) => status);
  return { code, summary, findings, of, statuses };
}

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
  unknownVariable: planted(),
};
const KEY = randomBytes(32).toString('hex');

onDatabases(
  test,
  'a service',
  (test, dialect) => {
    let replicas: Replicas;
    let dataDir: string;
    let env: Env;
    let secretive: Env;
    let apiKey: string;
    const place = (name: string) => path.join(dataDir, name);

    test.before(async () => {
      dataDir = await mkdtemp(path.join(tmpdir(), 'matting-doctor-'));
      const storageDir = place('storage');
      const own = { MATTING_SECRETS_KEY: KEY };
      replicas = await Replicas.open(dialect, { replicas: 1, storageDir, env: own });
      const { http, metrics, registry } = replicas.plane(0).ports;
      env = {
        ...own,
        MATTING_DATA_DIR: dataDir,
        MATTING_DATABASE_URL: replicas.databaseUrl,
        MATTING_STORAGE_URL: `file://${storageDir}`,
        MATTING_NODE_TOKEN: TEST_TOKEN,
        MATTING_PORT: String(http),
        MATTING_METRICS_PORT: String(metrics),
        MATTING_REGISTRY_PORT: String(registry),
      };
      secretive = {
        ...env,
        MATTING_OPERATOR_KEY: SECRETS.operatorKey,
        MATTING_PAYMENT_SECRET: SECRETS.paymentSecret,
        MATTING_SMTP_URL: `smtps://mailer:${SECRETS.mailPassword}@mail.example:465`,
        MATTING_MAIL_FROM: 'matting@shop.example',
        MATTING_MISSPELT: SECRETS.unknownVariable,
        HTTPS_PROXY: `http://me:${SECRETS.proxyPassword}@proxy.example:3128`,
        AWS_SECRET_ACCESS_KEY: SECRETS.bucketKey,
      };
      await plantJobs();
    });
    test.after.always(async () => {
      await replicas?.close();
      await rm(dataDir, { recursive: true });
    });

    async function plantJobs(): Promise<void> {
      const caller = await replicas.createCaller(10);
      apiKey = caller.token;
      const { queue } = replicas.stores;
      const failing = await submitted(replicas.stores, newJob(caller.accountId));
      const detail = `https://shop.example/${SECRETS.detailPath}?X-Amz-Signature=${SECRETS.signature} is gone`;
      const failure = { code: 'IMAGE_DOWNLOAD_FAILED', detail, retryable: true } as const;
      assert.ok(await queue.fail(await claimed(replicas.stores, failing), failure));
      const open = newJob(caller.accountId, {
        sourceUrl: `https://shop.example/${SECRETS.sourcePath}`,
        callback: {
          url: `https://hook.example/${SECRETS.callbackPath}`,
          secret: Buffer.from(SECRETS.callbackSecret),
          secretKeyId: new SecretBox(Buffer.from(KEY, 'hex')).keyId,
        },
      });
      await submitted(replicas.stores, open);
    }

    test('has a doctor that prints no secret of its environment, of jobs or of files', async t => {
      const { out, err } = await run(secretive, 'doctor', '--json');
      const all = [out, err].join('\n');
      const databasePassword = new URL(replicas.databaseUrl.replace(/^sqlite:/, 'file://'))
        .password;
      const secrets = { ...SECRETS, KEY, apiKey, TEST_TOKEN, databasePassword };
      for (const [name, secret] of Object.entries(secrets)) {
        if (secret === '') continue;
        t.false(all.includes(secret), name);
        t.false(all.includes(encodeURIComponent(secret)), name);
      }
      t.true(JSON.parse(out).findings.length > 7);
    });

    test('has a doctor that works where nothing else does, and prints no secret of a server', async t => {
      const broken = {
        ...secretive,
        MATTING_DATABASE_URL: `mysql://matting:${SECRETS.mailPassword}@127.0.0.1:1/matting`,
        MATTING_METRICS_PORT: '1',
      };
      const { code, out, err } = await run(broken, 'doctor', '--json');
      t.is(code, 1);
      t.regex(out, /ECONNREFUSED|refuses/);
      t.regex(out, /start the database/);
      t.false([out, err].join().includes(SECRETS.mailPassword));
    });

    test('has a doctor that fails without a node, and finds nothing that fails with one', async t => {
      const without = await doctor(env);
      t.is(without.code, 1);
      t.deepEqual(without.statuses('control plane'), ['failure']);
      t.deepEqual(without.statuses('nodes'), ['failure']);
      const node = await replicas.addNode();
      await until(async () => {
        const { all } = await replicas.stores.sightings.list();
        return all.some(({ nodeId, state }) => nodeId === node.nodeId && state === 'serving');
      }, 'what the control plane sees, in the table');
      const { code, summary, findings, statuses } = await doctor(env);
      t.deepEqual([code, summary.failures], [0, 0], JSON.stringify(findings));
      for (const subject of ['control plane', 'database', 'secrets key', 'storage', 'nodes']) {
        t.is(statuses(subject).at(-1), 'ok', subject);
      }
      t.is((await doctor({ ...env, MATTING_MISSPELT: 'x' }, '--strict')).code, 1);
      t.is((await run(env, 'nodes', 'drain', node.nodeId)).code, 0);
      const drained = await doctor(env);
      t.is(drained.code, 1);
      t.deepEqual(drained.of('nodes'), [`failure: none takes images: ${node.nodeId} (draining)`]);
      await run(env, 'nodes', 'undrain', node.nodeId);
    });

    test('has a doctor that fails with another key than the database was used with', async t => {
      const other = { ...env, MATTING_SECRETS_KEY: randomBytes(32).toString('hex') };
      const { code, statuses } = await doctor(other);
      t.is(code, 1);
      t.deepEqual(statuses('secrets key'), ['failure']);
      const changing = await doctor({ ...other, MATTING_SECRETS_KEY_PREVIOUS: KEY });
      t.deepEqual(changing.statuses('secrets key'), ['warning', 'ok']);
    });

    test('has a doctor that names what is wrong with the environment, and looks at the rest all the same', async t => {
      const wrong = { ...env, MATTING_PORT: 'eighty', MATTING_RESLUT_TTL_MS: '5' };
      const { code, of, statuses } = await doctor(wrong);
      t.is(code, 1);
      t.deepEqual(statuses('configuration'), ['failure', 'warning']);
      const [first, second] = of('configuration');
      t.regex(first ?? '', /MATTING_PORT/);
      t.regex(second ?? '', /MATTING_RESLUT_TTL_MS .*MATTING_RESULT_TTL_MS/);
      t.is(statuses('database').at(-1), 'ok');
    });

    test('has a doctor that works beside a newer schema, unless that left no way back', async t => {
      const { kysely } = replicas.database;
      for (const [name, status] of [
        ['9998-more', 'ok: .* is up to date'],
        ['9999-other-no-way-back', 'failure: .*no way back'],
      ] as const) {
        const row = sql`insert into kysely_migration values (${name}, '2030-01-01T00:00:00.000Z')`;
        await row.execute(kysely);
        const { of } = await doctor(env);
        await sql`delete from kysely_migration where name = ${name}`.execute(kysely);
        t.regex(of('database').at(-1) ?? '', new RegExp(`^${status}`), name);
      }
    });
  },
  { serverInCi: true },
);

test('the doctor before the first start › makes nothing, and says what is not there', async t => {
  const dataDir = path.join(tmpdir(), `matting-doctor-none-${randomBytes(4).toString('hex')}`);
  const { code, of } = await doctor({
    MATTING_DATA_DIR: dataDir,
    MATTING_NODE_TOKEN: randomBytes(24).toString('hex'),
    MATTING_PORT: '0',
    MATTING_BASE_URL: 'http://matting.example',
  });
  t.is(code, 1);
  t.regex(of('database').join(), /^failure: there is no database at .*matting\.sqlite/);
  t.regex(of('storage').join(), /^ok: .*MATTING_STORAGE_URL does not exist yet/);
  t.true(!existsSync(dataDir));
});

test('the doctor before the first start › makes nothing in a storage that is there and empty, or lacks a part', async t => {
  const dataDir = await temporaryFolder(t);
  const storage = async () =>
    (await doctor({ MATTING_DATA_DIR: dataDir })).of('storage').join('\n');
  const lacks = (parts: string) =>
    `ok: the directory of MATTING_STORAGE_URL lacks ${parts}; a control plane's start makes it`;
  t.is(await storage(), lacks('tmp, inputs, backgrounds, results'));
  t.deepEqual(await readdir(dataDir), []);
  for (const kind of ['tmp', 'inputs', 'results']) await mkdir(path.join(dataDir, kind));
  t.is(await storage(), lacks('backgrounds'));
  t.true(!existsSync(path.join(dataDir, 'backgrounds')));
});
