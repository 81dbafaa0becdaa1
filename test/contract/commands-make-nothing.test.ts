/** Needs: batches, operations, portal. */

import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { runCommand } from '@matting/core/run-command.ts';
import ava from 'ava';
import { PACKAGES } from '../../control-plane/packages.ts';
import { onDatabases, useTestDatabase } from '../support/database.ts';
import { Program, ROOT } from '../support/program.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const test = ava.serial;

const HERE = process.cwd();
const KEY = 'a'.repeat(64);
const ID = '00000000-0000-4000-8000-000000000000';

/** Only the database is missing. */
const NEED_A_DATABASE = [
  'accounts create shop',
  'accounts list',
  'accounts invite shop ann@shop.example --role owner',
  'accounts sign-in-link shop ann@shop.example',
  'keys create --account shop --name website',
  'keys set mk_nobody000000 --name other',
  'keys rotate mk_nobody000000',
  'keys revoke mk_nobody000000',
  'keys list --account shop',
  'credits grant shop 5',
  'credits revoke shop 5',
  'credits show shop',
  'credits check',
  'credits repay-lost --all-missing',
  'jobs list',
  `jobs show ${ID}`,
  `jobs retry ${ID}`,
  `batches cancel ${ID}`,
  'mails retry',
  'nodes list',
  'nodes drain node-1',
  'nodes undrain node-1',
  'orders list',
  `orders show ${ID}`,
  `orders confirm ${ID}`,
  `orders refund ${ID} --amount 1 --reference r`,
  'webhooks list',
  `webhooks retry ${ID}`,
  'backup copy',
  'restore --check',
] as const;

/** These need other things too, which are missing. */
const FAIL = [
  'doctor',
  'storage check',
  'storage lifecycle',
  'storage migrate from to',
  'restore copy',
] as const;

/** These create or migrate a database, as the service does. */
const SET_UP = ['migrate', 'bootstrap --account shop --credits 1'] as const;

const NEEDS_NOTHING = 'webhooks listen --port 0';

const OF_THE_NODE: Readonly<Record<string, number>> = {
  'models list': 0,
  'models show isnet': 0,
  'models remove graph': 1,
  'providers list': 0,
  'providers check': 1,
  'doctor --node': 1,
};

/** These download, or run the service. */
const MAKE = ['models add', 'models fetch', 'providers install', 'up', 'cutout'] as const;

const isOne = (list: readonly string[], command: string) => list.includes(command);
const ALL = [...NEED_A_DATABASE, ...FAIL, ...SET_UP, NEEDS_NOTHING];

async function run(env: Readonly<Record<string, string>>, command: string) {
  const lines: string[] = [];
  const take = (text: string) => void lines.push(text);
  const output = { out: take, err: take };
  const code = await runCommand(command.split(' '), output, env, PACKAGES);
  return { code, text: lines.join('') };
}

async function namesIn(help: (command: readonly string[]) => Promise<string>, at: string[] = []) {
  const text = await help(at);
  const names = [...text.matchAll(/^ {2}([a-z-]+)(?: |$)/gm)].map(([, name = '']) => name);
  return names.filter(name => name !== 'help');
}

/** Matches the words of `nodes list` in "nodes list [options]". */
function named(command: string, names: readonly string[]): boolean {
  return names.some(name => command === name || command.startsWith(`${name} `));
}

async function matting(folder: string, args: readonly string[]) {
  const main = path.join(ROOT, 'bin/matting.ts');
  const { code, output: text } = await Program.run([main, ...args], { HOME: folder }, folder);
  return { code, text };
}

test.afterEach.always(() => process.chdir(HERE));

test('the lists of this test have every command', async t => {
  const control = async (at: readonly string[]) =>
    (await run({}, [...at, '--help'].join(' '))).text;
  const node = async (at: readonly string[]) => (await matting(ROOT, [...at, '--help'])).text;
  const found: string[] = [];
  const groups = new Set(['accounts', 'keys', 'credits', 'jobs', 'mails', 'nodes', 'orders']);
  for (const group of ['batches', 'storage', 'webhooks', 'models', 'providers']) groups.add(group);
  for (const name of new Set([...(await namesIn(node)), ...(await namesIn(control))])) {
    const isNode = name === 'models' || name === 'providers';
    const help = isNode ? node : control;
    const subs = groups.has(name) ? await namesIn(help, [name]) : [];
    found.push(...(subs.length > 0 ? subs.map(sub => `${name} ${sub}`) : [name]));
  }
  t.true(found.length > 40);
  const listed = [...ALL, ...Object.keys(OF_THE_NODE), ...MAKE, 'remove'];
  t.deepEqual(
    found.filter(name => !listed.some(command => named(command, [name]))),
    [],
  );
  t.deepEqual(
    listed.filter(command => !named(command, found)),
    [],
  );
});

for (const command of [...NEED_A_DATABASE, ...FAIL]) {
  test(`"${command}" makes nothing where nothing is, and fails`, async t => {
    const folder = await temporaryFolder(t);
    process.chdir(folder);
    const { code, text } = await run({}, command);
    t.is(code, 1, text);
    t.deepEqual(await readdir(folder, { recursive: true }), []);
    t.notRegex(text, /\n {4}at /);
    if (isOne(FAIL, command)) return;
    for (const named of ['data/matting.sqlite', 'MATTING_DATA_DIR', 'MATTING_DATABASE_URL']) {
      t.true(text.includes(named), text);
    }
  });
}

for (const command of SET_UP) {
  test(`"${command}" makes the database`, async t => {
    const folder = await temporaryFolder(t);
    process.chdir(folder);
    const { code, text } = await run({}, command);
    t.is(code, 0, text);
    t.true((await readdir(path.join(folder, 'data'))).includes('matting.sqlite'));
    t.is((await run({}, 'nodes list')).code, 0);
  });
}

test(`"${NEEDS_NOTHING}" makes nothing`, async t => {
  const folder = await temporaryFolder(t);
  process.chdir(folder);
  const { code, text } = await run({}, NEEDS_NOTHING);
  t.is(code, 0, text);
  t.deepEqual(await readdir(folder, { recursive: true }), []);
});

for (const [command, code] of Object.entries({ ...OF_THE_NODE, 'remove photo.jpg': 64 })) {
  test(`"${command}" makes nothing`, async t => {
    const folder = await temporaryFolder(t);
    const ran = await matting(folder, command.split(' '));
    t.is(ran.code, code, ran.text);
    t.deepEqual(await readdir(folder, { recursive: true }), []);
  });
}

onDatabases(test, 'a database without tables', (test, dialect) => {
  const databases = useTestDatabase(test, dialect, { migrated: false });

  // All open the database alike: two are enough for a server.
  const commands = dialect === 'sqlite' ? NEED_A_DATABASE : NEED_A_DATABASE.slice(-2);
  for (const command of [...commands, 'doctor'] as const) {
    test(`"${command}" says that it has no tables, and makes none`, async t => {
      const folder = await temporaryFolder(t);
      process.chdir(folder);
      const database = await databases.open();
      const env = { MATTING_DATABASE_URL: databases.url(), MATTING_SECRETS_KEY: KEY };
      const { code, text } = await run(env, command);
      t.is(code, 1, text);
      t.deepEqual(await database.kysely.introspection.getTables(), []);
      t.deepEqual(await readdir(folder, { recursive: true }), []);
      t.regex(text, /matting -- migrate|matting migrate/);
      t.notRegex(text, /\n {4}at |select /);
      t.true(command === 'doctor' || text.includes('no tables of a service in'), text);
    });
  }
});
