/** What S3 answers to those who ask which objects and which unfinished uploads there are. */
import type { Bucket, Upload } from './objects.ts';
import { type XmlTree, xmlDocument } from './xml.ts';

/** Entries of a page, at most. */
const PAGE_MAX = 1000;

function instant(ms: number): string {
  return new Date(ms).toISOString();
}

function pageMax(text: string | null): number {
  return Math.min(PAGE_MAX, text === null ? PAGE_MAX : Number(text));
}

function encoder(query: URLSearchParams): (text: string) => string {
  return query.get('encoding-type') === 'url' ? encodeURIComponent : text => text;
}

/** ListObjectsV2 without delimiters. */
export function listObjects(bucket: Bucket, name: string, query: URLSearchParams): string {
  const prefix = query.get('prefix') ?? '';
  const max = pageMax(query.get('max-keys'));
  const token = query.get('continuation-token');
  const after =
    token === null ? (query.get('start-after') ?? '') : Buffer.from(token, 'base64url').toString();
  const later = (key: string) => Buffer.compare(Buffer.from(key), Buffer.from(after)) > 0;
  const keys = bucket.keys(prefix).filter(key => after === '' || later(key));
  const page = keys.slice(0, max);
  const truncated = keys.length > page.length;
  const encode = encoder(query);
  const contents = page.map((key): XmlTree => {
    const { modifiedMs, etag, bytes } = bucket.get(key);
    return {
      Key: encode(key),
      LastModified: instant(modifiedMs),
      ETag: etag,
      Size: bytes.length,
      StorageClass: 'STANDARD',
    };
  });
  return xmlDocument('ListBucketResult', {
    Name: name,
    Prefix: encode(prefix),
    KeyCount: page.length,
    MaxKeys: max,
    EncodingType: query.get('encoding-type') ?? undefined,
    IsTruncated: truncated,
    NextContinuationToken: truncated
      ? Buffer.from(page.at(-1) ?? '').toString('base64url')
      : undefined,
    Contents: contents,
  });
}

/** ListMultipartUploads. */
export function listUploads(bucket: Bucket, name: string, query: URLSearchParams): string {
  const prefix = query.get('prefix') ?? '';
  const max = pageMax(query.get('max-uploads'));
  const keyMarker = query.get('key-marker') ?? '';
  const idMarker = query.get('upload-id-marker') ?? '';
  const order = (a: Upload, b: Upload) => (placeOf(a) < placeOf(b) ? -1 : 1);
  const later = ({ key, id }: Upload) =>
    key > keyMarker || (key === keyMarker && idMarker !== '' && id > idMarker);
  const uploads = [...bucket.uploads.values()]
    .filter(upload => upload.key.startsWith(prefix) && later(upload))
    .sort(order);
  const page = uploads.slice(0, max);
  const last = page.at(-1);
  const truncated = uploads.length > page.length;
  const encode = encoder(query);
  return xmlDocument('ListMultipartUploadsResult', {
    Bucket: name,
    Prefix: encode(prefix),
    MaxUploads: max,
    EncodingType: query.get('encoding-type') ?? undefined,
    IsTruncated: truncated,
    NextKeyMarker: truncated ? encode(last?.key ?? '') : undefined,
    NextUploadIdMarker: truncated ? last?.id : undefined,
    Upload: page.map(({ key, id, initiatedMs }) => ({
      Key: encode(key),
      UploadId: id,
      Initiated: instant(initiatedMs),
      StorageClass: 'STANDARD',
    })),
  });
}

function placeOf({ key, id }: Upload): string {
  return `${key}\0${id}`;
}

/** ListParts, all on one page. */
export function listParts(upload: Upload, name: string): string {
  const parts = [...upload.parts].sort(([a], [b]) => a - b);
  return xmlDocument('ListPartsResult', {
    Bucket: name,
    Key: upload.key,
    UploadId: upload.id,
    IsTruncated: false,
    Part: parts.map(([number, { etag, bytes }]) => ({
      PartNumber: number,
      ETag: etag,
      Size: bytes.length,
    })),
  });
}
