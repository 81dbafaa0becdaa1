/** It has so much of S3 as the service uses; protocol.contract.ts compares it with real servers. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Checksum, ChecksumAlgorithm } from './checksums.ts';
import { listObjects, listUploads } from './listings.ts';
import { answerObject } from './object-answers.ts';
import { Bucket, type NamedPart, type ObjectHeaders } from './objects.ts';
import { readBody } from './request-body.ts';
import { type Identity, verifySignature } from './signature.ts';
import { ObjectStoreError } from './store-error.ts';
import { elementsOf, textOf, type XmlTree, xmlDocument } from './xml.ts';

const KEPT_HEADERS =
  /^(content-type|content-disposition|cache-control|x-amz-meta-.*|x-amz-server-side-encryption(-aws-kms-key-id)?)$/;

interface Call {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly query: URLSearchParams;
  readonly bucketName: string;
  readonly bucket: Bucket;
  readonly key: string;
  readonly payloadHash: string;
}

export interface StandInOptions {
  readonly identity: Identity;
  /** The store's clock; the machine's where absent. */
  readonly nowMs?: () => number;
}

export class StandInStore {
  readonly #options: StandInOptions;
  readonly #buckets = new Map<string, Bucket>();
  readonly #server: Server;
  #port = 0;

  private constructor(options: StandInOptions) {
    this.#options = options;
    this.#server = createServer((request, response) => {
      void this.#answer(request, response).catch(() => response.destroy());
    });
  }

  static async start(options: StandInOptions): Promise<StandInStore> {
    const store = new StandInStore(options);
    await store.listen();
    return store;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Gives a bucket's contents, for assertions. */
  bucket(name: string): Bucket | undefined {
    return this.#buckets.get(name);
  }

  /** Listens again on the port it had. */
  async listen(): Promise<void> {
    this.#server.listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
    this.#port = (this.#server.address() as AddressInfo).port;
    this.#server.unref();
  }

  /** Cuts every connection; what is stored stays. */
  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  get #nowMs(): number {
    return (this.#options.nowMs ?? Date.now)();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.sendDate = false;
    response.setHeader('date', new Date(this.#nowMs).toUTCString());
    response.setHeader('x-amz-request-id', randomUUID());
    try {
      const url = new URL(request.url ?? '/', this.endpoint);
      const payloadHash = verifySignature(request, url, this.#options.identity, this.#nowMs);
      const [bucketName = '', ...rest] = url.pathname.slice(1).split('/').map(decodeURIComponent);
      const key = rest.join('/');
      if (key === '' && request.method === 'PUT' && url.searchParams.size === 0) {
        this.#createBucket(bucketName);
        response.writeHead(200, { 'content-length': 0 }).end();
        return;
      }
      const bucket = this.#buckets.get(bucketName);
      if (bucket === undefined) throw new ObjectStoreError(404, 'NoSuchBucket');
      const query = url.searchParams;
      await route({ request, response, query, bucketName, bucket, key, payloadHash });
    } catch (error) {
      refuse(request, response, error);
    }
  }

  #createBucket(name: string): void {
    if (this.#buckets.has(name)) throw new ObjectStoreError(409, 'BucketAlreadyOwnedByYou');
    this.#buckets.set(name, new Bucket(() => this.#nowMs));
  }
}

function refuse(request: IncomingMessage, response: ServerResponse, error: unknown): void {
  const { status, code } =
    error instanceof ObjectStoreError ? error : new ObjectStoreError(500, 'InternalError');
  if (response.headersSent) {
    response.destroy();
    return;
  }
  // The unread rest of the request would be taken for the next one.
  if (!request.complete) response.setHeader('connection', 'close');
  send(response, status, 'Error', { Code: code, Message: code });
}

function send(response: ServerResponse, status: number, root: string, tree: XmlTree): void {
  const body = xmlDocument(root, tree);
  const headers = { 'content-type': 'application/xml', 'content-length': Buffer.byteLength(body) };
  response.writeHead(status, headers);
  response.end(response.req.method === 'HEAD' ? undefined : body);
}

function sendText(response: ServerResponse, body: string): void {
  response.writeHead(200, { 'content-type': 'application/xml' }).end(body);
}

async function route(call: Call): Promise<void> {
  const { request, query, bucket, key, response } = call;
  const operation = `${request.method} ${key === '' ? 'bucket' : 'object'}`;
  if (operation === 'HEAD bucket') response.writeHead(200).end();
  else if (operation === 'GET bucket') listBucket(call);
  else if (operation === 'GET object' || operation === 'HEAD object') {
    answerObject(request, response, query, bucket.get(key));
  } else if (operation === 'PUT object') await put(call);
  else if (operation === 'POST object') await post(call);
  else if (operation === 'DELETE object') remove(call);
  else throw new ObjectStoreError(501, 'NotImplemented');
}

function listBucket({ response, query, bucket, bucketName }: Call): void {
  if (query.has('uploads')) {
    sendText(response, listUploads(bucket, bucketName, query));
    return;
  }
  if (query.get('list-type') !== '2' || query.get('delimiter')) {
    throw new ObjectStoreError(501, 'NotImplemented');
  }
  sendText(response, listObjects(bucket, bucketName, query));
}

async function put(call: Call): Promise<void> {
  const { request, response, query, bucket, key, payloadHash } = call;
  const { headers } = request;
  if (headers['x-amz-copy-source'] !== undefined) throw new ObjectStoreError(501, 'NotImplemented');
  // A stream of unknown length says in its framing where it ends.
  const framed = headers['x-amz-decoded-content-length'] !== undefined;
  if (headers['content-length'] === undefined && !framed) {
    throw new ObjectStoreError(411, 'MissingContentLength');
  }
  const body = await readBody(request, payloadHash);
  const id = query.get('uploadId');
  const stored =
    id === null
      ? bucket.put(key, body, keptHeaders(request), headers['if-none-match'])
      : bucket.putPart(key, id, Number(query.get('partNumber')), body);
  const { algorithm, value } = stored.checksum;
  response.setHeader('etag', stored.etag);
  response.setHeader(`x-amz-checksum-${algorithm}`, value);
  response.writeHead(200, { 'content-length': 0 }).end();
}

async function post(call: Call): Promise<void> {
  const { request, response, query, bucket, bucketName, key, payloadHash } = call;
  const { bytes } = await readBody(request, payloadHash);
  const id = query.get('uploadId');
  if (id === null) {
    if (!query.has('uploads')) throw new ObjectStoreError(501, 'NotImplemented');
    const upload = bucket.begin(key, keptHeaders(request));
    const tree = { Bucket: bucketName, Key: key, UploadId: upload.id };
    send(response, 200, 'InitiateMultipartUploadResult', tree);
    return;
  }
  const parts = elementsOf(bytes.toString(), 'Part').map(namedPart);
  const object = bucket.complete(key, id, parts, request.headers['if-none-match']);
  const { algorithm, value } = object.checksum;
  send(response, 200, 'CompleteMultipartUploadResult', {
    Bucket: bucketName,
    Key: key,
    ETag: object.etag,
    [`Checksum${algorithm.toUpperCase()}`]: value,
    ChecksumType: 'COMPOSITE',
  });
}

function remove({ response, query, bucket, key }: Call): void {
  const id = query.get('uploadId');
  if (id === null) bucket.objects.delete(key);
  else bucket.uploads.delete(bucket.upload(key, id).id);
  response.writeHead(204).end();
}

function namedPart(xml: string): NamedPart {
  const algorithm = (['crc32', 'sha256'] satisfies ChecksumAlgorithm[]).find(
    name => textOf(xml, `Checksum${name.toUpperCase()}`) !== undefined,
  );
  const number = Number(textOf(xml, 'PartNumber'));
  const etag = textOf(xml, 'ETag') ?? '';
  if (algorithm === undefined) return { number, etag };
  const value = textOf(xml, `Checksum${algorithm.toUpperCase()}`) ?? '';
  const checksum: Checksum = { algorithm, value };
  return { number, etag, checksum };
}

function keptHeaders({ headers }: IncomingMessage): ObjectHeaders {
  const kept = Object.entries(headers).filter(
    (entry): entry is [string, string] => KEPT_HEADERS.test(entry[0]) && entry[1] !== undefined,
  );
  return Object.fromEntries(kept);
}
