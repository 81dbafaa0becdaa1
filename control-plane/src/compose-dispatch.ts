/** Makes what sends jobs to nodes: the fleet and the dispatcher. Opens nothing. */
import type { Logger } from 'pino';
import type { ChannelSecurity } from '#program/tls/tls-files.ts';
import type { Tracing } from '#program/tracing/span.ts';
import type { Config } from './config.ts';
import { AdvertisedNodes } from './domain/dispatch/advertised-nodes.ts';
import type { NodeAbility } from './domain/dispatch/job-needs.ts';
import type { LeaseTiming } from './domain/lease.ts';
import { Fleet } from './nodes/fleet.ts';
import { DirectPaths } from './services/direct/direct-paths.ts';
import type { ClaimedJobDependencies } from './services/dispatch/claimed-job.ts';
import { Dispatcher } from './services/dispatch/dispatcher.ts';
import type { JobObserver } from './services/dispatch/job-observer.ts';
import type { SourceFetcher } from './services/dispatch/source-fetch.ts';
import type { JobEvents } from './services/job-events.ts';
import type { BlobStore } from './storage/blob-store.ts';
import type { Stores } from './store/stores.ts';

export interface DispatchParts {
  readonly config: Pick<
    Config,
    | 'nodeToken'
    | 'attemptTimeoutMs'
    | 'resultTtlMs'
    | 'noNodeGraceMs'
    | 'onDemand'
    | 'directStorage'
  >;
  readonly log: Logger;
  /** Holder of the leases taken here. */
  readonly replicaId: string;
  readonly stores: Pick<Stores, 'jobs' | 'nodes'>;
  readonly blobs: BlobStore;
  readonly fetcher: SourceFetcher;
  readonly resultTokens: ClaimedJobDependencies['resultTokens'];
  readonly events: JobEvents;
  readonly observer: JobObserver;
  readonly leaseTiming: LeaseTiming;
  /** How nodes are reached. */
  readonly security: ChannelSecurity;
  /** Absent: there are no traces. */
  readonly tracing?: Tracing | undefined;
}

export interface Dispatch {
  readonly fleet: Fleet;
  readonly dispatcher: Dispatcher;
  /** Nodes whose word of what they can do counts; undefined: any may come. */
  readonly advertised: () => readonly NodeAbility[] | undefined;
}

export function composeDispatch(parts: DispatchParts): Dispatch {
  const { config, log, replicaId, stores, blobs, fetcher, events, observer, leaseTiming } = parts;
  const { jobs, nodes } = stores;
  const fleet = new Fleet({
    listMembers: () => nodes.listLive(),
    nodeToken: config.nodeToken,
    security: parts.security,
    log: (level, message, fields) => log[level](fields, message),
  });
  const { attemptTimeoutMs, resultTtlMs } = config;
  // Which nodes will come is not known: what those alive cannot do waits as long as any job may.
  const noNodeGraceMs = config.onDemand === undefined ? config.noNodeGraceMs : undefined;
  const advertised =
    noNodeGraceMs === undefined ? () => undefined : followAdverts(fleet, noNodeGraceMs);
  const dispatcher = new Dispatcher({
    ...{ jobs, fleet, blobs, fetcher, events, observer, log, leaseTiming },
    ...{ attemptTimeoutMs, resultTtlMs, noNodeGraceMs, advertised },
    resultTokens: parts.resultTokens,
    direct: composeDirect(parts),
    tracing: parts.tracing,
    holder: replicaId,
  });
  return { fleet, dispatcher, advertised };
}

function followAdverts(fleet: Fleet, graceMs: number): Dispatch['advertised'] {
  const now = () => performance.now();
  const adverts = new AdvertisedNodes({ routable: () => fleet.snapshots(), graceMs, now });
  fleet.onChange(() => adverts.changed());
  return () => adverts.nodes();
}

/** Undefined: every byte of a file goes through this process. */
function composeDirect({ config, blobs, log }: DispatchParts): DirectPaths | undefined {
  const { signed } = blobs;
  if (!config.directStorage || signed === undefined) return undefined;
  log.info({ origin: signed.origin }, 'files go straight where nodes list this origin');
  return new DirectPaths({ signed, blobs, log, now: () => performance.now() });
}
