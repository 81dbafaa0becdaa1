import type { Package } from '@matting/core/package.ts';
import type { StorageKind } from '@matting/storage/storage-kind.ts';
import { describeBucketError } from './bucket/bucket-error.ts';
import { BucketUrlError, bucketLifecycle, parseBucketUrl } from './bucket/bucket-url.ts';

/** Loads the large SDK only if a URL names a bucket. */
export const bucketStorage: StorageKind = {
  noun: 'bucket',
  form: 's3://bucket/prefix',
  isFor: storageUrl => /^s3:/i.test(storageUrl),
  problemOf(storageUrl) {
    try {
      parseBucketUrl(storageUrl);
      return undefined;
    } catch (error) {
      if (error instanceof BucketUrlError) return error.message;
      throw error;
    }
  },
  async open(storageUrl, options) {
    const { openBucketBlobStore } = await import('./bucket/bucket-blob-store.ts');
    return await openBucketBlobStore({ ...options, bucket: parseBucketUrl(storageUrl) });
  },
  describeError: describeBucketError,
  async check(storageUrl) {
    const { checkBucket } = await import('./bucket/bucket-check.ts');
    return await checkBucket(parseBucketUrl(storageUrl));
  },
  lifecycle: (storageUrl, lives) =>
    bucketLifecycle({ ...lives, prefix: parseBucketUrl(storageUrl).prefix }),
};

export const objectStorage: Package = {
  name: 'object-storage',
  storageKind: bucketStorage,
};
