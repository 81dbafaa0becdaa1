/**
 * Measures what the contract costs above its parts, on SQLite and on MariaDB:
 *
 * - submissions (asynchronous, a 10 KB PNG, nothing dispatched) against the bare limit, by as many
 *   at a time, on the same disk: one durable blob and one commit of one row each, by the drivers
 *   alone; and, apart, the store's own blob and submission, whose commit holds job, ledger and
 *   balance;
 * - reads of a job against a bare Fastify route whose body has that size, by the same client.
 *
 * The two sides of a ratio alternate in rounds of one run. The client shares the cores with the
 * service; `...ClientTakenOut` takes its processor time out of the clock of both sides.
 * Needs: portal.
 */

import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { open, rename } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import mysql from 'mysql2/promise';
import { Pool } from 'undici';
import type { NewJob } from '../control-plane/core/queue/matting-submission.ts';
import { createStores } from '../control-plane/core/stores.ts';
import { pngHeader } from '../control-plane/core/test/support/test-app.ts';
import { openDatabase, parseMysqlUrl } from '../control-plane/database/connect.ts';
import { SETTLED_STEPS } from '../control-plane/portal/settled-steps.ts';
import { openStorage } from '../control-plane/storage/open-storage.ts';
import { createTestDatabase, SILENT_LOG } from '../test/support/database.ts';
import { findMariadb, startMariadb } from '../test/support/mariadb-server.ts';
import { startBareRoute } from './bare-route.ts';
import { type ControlPlaneProcess, startControlPlane } from './control-plane-process.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const CALLERS = 32;
const ROUNDS = 4;
const ROUND_MS = 2000;
const WARM_UP_MS = 1000;
const IMAGE_BYTES = 10 * 1024;

interface Rate {
  readonly perS: number;
  readonly clientTakenOutPerS: number;
}

/** Runs as many at a time as there are callers, for a while. */
async function rateOf(work: () => Promise<void>, forMs = ROUND_MS): Promise<Rate> {
  const cpu = process.cpuUsage();
  const startedAtMs = performance.now();
  let done = 0;
  const callers = Array.from({ length: CALLERS }, async () => {
    while (performance.now() - startedAtMs < forMs) {
      await work();
      done += 1;
    }
  });
  await Promise.all(callers);
  const elapsedMs = performance.now() - startedAtMs;
  const used = process.cpuUsage(cpu);
  const clientMs = (used.user + used.system) / 1000 / availableParallelism();
  return {
    perS: (1000 * done) / elapsedMs,
    clientTakenOutPerS: (1000 * done) / (elapsedMs - clientMs),
  };
}

/** Medians over rounds in which both sides take turns. */
async function compare(service: () => Promise<void>, bare: () => Promise<void>) {
  await rateOf(service, WARM_UP_MS);
  await rateOf(bare, WARM_UP_MS);
  const rounds: { service: Rate; bare: Rate }[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    rounds.push({ service: await rateOf(service), bare: await rateOf(bare) });
  }
  return {
    perS: median(rounds.map(round => round.service.perS)),
    barePerS: median(rounds.map(round => round.bare.perS)),
    ratio: median(rounds.map(round => round.service.perS / round.bare.perS)),
    clientTakenOutRatio: median(
      rounds.map(round => round.service.clientTakenOutPerS / round.bare.clientTakenOutPerS),
    ),
  };
}

const image = Buffer.concat([pngHeader(64, 64), randomBytes(IMAGE_BYTES - 33)]);
const body = JSON.stringify({ image_base64: image.toString('base64') });

async function submit(pool: Pool, plane: ControlPlaneProcess): Promise<string> {
  const answer = await pool.request({
    method: 'POST',
    path: '/v1/matting/jobs',
    headers: { ...plane.headers(), 'content-type': 'application/json' },
    body,
  });
  const text = await answer.body.text();
  if (answer.statusCode !== 202) throw new Error(`${answer.statusCode}: ${text}`);
  return text;
}

async function read(pool: Pool, path: string, headers: Record<string, string>): Promise<void> {
  const answer = await pool.request({ method: 'GET', path, headers });
  const text = await answer.body.text();
  if (answer.statusCode !== 200) throw new Error(`${answer.statusCode}: ${text}`);
}

/** Does the least that a promise on a disk costs: a file whole and durable under its name. */
async function writeDurably(directory: string, id: string): Promise<void> {
  const temporary = path.join(directory, `.${id}`);
  const file = await open(temporary, 'wx');
  await file.writeFile(image);
  await file.datasync();
  await file.close();
  await rename(temporary, path.join(directory, id));
  const handle = await open(directory, 'r');
  await handle.sync();
  await handle.close();
}

/** Opens a table for one row in one commit each, through the driver alone. */
async function openBareTable(databaseUrl: string) {
  const row = (id: string) => [id, id, 0, 0, 0];
  const insert =
    'insert into accounts (id, name, available, reserved, created_at) values (?, ?, ?, ?, ?)';
  if (databaseUrl.startsWith('sqlite:')) {
    const db = new DatabaseSync(databaseUrl.slice('sqlite:'.length), { timeout: 5000 });
    db.exec('pragma synchronous = full');
    const statement = db.prepare(insert);
    return {
      commit: async (id: string) => void statement.run(...row(id)),
      close: async () => db.close(),
    };
  }
  const pool = mysql.createPool(parseMysqlUrl(databaseUrl));
  return {
    commit: async (id: string) => void (await pool.query(insert, row(id))),
    close: () => pool.end(),
  };
}

async function openBareStore(plane: ControlPlaneProcess) {
  const directory = mkdtempSync(path.join(tmpdir(), 'matting-bench-'));
  const table = await openBareTable(plane.databaseUrl);
  const blobs = await openStorage(directory);
  const database = await openDatabase(plane.databaseUrl, { log: SILENT_LOG });
  const stores = createStores(database, { renderOutboxBody: () => '{}', settled: SETTLED_STEPS });
  return {
    /** One durable blob and one row committed. */
    write: async () => {
      const id = randomUUID();
      await writeDurably(directory, id);
      await table.commit(id);
    },
    /** The same through the store's own submission. */
    submit: async () => {
      const id = randomUUID();
      const hash = createHash('sha256').update(id).digest('hex');
      const writer = await blobs.createWriter(`inputs/${id}`);
      await writer.write(image);
      await writer.commit();
      const input = { blob: `inputs/${id}`, bytes: image.length, width: 64, height: 64 };
      const job: NewJob = {
        id,
        accountId: plane.accountId,
        apiKeyId: plane.apiKeyId,
        idempotencyKeyHash: hash,
        fingerprint: hash,
        class: 'async',
        outputFormat: 'png',
        input: { ...input, format: 'png' },
        sourceUrl: null,
      };
      const { kind } = await stores.queue.submit(job, { jobsInFlightMax: 1_000_000 });
      if (kind !== 'created') throw new Error(kind);
    },
    close: async () => {
      await table.close();
      await database.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

async function measure(databaseUrl?: string) {
  const plane = await startControlPlane(databaseUrl);
  const pool = new Pool(plane.origin, { connections: CALLERS });
  const bareStore = await openBareStore(plane);
  const job = await submit(pool, plane);
  const bareRoute = await startBareRoute(job);
  const barePool = new Pool(bareRoute.origin, { connections: CALLERS });
  try {
    const { job_id: jobId } = JSON.parse(job) as { job_id: string };
    const reads = await compare(
      () => read(pool, `/v1/matting/jobs/${jobId}`, plane.headers()),
      () => read(barePool, '/job', plane.headers()),
    );
    const submissions = await compare(
      async () => {
        await submit(pool, plane);
      },
      () => bareStore.write(),
    );
    const againstOwn = await compare(
      async () => {
        await submit(pool, plane);
      },
      () => bareStore.submit(),
    );
    return { submissions, againstOwn, reads, peakMemoryMiB: plane.peakMemory() / 2 ** 20 };
  } finally {
    await Promise.all([pool.destroy(), barePool.destroy()]);
    await bareStore.close();
    await bareRoute.close();
    await plane.close();
  }
}

function flat(prefix: string, figures: Awaited<ReturnType<typeof measure>>) {
  const { submissions, againstOwn, reads, peakMemoryMiB } = figures;
  return {
    [`${prefix}SubmissionsPerS`]: submissions.perS,
    [`${prefix}BareStorePerS`]: submissions.barePerS,
    [`${prefix}SubmissionsRatio`]: submissions.ratio,
    [`${prefix}SubmissionsRatioClientTakenOut`]: submissions.clientTakenOutRatio,
    [`${prefix}StoreSubmitPerS`]: againstOwn.barePerS,
    [`${prefix}StoreSubmitRatio`]: againstOwn.ratio,
    [`${prefix}StoreSubmitRatioClientTakenOut`]: againstOwn.clientTakenOutRatio,
    [`${prefix}ReadsPerS`]: reads.perS,
    [`${prefix}BareRoutePerS`]: reads.barePerS,
    [`${prefix}ReadsRatio`]: reads.ratio,
    [`${prefix}ReadsRatioClientTakenOut`]: reads.clientTakenOutRatio,
    [`${prefix}PeakMemoryMiB`]: peakMemoryMiB,
  };
}

let results: Record<string, unknown> = flat('sqlite', await measure());
if (findMariadb() === undefined) {
  console.error('no MariaDB here: only SQLite was measured');
} else {
  await startMariadb({ durable: true });
  const database = await createTestDatabase('mysql', { migrated: false });
  try {
    results = { ...results, ...flat('mariadb', await measure(database.url)) };
  } finally {
    await database.close();
  }
}
writeResults('control-plane', results);
