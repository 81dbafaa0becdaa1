/**
 * Conditional requests for a file (RFC 9110 section 13): one that never changes, so that its date
 * is as strong a validator as its tag. Pure.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { parseHttpDate } from './http-date.ts';

/** What identifies a version of a file. */
export interface Validators {
  /** Strong, with its quotes. */
  readonly etag: string;
  /** UTC milliseconds, of a whole second, as Last-Modified says it. */
  readonly modifiedAtMs: number;
}

/** A tag, weak or strong, in a list of them. */
const TAG = /(?:W\/)?"[^"]*"/g;

/**
 * How to answer a GET or HEAD, in the order of section 13.2.2: where a tag is given, the date
 * beside it is ignored; so is a date that cannot be read.
 */
export function judgeConditions(
  headers: IncomingHttpHeaders,
  { etag, modifiedAtMs }: Validators,
): 'failed' | 'not-modified' | 'send' {
  const match = headers['if-match'];
  const unmodifiedSince = parseHttpDate(headers['if-unmodified-since']);
  if (match !== undefined) {
    if (!names(match, etag, 'strong')) return 'failed';
  } else if (unmodifiedSince !== undefined && modifiedAtMs > unmodifiedSince) {
    return 'failed';
  }
  const noneMatch = headers['if-none-match'];
  const modifiedSince = parseHttpDate(headers['if-modified-since']);
  if (noneMatch !== undefined) return names(noneMatch, etag, 'weak') ? 'not-modified' : 'send';
  if (modifiedSince !== undefined && modifiedAtMs <= modifiedSince) return 'not-modified';
  return 'send';
}

/** Whether a range may be sent: without If-Range, or when it names this very file. */
export function rangeStillHolds(
  ifRange: string | undefined,
  { etag, modifiedAtMs }: Validators,
): boolean {
  return ifRange === undefined || ifRange === etag || parseHttpDate(ifRange) === modifiedAtMs;
}

/** Whether a condition names this very tag, whatever it asks. */
export function namesTag(headers: IncomingHttpHeaders, etag: string): boolean {
  const conditions = [headers['if-match'], headers['if-none-match'], headers['if-range']];
  return conditions.some(list => list?.toString().includes(etag));
}

function names(list: string, etag: string, comparison: 'strong' | 'weak'): boolean {
  if (list === '*') return true;
  const weakened = comparison === 'weak' ? `W/${etag}` : etag;
  return (list.match(TAG) ?? []).some(tag => tag === etag || tag === weakened);
}
