/**
 * Makes every long-lived object of the core and plugs the packages in. The order of a start:
 *
 * 1. Storage and database open, and the database is migrated. Nothing listens yet.
 * 2. The core's services are made, then the packages, which get them.
 * 3. The secrets key is checked. Metrics, registry and public port listen. A port in use ends the
 *    start and closes everything.
 * 4. The fleet watch, the dispatcher, notifications and the sweeper start.
 */

import { randomUUID } from 'node:crypto';
import type { Server } from 'node:net';
import { hostname } from 'node:os';
import { setLogger } from '@grpc/grpc-js';
import { GuardedFetch } from '@matting/http/outgoing/guarded-fetch.ts';
import { GuardedPost } from '@matting/http/outgoing/guarded-post.ts';
import { OutgoingGuard } from '@matting/http/outgoing/outgoing-guard.ts';
import type { Fleet } from '@matting/nodes/fleet.ts';
import { NoteSightings } from '@matting/nodes/note-sightings.ts';
import { noteRefusals, RegistryServer } from '@matting/nodes/registry-server.ts';
import { listening, openFilesMax } from '@matting/program/ports/listening.ts';
import { NodeTokens } from '@matting/program/tokens.ts';
import { openTracing } from '@matting/program/tracing/open-tracing.ts';
import type { Logger } from 'pino';
import {
  composeConditions,
  composeDispatch,
  composeOperatorServices,
  composeServices,
  type Services,
} from './compose-use-cases.ts';
import type { Config } from './config.ts';
import { type DrainSteps, drainControlPlane } from './drain.ts';
import { ImageFetcher } from './fetching/fetch-image.ts';
import type { OperatorServices } from './http/app-services.ts';
import { buildOperatorApp } from './http/operator-app.ts';
import { type App, buildApp, type HttpInterface } from './http/public-app.ts';
import { ControlMetrics } from './metrics/control-metrics.ts';
import { registerGauges } from './metrics/gauges.ts';
import { countSubmitted } from './metrics/work-by-model.ts';
import { type Base, openResources, settledOf, TIMING, type Timing } from './open-resources.ts';
import type { About, Core, PackageParts } from './package.ts';
import { JobEvents } from './results/job-events.ts';
import { removalStep, removalsOf } from './retention/removal-steps.ts';
import { Sweeper } from './retention/sweep.ts';
import type { CallbackSecrets } from './secrets/secret-box.ts';
import { requireSameSecretsKey } from './secrets/secrets-key.ts';
import type { Stores } from './stores.ts';
import { webhookDelivery } from './webhooks/send-webhooks.ts';

export interface ControlPlane {
  readonly ports: { readonly http: number; readonly registry: number; readonly metrics: number };
  /** Call it once. */
  drain(hurry: AbortSignal): Promise<void>;
}

export function createReplicaId(): string {
  const host = hostname().replaceAll(/[^A-Za-z0-9.-]/g, '-');
  return `${host.slice(0, 40)}-${randomUUID().slice(0, 8)}`;
}

interface CoreOptions {
  readonly log: Logger;
  readonly replicaId: string;
  readonly about: About;
  readonly timing?: Partial<Timing> | undefined;
}

/**
 * Closes everything if it rejects. The message of an expected error is one line for the operator.
 */
export async function openCore(
  config: Config,
  { log, replicaId, about, timing }: CoreOptions,
): Promise<ControlPlane> {
  // By default grpc writes to stderr, which is reserved for the one line on why the process ends.
  const grpcLog = (...words: unknown[]) => log.debug({ words }, 'grpc');
  setLogger({ error: grpcLog, info: grpcLog, debug: grpcLog });
  const metrics = new ControlMetrics(
    settledOf(config).map(({ name }) => name),
    (what, err) => log.warn({ err }, `${what} is not readable for the metrics`),
  );
  const { version } = about;
  const program = { name: 'matting-control-plane', version, instanceId: replicaId };
  const tracing = await openTracing(config.traces, { ...program, log, observer: metrics });
  const resources = await openResources(config, log, metrics);
  const { stores, secrets, secretsKey } = resources;
  for (const warning of config.warnings) log.warn(warning);
  warnOfGuardExceptions(config, log);
  const parts = await compose({
    ...resources,
    about,
    config,
    log,
    replicaId,
    timing: { ...TIMING, ...timing },
    nodeTokens: new NodeTokens(config.nodeTokens, log),
    events: new JobEvents(),
    guard: new OutgoingGuard({ policy: config, systemLookupsMax: config.systemLookupsMax }),
    metrics,
    tracing,
  });
  try {
    await requireSameSecretsKey(stores.secretsCanary, secretsKey, config.secretsKeyPrevious);
    await warnOfSecretsOfOtherKeys(stores, secrets, log);
    return await start(config, log, parts);
  } catch (error) {
    await drainControlPlane(parts.steps, { hurry: AbortSignal.abort(), log });
    throw error;
  }
}

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

/** Notifications sealed with another key wait for a replica that has it. */
async function warnOfSecretsOfOtherKeys(stores: Stores, secrets: CallbackSecrets, log: Logger) {
  const count = await stores.outbox.countSealedWithOthers(secrets.keyIds);
  if (count === 0) return;
  log.warn({ count }, 'notifications wait whose secrets neither key of this replica opens');
}

type Running = Awaited<ReturnType<typeof composeRunning>>;

/** Closes everything if it rejects. */
async function compose(base: Base) {
  try {
    const running = await composeRunning(base);
    composeGauges(base, running);
    return { ...running, steps: composeDrain(base, running) };
  } catch (error) {
    base.tls.close();
    base.nodeTokens.close();
    await base.stores.close();
    await base.tracing?.close();
    throw error;
  }
}

async function composeRunning(base: Base) {
  const dispatch = composeDispatch({
    config: base.config,
    log: base.log,
    replicaId: base.replicaId,
    nodeTokens: base.nodeTokens,
    stores: base.stores,
    blobs: base.blobs,
    events: base.events,
    resultTokens: base.resultTokens,
    groups: base.config.packages.map(({ use }) => use.placement).find(Boolean),
    tracing: base.tracing,
    fetcher: new ImageFetcher(new GuardedFetch(base.guard)),
    observer: base.metrics,
    leaseTiming: base.timing.jobs,
    security: base.tls.channelSecurity(),
  });
  const { fleet } = dispatch;
  const conditions = composeConditions(base, dispatch);
  const { models } = dispatch;
  const services = composeServices({
    config: base.config,
    log: base.log,
    stores: base.stores,
    blobs: base.blobs,
    secrets: base.secrets,
    views: base.views,
    events: base.events,
    guard: base.guard,
    acceptance: conditions.acceptance,
    readiness: conditions.readiness,
    models,
    observer: base.metrics,
  });
  const operatorServices = composeOperatorServices(base, () => void fleet.refresh());
  const plugged = await openPackages({
    config: base.config,
    about: base.about,
    log: base.log,
    replicaId: base.replicaId,
    database: base.database,
    stores: base.stores,
    secrets: base.secrets,
    secretsKey: base.secretsKey,
    fleet,
    metrics: base.metrics,
    services,
    operatorServices,
  });
  return {
    ...dispatch,
    ...conditions,
    services,
    registry: composeRegistry(base, fleet),
    background: composeBackground(base, fleet, plugged),
    publicPort: composePublicPort(base, services, plugged),
    operatorPort: composeOperatorPort(base, operatorServices, plugged),
  };
}

export async function openPackages(
  core: Omit<Core, 'config'> & { readonly config: Config },
): Promise<readonly PackageParts[]> {
  const opened: PackageParts[] = [];
  for (const { use, settings } of core.config.packages) {
    if (use.open !== undefined) opened.push(await use.open(core, settings));
  }
  return opened;
}

export function interfacesOf(plugged: readonly PackageParts[]): HttpInterface[] {
  return plugged.flatMap(({ httpInterface }) => httpInterface ?? []);
}

function composeBackground(base: Base, fleet: Fleet, plugged: readonly PackageParts[]) {
  const { config, stores, secrets, events, guard, metrics, log, replicaId: holder } = base;
  const delivery = webhookDelivery({
    outbox: stores.outbox,
    guardedPost: new GuardedPost(guard, config),
    secrets,
    events,
    observer: metrics,
    log,
    holder,
    scheduleMs: config.webhookScheduleMs,
    tracing: base.tracing,
  });
  const sightings = new NoteSightings({
    replica: holder,
    seen: () => fleet.seen(),
    store: stores.sightings,
    onFailed: err => log.warn({ err }, 'what is seen of the nodes was not noted'),
  });
  const sweeper = composeSweeper(base, plugged);
  const loops = [...plugged.flatMap(({ loops = [] }) => loops), sweeper, sightings];
  return {
    delivery,
    start() {
      for (const loop of [delivery, ...loops]) loop.start();
    },
    /** The drain stops `delivery` separately. */
    async stopRest() {
      await Promise.all(loops.map(loop => loop.stop()));
    },
  };
}

function composeSweeper(
  { config, stores, blobs, metrics, log, replicaId }: Base,
  plugged: readonly PackageParts[],
): Sweeper {
  const { jobRetentionMs } = config;
  return new Sweeper({
    jobStore: stores.jobs,
    outbox: stores.outbox,
    blobStore: blobs,
    sweeps: stores.sweeps,
    others: [
      { name: 'unsettled jobs', page: size => stores.unsettled.repair(size) },
      ...removalsOf(stores, jobRetentionMs).map(removalStep),
      ...plugged.flatMap(({ removals = [] }) => removals).map(removalStep),
    ],
    holder: replicaId,
    jobRetentionMs,
    logger: log,
    onFailure: () => metrics.sweepFailed(),
  });
}

function composeOperatorPort(
  { config, metrics, log }: Base,
  services: OperatorServices,
  plugged: readonly PackageParts[],
) {
  const { baseUrl, metricsHost: host, operatorKey } = config;
  return buildOperatorApp(services, {
    baseUrl,
    host,
    operatorKey,
    metrics: metrics.registry,
    logger: log,
    pages: app => {
      for (const { operatorPages } of plugged) operatorPages?.(app);
    },
  });
}

function composeRegistry(base: Base, fleet: Fleet): RegistryServer {
  const { config, log, metrics } = base;
  return new RegistryServer({
    host: config.registryHost,
    port: config.registryPort,
    nodeTokens: base.nodeTokens.accepted,
    credentials: base.tls.serverCredentials(),
    membership: base.stores.nodes,
    timing: base.timing.nodes,
    onMembersChanged: () => void fleet.refresh(),
    onRefused: noteRefusals(log, metrics),
    onFailure: err => log.warn({ err }, 'registry call failed'),
    onEnded: cause => metrics.registryEnded(cause),
  });
}

function composePublicPort(base: Base, services: Services, plugged: readonly PackageParts[]): App {
  const { about, config, metrics, log } = base;
  return buildApp(services, {
    ...about,
    baseUrl: config.baseUrl,
    syncWaitMs: config.syncWaitMs,
    interfaces: interfacesOf(plugged),
    trustedProxies: config.trustedProxies,
    readsRequireIdempotencyKey: config.readsRequireIdempotencyKey,
    logger: log,
    tracing: base.tracing,
    onRoute: (route, method) => metrics.routeAdded(route, method),
    onAnswered: answered => metrics.answered(answered),
    onDropped: () => metrics.connectionDropped(),
    onEnded: cause => metrics.connectionEnded(cause),
  });
}

function composeGauges(base: Base, running: Running): void {
  const { about, config, metrics, blobs, stores } = base;
  const { fleet, dispatcher, services } = running;
  registerGauges(metrics, {
    version: about.version,
    readiness: () => running.readiness.check(),
    fleet: () => fleet.counts(),
    running: () => dispatcher.running,
    downloading: () => dispatcher.downloading,
    certificateEnds: () => [...base.tls.ends, ...base.databaseEnds],
    uploads: () => services.uploads,
    databaseWaiting: () => stores.shares.waiting,
    connections: () => running.publicPort.connections.open,
    resultReaders: () => services.resultReaders.open,
    registryConnections: () => running.registry.connections,
    storageRoom: () => blobs.room(),
    queueMegapixelsMax: config.queueMegapixelsMax,
    queued: () => stores.queue.queued(),
    modelsOffered: config.modelsOffered,
    onDemand: config.onDemand,
    webhooks: {
      inFlight: () => running.background.delivery.inFlight,
      due: () => stores.outbox.due(),
    },
    ledgerAudits: () => stores.ledger.lastAudits(),
    sweepBacklog: () => stores.sweeps.backlog(config.jobRetentionMs),
  });
  base.events.onSubmitted(countSubmitted(metrics, config.modelsOffered));
}

function composeDrain({ tls, nodeTokens, stores, tracing }: Base, running: Running): DrainSteps {
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
      async () => nodeTokens.close(),
      () => running.operatorPort.close(),
      () => stores.close(),
      // Last: every span has ended, and a collector that hangs delays nothing else.
      async () => await tracing?.close(),
    ],
  };
}

const CONNECTIONS_FEW = 4096;

async function start(
  config: Config,
  log: Logger,
  parts: Awaited<ReturnType<typeof compose>>,
): Promise<ControlPlane> {
  const { registry, operatorPort, steps } = parts;
  const { app } = parts.publicPort;
  const { host, registryHost, metricsHost, baseUrl } = config;
  const metricsAddress = { host: metricsHost, port: config.metricsPort };
  await listening({ variable: 'MATTING_METRICS_PORT', ...metricsAddress }, () =>
    operatorPort.listen(metricsAddress),
  );
  const registryAddress = { host: registryHost, port: config.registryPort };
  await listening({ variable: 'MATTING_REGISTRY_PORT', ...registryAddress }, () =>
    registry.listen(),
  );
  const httpAddress = { host, port: config.port };
  await listening({ variable: 'MATTING_PORT', ...httpAddress }, () => app.listen(httpAddress));
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
