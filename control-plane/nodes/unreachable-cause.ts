import { status } from '@grpc/grpc-js';

const CAUSE_LENGTH_MAX = 200;

/** The first match counts. The words continue a sentence about the node. */
const CAUSES: readonly (readonly [pattern: RegExp, cause: string])[] = [
  [/certificate has expired|CERT_HAS_EXPIRED/i, 'its certificate has expired'],
  [
    /certificate is not yet valid|CERT_NOT_YET_VALID/i,
    'its certificate is not valid yet; compare the clocks of both machines',
  ],
  [
    /ERR_TLS_CERT_ALTNAME_INVALID|does not match certificate/i,
    'its certificate is for another name than the one it is called by',
  ],
  [
    /unable to verify|self[- ]signed|unable to get (?:local )?issuer|UNABLE_TO_/i,
    'an authority that MATTING_TLS_SERVER_CA_FILE does not hold signed its certificate',
  ],
  [/alert certificate expired/i, 'it refuses the certificate of the control plane, which expired'],
  [
    /alert (?:number )?(?:certificate|bad certificate|unknown ca|116|42|48)|peer did not return/i,
    'it refuses the certificate of the control plane',
  ],
  [
    /wrong version number|packet length too long|tlsany_meth/i,
    'it does not use TLS, and the control plane does',
  ],
  [/ECONNREFUSED/, 'it refuses the connection'],
  [/EHOSTUNREACH|ENETUNREACH|ETIMEDOUT/, 'there is no way to it through the network'],
  [/Name resolution failed|ENOTFOUND|EAI_AGAIN/, 'the name of its address does not resolve'],
  [
    /Failed to connect|ECONNRESET|socket hang up/i,
    'it closes the connection; compare the TLS settings of both',
  ],
];

/** One line, without control characters or details that differ between tries. */
export function unreachableCause(error: unknown): string {
  if (!(error instanceof Error)) return shortened(String(error));
  const { code, details = error.message } = error as { code?: unknown; details?: string };
  if (code === status.UNAUTHENTICATED) {
    return 'it refuses the node token of the control plane';
  }
  if (code === status.DEADLINE_EXCEEDED) return 'it does not answer in time';
  const known = CAUSES.find(([pattern]) => pattern.test(details));
  return known?.[1] ?? shortened(details);
}

function shortened(text: string): string {
  return text.replaceAll(/[\p{Cc}\s]+/gu, ' ').slice(0, CAUSE_LENGTH_MAX);
}
