/** Opens a directory or a bucket, as a program does. */
import { openStorage as openOfKinds } from '@matting/storage/open-storage.ts';
import { bucketStorage } from '../object-storage.ts';

export const openStorage = (storageUrl: string) =>
  openOfKinds(storageUrl, { storageKinds: [bucketStorage] });
