/**
 * Makes every long-lived object of the node and ties them together; open-pools.ts has the part that
 * computes. What answers callers is complete before the models are loaded, since the ports listen
 * while the node starts; `startServing` gives it its work. The order of coming up:
 *
 * 1. HTTP and gRPC listen, starting: probes see the node, a port in use ends it at once.
 * 2. The execution provider is chosen, the plan's models are prepared, engines and picture workers
 *    opened.
 * 3. Every model has an engine ready: the node serves. Only now it registers with control planes.
 */
import { randomUUID } from 'node:crypto';
import { cpus } from 'node:os';
import { setLogger } from '@grpc/grpc-js';
import type { Logger } from 'pino';
import { ContractError } from '#contract/errors.ts';
import type { GetNodeInfoResponse } from '#gen/matting/v1/matte_service.ts';
import { TlsFiles } from '#program/tls/tls-files.ts';
import { openTracing } from '#program/tracing/open-tracing.ts';
import type { Tracing } from '#program/tracing/span.ts';
import pkg from '../package.json' with { type: 'json' };
import type { Config } from './config.ts';
import { DirectFiles } from './serving/direct/direct-files.ts';
import { type DrainSteps, drainNode } from './serving/drain.ts';
import type { ProviderChoice } from './serving/engine/choice/execution-provider.ts';
import type { GpuDevice } from './serving/engine/devices/gpu-device.ts';
import { Callers } from './serving/grpc/callers.ts';
import { CapacityWatchers, readCapacity } from './serving/grpc/capacity.ts';
import type { ExchangeBounds } from './serving/grpc/matte-exchange.ts';
import { MatteHandler, type NodeWork } from './serving/grpc/matte-handler.ts';
import type { PictureDefaults } from './serving/grpc/matte-header.ts';
import { createNodeInfo, gpuToProto, type NodeIdentity } from './serving/grpc/node-info.ts';
import { Registration } from './serving/grpc/registration.ts';
import { openNodeServer } from './serving/grpc/server.ts';
import { openHttpEndpoints } from './serving/http-endpoints.ts';
import {
  NodeMetrics,
  registerConnectionsGauge,
  registerGauges,
  registerStateGauge,
} from './serving/metrics.ts';
import { admittedOutlineOf } from './serving/models/commercial-use.ts';
import { describeTerms } from './serving/models/licence.ts';
import { ModelError } from './serving/models/model-error.ts';
import type { CommercialUseGate } from './serving/models/model-settings.ts';
import { NodeStatus } from './serving/node-state.ts';
import { type OpenedPool, openPools, type Pools } from './serving/open-pools.ts';
import type { PicturePool } from './serving/picture/pool/picture-pool.ts';
import { subjects } from './serving/pipeline.ts';
import type { MakePrepared } from './serving/prepared/load-prepared.ts';
import { runLabels } from './serving/run-labels.ts';

/** What exists only once the models are loaded. */
interface Started {
  readonly work: NodeWork;
  readonly pictures: PicturePool;
  readonly info: GetNodeInfoResponse;
  readonly provider: ProviderChoice;
}

/** A value that is set once. Before, readers see undefined: the node is starting. */
interface Later<T> {
  value?: T;
}

interface ServiceParts {
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

type Service = ReturnType<typeof composeService>;

export function composeService(parts: ServiceParts) {
  const { identity, callers, log, bounds, tracing, direct = new DirectFiles([]) } = parts;
  const status = new NodeStatus();
  /** Read by the ports at each call. */
  const started: Later<Started> = {};
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

interface ServingParts extends Pools {
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
  const { plan, plans, pictures, admission, pipeline, provider, devices, defaults } = parts;
  const work = { plan, plans, defaults, pictures: pictures.capabilities, admission, pipeline };
  const { requested, selected } = provider;
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
  service.started.value = started;
  // The node serves without the engines of other roles.
  const needed = subjects(plan).map(({ engines }) => engines);
  status.attach(needed, pictures);
  return started;
}

/** What was opened so far, in order: a drain closes it, also while the node starts. */
interface Opened {
  /** TLS files and the servers. */
  readonly ports: { close(): void | Promise<void> }[];
  readonly pools: OpenedPool[];
  readonly registrations: Registration[];
}

interface Base {
  readonly config: Config;
  readonly log: Logger;
  readonly service: Service;
  readonly opened: Opened;
  /** Of nothing where there are no traces. */
  readonly tracing: Later<Tracing>;
  /** Aborted when the node is told to end: a start under way goes no further. */
  readonly ending: AbortController;
  readonly failed: PromiseWithResolvers<Error>;
}

/** Opens nothing before `start`. */
export function createInferenceNode(config: Config, log: Logger) {
  const identity = { nodeId: config.nodeId, bootId: randomUUID(), version: pkg.version };
  const direct = new DirectFiles(config.directOrigins);
  const tracing: Later<Tracing> = {};
  const callers = createCallers(config);
  const base: Base = {
    config,
    log,
    service: composeService({ identity, callers, log, direct, tracing: () => tracing.value }),
    tracing,
    opened: { ports: [], pools: [], registrations: [] },
    ending: new AbortController(),
    failed: Promise.withResolvers(),
  };
  const { status } = base.service;
  status.onChange(state => {
    log.info({ state }, 'state');
    if (state === 'failed') base.failed.resolve(new Error(status.failure));
  });
  return {
    /**
     * Resolves when the node must end: engines keep dying, they or picture workers do not die, or
     * the engines of a second look cannot be loaded.
     */
    failed: base.failed.promise,
    /**
     * Resolves when the node serves.
     * @throws TlsFileError, ListenError, ModelError, ExecutionProviderError, ConfigError, each for
     * the operator.
     */
    start: () => start(base),
    /** Ends the node in the order of drain.ts. Also while it starts. Never rejects. */
    drain: (hurry: AbortSignal) => {
      base.ending.abort(new Error('the node was told to end while it started'));
      return drainNode(drainSteps(base), { hurry, log });
    },
  };
}

/** A control plane must always find room: one direct caller gets half of a node, at least one image. */
function createCallers(config: Config): Callers {
  const { token, tokenAccepted, callerTokens, callerImagesMax, registryAddresses, tls } = config;
  const half = (nodeImagesMax: number) => Math.max(1, Math.floor(nodeImagesMax / 2));
  const all = (nodeImagesMax: number) => nodeImagesMax;
  const byDefault = registryAddresses.length > 0 ? half : all;
  return new Callers({
    token,
    tokenAccepted,
    callerTokens,
    certificatesChecked: tls.clientCaFile !== undefined,
    imagesMax: callerImagesMax === undefined ? byDefault : () => callerImagesMax,
  });
}

async function start(base: Base): Promise<void> {
  const { config, log, service, opened, failed } = base;
  const ending = base.ending.signal;
  const startedMs = performance.now();
  for (const warning of config.warnings) log.warn(warning);
  // Before anything is opened, fetched or prepared: a model that is refused never gets so far.
  const outline = await admittedOutlineOf(config.modelSettings);
  await startTracing(base);
  const ports = await listen(base);
  const pools = await openPools({
    ...{ config, log, outline, ending, make },
    opened: opened.pools,
    fail: failed.resolve,
  });
  ending.throwIfAborted();
  const { refinement, foregroundEstimation } = config;
  const defaults = { refinement, foregroundEstimation };
  const { commercialUse } = config.modelSettings;
  const started = startServing(service, { ...pools, defaults, commercialUse });
  const startMs = Math.round(performance.now() - startedMs);
  const { plan } = started.work;
  const models = plan.runs.map(({ model: { model: name, licence } }) => ({ name, licence }));
  const terms = describeTerms(plan.name, models);
  log.info({ startMs, terms, node: describe(started) }, 'serving');
  if (config.registryAddresses.length > 0) opened.registrations.push(register(base, ports));
}

/** Loads model-tools where a file is missing: a start from a prepared folder does without them. */
const make: MakePrepared = async (source, key, to) => {
  const { makePrepared } = await import('./model-tools/preparing/prepare.ts').catch(cause => {
    const { name } = to.manifest;
    const what = `${name} is not prepared for this machine, and model-tools cannot be loaded`;
    const how = `a start with them does it, or "npm run matting -- models fetch ${name}" for a CPU`;
    throw new ModelError('prepare', `${what}: ${how}`, cause);
  });
  return await makePrepared(source, key, to);
};

/** Before the ports listen: no call goes without. */
async function startTracing({ config, log, service, tracing }: Base): Promise<void> {
  const { nodeId: instanceId, version } = service.identity;
  const program = { name: 'matting-inference-node', version, instanceId };
  const opened = await openTracing(config.traces, { ...program, log, observer: service.metrics });
  if (opened !== undefined) tracing.value = opened;
}

async function listen({ config, log, service, opened }: Base) {
  const { host, port, httpPort } = config;
  const { callers, status, metrics, matte, watchers, started } = service;
  const { registry } = metrics;
  const tls = await TlsFiles.open(config.tls, { log });
  opened.ports.push(tls);
  // What grpc-js says about a failed bind is in the error that we throw.
  const grpcLog = (message: unknown) => log.debug({ from: 'grpc-js' }, String(message));
  setLogger({ error: grpcLog, info: grpcLog, debug: grpcLog });
  const description = () => started.value && describe(started.value);
  const http = await openHttpEndpoints({
    ...{ host, port: httpPort, status, registry },
    info: description,
  });
  opened.ports.push(http);
  const server = await openNodeServer({
    ...{ host, port, callers, status, matte, watchers },
    credentials: tls.serverCredentials(),
    info: () => started.value?.info,
    onEnded: cause => metrics.grpcEnded(cause),
  });
  opened.ports.push(server);
  registerConnectionsGauge(server.connections, registry);
  log.info({ host, port: server.port, httpPort: http.port }, 'listening');
  return { tls, http, server };
}

/** The answer of /info: what control planes are told, with names in place of the protocol's numbers. */
function describe({ info: { gpus, ...info }, pictures, provider }: Started): object {
  return {
    ...info,
    ...(gpus.length > 0 && { gpus }),
    inputFormats: pictures.capabilities.inputFormats,
    outputFormats: pictures.capabilities.outputFormats,
    executionProviderFallbacks: provider.fallbacks,
  };
}

function register(
  { config, log, service }: Base,
  { tls, http, server }: Awaited<ReturnType<typeof listen>>,
): Registration {
  const { registryAddresses, token, advertiseAddress, host } = config;
  const { identity, status } = service;
  const ownHost = host.includes(':') ? `[${host}]` : host;
  const address = advertiseAddress ?? `${ownHost}:${server.port}`;
  return new Registration({
    ...{ registryAddresses, identity, address, token, log },
    httpAddress: `${address.slice(0, address.lastIndexOf(':'))}:${http.port}`,
    security: tls.channelSecurity(),
    onDrainCommand: drain => {
      if (drain) status.drain('command');
      else status.undrain();
    },
  });
}

function drainSteps({ service, opened, tracing }: Base): DrainSteps {
  const { status, watchers, matte } = service;
  const { ports, pools, registrations } = opened;
  return {
    announce: () => {
      status.drain('shutdown');
      watchers.flush();
    },
    untilIdle: () => matte.untilIdle(),
    abortCalls: () =>
      matte.abortAll(new ContractError('NODE_UNAVAILABLE', 'the node is shutting down')),
    closeChildren: async graceMs => {
      await Promise.all(pools.map(({ pool }) => pool.close(graceMs)));
    },
    childrenLeft: () =>
      pools.flatMap(({ kind, pool }) => pool.processes().map(({ pid }) => ({ kind, pid }))),
    deregister: async () => {
      for (const registration of registrations) await registration.leave();
    },
    closeServers: async () => {
      watchers.close();
      // Beside the ports, within the time that they have: no call is open any more.
      const flushed = tracing.value?.close();
      for (const port of ports.toReversed()) await port.close();
      await service.direct.close();
      await flushed;
    },
  };
}
