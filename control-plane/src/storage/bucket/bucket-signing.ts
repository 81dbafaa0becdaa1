/** Leave for others to read or write one object of a bucket: URLs signed for one request. */
import { requireBlobName } from '../blob-names.ts';
import type { SignedAccess, SignedReading, SignedWrite, SignedWriting } from '../blob-store.ts';
import { unreadable } from '../storage-errors.ts';
import { type BucketClient, SHA256_METADATA } from './bucket-client.ts';
import { isMissing } from './bucket-errors.ts';

type Presigner = typeof import('@aws-sdk/s3-request-presigner');
type Options = NonNullable<Parameters<Presigner['getSignedUrl']>[2]>;

/** Loads what signs; no request is made before the first is signed. */
export async function createSignedAccess(client: BucketClient): Promise<SignedAccess> {
  const { getSignedUrl } = await import('@aws-sdk/s3-request-presigner');
  const { sdk, clients, options } = client;
  const at = (name: string) => {
    requireBlobName(name);
    return { Bucket: options.bucket, Key: options.prefix + name };
  };
  const until = (forMs: number): Options => ({
    expiresIn: Math.max(1, Math.floor(forMs / 1000)),
    // By the store's clock, which judges it.
    signingDate: new Date(Date.now() + client.clockOffsetMs),
  });
  const signRead = async (name: string, reading: SignedReading) => {
    const { forMs, method = 'GET', contentType, disposition } = reading;
    const input = {
      ...at(name),
      ...(contentType === undefined ? {} : { ResponseContentType: contentType }),
      ...(disposition === undefined ? {} : { ResponseContentDisposition: disposition }),
    };
    const command =
      method === 'GET' ? new sdk.GetObjectCommand(input) : new sdk.HeadObjectCommand(input);
    return await getSignedUrl(clients.reads, command, until(forMs)).catch(unsigned);
  };
  return {
    origin: new URL(await signRead('inputs/x', { forMs: 1000 })).origin,
    signRead,
    async signWrite(name, { forMs, bytes, sha256, contentType }) {
      const headers = writeHeaders({ bytes, sha256, contentType }, options.encryption);
      const command = new sdk.PutObjectCommand({
        ...client.writing(name),
        ...at(name),
        ContentLength: bytes,
        ChecksumSHA256: headers['x-amz-checksum-sha256'],
        Metadata: { [SHA256_METADATA]: sha256 },
        IfNoneMatch: '*',
        ...(contentType === undefined ? {} : { ContentType: contentType }),
      });
      const names = new Set(Object.keys(headers));
      const url = await getSignedUrl(clients.writes, command, {
        ...until(forMs),
        unhoistableHeaders: names,
        signableHeaders: names,
      }).catch(unsigned);
      requireSigned(url, names);
      return { url, headers };
    },
    async stored(name) {
      requireBlobName(name);
      try {
        const { bytes, storeSha256 } = await client.head(name);
        return { bytes, ...(storeSha256 === undefined ? {} : { sha256: storeSha256 }) };
      } catch (error) {
        if (isMissing(error)) return undefined;
        throw unreadable(error);
      }
    },
  };
}

function writeHeaders(
  {
    bytes,
    sha256,
    contentType,
  }: Pick<SignedWriting, 'bytes' | 'sha256'> & {
    readonly contentType: string | undefined;
  },
  encryption: BucketClient['options']['encryption'],
): SignedWrite['headers'] & { readonly 'x-amz-checksum-sha256': string } {
  return {
    'content-length': String(bytes),
    'if-none-match': '*',
    'x-amz-checksum-sha256': Buffer.from(sha256, 'hex').toString('base64'),
    [`x-amz-meta-${SHA256_METADATA}`]: sha256,
    ...(contentType === undefined ? {} : { 'content-type': contentType }),
    ...(encryption && { 'x-amz-server-side-encryption': encryption.algorithm }),
    ...(encryption?.kmsKeyId && {
      'x-amz-server-side-encryption-aws-kms-key-id': encryption.kmsKeyId,
    }),
  };
}

/** Whoever holds the URL could leave out, or change, a header that is not signed. */
function requireSigned(url: string, names: ReadonlySet<string>): void {
  const signed = new URL(url).searchParams.get('X-Amz-SignedHeaders')?.split(';') ?? [];
  const missing = [...names].filter(name => !signed.includes(name));
  if (missing.length > 0) throw new Error(`headers were not signed: ${missing.join(', ')}`);
}

function unsigned(error: unknown): never {
  throw unreadable(error);
}
