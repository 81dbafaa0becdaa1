/**
 * A rule that a bucket follows by itself, in the form of PutBucketLifecycleConfiguration: what the
 * service should have removed and could not. It never takes what the service may still need.
 */
import type { LifecycleRule } from '@aws-sdk/client-s3';
import type { BlobLives } from '../../core/storage/blob-store.ts';

const DAY_MS = 86_400_000;
/** Beyond the life of a blob: the sweeper comes first, also after a day on which nobody ran. */
const SPARE_DAYS = 1;
/** What S3 counts in. Parts of an upload are sent within minutes. */
const UNFINISHED_DAYS = 1;

interface LifecycleOptions extends BlobLives {
  /** Before every key: empty, or ends with a slash. */
  readonly prefix: string;
}

export interface Lifecycle {
  readonly Rules: readonly LifecycleRule[];
}

/** Days after an object's creation, in which its upload counts as the beginning. */
function daysFor(lifeMs: number): number {
  return Math.ceil(lifeMs / DAY_MS) + SPARE_DAYS;
}

export function bucketLifecycle(options: LifecycleOptions): Lifecycle {
  const { prefix, resultTtlMs, jobMsMax } = options;
  const lives = [
    ['inputs', jobMsMax],
    ['backgrounds', jobMsMax],
    ['results', jobMsMax + resultTtlMs],
    ['tmp', 0],
  ] as const;
  const expiring = lives.map(
    ([kind, lifeMs]): LifecycleRule => ({
      ID: `matting-${kind}`,
      Status: 'Enabled',
      Filter: { Prefix: `${prefix}${kind}/` },
      Expiration: { Days: daysFor(lifeMs) },
      // Of buckets that keep versions: what was removed is gone, as callers were told.
      NoncurrentVersionExpiration: { NoncurrentDays: 1 },
      // In the same rule: MinIO takes none that does only this.
      AbortIncompleteMultipartUpload: { DaysAfterInitiation: UNFINISHED_DAYS },
    }),
  );
  return { Rules: expiring };
}
