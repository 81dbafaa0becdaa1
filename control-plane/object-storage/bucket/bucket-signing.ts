/** Leave for others to read or write one object of a bucket: URLs signed for one request. */
import { requireBlobName } from '../../core/storage/blob-names.ts';
import type {
  SignedAccess,
  SignedReading,
  SignedWrite,
  SignedWriting,
} from '../../core/storage/blob-store.ts';
import { unreadable } from '../../core/storage/storage-errors.ts';
import { type BucketClient, SHA256_METADATA } from './bucket-client.ts';
import { isMissing } from './bucket-errors.ts';
import { BucketPresigner, type Signing, type SigningOptions } from './bucket-presigner.ts';

type GetSignedUrl = typeof import('@aws-sdk/s3-request-presigner').getSignedUrl;

/** Loads what signs; no request is made before the first is signed. */
export async function createSignedAccess(client: BucketClient): Promise<SignedAccess> {
  const presigning = await import('@aws-sdk/s3-request-presigner');
  const { getSignedUrl } = presigning;
  const presigner = new BucketPresigner(presigning);
  const { sdk, clients, options } = client;
  const at = (name: string) => {
    requireBlobName(name);
    return { Bucket: options.bucket, Key: options.prefix + name };
  };
  const until = (forMs: number): SigningOptions => ({
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
    const query = {
      ...(contentType === undefined ? {} : { 'response-content-type': contentType }),
      ...(disposition === undefined ? {} : { 'response-content-disposition': disposition }),
    };
    const signing: Signing = {
      client: clients.reads,
      method,
      name,
      query,
      headers: {},
      options: () => until(forMs),
      bySdk: signed => {
        const command =
          method === 'GET' ? new sdk.GetObjectCommand(input) : new sdk.HeadObjectCommand(input);
        return getSignedUrl(clients.reads, command, signed);
      },
    };
    return await presigner.sign(signing).catch(unsigned);
  };
  return {
    origin: new URL(await signRead('inputs/x', { forMs: 1000 })).origin,
    signRead,
    signWrite: async (name, writing) => {
      requireBlobName(name);
      const signing = writingOf(client, name, writing, getSignedUrl);
      const { headers } = signing;
      const options = () => ({ ...until(writing.forMs), ...namesOf(headers) });
      const url = await presigner.sign({ ...signing, options }).catch(unsigned);
      requireSigned(url, Object.keys(headers));
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

/** Those that are to be signed as they are. */
function namesOf(headers: SignedWrite['headers']) {
  const names = Object.keys(headers);
  return { unhoistableHeaders: new Set(names), signableHeaders: new Set(names) };
}

function writingOf(
  client: BucketClient,
  name: string,
  writing: SignedWriting,
  getSignedUrl: GetSignedUrl,
): Omit<Signing, 'options'> {
  const { sdk, clients, options } = client;
  const headers = writeHeaders(writing, options.encryption);
  const { bytes, sha256, contentType } = writing;
  return {
    client: clients.writes,
    method: 'PUT',
    name,
    query: {},
    headers,
    bySdk: signed => {
      const command = new sdk.PutObjectCommand({
        ...client.writing(name),
        ContentLength: bytes,
        ChecksumSHA256: headers['x-amz-checksum-sha256'],
        Metadata: { [SHA256_METADATA]: sha256 },
        IfNoneMatch: '*',
        ...(contentType === undefined ? {} : { ContentType: contentType }),
      });
      return getSignedUrl(clients.writes, command, signed);
    },
  };
}

function writeHeaders(
  { bytes, sha256, contentType }: SignedWriting,
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
function requireSigned(url: string, names: readonly string[]): void {
  const signed = new URL(url).searchParams.get('X-Amz-SignedHeaders')?.split(';') ?? [];
  const missing = names.filter(name => !signed.includes(name));
  if (missing.length > 0) throw new Error(`headers were not signed: ${missing.join(', ')}`);
}

function unsigned(error: unknown): never {
  throw unreadable(error);
}
