/**
 * Composes, starts and stops a node, without signals and exit codes. Order of a start:
 *
 * 1. HTTP and gRPC listen: probes see a starting node, and a port in use ends it at once.
 * 2. The execution provider is chosen, models are prepared, engines and picture workers open.
 * 3. Every model has an engine ready: the node serves, and only now registers with control planes.
 */
import { randomUUID } from 'node:crypto';
import { setLogger } from '@grpc/grpc-js';
import { hostIn } from '@matting/program/ports/keyless.ts';
import { TlsFiles } from '@matting/program/tls/tls-files.ts';
import type { Tracing } from '@matting/program/tracing/active-span.ts';
import { openTracing } from '@matting/program/tracing/open-tracing.ts';
import { VERSION } from '@matting/program/version.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Logger } from 'pino';
import { type DrainSteps, drainNode } from './drain.ts';
import { followTokens } from './grpc/caller-tokens.ts';
import { Callers } from './grpc/callers.ts';
import { Registration } from './grpc/registration.ts';
import { openNodeServer } from './grpc/server.ts';
import { registerCertificatesGauge, registerConnectionsGauge } from './metrics.ts';
import { admittedOutlineOf, describeTerms } from './models/plan.ts';
import { openHttpEndpoints } from './node-state.ts';
import { type OpenedPool, openPools } from './open-pools.ts';
import type { MakePrepared } from './prepared/load-prepared.ts';
import { composeService, describeNode, startServing } from './service.ts';
import type { NodeSettings } from './settings.ts';

export interface NodeParts {
  readonly settings: NodeSettings;
  readonly log: Logger;
  readonly make: MakePrepared;
}

export class InferenceNode {
  readonly #settings: NodeSettings;
  readonly #log: Logger;
  readonly #make: MakePrepared;
  readonly #identity;
  readonly #callers: Callers;
  readonly #service;
  /** In order. A drain closes them, even during the start. */
  readonly #ports: { close(): void | Promise<void> }[] = [];
  readonly #pools: OpenedPool[] = [];
  readonly #failed = Promise.withResolvers<Error>();
  #shownToken: string | undefined;
  #tracing: Tracing | undefined;
  #registration: Registration | undefined;

  constructor({ settings, log, make }: NodeParts) {
    this.#settings = settings;
    this.#log = log;
    this.#make = make;
    this.#identity = { nodeId: settings.nodeId, bootId: randomUUID(), version: VERSION };
    this.#callers = createCallers(settings);
    [this.#shownToken] = settings.nodeTokens.items;
    this.#service = composeService({
      ...{ identity: this.#identity, callers: this.#callers, log },
      tracing: () => this.#tracing,
    });
    const { status } = this.#service;
    status.onChange(state => {
      log.info({ state }, 'state');
      if (state === 'failed') this.#failed.resolve(new Error(status.failure));
    });
  }

  /** Resolves if engines keep dying, children do not die, or a second look's engine cannot load. */
  get failed(): Promise<Error> {
    return this.#failed.promise;
  }

  /** @param ending aborts when the node must end: the start then stops */
  async start(ending: AbortSignal): Promise<void> {
    const startedMs = performance.now();
    const config = this.#settings;
    const log = this.#log;
    // First: a refused model is neither fetched nor prepared.
    const outline = await admittedOutlineOf(config.modelSettings);
    // Before the ports listen, so that every call is traced.
    await this.#startTracing();
    const listening = await this.#listen();
    const opened = await openPools({
      ...{ config, log, outline, ending, make: this.#make },
      opened: this.#pools,
      fail: this.#failed.resolve,
    });
    ending.throwIfAborted();
    const { commercialUse } = config.modelSettings;
    const started = startServing(this.#service, { ...opened, commercialUse });
    const startMs = Math.round(performance.now() - startedMs);
    const { plan } = started.work;
    const models = plan.runs.map(({ model: { model: name, licence } }) => ({ name, licence }));
    const terms = describeTerms(plan.name, models);
    log.info({ startMs, terms, node: describeNode(started) }, 'serving');
    if (config.registryAddresses.length > 0) this.#registration = this.#register(listening);
  }

  /** Ends the node, even during its start. Never rejects. */
  drain(hurry: AbortSignal): Promise<void> {
    return drainNode(this.#drainSteps(), { hurry, log: this.#log });
  }

  async #startTracing(): Promise<void> {
    const { nodeId: instanceId, version } = this.#identity;
    const program = { name: 'matting-inference-node', version, instanceId };
    const observer = this.#service.metrics;
    this.#tracing = await openTracing(this.#settings.traces, {
      ...{ ...program, log: this.#log, observer },
    });
  }

  async #listen() {
    const log = this.#log;
    const config = this.#settings;
    const { host, port, httpPort } = config;
    const registryAddress = config.registryAddresses.join(',');
    const { started, status, matte, watchers, metrics } = this.#service;
    const tls = await TlsFiles.open(config.tls, { log });
    this.#ports.push(tls);
    registerCertificatesGauge(tls, metrics);
    const following = followTokens(config, log, tokens => {
      this.#callers.know(tokens);
      [this.#shownToken] = tokens.fleet;
    });
    if (following !== undefined) this.#ports.push(following);
    // grpc-js logs a failed bind, which our error names.
    const grpcLog = (message: unknown) => log.debug({ from: 'grpc-js' }, String(message));
    setLogger({ error: grpcLog, info: grpcLog, debug: grpcLog });
    const http = await openHttpEndpoints({
      ...{ host, port: httpPort, status, registry: metrics.registry },
      info: () => ({ registryAddress, ...(started.value && describeNode(started.value)) }),
      ownHosts: [config.host, config.advertiseAddress ?? ''].flatMap(text => hostIn(text) ?? []),
    });
    this.#ports.push(http);
    const server = await openNodeServer({
      ...{ host, port, callers: this.#callers, status, matte, watchers },
      credentials: tls.serverCredentials(),
      info: () => started.value?.info,
      onEnded: cause => metrics.grpcEnded(cause),
    });
    this.#ports.push(server);
    registerConnectionsGauge(server.connections, metrics);
    log.info({ host, port: server.port, httpPort: http.port }, 'listening');
    return { tls, http, server };
  }

  #register({ tls, http, server }: Listening): Registration {
    const { registryAddresses, advertiseAddress, host } = this.#settings;
    const { status } = this.#service;
    const ownHost = host.includes(':') ? `[${host}]` : host;
    const address = advertiseAddress ?? `${ownHost}:${server.port}`;
    return new Registration({
      ...{ registryAddresses, identity: this.#identity, address, log: this.#log },
      token: () => this.#shownToken,
      httpAddress: `${address.slice(0, address.lastIndexOf(':'))}:${http.port}`,
      security: tls.channelSecurity(),
      onDrainCommand: drain => {
        if (drain) status.drain('command');
        else status.undrain();
      },
    });
  }

  #drainSteps(): DrainSteps {
    const { status, matte, watchers } = this.#service;
    return {
      announce: () => {
        status.drain('shutdown');
        watchers.flush();
      },
      untilIdle: () => matte.untilIdle(),
      abortCalls: () =>
        matte.abortAll(new ContractError('NODE_UNAVAILABLE', 'The node is shutting down.')),
      closeChildren: async graceMs => {
        await Promise.all(this.#pools.map(({ pool }) => pool.close(graceMs)));
      },
      childrenLeft: () =>
        this.#pools.flatMap(({ kind, pool }) => pool.processes().map(({ pid }) => ({ kind, pid }))),
      deregister: async () => await this.#registration?.leave(),
      closeServers: async () => {
        watchers.close();
        // Parallel to the ports: no call is open any more.
        const flushed = this.#tracing?.close();
        for (const port of this.#ports.toReversed()) await port.close();
        await flushed;
      },
    };
  }
}

interface Listening {
  readonly tls: TlsFiles;
  readonly http: { readonly port: number };
  readonly server: { readonly port: number };
}

/**
 * A direct caller gets half of a node, at least one image, so a control plane always finds room.
 */
function createCallers(settings: NodeSettings): Callers {
  const { nodeTokens, callerTokens, registryAddresses, tls } = settings;
  const lists = [nodeTokens, callerTokens];
  const half = (nodeImagesMax: number) => Math.max(1, Math.floor(nodeImagesMax / 2));
  const all = (nodeImagesMax: number) => nodeImagesMax;
  return new Callers({
    tokens: { fleet: nodeTokens.items, direct: callerTokens.items },
    isOpen: lists.every(({ items, file }) => items.length === 0 && file === undefined),
    certificatesChecked: tls.clientCaFile !== undefined,
    imagesMax: registryAddresses.length > 0 ? half : all,
  });
}
