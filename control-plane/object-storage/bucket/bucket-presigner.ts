/**
 * Signs URLs of a bucket by signers that are kept. For each URL the SDK makes a signer, resolves
 * the endpoint and walks its whole chain, which takes four times as long as the signature. Where a
 * URL leads and what the SDK adds to its query is the same for every object of a bucket: so the SDK
 * signs the first URL of each kind, and the kept signer the others, if it makes the very same first
 * one; otherwise the SDK signs them all.
 */
import type { S3Client } from '@aws-sdk/client-s3';

type Module = typeof import('@aws-sdk/s3-request-presigner');
type Signer = InstanceType<Module['S3RequestPresigner']>;

export type SigningOptions = NonNullable<Parameters<Module['getSignedUrl']>[2]> & {
  readonly signingDate: Date;
};

export interface Signing {
  readonly client: S3Client;
  readonly method: 'GET' | 'HEAD' | 'PUT';
  /** The object's name behind the prefix; nothing in it is to be escaped. */
  readonly name: string;
  /** What the request has in the query of its URL, by the names there. */
  readonly query: Readonly<Record<string, string>>;
  /** Headers that are signed, beside the host. */
  readonly headers: Readonly<Record<string, string>>;
  /** Made anew for each signature: what signs may add to its sets. */
  readonly options: () => SigningOptions;
  /** The same by the SDK's own `getSignedUrl`. */
  readonly bySdk: (options: SigningOptions) => Promise<string>;
}

const MISMATCHES_MAX = 3;

/** What the URLs of one kind have in common. */
interface Kind {
  readonly signer: Signer;
  /** Without the object's name. */
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

  /** Rejects where there are no credentials. */
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
    // What fails here the SDK has done: its URL is good.
    const again =
      found &&
      (await signAs(found, signing, { ...signing.options(), signingDate }).catch(() => undefined));
    const same = again !== undefined && isSame(again, url);
    if (found !== undefined && same) this.#kinds.set(id, found);
    else this.#noteMismatch(id);
    return url;
  }

  /** Once may be credentials that changed between the two. */
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

/** As signatures count it: RFC 3986. */
function escaped(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    character => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/** But for the order of the query. */
function isSame(one: string, other: string): boolean {
  const [a, b] = [new URL(one), new URL(other)];
  a.searchParams.sort();
  b.searchParams.sort();
  return a.href === b.href;
}
