import { Authenticate } from '@matting/accounts/keys/authenticate.ts';
import { accountViews, type Caller } from '@matting/accounts/keys/caller.ts';
import { KeyUses } from '@matting/accounts/keys/key-uses.ts';
import { ManageKeys } from '@matting/accounts/keys/manage-keys.ts';
import { RateLimits } from '@matting/accounts/rates/rate-limits.ts';
import { Fleet } from '@matting/nodes/fleet.ts';
import type { ChannelSecurity } from '@matting/program/tls/tls-files.ts';
import type { NodeTokens } from '@matting/program/tokens.ts';
import type { Tracing } from '@matting/program/tracing/active-span.ts';
import type { GroupPlacement } from '@matting/queue/fair-order.ts';
import type { Config } from './config.ts';
import { DeleteJob, type ErasureObserver } from './deletion/delete-job.ts';
import { AdvertisedNodes } from './dispatch/advertised-nodes.ts';
import { Dispatcher, type DispatcherDependencies } from './dispatch/dispatcher.ts';
import { CallbackAddressCheck } from './fetching/callback-check.ts';
import type { AppServices, OperatorServices } from './http/app-services.ts';
import { ReadinessService } from './http/readiness.ts';
import type { CallerJobFilter } from './jobs/caller-jobs.ts';
import { OfferedModels } from './models/offered-models.ts';
import type { Base } from './open-resources.ts';
import { OperateAccounts } from './operator/operate-accounts.ts';
import { OperateCredits } from './operator/operate-credits.ts';
import { OperateJobs, ReadQueue } from './operator/operate-jobs.ts';
import { OperateNodes } from './operator/operate-nodes.ts';
import { OperateWebhooks } from './operator/operate-webhooks.ts';
import { readJobOfCaller } from './results/job-of-caller.ts';
import { type LossObserver, LostResults } from './results/lost-results.ts';
import {
  ResultDownload,
  type ResultReaderBounds,
  ResultReaders,
} from './results/result-download.ts';
import { WaitForJob } from './results/wait-for-job.ts';
import type { Stores } from './stores.ts';
import { AcceptanceGate } from './submission/acceptance-gate.ts';
import { ImageUploads, type UploadBounds } from './submission/image-uploads.ts';
import { manyJobs } from './submission/many-jobs.ts';
import { SubmitMatting } from './submission/submit-matting.ts';

interface DispatchParts
  extends Pick<Base, 'log' | 'replicaId' | 'blobs' | 'events'>,
    Pick<
      DispatcherDependencies,
      'fetcher' | 'observer' | 'resultTokens' | 'leaseTiming' | 'pollMs'
    > {
  readonly config: Pick<
    Config,
    'attemptTimeoutMs' | 'resultTtlMs' | 'noNodeGraceMs' | 'onDemand' | 'modelsOffered'
  >;
  readonly nodeTokens: Pick<NodeTokens, 'shown'>;
  readonly stores: Pick<Stores, 'jobs' | 'queue' | 'nodes'>;
  readonly security: ChannelSecurity;
  readonly groups?: GroupPlacement | undefined;
  readonly tracing?: Tracing | undefined;
}

export function composeDispatch(parts: DispatchParts) {
  const { config, log, stores, blobs } = parts;
  const fleet = new Fleet({
    listMembers: () => stores.nodes.listLive(),
    noteModels: ({ nodeId, bootId }, models, runsOn) =>
      stores.nodes.noteModels(nodeId, bootId, models, runsOn),
    nodeToken: parts.nodeTokens.shown,
    defaultModel: config.modelsOffered[0],
    security: parts.security,
    log: (level, message, fields) => log[level](fields, message),
  });
  // Nodes that start on demand may have any ability, so a job that no live node can do waits, too.
  const noNodeGraceMs = config.onDemand ? undefined : config.noNodeGraceMs;
  const advertised = followAdverts(fleet, noNodeGraceMs);
  const models = new OfferedModels({
    offered: config.modelsOffered,
    snapshots: () => fleet.snapshots(),
    onJob: (name, ms) => parts.observer.modelTimed(name, ms),
  });
  const dispatcher = new Dispatcher(
    {
      queue: stores.queue,
      referencedBlobs: stores.jobs.referencedBlobs,
      blobs,
      fleet,
      advertised,
      models,
      fetcher: parts.fetcher,
      resultTokens: parts.resultTokens,
      events: parts.events,
      observer: parts.observer,
      tracing: parts.tracing,
      log,
      holder: parts.replicaId,
      leaseTiming: parts.leaseTiming,
      noNodeGraceMs,
      attemptTimeoutMs: config.attemptTimeoutMs,
      resultTtlMs: config.resultTtlMs,
      ...(parts.pollMs !== undefined && { pollMs: parts.pollMs }),
    },
    parts.groups,
  );
  return { fleet, dispatcher, advertised, models };
}

/** Reads what the nodes can do. Undefined if nodes of any ability may start on demand. */
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
    queue: stores.queue,
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

interface ServiceParts
  extends Pick<
    Base,
    'config' | 'log' | 'stores' | 'blobs' | 'secrets' | 'views' | 'events' | 'guard'
  > {
  readonly acceptance: Pick<AcceptanceGate, 'requireAble' | 'requireOpen'>;
  readonly models: OfferedModels;
  readonly readiness: AppServices['readiness'];
  readonly observer: LossObserver & ErasureObserver;
  /** Tests lower these bounds. */
  readonly uploadSlots?: UploadBounds | undefined;
  readonly resultReaders?: ResultReaderBounds | undefined;
}

export type Services = ReturnType<typeof composeServices>;

export function composeServices(parts: ServiceParts) {
  const { config, stores, blobs, events, guard, acceptance, models, observer, log } = parts;
  const readAccount = accountViews(stores.ledger, stores.apiKeys);
  const callbackAddresses = new CallbackAddressCheck(guard);
  const sells = config.packages.some(({ use, settings }) => use.sells?.(settings));
  const submitting = {
    jobs: stores.jobs,
    queue: stores.queue,
    acceptance,
    models,
    callbackAddresses,
    callbackSecrets: parts.secrets,
    fieldPolicy: config,
    sells,
  };
  const submitMatting = new SubmitMatting({
    ...submitting,
    readAccount,
    blobs,
    events,
    jobsInFlightMax: config.jobsInFlightMax,
  });
  const losses = new LostResults({ jobs: stores.jobs, blobs, observer, log });
  const resultReaders = new ResultReaders(parts.resultReaders, ids =>
    stores.jobs.deletedAmong(ids),
  );
  const erasing = { jobs: stores.jobs, blobs, readers: resultReaders, events, observer, log };
  const signRead = config.resultDownloads === 'redirect' ? blobs.signRead : undefined;
  return {
    blobs,
    events,
    models,
    callbackAddresses,
    manageKeys: new ManageKeys(stores.apiKeys),
    readAccount,
    submitMatting,
    uploads: new ImageUploads(blobs, parts.uploadSlots),
    resultDownload: new ResultDownload({ jobs: stores.jobs, blobs, losses, signRead }),
    resultReaders,
    waitForJob: new WaitForJob(stores.jobs, events),
    readJob: (caller: Caller, jobId: string) => readJobOfCaller(stores.jobs, caller, jobId),
    listJobs: (filter: CallerJobFilter) => stores.jobs.listOfKey(filter),
    deleteJob: new DeleteJob({ ...erasing, queue: stores.queue }),
    manyJobs: manyJobs(submitting),
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
