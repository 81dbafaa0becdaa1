/** The origins that the operator listed. What was parsed here is what is requested. */
import { ContractError } from '@matting/proto/contract/errors.ts';

/** A fleet has one bucket, perhaps two while it moves; as many as a mistyped list may have. */
export const DIRECT_ORIGINS_MAX = 16;
/** Characters of a signed URL: one with a session token of the cloud has some 2000. */
const DIRECT_URL_LENGTH_MAX = 8192;

export interface StorageUrl {
  readonly origin: string;
  readonly path: string;
}

/** `https://storage.example.com:9000` as the URL standard writes it; undefined: of another form. */
export function parseOrigin(text: string): string | undefined {
  const url = URL.parse(text);
  if (url === null || (url.protocol !== 'https:' && url.protocol !== 'http:')) return undefined;
  const bare = url.pathname === '/' && !/[?#@]/.test(text);
  return bare && !text.endsWith('/') ? url.origin : undefined;
}

/** The URL itself is a secret: `field` names it. @throws ContractError INVALID_REQUEST */
export function requireUrlOf(origin: string, text: string, field: string): StorageUrl {
  const url = text.length <= DIRECT_URL_LENGTH_MAX ? URL.parse(text) : null;
  if (url === null || url.origin !== origin) throw invalid(field, 'must be a URL of direct_origin');
  if (url.username !== '' || url.password !== '' || url.hash !== '') {
    throw invalid(field, 'must have no user name, password or fragment');
  }
  return { origin, path: url.pathname + url.search };
}

/** Headers that a signature may cover; what steers the connection or proves who we are is not. */
const SIGNED_HEADER =
  /^(content-(type|md5|disposition)|cache-control|if-none-match|x-amz-[a-z0-9-]{1,64})$/;
const HEADERS_MAX = 16;
const HEADER_VALUE = /^[\x20-\x7e]{0,1024}$/;

/** @throws ContractError INVALID_REQUEST */
export function requirePutHeaders(
  headers: Readonly<Record<string, string>>,
  bytes: number,
): Record<string, string> {
  const entries = Object.entries(headers);
  if (entries.length > HEADERS_MAX) throw invalid('headers', `must be at most ${HEADERS_MAX}`);
  const checked: Record<string, string> = { 'content-length': String(bytes) };
  for (const [name, value] of entries) {
    const lower = name.toLowerCase();
    if (lower === 'content-length') {
      if (value !== String(bytes)) throw invalid('headers', 'have another content-length');
    } else if (SIGNED_HEADER.test(lower) && HEADER_VALUE.test(value)) checked[lower] = value;
    else throw invalid('headers', 'hold a header that is not allowed');
  }
  return checked;
}

function invalid(field: string, detail: string): ContractError {
  return new ContractError('INVALID_REQUEST', `${field} ${detail}.`);
}
