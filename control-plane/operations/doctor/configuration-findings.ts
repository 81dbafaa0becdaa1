/** Examines the environment: what is wrong with it, what nothing reads, and guessable secrets. */
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import type { CliPackages, LookedAtConfig } from '@matting/core/cli/context.ts';
import { ConfigError } from '@matting/program/config-error.ts';
import { type Finding, failure, ok, warning } from '@matting/program/doctor/findings.ts';
import {
  nodeTokenName,
  secondTokenFinding,
  secretsOfFiles,
  weaknessOf,
  weaknessOfBytes,
} from '@matting/program/doctor/secrets.ts';
import type { Environment } from '@matting/program/env.ts';
import { warnOfUnknownVariables } from '@matting/program/env-names.ts';

const SUBJECT = 'configuration';
const SECRETS = 'secrets';
const VARIABLES = 'docs/settings.md';
/** The first start writes these files beside a SQLite database. */
const SECRETS_KEY_FILE = 'secrets.key';
const NODE_TOKEN_FILE = 'node-token';
const OTHERS = 0o077;

/** Answers `config` as far as it can be used. */
export function examineConfiguration(env: Environment, { loadConfig }: CliPackages) {
  try {
    const config = loadConfig(env);
    const findings = config.warnings.map(line =>
      warning(SUBJECT, line, `correct it unless you mean it: ${VARIABLES}`),
    );
    return { config, findings: [...findings, ok(SUBJECT, 'all variables are valid')] };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const findings = error.problems.map(({ variable, expected }) =>
      failure(SUBJECT, `${variable} must be ${expected}`, `correct it: ${VARIABLES}`),
    );
    const unknown = warnOfUnknownVariables(env);
    if (unknown !== undefined) {
      findings.push(warning(SUBJECT, unknown, `correct them: ${VARIABLES}`));
    }
    return { config: undefined, findings };
  }
}

/**
 * The environment as the supervisor of `make start` gives it to its control plane: with the token
 * that it keeps in the data directory, where none is set.
 */
export async function withSupervisorsToken(
  env: Environment,
  dataDir: string,
): Promise<Environment> {
  if (env.MATTING_NODE_TOKEN || env.MATTING_NODE_TOKEN_FILE) return env;
  const token = await textOf(path.join(dataDir, NODE_TOKEN_FILE));
  return token === undefined ? env : { ...env, MATTING_NODE_TOKEN: token };
}

/** Reads the secrets that files hold, so that the output can leave them out. */
export async function secretsInFiles(env: Environment): Promise<string[]> {
  const dataDir = env.MATTING_DATA_DIR || 'data';
  const files = [SECRETS_KEY_FILE, NODE_TOKEN_FILE].map(name => textOf(path.join(dataDir, name)));
  const own = (await Promise.all(files)).filter(text => text !== undefined);
  return [...own, ...(await secretsOfFiles(env))];
}

export async function secretsFindings(config: LookedAtConfig): Promise<readonly Finding[]> {
  const { nodeTokens, operatorKey, secretsKey } = config;
  const { secretsKeyPrevious, dataDir } = config;
  const weak: (readonly [string, string | undefined])[] = [
    ...nodeTokens.items.map((token, at) => [nodeTokenName(at), weaknessOf(token)] as const),
    ['MATTING_OPERATOR_KEY', operatorKey && weaknessOf(operatorKey)],
    ['MATTING_SECRETS_KEY', secretsKey && weaknessOfBytes(secretsKey)],
    ...Object.entries(config.secrets).map(
      ([variable, secret]) => [variable, secret && weaknessOf(secret)] as const,
    ),
  ];
  const findings = weak.flatMap(([variable, weakness]) =>
    weakness === undefined || weakness === ''
      ? []
      : [warning(SECRETS, `${variable} ${weakness}`, 'make a new one: openssl rand -hex 32')],
  );
  if (nodeTokens.items.length > 1) findings.push(secondTokenFinding('the registry'));
  if (secretsKeyPrevious !== undefined) {
    const found = 'MATTING_SECRETS_KEY_PREVIOUS is set, so a change of the key is in progress';
    const advice =
      'remove it 30 hours after the change; see docs/operate.md, "Change the secrets key"';
    findings.push(warning(SECRETS, found, advice));
  }
  for (const name of [SECRETS_KEY_FILE, NODE_TOKEN_FILE]) {
    const file = path.join(dataDir, name);
    const mode = (await stat(file).catch(unlessMissing))?.mode;
    if (mode === undefined || (mode & OTHERS) === 0) continue;
    findings.push(warning(SECRETS, `other users can read ${file}`, `run chmod 600 ${file}`));
  }
  return findings.length > 0 ? findings : [ok(SECRETS, 'all set, none easy to guess')];
}

async function textOf(file: string): Promise<string | undefined> {
  const text = await readFile(file, 'utf8').catch(unlessMissing);
  return text?.trim() || undefined;
}

function unlessMissing(error: NodeJS.ErrnoException): undefined {
  if (['ENOENT', 'ENOTDIR', 'EACCES'].includes(error.code ?? '')) return undefined;
  throw error;
}
