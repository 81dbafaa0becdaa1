/**
 * The id of one request in answers and logs: the caller's, where it sent one that is safe in a
 * header and a log line, otherwise ours.
 */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { headerValues } from './raw-headers.ts';

/** Letters and digits with what UUIDs, ULIDs, trace ids and Base64 have between them. */
const WELL_FORMED = /^[A-Za-z0-9][A-Za-z0-9._~:+/=@-]{0,127}$/;

const requestIds = new WeakMap<IncomingMessage, string>();

/** The same for every call with the same request. */
export function requestIdOf(request: IncomingMessage): string {
  const known = requestIds.get(request);
  if (known !== undefined) return known;
  const [given = '', ...more] = headerValues(request, 'x-request-id');
  const id = more.length === 0 && WELL_FORMED.test(given) ? given : createRequestId();
  requestIds.set(request, id);
  return id;
}

/** For bytes that are not a request. */
export function createRequestId(): string {
  return `req_${randomUUID()}`;
}
