/** Blobs of a bucket and unfinished multipart uploads, by their age. */
import { BLOB_KINDS, requireBlobName } from '../blob-names.ts';
import type { BlobPart } from '../blob-store.ts';
import type { BucketClient, BucketItem, BucketListing } from './bucket-client.ts';

/** What the second part of a name may begin with. */
const FIRST = [...'0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-'];
const UNFINISHED = 'tmp/';

/** An unfinished upload as the name of a blob: what `remove` is called with. */
export function unfinishedName(key: string, uploadId: string): string {
  return `${UNFINISHED}${key}/${uploadId}`;
}

/** Undefined: the name of something else. @throws TypeError of no upload of ours */
export function parseUnfinished(
  name: string,
): { readonly key: string; readonly uploadId: string } | undefined {
  if (!name.startsWith(UNFINISHED)) return undefined;
  const [kind, id, ...rest] = name.slice(UNFINISHED.length).split('/');
  const key = `${kind}/${id}`;
  const uploadId = rest.join('/');
  requireBlobName(key);
  if (uploadId === '') throw new TypeError('an unfinished upload has an id');
  return { key, uploadId };
}

/** By the store's clock: what it says of a thing and of now. */
export async function* listBucketOlderThan(
  client: BucketClient,
  olderThanMs: number,
  part?: BlobPart,
): AsyncGenerator<string> {
  for (const kind of BLOB_KINDS) {
    for (const prefix of prefixesOf(kind, part)) {
      for await (const { key } of older(from => client.list(prefix, from), olderThanMs)) {
        if (isOurs(key)) yield key;
      }
    }
  }
  // They are few: those of a part are chosen here.
  const uploads = older(from => client.listMultipart('', from), olderThanMs);
  for await (const { key, uploadId } of uploads) {
    if (uploadId !== undefined && isOurs(key) && isOfPart(key, part)) {
      yield unfinishedName(key, uploadId);
    }
  }
}

async function* older(
  page: (from?: string) => Promise<BucketListing>,
  olderThanMs: number,
): AsyncGenerator<BucketItem> {
  let from: string | undefined;
  do {
    const { items, nowMs, next } = await page(from);
    for (const item of items) if (item.atMs < nowMs - olderThanMs) yield item;
    from = next;
  } while (from !== undefined);
}

function prefixesOf(kind: string, part: BlobPart | undefined): string[] {
  if (part === undefined) return [`${kind}/`];
  return FIRST.filter((_, index) => index % part.of === part.part).map(first => `${kind}/${first}`);
}

function isOfPart(key: string, part: BlobPart | undefined): boolean {
  if (part === undefined) return true;
  const first = key[key.indexOf('/') + 1] ?? '';
  return FIRST.indexOf(first) % part.of === part.part;
}

function isOurs(key: string): boolean {
  try {
    requireBlobName(key);
    return true;
  } catch {
    return false;
  }
}
