/** Blobs of a bucket and unfinished multipart uploads, by their age. */
import { BLOB_KINDS, requireBlobName } from '../../core/storage/blob-names.ts';
import type { BlobPart } from '../../core/storage/blob-store.ts';
import type { BucketClient, BucketItem, BucketListing } from './bucket-client.ts';

/** What the ids of jobs begin with, in the order in which a bucket lists them. */
const FIRST = '0123456789abcdef';
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
  const range = rangeOf(part);
  for (const kind of BLOB_KINDS) {
    const { after, last } = range;
    const begin = after === undefined ? undefined : `${kind}/${after}`;
    const page = (from?: string) => client.list(`${kind}/`, { from, after: begin });
    const isBehind = (key: string) => last !== undefined && key > `${kind}/${last}`;
    for await (const { key } of older(page, olderThanMs, isBehind)) if (isOurs(key)) yield key;
  }
  // They are few: those of a part are chosen here.
  const uploads = older(from => client.listMultipart('', from), olderThanMs);
  for await (const { key, uploadId } of uploads) {
    if (uploadId !== undefined && isOurs(key) && isInRange(key, range)) {
      yield unfinishedName(key, uploadId);
    }
  }
}

/** @param isBehind true: neither this key nor one that follows is asked for */
async function* older(
  page: (from?: string) => Promise<BucketListing>,
  olderThanMs: number,
  isBehind: (key: string) => boolean = () => false,
): AsyncGenerator<BucketItem> {
  let from: string | undefined;
  do {
    const { items, nowMs, next } = await page(from);
    for (const item of items) {
      if (isBehind(item.key)) return;
      if (item.atMs < nowMs - olderThanMs) yield item;
    }
    from = next;
  } while (from !== undefined);
}

/** Ids behind `after` up to `last`, as strings compare; undefined: without that end. */
interface Range {
  readonly after: string | undefined;
  readonly last: string | undefined;
}

/** A part is a range, so that its listing reads no key of another but the first behind it. */
function rangeOf(part: BlobPart | undefined): Range {
  if (part === undefined) return { after: undefined, last: undefined };
  const boundary = (index: number) =>
    index === 0 ? undefined : FIRST[Math.floor((index * FIRST.length) / part.of)];
  return { after: boundary(part.part), last: boundary(part.part + 1) };
}

function isInRange(key: string, { after, last }: Range): boolean {
  const id = key.slice(key.indexOf('/') + 1);
  return (after === undefined || id > after) && (last === undefined || id <= last);
}

function isOurs(key: string): boolean {
  try {
    requireBlobName(key);
    return true;
  } catch {
    return false;
  }
}
