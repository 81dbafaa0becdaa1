import { X509Certificate } from 'node:crypto';
import { DAY_MS } from '../durations.ts';
import type { FollowLog } from '../followed-files.ts';

/** An operator needs this time to notice and renew; Let's Encrypt renews 30 days before the end. */
export const EXPIRY_WARN_DAYS = 14;

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;
/** A bundle of authorities has some hundred. */
const CERTIFICATES_MAX = 1000;

export interface CertificateEnd {
  readonly file: string;
  readonly endMs: number;
}

/**
 * @returns the first end in a chain, or the last in a bundle of authorities, since one valid
 * authority is enough; undefined: the text is unreadable, which TLS itself refuses
 */
function endOf(pem: string | Buffer, holds: 'chain' | 'authorities'): number | undefined {
  const ends = [...pem.toString().matchAll(CERTIFICATE)]
    .slice(0, CERTIFICATES_MAX)
    .flatMap(([text]) => readEnd(text));
  if (ends.length === 0) return undefined;
  return holds === 'authorities' ? Math.max(...ends) : Math.min(...ends);
}

/**
 * @returns empty: OpenSSL cannot read the certificate. Bundles may contain such, and TLS skips them
 */
function readEnd(pem: string): number[] {
  try {
    return [new X509Certificate(pem).validToDate.getTime()];
  } catch {
    return [];
  }
}

export function endsOfFiles(
  files: readonly (readonly [
    file: string,
    pem: string | Buffer | undefined,
    holds: 'chain' | 'authorities',
  ])[],
): CertificateEnd[] {
  return files.flatMap(([file, pem, holds]) => {
    const endMs = pem === undefined ? undefined : endOf(pem, holds);
    return endMs === undefined ? [] : { file, endMs };
  });
}

export function warnOfEnds(
  ends: readonly CertificateEnd[],
  log: Pick<FollowLog, 'warn'>,
  nowMs = Date.now(),
): void {
  for (const { file, endMs } of ends) {
    const leftMs = endMs - nowMs;
    if (leftMs >= EXPIRY_WARN_DAYS * DAY_MS) continue;
    const fields = { file, expiresAt: new Date(endMs).toISOString() };
    if (leftMs > 0) {
      const daysLeft = Math.floor(leftMs / DAY_MS);
      log.warn({ ...fields, daysLeft }, 'a certificate expires soon; renew it');
    } else {
      log.warn(fields, 'a certificate has expired; renew it');
    }
  }
}
