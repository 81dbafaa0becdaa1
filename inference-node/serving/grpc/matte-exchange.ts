/**
 * The messages of one Matte call, in order, each at the pace of the slower side and within a bound.
 * Each bound ends in CALL_DEADLINE_EXCEEDED, so that a slow caller tries again.
 *
 * A file may take the allowed silence and its time at `paceBytesPerSecondMin`. Otherwise a caller
 * that moves one byte before each silence ends could hold a permit for minutes.
 */
import { createHash, type Hash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { ServerDuplexStream } from '@grpc/grpc-js';
import { PieceCount } from '@matting/program/piece-count.ts';
import { raceAbort, within } from '@matting/program/waiting.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { contentTypeOf, outputFormatToProto } from '@matting/proto/contract/formats.ts';
import { CHUNK_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import type { StageTimings } from '@matting/proto/contract/stages.ts';
import {
  type MatteHeader,
  type MatteRequest,
  type MatteResponse,
  MissingRun,
  ModelRun,
  type ResultHeader,
  ResultKind,
  Stage,
  Subject,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import {
  type ImageExchange,
  type ImageResult,
  type ImageStage,
  type ReceivedFiles,
  ROLE_LABELS,
} from '../pipeline.ts';
import { type ByteOrder, filesOf, type MatteOrder } from './matte-header.ts';

export type MatteCall = ServerDuplexStream<MatteRequest, MatteResponse>;

export const EXCHANGE_BOUNDS = {
  headerWaitMaxMs: 10_000,
  receiveSilenceMaxMs: 20_000,
  /** 50 MB at 3.5 Mbit/s. */
  receiveMaxMs: 120_000,
  sendSilenceMaxMs: 20_000,
  /** 400 MB at 10 Mbit/s. */
  sendMaxMs: 330_000,
  /** Half a Mbit/s, since callers are inside the network. */
  paceBytesPerSecondMin: 64 * 1024,
};
export type ExchangeBounds = Readonly<typeof EXCHANGE_BOUNDS>;

/**
 * Messages read before the event loop gets a tick. 19,500 empty chunks a second left a node's
 * health unanswered for 8 s.
 */
const MESSAGES_PER_TICK_MAX = 64;

const STAGE_TO_PROTO = {
  decoding: Stage.STAGE_DECODING,
  inferring: Stage.STAGE_INFERRING,
  encoding: Stage.STAGE_ENCODING,
} as const satisfies Record<ImageStage, Stage>;

const KIND_TO_PROTO = {
  cutout: ResultKind.RESULT_KIND_CUTOUT,
  mask: ResultKind.RESULT_KIND_MASK,
} as const;

export class MatteExchange {
  readonly #call: MatteCall;
  readonly #bounds: ExchangeBounds;
  /** Messages that nobody has taken yet: at most one, since the call pauses after each. */
  readonly #inbox: MatteRequest[] = [];
  #ended = false;
  #messages = 0;
  #wake: (() => void) | undefined;
  /** Resolves with the error of the last write, if any; never if the call is gone. */
  #lastWrite: Promise<Error | undefined> = Promise.resolve(undefined);
  #resultSha256: Buffer | undefined;
  #thumbnail: Buffer | undefined;
  #receivedBytes = 0;
  #sentBytes = 0;

  constructor(call: MatteCall, bounds: ExchangeBounds) {
    this.#call = call;
    this.#bounds = bounds;
    call.on('data', (message: MatteRequest) => {
      call.pause();
      this.#inbox.push(message);
      this.#wake?.();
    });
    call.on('end', () => {
      this.#ended = true;
      this.#wake?.();
    });
  }

  get receivedBytes(): number {
    return this.#receivedBytes;
  }

  get sentBytes(): number {
    return this.#sentBytes;
  }

  async readHeader(signal: AbortSignal): Promise<MatteHeader> {
    const first = await this.#next(this.#bounds.headerWaitMaxMs, signal);
    if (first?.message?.$case === 'header') return first.message.value;
    throw new ContractError('INVALID_REQUEST', 'The first message must be a header.');
  }

  forOrder(order: MatteOrder): ImageExchange {
    return {
      receive: signal => this.#receive(order, signal),
      stageBegan: stage => this.#stageBegan(stage),
      send: (result, signal) => this.#send(order, result, signal),
    };
  }

  async writeAdmitted(queuePosition: number, waitMs: number, signal: AbortSignal): Promise<void> {
    const value = { queuePosition, estimatedWaitMs: Math.round(waitMs) };
    await this.#write({ message: { $case: 'admitted', value } }, signal);
  }

  /** Ends the call with OK once the caller has read everything. */
  async writeDone(timings: StageTimings, signal: AbortSignal): Promise<void> {
    const sha256 = this.#resultSha256;
    if (sha256 === undefined) throw new Error('done before the result was sent');
    const value = { sha256, timings, thumbnail: this.#thumbnail ?? Buffer.alloc(0) };
    await this.#write({ message: { $case: 'done', value } }, signal);
    await this.#flush(signal);
    this.#call.end();
  }

  async #receive(order: MatteOrder, signal: AbortSignal): Promise<ReceivedFiles> {
    const files = filesOf(order);
    const totalLength = files.reduce((sum, { file }) => sum + file.contentLength, 0);
    // Not pooled: a slice would pin its neighbours.
    const bytes = Buffer.allocUnsafeSlow(totalLength);
    let start = 0;
    const parts = files.map(({ key, name, file }) => {
      const from = start;
      start += file.contentLength;
      return { key, name, digest: new FileDigest(file, from), data: bytes.subarray(from, start) };
    });
    const { receiveSilenceMaxMs, receiveMaxMs } = this.#bounds;
    const endsAtMs =
      performance.now() + this.#atPace(totalLength, receiveSilenceMaxMs, receiveMaxMs);
    const pieces = new PieceCount();
    let filled = 0;
    for (;;) {
      const leftMs = endsAtMs - performance.now();
      const waitMs = Math.min(receiveSilenceMaxMs, Math.max(0, leftMs));
      const data = requireChunk(await this.#next(waitMs, signal));
      if (data === undefined) break;
      if (!pieces.take(data.length)) {
        throw new ContractError('INVALID_REQUEST', 'The chunks must have 512 bytes and more.');
      }
      if (filled + data.length > totalLength) {
        throw new ContractError(
          'INVALID_REQUEST',
          `The caller sent more than content_length (${totalLength}) bytes.`,
        );
      }
      bytes.set(data, filled);
      for (const { digest } of parts) digest.update(data, filled);
      filled += data.length;
      this.#receivedBytes = filled;
    }
    if (filled < totalLength) {
      throw new ContractError(
        'INVALID_REQUEST',
        `The caller sent ${filled} of ${totalLength} bytes.`,
      );
    }
    for (const { digest, name } of parts) digest.require(`The bytes of ${name}`);
    return Object.fromEntries(
      parts.map(({ key, data }) => [key, data]),
    ) as unknown as ReceivedFiles;
  }

  #stageBegan(stage: ImageStage): void {
    // Not awaited: three small messages an image share the result's back-pressure.
    if (!this.#call.writable) return;
    this.#call.write({ message: { $case: 'progress', value: { stage: STAGE_TO_PROTO[stage] } } });
  }

  async #send(order: MatteOrder, result: ImageResult, signal: AbortSignal): Promise<void> {
    const { file } = result;
    const { sendSilenceMaxMs, sendMaxMs } = this.#bounds;
    const endsAtMs = performance.now() + this.#atPace(file.length, sendSilenceMaxMs, sendMaxMs);
    const hash = createHash('sha256');
    const header = resultHeader(order, result);
    await this.#write({ message: { $case: 'resultHeader', value: header } }, signal);
    await this.#sendMatte(result, signal);
    for (let offset = 0; offset < file.length; offset += CHUNK_BYTES_MAX) {
      const data = file.subarray(offset, offset + CHUNK_BYTES_MAX);
      hash.update(data);
      if (performance.now() > endsAtMs)
        throw deadline('The caller did not read the result in time.');
      await this.#write({ message: { $case: 'chunk', value: { data } } }, signal);
      this.#sentBytes += data.length;
    }
    await this.#flush(signal);
    this.#resultSha256 = hash.digest();
    this.#thumbnail = result.thumbnail;
  }

  async #sendMatte({ matte }: ImageResult, signal: AbortSignal): Promise<void> {
    for (let offset = 0; offset < (matte?.length ?? 0); offset += CHUNK_BYTES_MAX) {
      const data = matte!.subarray(offset, offset + CHUNK_BYTES_MAX);
      await this.#write({ message: { $case: 'matteChunk', value: { data } } }, signal);
    }
  }

  #atPace(bytes: number, silenceMaxMs: number, maxMs: number): number {
    return Math.min(maxMs, silenceMaxMs + (bytes / this.#bounds.paceBytesPerSecondMin) * 1000);
  }

  async #next(waitMs: number, signal: AbortSignal): Promise<MatteRequest | undefined> {
    if (this.#inbox.length === 0 && !this.#ended) {
      const arrived = new Promise<void>(resolve => {
        this.#wake = resolve;
      });
      this.#call.resume();
      await inTime(arrived, waitMs, signal, 'The caller sent no message in time.');
      this.#wake = undefined;
    }
    this.#messages += 1;
    if (this.#messages % MESSAGES_PER_TICK_MAX === 0) await nextTurn();
    signal.throwIfAborted();
    return this.#inbox.shift();
  }

  /** At most two writes are under way; write() alone would buffer sixteen, 4 MiB. */
  async #write(message: MatteResponse, signal: AbortSignal): Promise<void> {
    await this.#flush(signal);
    this.#lastWrite = new Promise<Error | undefined>(resolve => {
      this.#call.write(message, (error?: Error | null) => resolve(error ?? undefined));
    });
  }

  async #flush(signal: AbortSignal): Promise<void> {
    const waitMs = this.#bounds.sendSilenceMaxMs;
    const error = await inTime(
      this.#lastWrite,
      waitMs,
      signal,
      'The caller does not read the result.',
    );
    if (error !== undefined) throw error;
  }
}

class FileDigest {
  readonly #file: ByteOrder;
  readonly #from: number;
  readonly #hash: Hash | undefined;

  constructor(file: ByteOrder, from: number) {
    this.#file = file;
    this.#from = from;
    this.#hash = file.sha256 && createHash('sha256');
  }

  update(data: Buffer, offset: number): void {
    const from = this.#from - offset;
    const to = from + this.#file.contentLength;
    this.#hash?.update(data.subarray(Math.max(0, from), Math.max(0, to)));
  }

  require(bytes: string): void {
    const { sha256 } = this.#file;
    if (sha256 === undefined || this.#hash?.digest().equals(sha256)) return;
    throw new ContractError('INVALID_REQUEST', `${bytes} do not have the given sha256.`);
  }
}

function resultHeader(
  { finishingOrder, hints, givenMatte }: MatteOrder,
  result: ImageResult,
): ResultHeader {
  const modelRuns = result.runs.map(({ model: prepared, role }) => {
    const { model, sha256, precision, provider, inputWidth, inputHeight } = prepared;
    const { precisionFallback, licence } = prepared;
    return ModelRun.create({
      ...{ model, modelSha256: sha256, precision, executionProvider: provider },
      ...{ inputWidth, inputHeight },
      licence: licence.spdx,
      weightsCommercialUse: licence.weights.commercialUse,
      trainingDataCommercialUse: licence.trainingData.commercialUse,
      role: ROLE_LABELS[role],
      ...(precisionFallback !== undefined && { precisionFallback }),
    });
  });
  return {
    format: outputFormatToProto(result.outputFormat),
    contentType: contentTypeOf(result.outputFormat),
    sizeBytes: result.file.length,
    width: result.width,
    height: result.height,
    resultKind: KIND_TO_PROTO[result.resultKind],
    plan: givenMatte === undefined ? result.plan.name : '',
    modelRuns,
    modelsMissing: result.missing.map(({ model }) => model.model),
    finishing: finishingOrder?.message,
    hints: hints !== undefined,
    matteBytes: result.matte?.length ?? 0,
    inputWidth: result.input.width,
    inputHeight: result.input.height,
    subject: result.subject && Subject.create(result.subject),
    runsMissing: result.missing.map(({ model: { model, inputWidth, inputHeight }, role }) =>
      MissingRun.create({ model, inputWidth, inputHeight, role: ROLE_LABELS[role] }),
    ),
  };
}

function requireChunk(request: MatteRequest | undefined): Buffer | undefined {
  if (request === undefined) return undefined;
  if (request.message?.$case !== 'chunk') {
    throw new ContractError('INVALID_REQUEST', 'The messages after the header must be chunks.');
  }
  const { data } = request.message.value;
  if (data.length > CHUNK_BYTES_MAX) {
    throw new ContractError(
      'INVALID_REQUEST',
      `A chunk must have at most ${CHUNK_BYTES_MAX} bytes.`,
    );
  }
  return data;
}

function deadline(detail: string): ContractError {
  return new ContractError('CALL_DEADLINE_EXCEEDED', detail);
}

/** Rejects with the signal's reason, or after `waitMs` with CALL_DEADLINE_EXCEEDED. */
async function inTime<T>(
  work: Promise<T>,
  waitMs: number,
  signal: AbortSignal,
  detail: string,
): Promise<T> {
  signal.throwIfAborted();
  return within(raceAbort(work, signal), waitMs, () => deadline(detail));
}
