/**
 * Processor time of a control plane's process for a job of 2 megapixels, its files streamed through
 * it or gone straight between node and bucket: two control planes in turns in one run, a versitygw
 * and stub nodes, all processes of their own. `job` is a synchronous submission of the raw picture;
 * `download` its result by the link (in the direct way a redirect, whose end does not count).
 *
 * node bench/direct-storage.ts [--jobs 30] [--rounds 4]
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { pino } from 'pino';
import { openStores } from '../control-plane/src/store/stores.ts';
import { TEST_TOKEN } from '../control-plane/test/nodes/scripted-node.ts';
import { pngHeader } from '../control-plane/test/support/test-app.ts';
import { CREDENTIALS_ENV, createObjectStore } from '../test/support/object-storage/object-store.ts';
import { cpuMsOf } from './processes.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const { values } = parseArgs({
  options: {
    jobs: { type: 'string', default: '30' },
    rounds: { type: 'string', default: '4' },
  },
});
const jobs = Number(values.jobs);
const rounds = Number(values.rounds);
const CALLERS = 2;
const NODES = 2;
/** A photo of 2 megapixels as JPEG, and its cut-out as PNG. */
const INPUT_BYTES = 600_000;
const RESULT_BYTES = 2_500_000;
const MAIN = path.join(import.meta.dirname, '../control-plane/src/main.ts');
const NODES_MAIN = path.join(import.meta.dirname, 'direct-nodes.ts');
const children: ChildProcess[] = [];
const directories: string[] = [];

interface Plane {
  readonly way: 'streamed' | 'direct';
  readonly pid: number;
  readonly url: string;
  readonly key: string;
}

async function startPlane(way: Plane['way'], storageUrl: string, origin: string): Promise<Plane> {
  const directory = mkdtempSync(path.join(tmpdir(), 'matting-bench-'));
  directories.push(directory);
  const databaseUrl = `sqlite:${path.join(directory, 'bench.sqlite')}`;
  const log = pino({ level: 'silent' });
  const stores = await openStores(databaseUrl, {
    log,
    migrations: 'run',
    renderOutboxBody: () => '{}',
  });
  const account = await stores.accounts.create('bench');
  if (account === undefined) throw new Error('no account was made');
  await stores.ledger.grant(account.id, 1_000_000, 'bench');
  const { token: key } = await stores.apiKeys.create(account.id, 'bench');
  await stores.close();
  const direct = String(way === 'direct');
  const child = spawn(process.execPath, [MAIN], {
    env: {
      ...CREDENTIALS_ENV,
      MATTING_DATA_DIR: directory,
      MATTING_DATABASE_URL: databaseUrl,
      MATTING_STORAGE_URL: storageUrl,
      MATTING_DIRECT_STORAGE: direct,
      MATTING_RESULT_DOWNLOADS: way === 'direct' ? 'redirect' : 'stream',
      MATTING_PORT: '0',
      MATTING_REGISTRY_PORT: '0',
      MATTING_METRICS_PORT: '0',
      MATTING_BASE_URL: 'http://127.0.0.1',
      MATTING_NODE_TOKEN: TEST_TOKEN,
      MATTING_SUBMISSIONS_PER_MINUTE: '100000000',
    },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
  children.push(child);
  const { stdout } = child;
  if (stdout === null) throw new Error('the control plane has no output');
  for await (const line of createInterface(stdout)) {
    const entry = JSON.parse(line) as { msg?: string; http: number; registry: number };
    if (entry.msg !== 'listening') continue;
    // Read on, or its log would fill the pipe and stop it.
    stdout.resume();
    await startNodes(entry.registry, way === 'direct' ? origin : '');
    return { way, pid: child.pid ?? 0, url: `http://127.0.0.1:${entry.http}`, key };
  }
  throw new Error('the control plane ended before it listened');
}

async function startNodes(registryPort: number, origin: string): Promise<void> {
  const args = [NODES, RESULT_BYTES, registryPort, origin].map(String);
  const child = spawn(process.execPath, [NODES_MAIN, ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  children.push(child);
  await once(child.stdout, 'data');
}

const photo = Buffer.concat([pngHeader(1600, 1250), randomBytes(INPUT_BYTES)]);

/** @returns the path of the result's link */
async function cutOut({ url, key }: Plane): Promise<string> {
  const answer = await fetch(`${url}/v1/matting`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${key}`,
      'idempotency-key': randomUUID(),
      'content-type': 'image/png',
    },
    body: photo,
  });
  const job = (await answer.json()) as { result?: { url: string } };
  if (job.result === undefined) throw new Error(JSON.stringify(job));
  return new URL(job.result.url).pathname;
}

async function download({ url }: Plane, link: string): Promise<void> {
  const answer = await fetch(url + link, { redirect: 'manual' });
  if (answer.status !== 200 && answer.status !== 302) throw new Error(`${answer.status}`);
  await answer.arrayBuffer();
}

/** Milliseconds of processor time each. */
async function cost(plane: Plane, count: number): Promise<{ job: number; download: number }> {
  const links: string[] = [];
  let left = count;
  const beforeMs = cpuMsOf(plane.pid);
  const callers = Array.from({ length: CALLERS }, async () => {
    while (left-- > 0) links.push(await cutOut(plane));
  });
  await Promise.all(callers);
  const betweenMs = cpuMsOf(plane.pid);
  for (const link of links) await download(plane, link);
  const afterMs = cpuMsOf(plane.pid);
  return { job: (betweenMs - beforeMs) / count, download: (afterMs - betweenMs) / count };
}

const store = await createObjectStore('versitygw');
try {
  const planes = [
    await startPlane('streamed', store.url({ prefix: 'streamed' }), store.endpoint),
    await startPlane('direct', store.url({ prefix: 'direct' }), store.endpoint),
  ];
  // What runs for the first time is compiled, and compiled anew once it is seen to run often.
  for (const plane of planes) await cost(plane, jobs);
  const costs = { streamed: [], direct: [] } as Record<
    Plane['way'],
    Awaited<ReturnType<typeof cost>>[]
  >;
  for (let round = 0; round < rounds; round += 1) {
    for (const plane of planes) costs[plane.way].push(await cost(plane, jobs));
  }
  const of = (way: Plane['way'], what: 'job' | 'download') =>
    median(costs[way].map(one => one[what]));
  const both = (way: Plane['way']) => median(costs[way].map(one => one.job + one.download));
  writeResults('direct-storage', {
    ...{ jobs, rounds, inputBytes: photo.length, resultBytes: RESULT_BYTES },
    streamedJobMs: of('streamed', 'job'),
    directJobMs: of('direct', 'job'),
    streamedDownloadMs: of('streamed', 'download'),
    directDownloadMs: of('direct', 'download'),
    jobRatio: of('direct', 'job') / of('streamed', 'job'),
    wholeRatio: both('direct') / both('streamed'),
  });
} finally {
  for (const child of children) child.kill('SIGKILL');
  await store.close();
  for (const directory of directories) rmSync(directory, { recursive: true, force: true });
}
