/**
 * Takes packages of the control plane away, each by itself and then all, and checks the rest:
 * types, tests of the core, and a control plane on a database that all packages wrote. Without any
 * package `make demo` cuts its picture out, too. The arguments `each` and `all` choose a half.
 *
 * The rest is a copy of the working tree. It lacks a package's folder, its lines in
 * control-plane/packages.ts, and the files with `Needs: that package.` at their head.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFileSync,
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { PACKAGES } from '../../control-plane/packages.ts';
import { linkPackages } from '../support/linked-packages.ts';
import { openMemoryDirectory } from '../support/memory-directory.ts';
import { type AvaResult, concludeWith } from '../support/run-ava.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const LINKED = ['bin/node/node_modules', 'model-cache'];
const TAKE_AWAY = path.join(ROOT, 'deploy/images/take-away.ts');
const NEEDS = /^(?:#!.*\n)?\/\*\*(?:(?!\*\/)[\s\S])*?\bNeeds: ([^.]+)\./;
/** The tests that soonest show a missing package. */
const FEW = ['control-plane/core/http/public-app.test.ts', 'control-plane/core/jobs/*.test.ts'];
const ALL = ['control-plane/{core,database,http}/**/*.test.ts', 'test/e2e/cutout.test.ts'];
const HANGING_MS = 120_000;
const SHOWN_LINES = 40;

/** Lists the project's files, with the packages that each says it needs. */
function sourcesOf(): { name: string; needs: readonly string[] }[] {
  const args = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
  const names = execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).split('\0');
  const there = names.filter(name =>
    statSync(path.join(ROOT, name), { throwIfNoEntry: false })?.isFile(),
  );
  return there.map(name => {
    const text = name.endsWith('.ts') ? readFileSync(path.join(ROOT, name), 'utf8') : '';
    return { name, needs: NEEDS.exec(text)?.[1]?.split(/,\s*(?:\*\s*)?/) ?? [] };
  });
}

function copyWithout(absent: readonly string[]): string {
  const tree = mkdtempSync(path.join(scratch, 'tree-'));
  for (const { name, needs } of SOURCES) {
    if (needs.some(need => absent.includes(need))) continue;
    mkdirSync(path.dirname(path.join(tree, name)), { recursive: true });
    copyFileSync(path.join(ROOT, name), path.join(tree, name));
  }
  mkdirSync(path.join(ROOT, 'model-cache'), { recursive: true });
  for (const name of LINKED) symlinkSync(path.join(ROOT, name), path.join(tree, name));
  linkPackages(tree);
  execFileSync(process.execPath, [TAKE_AWAY, tree, ...absent]);
  return tree;
}

interface Ended {
  readonly code: number | null;
  readonly output: string;
}

async function runIn(tree: string, ...args: string[]): Promise<Ended> {
  const child = spawn(process.execPath, args, {
    cwd: tree,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: HANGING_MS,
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  const [code] = await once(child, 'close');
  return { code, output };
}

const NOTHING = {
  passed: 0,
  failed: 0,
  skipped: 0,
  failures: [],
  flaky: [],
  titles: [],
  output: '',
  tookMs: [],
};

async function one(title: string, act: () => Promise<Ended>): Promise<AvaResult> {
  const startedAtMs = performance.now();
  const { code, output } = await act();
  const tookMs = [[title, performance.now() - startedAtMs]] as const;
  console.log(`  ${code === 0 ? '✔' : '✘'} ${title}`);
  if (code === 0) return { ...NOTHING, passed: 1, tookMs };
  console.log(output.split('\n').slice(0, SHOWN_LINES).join('\n'));
  const reason = output.replace(/\s+/g, ' ').slice(0, 600);
  return { ...NOTHING, failed: 1, failures: [`${title}: ${reason}`], tookMs };
}

async function tested(title: string, tree: string, globs: readonly string[]): Promise<AvaResult> {
  const { runAva }: typeof import('../support/run-ava.ts') = await import(
    path.join(tree, 'test/support/run-ava.ts')
  );
  const files = globs.flatMap(glob => globSync(glob, { cwd: tree })).sort();
  const env = { MATTING_TEST_DIALECT: 'sqlite' };
  const result = await runAva({
    files: files.map(name => path.join(tree, name)),
    concurrency: 2,
    timeoutMs: HANGING_MS,
    isQuiet: true,
    env,
  });
  console.log(`  ${result.failed === 0 ? '✔' : '✘'} ${title}: ${result.passed} tests`);
  return {
    ...result,
    failures: result.failures.map(failure => `${title}: ${failure}`),
    flaky: result.flaky.map(failure => `${title}: ${failure}`),
    tookMs: result.tookMs.map(([file, ms]) => [`${title}: ${file}`, ms]),
  };
}

const SERVE = 'test/apart/serve-a-photo.ts';
const TSC = 'node_modules/typescript/bin/tsc';

async function checkWithout(absent: readonly string[], written: string): Promise<AvaResult[]> {
  const isBare = absent.length === PACKAGES.length;
  const title = isBare ? 'without any package' : `without ${absent.join(', ')}`;
  console.log(`\n=== ${title}`);
  const tree = copyWithout(absent);
  const database = path.join(tree, 'written.sqlite');
  cpSync(written, database);
  const results = await Promise.all([
    one(`${title}: types`, () => runIn(tree, TSC, '-p', '.')),
    tested(title, tree, isBare ? ALL : FEW),
    one(`${title}: a photo`, () => runIn(tree, SERVE, database)),
  ]);
  rmSync(tree, { recursive: true });
  return results;
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.once(signal, () => process.exit(1));
}
const inMemory = process.env.TMPDIR === undefined ? openMemoryDirectory() : undefined;
if (inMemory !== undefined) process.env.TMPDIR = inMemory;
const SOURCES = sourcesOf();
const scratch = mkdtempSync(path.join(tmpdir(), 'matting-apart-'));
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }));
const written = path.join(scratch, 'written.sqlite');
const results = [await one('all packages: a photo', () => runIn(ROOT, SERVE, written))];
const names = PACKAGES.map(({ name }) => name);
const halves: Readonly<Record<string, readonly string[][]>> = {
  each: names.map(name => [name]),
  all: [names],
};
const wanted = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(halves);
for (const absent of wanted.flatMap(half => halves[half] ?? [[half]])) {
  results.push(...(await checkWithout(absent, written)));
}
concludeWith(results);
