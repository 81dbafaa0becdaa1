/**
 * Empty buckets for tests, on real servers: versitygw, or what `MATTING_TEST_OBJECT_STORES` names.
 *
 *     onObjectStores(test, 'storage', (test, store) => {
 *       test('...', async t => { await openStorage(store.url()); ... });
 *     });
 *
 * `MATTING_TEST_OBJECT_STORES=versitygw,minio`, as `make test-storage` sets it, takes both.
 */
import { randomBytes } from 'node:crypto';
import {
  CreateBucketCommand,
  DeleteObjectsCommand,
  ListObjectsV2Command,
  S3Client,
} from '@aws-sdk/client-s3';
import type { GroupTest } from '../database.ts';
import { findStore, type Identity, StoreProgram } from './store-program.ts';

const KINDS = ['versitygw', 'minio'] as const;
export type ObjectStoreKind = (typeof KINDS)[number];

export const IDENTITY: Identity = {
  accessKeyId: 'testaccess',
  secretAccessKey: 'testsecret0123456789',
  region: 'us-east-1',
};

export const CREDENTIALS_ENV: Readonly<Record<string, string>> = {
  AWS_ACCESS_KEY_ID: IDENTITY.accessKeyId,
  AWS_SECRET_ACCESS_KEY: IDENTITY.secretAccessKey,
};

export const OBJECT_STORES: readonly ObjectStoreKind[] = kindsOf(
  process.env.MATTING_TEST_OBJECT_STORES,
);

function kindsOf(list: string | undefined): readonly ObjectStoreKind[] {
  if (!list) return ['versitygw'];
  return list.split(',').map(name => {
    const kind = KINDS.find(known => known === name);
    if (kind === undefined) throw new Error(`MATTING_TEST_OBJECT_STORES: not one of ${KINDS}`);
    return kind;
  });
}

export function missingStore(kind: ObjectStoreKind): string | false {
  if (findStore(kind) !== undefined) return false;
  return kind === 'versitygw'
    ? 'no versitygw here: test/support/object-storage/build-versitygw.sh builds it, with Go'
    : `no ${kind} here: put it in the PATH, or set MATTING_TEST_TOOLS to its directory`;
}

/** For tests that need only one store. */
export const OBJECT_STORE: ObjectStoreKind =
  OBJECT_STORES.find(kind => missingStore(kind) === false) ?? 'versitygw';

interface UrlOptions {
  readonly prefix?: string;
  readonly endpoint?: string;
  readonly parameters?: Readonly<Record<string, string>>;
}

export interface TestObjectStore {
  readonly kind: ObjectStoreKind;
  readonly endpoint: string;
  readonly bucket: string;
  /** The value of MATTING_STORAGE_URL. */
  url(options?: UrlOptions): string;
  readonly client: S3Client;
  empty(): Promise<void>;
  createBucket(): Promise<string>;
  /** By SIGKILL; `start` uses the same port. */
  kill(): Promise<void>;
  start(): Promise<void>;
  freeze(): void;
  thaw(): void;
  close(): Promise<void>;
}

export async function createObjectStore(kind: ObjectStoreKind): Promise<TestObjectStore> {
  const program = await StoreProgram.start(kind, IDENTITY);
  const { endpoint } = program;
  const client = new S3Client({
    endpoint,
    region: IDENTITY.region,
    forcePathStyle: true,
    credentials: IDENTITY,
    maxAttempts: 1,
  });
  const createBucket = async () => {
    const name = `matting-test-${randomBytes(6).toString('hex')}`;
    await client.send(new CreateBucketCommand({ Bucket: name }));
    return name;
  };
  const bucket = await createBucket();
  return {
    kind,
    endpoint,
    bucket,
    client,
    createBucket,
    url: options => storageUrl(bucket, { endpoint, ...options }),
    empty: () => removeObjects(client, bucket),
    kill: () => program.close(),
    start: () => program.listen(),
    freeze: () => program.freeze(),
    thaw: () => program.thaw(),
    close: async () => {
      client.destroy();
      await program.remove();
    },
  };
}

async function removeObjects(client: S3Client, Bucket: string): Promise<void> {
  const { Contents = [] } = await client.send(new ListObjectsV2Command({ Bucket }));
  const Objects = Contents.map(({ Key }) => ({ Key }));
  if (Objects.length > 0)
    await client.send(new DeleteObjectsCommand({ Bucket, Delete: { Objects } }));
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

/** Starts before the file's first test and sets this process's credentials. */
export function useObjectStore(
  test: Pick<GroupTest, 'before' | 'after'>,
  kind: ObjectStoreKind,
): TestObjectStore {
  let store: TestObjectStore | undefined;
  test.before(async () => {
    Object.assign(process.env, CREDENTIALS_ENV);
    store = await createObjectStore(kind);
  });
  test.after.always(() => store?.close());
  return new Proxy({} as TestObjectStore, {
    get: (_, property) => {
      if (store === undefined) throw new Error('the object store is there only while tests run');
      return Reflect.get(store, property);
    },
  });
}
