/** `matting doctor` and `matting support-bundle`. Needs: portal, operations. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { promisify } from 'node:util';
import { SecretBox } from '@matting/core/secrets/secret-box.ts';
import { claimed, newJob, submitted } from '@matting/core/test/fixtures.ts';
import { until } from '@matting/core/test/harness.ts';
import { TEST_TOKEN } from '@matting/core/test/scripted-node.ts';
import type { Env } from '@matting/core/test/support/cli.ts';
import {
  LOG_BYTES_MAX,
  readLog,
  scrubbed,
  scrubbedOfPlaces,
  shownConfiguration,
} from '@matting/operations/bundle/support-bundle.ts';
import type { Finding, Summary } from '@matting/program/doctor/findings.ts';
import { MATTING_VARIABLES } from '@matting/program/env-names.ts';
import {
  createTestDatabase,
  groupIf,
  onDatabases,
  skipReason,
  type TestDatabase,
} from '@matting/test-support/database.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';
import { unzipSync } from 'fflate';
import { sql } from 'kysely';
import { series } from './fixtures.ts';
import { Replicas, runCli as run } from './programs.ts';

const test = ava.serial;

interface Examined {
  readonly code: number;
  readonly summary: Summary;
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

onDatabases(
  test,
  'a service',
  (test, dialect) => {
    let replicas: Replicas;
    let dataDir: string;
    /** Of the doctor; of a bundle, with all that is planted. */
    let env: Env;
    let bundled: Env;
    let apiKey: string;
    let failedId: string;
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
      bundled = {
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
          secretKeyId: new SecretBox(Buffer.from(KEY, 'hex')).keyId,
        },
      });
      await submitted(replicas.stores, open);
    }

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

    test('has a bundle of what a maintainer asks for, and none of the secrets', async t => {
      await writeFile(place('control-plane.log'), log());
      const archive = place('bundle.zip');
      const { code, out, err } = await run(
        bundled,
        ...['support-bundle', archive, '--log', place('control-plane.log'), place('none.log')],
      );
      t.is(code, 0, err);
      t.is((await stat(archive)).mode & 0o777, 0o600);
      const files = await filesOf(archive);
      const all = [...files.values(), out, err].join('\n');
      const databasePassword = new URL(replicas.databaseUrl.replace(/^sqlite:/, 'file://'))
        .password;
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

    test('replaces no file by its bundle, and takes a bounded number of logs', async t => {
      const again = await run(bundled, 'support-bundle', place('bundle.zip'));
      t.deepEqual([again.code, /EEXIST/.test(again.err)], [1, true]);
      const logs = Array.from({ length: 11 }, () => place('control-plane.log'));
      const many = await run(bundled, 'support-bundle', place('many.zip'), '--log', ...logs);
      t.regex(many.err, /at most 10 files/);
    });

    test('has a bundle where nothing works: that is what it is for', async t => {
      const broken = {
        ...bundled,
        MATTING_DATABASE_URL: `mysql://matting:${SECRETS.mailPassword}@127.0.0.1:1/matting`,
        MATTING_METRICS_PORT: '1',
      };
      const { code, err } = await run(broken, 'support-bundle', place('broken.zip'));
      t.is(code, 0, err);
      const files = await filesOf(place('broken.zip'));
      t.regex(files.get('database.json') ?? '', /^not to be had: .*ECONNREFUSED/);
      t.regex(files.get('metrics-control-plane.txt') ?? '', /^not to be had/);
      t.false([...files.values()].join().includes(SECRETS.mailPassword));
      t.false(JSON.parse(files.get('doctor.json') ?? '').ok);
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
      for (const subject of ['control plane', 'migrations', 'storage']) {
        t.deepEqual([...new Set(statuses(subject))], ['ok'], subject);
      }
      for (const subject of ['database', 'secrets', 'nodes']) {
        t.true(statuses(subject).includes('ok'), subject);
      }
      t.deepEqual(statuses(`node ${node.nodeId}`), ['warning']);
      t.deepEqual(statuses('ledger'), ['warning'], 'it was never checked');
      t.is((await doctor(env, '--strict')).code, 1);
      t.is((await run(env, 'credits', 'check')).code, 0);
      t.deepEqual((await doctor(env)).statuses('ledger'), ['ok']);
      t.is((await run(env, 'nodes', 'drain', node.nodeId)).code, 0);
      const drained = await doctor(env);
      t.is(drained.code, 1);
      t.true(drained.of('nodes').some(line => line.includes(node.nodeId)));
      await run(env, 'nodes', 'undrain', node.nodeId);
    });

    test('has a doctor that fails with another key than the database was used with', async t => {
      const other = { ...env, MATTING_SECRETS_KEY: randomBytes(32).toString('hex') };
      const { code, statuses } = await doctor(other);
      t.is(code, 1);
      t.true(statuses('secrets').includes('failure'));
      const changing = (await doctor({ ...other, MATTING_SECRETS_KEY_PREVIOUS: KEY })).statuses(
        'secrets',
      );
      t.deepEqual([changing.includes('warning'), changing.includes('failure')], [true, false]);
    });

    test('has a doctor that names what is wrong with the environment, and looks at the rest all the same', async t => {
      const wrong = { ...env, MATTING_PORT: 'eighty', MATTING_RESLUT_TTL_MS: '5' };
      const { code, of, statuses } = await doctor(wrong);
      t.is(code, 1);
      t.deepEqual(statuses('configuration'), ['failure', 'warning']);
      const [first, second] = of('configuration');
      t.regex(first ?? '', /MATTING_PORT/);
      t.regex(second ?? '', /MATTING_RESLUT_TTL_MS .*MATTING_RESULT_TTL_MS/);
      t.deepEqual(statuses('migrations'), ['ok']);
    });

    test('has a doctor that works beside a newer schema, unless that left no way back', async t => {
      const { kysely } = replicas.database;
      for (const [name, status] of [
        ['9998-more', 'warning'],
        ['9999-other-no-way-back', 'failure'],
      ] as const) {
        const row = sql`insert into kysely_migration values (${name}, '2030-01-01T00:00:00.000Z')`;
        await row.execute(kysely);
        const { statuses } = await doctor(env);
        await sql`delete from kysely_migration where name = ${name}`.execute(kysely);
        t.deepEqual(statuses('migrations'), [status], name);
      }
    });

    test('has a doctor that calls a token of an example weak, and prints no secret', async t => {
      const weak = { ...env, MATTING_NODE_TOKEN: 'A-LONG-RANDOM-TOKEN' };
      const { out } = await run(weak, 'doctor');
      t.regex(out, /^warning +secrets +the node token /m);
      for (const secret of [KEY, 'A-LONG-RANDOM-TOKEN']) t.false(out.includes(secret));
      // A second token opens the registry: one more warning, and another where it is weak too.
      const warnings = async (token: string) =>
        (await doctor({ ...env, MATTING_NODE_TOKEN_ACCEPTED: token }))
          .of('secrets')
          .filter(line => line.includes('second node token')).length;
      t.is(await warnings(randomBytes(24).toString('hex')), 1);
      t.is(await warnings('change-me-change-me'), 2);
    });

    test('names in its bundle no address of a node, and calls nothing late that the configuration keeps', async t => {
      const { nodes } = replicas.stores;
      const at = { address: 'gpu-7.shop.internal:1', httpAddress: 'gpu-7.shop.internal:2' };
      await nodes.register({ nodeId: 'seven', bootId: 'b', version: '1', ...at }, 60_000);
      await sql`update jobs set finished_at = finished_at - ${8 * 86_400_000}
        where id = ${failedId}`.execute(replicas.database.kysely);
      const { code, err } = await run(bundled, 'support-bundle', place('nodes.zip'));
      t.is(code, 0, err);
      const files = await filesOf(place('nodes.zip'));
      t.regex(files.get('doctor.json') ?? '', /"node seven"/);
      t.regex(files.get('nodes.json') ?? '', /"seven"/);
      for (const [name, text] of files) t.false(text.includes('gpu-7'), name);
      t.is(JSON.parse(files.get('work.json') ?? '').sweep_backlog.rowsMs, 0);
    });
  },
  { serverInCi: true },
);

test('a support bundle of a database that is not the service’s › is made all the same, and the file stays as it is', async t => {
  const directory = await temporaryFolder(t);
  const place = (name: string) => path.join(directory, name);
  const database = new DatabaseSync(place('matting.sqlite'));
  database.exec('create table letters (id integer)');
  const { code, err } = await run(
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
});

const ofUser = groupIf(
  skipReason('mysql') === false,
  test,
  'the doctor and a user of the database',
);
let database: TestDatabase;

ofUser.before(async () => {
  database = await createTestDatabase('mysql', { series });
});
ofUser.after.always(() => database?.close());

async function asUser(name: string, grants: string): Promise<string[]> {
  const { kysely } = await database.open();
  const url = new URL(database.url);
  const schema = url.pathname.slice(1);
  const password = randomBytes(12).toString('hex');
  await sql.raw(`create user '${name}'@'%' identified by '${password}'`).execute(kysely);
  await sql.raw(`create user '${name}'@'localhost' identified by '${password}'`).execute(kysely);
  for (const host of ['%', 'localhost']) {
    const statement = grants.replaceAll('SCHEMA', schema);
    await sql.raw(`grant ${statement} to '${name}'@'${host}'`).execute(kysely);
  }
  try {
    url.username = name;
    url.password = password;
    const { of } = await doctor({
      MATTING_SECRETS_KEY: KEY,
      MATTING_NODE_TOKEN: TEST_TOKEN,
      MATTING_DATABASE_URL: url.href,
    });
    return of('database');
  } finally {
    await sql.raw(`drop user '${name}'@'%', '${name}'@'localhost'`).execute(kysely);
  }
}

for (const [rights, found, as] of [
  [
    'select, insert, update, delete on SCHEMA.*',
    'ok: takes writes, and the user has its rights',
    'four',
  ],
  ['select, insert, update on SCHEMA.*', 'failure: the user may not DELETE', 'three'],
  ['all on *.*', 'warning: the user has ALL PRIVILEGES on the whole server', 'wide'],
] as const) {
  ofUser(`who may ${rights} has ${found}`, async t => {
    t.true((await asUser(as, rights)).includes(found));
  });
}

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
  t.regex(of('storage').join(), /^warning: .*MATTING_STORAGE_URL/);
  t.true(!existsSync(dataDir));
});

test('the doctor before the first start › makes nothing in a storage that is there and empty, or lacks a part', async t => {
  const dataDir = await temporaryFolder(t);
  const storage = async () =>
    (await doctor({ MATTING_DATA_DIR: dataDir })).of('storage').join('\n');
  const variable = 'warning: the directory of MATTING_STORAGE_URL';
  t.is(await storage(), `${variable} lacks tmp, inputs, backgrounds, results`);
  t.deepEqual(await readdir(dataDir), []);
  for (const kind of ['tmp', 'inputs', 'results']) await mkdir(path.join(dataDir, kind));
  t.is(await storage(), `${variable} lacks backgrounds`);
  t.true(!existsSync(path.join(dataDir, 'backgrounds')));
});

/** Each a text, and the part of it that nobody may see. */
const PLANTED: readonly (readonly [text: string, secret: string])[] = [
  ['at https://shop.example/a.jpg?sig=abc end', 'shop.example'],
  ['s3://bucket/prefix', 'bucket'],
  ['mysql://matting:hunter2@db.internal/m', 'hunter2'],
  ['mail to anna@shop.example now', 'anna@shop.example'],
  ['key mk_4fZ0qkT9xW2b_abcdefghij', 'mk_4fZ0qkT9xW2b'],
  ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', 'MfKQ9r8'],
  ['Authorization: Bearer abc.def', 'abc.def'],
  ['authorization: "Basic dTpw"', 'dTpw'],
  ['password=hunter2', 'hunter2'],
  ['{"node_token": "short"}', 'short'],
  ['the X-Amz-Signature=beef', 'beef'],
  ['connect ECONNREFUSED 203.0.113.9:3306', '203.0.113.9'],
  ["Access denied for user 'm'@'10.1.2.3' (using password: YES)", '10.1.2.3'],
  ['connect ETIMEDOUT fd00:1:2:3::12:50051', 'fd00'],
  ['connect ETIMEDOUT 2001:db8:0:1:1:1:1:1:443', '2001:db8'],
  ['at [2001:db8::7]:443 nobody', 'db8'],
  ['getaddrinfo ENOTFOUND shop.example', 'shop.example'],
  ['getaddrinfo EAI_AGAIN db.internal', 'db.internal'],
];

test('a bundle › cuts out URLs, mails, keys and whatever is named as a secret', t => {
  for (const [text, secret] of PLANTED) t.false(scrubbed(text).includes(secret), scrubbed(text));
});

test('a bundle › cuts out what was made at random, in each form it is written', t => {
  for (let times = 0; times < 500; times += 1) {
    const bytes = randomBytes(24 + (times % 41));
    for (const encoding of ['hex', 'base64url'] as const) {
      const secret = bytes.toString(encoding);
      t.false(scrubbed(`it is ${secret}, so`).includes(secret), secret);
    }
    const base64 = bytes.toString('base64');
    t.false(scrubbed(base64).includes(base64), base64);
  }
  for (const secret of ['DApNvMGBCkEygvcvNz-aaWzbtqis_gT_', 'XpuLBCyxbxgqGqhDoinousyjRmzoaonO']) {
    t.false(scrubbed(`it is ${secret}, so`).includes(secret), secret);
  }
  t.notRegex(scrubbed(createHash('sha256').update('x').digest('hex')), /[0-9a-f]{16}/);
});

test('a bundle › leaves words, ids, names of files and hosts', t => {
  const texts = [
    'the database took too long over a statement',
    `job ${randomUUID()}`,
    'at run (file:///srv/matting/control-plane/core/dispatch/dispatcher.ts:281:13)',
    'connect ECONNREFUSED 127.0.0.1:3306',
    'connect ECONNREFUSED ::1:3306, at [::1]:80 and 0.0.0.0:8080',
    'Node 24.1.0 and Debian 6.12.38+deb13 at 2026-11-21T16:00:12.345Z, code::block',
    'matting-node-7d9f8b6c5d-x2k4q.matting.svc.cluster.local',
    'MATTING_STORAGE_FALLBACK_URL',
    'OrtSessionOptionsAppendExecutionProvider_Cuda',
    'at TLSWrap.callbackTrampoline, then processTicksAndRejections',
  ];
  for (const text of texts) t.is(scrubbed(text), text);
});

test('a bundle › cuts out of what the doctor found where machines are', t => {
  const cut = 'gpu-7.shop.internal:50051 cannot be reached from here';
  t.is(scrubbedOfPlaces(cut), '[host] cannot be reached from here');
  const found = 'ready at 127.0.0.1:8080 and localhost:9090: 3 of 4, in /srv/matting/data';
  t.is(scrubbedOfPlaces(found), found);
});

test('a bundle › shows of variables numbers, truth values and fixed words, whatever they are set to', t => {
  const secret = 'not-to-be-seen-9f8e7d';
  const all = Object.fromEntries(MATTING_VARIABLES.map(name => [name, secret]));
  t.false(JSON.stringify(shownConfiguration(all)).includes(secret));
  const digits = Object.fromEntries(MATTING_VARIABLES.map(name => [name, '90210']));
  const { variables } = shownConfiguration(digits);
  const shown = Object.keys(variables).filter(name => variables[name] === '90210');
  t.true(shown.includes('MATTING_PORT') && shown.length > 20);
  t.deepEqual(
    shown.filter(name => /TOKEN|SECRET|OPERATOR|API_KEY|INSTRUCTIONS/.test(name)),
    [],
  );
  const {
    variables: some,
    unknown,
    others,
  } = shownConfiguration({
    MATTING_QUALITY: 'best',
    MATTING_DATABASE_URL: 'mysql://matting:hunter2@db.internal/matting?ssl-mode=REQUIRED',
    MATTING_HOST: '0.0.0.0',
    MATTING_REGISTRY_HOST: '10.1.2.3',
    MATTING_NODE_TOKEN: secret,
    MATTING_TYPO: secret,
    AWS_SECRET_ACCESS_KEY: secret,
    HOME: '/root',
  });
  t.deepEqual(some, {
    MATTING_DATABASE_URL: 'mysql: with ssl-mode',
    MATTING_HOST: 'every interface',
    MATTING_NODE_TOKEN: 'set',
    MATTING_QUALITY: 'best',
    MATTING_REGISTRY_HOST: 'one address',
  });
  t.deepEqual([unknown, others], [['MATTING_TYPO'], ['AWS_SECRET_ACCESS_KEY']]);
});

test('a bundle › keeps of log lines numbers and known fields, scrubbed, and of other lines nothing', async t => {
  const file = path.join(await temporaryFolder(t), 'log');
  const line = {
    level: 50,
    time: '2026-11-21T16:00:00.000Z',
    program: 'control-plane',
    msg: 'attempt of https://shop.example/a.jpg',
    jobId: '6b1c8f1e-6a53-4b0e-9a55-0d7f3d3c1f00',
    trace_id: 'a'.repeat(32),
    span_id: 'not a span',
    durationMs: 12.5,
    address: '203.0.113.9',
    apiKey: 'mk_secret',
    err: { type: 'Error', message: 'password=hunter2', code: 'E', body: 'bytes', stack: 'at x' },
    timings: { decode_ms: 3, note: 'hunter2' },
  };
  await writeFile(file, `${JSON.stringify(line)}\nnode: hunter2\n[1]\n{"msg":"no level"}\n`);
  const { lines, leftOut } = await readLog(file);
  t.is(leftOut, 3);
  t.deepEqual(
    lines.map(text => JSON.parse(text)),
    [
      {
        level: 50,
        time: line.time,
        program: 'control-plane',
        msg: 'attempt of [URL]',
        jobId: line.jobId,
        trace_id: line.trace_id,
        durationMs: 12.5,
        err: { type: 'Error', message: 'password=[left out]', code: 'E', stack: 'at x' },
        timings: { decode_ms: 3 },
      },
    ],
  );
});

test('a bundle › waits for no pipe, and says what to do', async t => {
  const pipe = path.join(await temporaryFolder(t), 'pipe');
  await promisify(execFile)('mkfifo', [pipe]);
  await t.throwsAsync(readLog(pipe), { message: /journalctl -o cat > FILE/ });
});

test('a bundle › reads the end of a long log', async t => {
  const file = path.join(await temporaryFolder(t), 'long');
  const line = `${JSON.stringify({ level: 30, msg: 'x'.repeat(2000) })}\n`;
  await writeFile(file, line.repeat(Math.ceil(LOG_BYTES_MAX / line.length) + 10));
  const { lines, leftOut } = await readLog(file);
  t.is(leftOut, 0);
  t.true(lines.length <= LOG_BYTES_MAX / line.length);
});
