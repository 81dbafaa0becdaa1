/** `matting doctor` beside a control plane that runs, and where something is wrong. */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava from 'ava';
import { sql } from 'kysely';
import type { Finding, Summary } from '#program/doctor/findings.ts';
import { groupIf, onDatabases, skipReason } from '../../../test/support/database.ts';
import type { DatabaseDialect } from '../../src/store/database/clock.ts';
import { TEST_TOKEN } from '../nodes/scripted-node.ts';
import { type Env, runCli as run } from '../support/cli.ts';
import { Replicas } from '../support/replicas.ts';

const test = ava.serial;

interface Examined {
  readonly code: number;
  readonly summary: Summary;
  readonly findings: readonly Finding[];
  /** Of one subject, each `status: found`. */
  of(subject: string): string[];
}

async function doctor(env: Env, ...args: string[]): Promise<Examined> {
  const { code, out } = await run(env, 'doctor', '--json', ...args);
  const { summary, findings } = JSON.parse(out) as Pick<Examined, 'summary' | 'findings'>;
  const of = (subject: string) =>
    findings
      .filter(finding => finding.subject === subject)
      .map(({ status, found }) => `${status}: ${found}`);
  return { code, summary, findings, of };
}

const KEY = randomBytes(32).toString('hex');

async function openReplica(dialect: DatabaseDialect) {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'matting-doctor-'));
  const storageDir = path.join(dataDir, 'storage');
  const replicas = await Replicas.open(dialect, {
    replicas: 1,
    storageDir,
    env: { MATTING_SECRETS_KEY: KEY },
  });
  const { http, metrics, registry } = replicas.plane(0).ports;
  const env: Env = {
    MATTING_DATA_DIR: dataDir,
    MATTING_DATABASE_URL: replicas.databaseUrl,
    MATTING_STORAGE_URL: `file://${storageDir}`,
    MATTING_SECRETS_KEY: KEY,
    MATTING_NODE_TOKEN: TEST_TOKEN,
    MATTING_PORT: String(http),
    MATTING_METRICS_PORT: String(metrics),
    MATTING_REGISTRY_PORT: String(registry),
  };
  return { replicas, env, dataDir };
}

onDatabases(test, 'the doctor', (test, dialect) => {
  let opened: Awaited<ReturnType<typeof openReplica>>;
  let env: Env;

  test.before(async () => {
    opened = await openReplica(dialect);
    env = opened.env;
  });
  test.after.always(async () => {
    await opened.replicas.close();
    await rm(opened.dataDir, { recursive: true });
  });

  test('fails without a node, by the control plane and by the fleet', async t => {
    const { code, of } = await doctor(env);
    t.is(code, 1);
    t.deepEqual(of('control plane'), ['failure: not ready: no-node-yet']);
    t.deepEqual(of('nodes'), ['failure: none of 0 takes images: nothing is cut out']);
  });

  test('finds nothing that fails where everything is there', async t => {
    const node = await opened.replicas.addNode();
    const { code, summary, findings, of } = await doctor(env);
    t.deepEqual([code, summary.failures], [0, 0], JSON.stringify(findings));
    t.regex(of('control plane').join(), /^ok: ready at/);
    t.regex(of('database').join('\n'), /^ok: (SQLite|MariaDB|MySQL) .* answers in/m);
    t.deepEqual(of('migrations'), ['ok: the database is up to date']);
    t.true(of('secrets').includes('ok: the key opens what the database holds'));
    t.regex(of('nodes').join('\n'), /^ok: 1 of 1 take images/m);
    t.regex(of(`node ${node.nodeId}`).join(), /^warning: takes connections at/);
    t.regex(of('storage').join(), /^ok: the directory of MATTING_STORAGE_URL does all 7/);
    t.deepEqual(of('ledger'), ['warning: it was never checked']);
    t.is((await doctor(env, '--strict')).code, 1);
  });

  test('knows how the last check of the ledger ended', async t => {
    t.is((await run(env, 'credits', 'check')).code, 0);
    t.regex((await doctor(env)).of('ledger').join(), /^ok: checked 0 hours ago/);
  });

  test('names a drained node', async t => {
    const [node] = opened.replicas.nodes;
    t.is((await run(env, 'nodes', 'drain', node?.nodeId ?? '')).code, 0);
    const { code, of } = await doctor(env);
    t.is(code, 1);
    t.true(of('nodes').includes(`warning: 1 are drained: ${node?.nodeId}`));
    await run(env, 'nodes', 'undrain', node?.nodeId ?? '');
  });

  test('fails with another key than the database was used with', async t => {
    const other = { ...env, MATTING_SECRETS_KEY: randomBytes(32).toString('hex') };
    const { code, of } = await doctor(other);
    t.is(code, 1);
    t.regex(of('secrets').join('\n'), /^failure: MATTING_SECRETS_KEY is not the key/m);
    const changing = { ...other, MATTING_SECRETS_KEY_PREVIOUS: KEY };
    t.regex((await doctor(changing)).of('secrets').join('\n'), /^warning: .*being changed/m);
  });

  test('names what is wrong with the environment, and looks at the rest all the same', async t => {
    const wrong = { ...env, MATTING_PORT: 'eighty', MATTING_RESLUT_TTL_MS: '5' };
    const { code, of } = await doctor(wrong);
    t.is(code, 1);
    const [first, second] = of('configuration');
    t.regex(first ?? '', /^failure: MATTING_PORT must be/);
    t.regex(second ?? '', /^warning: .*MATTING_RESLUT_TTL_MS \(MATTING_RESULT_TTL_MS\?\)/);
    t.deepEqual(of('migrations'), ['ok: the database is up to date']);
  });

  test('works beside a newer schema, unless that left no way back', async t => {
    const { kysely } = opened.replicas.database;
    const judged = async (name: string) => {
      const row = sql`insert into kysely_migration values (${name}, '2030-01-01T00:00:00.000Z')`;
      await row.execute(kysely);
      const { of } = await doctor(env);
      await sql`delete from kysely_migration where name = ${name}`.execute(kysely);
      return of('migrations');
    };
    for (const [name, status] of [
      ['9998-more', 'warning'],
      ['9999-other-no-way-back', 'failure'],
    ] as const) {
      t.deepEqual(await judged(name), [`${status}: a newer version made ${name}`]);
    }
  });

  test('calls a token of an example weak, and prints no secret', async t => {
    const weak = { ...env, MATTING_NODE_TOKEN: 'A-LONG-RANDOM-TOKEN' };
    const { out } = await run(weak, 'doctor');
    t.regex(out, /^warning +secrets +MATTING_NODE_TOKEN holds words of an example$/m);
    for (const secret of [KEY, 'A-LONG-RANDOM-TOKEN']) t.false(out.includes(secret));
  });

  test('reminds of a second token, and of a weak one', async t => {
    const token = randomBytes(24).toString('hex');
    const found = async (accepted: string) =>
      (await doctor({ ...env, MATTING_NODE_TOKEN_ACCEPTED: accepted })).of('secrets').join('\n');
    const reminder = 'warning: MATTING_NODE_TOKEN_ACCEPTED is set: a second token opens the reg';
    t.true((await found(token)).includes(reminder));
    t.notRegex(await found(token), /ACCEPTED (holds|can hold)/);
    const weak = await found('change-me-change-me');
    t.true(weak.includes(reminder));
    t.regex(weak, /^warning: MATTING_NODE_TOKEN_ACCEPTED holds words of an example$/m);
  });
});

const ofUser = groupIf(
  skipReason('mysql') === false,
  test,
  'the doctor and a user of the database',
);
let opened: Awaited<ReturnType<typeof openReplica>>;

ofUser.before(async () => {
  opened = await openReplica('mysql');
});
ofUser.after.always(async () => {
  await opened.replicas.close();
  await rm(opened.dataDir, { recursive: true });
});

async function asUser(name: string, grants: string): Promise<string[]> {
  const { kysely } = opened.replicas.database;
  const url = new URL(opened.env.MATTING_DATABASE_URL ?? '');
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
    const { of } = await doctor({ ...opened.env, MATTING_DATABASE_URL: url.href });
    return of('database');
  } finally {
    await sql.raw(`drop user '${name}'@'%', '${name}'@'localhost'`).execute(kysely);
  }
}

ofUser('needs four rights on its database and no more', async t => {
  const found = await asUser('four', 'select, insert, update, delete on SCHEMA.*');
  t.true(found.includes('ok: takes writes, and the user has the rights it needs'));
});

ofUser('fails without one of them', async t => {
  const found = await asUser('three', 'select, insert, update on SCHEMA.*');
  t.true(found.includes('failure: the user may not DELETE'), found.join('\n'));
});

ofUser('is warned of rights that no fail-over protects from', async t => {
  const found = await asUser('wide', 'all on *.*');
  t.regex(found.join('\n'), /^warning: the user has ALL PRIVILEGES on the whole server$/m);
});

test('the doctor before the first start › makes nothing, and says what is not there', async t => {
  const dataDir = path.join(tmpdir(), `matting-doctor-none-${randomBytes(4).toString('hex')}`);
  const { code, of } = await doctor({
    MATTING_DATA_DIR: dataDir,
    MATTING_NODE_TOKEN: randomBytes(24).toString('hex'),
    MATTING_PORT: '0',
    MATTING_BASE_URL: 'http://matting.example',
  });
  t.is(code, 0);
  t.regex(of('database').join(), /^warning: there is no file/);
  t.regex(of('storage').join(), /^warning: .* is not there yet/);
  t.true(!existsSync(dataDir));
});

test('the doctor before the first start › makes nothing in a storage that is there and empty, or lacks a part', async t => {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'matting-doctor-empty-'));
  const storage = async () =>
    (await doctor({ MATTING_DATA_DIR: dataDir })).of('storage').join('\n');
  const variable = 'warning: the directory of MATTING_STORAGE_URL';
  try {
    t.is(await storage(), `${variable} lacks tmp, inputs, backgrounds, results`);
    t.deepEqual(await readdir(dataDir), []);
    for (const kind of ['tmp', 'inputs', 'results']) await mkdir(path.join(dataDir, kind));
    t.is(await storage(), `${variable} lacks backgrounds`);
    t.true(!existsSync(path.join(dataDir, 'backgrounds')));
  } finally {
    await rm(dataDir, { recursive: true });
  }
});

test('the doctor before the first start › fails where the database cannot be reached', async t => {
  const { code, of } = await doctor({
    MATTING_DATABASE_URL: 'mysql://matting:hidden-password@127.0.0.1:1/matting',
    MATTING_SECRETS_KEY: KEY,
    MATTING_NODE_TOKEN: TEST_TOKEN,
  });
  t.is(code, 1);
  t.regex(of('database').join(), /^failure: the database cannot be opened: .*ECONNREFUSED/);
});
