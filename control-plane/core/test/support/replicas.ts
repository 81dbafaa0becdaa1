/** Control planes in this process that share a database and a storage directory. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Database } from '@matting/database/database.ts';
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { ScriptedNode } from '@matting/nodes/test/scripted-node.ts';
import {
  createTestDatabase,
  type GroupTest,
  type TestDatabase,
} from '@matting/test-support/database.ts';
import type { ControlPlane } from '../../open-core.ts';
import type { Package } from '../../package.ts';
import type { Stores } from '../../stores.ts';
import { fundedCaller, storeFixtures } from '../fixtures.ts';
import { until } from '../harness.ts';
import { planeEnv } from './plane-env.ts';
import { pngHeader } from './test-app.ts';
import { openTestPlane } from './test-plane.ts';

const BASE_URL = 'http://links.example';

export interface ReplicasOptions {
  readonly packages?: readonly Package[];
  readonly replicas?: number;
  readonly env?: Readonly<Record<string, string>>;
  /** Closed with them; default: a new one. */
  readonly database?: TestDatabase;
  readonly databaseUrl?: (url: string) => Promise<string>;
  /** Default: a new temporary directory. */
  readonly storageDir?: string;
}

export interface Caller {
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly token: string;
}

export interface RestAnswer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: whatever JSON a test expects
  readonly body: any;
}

export interface Request {
  readonly replica?: number;
  readonly path?: string;
  readonly key?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export class Replicas {
  planes: readonly ControlPlane[] = [];
  database!: Database;
  stores!: Stores;
  readonly nodes: ScriptedNode[] = [];
  #test!: TestDatabase;
  #directory!: string;

  /** All at once, on an empty, unmigrated database. */
  static async open(dialect: DatabaseDialect, options: ReplicasOptions = {}): Promise<Replicas> {
    const replicas = new Replicas();
    await replicas.#open(dialect, options);
    return replicas;
  }

  static use(
    test: Pick<GroupTest, 'before' | 'after'>,
    dialect: DatabaseDialect,
    options: ReplicasOptions | (() => ReplicasOptions) = {},
  ): Replicas {
    const replicas = new Replicas();
    test.before(() => replicas.#open(dialect, typeof options === 'function' ? options() : options));
    test.after.always(() => replicas.close());
    return replicas;
  }

  async #open(dialect: DatabaseDialect, options: ReplicasOptions): Promise<void> {
    const { packages = [] } = options;
    const directory = await mkdtemp(path.join(tmpdir(), 'matting-replicas-'));
    const test = options.database ?? (await createTestDatabase(dialect, { migrated: false }));
    this.#directory = directory;
    this.#test = test;
    const env = {
      ...planeEnv(directory, (await options.databaseUrl?.(test.url)) ?? test.url),
      MATTING_SUBMISSIONS_PER_MINUTE: '1000000',
      MATTING_READS_PER_MINUTE: '1000000',
      ...(options.storageDir && { MATTING_STORAGE_URL: `file://${options.storageDir}` }),
      ...options.env,
    };
    const starts = await Promise.allSettled(
      Array.from({ length: options.replicas ?? 2 }, (_, index) =>
        openTestPlane(env, `replica-${index}`, { packages }),
      ),
    );
    this.planes = starts.flatMap(start => (start.status === 'fulfilled' ? [start.value] : []));
    const failed = starts.find(start => start.status === 'rejected');
    if (failed !== undefined) {
      // A started replica would keep the test's process alive.
      await this.close();
      throw failed.reason;
    }
    this.database = await test.open();
    this.stores = storeFixtures({ packages }).storesOn(this.database);
  }

  async addNode(options: Parameters<typeof ScriptedNode.start>[0] = {}): Promise<ScriptedNode> {
    const node = await ScriptedNode.start(options);
    this.nodes.push(node);
    await node.join(this.plane(0).ports.registry);
    const ready = async (index: number) => (await fetch(this.url(index, '/readyz'))).ok;
    for (const index of this.planes.keys()) await until(() => ready(index), 'readiness');
    return node;
  }

  get databaseUrl(): string {
    return this.#test.url;
  }

  plane(replica: number): ControlPlane {
    const plane = this.planes[replica];
    assert.ok(plane, `there is no replica ${replica}`);
    return plane;
  }

  url(replica: number, place: string): string {
    return `http://127.0.0.1:${this.plane(replica).ports.http}${place}`;
  }

  async isUnready(replica: number): Promise<boolean> {
    const answer = await fetch(this.url(replica, '/readyz'));
    return answer.status === 503 && /database/.test(await answer.text());
  }

  createCaller(credits: number): Promise<Caller> {
    return fundedCaller(this.stores, credits);
  }

  async addKey(accountId: string): Promise<Caller> {
    const { key, token } = await this.stores.apiKeys.create(accountId, 'test');
    return { accountId, apiKeyId: key.id, token };
  }

  post(caller: Caller, body: unknown, request: Request = {}): Promise<RestAnswer> {
    const { replica = 0, path: place = '/v1/matting', key = randomUUID() } = request;
    const sent = { ...request, path: place, key };
    return answered(submitTo(this.url(replica, ''), caller.token, body, sent));
  }

  get(caller: Caller, place: string, request: Request = {}): Promise<RestAnswer> {
    const { replica = 0, key = randomUUID(), headers } = request;
    return answered(
      fetch(this.url(replica, place), { headers: { ...headersOf(caller.token, key), ...headers } }),
    );
  }

  async download(replica: number, link: string): Promise<{ status: number; bytes: Buffer }> {
    assert.ok(link.startsWith(BASE_URL), link);
    const answer = await fetch(this.url(replica, link.slice(BASE_URL.length)));
    return { status: answer.status, bytes: Buffer.from(await answer.arrayBuffer()) };
  }

  async close(): Promise<void> {
    const hurry = AbortSignal.abort();
    await Promise.all(this.planes.map(plane => plane.drain(hurry)));
    for (const node of this.nodes) await node.down();
    await this.#test?.close();
    await rm(this.#directory, { recursive: true, force: true });
  }
}

function headersOf(token: string, key: string) {
  return { authorization: `Bearer ${token}`, 'idempotency-key': key };
}

/** @param origin without a trailing slash */
export function submitTo(
  origin: string,
  token: string,
  body: unknown,
  request: Omit<Request, 'replica'> = {},
): Promise<Response> {
  const { path: place = '/v1/matting/jobs', key = randomUUID(), headers, signal = null } = request;
  return fetch(`${origin}${place}`, {
    method: 'POST',
    headers: { ...headersOf(token, key), 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
    signal,
  });
}

export async function resultPath(port: number, token: string, jobId: string): Promise<string> {
  const headers = headersOf(token, 'read');
  const answer = await fetch(`http://127.0.0.1:${port}/v1/matting/jobs/${jobId}`, { headers });
  const { result } = (await answer.json()) as { result: { url: string } };
  return new URL(result.url).pathname;
}

async function answered(sent: Promise<Response>): Promise<RestAnswer> {
  const answer = await sent;
  const text = await answer.text();
  const body = text === '' ? undefined : JSON.parse(text);
  return { status: answer.status, headers: answer.headers, body };
}

export function pictureBody(more: Record<string, unknown> = {}) {
  const picture = Buffer.concat([pngHeader(4, 3), Buffer.from(randomUUID())]);
  return { image_base64: picture.toString('base64'), ...more };
}
