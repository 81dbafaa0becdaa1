/** Reads a request's body as S3 does: its framing, its signed hash and its checksums. */
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { type Checksum, declaredChecksum, digestOf, requireChecksum } from './checksums.ts';
import { ObjectStoreError } from './store-error.ts';

/** A body is held in memory; larger ones are not what these tests are about. */
const BODY_BYTES_MAX = 256 * 1024 * 1024;
const TRAILER_FRAMING = 'STREAMING-UNSIGNED-PAYLOAD-TRAILER';

export interface StoredBody {
  readonly bytes: Buffer;
  /** As the client declared it; CRC-32 where it declared none, which S3 adds itself. */
  readonly checksum: Checksum;
}

/**
 * @param payloadHash what verifySignature returned
 * @throws ObjectStoreError where hash, length or checksum are wrong
 */
export async function readBody(request: IncomingMessage, payloadHash: string): Promise<StoredBody> {
  const { headers } = request;
  const raw = await gather(request);
  const framed = payloadHash === TRAILER_FRAMING;
  if (!framed && payloadHash.startsWith('STREAMING-')) {
    throw new ObjectStoreError(501, 'NotImplemented');
  }
  const { bytes, trailer } = framed ? unframe(raw) : { bytes: raw, trailer: undefined };
  if (/^[0-9a-f]{64}$/.test(payloadHash) && sha256(bytes) !== payloadHash) {
    throw new ObjectStoreError(400, 'XAmzContentSHA256Mismatch');
  }
  const announced = headers['x-amz-decoded-content-length'];
  if (framed && Number(announced) !== bytes.length) {
    throw new ObjectStoreError(400, 'IncompleteBody');
  }
  const md5 = headers['content-md5'];
  if (md5 !== undefined && createHash('md5').update(bytes).digest('base64') !== md5) {
    throw new ObjectStoreError(400, 'BadDigest');
  }
  const declared = declaredChecksum(headers, trailer);
  requireChecksum(bytes, declared);
  const added: Checksum = {
    algorithm: 'crc32',
    value: digestOf('crc32', bytes).toString('base64'),
  };
  return { bytes, checksum: declared ?? added };
}

async function gather(request: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    bytes += piece.length;
    if (bytes > BODY_BYTES_MAX) throw new ObjectStoreError(400, 'EntityTooLarge');
    pieces.push(piece);
  }
  return Buffer.concat(pieces, bytes);
}

/** aws-chunked: `<hex length>[;extension]\r\n<bytes>\r\n` …, `0\r\n`, trailer lines. */
function unframe(raw: Buffer): { bytes: Buffer; trailer: ReadonlyMap<string, string> } {
  const chunks: Buffer[] = [];
  let at = 0;
  for (;;) {
    const end = raw.indexOf('\r\n', at);
    const length = Number.parseInt(raw.toString('latin1', at, end), 16);
    if (end === -1 || !Number.isInteger(length)) throw new ObjectStoreError(400, 'IncompleteBody');
    at = end + 2;
    if (length === 0) break;
    const chunk = raw.subarray(at, at + length);
    if (chunk.length < length) throw new ObjectStoreError(400, 'IncompleteBody');
    chunks.push(chunk);
    at += length + 2;
  }
  const lines = raw
    .toString('latin1', at)
    .split('\r\n')
    .filter(line => line.includes(':'));
  const trailer = lines.map((line): [string, string] => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim()];
  });
  return { bytes: Buffer.concat(chunks), trailer: new Map(trailer) };
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
