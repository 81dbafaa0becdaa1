/**
 * Metrics that are counted as things happen; metric-gauges.ts has those that are read at a scrape.
 * Names begin with `matting_node_`, units are base units, no label takes a caller's text.
 */
import { collectDefaultMetrics, Histogram, Registry } from 'prom-client';
import type { ErrorCode } from '#contract/errors.ts';
import { OUTPUT_FORMATS, type OutputFormat } from '#contract/formats.ts';
import { type StageTimings, timesByStage } from '#contract/stages.ts';
import {
  createKnownCounter,
  createOpenCounter,
  everyOf,
  type KnownLabels,
} from '#program/known-counters.ts';
import { GUARD_CAUSES, type GuardCause } from '#program/ports/grpc-guard.ts';
import { SPAN_FATES, type SpanFate, type SpanObserver } from '#program/tracing/span.ts';
import { RUN_LABELS, type RunLabels } from './run-labels.ts';

const DURATION_BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

/** Resolution of the event loop's lag; the default of 10 ms costs 0.5 % of a core for nothing. */
const EVENT_LOOP_PRECISION_MS = 100;

/** Ends of images that rules ask for. */
const IMAGE_ENDS = everyOf({ outcome: ['succeeded'], code: [''], output_format: OUTPUT_FORMATS });

interface SucceededImage {
  readonly outputFormat: OutputFormat;
  readonly durationMs: number;
  readonly timings: StageTimings;
}

export class NodeMetrics implements SpanObserver {
  readonly registry = new Registry();
  readonly #images = createOpenCounter(
    this.#named(
      'matting_node_images_total',
      'Admitted images by how they ended; code is empty for a success.',
    ),
    ['outcome', 'code', 'output_format'],
    IMAGE_ENDS,
  );
  readonly #refused = createOpenCounter(
    this.#named(
      'matting_node_admission_refused_total',
      'Calls that ended before they were admitted, by error code.',
    ),
    ['code'],
    [],
  );
  readonly #degraded = createOpenCounter(
    this.#named(
      'matting_node_images_degraded_total',
      'Images served without a model of their plan, because no engine of it was up.',
    ),
    RUN_LABELS,
    // Those of the plan, once it is loaded (planLoaded).
    [],
  );
  readonly #durationS = this.#histogram(
    'matting_node_image_duration_seconds',
    'From the call to its result taken, of images that succeeded.',
    ['output_format'],
  );
  readonly #stageS = this.#histogram(
    'matting_node_stage_duration_seconds',
    'Stages of images that succeeded.',
    ['stage'],
  );
  readonly #received = this.#counter(
    'matting_node_received_bytes_total',
    'Bytes of files received.',
    {},
  );
  readonly #sent = this.#counter('matting_node_sent_bytes_total', 'Bytes of results sent.', {});
  readonly #grpcEnded = this.#counter(
    'matting_node_grpc_ended_total',
    'Connections and calls that the gRPC port ended at a bound, by what they did.',
    { cause: GUARD_CAUSES },
  );
  readonly #spans = this.#counter(
    'matting_node_spans_total',
    'Sampled spans of traces by what became of them.',
    { outcome: SPAN_FATES },
  );

  constructor() {
    collectDefaultMetrics({
      register: this.registry,
      eventLoopMonitoringPrecision: EVENT_LOOP_PRECISION_MS,
    });
  }

  imageSucceeded({ outputFormat, durationMs, timings }: SucceededImage): void {
    this.#images.inc({ outcome: 'succeeded', code: '', output_format: outputFormat });
    this.#durationS.observe({ output_format: outputFormat }, durationMs / 1000);
    for (const [stage, ms] of timesByStage(timings)) this.#stageS.observe({ stage }, ms / 1000);
  }

  /** After its admission. */
  imageFailed(code: ErrorCode, outputFormat: OutputFormat): void {
    const gone = code === 'CALL_CANCELLED' || code === 'CALL_DEADLINE_EXCEEDED';
    this.#images.inc({ outcome: gone ? 'cancelled' : 'failed', code, output_format: outputFormat });
  }

  /** @param missable the models of the plan that an image may have to do without */
  planLoaded(missable: readonly RunLabels[]): void {
    for (const labels of missable) this.#degraded.inc({ ...labels }, 0);
  }

  /** A model of its plan did not take part. */
  imageDegraded(missing: RunLabels): void {
    this.#degraded.inc({ ...missing });
  }

  /** Before its admission. */
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

  /** The gRPC port ended a connection or a call at a bound of what clients may do. */
  grpcEnded(cause: GuardCause): void {
    this.#grpcEnded.inc({ cause });
  }

  #named(name: string, help: string) {
    return { name, help, registry: this.registry };
  }

  #counter<const Known extends KnownLabels>(name: string, help: string, known: Known) {
    return createKnownCounter(this.#named(name, help), known);
  }

  #histogram<L extends string>(name: string, help: string, labelNames: readonly L[]): Histogram<L> {
    const registers = [this.registry];
    return new Histogram({ name, help, labelNames, buckets: DURATION_BUCKETS_S, registers });
  }
}
