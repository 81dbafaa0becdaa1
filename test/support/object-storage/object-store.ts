/**
 * Empty buckets for tests: the same suite runs on a stand-in of this process and on real servers.
 *
 *     onObjectStores(test, 'storage', (test, store) => {
 *       test('...', async t => { await openStorage(store.url()); ... });
 *     });
 *
 * `MATTING_TEST_OBJECT_STORES=versitygw,minio` (as `make test-storage` sets it) takes these instead
 * of the stand-in; their programs are found in the PATH or in the directory `MATTING_TEST_TOOLS`.
 */
import { randomBytes } from 'node:crypto';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import type { GroupTest } from '../database.ts';
import { findProgram } from '../foreign-program.ts';
import type { Bucket } from './objects.ts';
import type { Identity } from './signature.ts';
import { StandInStore } from './stand-in.ts';
import { StoreProgram } from './store-program.ts';

const KINDS = ['stand-in', 'versitygw', 'minio'] as const;
export type ObjectStoreKind = (typeof KINDS)[number];

/** The same in every store. */
export const IDENTITY: Identity = {
  accessKeyId: 'testaccess',
  secretAccessKey: 'testsecret0123456789',
  region: 'us-east-1',
};

/** The SDK's chain of credentials reads these. */
export const CREDENTIALS_ENV: Readonly<Record<string, string>> = {
  AWS_ACCESS_KEY_ID: IDENTITY.accessKeyId,
  AWS_SECRET_ACCESS_KEY: IDENTITY.secretAccessKey,
};

/** The kinds that this run is about. */
export const OBJECT_STORES: readonly ObjectStoreKind[] = kindsOf(
  process.env.MATTING_TEST_OBJECT_STORES,
);

function kindsOf(list: string | undefined): readonly ObjectStoreKind[] {
  if (!list) return ['stand-in'];
  return list.split(',').map(name => {
    const kind = KINDS.find(known => known === name);
    if (kind === undefined) throw new Error(`MATTING_TEST_OBJECT_STORES: not one of ${KINDS}`);
    return kind;
  });
}

/** False: it runs. */
export function missingStore(kind: ObjectStoreKind): string | false {
  if (kind === 'stand-in' || findProgram(kind) !== undefined) return false;
  return `no ${kind} here: put it in the PATH, or set MATTING_TEST_TOOLS to its directory`;
}

interface UrlOptions {
  /** The prefix within the bucket; none where absent. */
  readonly prefix?: string;
  /** It stands in for the store's own: that of a FaultProxy. */
  readonly endpoint?: string;
  /** More parameters of the URL. */
  readonly parameters?: Readonly<Record<string, string>>;
}

export interface TestObjectStore {
  readonly kind: ObjectStoreKind;
  readonly endpoint: string;
  /** The bucket is empty when the tests begin. */
  readonly bucket: string;
  /** The value for MATTING_STORAGE_URL. */
  url(options?: UrlOptions): string;
  /** A client with all rights. */
  readonly client: S3Client;
  /** Gives the bucket's contents without a request; only the stand-in has it. */
  contents(): Bucket;
  /** Creates one more bucket, empty; gives its name. */
  createBucket(): Promise<string>;
  /** The server dies, by SIGKILL where it is a process; `start` brings it back on its port. */
  kill(): Promise<void>;
  start(): Promise<void>;
  /** It answers nothing until `thaw`; not the stand-in. */
  freeze(): void;
  thaw(): void;
  close(): Promise<void>;
}

/** @param nowMs the store's clock; the stand-in's alone */
export async function createObjectStore(
  kind: ObjectStoreKind,
  { nowMs }: { readonly nowMs?: () => number } = {},
): Promise<TestObjectStore> {
  const server =
    kind === 'stand-in'
      ? await StandInStore.start({ identity: IDENTITY, ...(nowMs && { nowMs }) })
      : await StoreProgram.start(kind, IDENTITY);
  const { endpoint } = server;
  const client = new S3Client({
    endpoint,
    region: IDENTITY.region,
    forcePathStyle: true,
    credentials: IDENTITY,
    maxAttempts: 1,
    ...(nowMs && { systemClockOffset: nowMs() - Date.now() }),
  });
  const createBucket = async () => {
    const name = `matting-test-${randomBytes(6).toString('hex')}`;
    await client.send(new CreateBucketCommand({ Bucket: name }));
    return name;
  };
  const bucket = await createBucket();
  const program = server instanceof StoreProgram ? server : undefined;
  return {
    kind,
    endpoint,
    bucket,
    client,
    createBucket,
    url: options => storageUrl(bucket, { endpoint, ...options }),
    contents: () => requireStandIn(server).bucket(bucket)!,
    kill: () => server.close(),
    start: () => server.listen(),
    freeze: () => program?.freeze(),
    thaw: () => program?.thaw(),
    close: async () => {
      client.destroy();
      await (program === undefined ? server.close() : program.remove());
    },
  };
}

function requireStandIn(server: StandInStore | StoreProgram): StandInStore {
  if (server instanceof StandInStore) return server;
  throw new Error('only the stand-in shows what it holds');
}

function storageUrl(bucket: string, options: UrlOptions & { readonly endpoint: string }): string {
  const { prefix = '', endpoint, parameters = {} } = options;
  const query = new URLSearchParams({
    endpoint,
    region: IDENTITY.region,
    'path-style': 'true',
    ...parameters,
  });
  return `s3://${bucket}${prefix === '' ? '' : `/${prefix}`}?${query}`;
}

/** Started before the file's first test; this process's credentials are the store's. */
export function useObjectStore(
  test: Pick<GroupTest, 'before' | 'after'>,
  kind: ObjectStoreKind,
  options: { readonly nowMs?: () => number } = {},
): TestObjectStore {
  let store: TestObjectStore | undefined;
  test.before(async () => {
    Object.assign(process.env, CREDENTIALS_ENV);
    store = await createObjectStore(kind, options);
  });
  test.after.always(() => store?.close());
  return new Proxy({} as TestObjectStore, {
    get: (_, property) => {
      if (store === undefined) throw new Error('the object store is there only while tests run');
      return Reflect.get(store, property);
    },
  });
}
