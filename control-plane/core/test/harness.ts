/** Everything below the HTTP port on SQLite; nodes are scripted, over real gRPC. */
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import { ChannelCredentials } from '@grpc/grpc-js';
import type { Fleet } from '@matting/nodes/fleet.ts';
import type { Script } from '@matting/nodes/test/scripted-exchange.ts';
import {
  ScriptedNode,
  type ScriptedNodeOptions,
  TEST_TOKEN,
} from '@matting/nodes/test/scripted-node.ts';
import { isFinal } from '@matting/queue/job.ts';
import { LEASE_TIMING } from '@matting/queue/lease-rules.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import { openStorage } from '@matting/storage/open-storage.ts';
import { put } from '@matting/storage/test/blob-store.contract.ts';
import { createTestDatabase, type TestDatabase } from '@matting/test-support/database.ts';
import { until as untilHolds } from '@matting/test-support/waiting.ts';
import type { SerialFn } from 'ava';
import { pino } from 'pino';
import type { SourceFetcher } from '../attempts/downloads.ts';
import type { JobObserver } from '../attempts/job-observer.ts';
import { composeDispatch } from '../compose-use-cases.ts';
import type { Config } from '../config.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { Job } from '../jobs/job.ts';
import type { JobInput } from '../jobs/job-request.ts';
import type { NewJob } from '../queue/matting-submission.ts';
import { JobEvents } from '../results/job-events.ts';
import type { Stores } from '../stores.ts';
import { fundedCaller, storesOn } from './fixtures.ts';

/** A tenth of the service's interval. */
const POLL_MS = 100;
export const silent = pino({ level: 'silent' });

/** @param what in words; default: the condition's source */
export const until = (condition: () => boolean | Promise<boolean>, what = `${condition}`) =>
  untilHolds(what, condition);

export interface Replica {
  readonly fleet: Fleet;
  readonly dispatcher: Dispatcher;
  readonly events: JobEvents;
  readonly observed: string[];
}

export interface ReplicaOptions {
  readonly log?: typeof silent;
  readonly holder?: string;
  readonly noNodeGraceMs?: number;
  readonly modelsOffered?: readonly string[];
  readonly onDemand?: Config['onDemand'];
  readonly attemptTimeoutMs?: number;
  readonly pollMs?: number;
  readonly fetcher?: SourceFetcher;
  /** Replaces the stores' own: fails on command. */
  readonly queue?: Stores['queue'];
  readonly blobs?: BlobStore;
}

interface SubmitOptions {
  readonly bytes?: Uint8Array;
  readonly url?: string;
  readonly mode?: 'sync' | 'async';
  readonly format?: JobInput['format'];
  readonly caller?: { readonly accountId: string; readonly apiKeyId: string };
  /** A background's file is stored under its name. */
  readonly job?: Partial<NewJob>;
}

const NO_FETCHER: SourceFetcher = {
  fetchImage: () => Promise.reject(new Error('this test fetches nothing')),
};

type Fetching = Parameters<SourceFetcher['fetchImage']>;

/**
 * Downloads give the URL's text as a picture with this header.
 * @param before may wait, or reject
 */
export function fetcherOf(
  before: (...fetching: Fetching) => unknown = () => undefined,
  header: Partial<Awaited<ReturnType<SourceFetcher['fetchImage']>>['header']> = {},
): SourceFetcher {
  return {
    fetchImage: async (url, options) => {
      await before(url, options);
      await options.writer.write(Buffer.from(url));
      const png = { format: 'png', width: 5, height: 4, animated: false } as const;
      return { bytes: url.length, header: { ...png, ...header } };
    },
  };
}

export function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason));
  });
}

export const failureOf = ({ failure }: Job) => [failure?.code, failure?.retryable];

export function useHarness(
  test: SerialFn,
  blobs: () => BlobStore | undefined = () => undefined,
): Harness {
  const harness = new Harness();
  test.beforeEach(() => harness.open(blobs()));
  test.afterEach.always(() => harness.close());
  return harness;
}

export class Harness {
  directory!: string;
  database!: TestDatabase;
  stores!: Stores;
  blobs!: BlobStore;
  readonly replicas: Replica[] = [];
  readonly #nodes: ScriptedNode[] = [];
  accountId = '';
  apiKeyId = '';

  storageWith(other: Partial<BlobStore>): BlobStore {
    const { blobs } = this;
    return {
      createWriter: name => blobs.createWriter(name),
      openRead: (name, reading) => blobs.openRead(name, reading),
      stat: name => blobs.stat(name),
      remove: name => blobs.remove(name),
      listOlderThan: (olderThanMs, part) => blobs.listOlderThan(olderThanMs, part),
      check: () => blobs.check(),
      room: () => blobs.room(),
      ...other,
    };
  }

  static async open(): Promise<Harness> {
    const harness = new Harness();
    await harness.open();
    return harness;
  }

  async open(blobs?: BlobStore): Promise<void> {
    this.directory = await mkdtemp(path.join(tmpdir(), 'matting-dispatch-'));
    this.database = await createTestDatabase('sqlite');
    this.stores = storesOn(await this.database.open(), () => '{}');
    this.blobs = blobs ?? (await openStorage(this.directory));
    Object.assign(this, await fundedCaller(this.stores, 1000));
  }

  async close(): Promise<void> {
    for (const replica of this.replicas.splice(0)) {
      replica.dispatcher.hurry();
      await replica.dispatcher.stop(0);
      await replica.fleet.close();
    }
    for (const node of this.#nodes.splice(0)) await node.down();
    await this.database.close();
    await rm(this.directory, { recursive: true });
  }

  async addNode(how: Script | ScriptedNodeOptions = {}): Promise<ScriptedNode> {
    const node = await ScriptedNode.start(typeof how === 'function' ? { script: how } : how);
    await this.join(node);
    return node;
  }

  async join(node: ScriptedNode): Promise<void> {
    if (!this.#nodes.includes(node)) this.#nodes.push(node);
    await this.stores.nodes.register(node.registration, 600_000);
    for (const { fleet } of this.replicas) {
      await fleet.refresh();
      await this.untilRoutable(fleet, node.bootId);
    }
  }

  untilRoutable(fleet: Fleet, bootId: string): Promise<void> {
    return until(() => fleet.snapshots().some(node => node.bootId === bootId), 'a routable node');
  }

  async startReplica(options: ReplicaOptions = {}): Promise<Replica> {
    const events = new JobEvents();
    const observed: string[] = [];
    const { blobs = this.blobs } = options;
    const { fleet, dispatcher } = composeDispatch({
      config: {
        attemptTimeoutMs: options.attemptTimeoutMs ?? 60_000,
        resultTtlMs: 60_000,
        noNodeGraceMs: options.noNodeGraceMs ?? 60_000,
        onDemand: options.onDemand ?? false,
        modelsOffered: options.modelsOffered ?? [],
      },
      log: options.log ?? silent,
      nodeTokens: { shown: () => TEST_TOKEN },
      replicaId: options.holder ?? 'replica',
      stores: { ...this.stores, queue: options.queue ?? this.stores.queue },
      blobs,
      fetcher: options.fetcher ?? NO_FETCHER,
      resultTokens: { make: () => ({ token: randomUUID(), sealedToken: 'sealed' }) },
      events,
      observer: noting(observed),
      leaseTiming: LEASE_TIMING,
      pollMs: options.pollMs ?? POLL_MS,
      security: { credentials: ChannelCredentials.createInsecure(), options: {} },
    });
    await fleet.start();
    dispatcher.start();
    const replica = { fleet, dispatcher, events, observed };
    this.replicas.push(replica);
    for (const { bootId } of this.#nodes) await this.untilRoutable(fleet, bootId);
    return replica;
  }

  /** With a stored input or a URL; announced to the replicas as a handler would. */
  async submit(options: SubmitOptions = {}): Promise<string> {
    const id = randomUUID();
    const bytes = options.bytes ?? Buffer.from(`picture of ${id}`);
    const { accountId, apiKeyId } = options.caller ?? this;
    const hash = createHash('sha256').update(id).digest('hex');
    const outcome = await this.stores.queue.submit(
      {
        id,
        accountId,
        apiKeyId,
        idempotencyKeyHash: hash,
        fingerprint: hash,
        class: options.mode ?? 'sync',
        outputFormat: 'png',
        input: options.url === undefined ? await this.#store(id, bytes, options.format) : null,
        sourceUrl: options.url ?? null,
        ...options.job,
      },
      { jobsInFlightMax: 1000 },
    );
    assert.ok(outcome.kind === 'created');
    for (const { events } of this.replicas) events.jobSubmitted(outcome.job);
    return id;
  }

  async job(jobId: string): Promise<Job> {
    const job = await this.stores.jobs.find(jobId);
    assert.ok(job);
    return job;
  }

  async untilFinal(jobId: string): Promise<Job> {
    await until(async () => isFinal(await this.job(jobId)), 'the end of the job');
    return this.job(jobId);
  }

  async done(options: SubmitOptions = {}): Promise<Job> {
    return this.untilFinal(await this.submit(options));
  }

  async resultOf(job: Job): Promise<Buffer> {
    assert.ok(job.result, `the job is ${job.state}: ${job.failure?.detail}`);
    return buffer(await this.blobs.openRead(job.result.blob));
  }

  async assertMoneySettled(expected: { readonly charged: number }): Promise<void> {
    assert.deepEqual(await this.stores.ledger.check(), []);
    const credits = await this.stores.ledger.credits(this.accountId);
    assert.equal(credits?.reserved, 0);
    assert.equal(credits?.available, 1000 - expected.charged);
  }

  async blobNames(): Promise<string[]> {
    const names: string[] = [];
    for await (const name of this.blobs.listOlderThan(-3_600_000)) names.push(name);
    return names.sort();
  }

  async #store(
    id: string,
    bytes: Uint8Array,
    format: JobInput['format'] = 'png',
  ): Promise<JobInput> {
    const blob = `inputs/${id}`;
    await put(this.blobs, blob, Buffer.from(bytes));
    return { blob, bytes: bytes.length, format, width: 10, height: 10 };
  }
}

function noting(observed: string[]): JobObserver {
  return {
    jobAdmitted: () => observed.push('admitted'),
    attemptEnded: (kind, reason) => observed.push(`attempt ${kind} ${reason ?? ''}`.trim()),
    jobRefused: () => observed.push('refused again and again'),
    fetchEnded: outcome => observed.push(`fetch ${outcome}`),
    jobEnded: ({ outcome }) => observed.push(outcome),
    leaseLost: () => observed.push('lease lost'),
    takenOver: () => observed.push('taken over'),
    modelTimed: model => observed.push(`model ${model}`),
  };
}
