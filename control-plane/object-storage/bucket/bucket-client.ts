/**
 * Requests to a bucket. The AWS SDK signs them, finds credentials and corrects the clock by the
 * store's. We compute the SHA-256 of each body once and send it along, so the store refuses other
 * bytes.
 */

import { addAbortListener } from 'node:events';
import type { Readable } from 'node:stream';
import type {
  CompletedPart,
  PutObjectCommandInput,
  S3Client,
  ServiceInputTypes,
  ServiceOutputTypes,
} from '@aws-sdk/client-s3';
import type {
  StorageObserver,
  StorageOperation,
  StorageOutcome,
} from '@matting/storage/storage-kind.ts';
import type { BucketBounds, BucketClients, BucketConnections } from './bucket-connections.ts';
import { BucketError, outcomeOf } from './bucket-error.ts';
import type { BucketOptions } from './bucket-url.ts';

export interface HashedBytes {
  readonly bytes: Uint8Array;
  readonly sha256: string;
}

export interface BucketObject {
  readonly body: Readable;
  readonly etag: string | undefined;
  readonly sha256: string | undefined;
}

interface BucketObjectHead {
  readonly bytes: number;
  /** Hexadecimal, of the whole object, from the writer. */
  readonly notedSha256: string | undefined;
  /** From the store. Absent for uploads in parts. */
  readonly storeSha256: string | undefined;
}

export interface BucketListing {
  readonly items: readonly BucketItem[];
  readonly nowMs: number;
  /** Token of the next page. undefined: this was the last. */
  readonly next: string | undefined;
}

export interface BucketItem {
  readonly key: string;
  /** Time of the object's write, or of the start of a multipart upload. */
  readonly atMs: number;
  readonly uploadId?: string;
}

interface BucketPart extends HashedBytes {
  readonly uploadId: string;
  readonly number: number;
}

/** The object's metadata field with the SHA-256 of all its bytes. */
export const SHA256_METADATA = 'sha256';

type Sdk = typeof import('@aws-sdk/client-s3');
type Command<I extends ServiceInputTypes, O extends ServiceOutputTypes> = Parameters<
  typeof S3Client.prototype.send<I, O>
>[0];

export class BucketClient {
  readonly options: BucketOptions;
  readonly clients: BucketClients;
  readonly sdk: Sdk;
  readonly #bounds: BucketBounds;
  readonly #observer: StorageObserver;

  constructor(
    { sdk, clients }: BucketConnections,
    options: BucketOptions,
    bounds: BucketBounds,
    observer: StorageObserver,
  ) {
    this.sdk = sdk;
    this.clients = clients;
    this.options = options;
    this.#bounds = bounds;
    this.#observer = observer;
  }

  /** The store's clock minus this machine's, in ms. */
  get clockOffsetMs(): number {
    return this.clients.writes.config.systemClockOffset;
  }

  writing(
    key: string,
  ): Pick<PutObjectCommandInput, 'Bucket' | 'Key' | 'ServerSideEncryption' | 'SSEKMSKeyId'> {
    const { bucket, encryption } = this.options;
    return {
      ...this.#at(key),
      Bucket: bucket,
      ...(encryption && { ServerSideEncryption: encryption.algorithm }),
      ...(encryption?.kmsKeyId && { SSEKMSKeyId: encryption.kmsKeyId }),
    };
  }

  /** Rejects with PreconditionFailed if the object exists. */
  async put(
    key: string,
    { bytes, sha256 }: HashedBytes,
    signal?: AbortSignal,
    client = this.clients.writes,
  ): Promise<void> {
    const command = new this.sdk.PutObjectCommand({
      ...this.writing(key),
      Body: bytes,
      ContentLength: bytes.length,
      ChecksumSHA256: base64Of(sha256),
      Metadata: { [SHA256_METADATA]: sha256 },
      IfNoneMatch: '*',
    });
    await this.#send('put', client, withPayloadHash(command, sha256), signal);
  }

  async createMultipart(key: string, sha256: string, signal?: AbortSignal): Promise<string> {
    const command = new this.sdk.CreateMultipartUploadCommand({
      ...this.writing(key),
      ChecksumAlgorithm: 'SHA256',
      Metadata: { [SHA256_METADATA]: sha256 },
    });
    const { UploadId } = await this.#send('multipart-create', this.clients.writes, command, signal);
    if (UploadId === undefined) throw new Error('the store began an upload without an id');
    return UploadId;
  }

  async uploadPart(
    key: string,
    { uploadId, number, bytes, sha256 }: BucketPart,
    signal?: AbortSignal,
  ): Promise<CompletedPart> {
    const ChecksumSHA256 = base64Of(sha256);
    const command = new this.sdk.UploadPartCommand({
      ...this.#at(key),
      UploadId: uploadId,
      PartNumber: number,
      Body: bytes,
      ContentLength: bytes.length,
      ChecksumSHA256,
    });
    const sent = withPayloadHash(command, sha256);
    const { ETag } = await this.#send('multipart-part', this.clients.writes, sent, signal);
    return { PartNumber: number, ChecksumSHA256, ...(ETag === undefined ? {} : { ETag }) };
  }

  async completeMultipart(
    key: string,
    { uploadId, parts }: { readonly uploadId: string; readonly parts: CompletedPart[] },
    signal?: AbortSignal,
  ): Promise<void> {
    const command = new this.sdk.CompleteMultipartUploadCommand({
      ...this.#at(key),
      UploadId: uploadId,
      MultipartUpload: { Parts: parts },
      IfNoneMatch: '*',
    });
    await this.#send('multipart-complete', this.clients.writes, command, signal);
  }

  async abortMultipart(key: string, uploadId: string, signal?: AbortSignal): Promise<void> {
    const command = new this.sdk.AbortMultipartUploadCommand({
      ...this.#at(key),
      UploadId: uploadId,
    });
    await this.#send('multipart-abort', this.clients.writes, command, signal);
  }

  /** @param etag rejects with PreconditionFailed if the object has another ETag */
  async get(
    key: string,
    { range, etag, signal }: { range?: string | undefined; etag?: string; signal: AbortSignal },
  ): Promise<BucketObject> {
    const command = new this.sdk.GetObjectCommand({
      ...this.#at(key),
      ...(range === undefined ? {} : { Range: range }),
      ...(etag === undefined ? {} : { IfMatch: etag }),
    });
    const { Body, ETag, Metadata } = await this.#send('get', this.clients.reads, command, signal);
    if (Body === undefined) throw new Error('the store answered without a body');
    return { body: Body as Readable, etag: ETag, sha256: Metadata?.[SHA256_METADATA] };
  }

  async head(key: string): Promise<BucketObjectHead> {
    const command = new this.sdk.HeadObjectCommand({ ...this.#at(key), ChecksumMode: 'ENABLED' });
    const found = await this.#send('head', this.clients.reads, command);
    const { ContentLength, Metadata, ChecksumSHA256, ChecksumType } = found;
    if (ContentLength === undefined) throw new Error('the store answered without a length');
    // The checksum of an object with parts hashes the parts' hashes, and ends with their number.
    const isWhole = ChecksumType !== 'COMPOSITE' && ChecksumSHA256?.includes('-') === false;
    return {
      bytes: ContentLength,
      notedSha256: Metadata?.[SHA256_METADATA],
      storeSha256: isWhole ? Buffer.from(ChecksumSHA256, 'base64').toString('hex') : undefined,
    };
  }

  async delete(key: string, signal?: AbortSignal, client = this.clients.writes): Promise<void> {
    const command = new this.sdk.DeleteObjectCommand(this.#at(key));
    await this.#send('delete', client, command, signal);
  }

  /** Lists a page of objects with this prefix. @param after only later keys */
  async list(
    prefix: string,
    {
      from,
      after,
    }: { readonly from?: string | undefined; readonly after?: string | undefined } = {},
  ): Promise<BucketListing> {
    const command = new this.sdk.ListObjectsV2Command({
      Bucket: this.options.bucket,
      Prefix: this.options.prefix + prefix,
      MaxKeys: this.#bounds.pageMax,
      ...(from === undefined ? {} : { ContinuationToken: from }),
      ...(after === undefined ? {} : { StartAfter: this.options.prefix + after }),
    });
    const date = withDate(command);
    const found = await this.#send('list', this.clients.reads, command);
    const items = (found.Contents ?? []).map(({ Key, LastModified }) => ({
      key: this.#nameOf(Key),
      atMs: timeOf(LastModified),
    }));
    const next = found.IsTruncated === true ? found.NextContinuationToken : undefined;
    return { items, nowMs: date(), next };
  }

  async listMultipart(prefix: string, from?: string): Promise<BucketListing> {
    const [keyMarker, uploadIdMarker] = from?.split('\n') ?? [];
    const command = new this.sdk.ListMultipartUploadsCommand({
      Bucket: this.options.bucket,
      Prefix: this.options.prefix + prefix,
      MaxUploads: this.#bounds.pageMax,
      ...(keyMarker === undefined ? {} : { KeyMarker: keyMarker }),
      ...(uploadIdMarker === undefined ? {} : { UploadIdMarker: uploadIdMarker }),
    });
    const date = withDate(command);
    const found = await this.#send('multipart-list', this.clients.reads, command);
    const items = (found.Uploads ?? []).map(({ Key, UploadId, Initiated }) => ({
      key: this.#nameOf(Key),
      atMs: timeOf(Initiated),
      ...(UploadId === undefined ? {} : { uploadId: UploadId }),
    }));
    const { IsTruncated, NextKeyMarker, NextUploadIdMarker = '' } = found;
    const next = IsTruncated === true ? `${NextKeyMarker ?? ''}\n${NextUploadIdMarker}` : undefined;
    return { items, nowMs: date(), next };
  }

  #at(key: string): { readonly Bucket: string; readonly Key: string } {
    return { Bucket: this.options.bucket, Key: this.options.prefix + key };
  }

  #nameOf(key: string | undefined): string {
    return (key ?? '').slice(this.options.prefix.length);
  }

  async #send<I extends ServiceInputTypes, O extends ServiceOutputTypes>(
    operation: StorageOperation,
    client: S3Client,
    command: Command<I, O>,
    signal?: AbortSignal,
  ): Promise<O> {
    // AbortSignal.timeout would also end the reading of the answer's body.
    const giveUp = new AbortController();
    const abort = () => giveUp.abort(signal?.reason);
    using _late = setTimeout(abort, this.#bounds.requestMsMax);
    using _aborting = signal && addAbortListener(signal, abort);
    if (signal?.aborted) abort();
    const beganMs = performance.now();
    const ended = (outcome: StorageOutcome, attempts: number) => {
      const tookMs = performance.now() - beganMs;
      const { systemClockOffset: clockOffsetMs } = client.config;
      const end = { operation, tookMs, attempts, outcome, clockOffsetMs };
      this.#observer.storageRequestEnded(end);
    };
    try {
      const output = await client.send(command, { abortSignal: giveUp.signal });
      ended('ok', output.$metadata.attempts ?? 1);
      return output;
    } catch (thrown) {
      const error = new BucketError(operation, thrown);
      ended(outcomeOf(error), error.attempts);
      throw error;
    } finally {
      this.#shareClock(client);
    }
  }

  /** Shares the store's clock, which each client learns only from its own answers. */
  #shareClock(from: S3Client): void {
    const { systemClockOffset } = from.config;
    for (const client of Object.values(this.clients)) {
      client.config.systemClockOffset = systemClockOffset;
    }
  }
}

function base64Of(hex: string): string {
  return Buffer.from(hex, 'hex').toString('base64');
}

function timeOf(date: Date | undefined): number {
  if (date === undefined) throw new Error('the store listed something without its time');
  return date.getTime();
}

interface Answered {
  readonly response: unknown;
}
interface Stacked {
  readonly middlewareStack: { add(middleware: never, options: never): void };
}

/** Sets the known hash, so that the SDK does not hash the body for each attempt. */
function withPayloadHash<C extends Stacked>(command: C, sha256: string): C {
  const middleware =
    (next: (args: { request: { headers: Record<string, string> } }) => Promise<Answered>) =>
    (args: { request: { headers: Record<string, string> } }) => {
      args.request.headers['x-amz-content-sha256'] = sha256;
      return next(args);
    };
  command.middlewareStack.add(middleware as never, { step: 'build', name: 'payloadHash' } as never);
  return command;
}

/** @returns the answer's Date header in UTC milliseconds, once there is an answer */
function withDate(command: Stacked): () => number {
  let date: string | undefined;
  const middleware = (next: (args: unknown) => Promise<Answered>) => async (args: unknown) => {
    const answered = await next(args);
    date = (answered.response as { headers?: Record<string, string> }).headers?.date;
    return answered;
  };
  command.middlewareStack.add(middleware as never, { step: 'deserialize', name: 'date' } as never);
  return () => {
    const nowMs = Date.parse(date ?? '');
    if (Number.isNaN(nowMs)) throw new Error("the store's answer has no Date");
    return nowMs;
  };
}
