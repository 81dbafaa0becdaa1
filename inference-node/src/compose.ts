/**
 * Makes every long-lived object of the node and ties them together: who exists, in which order they
 * come up, and in which they go. The order of coming up:
 *
 * 1. HTTP and gRPC listen, starting: probes see the node, a port in use ends it at once.
 * 2. The execution provider is chosen, the plan's models are prepared, engines and picture workers
 *    opened.
 * 3. Every model has an engine ready: the node serves. Only now control planes hear of it.
 */
import { randomUUID } from 'node:crypto';
import { cpus } from 'node:os';
import { setLogger } from '@grpc/grpc-js';
import type { Logger } from 'pino';
import { ContractError } from '#contract/errors.ts';
import type { GetNodeInfoResponse } from '#gen/matting/v1/matte_service.ts';
import { ConfigError } from '#program/env.ts';
import { TlsFiles } from '#program/tls/tls-files.ts';
import pkg from '../../package.json' with { type: 'json' };
import { Admission } from './admission.ts';
import type { Config } from './config.ts';
import { type ChildLeft, type DrainSteps, drainNode } from './drain.ts';
import { createAnswering } from './engine/choice/answer-picture.ts';
import { readCpuShare } from './engine/choice/cpu-share.ts';
import { chooseEngineLayout, type EngineLayout } from './engine/choice/engine-layout.ts';
import {
  type ProviderChoice,
  requireParity,
  selectExecutionProvider,
} from './engine/choice/execution-provider.ts';
import { openEnginePool } from './engine/pool/open-engine-pool.ts';
import { Callers } from './grpc/callers.ts';
import { CapacityWatchers, readCapacity } from './grpc/capacity.ts';
import { MatteHandler, type NodeWork } from './grpc/matte-handler.ts';
import { createNodeInfo, type NodeIdentity } from './grpc/node-info.ts';
import { type Registration, startRegistration } from './grpc/registration.ts';
import { type NodeServer, openNodeServer } from './grpc/server.ts';
import { type HttpEndpoints, openHttpEndpoints } from './http-endpoints.ts';
import {
  computeMegapixelBudget,
  enginesInMemory,
  type MegapixelBudget,
  operatorsBudget,
  readMemoryLimitBytes,
} from './memory-budget.ts';
import { createNodeMetrics, type NodeMetrics } from './metrics.ts';
import { buildPlan, loadPlanOutlines, outlineOf, type PlanOutline } from './models/plan.ts';
import type { Plan } from './models/prepared-model.ts';
import { detectInstructionSet } from './models/preparing/instruction-set.ts';
import { NodeStatus } from './node-state.ts';
import { openPicturePool } from './picture/pool/open-picture-pool.ts';
import type { WorkerPicturePool } from './picture/pool/picture-pool.ts';
import { Pipeline, type PlanRun, type RunnablePlan, subjects } from './pipeline.ts';

/** Decode of the next image and encode of the one before overlap with a run. */
const WORKERS_BESIDE_ENGINES = 2;
/** One image is being received or sent while every worker has one. */
const IMAGES_BESIDE_WORKERS = 1;

export class InferenceNode {
  readonly #config: Config;
  readonly #log: Logger;
  readonly #identity: NodeIdentity;
  readonly #status = new NodeStatus();
  readonly #metrics: NodeMetrics;
  readonly #callers: Callers;
  readonly #matte: MatteHandler;
  readonly #watchers: CapacityWatchers;
  readonly #failed = Promise.withResolvers<Error>();
  #tls: TlsFiles | undefined;
  #http: HttpEndpoints | undefined;
  #server: NodeServer | undefined;
  #runs: readonly PlanRun[] = [];
  #pictures: WorkerPicturePool | undefined;
  #work: NodeWork | undefined;
  #info: GetNodeInfoResponse | undefined;
  /** Of /info. */
  #description: object | undefined;
  #registration: Registration | undefined;
  #ending = false;

  constructor(config: Config, log: Logger) {
    this.#config = config;
    this.#log = log;
    this.#identity = { nodeId: config.nodeId, bootId: randomUUID(), version: pkg.version };
    this.#metrics = createNodeMetrics(this.#status);
    const work = () => this.#work;
    this.#callers = createCallers(config);
    this.#matte = new MatteHandler({
      status: this.#status,
      work,
      metrics: this.#metrics,
      callers: this.#callers,
      log,
    });
    this.#watchers = new CapacityWatchers(
      () => readCapacity(this.#status, this.#work, this.#pictures),
      this.#callers,
    );
    this.#status.onChange(state => {
      log.info({ state }, 'state');
      this.#watchers.changed();
    });
  }

  /**
   * Resolves when the node must end: engines keep dying, they or picture workers do not die, or a
   * second look's cannot be loaded.
   */
  get failed(): Promise<Error> {
    return this.#failed.promise;
  }

  /**
   * Resolves when the node serves.
   * @throws TlsFileError, ListenError, ModelError, ExecutionProviderError, ConfigError, each for
   * the operator.
   */
  async start(): Promise<void> {
    const startedMs = performance.now();
    for (const warning of this.#config.warnings) this.#log.warn(warning);
    await this.#listen();
    const { childEnv, executionProvider } = this.#config;
    const provider = await selectExecutionProvider(executionProvider, { childEnv });
    for (const { provider: tried, reason } of provider.fallbacks) {
      this.#log.warn(
        { provider: tried, selected: provider.selected, reason },
        'provider fell back',
      );
    }
    this.#requireGoingOn();
    const plan = await this.#preparePlan(provider);
    const layout = await this.#layoutFor(provider, plan);
    this.#requireGoingOn();
    await this.#openPools(plan, layout, provider);
    this.#requireGoingOn();
    this.#serve(provider, Math.round(performance.now() - startedMs));
  }

  /** Ends the node in the order of drain.ts. Also while it starts. Never rejects. */
  drain(hurry: AbortSignal): Promise<void> {
    this.#ending = true;
    const going = new ContractError('NODE_UNAVAILABLE', 'the node is shutting down');
    const steps: DrainSteps = {
      announce: () => {
        this.#status.drain('shutdown');
        this.#watchers.flush();
      },
      untilIdle: () => this.#matte.untilIdle(),
      abortCalls: () => this.#matte.abortAll(going),
      closeChildren: async graceMs => {
        const pools = this.#runs.map(({ engines }) => engines.close(graceMs));
        await Promise.all([...pools, this.#pictures?.close(graceMs)]);
      },
      childrenLeft: () => this.#childrenLeft(),
      deregister: async () => this.#registration?.leave(),
      closeServers: async () => {
        this.#watchers.close();
        await this.#server?.close();
        await this.#http?.close();
        this.#tls?.close();
      },
    };
    return drainNode(steps, { hurry, log: this.#log });
  }

  #childrenLeft(): ChildLeft[] {
    const engines = this.#runs.flatMap(run => run.engines.processes());
    const workers = this.#pictures?.processes() ?? [];
    return [
      ...engines.map(({ pid }) => ({ kind: 'engine' as const, pid })),
      ...workers.map(({ pid }) => ({ kind: 'picture worker' as const, pid })),
    ];
  }

  async #listen(): Promise<void> {
    const { host, port, httpPort, tls } = this.#config;
    this.#tls = await TlsFiles.open(tls, { log: this.#log });
    // What grpc-js has to say about a failed bind is in the error that we throw.
    const grpcLog = (message: unknown) => this.#log.debug({ from: 'grpc-js' }, String(message));
    setLogger({ error: grpcLog, info: grpcLog, debug: grpcLog });
    const status = this.#status;
    const { registry } = this.#metrics;
    const description = () => this.#description;
    const http = { host, port: httpPort, status, registry, info: description };
    this.#http = await openHttpEndpoints(http);
    const info = () => this.#info;
    const matte = this.#matte;
    const watchers = this.#watchers;
    const callers = this.#callers;
    const credentials = this.#tls.serverCredentials();
    const onEnded = this.#metrics.grpcEnded;
    const server = { host, port, callers, credentials, status, matte, watchers, info, onEnded };
    this.#server = await openNodeServer(server);
    this.#metrics.attachConnections(this.#server.connections);
    this.#log.info({ host, port: this.#server.port, httpPort: this.#http.port }, 'listening');
  }

  async #layoutFor({ selected }: ProviderChoice, { models }: Plan): Promise<EngineLayout> {
    const { engines, engineThreads, engineGoal } = this.#config;
    const cpuShare = await readCpuShare();
    const chosen = chooseEngineLayout({
      provider: selected,
      precisions: models.map(({ model }) => model.precision),
      cpuShare,
      goal: engineGoal,
      enginesMax: enginesInMemory(
        readMemoryLimitBytes(),
        models.map(({ model }) => model),
      ),
    });
    if (engines === undefined) {
      return { ...chosen, threadsPerEngine: engineThreads ?? chosen.threadsPerEngine };
    }
    const share = selected === 'cpu' ? Math.max(1, Math.floor(cpuShare / engines)) : 1;
    return { engines, threadsPerEngine: engineThreads ?? share };
  }

  async #preparePlan({ selected }: ProviderChoice): Promise<Plan> {
    const { modelSettings } = this.#config;
    const cpuThreads = Math.max(1, Math.floor(await readCpuShare()));
    const plan = await buildPlan({
      outline: await outlineOf(modelSettings),
      cacheDir: modelSettings.modelDir,
      precision: modelSettings.precision,
      provider: selected,
      instructionSet: await detectInstructionSet(),
      answering: createAnswering({ childEnv: this.#config.childEnv, threads: cpuThreads }),
      onProgress: (name, progress) => {
        const discarded = progress.step === 'discard';
        this.#log[discarded ? 'warn' : 'debug']({ model: name, ...progress }, 'preparing');
      },
    });
    for (const { model } of plan.models) {
      const { model: name, precision, precisionFallback: reason } = model;
      if (reason === undefined) continue;
      this.#log.warn({ model: name, selected: precision, reason }, 'precision fell back');
    }
    return plan;
  }

  async #openPools(plan: Plan, layout: EngineLayout, provider: ProviderChoice): Promise<void> {
    const { childEnv } = this.#config;
    // Before any child is there: a node without the memory must not begin.
    const budget = this.#megapixelBudget(plan, layout.engines);
    const cpuThreads = Math.max(1, Math.floor(await readCpuShare()));
    if (provider.selected === 'webgpu') {
      for (const { model } of plan.models) await requireParity(model, { childEnv, cpuThreads });
    }
    this.#requireGoingOn();
    const log = this.#log;
    const sharesCores = provider.selected === 'cpu' && plan.models.length > 1;
    const openEngines = async () => {
      for (const { model, role } of plan.models) {
        this.#requireGoingOn();
        const engines = openEnginePool({ model, ...layout, sharesCores, childEnv, log });
        this.#runs = [...this.#runs, { model, role, engines }];
        const ready = engines.ready();
        // Nobody waits for a second look's: a picture that needs it takes longer over its first.
        if (role === 'secondLook') ready.catch(error => this.#failed.resolve(error));
        // On a CPU each warms up with all cores: at once they are not ready sooner but later.
        else if (provider.selected === 'cpu') await ready;
      }
      const awaited = this.#runs.filter(({ role }) => role !== 'secondLook');
      await Promise.all(awaited.map(({ engines }) => engines.ready()));
    };
    const workers = this.#config.pictureWorkers ?? layout.engines + WORKERS_BESIDE_ENGINES;
    const openPictures = async () => {
      this.#pictures = await openPicturePool({ workers, childEnv, log });
    };
    await Promise.all([openEngines(), openPictures()]);
    const runnable = { name: plan.name, runs: this.#runs };
    const outlines = await loadPlanOutlines();
    const plans = [runnable, ...otherPlans(runnable, outlines)];
    this.#work = this.#createWork(runnable, plans, workers, budget);
  }

  #createWork(
    plan: RunnablePlan,
    plans: readonly RunnablePlan[],
    workers: number,
    budget: MegapixelBudget,
  ): NodeWork {
    const pictures = this.#requirePictures();
    const admission = new Admission({ imagesMax: workers + IMAGES_BESIDE_WORKERS, ...budget });
    const pipeline = new Pipeline(pictures);
    admission.onChange(() => this.#watchers.changed());
    for (const { engines } of plan.runs) engines.onChange(() => this.#watchers.changed());
    const { refinement, foregroundEstimation } = this.#config;
    const defaults = { refinement, foregroundEstimation };
    return { plan, plans, defaults, pictures: pictures.capabilities, admission, pipeline };
  }

  #megapixelBudget(plan: Plan, engines: number): MegapixelBudget {
    const { megapixelsMax } = this.#config;
    if (megapixelsMax !== undefined) return operatorsBudget(megapixelsMax);
    const memoryLimitBytes = readMemoryLimitBytes();
    const opened = plan.models.flatMap(({ model }) => Array.from({ length: engines }, () => model));
    const budget = computeMegapixelBudget({ memoryLimitBytes, engines: opened });
    if (budget !== undefined) return budget;
    const expected =
      `set: the memory limit (${Math.round(memoryLimitBytes / 1e6)} MB) leaves no room for a ` +
      'photo beside the engines; give more memory, fewer engines, or the megapixels you want to risk';
    throw new ConfigError([{ variable: 'MATTING_NODE_MEGAPIXELS_MAX', expected }]);
  }

  #serve(provider: ProviderChoice, startMs: number): void {
    const work = this.#work!;
    const pictures = this.#requirePictures();
    const { requested, selected } = provider;
    this.#info = createNodeInfo({
      identity: this.#identity,
      work,
      pictures,
      providerRequested: requested,
      providerSelected: selected,
      device: selected === 'cpu' ? (cpus()[0]?.model ?? 'CPU') : selected,
    });
    const { admission, pipeline, plan } = work;
    this.#metrics.attach({
      admission,
      pipeline,
      pictures,
      plan,
      version: this.#identity.version,
      providerRequested: requested,
      providerSelected: selected,
      providerFellBack: provider.fallbacks.length > 0,
    });
    this.#status.onChange(state => {
      if (state === 'failed') this.#failed.resolve(new Error(this.#status.failure));
    });
    // Without an opinion the node serves on.
    const needed = subjects(plan).map(({ engines }) => engines);
    this.#status.attach(needed, pictures);
    this.#description = {
      ...this.#info,
      // For people: names, not the protocol's numbers.
      inputFormats: pictures.capabilities.inputFormats,
      outputFormats: pictures.capabilities.outputFormats,
      executionProviderFallbacks: provider.fallbacks,
    };
    this.#log.info({ startMs, node: this.#description }, 'serving');
    this.#register();
  }

  #register(): void {
    const { registryAddresses, token } = this.#config;
    if (registryAddresses.length === 0) return;
    const address = this.#advertisedAddress();
    const host = address.slice(0, address.lastIndexOf(':'));
    this.#registration = startRegistration({
      registryAddresses,
      identity: this.#identity,
      address,
      httpAddress: `${host}:${this.#http!.port}`,
      token,
      security: this.#tls!.channelSecurity(),
      onDrainCommand: drain => {
        if (drain) this.#status.drain('command');
        else this.#status.undrain();
      },
      log: this.#log,
    });
  }

  #advertisedAddress(): string {
    const { advertiseAddress, host } = this.#config;
    if (advertiseAddress !== undefined) return advertiseAddress;
    return `${host.includes(':') ? `[${host}]` : host}:${this.#server!.port}`;
  }

  #requirePictures(): WorkerPicturePool {
    if (this.#pictures === undefined) throw new Error('no picture pool yet');
    return this.#pictures;
  }

  #requireGoingOn(): void {
    if (this.#ending) throw new Error('the node was told to end while it started');
  }
}

/** A control plane must always find room: one direct caller gets half of a node, at least one image. */
function createCallers(config: Config): Callers {
  const { token, callerTokens, callerImagesMax, registryAddresses, tls } = config;
  const half = (nodeImagesMax: number) => Math.max(1, Math.floor(nodeImagesMax / 2));
  const all = (nodeImagesMax: number) => nodeImagesMax;
  const byDefault = registryAddresses.length > 0 ? half : all;
  return new Callers({
    token,
    callerTokens,
    certificatesChecked: tls.clientCaFile !== undefined,
    imagesMax: callerImagesMax === undefined ? byDefault : () => callerImagesMax,
  });
}

/** The plans whose every model runs here too, at the same size. */
function otherPlans(own: RunnablePlan, outlines: readonly PlanOutline[]): RunnablePlan[] {
  return outlines.flatMap(({ name, entries }) => {
    if (name === own.name) return [];
    const runs = entries.flatMap(({ model, inputSize, role }) => {
      const run = own.runs.find(
        candidate => candidate.model.model === model && candidate.model.inputWidth === inputSize,
      );
      return run === undefined ? [] : [{ ...run, role }];
    });
    return runs.length === entries.length ? [{ name, runs }] : [];
  });
}
