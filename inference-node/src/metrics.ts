/**
 * Metrics that are counted as things happen; metric-gauges.ts has those that are read at a scrape.
 * Names begin with `matting_node_`, units are base units, no label takes a caller's text.
 */
import { Counter, collectDefaultMetrics, Histogram, Registry } from 'prom-client';
import type { ErrorCode } from '#contract/errors.ts';
import type { OutputFormat } from '#contract/formats.ts';
import { type StageTimings, timesByStage } from '#contract/stages.ts';
import type { GuardCause } from '#program/ports/grpc-guard.ts';
import type { SpanFate, SpanObserver } from '#program/tracing/span.ts';
import { RUN_LABELS, type RunLabels } from './run-labels.ts';

const DURATION_BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

/** Resolution of the event loop's lag; the default of 10 ms costs 0.5 % of a core for nothing. */
const EVENT_LOOP_PRECISION_MS = 100;

interface SucceededImage {
  readonly outputFormat: OutputFormat;
  readonly durationMs: number;
  readonly timings: StageTimings;
}

export class NodeMetrics implements SpanObserver {
  readonly registry = new Registry();
  readonly #images = this.#counter(
    'matting_node_images_total',
    'Admitted images by how they ended; code is empty for a success.',
    ['outcome', 'code', 'output_format'],
  );
  readonly #refused = this.#counter(
    'matting_node_admission_refused_total',
    'Calls that ended before they were admitted, by error code.',
    ['code'],
  );
  readonly #degraded = this.#counter(
    'matting_node_images_degraded_total',
    'Images served without a model of their plan, because no engine of it was up.',
    RUN_LABELS,
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
    [],
  );
  readonly #sent = this.#counter('matting_node_sent_bytes_total', 'Bytes of results sent.', []);
  readonly #grpcEnded = this.#counter(
    'matting_node_grpc_ended_total',
    'Connections and calls that the gRPC port ended at a bound, by what they did.',
    ['cause'],
  );
  readonly #spans = this.#counter(
    'matting_node_spans_total',
    'Sampled spans of traces by what became of them.',
    ['outcome'],
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

  /** A model of its plan did not take part. */
  imageDegraded(missing: RunLabels): void {
    this.#degraded.inc({ ...missing });
  }

  /** Before its admission. */
  imageRefused(code: ErrorCode): void {
    this.#refused.inc({ code });
  }

  bytesMoved(receivedBytes: number, sentBytes: number): void {
    this.#received.inc(receivedBytes);
    this.#sent.inc(sentBytes);
  }

  spansEnded(outcome: SpanFate, count: number): void {
    this.#spans.inc({ outcome }, count);
  }

  /** The gRPC port ended a connection or a call at a bound of what clients may do. */
  grpcEnded(cause: GuardCause): void {
    this.#grpcEnded.inc({ cause });
  }

  #counter<L extends string>(name: string, help: string, labelNames: readonly L[]): Counter<L> {
    return new Counter({ name, help, labelNames, registers: [this.registry] });
  }

  #histogram<L extends string>(name: string, help: string, labelNames: readonly L[]): Histogram<L> {
    const registers = [this.registry];
    return new Histogram({ name, help, labelNames, buckets: DURATION_BUCKETS_S, registers });
  }
}
