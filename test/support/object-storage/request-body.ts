/** Reads a request's body as S3 does: its signed hash and its checksums. */
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { type Checksum, declaredChecksum, digestOf, requireChecksum } from './checksums.ts';
import { ObjectStoreError } from './store-error.ts';

/** A body is held in memory; larger ones are not what these tests are about. */
const BODY_BYTES_MAX = 256 * 1024 * 1024;

export interface StoredBody {
  readonly bytes: Buffer;
  /** The client declared it; CRC-32 where it declared none, which S3 adds itself. */
  readonly checksum: Checksum;
}

/** `payloadHash` is what verifySignature returned. @throws ObjectStoreError */
export async function readBody(request: IncomingMessage, payloadHash: string): Promise<StoredBody> {
  const { headers } = request;
  // The service sends no body whose length and checksum come behind it.
  if (payloadHash.startsWith('STREAMING-')) throw new ObjectStoreError(501, 'NotImplemented');
  const bytes = await gather(request);
  if (/^[0-9a-f]{64}$/.test(payloadHash) && sha256(bytes) !== payloadHash) {
    throw new ObjectStoreError(400, 'XAmzContentSHA256Mismatch');
  }
  const md5 = headers['content-md5'];
  if (md5 !== undefined && createHash('md5').update(bytes).digest('base64') !== md5) {
    throw new ObjectStoreError(400, 'BadDigest');
  }
  const declared = declaredChecksum(headers);
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

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
