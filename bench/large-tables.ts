/**
 * What large tables do to callers: a control plane on SQLite, whose statements run on its event
 * loop, with as many jobs as are asked for and some thousands due for removal. /livez is asked
 * every few milliseconds, first while the sweeper rests, then while it is at work. The first page
 * of the account that has half of the jobs is asked beside that of an account without any.
 *
 *     bench/large-tables.ts [jobs, 200000 unless given] [file, kept and taken as it is if there]
 *
 * Ten million jobs take a quarter of an hour to fill and 15 GB.
 * Needs: portal.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'undici';
import { migrationsOf } from '../control-plane/core/package.ts';
import { openDatabase } from '../control-plane/database/connect.ts';
import { migrate } from '../control-plane/database/migrate.ts';
import { PACKAGES } from '../control-plane/packages.ts';
import { createPortalStores } from '../control-plane/portal/portal-stores.ts';
import { createSecret, hashOfSecret } from '../control-plane/portal/session/secret.ts';
import { fillLargeUsage } from '../control-plane/portal/test/large-tables.ts';
import { linkUse, newLink, newSession, OPERATOR } from '../control-plane/portal/test/people.ts';
import { SILENT_LOG } from '../test/support/database.ts';
import { accountOf, fillLargeTables } from '../test/support/large-tables.ts';
import { startControlPlane } from './control-plane-process.ts';
import { writeResults } from './results.ts';

/** Shorter than the shortest wait for the first sweep, 48 s after the start. */
const QUIET_MS = 30_000;
const SWEEPING_MS = 60_000;
const BETWEEN_MS = 5;
/** Due for removal: about what is removed in that time. */
const OLD_JOBS = 60_000;
const LOOK_MS = 2000;
/** The first sweep comes 72 s after the start at the latest. */
const SWEEP_BEGINS_MS_MAX = 120_000;

/** Each page is asked this often, the two in turn. */
const OVERVIEWS = 50;

const jobs = Number(process.argv[2] ?? 200_000);
const given = process.argv[3];
const directory = given === undefined ? mkdtempSync(path.join(tmpdir(), 'matting-large-')) : '';
const file = given ?? path.join(directory, 'large.sqlite');

interface Latency {
  readonly answers: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

async function fill(): Promise<void> {
  const database = await openDatabase(`sqlite:${file}`, { log: SILENT_LOG, create: true });
  try {
    await migrate(database, migrationsOf(PACKAGES));
    const sizes = { jobs: jobs + OLD_JOBS, oldJobs: OLD_JOBS, lean: true };
    await fillLargeTables(database, sizes);
    await fillLargeUsage(database);
  } finally {
    await database.close();
  }
}

/** @param goesOn asked every LOOK_MS; false: the end */
async function latencyOf(
  client: Client,
  forMs: number,
  goesOn: () => boolean = () => true,
): Promise<Latency> {
  const tookMs: number[] = [];
  const untilMs = performance.now() + forMs;
  let lookMs = performance.now();
  while (performance.now() < untilMs) {
    if (performance.now() - lookMs > LOOK_MS) {
      if (!goesOn()) break;
      lookMs = performance.now();
    }
    const beganMs = performance.now();
    const { statusCode, body } = await client.request({ method: 'GET', path: '/livez' });
    await body.dump();
    if (statusCode !== 200) throw new Error(`/livez answered ${statusCode}`);
    tookMs.push(performance.now() - beganMs);
    await delay(BETWEEN_MS);
  }
  tookMs.sort((a, b) => a - b);
  const at = (share: number) => Math.round(10 * tookMs[Math.floor(share * tookMs.length)]!) / 10;
  return { answers: tookMs.length, p50Ms: at(0.5), p99Ms: at(0.99), maxMs: at(0.999_999) };
}

/** The cookie of an owner of that account. */
async function signIn(databaseUrl: string, accountId: string): Promise<string> {
  const database = await openDatabase(databaseUrl, { log: SILENT_LOG });
  try {
    const { links } = createPortalStores(database);
    const secret = createSecret();
    const link = newLink(accountId, { role: 'owner' });
    await links.create(link, OPERATOR);
    await links.use(linkUse(link, { session: newSession({ idHash: hashOfSecret(secret) }) }));
    return `__Host-matting-session=${secret}`;
  } finally {
    await database.close();
  }
}

async function overviewsOf(
  client: Client,
  { databaseUrl, accountId }: { readonly databaseUrl: string; readonly accountId: string },
) {
  const cookies = {
    empty: await signIn(databaseUrl, accountId),
    large: await signIn(databaseUrl, accountOf(0)),
  };
  const tookMs = { empty: [] as number[], large: [] as number[] };
  for (let count = 0; count < OVERVIEWS; count += 1) {
    for (const whose of ['empty', 'large'] as const) {
      // The host of the base URL: by another the answer leads there.
      const headers = { cookie: cookies[whose], accept: 'text/html', host: '127.0.0.1' };
      const beganMs = performance.now();
      const { statusCode, body } = await client.request({
        method: 'GET',
        path: '/account',
        headers,
      });
      const page = await body.text();
      tookMs[whose].push(performance.now() - beganMs);
      if (statusCode !== 200 || page.includes('class="steps"') !== (whose === 'empty')) {
        throw new Error(`the page of the ${whose} account answered ${statusCode}: ${page}`);
      }
    }
  }
  const medianOf = (times: number[]) => times.sort((a, b) => a - b)[times.length >> 1]!;
  const [emptyMs, largeMs] = [medianOf(tookMs.empty), medianOf(tookMs.large)];
  const tenths = (value: number) => Math.round(10 * value) / 10;
  return {
    emptyMs: tenths(emptyMs),
    largeMs: tenths(largeMs),
    largeToEmpty: tenths(largeMs / emptyMs),
  };
}

/** Old jobs that are left. */
function openCount(): { left(): number; close(): void } {
  const db = new DatabaseSync(file, { readOnly: true });
  const statement = db.prepare(
    'select count(*) as n from jobs where finished_at < ? and finished_at > 0',
  );
  const beforeMs = Date.now() - 30 * 86_400_000;
  return { left: () => Number(statement.get(beforeMs)!.n), close: () => db.close() };
}

async function measure() {
  const count = openCount();
  const control = await startControlPlane(`sqlite:${file}`);
  const client = new Client(control.origin);
  try {
    const overview = await overviewsOf(client, control);
    const quiet = await latencyOf(client, QUIET_MS);
    const before = count.left();
    const untilMs = performance.now() + SWEEP_BEGINS_MS_MAX;
    while (count.left() === before) {
      if (performance.now() > untilMs) throw new Error('the sweeper removed nothing');
      await delay(200);
    }
    const atFirst = count.left();
    const beganMs = performance.now();
    const sweeping = await latencyOf(client, SWEEPING_MS, () => count.left() > 0);
    const removed = atFirst - count.left();
    const removedPerS = Math.round((1000 * removed) / (performance.now() - beganMs));
    const ratio = Math.round((100 * sweeping.p99Ms) / quiet.p99Ms) / 100;
    return { jobs, overview, quiet, sweeping, removedPerS, p99SweepingToQuiet: ratio };
  } finally {
    await client.close();
    await control.close();
    count.close();
  }
}

try {
  if (!existsSync(file)) await fill();
  const measured = await measure();
  console.log(JSON.stringify(measured, null, 2));
  writeResults('large-tables', measured);
} finally {
  if (given === undefined) rmSync(directory, { recursive: true, force: true });
}
