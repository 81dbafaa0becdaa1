/** Buckets, objects and unfinished uploads in memory, with the rules of S3 for what replaces what. */
import { createHash, randomUUID } from 'node:crypto';
import { type Checksum, compositeChecksum } from './checksums.ts';
import type { StoredBody } from './request-body.ts';
import { ObjectStoreError } from './store-error.ts';

/** Every part but the last has at least so many. */
const PART_BYTES_MIN = 5 * 1024 * 1024;
const PART_NUMBER_MAX = 10_000;

/** A client sent these with an object, and gets them back with it. */
export type ObjectHeaders = Readonly<Record<string, string>>;

export interface StoredObject extends StoredBody {
  readonly etag: string;
  readonly modifiedMs: number;
  readonly headers: ObjectHeaders;
}

export interface StoredPart extends StoredBody {
  readonly etag: string;
}

export interface Upload {
  readonly id: string;
  readonly key: string;
  readonly initiatedMs: number;
  readonly headers: ObjectHeaders;
  readonly parts: Map<number, StoredPart>;
}

export interface NamedPart {
  readonly number: number;
  readonly etag: string;
  readonly checksum?: Checksum;
}

export class Bucket {
  readonly objects = new Map<string, StoredObject>();
  readonly uploads = new Map<string, Upload>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** @param unless '*': an object of that key is not replaced */
  put(key: string, body: StoredBody, headers: ObjectHeaders, unless?: string): StoredObject {
    this.#requireAbsent(key, unless);
    const object = { ...body, etag: etagOf(body.bytes), modifiedMs: this.#nowMs(), headers };
    this.objects.set(key, object);
    return object;
  }

  get(key: string): StoredObject {
    const object = this.objects.get(key);
    if (object === undefined) throw new ObjectStoreError(404, 'NoSuchKey');
    return object;
  }

  /** Keys in the order of their UTF-8 bytes, as listings have them. */
  keys(prefix: string): string[] {
    const keys = [...this.objects.keys()].filter(key => key.startsWith(prefix));
    return keys.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  }

  begin(key: string, headers: ObjectHeaders): Upload {
    const id = randomUUID();
    const upload = { id, key, initiatedMs: this.#nowMs(), headers, parts: new Map() };
    this.uploads.set(id, upload);
    return upload;
  }

  upload(key: string, id: string): Upload {
    const upload = this.uploads.get(id);
    if (upload?.key !== key) throw new ObjectStoreError(404, 'NoSuchUpload');
    return upload;
  }

  putPart(key: string, id: string, number: number, body: StoredBody): StoredPart {
    if (!Number.isInteger(number) || number < 1 || number > PART_NUMBER_MAX) {
      throw new ObjectStoreError(400, 'InvalidArgument');
    }
    const part = { ...body, etag: etagOf(body.bytes) };
    this.upload(key, id).parts.set(number, part);
    return part;
  }

  complete(key: string, id: string, named: readonly NamedPart[], unless?: string): StoredObject {
    const upload = this.upload(key, id);
    const parts = named.map((name, index) => partOf(upload, name, named[index - 1]));
    if (parts.length === 0) throw new ObjectStoreError(400, 'MalformedXML');
    if (parts.slice(0, -1).some(part => part.bytes.length < PART_BYTES_MIN)) {
      throw new ObjectStoreError(400, 'EntityTooSmall');
    }
    this.#requireAbsent(key, unless);
    const digests = parts.map(part => Buffer.from(part.etag.slice(1, -1), 'hex'));
    const object: StoredObject = {
      bytes: Buffer.concat(parts.map(part => part.bytes)),
      checksum: compositeChecksum(parts.map(part => part.checksum))!,
      etag: etagOf(Buffer.concat(digests)).replace(/"$/, `-${parts.length}"`),
      modifiedMs: this.#nowMs(),
      headers: upload.headers,
    };
    this.objects.set(key, object);
    this.uploads.delete(id);
    return object;
  }

  #requireAbsent(key: string, unless: string | undefined): void {
    if (unless === undefined) return;
    if (unless !== '*') throw new ObjectStoreError(501, 'NotImplemented');
    if (this.objects.has(key)) throw new ObjectStoreError(412, 'PreconditionFailed');
  }
}

function partOf(upload: Upload, name: NamedPart, previous: NamedPart | undefined): StoredPart {
  if (previous !== undefined && previous.number >= name.number) {
    throw new ObjectStoreError(400, 'InvalidPartOrder');
  }
  const part = upload.parts.get(name.number);
  const same = part !== undefined && part.etag === `"${name.etag.replaceAll('"', '')}"`;
  const summed =
    name.checksum === undefined ||
    (part?.checksum.algorithm === name.checksum.algorithm &&
      part.checksum.value === name.checksum.value);
  if (!same || !summed) throw new ObjectStoreError(400, 'InvalidPart');
  return part;
}

function etagOf(bytes: Uint8Array): string {
  return `"${createHash('md5').update(bytes).digest('hex')}"`;
}
