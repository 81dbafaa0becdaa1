import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { BOUNDARY } from '@matting/http/test/forms.ts';
import { UNCOUNTED } from '@matting/program/held-bytes.ts';
import type { RequestUploads } from '../submission/image-uploads.ts';

const CHUNK_BYTES = 64 * 1024;
/** The first chunk, the refused one, and what the stream read ahead. */
export const CHUNKS_READ_MAX = 4;
const CHUNKS_SENT = 16;

const upload = { takeBytes: () => undefined, write: async () => undefined };
export const uploads = {
  image: upload,
  background: upload,
  texts: UNCOUNTED,
} as unknown as RequestUploads;

interface Endless {
  readonly type: string;
  readonly once: string;
  readonly again: string;
}

export function endless({ type, once, again }: Endless): {
  request: IncomingMessage;
  read: () => number;
} {
  let read = 0;
  const repeated = Buffer.alloc(CHUNK_BYTES - (CHUNK_BYTES % again.length), again);
  const body = new Readable({
    read() {
      const chunk = read === 0 ? Buffer.from(once) : repeated;
      this.push(read < CHUNKS_SENT ? chunk : null);
      read += 1;
    },
  });
  const rawHeaders = ['Content-Type', type];
  const headers = { 'transfer-encoding': 'chunked' };
  const request = Object.assign(body, { rawHeaders, headers, url: '/' });
  return { request: request as unknown as IncomingMessage, read: () => read };
}

const JSON_TYPE = 'application/json';
const PAIRS = 'application/x-www-form-urlencoded';
const FORM = `multipart/form-data; boundary=${BOUNDARY}`;
const part = (name: string) =>
  `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n\r\n`;

export const ENDLESS: readonly [what: string, sent: Endless][] = [
  ['pairs without a name or a value', { type: PAIRS, once: '', again: '&' }],
  ['pairs without a value', { type: PAIRS, once: '', again: 'a&' }],
  ['unknown pairs', { type: PAIRS, once: '', again: 'a=b&' }],
  ['empty pairs of a field', { type: PAIRS, once: '', again: 'size=&' }],
  ['unknown fields', { type: JSON_TYPE, once: '{', again: '"a":1,' }],
  ['an object of fields', { type: JSON_TYPE, once: '{"a":{', again: '"a":1,' }],
  ['arrays in arrays', { type: JSON_TYPE, once: '{"a":', again: '[' }],
  ['a string in an array', { type: JSON_TYPE, once: '{"a":["', again: 'x' }],
  ['empty parts', { type: FORM, once: '', again: part('a') }],
  ['parts of a field', { type: FORM, once: '', again: part('size') }],
  ['the headers of a part', { type: FORM, once: `--${BOUNDARY}\r\n`, again: 'A: b\r\n' }],
  ['line ends', { type: FORM, once: '', again: '\r\n' }],
];
