/**
 * Makes every long-lived object of the core and ties them together, and plugs the packages in. The
 * order of coming up:
 *
 * 1. Storage, secrets key, database: checked, migrated, proven. Nothing listens yet.
 * 2. The core's services, then the packages, which are given them.
 * 3. Metrics, registry and public port listen; a port in use ends it and closes what was opened.
 * 4. The fleet is followed, the dispatcher claims, notifications are delivered, the sweeper sweeps.
 */

import { randomUUID } from 'node:crypto';
import type { Server } from 'node:net';
import { hostname } from 'node:os';
import { setLogger } from '@grpc/grpc-js';
import { databaseCertificates, openCurrentDatabase } from '@matting/database/connect.ts';
import { CLOCK_LOOK_MS, watchClocks } from '@matting/database/member-clocks.ts';
import { pollingLoop } from '@matting/database/round-loop.ts';
import { GuardedFetch } from '@matting/http/outgoing/guarded-fetch.ts';
import { GuardedPost } from '@matting/http/outgoing/guarded-post.ts';
import { OutgoingGuard } from '@matting/http/outgoing/outgoing-guard.ts';
import { listening, openFilesMax } from '@matting/program/ports/listening.ts';
import { warnOfEnds } from '@matting/program/tls/certificate-ends.ts';
import { type ChannelSecurity, TlsFiles } from '@matting/program/tls/tls-files.ts';
import { NodeTokens } from '@matting/program/tokens.ts';
import type { Tracing } from '@matting/program/tracing/active-span.ts';
import { openTracing } from '@matting/program/tracing/open-tracing.ts';
import type { Logger } from 'pino';
import type { Config } from './config.ts';
import { AdvertisedNodes } from './dispatch/advertised-nodes.ts';
import { Dispatcher, type DispatcherDependencies } from './dispatch/dispatcher.ts';
import { type DrainSteps, drainControlPlane } from './drain.ts';
import { CallbackAddressCheck } from './fetching/callback-check.ts';
import { ImageFetcher } from './fetching/fetch-image.ts';
import type { AppServices, OperatorServices } from './http/app-services.ts';
import { buildOperatorApp } from './http/operator-app.ts';
import { type App, buildApp, type HttpInterface } from './http/public-app.ts';
import { ReadinessService } from './http/readiness.ts';
import { LEASE_TIMING } from './jobs/job.ts';
import { Authenticate } from './keys/authenticate.ts';
import { accountViews, type Caller } from './keys/caller.ts';
import { KeyUses } from './keys/key-uses.ts';
import { ControlMetrics } from './metrics/control-metrics.ts';
import { registerGauges } from './metrics/gauges.ts';
import { countSubmitted } from './metrics/work-by-model.ts';
import { OfferedModels } from './models/offered-models.ts';
import { Fleet } from './nodes/fleet.ts';
import { NoteSightings } from './nodes/note-sightings.ts';
import { NODE_TIMING, noteRefusals, RegistryServer } from './nodes/registry-server.ts';
import { OperateAccounts } from './operator/operate-accounts.ts';
import { OperateCredits } from './operator/operate-credits.ts';
import { OperateJobs, ReadQueue } from './operator/operate-jobs.ts';
import { OperateNodes } from './operator/operate-nodes.ts';
import { OperateWebhooks } from './operator/operate-webhooks.ts';
import { type About, type Core, migrationsOf, type PackageParts } from './package.ts';
import { RateLimits } from './rates/rate-limits.ts';
import { JobEvents } from './results/job-events.ts';
import { JobViews, readJobOfCaller } from './results/job-view.ts';
import { type LossObserver, LostResults } from './results/lost-results.ts';
import {
  ResultDownload,
  type ResultReaderBounds,
  ResultReaders,
} from './results/result-download.ts';
import { resultLookStep } from './results/result-look.ts';
import { ResultTokens } from './results/result-tokens.ts';
import { WaitForJob } from './results/wait-for-job.ts';
import { removalSteps } from './retention/removal-steps.ts';
import { Sweeper } from './retention/sweep.ts';
import { CallbackSecrets, notificationBody, SecretBox } from './secrets/secret-box.ts';
import { loadOrCreateSecretsKey, requireSameSecretsKey } from './secrets/secrets-key.ts';
import type { BlobStore } from './storage/blob-store.ts';
import { openStorages } from './storage/open-storage.ts';
import type { StorageObserver } from './storage/storage-kind.ts';
import { createStores, type Stores } from './stores.ts';
import { AcceptanceGate } from './submission/acceptance-gate.ts';
import { ImageUploads, type UploadBounds } from './submission/image-uploads.ts';
import { SubmitMatting } from './submission/submit-matting.ts';
import type { JobCompletionOptions } from './transactions/job-completion.ts';
import type { SettledObserver, SettledStep } from './transactions/settled-steps.ts';
import { renderOutboxBody, webhookDelivery } from './webhooks/send-webhooks.ts';

export interface ControlPlane {
  /** As bound, where the configuration said 0. */
  readonly ports: { readonly http: number; readonly registry: number; readonly metrics: number };
  /** Ends it; once. */
  drain(hurry: AbortSignal): Promise<void>;
}

/** Holder of this process's leases: unique by the random part, readable by the host's name. */
export function createReplicaId(): string {
  const host = hostname().replaceAll(/[^A-Za-z0-9.-]/g, '-');
  return `${host.slice(0, 40)}-${randomUUID().slice(0, 8)}`;
}

const TIMING = { jobs: LEASE_TIMING, nodes: NODE_TIMING };

/** Lease durations: tests that wait for a lease to run out take shorter ones. */
export type Timing = Readonly<typeof TIMING>;

export interface CoreOptions {
  readonly log: Logger;
  readonly replicaId: string;
  readonly about: About;
  readonly timing?: Partial<Timing> | undefined;
}

/** Rejects with nothing left open; the errors of starts have one line for the operator. */
export async function openCore(
  config: Config,
  { log, replicaId, about, timing }: CoreOptions,
): Promise<ControlPlane> {
  // It would write to stderr, which is for the one line about an end.
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

/** Rejects with nothing left open. To be closed: `tls`, `stores`. */
export async function openResources(
  config: Config,
  log: Logger,
  observer?: StorageObserver & SettledObserver,
) {
  const tls = await TlsFiles.open(config.tls, { log });
  try {
    const { spoolDir } = config;
    const blobs = await openStorages(config, { spoolDir, log, ...(observer && { observer }) });
    const direct = config.directStorage ? await openDirect(config, blobs, log) : undefined;
    const secretsKey = config.secretsKey ?? (await loadOrCreateSecretsKey(config.dataDir));
    const previous = config.secretsKeyPrevious;
    const secrets = new CallbackSecrets(
      new SecretBox(secretsKey),
      previous === undefined ? [] : [new SecretBox(previous)],
    );
    const resultTokens = new ResultTokens(secrets);
    const views = new JobViews(config.baseUrl, (jobId, result) => resultTokens.open(jobId, result));
    const database = await openCurrentDatabase(config.databaseUrl, {
      log,
      migrations: 'run',
      packages: migrationsOf(config.packages.map(({ use }) => use)),
    });
    // The pool keeps what it read at the start.
    const databaseEnds = databaseCertificates(config.databaseUrl);
    warnOfEnds(databaseEnds, log);
    const ends: JobCompletionOptions = {
      renderOutboxBody: job =>
        secrets.sealText(renderOutboxBody(views, job), notificationBody(job.id)),
      settled: settledOf(config),
      ...(observer && { observer }),
      webhookFirstWaitMs: config.webhookScheduleMs[0],
    };
    const stores = createStores(database, ends);
    const opened = { blobs, direct, database, stores, secretsKey, secrets, resultTokens, views };
    return { tls, databaseEnds, ...opened };
  } catch (error) {
    tls.close();
    throw error;
  }
}

async function openDirect({ storageUrl, packages }: Config, blobs: BlobStore, log: Logger) {
  const own = packages.find(({ use }) => use.storageKind?.isFor(storageUrl));
  return await own?.use.openDirect?.(blobs, log);
}

function settledOf({ packages }: Pick<Config, 'packages'>): SettledStep[] {
  return packages.flatMap(({ use }) => use.settled ?? []);
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

/** Notifications whose secrets were sealed with another key wait for a replica that has it. */
async function warnOfSecretsOfOtherKeys(stores: Stores, secrets: CallbackSecrets, log: Logger) {
  const count = await stores.outbox.countSealedWithOthers(secrets.keyIds);
  if (count === 0) return;
  log.warn({ count }, 'notifications wait whose secrets neither key of this replica opens');
}

/** What every composing function is given. */
interface Base extends Awaited<ReturnType<typeof openResources>> {
  readonly about: About;
  readonly config: Config;
  readonly log: Logger;
  readonly replicaId: string;
  readonly timing: Timing;
  readonly nodeTokens: NodeTokens;
  readonly events: JobEvents;
  readonly guard: OutgoingGuard;
  readonly metrics: ControlMetrics;
  /** Undefined: there are no traces. */
  readonly tracing: Tracing | undefined;
}

type Running = Awaited<ReturnType<typeof composeRunning>>;

/** Rejects with nothing left open. */
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
    ...base,
    fetcher: new ImageFetcher(new GuardedFetch(base.guard)),
    observer: base.metrics,
    leaseTiming: base.timing.jobs,
    security: base.tls.channelSecurity(),
  });
  const { fleet } = dispatch;
  const conditions = composeConditions(base, dispatch);
  const { models } = dispatch;
  const services = composeServices({ ...base, ...conditions, models, observer: base.metrics });
  const operatorServices = composeOperatorServices(base, () => void fleet.refresh());
  const plugged = await openPackages({ ...base, services, operatorServices, fleet });
  return {
    ...dispatch,
    ...conditions,
    services,
    registry: composeRegistry(base, fleet),
    background: composeBackground(base, fleet, services, plugged),
    publicPort: composePublicPort(base, services, plugged),
    operatorPort: composeOperatorPort(base, operatorServices, plugged),
  };
}

/** In the order of the configuration's list. */
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

interface DispatchParts
  extends Pick<Base, 'log' | 'replicaId' | 'blobs' | 'events'>,
    Pick<
      DispatcherDependencies,
      'direct' | 'fetcher' | 'observer' | 'resultTokens' | 'leaseTiming' | 'pollMs'
    > {
  readonly config: Pick<
    Config,
    'attemptTimeoutMs' | 'resultTtlMs' | 'noNodeGraceMs' | 'onDemand' | 'modelsOffered'
  >;
  readonly nodeTokens: Pick<NodeTokens, 'shown'>;
  readonly stores: Pick<Stores, 'jobs' | 'nodes'>;
  readonly security: ChannelSecurity;
  readonly tracing?: Tracing | undefined;
}

export function composeDispatch(parts: DispatchParts) {
  const { config, log, stores, blobs } = parts;
  const fleet = new Fleet({
    listMembers: () => stores.nodes.listLive(),
    noteModels: ({ nodeId, bootId }, models) => stores.nodes.noteModels(nodeId, bootId, models),
    nodeToken: parts.nodeTokens.shown,
    security: parts.security,
    log: (level, message, fields) => log[level](fields, message),
  });
  // Which nodes will come is not known: what those alive cannot do waits as long as any job may.
  const noNodeGraceMs = config.onDemand ? undefined : config.noNodeGraceMs;
  const advertised = followAdverts(fleet, noNodeGraceMs);
  const models = new OfferedModels({
    offered: config.modelsOffered,
    snapshots: () => fleet.snapshots(),
    onJob: (name, ms) => parts.observer.modelTimed(name, ms),
  });
  if (parts.direct !== undefined) {
    const origin = blobs.signed?.origin;
    log.info({ origin }, 'files go straight where nodes list this origin');
  }
  const dispatcher = new Dispatcher({
    ...parts,
    jobs: stores.jobs,
    attemptTimeoutMs: config.attemptTimeoutMs,
    resultTtlMs: config.resultTtlMs,
    ...{ fleet, noNodeGraceMs, advertised, models },
    holder: parts.replicaId,
  });
  return { fleet, dispatcher, advertised, models };
}

/** Nodes whose word of what they can do counts; undefined: any may come. */
function followAdverts(fleet: Fleet, graceMs: number | undefined) {
  if (graceMs === undefined) return () => undefined;
  const now = () => performance.now();
  const adverts = new AdvertisedNodes({ routable: () => fleet.snapshots(), graceMs, now });
  fleet.onChange(() => adverts.changed());
  return () => adverts.nodes();
}

export function composeConditions(
  { config, log, stores, blobs }: Pick<Base, 'config' | 'log' | 'stores' | 'blobs'>,
  { fleet, advertised }: ReturnType<typeof composeDispatch>,
) {
  const sleeps = config.onDemand;
  const acceptance = new AcceptanceGate({
    jobs: stores.jobs,
    unroutableMs: sleeps ? undefined : () => fleet.unroutableMs(),
    noNodeGraceMs: config.noNodeGraceMs,
    advertised,
    queueMegapixelsMax: config.queueMegapixelsMax,
  });
  const readiness = new ReadinessService(
    {
      checkDatabase: () => stores.check(),
      checkStorage: () => blobs.check(),
      hasBeenRoutable: sleeps ? undefined : () => fleet.hasBeenRoutable,
    },
    failed => {
      if (failed.length === 0) log.info('ready');
      for (const { cause, error: err } of failed) log.warn({ err, cause }, 'not ready');
    },
  );
  return { acceptance, readiness };
}

export interface ServiceParts
  extends Pick<
    Base,
    'config' | 'log' | 'stores' | 'blobs' | 'secrets' | 'views' | 'events' | 'guard'
  > {
  readonly acceptance: Pick<AcceptanceGate, 'requireAble' | 'requireOpen' | 'requireRoom'>;
  readonly models: OfferedModels;
  readonly readiness: AppServices['readiness'];
  readonly observer: LossObserver;
  /** The services' own where absent; tests narrow them. */
  readonly uploadSlots?: UploadBounds | undefined;
  readonly resultReaders?: ResultReaderBounds | undefined;
}

export type Services = ReturnType<typeof composeServices>;

export function composeServices(parts: ServiceParts) {
  const { config, stores, blobs, events, guard, acceptance, models, observer, log } = parts;
  const readAccount = accountViews(stores.ledger, stores.apiKeys);
  const submitMatting = new SubmitMatting({
    ...{ ...stores, readAccount, blobs, events, acceptance, models },
    callbackAddresses: new CallbackAddressCheck(guard),
    callbackSecrets: parts.secrets,
    jobsInFlightMax: config.jobsInFlightMax,
    fieldPolicy: config,
  });
  const losses = new LostResults({ ...stores, blobs, observer, log });
  const signed = config.resultDownloads === 'redirect' ? blobs.signed : undefined;
  return {
    losses,
    models,
    readAccount,
    submitMatting,
    uploads: new ImageUploads(blobs, parts.uploadSlots),
    resultDownload: new ResultDownload({ ...stores, blobs, losses, signed }),
    resultReaders: new ResultReaders(parts.resultReaders),
    waitForJob: new WaitForJob(stores.jobs, events),
    readJob: (caller: Caller, jobId: string) => readJobOfCaller(stores.jobs, caller, jobId),
    jobViews: parts.views,
    authenticator: new Authenticate(stores.apiKeys),
    keyUses: new KeyUses(stores.apiKeys),
    rateLimits: new RateLimits(stores.rateQuotas, {
      submissions: config.submissionsPerMinute,
      reads: config.readsPerMinute,
    }),
    readiness: parts.readiness,
  };
}

function composeBackground(
  base: Base,
  fleet: Fleet,
  { losses }: Services,
  plugged: readonly PackageParts[],
) {
  const { config, stores, secrets, events, guard, metrics, log, replicaId: holder } = base;
  const delivery = webhookDelivery({
    outbox: stores.outbox,
    guardedPost: new GuardedPost(guard, config),
    ...{ secrets, events, observer: metrics, log, holder },
    scheduleMs: config.webhookScheduleMs,
    tracing: base.tracing,
  });
  const clockWatch = watchClocks(stores.compareClocks, log);
  const clockLooks = pollingLoop(
    CLOCK_LOOK_MS,
    () => clockWatch.look(),
    err => log.warn({ err }, 'the clocks of the database were not read'),
  );
  const sightings = new NoteSightings({
    replica: holder,
    seen: () => fleet.seen(),
    store: stores.sightings,
    onFailed: err => log.warn({ err }, 'what is seen of the nodes was not noted'),
  });
  const sweeper = composeSweeper(base, losses, plugged);
  const loops = [...plugged.flatMap(({ loops = [] }) => loops), sweeper, clockLooks, sightings];
  return {
    delivery,
    clockWatch,
    start() {
      for (const loop of [delivery, ...loops]) loop.start();
    },
    /** All but `delivery`, which the drain ends by itself. */
    async stopRest() {
      await Promise.all(loops.map(loop => loop.stop()));
    },
  };
}

function composeSweeper(
  { config, stores, blobs, metrics, log, replicaId }: Base,
  losses: LostResults,
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
      ...removalSteps(stores, jobRetentionMs),
      ...plugged.flatMap(({ sweepSteps = [] }) => sweepSteps),
      resultLookStep({ lostResults: stores.lostResults, losses, blobs }),
    ],
    holder: replicaId,
    jobRetentionMs,
    logger: log,
    onFailure: () => metrics.sweepFailed(),
  });
}

export function composeOperatorServices(
  { config, stores }: Pick<Base, 'config' | 'stores'>,
  onNodesChanged: () => void,
): OperatorServices {
  return {
    operateAccounts: new OperateAccounts(stores),
    operateCredits: new OperateCredits(stores),
    operateJobs: new OperateJobs(stores),
    operateNodes: new OperateNodes(stores, onNodesChanged),
    operateWebhooks: new OperateWebhooks(stores),
    readQueue: new ReadQueue(stores, config.queueMegapixelsMax),
  };
}

function composeOperatorPort(
  { config, metrics, log }: Base,
  services: OperatorServices,
  plugged: readonly PackageParts[],
) {
  const { baseUrl, metricsHost: host, operatorKey } = config;
  return buildOperatorApp(services, {
    ...{ baseUrl, host, operatorKey, metrics: metrics.registry, logger: log },
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
    storageFreeBytes: () => blobs.freeBytes(),
    queueMegapixelsMax: config.queueMegapixelsMax,
    queued: () => stores.jobs.queued(),
    modelsOffered: config.modelsOffered,
    onDemand: config.onDemand,
    webhooksInFlight: () => running.background.delivery.inFlight,
    webhooksDue: () => stores.outbox.due(),
    ledgerAudits: () => stores.ledger.lastAudits(),
    clockDifferenceMs: () => running.background.clockWatch.differenceMs,
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
      // Last: every span has ended, and a collector that hangs holds nothing else back.
      async () => await tracing?.close(),
    ],
  };
}

/** Fewer connections to the public port are worth a warning. */
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
