/** Checksums that S3 knows, of those the ones that clients here use. */
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { crc32 } from 'node:zlib';
import { ObjectStoreError } from './store-error.ts';

export type ChecksumAlgorithm = 'crc32' | 'sha256';

export interface Checksum {
  readonly algorithm: ChecksumAlgorithm;
  /** Base64; of several parts with their number behind a hyphen. */
  readonly value: string;
}

const ALGORITHMS: readonly ChecksumAlgorithm[] = ['crc32', 'sha256'];

export function digestOf(algorithm: ChecksumAlgorithm, bytes: Uint8Array): Buffer {
  if (algorithm !== 'crc32') return createHash(algorithm).update(bytes).digest();
  const sum = Buffer.alloc(4);
  sum.writeUInt32BE(crc32(bytes));
  return sum;
}

export function declaredChecksum(headers: IncomingHttpHeaders): Checksum | undefined {
  for (const algorithm of ALGORITHMS) {
    const name = `x-amz-checksum-${algorithm}`;
    const value = headers[name];
    if (typeof value === 'string') return { algorithm, value };
  }
  const unknown = Object.keys(headers).some(name =>
    /^x-amz-checksum-(?!algorithm$|type$|mode$)/.test(name),
  );
  if (unknown) throw new ObjectStoreError(501, 'NotImplemented');
  return undefined;
}

/** @throws ObjectStoreError where the body is another one */
export function requireChecksum(bytes: Uint8Array, declared: Checksum | undefined): void {
  if (declared === undefined) return;
  const value = digestOf(declared.algorithm, bytes).toString('base64');
  if (value !== declared.value) throw new ObjectStoreError(400, 'BadDigest');
}

/** Gives an object in parts the checksum of the parts' checksums. */
export function compositeChecksum(parts: readonly (Checksum | undefined)[]): Checksum | undefined {
  const algorithm = parts[0]?.algorithm;
  if (algorithm === undefined) return undefined;
  const digests = parts.map(part => {
    if (part?.algorithm !== algorithm) throw new ObjectStoreError(400, 'InvalidRequest');
    return Buffer.from(part.value, 'base64');
  });
  const value = digestOf(algorithm, Buffer.concat(digests)).toString('base64');
  return { algorithm, value: `${value}-${parts.length}` };
}
