/**
 * The headers before a part of multipart/form-data (RFC 7578 section 4): its name, whether it is a
 * file, and that its bytes are what they are, without a coding and in UTF-8 where they are text.
 * Other headers are ignored, as the RFC asks.
 */

import { malformed, shownName } from './malformed.ts';
import {
  type ContentType,
  charsetOf,
  extendsAscii,
  parseContentType,
  readParameters,
} from './request-headers.ts';

export interface PartHead {
  /** As the client wrote it; from any client, so compare it, and never look it up in an object. */
  readonly name: string;
  /** It has a file name, or the type of a picture or of bytes: clients leave out one of the two. */
  readonly isFile: boolean;
  /** Its text is in a charset that shares ASCII alone with UTF-8. */
  readonly isAscii: boolean;
}

/** Its value is without control characters; bytes beyond ASCII may be UTF-8. */
const HEADER = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\t -~\x80-\xff]*)$/;
const DISPOSITION = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+/;
const FILE_TYPE = /^(?:image\/|application\/octet-stream)/i;
/** RFC 2046 section 5.1.1, without the space that it allows inside. */
const BOUNDARY = /^[0-9A-Za-z'()+_,\-./:=?]{1,70}$/;
const UTF8_CHARSETS = ['utf-8', 'utf8', 'us-ascii', 'ascii'];
const PLAIN_ENCODINGS = ['7bit', '8bit', 'binary'];

/**
 * The boundary that a Content-Type of multipart/form-data names. Its charset means nothing (RFC 7578
 * section 4.6). @throws ContractError INVALID_REQUEST: none, two, or one that is not allowed
 */
export function boundaryOf({ parameters }: ContentType): string {
  const boundary = parameters?.get('boundary');
  if (boundary !== undefined && BOUNDARY.test(boundary)) return boundary;
  throw malformed(
    'multipart/form-data needs one boundary of 1 to 70 characters in its Content-Type',
  );
}

/** @param head the lines, without the empty one. @throws ContractError INVALID_REQUEST */
export function readPartHead(head: string): PartHead {
  const headers = readHeaders(head);
  const disposition = headers.get('content-disposition') ?? '';
  const type = DISPOSITION.exec(disposition)?.[0] ?? '';
  const parameters = readParameters(disposition, type.length);
  const written = parameters?.has('name*') ? undefined : parameters?.get('name');
  if (type.toLowerCase() !== 'form-data' || parameters === undefined || written === undefined) {
    throw malformed('a part has no readable Content-Disposition: form-data with a name');
  }
  const name = Buffer.from(written, 'latin1').toString();
  requirePlainBytes(name, headers.get('content-transfer-encoding') ?? 'binary');
  const contentType = headers.get('content-type') ?? '';
  const hasFileName = parameters.has('filename') || parameters.has('filename*');
  const isFile = hasFileName || FILE_TYPE.test(contentType);
  if (/^multipart\//i.test(contentType)) {
    throw malformed('a part must not be multipart itself', shownName(name));
  }
  return { name, isFile, isAscii: !isFile && isAsciiAlone(name, contentType) };
}

/** By lower case names. A header that counts here may come once. */
function readHeaders(head: string): ReadonlyMap<string, string> {
  const headers = new Map<string, string>();
  if (head === '') return headers;
  // A line that begins with a blank goes on with the one before (RFC 5322 section 2.2.3).
  for (const line of head.replaceAll(/\r\n[ \t]+/g, ' ').split('\r\n')) {
    const [, name, value] = HEADER.exec(line) ?? [];
    if (name === undefined || value === undefined) {
      throw malformed('a part has a header that cannot be read');
    }
    const key = name.toLowerCase();
    if (headers.has(key) && key.startsWith('content-')) {
      throw malformed(`a part has two headers ${key}`);
    }
    headers.set(key, value.trim());
  }
  return headers;
}

function requirePlainBytes(name: string, encoding: string): void {
  if (PLAIN_ENCODINGS.includes(encoding.toLowerCase())) return;
  const detail = 'a part must be sent as its bytes, without a Content-Transfer-Encoding';
  throw malformed(detail, shownName(name));
}

/** @throws ContractError INVALID_REQUEST: a charset in which ASCII is something else */
function isAsciiAlone(name: string, contentType: string): boolean {
  const type = parseContentType(contentType);
  if (type === undefined || UTF8_CHARSETS.includes(charsetOf(type))) return false;
  if (extendsAscii(type)) return true;
  throw malformed('the text of a part must be UTF-8', shownName(name));
}
