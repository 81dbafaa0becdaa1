/**
 * One Matte call from its header to its checked result: messages in their order, bytes both ways at
 * the pace of the slower side. It knows the call, not the channel, and decides nothing about its
 * end.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { isDeepStrictEqual } from 'node:util';
import type { ClientDuplexStream } from '@grpc/grpc-js';
import { ContractError } from '#contract/errors.ts';
import type { Channels, Finishing, Sight } from '#contract/finishing.ts';
import { finishingToProto } from '#contract/finishing-wire.ts';
import {
  type InputFormat,
  inputFormatToProto,
  type OutputFormat,
  outputFormatFromProto,
  outputFormatToProto,
} from '#contract/formats.ts';
import { CHUNK_BYTES_MAX, RESULT_BYTES_MAX } from '#contract/limits.ts';
import {
  type Admitted,
  type BackgroundPicture,
  type MatteRequest,
  type MatteResponse,
  Priority,
  type ResultHeader,
  ResultKind,
  type Stage,
  Switch,
} from '#gen/matting/v1/matte_service.ts';
import { LocalFault, type MatteResult } from './attempt-outcome.ts';

/** Takes the result's bytes in order; `write` resolves when more may follow. */
export interface ResultSink {
  write(chunk: Uint8Array): Promise<void>;
}

/** The background's file. */
export interface BackgroundFile {
  readonly bytes: number;
  readonly format: InputFormat;
  /** As stored in the file; null: unknown. */
  readonly width: number | null;
  readonly height: number | null;
  /** Called once, after the image was sent; ended by the client. */
  readonly open: () => Promise<Readable>;
}

export interface MatteCall {
  readonly jobId: string;
  /** The claim's fence. */
  readonly attempt: number;
  readonly inputBytes: number;
  readonly inputFormat: InputFormat;
  /** As stored in the file; null: unknown. */
  readonly width: number | null;
  readonly height: number | null;
  readonly outputFormat: OutputFormat;
  /** rgba where absent. */
  readonly channels?: Channels;
  /**
   * Empty where the format or `channels` alone needs a node that finishes; the node must say in its
   * answer that it applied this. Absent: none.
   */
  readonly finishing?: Finishing;
  /** Given exactly where `finishing` has a background picture. */
  readonly background?: BackgroundFile;
  readonly sync: boolean;
  /** The node refuses where an engine would not take the image within this; 0: any wait. */
  readonly waitMsMax?: number;
  /** Called once, when the node has admitted the image; ended by the client. */
  readonly openInput: () => Promise<Readable>;
  readonly sink: ResultSink;
  /** Cancels the attempt: its outcome is then `aborted`. */
  readonly signal: AbortSignal;
  /** The whole attempt. */
  readonly timeoutMs: number;
  readonly onAdmitted?: (admitted: Admitted) => void;
  readonly onProgress?: (stage: Stage) => void;
}

type MatteStream = ClientDuplexStream<MatteRequest, MatteResponse>;

/** One Matte call: reads the node's messages in order while the upload runs beside it. */
export class MatteExchange {
  readonly #call: MatteStream;
  readonly #request: MatteCall;
  readonly #admissionTimeoutMs: number;
  readonly #ended = new AbortController();
  readonly #hash = createHash('sha256');
  #upload: Promise<void> | undefined;
  #uploadFault: unknown;
  #header: ResultHeader | undefined;
  #received = 0;
  #result: MatteResult | undefined;
  #admissionTimedOut = false;
  admitted = false;

  constructor(call: MatteStream, request: MatteCall, admissionTimeoutMs: number) {
    this.#call = call;
    this.#admissionTimeoutMs = admissionTimeoutMs;
    this.#request = request;
    // Iterating listens too, but only while it waits: an error between two reads must not be thrown
    // as unhandled. The iteration still sees it.
    call.on('error', () => this.#ended.abort());
  }

  async run(): Promise<MatteResult> {
    this.#call.write(headerMessage(this.#request));
    const late = setTimeout(() => {
      this.#admissionTimedOut = true;
      this.#call.cancel();
    }, this.#admissionTimeoutMs);
    try {
      for await (const response of this.#call as AsyncIterable<MatteResponse>) {
        if (!this.admitted) clearTimeout(late);
        await this.#take(response.message);
      }
    } catch (error) {
      // A connection that breaks between the checked result and its status takes nothing from it.
      if (this.#result !== undefined) return this.#result;
      if (this.#uploadFault !== undefined) throw this.#uploadFault;
      if (this.#admissionTimedOut) {
        throw new ContractError('NODE_UNAVAILABLE', 'the node did not answer', { cause: error });
      }
      throw error;
    } finally {
      clearTimeout(late);
      this.#ended.abort();
      await this.#upload;
    }
    if (this.#uploadFault !== undefined) throw this.#uploadFault;
    if (this.#result === undefined) throw brokenAnswer('it ended without a result');
    return this.#result;
  }

  async #take(message: MatteResponse['message']): Promise<void> {
    if (!this.admitted && message?.$case !== 'admitted') {
      throw brokenAnswer('a message before Admitted');
    }
    switch (message?.$case) {
      case 'admitted':
        if (this.admitted) throw brokenAnswer('Admitted twice');
        this.admitted = true;
        this.#request.onAdmitted?.(message.value);
        this.#upload = this.#send();
        return;
      case 'progress':
        this.#request.onProgress?.(message.value.stage);
        return;
      case 'resultHeader':
        this.#takeHeader(message.value);
        return;
      case 'chunk':
        return await this.#takeChunk(message.value.data);
      case 'done':
        if (this.#result !== undefined) throw brokenAnswer('Done twice');
        this.#result = this.#complete(message.value.sha256, message.value.timings);
        return;
      default:
        // A message of a newer protocol: what it adds is not needed here.
        return;
    }
  }

  #takeHeader(header: ResultHeader): void {
    if (this.#header !== undefined) throw brokenAnswer('a second result header');
    requireFinished(this.#request, header);
    if (outputFormatFromProto(header.format) !== this.#request.outputFormat) {
      throw brokenAnswer('another format than asked for');
    }
    if (header.sizeBytes < 1 || header.sizeBytes > RESULT_BYTES_MAX) {
      throw brokenAnswer('a result size out of range');
    }
    this.#header = header;
  }

  async #takeChunk(data: Buffer): Promise<void> {
    if (this.#header === undefined) throw brokenAnswer('a chunk before the result header');
    this.#received += data.length;
    if (this.#received > this.#header.sizeBytes) throw brokenAnswer('more bytes than announced');
    this.#hash.update(data);
    try {
      await this.#request.sink.write(data);
    } catch (error) {
      throw new LocalFault(error);
    }
  }

  #complete(sha256: Buffer, timings: MatteResult['timings']): MatteResult {
    const header = this.#header;
    if (header === undefined || this.#received !== header.sizeBytes) {
      throw brokenAnswer('fewer bytes than announced');
    }
    const digest = this.#hash.digest();
    if (!digest.equals(sha256)) throw brokenAnswer('a wrong checksum');
    return {
      format: this.#request.outputFormat,
      bytes: this.#received,
      width: header.width,
      height: header.height,
      sha256: digest.toString('hex'),
      sight: sightFromProto(header),
      plan: header.plan,
      modelRuns: header.modelRuns,
      timings,
    };
  }

  /** Never rejects: a fault of the source ends the call and is kept for `run`. */
  async #send(): Promise<void> {
    try {
      const { inputBytes, openInput, background } = this.#request;
      await this.#sendFile('input', inputBytes, openInput);
      if (background !== undefined) {
        await this.#sendFile('background', background.bytes, background.open);
      }
      this.#call.end();
    } catch (error) {
      // The call ended before the upload did: its status says why.
      if (this.#ended.signal.aborted) return;
      this.#uploadFault = new LocalFault(error);
      this.#call.cancel();
    }
  }

  async #sendFile(name: string, bytes: number, open: () => Promise<Readable>): Promise<void> {
    const file = await open();
    try {
      const sent = await this.#sendAll(file);
      if (sent !== bytes) throw new Error(`the ${name} has ${sent} bytes, not ${bytes}`);
    } finally {
      file.destroy();
    }
  }

  /** @returns bytes sent */
  async #sendAll(file: Readable): Promise<number> {
    const { signal } = this.#ended;
    // A source that stalls must not hold the attempt beyond its call.
    signal.addEventListener('abort', () => file.destroy(), { once: true });
    let sent = 0;
    for await (const piece of file as AsyncIterable<Buffer>) {
      for (let start = 0; start < piece.length; start += CHUNK_BYTES_MAX) {
        const data = piece.subarray(start, start + CHUNK_BYTES_MAX);
        signal.throwIfAborted();
        const more = this.#call.write({ message: { $case: 'chunk', value: { data } } });
        if (!more) await once(this.#call, 'drain', { signal });
        sent += data.length;
      }
    }
    return sent;
  }
}

function headerMessage(request: MatteCall): MatteRequest {
  return {
    message: {
      $case: 'header',
      value: {
        jobId: request.jobId,
        directOrigin: '',
        attempt: request.attempt,
        contentLength: request.inputBytes,
        sha256: Buffer.alloc(0),
        inputFormat: inputFormatToProto(request.inputFormat),
        width: request.width ?? 0,
        height: request.height ?? 0,
        outputFormat: outputFormatToProto(request.outputFormat),
        resultKind: resultKindOf(request),
        priority: request.sync ? Priority.PRIORITY_SYNC : Priority.PRIORITY_ASYNC,
        plan: '',
        refinement: Switch.SWITCH_UNSPECIFIED,
        foregroundEstimation: Switch.SWITCH_UNSPECIFIED,
        model: '',
        finishing: request.finishing && finishingToProto(request.finishing, fileOf(request)),
        // At least 1, since 0 would be no bound.
        waitMsMax: request.waitMsMax ? Math.max(1, Math.round(request.waitMsMax)) : 0,
      },
    },
  };
}

function resultKindOf({ channels = 'rgba' }: MatteCall): ResultKind {
  return channels === 'alpha' ? ResultKind.RESULT_KIND_MASK : ResultKind.RESULT_KIND_CUTOUT;
}

function fileOf({ background }: MatteCall): BackgroundPicture | undefined {
  if (background === undefined) return undefined;
  const { bytes, format, width, height } = background;
  return {
    contentLength: bytes,
    sha256: Buffer.alloc(0),
    inputFormat: inputFormatToProto(format),
    width: width ?? 0,
    height: height ?? 0,
  };
}

/**
 * A node that knows less than was asked makes another picture, as one from before finishing does:
 * it cannot do this job, and another may.
 * @throws ContractError NODE_INCAPABLE
 */
function requireFinished(request: MatteCall, header: ResultHeader): void {
  const { finishing } = request;
  if (finishing === undefined) return;
  const isSame =
    header.finishing !== undefined &&
    isDeepStrictEqual(header.finishing, finishingToProto(finishing, fileOf(request))) &&
    header.resultKind === resultKindOf(request) &&
    outputFormatFromProto(header.format) === request.outputFormat;
  if (isSame) return;
  const detail = 'the node did not apply the finishing that was asked for';
  throw new ContractError('NODE_INCAPABLE', detail);
}

function sightFromProto(header: ResultHeader): Sight | null {
  const { inputWidth, inputHeight, subject } = header;
  if (inputWidth === 0 || inputHeight === 0) return null;
  const { inputBox, resultBox, share = 0 } = subject ?? {};
  const seen = inputBox && resultBox ? { inputBox, resultBox, share } : null;
  return { inputWidth, inputHeight, subject: seen };
}

function brokenAnswer(what: string): ContractError {
  return new ContractError('NODE_FAULT', `the node broke the protocol: ${what}`);
}
