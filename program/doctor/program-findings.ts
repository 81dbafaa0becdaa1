/**
 * Findings that both programs make of themselves: version, variables, TLS files, and the limit of
 * open files.
 */

import { arch, platform, release } from 'node:os';
import { ConfigError } from '../config-error.ts';
import { DAY_MS } from '../durations.ts';
import type { Environment } from '../env.ts';
import { warnOfUnknownVariables } from '../env-names.ts';
import { openFilesMax } from '../ports/listening.ts';
import { type CertificateEnd, EXPIRY_WARN_DAYS } from '../tls/certificate-ends.ts';
import { TlsFileError } from '../tls/tls-content.ts';
import { TlsFiles } from '../tls/tls-files.ts';
import type { TlsSettings } from '../tls/tls-settings.ts';
import { VERSION } from '../version.ts';
import { type Finding, failure, ok, reasonOf, warning } from './findings.ts';

/** The project brings this major version of Node and is tested with it. */
const NODE_MAJOR = 24;

export function versionFindings(env: Environment): Finding[] {
  const { node } = process.versions;
  const found = `matting ${VERSION} on Node ${node}, ${platform()} ${release()} ${arch()}`;
  const findings = [
    Number.parseInt(node, 10) === NODE_MAJOR
      ? ok('version', found)
      : warning('version', found, `use Node ${NODE_MAJOR}: sh bin/node24`),
  ];
  if (env.NODE_TLS_REJECT_UNAUTHORIZED === '0') {
    const off = 'NODE_TLS_REJECT_UNAUTHORIZED=0 turns off certificate checks';
    findings.push(
      warning('version', off, 'remove it; to trust an authority, set NODE_EXTRA_CA_CERTS'),
    );
  }
  return findings;
}

const CONFIGURATION = 'configuration';
const VARIABLES = 'docs/settings.md';

/** Answers `config` as the program loads it for its start; undefined: it cannot be used. */
export function configurationFindings<C extends { readonly warnings: readonly string[] }>(
  env: Environment,
  load: (env: Environment) => C,
): { readonly config: C | undefined; readonly findings: readonly Finding[] } {
  try {
    const config = load(env);
    const findings = config.warnings.map(line =>
      warning(CONFIGURATION, line, `correct it unless you mean it: ${VARIABLES}`),
    );
    return { config, findings: [...findings, ok(CONFIGURATION, 'all variables are valid')] };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const findings = error.problems.map(({ variable, expected }) =>
      failure(CONFIGURATION, `${variable} must be ${expected}`, `correct it: ${VARIABLES}`),
    );
    const unknown = warnOfUnknownVariables(env);
    if (unknown !== undefined) {
      findings.push(warning(CONFIGURATION, unknown, `correct them: ${VARIABLES}`));
    }
    return { config: undefined, findings };
  }
}

const SUBJECT = 'TLS';

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
    const files = await TlsFiles.open(settings, { log: silent });
    files.close();
    return expiryFindings(files.ends, nowMs);
  } catch (error) {
    if (!(error instanceof TlsFileError)) throw error;
    const advice =
      'set files that belong together; see docs/install.md, "Use TLS between the programs"';
    return [failure(SUBJECT, reasonOf(error), advice)];
  }
}

/** A line a file, with the days that are left. */
export function expiryFindings(
  ends: readonly CertificateEnd[],
  nowMs: number = Date.now(),
): Finding[] {
  return ends.map(({ file, endMs }) => expiryFinding(file, endMs - nowMs, 'renew it'));
}

/** @param leftMs until it ends; negative: since */
function expiryFinding(what: string, leftMs: number, advice: string): Finding {
  const days = Math.floor(Math.abs(leftMs) / DAY_MS);
  if (leftMs <= 0) return failure(SUBJECT, `${what} expired ${days} days ago`, advice);
  const found = `${what} expires in ${days} days`;
  return leftMs < EXPIRY_WARN_DAYS * DAY_MS ? warning(SUBJECT, found, advice) : ok(SUBJECT, found);
}

const ADVICE = 'raise the limit: LimitNOFILE (systemd), --ulimit nofile (containers) or ulimit -n';

/** @param wantedMin fewer than these mean fewer connections than the program is made for */
export function openFilesFinding(wantedMin: number, max = openFilesMax()): Finding {
  if (max === undefined) return ok('open files', 'no known limit');
  if (max >= wantedMin) return ok('open files', `limit of ${max}`);
  const found = `limit of ${max}; its connections need ${wantedMin}`;
  return warning('open files', found, ADVICE);
}
