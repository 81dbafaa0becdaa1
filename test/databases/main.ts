/**
 * Runs the suites on each engine, then `*.databases.ts`. Arguments: their names, or all. Exits 0
 * only if something passed, nothing failed, and nothing named in
 * `MATTING_TEST_REQUIRE_DATABASES=galera,mysql` is missing.
 */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { type AvaResult, concludeWith, runAva } from '../support/run-ava.ts';
import { type Named, OWN_TESTS, TARGETS, type Target } from './targets.ts';

/** A longer run hangs. */
const TARGET_MS_MAX = 5 * 60_000;

const ROOT = path.resolve(import.meta.dirname, '../..');

/** For every target: the store, two control planes, webhooks, kills. */
const PLACES = [
  'control-plane/core/{attempts,dispatch,jobs,keys,ledger,retention,test,webhooks}/*.test.ts',
  'control-plane/database/*.test.ts',
  'control-plane/portal/{alerts,orders,people,usage}/*.test.ts',
  // Two control planes, their notifications, kills and stalls.
  'control-plane/test/compose/replicas.test.ts',
  'control-plane/test/compose/{kills,stopped,database-outage}.storm.ts',
];

/** Other tests would only repeat `make test`. */
const ASKS_FOR_SERVER = /\bDIALECTS\b|\bon(Databases|Stores)\(|skipReason\('mysql'\)/;

function suiteFiles(): string[] {
  return PLACES.flatMap(place => globSync(place, { cwd: ROOT }))
    .filter(file => ASKS_FOR_SERVER.test(readFileSync(path.join(ROOT, file), 'utf8')))
    .sort();
}

const names = process.argv.slice(2);
const known = [...TARGETS, ...OWN_TESTS].map(({ name }) => name);
const unknown = names.filter(name => !known.includes(name));
if (unknown.length > 0) {
  console.error(`nothing is called ${unknown.join(', ')}; there are: ${known.join(', ')}`);
  process.exit(64);
}
const isChosen = ({ name }: Named) => names.length === 0 || names.includes(name);

// So that exit handlers end the servers.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.once(signal, () => process.exit(1));
}

const required = (process.env.MATTING_TEST_REQUIRE_DATABASES ?? '').split(',');
const missing = new Map<Named, string>();
for (const named of [...TARGETS, ...OWN_TESTS].filter(isChosen)) {
  const reason = named.skipReason();
  if (reason !== false) missing.set(named, reason);
}
const isRun = (named: Named) => isChosen(named) && !missing.has(named);
warnOfMissing();

const results: AvaResult[] = [];
for (const target of TARGETS.filter(isRun)) await runTarget(target);
const files = OWN_TESTS.filter(isRun).map(({ name }) =>
  path.join(import.meta.dirname, `${name}.databases.ts`),
);
if (files.length > 0) await runTests(files, {});
concludeWith(results, warnOfMissing);
if ([...missing.keys()].some(({ engine }) => required.includes(engine))) process.exitCode = 1;
// Killed servers leave open handles.
process.exit();

/** Printed first and last: nobody sees a skip among a thousand lines. */
function warnOfMissing(): void {
  if (missing.size === 0) return;
  const lines = [...missing].map(([{ about }, reason]) => `NOT TESTED on ${about}: ${reason}`);
  const rule = '*'.repeat(100);
  console.error([rule, ...lines, rule].join('\n'));
}

async function runTarget({ name, about, open }: Target): Promise<void> {
  console.log(`\n=== ${name}: ${about}`);
  const startedAtMs = performance.now();
  const opened = await open();
  try {
    const env = { MATTING_TEST_DATABASE_URL: opened.url, MATTING_TEST_DIALECT: 'mysql' };
    await runTests(suiteFiles(), env);
  } finally {
    await opened.close();
    console.log(`=== ${name}: ${Math.round((performance.now() - startedAtMs) / 1000)} s`);
  }
}

/** Two at once: filling large tables at one member delays a whole cluster. */
async function runTests(files: readonly string[], env: NodeJS.ProcessEnv): Promise<void> {
  results.push(await runAva({ files, concurrency: 2, timeoutMs: TARGET_MS_MAX, env }));
}
