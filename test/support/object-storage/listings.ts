/** S3's lists of objects and of unfinished uploads; keys are such as XML can hold. */
import type { Bucket, Upload } from './objects.ts';
import { type XmlTree, xmlDocument } from './xml.ts';

const PAGE_MAX = 1000;

function instant(ms: number): string {
  return new Date(ms).toISOString();
}

function pageMax(text: string | null): number {
  return Math.min(PAGE_MAX, text === null ? PAGE_MAX : Number(text));
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
  const contents = page.map((key): XmlTree => {
    const { modifiedMs, etag, bytes } = bucket.get(key);
    return {
      Key: key,
      LastModified: instant(modifiedMs),
      ETag: etag,
      Size: bytes.length,
      StorageClass: 'STANDARD',
    };
  });
  return xmlDocument('ListBucketResult', {
    Name: name,
    Prefix: prefix,
    KeyCount: page.length,
    MaxKeys: max,
    IsTruncated: truncated,
    NextContinuationToken: truncated
      ? Buffer.from(page.at(-1) ?? '').toString('base64url')
      : undefined,
    Contents: contents,
  });
}

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
  return xmlDocument('ListMultipartUploadsResult', {
    Bucket: name,
    Prefix: prefix,
    MaxUploads: max,
    IsTruncated: truncated,
    NextKeyMarker: truncated ? (last?.key ?? '') : undefined,
    NextUploadIdMarker: truncated ? last?.id : undefined,
    Upload: page.map(({ key, id, initiatedMs }) => ({
      Key: key,
      UploadId: id,
      Initiated: instant(initiatedMs),
      StorageClass: 'STANDARD',
    })),
  });
}

function placeOf({ key, id }: Upload): string {
  return `${key}\0${id}`;
}
