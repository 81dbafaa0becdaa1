/** GET and HEAD of one object: conditions, ranges, and headers that a signed query asks for. */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { StoredObject } from './objects.ts';
import { ObjectStoreError } from './store-error.ts';

export function answerObject(
  request: IncomingMessage,
  response: ServerResponse,
  query: URLSearchParams,
  object: StoredObject,
): void {
  const { headers, method } = request;
  response.setHeader('etag', object.etag);
  response.setHeader('last-modified', new Date(object.modifiedMs).toUTCString());
  if (judge(headers, object) === 'not-modified') {
    response.writeHead(304).end();
    return;
  }
  for (const [name, value] of Object.entries(object.headers)) response.setHeader(name, value);
  response.setHeader('accept-ranges', 'bytes');
  for (const name of ['content-type', 'content-disposition', 'cache-control']) {
    const asked = query.get(`response-${name}`);
    if (asked !== null) response.setHeader(name, asked);
  }
  const range = rangeOf(headers.range, object.bytes.length);
  if (headers['x-amz-checksum-mode']?.toString().toUpperCase() === 'ENABLED' && !range) {
    const { algorithm, value } = object.checksum;
    response.setHeader(`x-amz-checksum-${algorithm}`, value);
    response.setHeader('x-amz-checksum-type', value.includes('-') ? 'COMPOSITE' : 'FULL_OBJECT');
  }
  const body = range ? object.bytes.subarray(range.start, range.end + 1) : object.bytes;
  if (range) {
    const { start, end } = range;
    response.setHeader('content-range', `bytes ${start}-${end}/${object.bytes.length}`);
  }
  response.writeHead(range ? 206 : 200, { 'content-length': body.length });
  response.end(method === 'HEAD' ? undefined : body);
}

/** RFC 9110, section 13.2.2, without dates. */
function judge(headers: IncomingHttpHeaders, object: StoredObject): 'modified' | 'not-modified' {
  const names = (list: string) =>
    list.split(',').some(tag => ['*', object.etag].includes(tag.trim()));
  const match = headers['if-match'];
  if (match !== undefined && !names(match)) throw new ObjectStoreError(412, 'PreconditionFailed');
  const none = headers['if-none-match'];
  return none !== undefined && names(none) ? 'not-modified' : 'modified';
}

/** One range; anything else is the whole object, as S3 has it. */
function rangeOf(
  header: string | undefined,
  bytes: number,
): { readonly start: number; readonly end: number } | undefined {
  const parts = /^bytes=(\d*)-(\d*)$/.exec(header ?? '');
  if (parts === null || (parts[1] === '' && parts[2] === '')) return undefined;
  const [, first = '', last = ''] = parts;
  const start = first === '' ? Math.max(0, bytes - Number(last)) : Number(first);
  const end = first === '' || last === '' ? bytes - 1 : Math.min(Number(last), bytes - 1);
  if (start >= bytes || start > end) throw new ObjectStoreError(416, 'InvalidRange');
  return { start, end };
}
