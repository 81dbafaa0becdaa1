import { cpus } from 'node:os';
import type { Tracing } from '@matting/program/tracing/active-span.ts';
import type { GetNodeInfoResponse } from '@matting/proto/gen/matting/v1/matte_service.ts';
import type { Logger } from 'pino';
import type { ProviderChoice } from './engine/choice/execution-provider.ts';
import type { GpuDevice } from './engine/devices/gpu-device.ts';
import type { Callers } from './grpc/callers.ts';
import type { ExchangeBounds } from './grpc/matte-exchange.ts';
import { MatteHandler, type NodeWork } from './grpc/matte-handler.ts';
import {
  CapacityWatchers,
  createNodeInfo,
  gpuToProto,
  type NodeIdentity,
  readCapacity,
} from './grpc/node-info.ts';
import { NodeMetrics, registerGauges, registerStateGauge } from './metrics.ts';
import type { CommercialUseGate } from './models/model-settings.ts';
import { NodeStatus } from './node-state.ts';
import type { Pools } from './open-pools.ts';
import type { PicturePool } from './picture/pool/picture-pool.ts';
import { runLabels, subjects } from './pipeline.ts';

/** Exists once the models are loaded. */
export interface Started {
  readonly work: NodeWork;
  readonly pictures: PicturePool;
  readonly info: GetNodeInfoResponse;
  readonly provider: ProviderChoice;
}

interface ServiceParts {
  readonly identity: NodeIdentity;
  readonly callers: Callers;
  readonly log: Logger;
  readonly bounds?: ExchangeBounds;
  readonly tracing?: () => Tracing | undefined;
}

type Service = ReturnType<typeof composeService>;

export function composeService(parts: ServiceParts) {
  const { identity, callers, log, bounds, tracing } = parts;
  const status = new NodeStatus();
  /** Set once. Without a value the node is starting. */
  const started: { value?: Started } = {};
  const metrics = new NodeMetrics();
  registerStateGauge(status, metrics);
  const work = () => started.value?.work;
  const matte = new MatteHandler({
    ...{ status, work, metrics, callers, log, bounds, tracing },
  });
  const watchers = new CapacityWatchers(() => readCapacity(status, started.value), callers);
  status.onChange(() => watchers.changed());
  return { identity, callers, status, metrics, matte, watchers, started };
}

interface ServingParts extends Pools {
  readonly commercialUse: CommercialUseGate | undefined;
}

function describeDevice(selected: string, device: GpuDevice | undefined): string {
  if (selected === 'cpu') return cpus()[0]?.model ?? 'CPU';
  return device?.facts.name ?? selected;
}

/** Called once, when every pool is open. From here on the state follows the pools. */
export function startServing(service: Service, parts: ServingParts): Started {
  const { identity, status, metrics, watchers } = service;
  const { plan, selectable, pictures, admission, pipeline, provider, device } = parts;
  const able = { plan, selectable, pictures: pictures.capabilities };
  const work = { ...able, admission, pipeline };
  const { requested, selected } = provider;
  const constant = createNodeInfo({
    identity,
    work,
    pictures,
    engineBytes: parts.engineBytes,
    commercialUse: parts.commercialUse,
    providerRequested: requested,
    providerSelected: selected,
    device: describeDevice(selected, device),
  });
  const started = {
    ...{ work, pictures, provider },
    get info() {
      const gpus = device === undefined ? [] : [gpuToProto(device)];
      return { ...constant, gpus };
    },
  };
  const { version } = identity;
  const sources = { admission, pipeline, pictures, plan, provider, version, device };
  registerGauges(sources, metrics);
  metrics.planLoaded(plan.runs.filter(({ role }) => role !== 'subject').map(runLabels));
  for (const source of [admission, ...plan.runs.map(({ engines }) => engines)]) {
    source.onChange(() => watchers.changed());
  }
  service.started.value = started;
  // The node serves without the engines of other roles.
  const needed = subjects(plan).map(({ engines }) => engines);
  status.attach(needed, pictures);
  return started;
}

/** The answer of /info: as control planes get it, with names in place of the protocol's numbers. */
export function describeNode({ info, work, pictures, provider }: Started): object {
  const { gpus, selectable, ...rest } = info;
  return {
    ...rest,
    selectable: selectable.map(one => ({ ...one, kind: work.selectable.kind })),
    ...(gpus.length > 0 && { gpus }),
    inputFormats: pictures.capabilities.inputFormats,
    outputFormats: pictures.capabilities.outputFormats,
    executionProviderFallbacks: provider.fallbacks,
  };
}
