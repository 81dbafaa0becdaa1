/** The doctor examines secrets: whether others can guess or read them. */

import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import type { CliContext } from '@matting/core/cli/context.ts';
import { type Finding, ok, warning } from '@matting/program/doctor/findings.ts';
import {
  nodeTokenName,
  secondTokenFinding,
  secretsOfFiles,
  weakSecretFindings,
} from '@matting/program/doctor/secrets.ts';
import type { Environment } from '@matting/program/env.ts';

const SECRETS = 'secrets';
/** The first start writes these files beside a SQLite database. */
const SECRETS_KEY_FILE = 'secrets.key';
const NODE_TOKEN_FILE = 'node-token';
const OTHERS = 0o077;

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

type LookedAtConfig = ReturnType<CliContext['packages']['loadConfig']>;

export async function secretsFindings(config: LookedAtConfig): Promise<readonly Finding[]> {
  const { nodeTokens, operatorKey, secretsKey } = config;
  const { secretsKeyPrevious, dataDir } = config;
  const findings = weakSecretFindings([
    ...nodeTokens.items.map((token, at) => [nodeTokenName(at), token] as const),
    ['MATTING_OPERATOR_KEY', operatorKey],
    ['MATTING_SECRETS_KEY', secretsKey],
    ...Object.entries(config.secrets),
  ]);
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
