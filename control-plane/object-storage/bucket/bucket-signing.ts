/** URLs that are signed to read one object. */

import { type BlobStore, requireBlobName, unreadable } from '@matting/storage/blob-store.ts';
import type { BucketClient } from './bucket-client.ts';

/** Makes no request before the first signature. */
export async function signedReadsOf(
  client: BucketClient,
): Promise<NonNullable<BlobStore['signRead']>> {
  const { getSignedUrl } = await import('@aws-sdk/s3-request-presigner');
  const { sdk, clients, options } = client;
  return async (name, { forMs, method = 'GET', contentType, disposition }) => {
    requireBlobName(name);
    const input = {
      ...{ Bucket: options.bucket, Key: options.prefix + name },
      ...(contentType === undefined ? {} : { ResponseContentType: contentType }),
      ...(disposition === undefined ? {} : { ResponseContentDisposition: disposition }),
    };
    const command =
      method === 'GET' ? new sdk.GetObjectCommand(input) : new sdk.HeadObjectCommand(input);
    try {
      return await getSignedUrl(clients.reads, command, {
        expiresIn: Math.max(1, Math.floor(forMs / 1000)),
        // The store's clock judges the date.
        signingDate: new Date(Date.now() + client.clockOffsetMs),
      });
    } catch (error) {
      throw unreadable(error);
    }
  };
}
