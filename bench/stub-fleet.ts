/**
 * What dispatch costs a fleet: 20 stub nodes of 250 ms behind two control planes on MariaDB, all
 * real processes. A backlog against what the nodes could do at best, and at half of that load the
 * time from submission to a node's Admitted, by the stages stored with each job.
 * Needs: portal.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'undici';
import { createStores } from '../control-plane/core/stores.ts';
import { TEST_TOKEN } from '../control-plane/core/test/scripted-node.ts';
import { pngHeader } from '../control-plane/core/test/support/test-app.ts';
import type { Database } from '../control-plane/database/database.ts';
import { SETTLED_STEPS } from '../control-plane/portal/settled-steps.ts';
import { series } from '../control-plane/test/fixtures.ts';
import { at } from '../test/support/at.ts';
import { createTestDatabase } from '../test/support/database.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const NODES = 20;
const NODES_A_PROCESS = 5;
/** An argument of its own for machines that are too small, or too busy, for 80 images a second. */
const IMAGE_MS = Number(process.argv[2] ?? 250);
const IDEAL_PER_S = (1000 * NODES) / IMAGE_MS;
/** About 20 s of work each. */
const BACKLOG_JOBS = 20 * IDEAL_PER_S;
const HALF_LOAD_JOBS = 10 * IDEAL_PER_S;
const CALLERS = 16;
/** Share of the jobs, by their ends, that is measured: not while the fleet starts or runs dry. */
const COUNTED = { from: 0.1, to: 0.9 };

const MAIN = path.join(import.meta.dirname, '../control-plane/main.ts');
const STUBS = path.join(import.meta.dirname, 'stub-nodes.ts');
const children: ChildProcess[] = [];

interface Listening {
  readonly http: number;
  readonly registry: number;
}

async function startControlPlane(directory: string, databaseUrl: string): Promise<Listening> {
  const child = spawn(process.execPath, [MAIN], {
    env: {
      MATTING_DATA_DIR: directory,
      MATTING_DATABASE_URL: databaseUrl,
      MATTING_SECRETS_KEY: 'ab'.repeat(32),
      MATTING_PORT: '0',
      MATTING_REGISTRY_PORT: '0',
      MATTING_METRICS_PORT: '0',
      MATTING_BASE_URL: 'http://127.0.0.1',
      MATTING_NODE_TOKEN: TEST_TOKEN,
      MATTING_NO_NODE_GRACE_MS: '3600000',
      MATTING_JOBS_IN_FLIGHT_MAX: '1000000',
      MATTING_SUBMISSIONS_PER_MINUTE: '100000000',
    },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
  children.push(child);
  for await (const line of createInterface(child.stdout!)) {
    const entry = JSON.parse(line) as { msg?: string } & Listening;
    if (entry.msg !== 'listening') continue;
    // Read on, or its log would fill the pipe and stop it.
    child.stdout?.resume();
    return entry;
  }
  throw new Error('the control plane ended before it listened');
}

/** Processor time of the control planes so far: on a busy machine it tells more than the clock. */
function planesCpuMs(): number {
  return children.slice(0, 2).reduce((sum, { pid }) => {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // Fields 14 and 15, in ticks of 10 ms; the second may hold blanks.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return sum + 10 * (Number(fields[11]) + Number(fields[12]));
  }, 0);
}

async function startNodes(registries: readonly number[]): Promise<void> {
  const processes = Array.from({ length: NODES / NODES_A_PROCESS }, (_, index) => {
    const first = String(index * NODES_A_PROCESS);
    const args = [STUBS, String(NODES_A_PROCESS), String(IMAGE_MS), first];
    return spawn(process.execPath, [...args, ...registries.map(String)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
  });
  children.push(...processes);
  await Promise.all(processes.map(child => once(child.stdout!, 'data')));
}

const image = Buffer.concat([pngHeader(64, 64), randomBytes(10_000)]);
const body = JSON.stringify({ image_base64: image.toString('base64') });

async function submit(pool: Pool, token: string): Promise<string> {
  const answer = await pool.request({
    method: 'POST',
    path: '/v1/matting/jobs',
    headers: {
      authorization: `Bearer ${token}`,
      'idempotency-key': randomUUID(),
      'content-type': 'application/json',
    },
    body,
  });
  const job = (await answer.body.json()) as { job_id: string };
  if (answer.statusCode !== 202) throw new Error(JSON.stringify(job));
  return job.job_id;
}

async function finalRows(database: Database, jobIds: readonly string[]) {
  for (;;) {
    const rows = await database.kysely
      .selectFrom('jobs')
      .select(['id', 'state', 'finished_at', 'timings'])
      .where('id', 'in', jobIds)
      .where('finished_at', 'is not', null)
      .execute();
    if (rows.length === jobIds.length) return rows;
    await delay(500);
  }
}

async function backlog(database: Database, pools: readonly Pool[], token: string, begin: Begin) {
  let left = BACKLOG_JOBS;
  const jobIds: string[] = [];
  const callers = Array.from({ length: CALLERS }, async (_, caller) => {
    while (left-- > 0) jobIds.push(await submit(at(pools, caller % pools.length), token));
  });
  await Promise.all(callers);
  await begin();
  const rows = await finalRows(database, jobIds);
  const ends = rows.map(row => row.finished_at!).sort((a, b) => a - b);
  const [from, to] = [COUNTED.from, COUNTED.to].map(share => Math.floor(share * ends.length));
  return 1000 * slope(ends.slice(from, to));
}

/** Ends a millisecond by least squares: nodes that began together end in waves. */
function slope(ends: readonly number[]): number {
  const meanMs = ends.reduce((sum, end) => sum + end, 0) / ends.length;
  const meanIndex = (ends.length - 1) / 2;
  let together = 0;
  let spread = 0;
  for (const [index, end] of ends.entries()) {
    together += (end - meanMs) * (index - meanIndex);
    spread += (end - meanMs) ** 2;
  }
  return together / spread;
}

type Begin = () => Promise<void>;

/** Arrivals at random, half as many as the nodes could do. */
async function halfLoad(database: Database, pools: readonly Pool[], token: string) {
  const submissions: Promise<string>[] = [];
  let atMs = performance.now();
  for (let count = 0; count < HALF_LOAD_JOBS; count += 1) {
    atMs += (-Math.log(1 - Math.random()) * 1000) / (IDEAL_PER_S / 2);
    await delay(Math.max(0, atMs - performance.now()));
    submissions.push(submit(at(pools, count % pools.length), token));
  }
  const rows = await finalRows(database, await Promise.all(submissions));
  const timings = rows.map(row => JSON.parse(row.timings ?? '{}') as Record<string, number>);
  return timings.map(({ queue = 0 }) => queue).sort((a, b) => a - b);
}

const test = await createTestDatabase('mysql', { series });
const directory = mkdtempSync(path.join(tmpdir(), 'matting-bench-'));
try {
  const database = await test.open();
  const stores = createStores(database, { renderOutboxBody: () => '{}', settled: SETTLED_STEPS });
  const account = (await stores.accounts.create('bench'))!;
  await stores.ledger.grant(account.id, 1_000_000, 'bench');
  const { token } = await stores.apiKeys.create(account.id, 'bench');
  const planes = [
    await startControlPlane(directory, test.url),
    await startControlPlane(directory, test.url),
  ];
  const pools = planes.map(({ http }) => new Pool(`http://127.0.0.1:${http}`));
  const registries = planes.map(({ registry }) => registry);
  const cpuBefore = planesCpuMs();
  const perS = await backlog(database, pools, token, () => startNodes(registries));
  const backlogCpuMs = (planesCpuMs() - cpuBefore) / BACKLOG_JOBS;
  const queueMs = await halfLoad(database, pools, token);
  await Promise.all(pools.map(pool => pool.destroy()));
  writeResults('stub-fleet', {
    idealPerS: IDEAL_PER_S,
    perS,
    throughputRatio: perS / IDEAL_PER_S,
    controlPlanesCpuMsPerJob: backlogCpuMs,
    halfLoadQueueMedianMs: median(queueMs),
    halfLoadQueueP90Ms: queueMs[Math.floor(0.9 * queueMs.length)],
  });
} finally {
  for (const child of children) child.kill('SIGKILL');
  await test.close();
  rmSync(directory, { recursive: true, force: true });
}
// MariaDB's own handles: the server ends with this process.
process.exit(0);
