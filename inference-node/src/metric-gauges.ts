/**
 * Metrics that are read from the structures themselves at each scrape, so that none can drift from
 * what it stands for.
 */
import { Counter, Gauge, type Registry } from 'prom-client';
import type { GrpcGuard } from '#program/ports/grpc-guard.ts';
import type { Admission } from './admission.ts';
import type { ProviderChoice } from './engine/choice/execution-provider.ts';
import type { GpuDevice } from './engine/devices/gpu-device.ts';
import { NODE_STATES, type NodeStatus } from './node-state.ts';
import type { WorkerPicturePool } from './picture/pool/picture-pool.ts';
import { PIPELINE_PLACES, type Pipeline, type PlanRun, type RunnablePlan } from './pipeline.ts';
import { RUN_LABELS, runLabels } from './run-labels.ts';

/** What the gauges read; all of it exists once the models are loaded. */
export interface MetricSources {
  readonly admission: Admission;
  readonly pipeline: Pipeline;
  readonly pictures: WorkerPicturePool;
  readonly plan: RunnablePlan;
  readonly version: string;
  readonly provider: ProviderChoice;
  readonly devices?: readonly GpuDevice[];
}

export function registerStateGauge(status: NodeStatus, registry: Registry): void {
  new Gauge({
    name: 'matting_node_state',
    help: '1 for the state the node is in.',
    labelNames: ['state'],
    registers: [registry],
    collect() {
      const now = status.state;
      for (const state of NODE_STATES) this.set({ state }, state === now ? 1 : 0);
    },
  });
}

/** Called once, when the gRPC port listens. */
export function registerConnectionsGauge(
  connections: Pick<GrpcGuard, 'strangers' | 'known'>,
  registry: Registry,
): void {
  new Gauge({
    name: 'matting_node_grpc_connections',
    help: 'Open connections to the gRPC port, by whether they have shown who they are.',
    labelNames: ['kind'],
    registers: [registry],
    collect() {
      this.set({ kind: 'known' }, connections.known);
      this.set({ kind: 'stranger' }, connections.strangers);
    },
  });
}

/** Called once, when the models are loaded. */
export function registerGauges(sources: MetricSources, registry: Registry): void {
  registerLoadGauges(sources, registry);
  registerEngineGauges(sources.plan.runs, registry);
  registerEngineTotals(sources.plan.runs, registry);
  registerChildMemory(sources, registry);
  registerInfoGauges(sources, registry);
  registerGpuGauge(sources.devices ?? [], registry);
}

function registerGpuGauge(devices: readonly GpuDevice[], registry: Registry): void {
  new Gauge({
    name: 'matting_node_gpu_up',
    help: '1 for each GPU of the node that runs engines, 0 for one that fell out.',
    labelNames: ['gpu', 'name'],
    registers: [registry],
    collect() {
      for (const { facts, outReason } of devices) {
        this.set({ gpu: facts.id, name: facts.name }, outReason === undefined ? 1 : 0);
      }
    },
  });
}

/** A gauge without labels, read at each scrape. */
function gauge(registry: Registry, name: string, help: string, read: () => number): void {
  new Gauge({
    name,
    help,
    registers: [registry],
    collect() {
      this.set(read());
    },
  });
}

function registerLoadGauges({ admission, pipeline, pictures }: MetricSources, registry: Registry) {
  const admitted = () => admission.snapshot();
  const workers = () => pictures.snapshot();
  gauge(registry, 'matting_node_images_in_flight', 'Images admitted and not finished.', () => {
    return admitted().images;
  });
  gauge(registry, 'matting_node_images_max', 'Images admitted at once.', () => {
    return admitted().imagesMax;
  });
  gauge(registry, 'matting_node_megapixels_in_flight', 'Megapixels admitted.', () => {
    return admitted().megapixels;
  });
  gauge(registry, 'matting_node_megapixels_max', 'Megapixels admitted at once.', () => {
    return admitted().megapixelsMax;
  });
  gauge(registry, 'matting_node_file_bytes', 'Bytes of the files of admitted images.', () => {
    return admitted().fileBytes;
  });
  gauge(registry, 'matting_node_picture_workers', 'Picture workers.', () => workers().workers);
  gauge(registry, 'matting_node_picture_workers_busy', 'Picture workers with an image.', () => {
    return workers().busy;
  });
  gauge(registry, 'matting_node_picture_workers_stuck', 'Killed workers that do not die.', () => {
    return workers().workersStuck;
  });
  gauge(registry, 'matting_node_picture_queue_images', 'Images that wait for a worker.', () => {
    return workers().waiting;
  });
  new Counter({
    name: 'matting_node_picture_worker_ends_total',
    help: 'Picture worker processes that ended.',
    labelNames: ['cause'],
    registers: [registry],
    collect() {
      this.reset();
      for (const [cause, total] of Object.entries(pictures.ends())) this.inc({ cause }, total);
    },
  });
  new Gauge({
    name: 'matting_node_pipeline_images',
    help: 'Images at each place of the pipeline.',
    labelNames: ['place'],
    registers: [registry],
    collect() {
      for (const place of PIPELINE_PLACES) this.set({ place }, pipeline.imagesAt(place));
    },
  });
}

function registerEngineGauges(runs: readonly PlanRun[], registry: Registry): void {
  const perRun = (name: string, help: string, read: (run: PlanRun) => number): void => {
    new Gauge({
      name,
      help,
      labelNames: RUN_LABELS,
      registers: [registry],
      collect() {
        for (const run of runs) this.set(runLabels(run), read(run));
      },
    });
  };
  perRun('matting_node_engines', 'Engines wanted.', run => run.engines.snapshot().engines);
  perRun('matting_node_engines_ready', 'Engines that can run.', run => {
    return run.engines.snapshot().enginesReady;
  });
  perRun('matting_node_engines_stuck', 'Killed engines that do not die.', run => {
    return run.engines.snapshot().enginesStuck;
  });
  perRun('matting_node_engines_running', 'Engines with an image.', run => {
    return run.engines.snapshot().running;
  });
  perRun('matting_node_engine_run_images_max', 'Images that an engine takes at once.', run => {
    return run.engines.snapshot().imagesARunMax;
  });
  perRun('matting_node_engine_queue_images', 'Images that wait for an engine.', run => {
    return run.engines.snapshot().queued;
  });
  perRun('matting_node_engine_load_seconds', 'Of the newest engine: spawn to ready.', run => {
    return run.engines.metrics().loadMs / 1000;
  });
  perRun('matting_node_engine_warmup_seconds', 'Of the newest engine: its first run.', run => {
    return run.engines.metrics().warmMs / 1000;
  });
}

/** Totals that the engine pools keep. */
function registerEngineTotals(runs: readonly PlanRun[], registry: Registry): void {
  const perRun = <Label extends string>(
    name: string,
    help: string,
    label: Label | undefined,
    read: (run: PlanRun) => Readonly<Record<string, number>>,
  ): void => {
    new Counter<string>({
      name,
      help,
      labelNames: label === undefined ? RUN_LABELS : [...RUN_LABELS, label],
      registers: [registry],
      collect() {
        this.reset();
        for (const run of runs) {
          for (const [value, total] of Object.entries(read(run))) {
            const more = label === undefined ? {} : { [label]: value };
            this.inc({ ...runLabels(run), ...more }, total);
          }
        }
      },
    });
  };
  perRun('matting_node_engine_runs_total', 'Images by how their runs ended.', 'outcome', run => {
    return run.engines.metrics().runs;
  });
  const together = 'Runs by how many images were in them.';
  perRun('matting_node_engine_runs_by_images_total', together, 'images', run => {
    return run.engines.metrics().runsByImages;
  });
  perRun('matting_node_engine_deaths_total', 'Engine processes that ended.', 'cause', run => {
    return run.engines.metrics().deaths;
  });
  const busy = 'Time images were in an engine, summed over engines: its rate is the utilisation.';
  perRun('matting_node_engine_busy_seconds_total', busy, undefined, run => {
    return { busy: run.engines.metrics().busyS };
  });
}

function registerInfoGauges(sources: MetricSources, registry: Registry): void {
  const { plan, version, provider } = sources;
  const info = new Gauge({
    name: 'matting_node_info',
    help: 'What this node runs; always 1.',
    labelNames: [
      'version',
      'plan',
      ...RUN_LABELS,
      'model_sha256',
      'precision',
      'execution_provider',
    ],
    registers: [registry],
  });
  for (const run of plan.runs) {
    const { sha256, precision, provider: modelProvider } = run.model;
    const labels = { version, plan: plan.name, ...runLabels(run), model_sha256: sha256 };
    info.set({ ...labels, precision, execution_provider: modelProvider }, 1);
  }
  const fallback = new Gauge({
    name: 'matting_node_execution_provider_fallback',
    help: '1 where the execution provider is not the first choice of what was asked for.',
    labelNames: ['requested', 'selected'],
    registers: [registry],
  });
  const { requested, selected, fallbacks } = provider;
  fallback.set({ requested, selected }, Number(fallbacks.length > 0));
  const precisionFallback = new Gauge({
    name: 'matting_node_precision_fallback',
    help: '1 where a model could run in int8, and this node runs it in another precision.',
    labelNames: [...RUN_LABELS, 'selected'],
    registers: [registry],
  });
  for (const run of plan.runs) {
    const { precision, precisionFallback: reason } = run.model;
    precisionFallback.set({ ...runLabels(run), selected: precision }, Number(reason !== undefined));
  }
}

/** Memory of the child processes; the main process has prom-client's own metric. */
function registerChildMemory({ plan, pictures }: MetricSources, registry: Registry): void {
  new Gauge({
    name: 'matting_node_picture_worker_resident_memory_bytes',
    help: 'Memory of each picture worker process.',
    labelNames: ['worker'],
    registers: [registry],
    collect() {
      this.reset();
      for (const { place, residentBytes } of pictures.processes()) {
        if (residentBytes !== undefined) this.set({ worker: String(place) }, residentBytes);
      }
    },
  });
  new Gauge({
    name: 'matting_node_engine_resident_memory_bytes',
    help: 'Memory of each engine process.',
    labelNames: [...RUN_LABELS, 'engine'],
    registers: [registry],
    collect() {
      this.reset();
      for (const run of plan.runs) {
        for (const { engine, residentBytes } of run.engines.processes()) {
          if (residentBytes === undefined) continue;
          this.set({ ...runLabels(run), engine: String(engine) }, residentBytes);
        }
      }
    },
  });
}
