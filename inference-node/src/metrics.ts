/**
 * The node's Prometheus metrics: names begin with `matting_node_`, units are base units, no label
 * takes a caller's text. Here is what is counted as it happens; metric-gauges.ts has what is read
 * at a scrape.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { ErrorCode } from '#contract/errors.ts';
import type { OutputFormat } from '#contract/formats.ts';
import { type StageTimings, timesByStage } from '#contract/stages.ts';
import type { GrpcGuard, GuardCause } from '#program/ports/grpc-guard.ts';
import { type MetricSources, registerGauges } from './metric-gauges.ts';
import { NODE_STATES, type NodeStatus } from './node-state.ts';
import { RUN_LABELS, type RunLabels } from './run-labels.ts';

const DURATION_BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

/** How fine the event loop's lag is seen; the default of 10 ms costs 0.5 % of a core for nothing. */
const EVENT_LOOP_PRECISION_MS = 100;

export interface NodeMetrics {
  readonly registry: Registry;
  imageSucceeded(image: {
    readonly outputFormat: OutputFormat;
    readonly durationMs: number;
    readonly timings: StageTimings;
  }): void;
  /** After its admission. */
  imageFailed(image: { readonly code: ErrorCode; readonly outputFormat: OutputFormat }): void;
  /** A model of its plan did not take part. */
  imageDegraded(missing: RunLabels): void;
  /** Before its admission. */
  imageRefused(code: ErrorCode): void;
  bytesMoved(received: number, sent: number): void;
  /** The gRPC port ended a connection or a call at a bound of what strangers may. */
  grpcEnded(cause: GuardCause): void;
  /** Called once, when the gRPC port listens. */
  attachConnections(connections: GrpcGuard['connections']): void;
  /** Called once, when the models are loaded. */
  attach(sources: MetricSources): void;
}

export function createNodeMetrics(status: NodeStatus): NodeMetrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({
    register: registry,
    eventLoopMonitoringPrecision: EVENT_LOOP_PRECISION_MS,
  });
  const images = new Counter({
    name: 'matting_node_images_total',
    help: 'Admitted images by how they ended; code is empty for a success.',
    labelNames: ['outcome', 'code', 'output_format'],
    registers,
  });
  const refused = new Counter({
    name: 'matting_node_admission_refused_total',
    help: 'Calls that ended before they were admitted, by error code.',
    labelNames: ['code'],
    registers,
  });
  const degraded = new Counter({
    name: 'matting_node_images_degraded_total',
    help: 'Images served without a model of their plan, because no engine of it was up.',
    labelNames: RUN_LABELS,
    registers,
  });
  const duration = new Histogram({
    name: 'matting_node_image_duration_seconds',
    help: 'From the call to its result taken, of images that succeeded.',
    labelNames: ['output_format'],
    buckets: DURATION_BUCKETS_S,
    registers,
  });
  const stages = new Histogram({
    name: 'matting_node_stage_duration_seconds',
    help: 'Stages of images that succeeded.',
    labelNames: ['stage'],
    buckets: DURATION_BUCKETS_S,
    registers,
  });
  const received = new Counter({
    name: 'matting_node_received_bytes_total',
    help: 'Bytes of files received.',
    registers,
  });
  const sent = new Counter({
    name: 'matting_node_sent_bytes_total',
    help: 'Bytes of results sent.',
    registers,
  });
  const ended = new Counter({
    name: 'matting_node_grpc_ended_total',
    help: 'Connections and calls that the gRPC port ended at a bound, by what they did.',
    labelNames: ['cause'],
    registers,
  });
  registerStateGauge(status, registry);
  return {
    registry,
    imageSucceeded: ({ outputFormat, durationMs, timings }) => {
      images.inc({ outcome: 'succeeded', code: '', output_format: outputFormat });
      duration.observe({ output_format: outputFormat }, durationMs / 1000);
      for (const [stage, ms] of timesByStage(timings)) stages.observe({ stage }, ms / 1000);
    },
    imageFailed: ({ code, outputFormat }) => {
      const gone = code === 'CALL_CANCELLED' || code === 'CALL_DEADLINE_EXCEEDED';
      images.inc({ outcome: gone ? 'cancelled' : 'failed', code, output_format: outputFormat });
    },
    imageDegraded: missing => degraded.inc({ ...missing }),
    imageRefused: code => refused.inc({ code }),
    bytesMoved: (receivedBytes, sentBytes) => {
      received.inc(receivedBytes);
      sent.inc(sentBytes);
    },
    grpcEnded: cause => ended.inc({ cause }),
    attachConnections: connections => registerConnectionsGauge(connections, registry),
    attach: sources => registerGauges(sources, registry),
  };
}

function registerStateGauge(status: NodeStatus, registry: Registry): void {
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

function registerConnectionsGauge(connections: GrpcGuard['connections'], registry: Registry): void {
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
