/**
 * The inference node's program: what it is made of, how it starts and how it ends. Only here does it
 * handle signals and end the process.
 *
 * | exit code | when                                                              |
 * |-----------|-------------------------------------------------------------------|
 * | 0         | drained                                                           |
 * | 78        | the configuration is not valid: every bad variable is on stderr    |
 * | 1         | it cannot start, its engines keep dying, a child of it does not    |
 * |           | die, or a bug: the log says so                                     |
 *
 * The order of coming up:
 *
 * 1. HTTP and gRPC listen, starting: probes see the node, a port in use ends it at once.
 * 2. The execution provider is chosen, the plan's models are prepared, engines and picture workers
 *    opened.
 * 3. Every model has an engine ready: the node serves. Only now it registers with control planes.
 */
import { randomUUID } from 'node:crypto';
import { setLogger } from '@grpc/grpc-js';
import { CONFIG_EXIT_CODE, ConfigError } from '@matting/program/env.ts';
import { collectYoungBuffers, letHeapGrow } from '@matting/program/heap.ts';
import { createLog } from '@matting/program/log.ts';
import { hostIn } from '@matting/program/ports/keyless.ts';
import { SignalGate } from '@matting/program/signal-gate.ts';
import { TlsFiles } from '@matting/program/tls/tls-files.ts';
import type { Tracing } from '@matting/program/tracing/active-span.ts';
import { openTracing } from '@matting/program/tracing/open-tracing.ts';
import { VERSION } from '@matting/program/version.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { DirectFiles } from '@matting/serving/direct/direct-files.ts';
import { type DrainSteps, drainNode } from '@matting/serving/drain.ts';
import { followTokens } from '@matting/serving/grpc/caller-tokens.ts';
import { Callers } from '@matting/serving/grpc/callers.ts';
import { Registration } from '@matting/serving/grpc/registration.ts';
import { openNodeServer } from '@matting/serving/grpc/server.ts';
import { registerCertificatesGauge, registerConnectionsGauge } from '@matting/serving/metrics.ts';
import { describeTerms } from '@matting/serving/models/licence.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import { admittedOutlineOf } from '@matting/serving/models/plan.ts';
import { openHttpEndpoints } from '@matting/serving/node-state.ts';
import { type OpenedPool, openPools } from '@matting/serving/open-pools.ts';
import type { MakePrepared } from '@matting/serving/prepared/load-prepared.ts';
import { composeService, describeNode, startServing } from '@matting/serving/service.ts';
import { type Config, loadConfig } from './config.ts';

function requireConfig(): Config {
  try {
    return loadConfig();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(CONFIG_EXIT_CODE);
  }
}

letHeapGrow();
collectYoungBuffers();
const config = requireConfig();
const log = createLog({
  level: config.logLevel,
  batchBytes: 0,
  base: { program: 'inference-node', nodeId: config.nodeId },
  traced: config.traces !== undefined,
  sampling: config.logSampling,
});
const identity = { nodeId: config.nodeId, bootId: randomUUID(), version: VERSION };
const direct = new DirectFiles(config.directOrigins);
const callers = createCallers();
let [shownToken] = config.nodeTokens.items;
let tracing: Tracing | undefined;
const service = composeService({ identity, callers, log, direct, tracing: () => tracing });
const { status, metrics, matte, watchers } = service;

// What was opened so far, in order: a drain closes it, also while the node starts.
const ports: { close(): void | Promise<void> }[] = [];
const pools: OpenedPool[] = [];
let registration: Registration | undefined;

/** Engines keep dying, they or picture workers do not die, or a second look's cannot be loaded. */
const failed = Promise.withResolvers<Error>();
/** Aborted when the node is told to end: a start under way goes no further. */
const starting = new AbortController();
const hurry = new AbortController();
const gate = new SignalGate();
let exitCode = 0;
let ending: Promise<void> | undefined;

/** A control plane must always find room: one direct caller gets half of a node, at least one image. */
function createCallers(): Callers {
  const { nodeTokens, callerTokens, callerImagesMax, registryAddresses, tls } = config;
  const lists = [nodeTokens, callerTokens];
  const half = (nodeImagesMax: number) => Math.max(1, Math.floor(nodeImagesMax / 2));
  const all = (nodeImagesMax: number) => nodeImagesMax;
  const byDefault = registryAddresses.length > 0 ? half : all;
  return new Callers({
    tokens: { fleet: nodeTokens.items, direct: callerTokens.items },
    isOpen: lists.every(({ items, file }) => items.length === 0 && file === undefined),
    certificatesChecked: tls.clientCaFile !== undefined,
    imagesMax: callerImagesMax === undefined ? byDefault : () => callerImagesMax,
  });
}

async function start(): Promise<void> {
  const startedMs = performance.now();
  for (const warning of config.warnings) log.warn(warning);
  // Before anything is opened, fetched or prepared: a model that is refused never gets so far.
  const outline = await admittedOutlineOf(config.modelSettings);
  await startTracing();
  const listening = await listen();
  const opened = await openPools({
    ...{ config, log, outline, metrics, ending: starting.signal, make },
    opened: pools,
    fail: failed.resolve,
  });
  starting.signal.throwIfAborted();
  const { refinement, foregroundEstimation } = config;
  const defaults = { refinement, foregroundEstimation };
  const { commercialUse } = config.modelSettings;
  const started = startServing(service, { ...opened, defaults, commercialUse });
  const startMs = Math.round(performance.now() - startedMs);
  const { plan } = started.work;
  const models = plan.runs.map(({ model: { model: name, licence } }) => ({ name, licence }));
  const terms = describeTerms(plan.name, models);
  log.info({ startMs, terms, node: describeNode(started) }, 'serving');
  if (config.registryAddresses.length > 0) registration = register(listening);
}

/** Loads model-tools where a file is missing: a start from a prepared folder does without them. */
async function make(...[source, key, to]: Parameters<MakePrepared>): ReturnType<MakePrepared> {
  const { makePrepared } = await import('@matting/model-tools/preparing/prepare.ts').catch(
    cause => {
      const { name } = to.manifest;
      const what = `${name} is not prepared for this machine, and model-tools cannot be loaded`;
      const how = `a start with them does it, or "npm run matting -- models fetch ${name}" for a CPU`;
      throw new ModelError('prepare', `${what}: ${how}`, cause);
    },
  );
  return await makePrepared(source, key, to);
}

/** Before the ports listen: no call goes without. */
async function startTracing(): Promise<void> {
  const { nodeId: instanceId, version } = identity;
  const program = { name: 'matting-inference-node', version, instanceId };
  tracing = await openTracing(config.traces, { ...program, log, observer: metrics });
}

async function listen() {
  const { host, port, httpPort } = config;
  const { started } = service;
  const { registry } = metrics;
  const tls = await TlsFiles.open(config.tls, { log });
  ports.push(tls);
  registerCertificatesGauge(tls, registry);
  const following = followTokens(config, log, tokens => {
    callers.know(tokens);
    [shownToken] = tokens.fleet;
  });
  if (following !== undefined) ports.push(following);
  // What grpc-js says about a failed bind is in the error that we throw.
  const grpcLog = (message: unknown) => log.debug({ from: 'grpc-js' }, String(message));
  setLogger({ error: grpcLog, info: grpcLog, debug: grpcLog });
  const http = await openHttpEndpoints({
    ...{ host, port: httpPort, status, registry },
    info: () => started.value && describeNode(started.value),
    ownHosts: [config.host, config.advertiseAddress ?? ''].flatMap(text => hostIn(text) ?? []),
  });
  ports.push(http);
  const server = await openNodeServer({
    ...{ host, port, callers, status, matte, watchers },
    credentials: tls.serverCredentials(),
    info: () => started.value?.info,
    onEnded: cause => metrics.grpcEnded(cause),
  });
  ports.push(server);
  registerConnectionsGauge(server.connections, registry);
  log.info({ host, port: server.port, httpPort: http.port }, 'listening');
  return { tls, http, server };
}

function register({ tls, http, server }: Awaited<ReturnType<typeof listen>>): Registration {
  const { registryAddresses, advertiseAddress, host } = config;
  const ownHost = host.includes(':') ? `[${host}]` : host;
  const address = advertiseAddress ?? `${ownHost}:${server.port}`;
  return new Registration({
    ...{ registryAddresses, identity, address, log },
    token: () => shownToken,
    httpAddress: `${address.slice(0, address.lastIndexOf(':'))}:${http.port}`,
    security: tls.channelSecurity(),
    onDrainCommand: drain => {
      if (drain) status.drain('command');
      else status.undrain();
    },
  });
}

const drainSteps: DrainSteps = {
  announce: () => {
    status.drain('shutdown');
    watchers.flush();
  },
  untilIdle: () => matte.untilIdle(),
  abortCalls: () =>
    matte.abortAll(new ContractError('NODE_UNAVAILABLE', 'The node is shutting down.')),
  closeChildren: async graceMs => {
    await Promise.all(pools.map(({ pool }) => pool.close(graceMs)));
  },
  childrenLeft: () =>
    pools.flatMap(({ kind, pool }) => pool.processes().map(({ pid }) => ({ kind, pid }))),
  deregister: async () => await registration?.leave(),
  closeServers: async () => {
    watchers.close();
    // Beside the ports, within the time that they have: no call is open any more.
    const flushed = tracing?.close();
    for (const port of ports.toReversed()) await port.close();
    await direct.close();
    await flushed;
  },
};

/** In the order of drain.ts. Also while it starts. Never rejects. */
function end(): void {
  if (ending !== undefined) return;
  starting.abort(new Error('the node was told to end while it started'));
  ending = drainNode(drainSteps, { hurry: hurry.signal, log }).then(() => process.exit(exitCode));
}

function fail(error: unknown): void {
  log.fatal({ err: error }, 'the node ends');
  if (exitCode === 0) {
    process.stderr.write(`inference node: ${error instanceof Error ? error.message : error}\n`);
  }
  exitCode = error instanceof ConfigError ? CONFIG_EXIT_CODE : 1;
  hurry.abort();
  end();
}

function onSignal(signal: NodeJS.Signals): void {
  const meaning = gate.read(performance.now());
  log.info({ signal, meaning }, 'signal');
  if (meaning === 'hurry') hurry.abort();
  if (meaning !== 'repeat') end();
}

// Before anything is loaded: it must be possible to stop a node that starts.
process.on('SIGTERM', onSignal);
process.on('SIGINT', onSignal);
process.on('disconnect', () => {
  log.info('the parent is gone');
  hurry.abort();
  end();
});
// After an unknown error the state is unknown: end, and let the supervisor start it again.
process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);

status.onChange(state => {
  log.info({ state }, 'state');
  if (state === 'failed') failed.resolve(new Error(status.failure));
});
void failed.promise.then(fail);
start().catch((error: unknown) => {
  // A node that is told to end while it starts has not failed.
  if (ending === undefined) fail(error);
});
