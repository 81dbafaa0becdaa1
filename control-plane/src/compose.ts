/**
 * Makes every long-lived object of the control plane and ties them together: the one place that
 * knows all of them. The order of coming up:
 *
 * 1. Storage, secrets key, database: checked, migrated, proven. Nothing listens yet.
 * 2. Metrics, registry and public port listen; a port in use ends it and closes what was opened.
 * 3. The fleet is followed, the dispatcher claims, notifications are delivered, the sweeper sweeps.
 */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { AddressInfo, Server } from 'node:net';
import { hostname } from 'node:os';
import { setLogger } from '@grpc/grpc-js';
import type { Logger } from 'pino';
import { listening } from '#program/listen-error.ts';
import { TlsFiles } from '#program/tls/tls-files.ts';
import pkg from '../../package.json' with { type: 'json' };
import type { Config } from './config.ts';
import type { LeaseTiming } from './domain/lease.ts';
import { type DrainSteps, drainControlPlane } from './drain.ts';
import { buildOperatorApp } from './http/operator-app.ts';
import { buildApp } from './http/public-app.ts';
import { registerGauges } from './metric-gauges.ts';
import { ControlMetrics } from './metrics.ts';
import { Fleet } from './nodes/fleet.ts';
import { RefusedNodes } from './nodes/refused-nodes.ts';
import { type NodeTiming, RegistryServer } from './nodes/registry-server.ts';
import { CallbackSecrets } from './secrets/callback-secret.ts';
import { SecretBox } from './secrets/secret-box.ts';
import { loadOrCreateSecretsKey, requireSameSecretsKey } from './secrets/secrets-key.ts';
import { ReadAccount } from './services/account.ts';
import { Authenticate } from './services/authenticate.ts';
import { DatabaseTurns } from './services/database-turns.ts';
import { Dispatcher } from './services/dispatch/dispatcher.ts';
import { JobRunner } from './services/dispatch/job-runner.ts';
import { JobEvents } from './services/job-events.ts';
import { WebhookDelivery } from './services/notification/deliver-webhooks.ts';
import { renderOutboxBody } from './services/notification/outbox-body.ts';
import { OperateJobs } from './services/operator/operate-jobs.ts';
import { OperateNodes } from './services/operator/operate-nodes.ts';
import { RateLimits } from './services/rate-limits.ts';
import { ReadinessService } from './services/readiness.ts';
import { JobViews } from './services/reading/job-view.ts';
import { ReadJob } from './services/reading/read-job.ts';
import { ResultDownload } from './services/reading/result-download.ts';
import { ResultReaders } from './services/reading/result-readers.ts';
import { WaitForJob } from './services/reading/wait-for-job.ts';
import { AcceptanceGate } from './services/submission/acceptance.ts';
import { SubmitMatting } from './services/submission/submit-matting.ts';
import { ImageUploads } from './services/submission/submit-upload.ts';
import { Sweeper } from './services/sweeping/sweep.ts';
import { CallbackAddressCheck } from './sources/callback-url.ts';
import { ImageFetcher } from './sources/fetch-image.ts';
import { GuardedFetch } from './sources/guard/guarded-fetch.ts';
import { GuardedPost } from './sources/guard/guarded-post.ts';
import { OutgoingGuard } from './sources/guard/outgoing-guard.ts';
import type { BlobStore } from './storage/blob-store.ts';
import { openStorage } from './storage/open-storage.ts';
import { openStores, type Stores } from './store/stores.ts';

const ERRORS_PAGE = new URL('../../docs/errors.md', import.meta.url);

export interface ControlPlane {
  /** As bound, where the configuration said 0. */
  readonly ports: {
    readonly http: number;
    readonly registry: number;
    readonly metrics: number;
  };
  /** Ends it; once. */
  drain(hurry: AbortSignal): Promise<void>;
}

/**
 * Who holds this process's leases: told apart by the random part, recognised by the host's name.
 */
export function createReplicaId(): string {
  return `${hostname()
    .replaceAll(/[^A-Za-z0-9.-]/g, '-')
    .slice(0, 40)}-${randomUUID().slice(0, 8)}`;
}

/** Leases of a test that waits for them to run out; the usual ones where absent. */
export interface Timing {
  readonly jobs?: LeaseTiming;
  readonly nodes?: NodeTiming;
}

/**
 * Rejects with nothing left open: ConfigError's siblings (TlsFileError, StorageConfigError,
 * DatabaseOpenError, SchemaError, SecretsKeyError, ListenError) have one line for the operator.
 */
export async function openControlPlane(
  config: Config,
  log: Logger,
  replicaId: string,
  timing: Timing = {},
): Promise<ControlPlane> {
  // It would write to stderr, which is for the one line about an end.
  const grpcLog = (...words: unknown[]) => log.debug({ words }, 'grpc');
  setLogger({ error: grpcLog, info: grpcLog, debug: grpcLog });
  const tls = await TlsFiles.open(config.tls, { log });
  try {
    return await openOn({ tls, config, log, replicaId, timing });
  } catch (error) {
    tls.close();
    throw error;
  }
}

type Ground = Pick<Foundations, 'tls' | 'config' | 'log' | 'replicaId' | 'timing'>;

async function openOn(ground: Ground): Promise<ControlPlane> {
  const { config, log } = ground;
  const views = new JobViews(config.baseUrl);
  const errorsPage = await readFile(ERRORS_PAGE, 'utf8');
  const blobs = await openStorage(config.storageUrl);
  const secretsKey = config.secretsKey ?? (await loadOrCreateSecretsKey(config.dataDir));
  const stores = await openStores(config.databaseUrl, {
    log,
    renderOutboxBody: job => renderOutboxBody(views, job),
    webhookFirstWaitMs: config.webhookScheduleMs[0],
    migrations: 'run',
  });
  const previousKey = config.secretsKeyPrevious;
  const secrets = new CallbackSecrets(
    new SecretBox(secretsKey),
    previousKey === undefined ? [] : [new SecretBox(previousKey)],
  );
  for (const warning of config.warnings) log.warn(warning);
  warnOfOpenDoors(config, log);
  const parts = composeParts({ ...ground, views, errorsPage, blobs, stores, secrets });
  try {
    await requireSameSecretsKey(stores.secretsCanary, secretsKey, previousKey);
    await warnOfStrangeSecrets(stores, secrets, log);
    return await openParts(config, log, parts);
  } catch (error) {
    await drainControlPlane(parts.steps, { hurry: AbortSignal.abort(), log });
    throw error;
  }
}

interface Foundations {
  readonly config: Config;
  readonly log: Logger;
  readonly replicaId: string;
  readonly views: JobViews;
  /** The text of docs/errors.md. */
  readonly errorsPage: string;
  readonly tls: TlsFiles;
  readonly blobs: BlobStore;
  readonly stores: Stores;
  readonly secrets: CallbackSecrets;
  readonly timing: Timing;
}

/** The only ways round the outgoing guard, said by every start. */
function warnOfOpenDoors(config: Config, log: Logger): void {
  const { allowPrivateAddresses, allowedNetworks, allowHttpCallbacks } = config;
  if (allowPrivateAddresses) {
    log.warn('MATTING_ALLOW_PRIVATE_ADDRESSES: URLs of callers may reach any address');
  }
  if (allowedNetworks.length > 0) {
    log.warn({ allowedNetworks }, 'MATTING_ALLOWED_NETWORKS: URLs of callers may reach these');
  }
  if (allowHttpCallbacks) {
    log.warn('MATTING_ALLOW_HTTP_CALLBACKS: notifications may go over http, readable on the way');
  }
}

/** Secrets of a key that this replica was not given: their notifications wait for one that was. */
async function warnOfStrangeSecrets(stores: Stores, secrets: CallbackSecrets, log: Logger) {
  const count = await stores.webhookOutbox.countSealedWithOthers(secrets.keyIds);
  if (count === 0) return;
  log.warn({ count }, 'notifications wait whose secrets neither key of this replica opens');
}

type Parts = ReturnType<typeof composeParts>;

/** Opens nothing. */
function composeParts(foundations: Foundations) {
  const { config, log, replicaId, tls, blobs, stores, secrets, timing } = foundations;
  const events = new JobEvents();
  const guard = new OutgoingGuard({ policy: config, systemLookupsMax: config.systemLookupsMax });
  const metrics = new ControlMetrics();
  const failed = (what: string) => (err: unknown) => log.warn({ err }, what);
  const fleet = new Fleet({
    listMembers: () => stores.nodes.listLive(),
    nodeToken: config.nodeToken,
    security: tls.channelSecurity(),
    log: (level, message, fields) => log[level](fields, message),
  });
  const runner = new JobRunner({
    jobs: stores.jobs,
    blobs,
    fetcher: new ImageFetcher(new GuardedFetch({ guard })),
    events,
    observer: metrics,
    log,
    attemptTimeoutMs: config.attemptTimeoutMs,
    resultTtlMs: config.resultTtlMs,
    leaseTiming: timing.jobs,
  });
  const dispatcher = new Dispatcher({
    jobs: stores.jobs,
    fleet,
    runner,
    events,
    observer: metrics,
    log,
    holder: replicaId,
    noNodeGraceMs: config.noNodeGraceMs,
    leaseTiming: timing.jobs,
  });
  const refusedNodes = new RefusedNodes({ log, observer: metrics });
  const registry = new RegistryServer({
    host: config.registryHost,
    port: config.registryPort,
    nodeToken: config.nodeToken,
    credentials: tls.serverCredentials(),
    membership: stores.nodes,
    timing: timing.nodes,
    onMembersChanged: () => void fleet.refresh(),
    onRefused: refusal => refusedNodes.note(refusal),
    onFailure: failed('registry call failed'),
    onEnded: cause => metrics.registryEnded(cause),
  });
  const delivery = new WebhookDelivery({
    outbox: stores.webhookOutbox,
    guardedPost: new GuardedPost({ guard, policy: config }),
    secrets,
    events,
    observer: metrics,
    log,
    holder: replicaId,
    scheduleMs: config.webhookScheduleMs,
  });
  const http = composeHttp(foundations, { events, fleet, metrics, guard });
  const sweeper = new Sweeper({
    jobStore: stores.jobs,
    outbox: stores.webhookOutbox,
    blobStore: blobs,
    sweeps: stores.sweeps,
    holder: replicaId,
    jobRetentionMs: config.jobRetentionMs,
    logger: log,
    onFailure: () => metrics.sweepFailed(),
  });
  registerGauges(
    metrics.registry,
    {
      version: pkg.version,
      readiness: () => http.readiness.check(),
      fleet: () => fleet.counts(),
      running: () => dispatcher.running,
      downloading: () => dispatcher.downloading,
      uploads: () => http.uploads,
      databaseWaiting: () => http.databaseTurns.waiting,
      connections: () => http.connections.open,
      resultReaders: () => http.resultReaders.open,
      registryConnections: () => registry.connections,
      storageFreeBytes: () => blobs.freeBytes(),
      queueMegapixelsMax: config.queueMegapixelsMax,
      queued: () => stores.jobs.queued(),
      webhooksInFlight: () => delivery.inFlight,
      webhooksDue: () => stores.webhookOutbox.due(),
      ledgerAudits: () => stores.ledger.lastAudits(),
      sweepBacklog: () => stores.sweeps.backlog(config.jobRetentionMs),
    },
    (what, err) => log.warn({ err }, `${what} is not readable for the metrics`),
  );
  const operator = buildOperatorApp(
    {
      operateJobs: new OperateJobs(stores),
      operateNodes: new OperateNodes({
        nodes: stores.nodes,
        onChanged: () => void fleet.refresh(),
      }),
    },
    {
      baseUrl: config.baseUrl,
      operatorKey: config.operatorKey,
      metrics: metrics.registry,
      logger: log,
    },
  );
  const steps: DrainSteps = {
    announce: () => {
      http.readiness.startDraining();
      http.submitMatting.startDraining();
    },
    finishRuns: limitMs => dispatcher.stop(limitMs),
    giveRunsBack: () => dispatcher.hurry(),
    finishDeliveries: limitMs => delivery.stop(limitMs),
    giveDeliveriesBack: () => delivery.hurry(),
    handOverWaits: () => http.waitForJob.endAllWaits(),
    closePublic: () => http.app.close(),
    closePublicConnections: () => http.app.server.closeAllConnections(),
    closeRegistry: () => registry.close(),
    closeRest: [
      () => sweeper.stop(),
      () => fleet.close(),
      async () => tls.close(),
      () => operator.close(),
      () => stores.close(),
    ],
  };
  return { http, operator, fleet, dispatcher, delivery, registry, sweeper, steps };
}

async function openParts(config: Config, log: Logger, parts: Parts): Promise<ControlPlane> {
  const { http, operator, fleet, dispatcher, delivery, registry, sweeper, steps } = parts;
  const metricsPlace = { host: config.metricsHost, port: config.metricsPort };
  await listening({ variable: 'MATTING_METRICS_PORT', ...metricsPlace }, () =>
    operator.listen(metricsPlace),
  );
  const registryPlace = { host: config.registryHost, port: config.registryPort };
  await listening({ variable: 'MATTING_REGISTRY_PORT', ...registryPlace }, () => registry.listen());
  const httpPlace = { host: config.host, port: config.port };
  await listening({ variable: 'MATTING_PORT', ...httpPlace }, () => http.app.listen(httpPlace));
  const ports = {
    http: portOf(http.app.server),
    registry: registry.port,
    metrics: portOf(operator.server),
  };
  const { host, registryHost, metricsHost, baseUrl } = config;
  log.info({ ...ports, host, registryHost, metricsHost, baseUrl }, 'listening');
  await fleet.start();
  dispatcher.start();
  delivery.start();
  sweeper.start();
  return { ports, drain: hurry => drainControlPlane(steps, { hurry, log }) };
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}

interface HttpParts {
  readonly events: JobEvents;
  readonly fleet: Fleet;
  readonly metrics: ControlMetrics;
  readonly guard: OutgoingGuard;
}

function composeHttp(
  { config, log, views, errorsPage, blobs, stores, secrets }: Foundations,
  { events, fleet, metrics, guard }: HttpParts,
) {
  const { jobs } = stores;
  const databaseTurns = new DatabaseTurns({ turnsMax: stores.requestsMax });
  const readAccount = new ReadAccount(stores.ledger, stores.apiKeys, databaseTurns);
  const uploads = new ImageUploads(blobs);
  const waitForJob = new WaitForJob(jobs, events, databaseTurns);
  const resultReaders = new ResultReaders();
  const submitMatting = new SubmitMatting({
    jobs,
    readAccount,
    blobs,
    events,
    databaseTurns,
    acceptance: new AcceptanceGate({
      jobs,
      unroutableMs: () => fleet.unroutableMs(),
      noNodeGraceMs: config.noNodeGraceMs,
      queueMegapixelsMax: config.queueMegapixelsMax,
    }),
    callbackAddresses: new CallbackAddressCheck({ guard }),
    callbackSecrets: secrets,
    jobsInFlightMax: config.jobsInFlightMax,
    fieldPolicy: config,
  });
  const readiness = new ReadinessService(
    {
      checkDatabase: () => stores.check(),
      checkStorage: () => blobs.check(),
      hasBeenRoutable: () => fleet.hasBeenRoutable,
    },
    (cause, err) => log.warn({ err, cause }, 'not ready'),
  );
  const services = {
    uploads,
    submitMatting,
    waitForJob,
    readJob: new ReadJob(jobs, databaseTurns),
    jobViews: views,
    authenticator: new Authenticate(stores.apiKeys, databaseTurns),
    rateLimits: new RateLimits(stores.rateQuotas, {
      submissions: config.submissionsPerMinute,
      reads: config.readsPerMinute,
    }),
    resultDownload: new ResultDownload(jobs, blobs, databaseTurns),
    resultReaders,
    readAccount,
    readiness,
  };
  const { app, connections } = buildApp(services, {
    baseUrl: config.baseUrl,
    syncWaitMs: config.syncWaitMs,
    readsRequireIdempotencyKey: config.readsRequireIdempotencyKey,
    version: pkg.version,
    errorsPage,
    logger: log,
    onAnswered: answered => metrics.answered(answered),
    onDropped: () => metrics.connectionDropped(),
    onEnded: cause => metrics.connectionEnded(cause),
  });
  return {
    databaseTurns,
    resultReaders,
    app,
    connections,
    uploads,
    waitForJob,
    submitMatting,
    readiness,
  };
}
