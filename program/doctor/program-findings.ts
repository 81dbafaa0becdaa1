/** Findings that both programs make of themselves: TLS files, and the limit of open files. */

import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { openFilesMax } from '../ports/listening.ts';
import { TlsFileError, TlsFiles } from '../tls/tls-files.ts';
import type { TlsSettings } from '../tls/tls-settings.ts';
import { type Finding, failure, ok, reasonOf, warning } from './findings.ts';

/** Time for an operator to notice and to renew; Let's Encrypt renews 30 days before. */
const WARN_DAYS = 14;
const DAY_MS = 86_400_000;
const SUBJECT = 'TLS';
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;
/** A bundle of authorities has some hundred. */
const CERTIFICATES_MAX = 1000;

/** Whether the certificates of MATTING_TLS_* can be used, and until when. Rejects only by a bug. */
export async function tlsFindings(
  settings: TlsSettings,
  nowMs: number = Date.now(),
): Promise<readonly Finding[]> {
  const { identity, clientCaFile, serverCaFile } = settings;
  if (identity === undefined && clientCaFile === undefined && serverCaFile === undefined) {
    return [ok(SUBJECT, 'not used between the programs')];
  }
  const silent = { info: () => undefined, warn: () => undefined };
  try {
    (await TlsFiles.open(settings, { log: silent })).close();
  } catch (error) {
    if (!(error instanceof TlsFileError)) throw error;
    const advice =
      'set files that belong together; see docs/install.md, "Use TLS between the programs"';
    return [failure(SUBJECT, reasonOf(error), advice)];
  }
  const findings: Finding[] = [];
  const files = [
    ['MATTING_TLS_CERT_FILE', identity?.certFile],
    ['MATTING_TLS_CLIENT_CA_FILE', clientCaFile],
    ['MATTING_TLS_SERVER_CA_FILE', serverCaFile],
  ] as const;
  for (const [variable, file] of files) {
    if (file === undefined) continue;
    const endMs = endOf(await readFile(file, 'utf8'), variable.endsWith('_CA_FILE'));
    findings.push(expiryFinding(variable, endMs - nowMs, 'renew it'));
  }
  return findings;
}

/** @param leftMs until it ends; negative: since */
function expiryFinding(what: string, leftMs: number, advice: string): Finding {
  const days = Math.floor(Math.abs(leftMs) / DAY_MS);
  if (leftMs <= 0) return failure(SUBJECT, `${what} expired ${days} days ago`, advice);
  const found = `${what} expires in ${days} days`;
  return leftMs < WARN_DAYS * DAY_MS ? warning(SUBJECT, found, advice) : ok(SUBJECT, found);
}

/** Of a chain the first end, of authorities the last: one good one is enough to sign. */
function endOf(pem: string, authorities: boolean): number {
  const ends = [...pem.matchAll(CERTIFICATE)]
    .slice(0, CERTIFICATES_MAX)
    .map(([text]) => new X509Certificate(text).validToDate.getTime());
  return authorities ? Math.max(...ends) : Math.min(...ends);
}

const ADVICE = 'raise the limit: LimitNOFILE (systemd), --ulimit nofile (containers) or ulimit -n';

/** @param wantedMin fewer than these mean fewer connections than the program is made for */
export function openFilesFinding(wantedMin: number, max = openFilesMax()): Finding {
  if (max === undefined) return ok('open files', 'no known limit');
  if (max >= wantedMin) return ok('open files', `limit of ${max}`);
  const found = `limit of ${max}; its connections need ${wantedMin}`;
  return warning('open files', found, ADVICE);
}
