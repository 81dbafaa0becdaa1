import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { git } from './changes.ts';
import { LAST_GREEN, nameOf, planOfChange, writtenGreen } from './plan.ts';
import { SUITES, type Suite } from './suites.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const read = (name: string) => readFileSync(path.join(ROOT, name), 'utf8');
const tracked = git(ROOT, 'ls-files', '--cached', '--others', '--exclude-standard').split('\n');
const isIn = (file: string, globs: readonly string[]) =>
  globs.some(glob => path.matchesGlob(file, glob));

/** Two-part endings without tests. */
const NO_TESTS = /\.(d|contract)\.ts$|\/gen\//;
/** They run named tests, or the table's suites. */
const TOOLS = ['repeat', 'nightly'];

test('a suite of the table runs each test file', t => {
  const files = tracked.filter(name => /\.[a-z]+\.ts$/.test(name) && !NO_TESTS.test(name));
  t.true(files.length > 300);
  t.deepEqual(
    files.filter(file => !SUITES.some(suite => isIn(file, suite.files))),
    [],
  );
});

test('a storm is in one lane', t => {
  for (const storm of tracked.filter(name => name.endsWith('.storm.ts'))) {
    const suites = SUITES.filter(
      ({ command, only }) => command === 'make storms' && only === storm,
    );
    t.is(suites.length, 1, storm);
  }
});

test('each command of the Makefile that runs tests is in the table, and on the page of tests', t => {
  const targets = [...read('Makefile').matchAll(/^([a-z-]+):[^\n]*\n((?:\t[^\n]*\n)+)/gm)];
  const testing = targets.flatMap(([, name = '', recipe = '']) =>
    /\btest\/|typescript|biome ci/.test(recipe) && !TOOLS.includes(name) ? [`make ${name}`] : [],
  );
  t.true(testing.includes('make storms') && testing.includes('make types'));
  const commands = SUITES.map(({ command }) => command);
  t.deepEqual(
    testing.filter(command => !commands.includes(command)),
    [],
  );
  const page = read('docs/testing.md');
  t.deepEqual(
    commands.filter(command => !page.includes(command)),
    [],
  );
});

test('each path and package of the table exists', t => {
  for (const suite of SUITES) {
    for (const glob of [...suite.files, ...(suite.covers ?? [])]) {
      const found = globSync(glob, { cwd: ROOT, exclude: name => name === 'node_modules' });
      t.true(found.length > 0, `${nameOf(suite)}: ${glob}`);
    }
    t.is(suite.lane === 'nightly', suite.covers !== undefined, nameOf(suite));
  }
  const lock = JSON.parse(read('package-lock.json')).packages;
  const packages = SUITES.flatMap(suite => suite.packages ?? []);
  t.deepEqual(
    packages.filter(name => !(`node_modules/${name}` in lock)),
    [],
  );
});

const codecs: Suite = {
  command: 'make storms',
  only: 'codecs/large.storm.ts',
  lane: 'nightly',
  files: [],
  covers: ['codecs', 'limits/*.ts'],
  packages: ['decoder'],
};
const guards: Suite = {
  command: 'make mutants',
  lane: 'nightly',
  files: [],
  covers: ['ledger.ts', 'leases.ts'],
  takesFiles: true,
};
const always: Suite = { command: 'make test', lane: 'every change', files: [] };
const byHand: Suite = { command: 'make soak', lane: 'by hand', files: [] };

const lockOf = (bits: string) => ({
  packages: {
    '': { dependencies: { decoder: '1.0.0', other: '1.0.0' } },
    'node_modules/decoder': { version: '1.0.0', dependencies: { bits: '*' } },
    'node_modules/bits': { version: bits },
    'node_modules/other': { version: '1.0.0' },
  },
});

/** One commit, which the nightly run found green. */
async function openProject(t: ExecutionContext, notTested: readonly string[] = []) {
  const root = await temporaryFolder(t);
  const write = (name: string, text: string) => {
    mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
    writeFileSync(path.join(root, name), text);
  };
  const commit = () => {
    git(root, 'add', '.');
    git(root, '-c', 'user.name=a', '-c', 'user.email=a@a', 'commit', '-qm', 'a change');
    return git(root, 'rev-parse', 'HEAD').trim();
  };
  git(root, 'init', '-q');
  write('package-lock.json', JSON.stringify(lockOf('1.0.0')));
  write('codecs/jxl.ts', '1');
  write('ledger.ts', '1');
  const green = commit();
  write(LAST_GREEN, writtenGreen({ commit: green, notTested }));
  commit();
  const plan = (at = root) =>
    planOfChange(at, [codecs, guards, always, byHand]).map(({ suite, isRun, only, reason }) => {
      const what = only === undefined ? suite.command : `${suite.command} ${only}`;
      return `${isRun ? 'run' : 'not'} ${what}: ${reason.replaceAll(green, 'GREEN')}`;
    });
  return { root, write, commit, plan, green };
}

const STORM = 'make storms codecs/large.storm.ts';
const TESTS = 'run make test: it runs with every change';

test('unchanged suites of the night do not run', async t => {
  const { write, commit, plan } = await openProject(t);
  write('docs/page.md', 'text');
  commit();
  t.deepEqual(plan(), [
    `not ${STORM}: unchanged since GREEN`,
    'not make mutants: unchanged since GREEN',
    TESTS,
  ]);
});

test('a change of the code that a suite covers runs it, before the commit and after', async t => {
  const { write, commit, plan } = await openProject(t);
  write('limits/bytes.ts', 'not yet tracked');
  write('ledger.ts', '2');
  const expected = [
    `run ${STORM}: limits/bytes.ts changed since GREEN`,
    'run make mutants ledger.ts: ledger.ts changed since GREEN',
    TESTS,
  ];
  t.deepEqual(plan(), expected);
  commit();
  t.deepEqual(plan(), expected);
});

test('another version of a dependency runs the suites that use it', async t => {
  const { write, plan } = await openProject(t);
  write('package-lock.json', JSON.stringify(lockOf('1.0.1')));
  t.deepEqual(plan(), [
    `run ${STORM}: another bits since GREEN`,
    'not make mutants: unchanged since GREEN',
    TESTS,
  ]);
});

test('a suite that the night could not test runs', async t => {
  const { plan } = await openProject(t, [nameOf(codecs)]);
  t.is(plan()[0], `run ${STORM}: the nightly run of GREEN did not test it`);
});

test('all suites run without a green night, and in a shallow clone that lacks its commit', async t => {
  const { root, write, commit, plan } = await openProject(t);
  const shallow = await temporaryFolder(t);
  git(root, 'clone', '-q', '--depth=1', pathToFileURL(root).href, shallow);
  const whole = await temporaryFolder(t);
  git(root, 'clone', '-q', pathToFileURL(root).href, whole);
  const unknown = 'this clone does not have commit GREEN';
  t.deepEqual(plan(shallow), [`run ${STORM}: ${unknown}`, `run make mutants: ${unknown}`, TESTS]);
  t.is(plan(whole)[0], `not ${STORM}: unchanged since GREEN`);
  write(LAST_GREEN, '');
  commit();
  const none = `there is no ${LAST_GREEN}`;
  t.deepEqual(plan(), [`run ${STORM}: ${none}`, `run make mutants: ${none}`, TESTS]);
});

/** Reports one passed test for each target; storms fail without a count. */
const MAKE = `#!/bin/sh
[ "$1" = storms ] && exit 3
echo "ran $*"
echo '{"passed":1,"failed":0,"skipped":0,"failures":[],"tookMs":[]}' >>"$MATTING_TEST_TALLY"
`;

test('a lane counts all its commands, and one that fails without a count', async t => {
  const folder = await temporaryFolder(t);
  writeFileSync(path.join(folder, 'make'), MAKE, { mode: 0o755 });
  const main = path.join(import.meta.dirname, 'main.ts');
  const { status, stdout } = spawnSync(process.execPath, [main, 'change'], {
    cwd: folder,
    encoding: 'utf8',
    env: { ...process.env, PATH: `${folder}:${process.env.PATH}` },
  });
  const ran = stdout.match(/^ran .*$/gm) ?? [];
  for (const line of ['ran browser', 'ran monitoring ONLY=dashboards', 'ran test']) {
    t.true(
      ran.some(one => one.startsWith(line)),
      line,
    );
  }
  t.regex(stdout, /failed: make storms ONLY='test.*' ended with 3\n/);
  t.true(stdout.endsWith(`\n${ran.length} passed, 1 failed\n`), stdout.slice(-300));
  t.is(status, 1);
});
