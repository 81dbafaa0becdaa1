/**
 * What a good account's synchronous requests, Base64 and URL, take beside somebody hostile, against
 * what they take alone. One control plane on SQLite and stub nodes, all real processes; each round
 * measures both, in turns, so that what else the machine does meets both. The manners, of which the
 * command line may name some:
 *
 * | manner            | who                                                                     |
 * |-------------------|-------------------------------------------------------------------------|
 * | account           | an account that takes all it can (test/chaos/hostile-account.ts) and    |
 * |                   | keeps hundreds of jobs waiting                                          |
 * | half-sent-forms   | strangers with 10,000 connections whose forms never end                 |
 * | hostile-bodies    | an account that sends one body of bench/hostile-bodies.ts after another |
 * |                   | on four connections, as fast as they are taken                          |
 * Needs: portal.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { createStores, type Stores } from '../control-plane/core/stores.ts';
import { TEST_TOKEN } from '../control-plane/core/test/scripted-node.ts';
import { pngHeader } from '../control-plane/core/test/support/test-app.ts';
import { openDatabase } from '../control-plane/database/connect.ts';
import { SETTLED_STEPS } from '../control-plane/portal/settled-steps.ts';
import { HostileAccount } from '../test/chaos/hostile-account.ts';
import { at } from '../test/support/at.ts';
import { SILENT_LOG } from '../test/support/database.ts';
import { HalfSentForms } from '../test/support/half-sent-forms.ts';
import { Random } from '../test/support/random.ts';
import { HOSTILE_BODIES, wireOf } from './hostile-bodies.ts';
import { sendRaw } from './raw-request.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const NODES = 8;
/** About what a photo takes on a node without a GPU. */
const IMAGE_MS = 1000;
const ROUNDS = 3;
/** Requests of each kind in a round. */
const REQUESTS = 12;
/** Jobs with their image that the hostile account has waiting, and a third as many without. */
const BACKLOG_JOBS = 360;
/** Connections that strangers keep opening. */
const HALF_SENT = 10_000;
/** Connections that send hostile bodies. */
const BODIES_AT_ONCE = 4;
const WANTED_RATIO = 1.5;

const BASE_URL = 'http://127.0.0.1';

const MAIN = path.join(import.meta.dirname, '../control-plane/main.ts');
const STUBS = path.join(import.meta.dirname, 'stub-nodes.ts');

interface Account {
  readonly id: string;
  readonly token: string;
}

async function startControlPlane(directory: string, databaseUrl: string, children: ChildProcess[]) {
  const child = spawn(process.execPath, [MAIN], {
    env: {
      MATTING_DATA_DIR: directory,
      MATTING_DATABASE_URL: databaseUrl,
      MATTING_SECRETS_KEY: 'ab'.repeat(32),
      MATTING_PORT: '0',
      MATTING_REGISTRY_PORT: '0',
      MATTING_METRICS_PORT: '0',
      MATTING_BASE_URL: BASE_URL,
      MATTING_NODE_TOKEN: TEST_TOKEN,
      MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
      MATTING_ALLOW_HTTP_CALLBACKS: 'true',
    },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
  children.push(child);
  for await (const line of createInterface(child.stdout!)) {
    const entry = JSON.parse(line) as { msg?: string; http: number; registry: number };
    if (entry.msg !== 'listening') continue;
    // Read on, or its log would fill the pipe and stop it.
    child.stdout?.resume();
    return { url: `http://127.0.0.1:${entry.http}`, registry: entry.registry };
  }
  throw new Error('the control plane ended before it listened');
}

async function startNodes(registry: number, children: ChildProcess[]): Promise<void> {
  const args = [STUBS, String(NODES), String(IMAGE_MS), '0', String(registry)];
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  children.push(child);
  await once(child.stdout!, 'data');
}

async function createAccount(stores: Stores, name: string): Promise<Account> {
  const account = await stores.accounts.create(name);
  if (account === undefined) throw new Error('the bench needs a database of its own');
  await stores.ledger.grant(account.id, 1_000_000, 'bench');
  const { token } = await stores.apiKeys.create(account.id, 'bench');
  return { id: account.id, token };
}

function picture(): string {
  return Buffer.concat([pngHeader(64, 64), randomBytes(10_000)]).toString('base64');
}

async function post(url: string, { token }: Account, body: object): Promise<number> {
  const answer = await fetch(url, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${token}`,
      'idempotency-key': randomUUID(),
      'content-type': 'application/json',
    },
    body: JSON.stringify(body),
  });
  await answer.arrayBuffer();
  return answer.status;
}

/** Milliseconds of one request that must succeed. */
async function timed(url: string, account: Account, body: object): Promise<number> {
  const beganMs = performance.now();
  const status = await post(`${url}/v1/matting`, account, body);
  if (status !== 200) throw new Error(`the good account was answered with ${status}`);
  return performance.now() - beganMs;
}

/** One round's control plane, on a database of its own. */
interface Service {
  readonly url: string;
  readonly stores: Stores;
  readonly good: Account;
  readonly hostile: Account;
  readonly sourceUrl: string;
}

interface Times {
  readonly base64: number[];
  readonly fromUrl: number[];
}

async function measure({ url, good, sourceUrl }: Service, into: Times): Promise<void> {
  for (let count = 0; count < REQUESTS; count += 1) {
    into.base64.push(await timed(url, good, { image_base64: picture() }));
    const image_url = `${sourceUrl}/${randomUUID()}`;
    into.fromUrl.push(await timed(url, good, { image_url }));
  }
}

/** Begins to be hostile; the returned function ends it, and says what was answered. */
type Manner = (service: Service, seed: number) => Promise<() => Promise<string>>;

/** Has all it can have, and leaves its jobs behind. */
const beAccount: Manner = async (service, seed) => {
  const { url, stores, hostile } = service;
  const tarpit = createServer(request => request.resume());
  tarpit.listen(0, '127.0.0.1');
  await once(tarpit, 'listening');
  const tarpitUrl = `http://127.0.0.1:${(tarpit.address() as AddressInfo).port}`;
  // First, since held uploads will make its own submissions wait.
  for (let count = 0; count < BACKLOG_JOBS; count += 1) {
    await submit(service, { image_base64: picture() });
    if (count % 3 > 0) continue;
    await submit(service, { image_url: `${tarpitUrl}/${seed}-${count}` });
  }
  const account = await HostileAccount.start({
    urls: [url],
    accountId: hostile.id,
    apiKey: hostile.token,
    random: new Random(seed),
    picture: picture(),
  });
  return async () => {
    const { jobs: waiting } = await stores.jobs.queued();
    const answers = account.inWords();
    await account.stop();
    tarpit.close();
    tarpit.closeAllConnections();
    if (waiting < BACKLOG_JOBS / 3) throw new Error(`only ${waiting} jobs waited beside it`);
    return answers;
  };
};

/** Each connection that is closed is opened anew. */
const beStrangers: Manner = async ({ url }) => {
  const { port, origin } = new URL(url);
  const head = [
    'POST /account/sign-in HTTP/1.1',
    'Host: x',
    `Origin: ${new URL(BASE_URL).origin}`,
    `Cookie: __Host-matting-visitor=${'a'.repeat(43)}`,
    'Content-Type: application/x-www-form-urlencoded',
    'Content-Length: 8000',
  ];
  const forms = { port: Number(port), heads: [head], connections: HALF_SENT, networks: 256 };
  const flood = new HalfSentForms(forms);
  flood.start();
  while (flood.ended === 0) await delay(10);
  return async () => {
    const { began, ended } = flood;
    flood.stop();
    return `${began} half-sent forms to ${origin}, of which ${ended} were ended`;
  };
};

/** What is refused early is sent again at once. */
const beBodies: Manner = async ({ url, hostile }) => {
  const ended = new AbortController();
  const { signal } = ended;
  const answers = new Map<number, number>();
  let sentBytes = 0;
  const send = async (first: number) => {
    for (let turn = first; !signal.aborted; turn += 1) {
      const body = at(HOSTILE_BODIES, turn % HOSTILE_BODIES.length);
      const headers = {
        authorization: `Bearer ${hostile.token}`,
        'idempotency-key': randomUUID(),
        'content-type': body.type,
        'transfer-encoding': 'chunked',
      };
      const coded = { ...body, chunkBytes: body.chunkBytes ?? 64 * 1024 };
      const request = { origin: url, path: body.path, headers, body: wireOf(coded), signal };
      const { status, bytesSent } = await sendRaw(request);
      answers.set(status, (answers.get(status) ?? 0) + 1);
      sentBytes += bytesSent;
    }
  };
  const share = Math.floor(HOSTILE_BODIES.length / BODIES_AT_ONCE);
  const sending = Array.from({ length: BODIES_AT_ONCE }, (_, index) => send(index * share));
  return async () => {
    ended.abort();
    await Promise.all(sending);
    const told = [...answers].map(([status, count]) => `${status} x ${count}`).join(', ');
    return `${Math.round(sentBytes / 2 ** 20)} MiB of hostile bodies: ${told}`;
  };
};

const MANNERS: Readonly<Record<string, Manner>> = {
  account: beAccount,
  'half-sent-forms': beStrangers,
  'hostile-bodies': beBodies,
};

async function submit({ url, hostile }: Service, body: object): Promise<void> {
  const status = await post(`${url}/v1/matting/jobs`, hostile, body);
  if (status !== 202) throw new Error(`the backlog was answered with ${status}`);
}

async function measureRound(round: number, manner: Manner, times: Measured): Promise<void> {
  const directory = mkdtempSync(path.join(tmpdir(), 'matting-bench-'));
  const databaseUrl = `sqlite:${path.join(directory, 'matting.sqlite')}`;
  const source = createServer((_request, response) => {
    response.end(Buffer.concat([pngHeader(64, 64), randomBytes(10_000)]));
  });
  source.listen(0, '127.0.0.1');
  await once(source, 'listening');
  const children: ChildProcess[] = [];
  try {
    const { url, registry } = await startControlPlane(directory, databaseUrl, children);
    await startNodes(registry, children);
    const database = await openDatabase(databaseUrl, { log: SILENT_LOG });
    const stores = createStores(database, { renderOutboxBody: () => '{}', settled: SETTLED_STEPS });
    const good = await createAccount(stores, 'good');
    const hostile = await createAccount(stores, 'hostile');
    const sourceUrl = `http://127.0.0.1:${(source.address() as AddressInfo).port}`;
    const service = { url, stores, good, hostile, sourceUrl };
    // Nodes are proven, and every path was taken once.
    await measure(service, { base64: [], fromUrl: [] });
    await measure(service, times.alone);
    const end = await manner(service, round);
    try {
      await measure(service, times.beside);
    } finally {
      times.answers = await end();
    }
    await stores.close();
  } finally {
    for (const child of children) child.kill('SIGKILL');
    source.close();
    source.closeAllConnections();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** What one manner was measured with. */
interface Measured {
  readonly alone: Times;
  readonly beside: Times;
  answers: string;
}

function figuresOf({ alone, beside, answers }: Measured) {
  for (const values of [alone.base64, alone.fromUrl, beside.base64, beside.fromUrl]) {
    values.sort((a, b) => a - b);
  }
  const p90 = (values: readonly number[]) => at(values, Math.floor(0.9 * values.length));
  return {
    requestsOfEach: alone.base64.length,
    base64AloneMedianMs: median(alone.base64),
    base64BesideMedianMs: median(beside.base64),
    base64Ratio: median(beside.base64) / median(alone.base64),
    base64P90Ratio: p90(beside.base64) / p90(alone.base64),
    urlAloneMedianMs: median(alone.fromUrl),
    urlBesideMedianMs: median(beside.fromUrl),
    urlRatio: median(beside.fromUrl) / median(alone.fromUrl),
    urlP90Ratio: p90(beside.fromUrl) / p90(alone.fromUrl),
    hostileAnswers: answers,
  };
}

const wanted = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(MANNERS);
const none = (): Times => ({ base64: [], fromUrl: [] });
const measured = new Map<string, Measured>();
for (let round = 1; round <= ROUNDS; round += 1) {
  for (const name of wanted) {
    const manner = MANNERS[name];
    if (manner === undefined) throw new Error(`no manner ${name}: ${Object.keys(MANNERS)}`);
    const times = measured.get(name) ?? { alone: none(), beside: none(), answers: '' };
    measured.set(name, times);
    await measureRound(round, manner, times);
  }
}
const figures = [...measured].map(([name, times]) => [name, figuresOf(times)]);
writeResults('hostile-neighbour', {
  nodes: NODES,
  imageMs: IMAGE_MS,
  ratioWanted: WANTED_RATIO,
  manners: Object.fromEntries(figures),
});
