/**
 * Cancellation, the caller's deadline and a hurried shutdown abort a call's signal. Every way out
 * gives the permit back once and sends one status.
 */
import { status as grpcStatus, type handleBidiStreamingCall } from '@grpc/grpc-js';
import {
  asSpan,
  describeSpan,
  failSpan,
  receivedCarrier,
  type SpanAttributes,
  type SpanBegin,
  type Tracing,
} from '@matting/program/tracing/active-span.ts';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import { frameRange } from '@matting/proto/contract/finishing/frame.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { toStatus } from '@matting/proto/contract/grpc-status.ts';
import { BACKGROUND_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import { countedMegapixels } from '@matting/proto/contract/picture-memory.ts';
import type { StageTimings } from '@matting/proto/contract/stages.ts';
import type { MatteRequest, MatteResponse } from '@matting/proto/gen/matting/v1/matte_service.ts';
import type { Logger } from 'pino';
import type { Admission, Permit } from '../admission.ts';
import type { NodeMetrics } from '../metrics.ts';
import type { Selectable } from '../models/selectable.ts';
import type { NodeStatus } from '../node-state.ts';
import {
  type ImageExchange,
  type ImageResult,
  type Pipeline,
  type RunLabels,
  runLabels,
} from '../pipeline.ts';
import type { Caller, Callers } from './callers.ts';
import {
  EXCHANGE_BOUNDS,
  type ExchangeBounds,
  type MatteCall,
  MatteExchange,
} from './matte-exchange.ts';
import { checkMatteHeader, filesOf, type MatteOrder, type NodeAbilities } from './matte-header.ts';

export interface NodeWork extends NodeAbilities {
  readonly selectable: Selectable;
  readonly admission: Admission;
  readonly pipeline: Pipeline;
}

interface MatteHandlerOptions {
  readonly status: NodeStatus;
  readonly work: () => NodeWork | undefined;
  readonly metrics: NodeMetrics;
  readonly log: Logger;
  readonly callers: Callers;
  readonly bounds?: ExchangeBounds | undefined;
  readonly tracing?: (() => Tracing | undefined) | undefined;
}

const SPAN: SpanBegin = {
  name: 'matting.v1.MatteService/Matte',
  kind: 'SERVER',
  attributes: { 'rpc.system.name': 'grpc', 'rpc.method': 'matting.v1.MatteService/Matte' },
};

/** A timer cannot wait longer, so such a deadline counts as none. */
const TIMER_MS_MAX = 2_147_483_647;

/** gRPC deadlines restart at the receiver, so a cancellation this close counts as the deadline. */
const DEADLINE_TRAVEL_MS = 100;

const NODE_FAULTS: readonly ErrorCode[] = ['NODE_FAULT', 'ENGINE_LOST', 'PICTURE_WORKER_LOST'];

export class MatteHandler {
  readonly #options: MatteHandlerOptions;
  readonly #calls = new Set<AbortController>();
  readonly #idle = new Set<() => void>();

  constructor(options: MatteHandlerOptions) {
    this.#options = options;
  }

  readonly handle: handleBidiStreamingCall<MatteRequest, MatteResponse> = call => {
    const controller = new AbortController();
    this.#calls.add(controller);
    const stopWatching = watchCaller(call, controller);
    const over = () => {
      stopWatching();
      this.#calls.delete(controller);
      if (this.#calls.size === 0) for (const wake of [...this.#idle]) wake();
    };
    const values = (key: string) =>
      call.metadata.get(key).filter(value => typeof value === 'string');
    const caller = receivedCarrier(values('traceparent'), values('tracestate'));
    const span = this.#options.tracing?.()?.start(SPAN, caller);
    const run = () => new MatteCallRun(call, controller.signal, this.#options).run();
    void asSpan(span, run).finally(over);
  };

  untilIdle(): Promise<void> {
    if (this.#calls.size === 0) return Promise.resolve();
    return new Promise(resolve => {
      const wake = () => {
        this.#idle.delete(wake);
        resolve();
      };
      this.#idle.add(wake);
    });
  }

  abortAll(reason: ContractError): void {
    for (const controller of [...this.#calls]) controller.abort(reason);
  }
}

/** Aborts when the caller goes away or its deadline passes. */
function watchCaller(call: MatteCall, controller: AbortController): () => void {
  const deadlineMs = Number(call.getDeadline());
  const expire = () =>
    controller.abort(
      new ContractError('CALL_DEADLINE_EXCEEDED', 'The deadline of the caller passed.'),
    );
  const onCancelled = () => {
    if (Date.now() >= deadlineMs - DEADLINE_TRAVEL_MS) expire();
    else controller.abort(new ContractError('CALL_CANCELLED', 'The caller cancelled the call.'));
  };
  call.once('cancelled', onCancelled);
  // grpc-js reports a passed deadline only after its status left, which an unread result delays.
  const leftMs = deadlineMs - Date.now();
  const timer = leftMs <= TIMER_MS_MAX ? setTimeout(expire, leftMs) : undefined;
  return () => {
    clearTimeout(timer);
    call.off('cancelled', onCancelled);
  };
}

class MatteCallRun {
  readonly #call: MatteCall;
  readonly #signal: AbortSignal;
  readonly #options: MatteHandlerOptions;
  readonly #exchange: MatteExchange;
  readonly #startedMs = performance.now();
  #order: MatteOrder | undefined;
  #permit: Permit | undefined;
  #models: readonly RunLabels[] = [];
  #mended: ImageResult['mended'];
  #caller: Caller | undefined;

  constructor(call: MatteCall, signal: AbortSignal, options: MatteHandlerOptions) {
    this.#call = call;
    this.#signal = signal;
    this.#options = options;
    this.#exchange = new MatteExchange(call, options.bounds ?? EXCHANGE_BOUNDS);
  }

  async run(): Promise<void> {
    try {
      this.#caller = this.#options.callers.requireCaller(this.#call);
      const header = await this.#exchange.readHeader(this.#signal);
      const work = this.#requireServing();
      const order = checkMatteHeader(header, work);
      this.#order = order;
      const timings = await this.#asCaller(this.#caller, work, order);
      this.#succeeded(order, timings);
    } catch (error) {
      this.#failed(error);
    } finally {
      const { receivedBytes, sentBytes } = this.#exchange;
      this.#options.metrics.bytesMoved(receivedBytes, sentBytes);
    }
  }

  #requireServing(): NodeWork {
    const { state } = this.#options.status;
    const work = this.#options.work();
    if (state === 'serving' && work !== undefined) return work;
    throw new ContractError('NODE_UNAVAILABLE', `The node is ${state}.`);
  }

  /** Before the permit: a caller at its own limit takes none from the others. */
  async #asCaller(caller: Caller, work: NodeWork, order: MatteOrder): Promise<StageTimings> {
    const leave = this.#options.callers.enter(caller, work.admission.limits.imagesMax);
    try {
      return await this.#withPermit(work, order);
    } finally {
      leave();
    }
  }

  async #withPermit(work: NodeWork, order: MatteOrder): Promise<StageTimings> {
    const megapixels = countedMegapixels(costOf(order));
    // Before the permit, so that the estimate excludes this image.
    const waitMs = work.pipeline.estimatedWaitMs(order.plan);
    if (order.waitMsMax !== undefined && waitMs > order.waitMsMax) {
      throw new ContractError('NODE_OVERLOADED', 'No engine becomes free within wait_ms_max.');
    }
    const permit = work.admission.admit({ megapixels, fileBytes: fileBytesOf(order) });
    this.#permit = permit;
    try {
      await this.#exchange.writeAdmitted(permit.queuePosition, waitMs, this.#signal);
      const exchange = this.#watchRuns(this.#exchange.forOrder(order));
      const timings = await work.pipeline.process(order, exchange, this.#signal);
      await this.#exchange.writeDone(timings, this.#signal);
      return timings;
    } finally {
      permit.release();
    }
  }

  #watchRuns(exchange: ImageExchange): ImageExchange {
    return {
      ...exchange,
      send: (result, signal) => {
        this.#models = result.runs.map(runLabels);
        this.#mended = result.mended;
        const missing = result.missing.map(runLabels);
        for (const labels of missing) this.#options.metrics.imageDegraded(labels);
        for (const input of result.extraRuns) this.#options.metrics.extraRun(input);
        if (missing.length > 0) {
          const fields = { ...this.#fields(), plan: result.plan.name, missing };
          this.#options.log.warn(fields, 'served without a model of the plan');
        }
        return exchange.send(result, signal);
      },
    };
  }

  #succeeded(order: MatteOrder, timings: StageTimings): void {
    const durationMs = performance.now() - this.#startedMs;
    const { outputFormat } = order;
    this.#options.metrics.imageSucceeded({ outputFormat, durationMs, timings });
    const total = Math.round(durationMs);
    describeSpan({ ...this.#attributes(), 'rpc.response.status_code': 'OK' });
    this.#options.log.info(
      {
        ...this.#fields(),
        models: this.#models,
        mended: this.#mended,
        durationMs: total,
        ...rounded(timings),
      },
      'image done',
    );
  }

  #failed(caught: unknown): void {
    const error =
      caught instanceof ContractError
        ? caught
        : new ContractError('NODE_FAULT', 'internal error', { cause: caught });
    const { metrics, log } = this.#options;
    const { code } = error;
    const status = toStatus(error);
    describeFailure(this.#attributes(), { code, status: status.code });
    if (this.#permit === undefined) metrics.imageRefused(code);
    else metrics.imageFailed(code, this.#order?.outputFormat ?? 'png');
    const fields = { ...this.#fields(), code, detail: error.message };
    if (NODE_FAULTS.includes(code))
      log.error({ ...fields, err: error.cause ?? error }, 'image failed');
    else {
      const reason = { reason: causeMessage(error) };
      log.info({ ...fields, ...reason }, this.#permit ? 'image failed' : 'image refused');
    }
    if (this.#call.cancelled) return;
    // grpc-js percent-encodes the text, and throws on half a surrogate pair.
    this.#call.emit('error', { ...status, details: status.details.toWellFormed() });
  }

  /** The job_id of a direct caller may be any text. */
  #attributes(): SpanAttributes {
    const order = this.#order;
    if (order === undefined) return {};
    const isFleet = this.#caller?.kind === 'fleet';
    return {
      'matting.job.id': isFleet ? order.jobId : undefined,
      'matting.job.fence': isFleet ? order.attempt : undefined,
      'matting.plan': order.plan.name,
      'matting.input.bytes': order.contentLength,
      'matting.input.format': order.inputFormat,
      'matting.output.format': order.outputFormat,
    };
  }

  #fields() {
    const order = this.#order;
    const caller = this.#caller?.kind === 'direct' ? { caller: this.#caller.name } : {};
    if (order === undefined) return caller;
    return { ...caller, jobId: order.jobId, attempt: order.attempt, bytes: fileBytesOf(order) };
  }
}

/** A refused or departed caller is not a fault of the node. */
function describeFailure(
  attributes: SpanAttributes,
  { code, status }: { readonly code: ErrorCode; readonly status: grpcStatus },
): void {
  describeSpan({
    ...attributes,
    'error.type': code,
    'rpc.response.status_code': grpcStatus[status],
  });
  if (NODE_FAULTS.includes(code)) failSpan(code);
}

function fileBytesOf(order: MatteOrder): number {
  return filesOf(order).reduce((sum, { file }) => sum + file.contentLength, 0);
}

export function costOf(order: MatteOrder) {
  const { declared, inputFormat, outputFormat, resultKind, finishingOrder, hintsFile } = order;
  const pixelsOf = (size: Size | undefined) => size && size.width * size.height;
  const backgroundFile = finishingOrder?.background;
  return {
    pixels: pixelsOf(declared),
    inputFormat,
    outputFormat,
    resultKind,
    hints: hintsFile && {
      inputFormat: hintsFile.inputFormat,
      pixels: pixelsOf(hintsFile.declared) ?? BACKGROUND_PIXELS_MAX,
    },
    finishing: finishingOrder && {
      framePixels: frameRange(finishingOrder.finishing, declared, { turned: true }).most,
      background: backgroundFile && {
        inputFormat: backgroundFile.inputFormat,
        pixels: pixelsOf(backgroundFile.declared) ?? BACKGROUND_PIXELS_MAX,
      },
    },
  };
}

/** The codec's reason helps if a picture that looks whole is damaged. */
function causeMessage({ cause }: ContractError): string | undefined {
  if (cause === undefined) return undefined;
  return cause instanceof Error ? cause.message : String(cause);
}

function rounded(timings: StageTimings): Record<string, number> {
  return Object.fromEntries(
    Object.entries(timings).map(([stage, ms]: [string, number]) => [stage, Math.round(ms)]),
  );
}
