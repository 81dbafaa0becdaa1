/** Leave for others to read or write one object of a bucket: URLs signed for one request. */

import type { S3Client } from '@aws-sdk/client-s3';
import {
  requireBlobName,
  type SignedAccess,
  type SignedReading,
  type SignedWrite,
  type SignedWriting,
  unreadable,
} from '@matting/storage/blob-store.ts';
import { type BucketClient, SHA256_METADATA } from './bucket-client.ts';
import { isMissing } from './bucket-error.ts';

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
    // The date is on the store's clock, which judges it.
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

/** A holder of the URL could leave out, or change, a header that is not signed. */
function requireSigned(url: string, names: readonly string[]): void {
  const signed = new URL(url).searchParams.get('X-Amz-SignedHeaders')?.split(';') ?? [];
  const missing = names.filter(name => !signed.includes(name));
  if (missing.length > 0) throw new Error(`headers were not signed: ${missing.join(', ')}`);
}

function unsigned(error: unknown): never {
  throw unreadable(error);
}

/*
 * Signs URLs of a bucket by signers that are kept. For each URL the SDK makes a signer, resolves
 * the endpoint and walks its whole chain, which takes four times as long as the signature. Where a
 * URL leads and what the SDK adds to its query is the same for every object of a bucket: so the SDK
 * signs the first URL of each kind, and the kept signer the others, if it makes the very same first
 * one; otherwise the SDK signs them all.
 */

type Module = typeof import('@aws-sdk/s3-request-presigner');
type Signer = InstanceType<Module['S3RequestPresigner']>;

type SigningOptions = NonNullable<Parameters<Module['getSignedUrl']>[2]> & {
  readonly signingDate: Date;
};

interface Signing {
  readonly client: S3Client;
  readonly method: 'GET' | 'HEAD' | 'PUT';
  /** The object's name behind the prefix, in characters that need no escaping. */
  readonly name: string;
  /** The request has these in the query of its URL, by the names there. */
  readonly query: Readonly<Record<string, string>>;
  /** Headers that are signed, beside the host. */
  readonly headers: Readonly<Record<string, string>>;
  /** The options are new for each signature: signing may add to its sets. */
  readonly options: () => SigningOptions;
  /** Signs by the SDK's own `getSignedUrl`. */
  readonly bySdk: (options: SigningOptions) => Promise<string>;
}

const MISMATCHES_MAX = 3;

interface Kind {
  readonly signer: Signer;
  /** The URL lacks the object's name. */
  readonly base: URL;
  readonly query: Readonly<Record<string, string>>;
  readonly region: string;
  readonly service: string;
}

export class BucketPresigner {
  readonly #Signer: Module['S3RequestPresigner'];
  /** null: the SDK alone signs them. */
  readonly #kinds = new Map<string, Kind | null>();
  readonly #mismatches = new Map<string, number>();

  constructor({ S3RequestPresigner }: Module) {
    this.#Signer = S3RequestPresigner;
  }

  async sign(signing: Signing): Promise<string> {
    const { method, query, headers } = signing;
    const id = [method, ...Object.keys(query), ...Object.keys(headers)].join();
    const kind = this.#kinds.get(id);
    const options = signing.options();
    if (kind) return await signAs(kind, signing, options);
    const url = await signing.bySdk(options);
    if (kind === null) return url;
    const found = this.#kindOf(new URL(url), signing);
    const { signingDate } = options;
    // If this fails, the SDK has signed: its URL is good.
    const again =
      found &&
      (await signAs(found, signing, { ...signing.options(), signingDate }).catch(() => undefined));
    const same = again !== undefined && isSame(again, url);
    if (found !== undefined && same) this.#kinds.set(id, found);
    else this.#noteMismatch(id);
    return url;
  }

  /** A single mismatch may be credentials that changed between the two. */
  #noteMismatch(id: string): void {
    const mismatches = (this.#mismatches.get(id) ?? 0) + 1;
    this.#mismatches.set(id, mismatches);
    if (mismatches === MISMATCHES_MAX) this.#kinds.set(id, null);
  }

  #kindOf(url: URL, { client, name, query }: Signing): Kind | undefined {
    const scope = url.searchParams.get('X-Amz-Credential')?.split('/') ?? [];
    const [service, region] = [scope.at(-2), scope.at(-3)];
    if (service === undefined || region === undefined || !url.pathname.endsWith(`/${name}`)) {
      return undefined;
    }
    const others = [...url.searchParams].filter(
      ([key]) => !key.startsWith('X-Amz-') && !(key in query),
    );
    const base = new URL(url.pathname.slice(0, -name.length), url);
    const signer = new this.#Signer({ ...client.config, region: async () => region });
    return { signer, base, query: Object.fromEntries(others), region, service };
  }
}

async function signAs(
  { signer, base, query, region, service }: Kind,
  signing: Signing,
  options: SigningOptions,
): Promise<string> {
  const signed = await signer.presign(
    {
      method: signing.method,
      protocol: base.protocol,
      hostname: base.hostname,
      ...(base.port === '' ? {} : { port: Number(base.port) }),
      path: base.pathname + signing.name,
      query: { ...query, ...signing.query },
      headers: { host: base.host, ...signing.headers },
    },
    { ...options, signingRegion: region, signingService: service },
  );
  const pairs = Object.entries(signed.query ?? {}).map(
    ([key, value]) => `${escaped(key)}=${escaped(String(value))}`,
  );
  return `${base.origin}${signed.path}?${pairs.join('&')}`;
}

/** Escapes as signatures count it: RFC 3986. */
function escaped(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    character => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

function isSame(one: string, other: string): boolean {
  const [a, b] = [new URL(one), new URL(other)];
  a.searchParams.sort();
  b.searchParams.sort();
  return a.href === b.href;
}
