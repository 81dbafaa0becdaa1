import { once } from 'node:events';
import { get } from 'node:http';
import { arch, platform, release } from 'node:os';
import { ConfigError } from '../config-error.ts';
import { DAY_MS } from '../durations.ts';
import type { Environment } from '../env.ts';
import { warnOfVariables } from '../env-names.ts';
import { httpBaseOf } from '../ports/addresses.ts';
import { openFilesMax } from '../ports/listening.ts';
import type { CertificateEnd } from '../tls/certificate-ends.ts';
import { TlsFiles } from '../tls/tls-files.ts';
import type { TlsSettings } from '../tls/tls-settings.ts';
import { VERSION } from '../version.ts';
import { wholeBody } from '../whole-body.ts';
import { type Finding, failure, ok, runCheck, type Warn, warning } from './findings.ts';

const VARIABLES = 'docs/settings.md';
const FILES_ADVICE =
  'raise the limit: LimitNOFILE (systemd), --ulimit nofile (containers) or ulimit -n';

/**
 * @returns `config` undefined: it cannot be loaded
 * @param filesMin fewer open files mean fewer connections than the program is designed for
 */
export function programFindings<C extends { readonly warnings: readonly string[] }>(
  env: Environment,
  load: (env: Environment) => C,
  filesMin: number,
): { readonly config: C | undefined; readonly findings: readonly Finding[] } {
  const system = `${platform()} ${release()} ${arch()}`;
  const version = ok('version', `matting ${VERSION} on Node ${process.versions.node}, ${system}`);
  const findings = [version, openFilesFinding(filesMin)];
  const warnings = (lines: readonly string[]) =>
    lines.map(line => warning('configuration', line, `correct it: ${VARIABLES}`));
  try {
    const config = load(env);
    findings.push(...warnings(config.warnings), ok('configuration', 'all variables are valid'));
    return { config, findings };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    for (const { variable, expected } of error.problems) {
      const found = `${variable} must be ${expected}`;
      findings.push(failure('configuration', found, `correct it: ${VARIABLES}`));
    }
    return { config: undefined, findings: [...findings, ...warnings(warnOfVariables(env))] };
  }
}

export function openFilesFinding(wantedMin: number, max = openFilesMax()): Finding {
  if (max === undefined || max >= wantedMin) {
    return ok('open files', max === undefined ? 'no known limit' : `limit of ${max}`);
  }
  const found = `limit of ${max}; its connections need ${wantedMin}`;
  return warning('open files', found, FILES_ADVICE);
}

export function tlsFindings(settings: TlsSettings): Promise<readonly Finding[]> {
  const page = 'docs/install.md, "Use TLS between the programs"';
  const advice = `set files that belong together, and renew those that expire: ${page}`;
  return runCheck({ subject: 'TLS', advice }, async log => {
    const { identity, clientCaFile, serverCaFile } = settings;
    if (!identity && !clientCaFile && !serverCaFile) return 'not used between the programs';
    const files = await TlsFiles.open(settings, { log });
    files.close();
    return endsText(files.ends);
  });
}

export function endsText(ends: readonly CertificateEnd[], nowMs = Date.now()): string {
  const daysOf = (endMs: number) => Math.floor((endMs - nowMs) / DAY_MS);
  return ends.map(({ file, endMs }) => `${file} expires in ${daysOf(endMs)} days`).join(', ');
}

const ANSWER_MS_MAX = 5000;
const ANSWER_BYTES_MAX = 64 * 1024;

export async function requireReady(
  host: string,
  port: number,
  warn: Warn,
): Promise<string | undefined> {
  if (port === 0) return undefined;
  const answer = await askProgram(host, port, '/readyz');
  if (answer === undefined) {
    warn(`no answer at ${host}:${port}`);
    return undefined;
  }
  const why = /"detail":"([^"]*)"/.exec(answer.text)?.[1] ?? answer.text.trim();
  if (answer.status !== 200) throw new Error(`not ready: ${why}`);
  return `ready at ${host}:${port}`;
}

export async function askProgram(host: string, port: number, path: string) {
  const signal = AbortSignal.timeout(ANSWER_MS_MAX);
  // An own agent ignores proxies of the environment.
  const request = get(`${httpBaseOf(host, port)}${path}`, { signal, agent: false });
  const [answer] = await once(request, 'response').catch(() => []);
  // Without a listener an error would end the process. The reader of the answer gets it, too.
  request.on('error', () => undefined);
  if (answer === undefined) return undefined;
  const tooLong = () => new Error(`the answer of ${path} is too long`);
  const body = await wholeBody(answer, ANSWER_BYTES_MAX, tooLong);
  return { status: answer.statusCode, text: body.toString('utf8') };
}
