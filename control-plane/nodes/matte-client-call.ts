import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { setImmediate as nextTick } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { ClientDuplexStream } from '@grpc/grpc-js';
import { PieceCount } from '@matting/program/piece-count.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Channels, Finishing, Sight } from '@matting/proto/contract/finishing.ts';
import { finishingToProto } from '@matting/proto/contract/finishing-wire.ts';
import {
  type InputFormat,
  inputFormatToProto,
  type OutputFormat,
  outputFormatFromProto,
  outputFormatToProto,
} from '@matting/proto/contract/formats.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';
import { hintsToProto } from '@matting/proto/contract/hints-wire.ts';
import {
  CHUNK_BYTES_MAX,
  IMAGE_SIDE_PX_MAX,
  MATTE_BYTES_MAX,
  RESULT_BYTES_MAX,
  THUMBNAIL_BYTES_MAX,
} from '@matting/proto/contract/limits.ts';
import { oddNumberIn } from '@matting/proto/contract/odd-numbers.ts';
import {
  type BackgroundPicture,
  type Done,
  type MatteRequest,
  type MatteResponse,
  Priority,
  type ResultHeader,
  ResultKind,
  Switch,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { LocalFault, type MatteResult, type UsedModel } from './attempt-outcome.ts';
import type { Selectable } from './selectable.ts';

/** `write` resolves when it can take more. */
export interface ResultSink {
  write(chunk: Uint8Array): Promise<void>;
}

interface SentFile {
  readonly bytes: number;
  /** Called once, after the previous files were sent. The client ends the stream. */
  readonly open: () => Promise<Readable>;
}

interface BackgroundFile extends SentFile {
  readonly format: InputFormat;
  /** Width as stored in the file. null: unknown. */
  readonly width: number | null;
  readonly height: number | null;
}

interface CallHeader {
  readonly jobId: string;
  readonly attempt: number;
  readonly inputBytes: number;
  readonly inputFormat: InputFormat;
  readonly width: number | null;
  readonly height: number | null;
  readonly outputFormat: OutputFormat;
  /** Default: rgba. */
  readonly channels?: Channels;
  /** The node must confirm it. Empty if the caller changed only the format or `channels`. */
  readonly finishing?: Finishing;
  readonly background?: BackgroundFile;
  /** The node must confirm them. */
  readonly hints?: Hints | undefined;
  readonly hintsFile?: BackgroundFile;
  /** Requests the matte, for corrections. */
  readonly matte?: boolean;
  /** Replaces the models, except for runs of `model` on crops around hints. */
  readonly givenMatte?: SentFile | undefined;
  /** As the node reports it. Absent: the node's own plan, or none if there is a `givenMatte`. */
  readonly model?: Pick<Selectable, 'name' | 'kind' | 'sha256'> | undefined;
  readonly sync: boolean;
  /** The node refuses the image if an engine would take it only after this wait. 0: any wait. */
  readonly waitMsMax?: number;
}

export interface MatteCall extends CallHeader {
  /** Called once, after the node admitted the image. The client ends the stream. */
  readonly openInput: () => Promise<Readable>;
  readonly sink: ResultSink;
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
  readonly onAdmitted?: () => void;
}

export function headerMessage(request: CallHeader): MatteRequest {
  return {
    message: {
      $case: 'header',
      value: {
        jobId: request.jobId,
        attempt: request.attempt,
        contentLength: request.inputBytes,
        sha256: Buffer.alloc(0),
        inputFormat: inputFormatToProto(request.inputFormat),
        width: request.width ?? 0,
        height: request.height ?? 0,
        outputFormat: outputFormatToProto(request.outputFormat),
        resultKind: resultKindOf(request),
        priority: request.sync ? Priority.PRIORITY_SYNC : Priority.PRIORITY_ASYNC,
        plan: request.model?.kind === 'plan' ? request.model.name : '',
        refinement: Switch.SWITCH_UNSPECIFIED,
        foregroundEstimation: Switch.SWITCH_UNSPECIFIED,
        model: request.model?.kind === 'model' ? request.model.name : '',
        selectableSha256: request.model?.sha256 ?? '',
        thumbnail: true,
        finishing:
          request.finishing && finishingToProto(request.finishing, fileOf(request.background)),
        hints: request.hints && hintsToProto(request.hints, fileOf(request.hintsFile)),
        matte: request.matte ?? false,
        givenMatte: request.givenMatte && {
          contentLength: request.givenMatte.bytes,
          sha256: Buffer.alloc(0),
        },
        // A node reads 0 as no bound.
        waitMsMax: request.waitMsMax ? Math.max(1, Math.round(request.waitMsMax)) : 0,
      },
    },
  };
}

function resultKindOf({ channels = 'rgba' }: CallHeader): ResultKind {
  return channels === 'alpha' ? ResultKind.RESULT_KIND_MASK : ResultKind.RESULT_KIND_CUTOUT;
}

function fileOf(file: BackgroundFile | undefined): BackgroundPicture | undefined {
  if (file === undefined) return undefined;
  const { bytes, format, width, height } = file;
  return {
    contentLength: bytes,
    sha256: Buffer.alloc(0),
    inputFormat: inputFormatToProto(format),
    width: width ?? 0,
    height: height ?? 0,
  };
}

/** @throws ContractError NODE_INCAPABLE: the node did not apply a field that it does not know */
function requireFinished(request: CallHeader, header: ResultHeader): void {
  const { finishing, background, hints, matte = false } = request;
  if ((hints !== undefined && !header.hints) || (matte && header.matteBytes === 0)) {
    throw new ContractError('NODE_INCAPABLE', 'the node did not apply the hints, or has no matte');
  }
  if (finishing === undefined) return;
  const isSame =
    header.finishing !== undefined &&
    isDeepStrictEqual(header.finishing, finishingToProto(finishing, fileOf(background))) &&
    header.resultKind === resultKindOf(request) &&
    outputFormatFromProto(header.format) === request.outputFormat;
  if (isSame) return;
  const detail = 'the node did not apply the finishing that was asked for';
  throw new ContractError('NODE_INCAPABLE', detail);
}

function sightFromProto(header: ResultHeader): Sight | null {
  const { inputWidth, inputHeight, subject } = header;
  if (inputWidth === 0 || inputHeight === 0) return null;
  const { inputBox, resultBox, share = 0, cutOff, unsure } = subject ?? {};
  const warnings = { ...(cutOff && { cutOff }), ...(unsure && { unsure }) };
  const seen = inputBox && resultBox ? { inputBox, resultBox, share, ...warnings } : null;
  return { inputWidth, inputHeight, subject: seen };
}

function isThumbnail({ length }: Buffer): boolean {
  return length > 0 && length <= THUMBNAIL_BYTES_MAX;
}

function modelsOf({ modelRuns }: ResultHeader): UsedModel[] {
  const runs = modelRuns.map(({ model: name, role }) => ({ name, role }));
  return [...new Map(runs.map(run => [`${run.name} ${run.role}`, run])).values()];
}

/** Bounds messages without bytes: three stages, and those of a newer protocol. */
const NOTES_MAX = 32;
const MESSAGES_A_TICK_MAX = 64;

type MatteStream = ClientDuplexStream<MatteRequest, MatteResponse>;

export class MatteClientCall {
  readonly #call: MatteStream;
  readonly #request: MatteCall;
  readonly #admissionTimeoutMs: number;
  readonly #ended = new AbortController();
  readonly #hash = createHash('sha256');
  #upload: Promise<void> | undefined;
  #uploadFault: unknown;
  #header: ResultHeader | undefined;
  #received = 0;
  readonly #matteParts: Buffer[] = [];
  #matteReceived = 0;
  readonly #pieces = new PieceCount();
  #messages = 0;
  #notes = 0;
  #result: MatteResult | undefined;
  #admissionTimedOut = false;
  admitted = false;

  constructor(call: MatteStream, request: MatteCall, admissionTimeoutMs: number) {
    this.#call = call;
    this.#admissionTimeoutMs = admissionTimeoutMs;
    this.#request = request;
    // The iteration sees an error only while it waits. An error between two reads would be
    // unhandled.
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
        this.#messages += 1;
        if (this.#messages % MESSAGES_A_TICK_MAX === 0) await nextTick();
      }
    } catch (error) {
      // A connection that breaks after the checked result and before its status does not matter.
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
        this.#request.onAdmitted?.();
        this.#upload = this.#send();
        return;
      case 'resultHeader':
        this.#takeHeader(message.value);
        return;
      case 'chunk':
        return await this.#takeChunk(message.value.data);
      case 'matteChunk':
        this.#takeMatte(message.value.data);
        return;
      case 'done':
        if (this.#result !== undefined) throw brokenAnswer('Done twice');
        this.#result = this.#complete(message.value);
        return;
      default:
        this.#notes += 1;
        if (this.#notes > NOTES_MAX) throw brokenAnswer('more messages than a result needs');
    }
  }

  #takeHeader(header: ResultHeader): void {
    if (this.#header !== undefined) throw brokenAnswer('a second result header');
    requireFinished(this.#request, header);
    requireNumbers({ ...header, finishing: undefined });
    if ((header.subject?.share ?? 0) > 1) throw brokenAnswer('a share above 1');
    for (const side of [header.width, header.height]) {
      if (side < 1 || side > IMAGE_SIDE_PX_MAX)
        throw brokenAnswer('a width or height out of range');
    }
    if (outputFormatFromProto(header.format) !== this.#request.outputFormat) {
      throw brokenAnswer('another format than asked for');
    }
    if (header.sizeBytes < 1 || header.sizeBytes > RESULT_BYTES_MAX) {
      throw brokenAnswer('a result size out of range');
    }
    if (header.matteBytes > (this.#request.matte ? MATTE_BYTES_MAX : 0)) {
      throw brokenAnswer('a matte size out of range');
    }
    this.#header = header;
  }

  #countPiece({ length }: Buffer): void {
    if (length === 0 || !this.#pieces.take(length)) throw brokenAnswer('empty or tiny chunks');
  }

  #takeMatte(data: Buffer): void {
    this.#countPiece(data);
    this.#matteReceived += data.length;
    if (this.#matteReceived > (this.#header?.matteBytes ?? 0)) {
      throw brokenAnswer('more bytes of the matte than announced');
    }
    this.#matteParts.push(data);
  }

  async #takeChunk(data: Buffer): Promise<void> {
    if (this.#header === undefined) throw brokenAnswer('a chunk before the result header');
    this.#countPiece(data);
    this.#received += data.length;
    if (this.#received > this.#header.sizeBytes) throw brokenAnswer('more bytes than announced');
    this.#hash.update(data);
    try {
      await this.#request.sink.write(data);
    } catch (error) {
      throw new LocalFault(error);
    }
  }

  #complete({ sha256, timings, thumbnail }: Done): MatteResult {
    const header = this.#header;
    if (this.#received !== header?.sizeBytes) throw brokenAnswer('fewer bytes than announced');
    requireNumbers({ timings });
    const digest = this.#hash.digest();
    if (!digest.equals(sha256)) throw brokenAnswer('a wrong checksum');
    if (this.#matteReceived !== header.matteBytes) throw brokenAnswer('a part of the matte');
    return {
      format: this.#request.outputFormat,
      bytes: header.sizeBytes,
      width: header.width,
      height: header.height,
      sha256: digest.toString('hex'),
      sight: sightFromProto(header),
      plan: header.plan,
      models: modelsOf(header),
      timings,
      thumbnail: isThumbnail(thumbnail) ? thumbnail : undefined,
      ...(header.matteBytes > 0 && { matte: Buffer.concat(this.#matteParts) }),
    };
  }

  /** Never rejects: it keeps the error of a source, which `run` throws. */
  async #send(): Promise<void> {
    try {
      const { inputBytes, openInput, background, hintsFile, givenMatte } = this.#request;
      await this.#sendFile('input', inputBytes, openInput);
      const files = { background, hints: hintsFile, matte: givenMatte };
      for (const [name, file] of Object.entries(files)) {
        if (file !== undefined) await this.#sendFile(name, file.bytes, file.open);
      }
      this.#call.end();
    } catch (error) {
      // The call ended before the upload. Its status has the reason.
      if (this.#ended.signal.aborted) return;
      this.#uploadFault = new LocalFault(error, true);
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

  async #sendAll(file: Readable): Promise<number> {
    const { signal } = this.#ended;
    // A stalled source must not outlive its call.
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

function requireNumbers(message: object): void {
  const odd = oddNumberIn(message);
  if (odd !== undefined) throw brokenAnswer(`${odd} is out of range`);
}

function brokenAnswer(what: string): ContractError {
  return new ContractError('NODE_FAULT', `the node broke the protocol: ${what}`);
}
