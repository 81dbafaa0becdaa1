/** Buckets, as the core opens them by `s3://bucket/prefix`. */
import type { StorageKind } from '../core/storage/blob-store.ts';
import { openBucketBlobStore } from './bucket/bucket-blob-store.ts';
import { checkBucket } from './bucket/bucket-check.ts';
import { describeBucketError } from './bucket/bucket-client.ts';
import { BucketUrlError, bucketLifecycle, parseBucketUrl } from './bucket/bucket-url.ts';

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
  open: (storageUrl, options) =>
    openBucketBlobStore({ ...options, bucket: parseBucketUrl(storageUrl) }),
  describeError: describeBucketError,
  check: storageUrl => checkBucket(parseBucketUrl(storageUrl)),
  lifecycle: (storageUrl, lives) =>
    bucketLifecycle({ ...lives, prefix: parseBucketUrl(storageUrl).prefix }),
};
