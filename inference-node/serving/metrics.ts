/**
 * NodeMetrics counts events. The functions below the class read state at each scrape, so that no
 * figure drifts. Names begin with `matting_node_`, units are base units, no label holds a caller's
 * text.
 */

import { everyOf, MetricSet } from '@matting/program/metric-set.ts';
import {
  type GrpcGuard,
  GUARD_CAUSES,
  type GuardCause,
} from '@matting/program/ports/grpc-guard.ts';
import { collectProcessMetrics } from '@matting/program/process-metrics.ts';
import type { TlsFiles } from '@matting/program/tls/tls-files.ts';
import {
  SPAN_FATES,
  type SpanFate,
  type SpanObserver,
} from '@matting/program/tracing/active-span.ts';
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import { OUTPUT_FORMATS, type OutputFormat } from '@matting/proto/contract/formats.ts';
import { type StageTimings, timesByStage } from '@matting/proto/contract/stages.ts';
import { Counter } from '@prometheus-io/client';
import type { Admission } from './admission.ts';
import type { ProviderChoice } from './engine/choice/execution-provider.ts';
import type { GpuDevice } from './engine/devices/gpu-device.ts';
import { runtimeOf } from './models/prepared-model.ts';
import { NODE_STATES, type NodeStatus } from './node-state.ts';
import { EXTRA_RUN_KINDS } from './picture/extra-runs.ts';
import type { PicturePool } from './picture/pool/picture-pool.ts';
import {
  PIPELINE_POSITIONS,
  type Pipeline,
  type PlanRun,
  RUN_LABELS,
  type RunLabels,
  type RunnablePlan,
  runLabels,
} from './pipeline.ts';

const DURATION_BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

/** Alert rules need these labels from the start. */
const IMAGE_ENDS = everyOf({ outcome: ['succeeded'], code: [''], output_format: OUTPUT_FORMATS });

interface SucceededImage {
  readonly outputFormat: OutputFormat;
  readonly durationMs: number;
  readonly timings: StageTimings;
}

export class NodeMetrics extends MetricSet implements SpanObserver {
  readonly #images = this.openCounter(
    'matting_node_images_total',
    'Admitted images by how they ended; code is empty for a success.',
    ['outcome', 'code', 'output_format'],
    IMAGE_ENDS,
  );
  readonly #refused = this.openCounter(
    'matting_node_admission_refused_total',
    'Calls that ended before they were admitted, by error code.',
    ['code'],
  );
  readonly #degraded = this.openCounter(
    'matting_node_images_degraded_total',
    'Images served without a model of their plan, because no engine of it was up.',
    RUN_LABELS,
  );
  readonly #durationS = this.histogram(
    'matting_node_image_duration_seconds',
    'From the call to its result taken, of images that succeeded.',
    ['output_format'],
    DURATION_BUCKETS_S,
  );
  readonly #stageS = this.histogram(
    'matting_node_stage_duration_seconds',
    'Stages of images that succeeded.',
    ['stage'],
    DURATION_BUCKETS_S,
  );
  readonly #received = this.counter(
    'matting_node_received_bytes_total',
    'Bytes of files received.',
    {},
  );
  readonly #sent = this.counter('matting_node_sent_bytes_total', 'Bytes of results sent.', {});
  readonly #grpcEnded = this.counter(
    'matting_node_grpc_ended_total',
    'Connections and calls that the gRPC port ended at a bound, by what they did.',
    { cause: GUARD_CAUSES },
  );
  readonly #spans = this.counter(
    'matting_node_spans_total',
    'Sampled spans of traces by what became of them.',
    { outcome: SPAN_FATES },
  );

  readonly extraRun = this.countedBy(
    'matting_node_extra_runs_total',
    'Further runs at pictures that a plan was unsure of, by what the model saw.',
    { input: EXTRA_RUN_KINDS },
  );

  constructor() {
    super();
    collectProcessMetrics(this.registry);
  }

  imageSucceeded({ outputFormat, durationMs, timings }: SucceededImage): void {
    this.#images.inc({ outcome: 'succeeded', code: '', output_format: outputFormat });
    this.#durationS.observe({ output_format: outputFormat }, durationMs / 1000);
    for (const [stage, ms] of timesByStage(timings)) this.#stageS.observe({ stage }, ms / 1000);
  }

  imageFailed(code: ErrorCode, outputFormat: OutputFormat): void {
    const gone = code === 'CALL_CANCELLED' || code === 'CALL_DEADLINE_EXCEEDED';
    this.#images.inc({ outcome: gone ? 'cancelled' : 'failed', code, output_format: outputFormat });
  }

  /** @param missable models that an image may have to do without */
  planLoaded(missable: readonly RunLabels[]): void {
    for (const labels of missable) this.#degraded.inc({ ...labels }, 0);
  }

  imageDegraded(missing: RunLabels): void {
    this.#degraded.inc({ ...missing });
  }

  imageRefused(code: ErrorCode): void {
    this.#refused.inc({ code });
  }

  bytesMoved(receivedBytes: number, sentBytes: number): void {
    this.#received.inc({}, receivedBytes);
    this.#sent.inc({}, sentBytes);
  }

  spansEnded(outcome: SpanFate, count: number): void {
    this.#spans.inc({ outcome }, count);
  }

  grpcEnded(cause: GuardCause): void {
    this.#grpcEnded.inc({ cause });
  }
}

export interface MetricSources {
  readonly admission: Admission;
  readonly pipeline: Pipeline;
  readonly pictures: PicturePool;
  readonly plan: RunnablePlan;
  readonly version: string;
  readonly provider: ProviderChoice;
  readonly device: GpuDevice | undefined;
}

export function registerStateGauge(status: NodeStatus, metrics: MetricSet): void {
  const read = () => NODE_STATES.map(state => [state === status.state ? 1 : 0, { state }] as const);
  metrics.gauge('matting_node_state', '1 for the state the node is in.', read, ['state']);
}

export function registerConnectionsGauge(
  connections: Pick<GrpcGuard, 'strangers' | 'known'>,
  metrics: MetricSet,
): void {
  metrics.gauge(
    'matting_node_grpc_connections',
    'Open connections to the gRPC port, by whether they have shown who they are.',
    () => [
      [connections.known, { kind: 'known' }],
      [connections.strangers, { kind: 'stranger' }],
    ],
    ['kind'],
  );
}

export function registerCertificatesGauge(tls: Pick<TlsFiles, 'ends'>, metrics: MetricSet): void {
  metrics.gauge(
    'matting_node_tls_expires_timestamp_seconds',
    'When the certificates of a file in use expire.',
    () => tls.ends.map(({ file, endMs }) => [endMs / 1000, { file }] as const),
    ['file'],
  );
}

export function registerGauges(sources: MetricSources, metrics: MetricSet): void {
  registerLoadGauges(sources, metrics);
  registerEngineGauges(sources.plan, metrics);
  registerEngineTotals(sources.plan, metrics);
  registerChildMemory(sources, metrics);
  registerInfoGauges(sources, metrics);
  metrics.gauge(
    'matting_node_gpu_up',
    '1 for the GPU that the engines are on, 0 once it is lost; then the node ends.',
    () => {
      const { device } = sources;
      if (device === undefined) return undefined;
      const { id: gpu, name } = device.facts;
      return [[device.outReason === undefined ? 1 : 0, { gpu, name }]];
    },
    ['gpu', 'name'],
  );
}

function registerLoadGauges({ admission, pipeline, pictures }: MetricSources, metrics: MetricSet) {
  const admitted = () => admission.snapshot();
  const workers = () => pictures.snapshot();
  const gauges: readonly (readonly [name: string, help: string, read: () => number])[] = [
    ['matting_node_images_in_flight', 'Images admitted and not finished.', () => admitted().images],
    ['matting_node_images_max', 'Images admitted at once.', () => admitted().imagesMax],
    ['matting_node_megapixels_in_flight', 'Megapixels admitted.', () => admitted().megapixels],
    ['matting_node_megapixels_max', 'Megapixels admitted at once.', () => admitted().megapixelsMax],
    [
      'matting_node_file_bytes',
      'Bytes of the files of admitted images.',
      () => admitted().fileBytes,
    ],
    ['matting_node_picture_workers', 'Picture workers.', () => workers().workers],
    ['matting_node_picture_workers_busy', 'Picture workers with an image.', () => workers().busy],
    [
      'matting_node_picture_workers_stuck',
      'Killed workers that do not die.',
      () => workers().workersStuck,
    ],
    [
      'matting_node_picture_queue_images',
      'Images that wait for a worker.',
      () => workers().waiting,
    ],
  ];
  for (const [name, help, read] of gauges) metrics.gauge(name, help, read);
  new Counter({
    name: 'matting_node_picture_worker_ends_total',
    help: 'Picture worker processes that ended.',
    labelNames: ['cause'],
    registers: [metrics.registry],
    collect() {
      this.reset();
      for (const [cause, total] of Object.entries(pictures.ends())) this.inc({ cause }, total);
    },
  });
  metrics.gauge(
    'matting_node_pipeline_images',
    'Images at each place of the pipeline.',
    () => PIPELINE_POSITIONS.map(place => [pipeline.imagesAt(place), { place }] as const),
    ['place'],
  );
}

function registerEngineGauges({ runs }: RunnablePlan, metrics: MetricSet): void {
  const now = ({ engines }: PlanRun) => engines.snapshot();
  const totals = ({ engines }: PlanRun) => engines.metrics();
  const gauges: readonly (readonly [name: string, help: string, read: (run: PlanRun) => number])[] =
    [
      ['matting_node_engines', 'Engines wanted.', run => now(run).engines],
      ['matting_node_engines_ready', 'Engines that can run.', run => now(run).enginesReady],
      [
        'matting_node_engines_stuck',
        'Killed engines that do not die.',
        run => now(run).enginesStuck,
      ],
      ['matting_node_engines_running', 'Engines with an image.', run => now(run).running],
      [
        'matting_node_engine_queue_images',
        'Images that wait for an engine.',
        run => now(run).queued,
      ],
      [
        'matting_node_engine_load_seconds',
        'Of the newest engine: spawn to ready.',
        run => totals(run).loadMs / 1000,
      ],
      [
        'matting_node_engine_warmup_seconds',
        'Of the newest engine: its first run.',
        run => totals(run).warmMs / 1000,
      ],
    ];
  for (const [name, help, read] of gauges) {
    const readAll = () => runs.map(run => [read(run), runLabels(run)] as const);
    metrics.gauge(name, help, readAll, RUN_LABELS);
  }
}

function registerEngineTotals({ runs }: RunnablePlan, { registry }: MetricSet): void {
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
  perRun('matting_node_engine_deaths_total', 'Engine processes that ended.', 'cause', run => {
    return run.engines.metrics().deaths;
  });
  const busy = 'Time images were in an engine, summed over engines: its rate is the utilisation.';
  perRun('matting_node_engine_busy_seconds_total', busy, undefined, run => {
    return { busy: run.engines.metrics().busyS };
  });
}

function registerInfoGauges(sources: MetricSources, metrics: MetricSet): void {
  const { plan, version, provider } = sources;
  const model = [...RUN_LABELS, 'model_sha256', 'precision', 'execution_provider', 'runtime'];
  metrics.gauge(
    'matting_node_info',
    'What this node runs; always 1.',
    () =>
      plan.runs.map(run => {
        const { sha256, precision, provider: modelProvider } = run.model;
        const labels = { version, plan: plan.name, ...runLabels(run), model_sha256: sha256 };
        const runtime = runtimeOf(run.model);
        return [1, { ...labels, precision, execution_provider: modelProvider, runtime }] as const;
      }),
    ['version', 'plan', ...model],
  );
  const { requested, selected, fallbacks } = provider;
  metrics.gauge(
    'matting_node_execution_provider_fallback',
    '1 where this machine has a GPU driver and the node runs on the CPU all the same.',
    () => [[Number(fallbacks.length > 0), { requested, selected }]],
    ['requested', 'selected'],
  );
  metrics.gauge(
    'matting_node_precision_fallback',
    '1 where a model could run in int8, and this node runs it in another precision.',
    () =>
      plan.runs.map(run => {
        const { precision, precisionFallback: reason } = run.model;
        return [Number(reason !== undefined), { ...runLabels(run), selected: precision }] as const;
      }),
    [...RUN_LABELS, 'selected'],
  );
}

function registerChildMemory({ plan, pictures }: MetricSources, metrics: MetricSet): void {
  const shown = (bytes: number | undefined, labels: Readonly<Record<string, string>>) =>
    bytes === undefined ? [] : [[bytes, labels] as const];
  metrics.gauge(
    'matting_node_picture_worker_resident_memory_bytes',
    'Memory of each picture worker process.',
    () =>
      pictures
        .processes()
        .flatMap(({ slot, residentBytes }) => shown(residentBytes, { worker: String(slot) })),
    ['worker'],
  );
  metrics.gauge(
    'matting_node_engine_resident_memory_bytes',
    'Memory of each engine process.',
    () =>
      plan.runs.flatMap(run =>
        run.engines
          .processes()
          .flatMap(({ engine, residentBytes }) =>
            shown(residentBytes, { ...runLabels(run), engine: String(engine) }),
          ),
      ),
    [...RUN_LABELS, 'engine'],
  );
}
