/** When the certificates of files end, and who is told while there is time to renew them. */
import { X509Certificate } from 'node:crypto';
import { DAY_MS } from '../durations.ts';
import type { FollowLog } from '../followed.ts';

/** Time for an operator to notice and to renew; Let's Encrypt renews 30 days before. */
export const EXPIRY_WARN_DAYS = 14;

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;
/** A bundle of authorities has some hundred. */
const CERTIFICATES_MAX = 1000;

export interface CertificateEnd {
  /** The variable that names the file, and its part of it where it has several. */
  readonly file: string;
  readonly endMs: number;
}

/**
 * The first end of a chain, or the last of authorities: one good one is enough to sign. Undefined:
 * no certificate can be read, which TLS itself refuses.
 */
function endOf(pem: string | Buffer, holds: 'chain' | 'authorities'): number | undefined {
  const ends = [...pem.toString().matchAll(CERTIFICATE)]
    .slice(0, CERTIFICATES_MAX)
    .flatMap(([text]) => readEnd(text));
  if (ends.length === 0) return undefined;
  return holds === 'authorities' ? Math.max(...ends) : Math.min(...ends);
}

/** Empty for one that this OpenSSL cannot read: a bundle may hold such, and TLS passes over it. */
function readEnd(pem: string): number[] {
  try {
    return [new X509Certificate(pem).validToDate.getTime()];
  } catch {
    return [];
  }
}

/** The end of each certificate file that exists, under its name. */
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

/** A line for each that ends within EXPIRY_WARN_DAYS, or has ended. */
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
