/**
 * Makes every long-lived object of the control plane and ties them together; compose-dispatch.ts
 * and compose-services.ts have the parts that tests make too. The order of coming up:
 *
 * 1. Storage, secrets key, database: checked, migrated, proven. Nothing listens yet.
 * 2. Metrics, registry and public port listen; a port in use ends it and closes what was opened.
 * 3. The fleet is followed, the dispatcher claims, notifications are delivered, the sweeper sweeps.
 */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Server } from 'node:net';
import { hostname } from 'node:os';
import { setLogger } from '@grpc/grpc-js';
import type { Logger } from 'pino';
import { listening } from '#program/listen-error.ts';
import { openFilesMax } from '#program/open-files.ts';
import { TlsFiles } from '#program/tls/tls-files.ts';
import { openTracing } from '#program/tracing/open-tracing.ts';
import type { Tracing } from '#program/tracing/span.ts';
import pkg from '../../package.json' with { type: 'json' };
import { type Background, composeBackground } from './compose-background.ts';
import { composeDispatch, type Dispatch } from './compose-dispatch.ts';
import { composeOperatorPort } from './compose-operator.ts';
import {
  type Conditions,
  composeConditions,
  composeServices,
  type Services,
} from './compose-services.ts';
import type { Config } from './config.ts';
import { LEASE_TIMING, type LeaseTiming } from './domain/lease.ts';
import { type DrainSteps, drainControlPlane } from './drain.ts';
import { type App, buildApp } from './http/public-app.ts';
import { SmtpSender } from './mail/smtp-sender.ts';
import { registerGauges } from './metric-gauges.ts';
import { ControlMetrics } from './metrics.ts';
import type { Fleet } from './nodes/fleet.ts';
import { RefusedNodes } from './nodes/refused-nodes.ts';
import { NODE_TIMING, type NodeTiming, RegistryServer } from './nodes/registry-server.ts';
import { CallbackSecrets, notificationBody } from './secrets/callback-secret.ts';
import { ResultTokens } from './secrets/result-tokens.ts';
import { SecretBox } from './secrets/secret-box.ts';
import { loadOrCreateSecretsKey, requireSameSecretsKey } from './secrets/secrets-key.ts';
import { withheldTeller } from './services/alerts/withheld-messages.ts';
import { JobEvents } from './services/job-events.ts';
import { renderOutboxBody } from './services/notification/outbox-body.ts';
import { JobViews } from './services/reading/job-view.ts';
import type { ToldOutcome } from './services/sales/receive-payment.ts';
import { ImageFetcher } from './sources/fetch-image.ts';
import { GuardedFetch } from './sources/guard/guarded-fetch.ts';
import { OutgoingGuard } from './sources/guard/outgoing-guard.ts';
import type { BlobStore } from './storage/blob-store.ts';
import type { BucketObserver } from './storage/bucket/bucket-client.ts';
import { openStorages } from './storage/open-storage.ts';
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

/** Holder of this process's leases: unique by the random part, readable by the host's name. */
export function createReplicaId(): string {
  return `${hostname()
    .replaceAll(/[^A-Za-z0-9.-]/g, '-')
    .slice(0, 40)}-${randomUUID().slice(0, 8)}`;
}

/** Lease durations: tests that wait for a lease to run out take shorter ones. */
export interface Timing {
  readonly jobs: LeaseTiming;
  readonly nodes: NodeTiming;
}

const TIMING: Timing = { jobs: LEASE_TIMING, nodes: NODE_TIMING };

/**
 * Rejects with nothing left open: ConfigError's siblings (TlsFileError, StorageConfigError,
 * DatabaseOpenError, SchemaError, SecretsKeyError, ListenError) have one line for the operator.
 */
export async function openControlPlane(
  config: Config,
  log: Logger,
  replicaId: string,
  timing: Partial<Timing> = {},
): Promise<ControlPlane> {
  // It would write to stderr, which is for the one line about an end.
  const grpcLog = (...words: unknown[]) => log.debug({ words }, 'grpc');
  setLogger({ error: grpcLog, info: grpcLog, debug: grpcLog });
  const metrics = new ControlMetrics();
  const program = { name: 'matting-control-plane', version: pkg.version, instanceId: replicaId };
  const tracing = await openTracing(config.traces, { ...program, log, observer: metrics });
  const resources = await openResources(config, log, metrics);
  const { stores, secrets } = resources;
  for (const warning of config.warnings) log.warn(warning);
  warnOfGuardExceptions(config, log);
  const parts = compose({
    ...resources,
    config,
    log,
    replicaId,
    timing: { ...TIMING, ...timing },
    events: new JobEvents(),
    guard: new OutgoingGuard({ policy: config, systemLookupsMax: config.systemLookupsMax }),
    metrics,
    tracing,
  });
  try {
    await requireSameSecretsKey(
      stores.secretsCanary,
      resources.secretsKey,
      config.secretsKeyPrevious,
    );
    await warnOfSecretsOfOtherKeys(stores, secrets, log);
    return await start(config, log, parts);
  } catch (error) {
    await drainControlPlane(parts.steps, { hurry: AbortSignal.abort(), log });
    throw error;
  }
}

/** What is opened before anything is made of it. */
export interface Resources {
  readonly tls: TlsFiles;
  readonly blobs: BlobStore;
  readonly stores: Stores;
  /** What seals the secrets of callbacks from now on, 32 bytes. */
  readonly secretsKey: Buffer;
  readonly secrets: CallbackSecrets;
  readonly resultTokens: ResultTokens;
  readonly views: JobViews;
  /** The text of docs/errors.md. */
  readonly errorsPage: string;
}

/** Rejects with nothing left open. To be closed: `tls`, `stores`. */
export async function openResources(
  config: Config,
  log: Logger,
  observer?: BucketObserver,
): Promise<Resources> {
  const errorsPage = await readFile(ERRORS_PAGE, 'utf8');
  const tls = await TlsFiles.open(config.tls, { log });
  try {
    const { spoolDir } = config;
    const blobs = await openStorages(config, { spoolDir, log, ...(observer && { observer }) });
    const secretsKey = config.secretsKey ?? (await loadOrCreateSecretsKey(config.dataDir));
    const previous = config.secretsKeyPrevious;
    const secrets = new CallbackSecrets(
      new SecretBox(secretsKey),
      previous === undefined ? [] : [new SecretBox(previous)],
    );
    const resultTokens = new ResultTokens(secrets);
    const views = new JobViews(config.baseUrl, (jobId, result) => resultTokens.open(jobId, result));
    const stores = await openStores(config.databaseUrl, {
      log,
      renderOutboxBody: job =>
        secrets.sealText(renderOutboxBody(views, job), notificationBody(job.id)),
      webhookFirstWaitMs: config.webhookScheduleMs[0],
      migrations: 'run',
    });
    return { tls, blobs, stores, secretsKey, secrets, resultTokens, views, errorsPage };
  } catch (error) {
    tls.close();
    throw error;
  }
}

/** Every start logs the exceptions of the outgoing guard. */
function warnOfGuardExceptions(config: Config, log: Logger): void {
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

/** Notifications whose secrets were sealed with another key wait for a replica that has it. */
async function warnOfSecretsOfOtherKeys(stores: Stores, secrets: CallbackSecrets, log: Logger) {
  const count = await stores.webhookOutbox.countSealedWithOthers(secrets.keyIds);
  if (count === 0) return;
  log.warn({ count }, 'notifications wait whose secrets neither key of this replica opens');
}

/** What every composing function is given. */
interface Base extends Resources {
  readonly config: Config;
  readonly log: Logger;
  readonly replicaId: string;
  readonly timing: Timing;
  readonly events: JobEvents;
  readonly guard: OutgoingGuard;
  readonly metrics: ControlMetrics;
  readonly tracing: Tracing | undefined;
}

interface Running extends Dispatch, Conditions {
  readonly registry: RegistryServer;
  readonly background: Background;
  readonly services: Services;
  readonly publicPort: App;
  readonly operatorPort: ReturnType<typeof composeOperatorPort>;
}

interface Parts extends Running {
  readonly steps: DrainSteps;
}

/** Opens nothing; each part is complete when it is made. */
function compose(base: Base): Parts {
  const dispatch = composeDispatch({
    ...base,
    fetcher: new ImageFetcher(new GuardedFetch({ guard: base.guard })),
    observer: base.metrics,
    leaseTiming: base.timing.jobs,
    security: base.tls.channelSecurity(),
  });
  const { fleet } = dispatch;
  const conditions = composeConditions({ ...base, dispatch });
  const onPaymentTold = (outcome: ToldOutcome) => base.metrics.paymentTold(outcome);
  const onWithheld = withheldTeller(base.metrics, base.log);
  const services = composeServices({
    ...base,
    ...conditions,
    onPaymentTold,
    onWithheld,
    lossObserver: base.metrics,
  });
  const running: Running = {
    ...dispatch,
    ...conditions,
    services,
    registry: composeRegistry(base, fleet),
    background: composeBackground({
      ...base,
      fleet,
      losses: services.losses,
      mailSender: base.config.mail && new SmtpSender(base.config.mail),
      running: () => dispatch.dispatcher.running,
    }),
    publicPort: composePublicPort(base, services),
    operatorPort: composeOperatorPort(base, () => void fleet.refresh()),
  };
  composeGauges(base, running);
  return { ...running, steps: composeDrain(base, running) };
}

function composeRegistry(base: Base, fleet: Fleet): RegistryServer {
  const { config, log, metrics } = base;
  const refusedNodes = new RefusedNodes({ log, observer: metrics });
  return new RegistryServer({
    host: config.registryHost,
    port: config.registryPort,
    nodeTokens: [config.nodeToken, config.nodeTokenAccepted],
    credentials: base.tls.serverCredentials(),
    membership: base.stores.nodes,
    timing: base.timing.nodes,
    onMembersChanged: () => void fleet.refresh(),
    onRefused: refusal => refusedNodes.note(refusal),
    onFailure: err => log.warn({ err }, 'registry call failed'),
    onEnded: cause => metrics.registryEnded(cause),
  });
}

function composePublicPort(base: Base, services: Services): App {
  const { config, errorsPage, metrics, log } = base;
  return buildApp(services, {
    baseUrl: config.baseUrl,
    syncWaitMs: config.syncWaitMs,
    removebg: config.removebg,
    accountArea: config.accountArea,
    trustedProxies: config.trustedProxies,
    readsRequireIdempotencyKey: config.readsRequireIdempotencyKey,
    version: pkg.version,
    errorsPage,
    logger: log,
    tracing: base.tracing,
    onRoute: (route, method) => metrics.routeAdded(route, method),
    onAnswered: answered => metrics.answered(answered),
    onDropped: () => metrics.connectionDropped(),
    onEnded: cause => metrics.connectionEnded(cause),
  });
}

function composeGauges(base: Base, running: Running): void {
  const { config, log, metrics, blobs, stores } = base;
  const { fleet, dispatcher, services } = running;
  const { fleetSizing } = running.background;
  registerGauges(
    metrics.registry,
    {
      version: pkg.version,
      readiness: () => running.readiness.check(),
      fleet: () => fleet.counts(),
      running: () => dispatcher.running,
      downloading: () => dispatcher.downloading,
      uploads: () => services.uploads,
      databaseWaiting: () => stores.shares.waiting,
      connections: () => running.publicPort.connections.open,
      resultReaders: () => services.resultReaders.open,
      registryConnections: () => running.registry.connections,
      storageFreeBytes: () => blobs.freeBytes(),
      queueMegapixelsMax: config.queueMegapixelsMax,
      queued: () => stores.jobs.queued(),
      nodesWanted: fleetSizing && (() => fleetSizing.wanted()),
      playgroundJobs: () => stores.playground.openJobs(),
      webhooksInFlight: () => running.background.delivery.inFlight,
      webhooksDue: () => stores.webhookOutbox.due(),
      ledgerAudits: () => stores.ledger.lastAudits(),
      mailsWaiting: () => stores.mailOutbox.waiting(),
      clockDifferenceMs: () => running.background.clockWatch.differenceMs,
      sweepBacklog: () => stores.sweeps.backlog(config.jobRetentionMs),
    },
    (what, err) => log.warn({ err }, `${what} is not readable for the metrics`),
  );
}

function composeDrain({ tls, stores, tracing }: Base, running: Running): DrainSteps {
  const { fleet, dispatcher, registry, background, readiness, services } = running;
  const { delivery } = background;
  const { app } = running.publicPort;
  return {
    announce: () => {
      readiness.startDraining();
      services.submitMatting.startDraining();
    },
    finishRuns: limitMs => dispatcher.stop(limitMs),
    giveRunsBack: () => dispatcher.hurry(),
    finishDeliveries: limitMs => delivery.stop(limitMs),
    giveDeliveriesBack: () => delivery.hurry(),
    handOverWaits: () => services.waitForJob.endAllWaits(),
    closePublic: () => app.close(),
    closePublicConnections: () => app.server.closeAllConnections(),
    closeRegistry: () => registry.close(),
    closeRest: [
      () => background.stopRest(),
      () => services.keyUses.stop(),
      () => fleet.close(),
      async () => tls.close(),
      () => running.operatorPort.close(),
      () => stores.close(),
      // Last: every span has ended, and a collector that hangs holds nothing else back.
      async () => await tracing?.close(),
    ],
  };
}

/** Below as many connections to the public port the operator should know that they are few. */
const CONNECTIONS_FEW = 4096;

async function start(config: Config, log: Logger, parts: Parts): Promise<ControlPlane> {
  const { registry, operatorPort, steps } = parts;
  const { app } = parts.publicPort;
  const { host, registryHost, metricsHost, baseUrl } = config;
  const metricsPlace = { host: metricsHost, port: config.metricsPort };
  await listening({ variable: 'MATTING_METRICS_PORT', ...metricsPlace }, () =>
    operatorPort.listen(metricsPlace),
  );
  const registryPlace = { host: registryHost, port: config.registryPort };
  await listening({ variable: 'MATTING_REGISTRY_PORT', ...registryPlace }, () => registry.listen());
  const httpPlace = { host, port: config.port };
  await listening({ variable: 'MATTING_PORT', ...httpPlace }, () => app.listen(httpPlace));
  const ports = {
    http: portOf(app.server),
    registry: registry.port,
    metrics: portOf(operatorPort.server),
  };
  const connectionsMax = app.server.maxConnections;
  log.info({ ...ports, host, registryHost, metricsHost, baseUrl, connectionsMax }, 'listening');
  if (connectionsMax < CONNECTIONS_FEW) {
    log.warn({ connectionsMax, openFilesMax: openFilesMax() }, 'few files may be open');
  }
  await parts.fleet.start();
  parts.dispatcher.start();
  parts.background.start();
  parts.services.keyUses.start(err => log.warn({ err }, 'the last use of keys was not written'));
  return { ports, drain: hurry => drainControlPlane(steps, { hurry, log }) };
}

function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === 'string')
    throw new Error('the server listens to no port');
  return address.port;
}
