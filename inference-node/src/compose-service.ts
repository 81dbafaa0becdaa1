/**
 * Makes what answers callers. It is complete before the models are loaded, since the ports listen
 * while the node starts; `startServing` gives it its work. Opens nothing.
 */
import assert from 'node:assert/strict';
import { cpus } from 'node:os';
import type { Logger } from 'pino';
import type { GetNodeInfoResponse } from '#gen/matting/v1/matte_service.ts';
import type { Tracing } from '#program/tracing/span.ts';
import { DirectFiles } from './direct/direct-files.ts';
import type { ProviderChoice } from './engine/choice/execution-provider.ts';
import type { GpuDevice } from './engine/devices/gpu-device.ts';
import type { Callers } from './grpc/callers.ts';
import { CapacityWatchers, readCapacity } from './grpc/capacity.ts';
import type { ExchangeBounds } from './grpc/matte-exchange.ts';
import { MatteHandler, type NodeWork } from './grpc/matte-handler.ts';
import type { PictureDefaults } from './grpc/matte-header.ts';
import { createNodeInfo, gpuToProto, type NodeIdentity } from './grpc/node-info.ts';
import { registerGauges, registerStateGauge } from './metric-gauges.ts';
import { NodeMetrics } from './metrics.ts';
import type { CommercialUseGate } from './models/model-settings.ts';
import { NodeStatus } from './node-state.ts';
import type { Pools } from './open-pools.ts';
import type { WorkerPicturePool } from './picture/pool/picture-pool.ts';
import { subjects } from './pipeline.ts';
import { runLabels } from './run-labels.ts';

/** What exists only once the models are loaded. */
export interface Started {
  readonly work: NodeWork;
  readonly pictures: WorkerPicturePool;
  readonly info: GetNodeInfoResponse;
  readonly provider: ProviderChoice;
}

/** A value that is published once. Before, readers see undefined: the node is starting. */
export class Published<T> {
  #value: T | undefined;

  get value(): T | undefined {
    return this.#value;
  }

  publish(value: T): void {
    assert(this.#value === undefined, 'a value is published once');
    this.#value = value;
  }
}

export interface ServiceParts {
  readonly identity: NodeIdentity;
  readonly callers: Callers;
  readonly log: Logger;
  /** Takes files from no storage where absent. */
  readonly direct?: DirectFiles;
  /** EXCHANGE_BOUNDS where absent; tests narrow them. */
  readonly bounds?: ExchangeBounds;
  /** Read at each call; absent: there are no traces. */
  readonly tracing?: () => Tracing | undefined;
}

export interface Service extends Pick<ServiceParts, 'identity' | 'callers'> {
  readonly direct: DirectFiles;
  readonly status: NodeStatus;
  readonly metrics: NodeMetrics;
  readonly matte: MatteHandler;
  readonly watchers: CapacityWatchers;
  /** Read by the ports at each call. */
  readonly started: Published<Started>;
}

export function composeService(parts: ServiceParts): Service {
  const { identity, callers, log, bounds, tracing, direct = new DirectFiles([]) } = parts;
  const status = new NodeStatus();
  const started = new Published<Started>();
  const metrics = new NodeMetrics();
  registerStateGauge(status, metrics.registry);
  const work = () => started.value?.work;
  const matte = new MatteHandler({
    ...{ status, work, metrics, callers, log, bounds, direct, tracing },
  });
  const watchers = new CapacityWatchers(() => readCapacity(status, started.value), callers);
  status.onChange(() => watchers.changed());
  return { identity, callers, direct, status, metrics, matte, watchers, started };
}

export interface ServingParts extends Omit<Pools, 'devices'>, Partial<Pick<Pools, 'devices'>> {
  readonly defaults: PictureDefaults;
  readonly commercialUse: CommercialUseGate | undefined;
}

/** For people: the CPU's or the GPUs' name. */
function describeDevice(selected: string, devices: readonly GpuDevice[]): string {
  if (selected === 'cpu') return cpus()[0]?.model ?? 'CPU';
  const names = new Set(devices.map(({ facts }) => facts.name));
  const each = [...names].map(name => {
    const count = devices.filter(({ facts }) => facts.name === name).length;
    return count === 1 ? name : `${count} x ${name}`;
  });
  return each.join(', ') || selected;
}

/** Called once, when every pool is open: the state follows the pools from here on. */
export function startServing(service: Service, parts: ServingParts): Started {
  const { identity, status, metrics, watchers, direct } = service;
  const { plan, plans, pictures, admission, pipeline, provider, defaults } = parts;
  const work = { plan, plans, defaults, pictures: pictures.capabilities, admission, pipeline };
  const { requested, selected } = provider;
  const { devices = [] } = parts;
  const constant = createNodeInfo({
    identity,
    work,
    pictures,
    commercialUse: parts.commercialUse,
    directOrigins: direct.origins,
    providerRequested: requested,
    providerSelected: selected,
    device: describeDevice(selected, devices),
  });
  const started = {
    ...{ work, pictures, provider },
    get info() {
      return { ...constant, gpus: devices.map(gpuToProto) };
    },
  };
  const { version } = identity;
  const sources = { admission, pipeline, pictures, plan, provider, version, devices };
  registerGauges(sources, metrics.registry);
  metrics.planLoaded(plan.runs.filter(({ role }) => role !== 'subject').map(runLabels));
  for (const source of [admission, ...plan.runs.map(({ engines }) => engines)]) {
    source.onChange(() => watchers.changed());
  }
  service.started.publish(started);
  // The node serves without the engines of other roles.
  const needed = subjects(plan).map(({ engines }) => engines);
  status.attach(needed, pictures);
  return started;
}
