/**
 * One Matte call from its header to its checked result: messages in their order, bytes both ways at
 * the pace of the slower side. It knows the call, not the channel, and decides nothing about its
 * end.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import type { ClientDuplexStream } from '@grpc/grpc-js';
import { ContractError } from '#contract/errors.ts';
import { outputFormatFromProto } from '#contract/formats.ts';
import { CHUNK_BYTES_MAX, RESULT_BYTES_MAX } from '#contract/limits.ts';
import type { MatteRequest, MatteResponse, ResultHeader } from '#gen/matting/v1/matte_service.ts';
import { LocalFault, type MatteResult } from './attempt-outcome.ts';
import type { DirectTransfer } from './direct-transfer.ts';
import type { MatteCall } from './matte-call.ts';
import { headerMessage, requireFinished, sightFromProto } from './matte-header.ts';

const SHA256_BYTES = 32;

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
  /** Of a result that goes straight to the storage. */
  #placedSha256: Buffer | undefined;
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
        this.#request.onAdmitted?.();
        this.#upload = this.#send();
        return;
      case 'progress':
        return;
      case 'resultHeader':
        this.#takeHeader(message.value);
        return;
      case 'chunk':
        return await this.#takeChunk(message.value.data);
      case 'resultDigest':
        return await this.#namePlace(message.value.sha256);
      case 'done':
        if (this.#result !== undefined) throw brokenAnswer('Done twice');
        this.#result = await this.#complete(message.value.sha256, message.value.timings);
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
    if (this.#request.direct !== undefined) throw brokenAnswer('a chunk in a direct call');
    this.#received += data.length;
    if (this.#received > this.#header.sizeBytes) throw brokenAnswer('more bytes than announced');
    this.#hash.update(data);
    try {
      await this.#request.sink.write(data);
    } catch (error) {
      throw new LocalFault(error);
    }
  }

  /** Before it the node may put nothing; what it says it made is what it may put. */
  async #namePlace(sha256: Buffer): Promise<void> {
    const { direct } = this.#request;
    if (direct === undefined || this.#header === undefined || this.#placedSha256 !== undefined) {
      throw brokenAnswer('a digest that nothing asked for');
    }
    if (sha256.length !== SHA256_BYTES) throw brokenAnswer('a digest of another length');
    this.#placedSha256 = sha256;
    const { sizeBytes: bytes } = this.#header;
    const value = await direct.place({ bytes, sha256: sha256.toString('hex') }).catch(ours);
    this.#call.write({ message: { $case: 'resultPlace', value } });
    this.#call.end();
  }

  /** By the store's own word: the node's counts for nothing. */
  async #requirePlaced(direct: DirectTransfer, header: ResultHeader): Promise<Buffer> {
    if (this.#placedSha256 === undefined) throw brokenAnswer('Done before its digest');
    const { width, height } = header;
    const wrong = await direct.verify({ width, height }).catch(ours);
    if (wrong !== undefined) throw brokenAnswer(wrong);
    return this.#placedSha256;
  }

  #requireReceived(header: ResultHeader): Buffer {
    if (this.#received !== header.sizeBytes) throw brokenAnswer('fewer bytes than announced');
    return this.#hash.digest();
  }

  async #complete(sha256: Buffer, timings: MatteResult['timings']): Promise<MatteResult> {
    const header = this.#header;
    if (header === undefined) throw brokenAnswer('fewer bytes than announced');
    const { direct, outputFormat: format } = this.#request;
    const digest =
      direct === undefined
        ? this.#requireReceived(header)
        : await this.#requirePlaced(direct, header);
    if (!digest.equals(sha256)) throw brokenAnswer('a wrong checksum');
    return {
      format,
      bytes: header.sizeBytes,
      width: header.width,
      height: header.height,
      sha256: digest.toString('hex'),
      sight: sightFromProto(header),
      plan: header.plan,
      timings,
    };
  }

  /** Never rejects: a fault of the source ends the call and is kept for `run`. */
  async #send(): Promise<void> {
    try {
      const { inputBytes, openInput, background, direct } = this.#request;
      if (direct !== undefined) return await this.#refer(direct);
      await this.#sendFile('input', inputBytes, openInput);
      if (background !== undefined) {
        await this.#sendFile('background', background.bytes, background.open);
      }
      this.#call.end();
    } catch (error) {
      // The call ended before the upload did: its status says why.
      if (this.#ended.signal.aborted) return;
      this.#uploadFault = isUnsigned(error) ? error : new LocalFault(error, true);
      this.#call.cancel();
    }
  }

  /** The call stays open: the place of the result is named in it. */
  async #refer(direct: DirectTransfer): Promise<void> {
    const value = await direct.refer();
    this.#ended.signal.throwIfAborted();
    this.#call.write({ message: { $case: 'directInput', value } });
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

/** Where nothing is signed for, the bytes are sent. */
function isUnsigned(error: unknown): boolean {
  return error instanceof ContractError && error.code === 'STORAGE_UNREACHABLE';
}

function ours(error: unknown): never {
  throw new LocalFault(error);
}

function brokenAnswer(what: string): ContractError {
  return new ContractError('NODE_FAULT', `the node broke the protocol: ${what}`);
}
