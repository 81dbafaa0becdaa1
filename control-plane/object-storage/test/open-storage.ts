import { openStorage as openOfKinds } from '@matting/storage/open-storage.ts';
import { bucketStorage } from '../object-storage.ts';

export const openStorage = (storageUrl: string) =>
  openOfKinds(storageUrl, { storageKinds: [bucketStorage] });
