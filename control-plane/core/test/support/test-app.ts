/** The HTTP application on SQLite, without a dispatcher: tests end jobs themselves. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { KeyPolicy } from '@matting/accounts/keys/key-policy.ts';
import type { Database } from '@matting/database/database.ts';
import { OutgoingGuard } from '@matting/http/outgoing/outgoing-guard.ts';
import type { ResolveHost } from '@matting/http/outgoing/resolve-host.ts';
import type { NodeAbility, NodeSnapshot } from '@matting/nodes/node-view.ts';
import type { Environment } from '@matting/program/env.ts';
import { MetricSet } from '@matting/program/metric-set.ts';
import type { ContractError } from '@matting/proto/contract/errors.ts';
import type { Sight } from '@matting/proto/contract/finishing.ts';
import type { JobFailure } from '@matting/queue/job.ts';
import type { Claim } from '@matting/queue/lease-rules.ts';
import { type BlobStore, writeBlob } from '@matting/storage/blob-store.ts';
import type { GroupTest } from '@matting/test-support/database.ts';
import type { ExecutionContext } from 'ava';
import type {
  FastifyContextConfig,
  FastifyInstance,
  LightMyRequestResponse,
  RouteOptions,
} from 'fastify';
import { pino } from 'pino';
import {
  composeOperatorServices,
  composeServices,
  type Services,
} from '../../compose-use-cases.ts';
import { type Config, loadConfig } from '../../config.ts';
import type { ErasureObserver } from '../../deletion/delete-job.ts';
import { buildApp } from '../../http/public-app.ts';
import type { Readiness } from '../../http/readiness.ts';
import { matteBlob, thumbnailBlob } from '../../jobs/blob-names.ts';
import type { JobResult, StageTimings } from '../../jobs/job-outcome.ts';
import { OfferedModels } from '../../models/offered-models.ts';
import { interfacesOf, openPackages } from '../../open-core.ts';
import { openResources } from '../../open-resources.ts';
import type { Package, PackageParts } from '../../package.ts';
import { JobEvents } from '../../results/job-events.ts';
import type { LossObserver } from '../../results/lost-results.ts';
import type { ResultReaderBounds } from '../../results/result-download.ts';
import type { Stores } from '../../stores.ts';
import { AcceptanceGate } from '../../submission/acceptance-gate.ts';
import type { UploadBounds } from '../../submission/image-uploads.ts';
import { claimed } from '../fixtures.ts';

type AppOptions = Parameters<typeof buildApp>[1];

export const BASE_URL = 'https://matting.example.com';
export const ERRORS_PAGE = '# Errors\n';

export interface TestAppOptions extends Partial<Omit<Config, 'packages'>> {
  readonly packages?: readonly Package[];
  /** By package, instead of its settings from the environment; undefined: all from there. */
  readonly settings?: Readonly<Record<string, object | undefined>>;
  readonly credits?: number;
  readonly uploadSlots?: UploadBounds;
  readonly resultReaders?: ResultReaderBounds;
  readonly readingPace?: AppOptions['readingPace'];
  readonly onEnded?: AppOptions['onEnded'];
  /** Resolves callback hosts; default: a public address. */
  readonly resolveHost?: ResolveHost;
  readonly onAnswered?: AppOptions['onAnswered'];
  readonly logger?: AppOptions['logger'];
  readonly log?: Parameters<typeof composeServices>[0]['log'];
  readonly lossObserver?: Partial<LossObserver & ErasureObserver>;
}

export const TEST_SECRETS_KEY = Buffer.alloc(32, 7);
const noop = () => undefined;
const resolvePublic = async () => ['93.184.215.14'];
const IGNORED = { resultLost: noop, resultNotErased: noop };
const LEASE_MS = 60_000;
const HOLDER = 'test';

function configOf(env: Environment, options: TestAppOptions): Config {
  const { packages = [], settings: changes = {}, ...settings } = options;
  const config = loadConfig(env, packages);
  const configured = config.packages.map(({ use, settings: read }) => {
    if (!(use.name in changes)) return { use, settings: read };
    const change = changes[use.name];
    return { use, settings: change && { ...(read as object), ...change } };
  });
  return { ...config, ...settings, packages: configured };
}

/** A route that opens when the application gets ready. */
export interface ScopedRoute {
  readonly method: string;
  /** Has the scope's prefix; `:name` stands for one segment. */
  readonly url: string;
  readonly config: FastifyContextConfig;
}

type StoresOf<S extends Stores> = (stores: Stores, database: Database) => S;

export class TestApp<S extends Stores = Stores> {
  app!: FastifyInstance;
  readonly scopedRoutes: ScopedRoute[] = [];
  readonly routes: RouteOptions[] = [];
  services!: Services;
  plugged!: readonly PackageParts[];
  stores!: S;
  blobs!: BlobStore;
  readonly events = new JobEvents();
  storageDir!: string;
  accountId!: string;
  token!: string;
  sight: Sight | null = null;
  thumbnail: Buffer | undefined;
  /** As GET /v1/models, the field `model` and pages see them. */
  nodes: readonly NodeSnapshot[] = [];
  readonly #storesOf: StoresOf<S>;
  readonly #log = pino({ level: 'silent' });
  #resources!: Awaited<ReturnType<typeof openResources>>;
  #resultTtlMs!: number;
  readonly #switches: Switches = {
    refusal: undefined,
    advertised: undefined,
    readiness: { ready: true },
  };

  constructor(storesOf: StoresOf<S>) {
    this.#storesOf = storesOf;
  }

  async open(options: TestAppOptions = {}): Promise<void> {
    const directory = await mkdtemp(path.join(tmpdir(), 'matting-http-'));
    this.storageDir = path.join(directory, 'storage');
    const env = {
      MATTING_BASE_URL: options.baseUrl ?? BASE_URL,
      MATTING_DATA_DIR: directory,
      MATTING_STORAGE_URL: pathToFileURL(this.storageDir).href,
      MATTING_SECRETS_KEY: TEST_SECRETS_KEY.toString('hex'),
      MATTING_NODE_TOKEN: 'a-token-that-no-node-shows-here',
      MATTING_SYNC_WAIT_MS: '5000',
      MATTING_SUBMISSIONS_PER_MINUTE: '1000000',
      MATTING_READS_PER_MINUTE: '1000000',
    };
    const config = configOf(env, options);
    this.#resultTtlMs = config.resultTtlMs;
    this.#resources = await openResources(config, pino({ level: 'silent' }));
    const { blobs, database } = this.#resources;
    const stores = this.#storesOf(this.#resources.stores, database);
    this.stores = stores;
    this.blobs = blobs;
    const account = await stores.accounts.create('tester');
    assert.ok(account);
    this.accountId = account.id;
    const { credits = 1000, resolveHost = resolvePublic } = options;
    if (credits !== 0) await stores.ledger.grant(account.id, credits, 'test');
    this.token = (await stores.apiKeys.create(account.id, 'first key')).token;
    const switches = this.#switches;
    const parts = {
      ...this.#resources,
      stores,
      config,
      events: this.events,
      log: this.#log,
      observer: { ...IGNORED, ...options.lossObserver },
      guard: new OutgoingGuard({ policy: config, resolveHost }),
      uploadSlots: options.uploadSlots,
      resultReaders: options.resultReaders,
    };
    this.services = composeServices({
      ...parts,
      log: options.log ?? this.#log,
      acceptance: acceptanceBy(switches, stores),
      models: this.#offering(config),
      readiness: {
        check: async () => switches.readiness,
        get draining() {
          const { readiness } = switches;
          return !readiness.ready && readiness.causes.includes('draining');
        },
      },
    });
    const about = { version: '0.0.0-test', errorsPage: ERRORS_PAGE };
    this.plugged = await openPackages({
      ...parts,
      about,
      replicaId: HOLDER,
      metrics: new MetricSet(),
      services: this.services,
      operatorServices: composeOperatorServices(parts, noop),
      fleet: { snapshots: () => [...this.nodes] },
    });
    const interfaces = interfacesOf(this.plugged);
    const onRoute: AppOptions['onRoute'] = (_url, _method, route) => void this.routes.push(route);
    this.app = buildApp(this.services, { ...config, ...about, interfaces, onRoute }).app;
    this.app.addHook('onRoute', ({ method, url, config: route = {} }) => {
      for (const one of [method].flat())
        this.scopedRoutes.push({ method: one, url, config: route });
    });
    await this.app.ready();
  }

  #offering({ modelsOffered: offered }: Config): OfferedModels {
    return new OfferedModels({ offered, snapshots: () => this.nodes });
  }

  async listen(): Promise<number> {
    const { server } = this.app;
    if (!server.listening) await this.app.listen({ port: 0, host: '127.0.0.1' });
    return (server.address() as AddressInfo).port;
  }

  refuseNewJobs(error: ContractError | undefined): void {
    this.#switches.refusal = error;
  }

  advertise(nodes: readonly NodeAbility[] | undefined): void {
    this.#switches.advertised = nodes;
  }

  setReadiness(readiness: Readiness): void {
    this.#switches.readiness = readiness;
  }

  async createKey(policy: KeyPolicy = {}): Promise<string> {
    const name = `key ${randomUUID().slice(0, 8)}`;
    return (await this.stores.apiKeys.create(this.accountId, name, { policy })).token;
  }

  headers(more: Record<string, string | string[] | undefined> = {}): Record<string, string> {
    const all = {
      authorization: `Bearer ${this.token}`,
      'idempotency-key': randomUUID(),
      'content-type': 'application/json',
      ...more,
    };
    const sent = Object.entries(all).filter(([, value]) => value !== undefined);
    return Object.fromEntries(sent) as Record<string, string>;
  }

  /** `body` is sent as JSON unless it is text or bytes. */
  post(
    url: string,
    body: unknown,
    more: Record<string, string | string[] | undefined> = {},
  ): Promise<LightMyRequestResponse> {
    const isRaw = typeof body === 'string' || Buffer.isBuffer(body);
    const payload: string | Buffer | undefined = isRaw ? body : JSON.stringify(body);
    const request = { method: 'POST', url, headers: this.headers(more) } as const;
    return this.app.inject(payload === undefined ? request : { ...request, payload });
  }

  get(
    url: string,
    more: Record<string, string | string[] | undefined> = {},
  ): Promise<LightMyRequestResponse> {
    const headers = this.headers({ 'content-type': undefined, ...more });
    return this.app.inject({ method: 'GET', url, headers });
  }

  claim(jobId: string): Promise<Claim> {
    return claimed(this.stores, { id: jobId }, { holder: HOLDER, leaseMs: LEASE_MS });
  }

  async startJob(jobId: string): Promise<Claim> {
    const claim = await this.claim(jobId);
    if ((await this.stores.jobs.find(jobId))?.state === 'fetching') {
      const input = { blob: `inputs/${jobId}`, bytes: 3, width: 1, height: 1 };
      assert.ok(await this.stores.queue.inputStored(claim, { ...input, format: 'png' }));
    }
    assert.ok(await this.stores.queue.admitted(claim));
    return claim;
  }

  /**
   * Stores `bytes` as the result and tells this replica.
   * @returns the result, with its link's `token`
   */
  async succeedJob(
    jobId: string,
    bytes = Buffer.from('a cut-out'),
    timings: StageTimings = { decode: 12.34, infer: 250 },
    claim?: Claim,
  ): Promise<JobResult> {
    const held = claim ?? (await this.startJob(jobId));
    const job = await this.stores.jobs.find(jobId);
    const blob = `results/${jobId}-${held.fence}`;
    await writeBlob(this.blobs, blob, bytes);
    if (this.thumbnail) await writeBlob(this.blobs, thumbnailBlob(blob), this.thumbnail);
    const { resultTokens } = this.#resources;
    const stored = resultTokens.make(jobId);
    const result: JobResult = {
      blob,
      ...stored,
      format: job!.outputFormat,
      bytes: bytes.length,
      width: 2,
      height: 1,
      sha256: 'ab'.repeat(32),
      sight: this.sight,
      models: [{ name: job?.model ?? 'isnet', role: 'subject' }],
      thumbnailBytes: this.thumbnail?.length ?? null,
    };
    const matte = { blob: matteBlob(blob), bytes: 2 };
    if (job!.correctable !== null) await writeBlob(this.blobs, matte.blob, Buffer.from('me'));
    const success = { result, resultTtlMs: this.#resultTtlMs, timings };
    const kept = job!.correctable === null ? {} : { matte };
    assert.ok(await this.stores.queue.succeed(held, { ...success, ...kept }));
    this.events.jobFinal(jobId);
    return { ...result, token: resultTokens.open(jobId, stored) };
  }

  async failJob(jobId: string, failure: JobFailure): Promise<void> {
    assert.ok(await this.stores.queue.fail(await this.startJob(jobId), failure));
    this.events.jobFinal(jobId);
  }

  /** Runs `act` once for every job submitted from now on. `stop` rejects with its error. */
  onSubmitted(act: (jobId: string) => Promise<unknown>): { stop(): Promise<void> } {
    const seen = new Set<string>();
    const running: Promise<unknown>[] = [];
    const unsubscribe = this.events.onSubmitted(() => {
      running.push(
        this.stores.queue.listClaimable(1000).then(jobs => {
          const fresh = jobs.filter(({ id }) => !seen.has(id));
          for (const { id } of fresh) seen.add(id);
          return Promise.all(fresh.map(({ id }) => act(id)));
        }),
      );
    });
    return {
      stop: async () => {
        unsubscribe();
        await Promise.all(running);
      },
    };
  }

  /** Includes unfinished writes. */
  async storedFiles(): Promise<string[]> {
    const entries = await readdir(this.storageDir, { recursive: true, withFileTypes: true });
    return entries
      .filter(entry => entry.isFile())
      .map(entry => path.relative(this.storageDir, path.join(entry.parentPath, entry.name)))
      .sort();
  }

  get database(): Database {
    return this.#resources.database;
  }

  get databaseFile(): string {
    return path.join(path.dirname(this.storageDir), 'matting.sqlite');
  }

  async countJobs(): Promise<number> {
    return (await this.stores.queue.listClaimable(1000)).length;
  }

  async close(): Promise<void> {
    await this.app.close();
    this.#resources.tls.close();
    await this.stores.close();
    await rm(path.dirname(this.storageDir), { recursive: true, force: true });
  }
}

interface Switches {
  refusal: ContractError | undefined;
  advertised: readonly NodeAbility[] | undefined;
  readiness: Readiness;
}

function acceptanceBy(switches: Switches, { queue }: Stores) {
  const gate = new AcceptanceGate({
    queue,
    noNodeGraceMs: 0,
    advertised: () => switches.advertised,
    queueMegapixelsMax: 0,
  });
  const refuse = async () => {
    if (switches.refusal !== undefined) throw switches.refusal;
  };
  return {
    requireAble: gate.requireAble.bind(gate),
    requireOpen: refuse,
  };
}

export function testApps<S extends Stores>(given: readonly Package[], storesOf: StoresOf<S>) {
  /** @param context closes it after the test; absent: the caller does */
  async function openTestApp(
    options: TestAppOptions = {},
    context?: Pick<ExecutionContext, 'teardown'>,
  ): Promise<TestApp<S>> {
    const app = new TestApp(storesOf);
    await app.open({ packages: given, ...options });
    context?.teardown(() => app.close());
    return app;
  }

  function useTestApp(
    test: Pick<GroupTest, 'before' | 'after'>,
    options: TestAppOptions | (() => TestAppOptions) = {},
    then?: () => Promise<void>,
  ): TestApp<S> {
    const app = new TestApp(storesOf);
    test.before(async () => {
      await app.open({ packages: given, ...(typeof options === 'function' ? options() : options) });
      await then?.();
    });
    test.after.always(() => app.close());
    return app;
  }

  return { openTestApp, useTestApp };
}

export const { openTestApp, useTestApp } = testApps([], stores => stores);

/** The smallest PNG header of that size; no decoder takes it. */
export function pngHeader(width: number, height: number): Buffer {
  const bytes = Buffer.alloc(33);
  Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex').copy(bytes);
  bytes.writeUInt32BE(width, 16);
  bytes.writeUInt32BE(height, 20);
  bytes.set([8, 6, 0, 0, 0], 24);
  return bytes;
}

export function imageBody(more: Record<string, unknown> = {}): Record<string, unknown> {
  return { image_base64: pngHeader(4, 3).toString('base64'), ...more };
}

/** Buffers become files. */
export function formDataOf(fields: Readonly<Record<string, string | Buffer>>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'string') form.append(name, value);
    else form.append(name, new Blob([new Uint8Array(value)]), 'photo.jpg');
  }
  return form;
}
