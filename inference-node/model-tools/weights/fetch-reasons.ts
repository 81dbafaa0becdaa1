import { SmallPiecesError } from '@matting/program/piece-count.ts';

export const CHECK_REGISTRY = '; check the registry npm is configured for, then try again';

const BROKE = 'the connection broke again and again';
const TOO_SLOW = 'it does not answer in time';
const DAMAGED = 'what it sent is damaged';
const UNTRUSTED = 'its certificate is not trusted; set cafile in the npm configuration';
const UNRESOLVED = 'its name does not resolve; is this machine online?';

const REASONS: Readonly<Record<string, string>> = {
  ENOTFOUND: UNRESOLVED,
  EAI_AGAIN: UNRESOLVED,
  ECONNREFUSED: 'the connection was refused',
  ECONNRESET: BROKE,
  EPIPE: BROKE,
  ERR_STREAM_PREMATURE_CLOSE: BROKE,
  EHOSTUNREACH: 'there is no route to it',
  ENETUNREACH: 'the network is unreachable',
  ETIMEDOUT: TOO_SLOW,
  E401: 'it wants a login; set one in the npm configuration',
  E403: 'it refuses this package to this login',
  E404: 'it does not know this package',
  ETARGET: 'it does not have this version',
  EBADDOCUMENT: 'what it tells of this package cannot be read',
  ENOTCACHED: 'the npm configuration says offline',
  TAR_ABORT: DAMAGED,
  TAR_BAD_ARCHIVE: DAMAGED,
  TAR_ENTRY_INVALID: DAMAGED,
  Z_DATA_ERROR: DAMAGED,
  Z_BUF_ERROR: 'what it sent is cut short',
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is of another name',
  UND_ERR_CONNECT_TIMEOUT: TOO_SLOW,
  UND_ERR_HEADERS_TIMEOUT: TOO_SLOW,
  UND_ERR_BODY_TIMEOUT: 'it fell silent',
  UND_ERR_SOCKET: BROKE,
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: BROKE,
  CERT_HAS_EXPIRED: 'its certificate has expired',
};

const INTERRUPTION_CODES: ReadonlySet<string> = new Set([
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'ERR_STREAM_PREMATURE_CLOSE',
  'UND_ERR_CONNECT_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_BODY_TIMEOUT',
  'UND_ERR_SOCKET',
  'UND_ERR_RES_CONTENT_LENGTH_MISMATCH',
]);

export function isInterruption(error: unknown): boolean {
  return INTERRUPTION_CODES.has(codeOf(error));
}

export function networkReason(error: unknown, advice = ''): string {
  const who = error instanceof SmallPiecesError ? 'it ' : '';
  return REASONS[codeOf(error)] ?? `${who}${(error as Error).message}${advice}`;
}

function codeOf(error: unknown): string {
  const { code, errno } = error as { code?: unknown; errno?: unknown };
  return String(code ?? errno ?? '');
}
