import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { link, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { CommandError } from 'matting-client/src/command/command-error.ts';
import type { SupervisorConfig } from './config.ts';

/** In the data directory. */
export const NODE_TOKEN_FILE = 'node-token';
/** As in MATTING_NODE_TOKEN. */
const TOKEN = /^[\x21-\x7e]{16,256}$/;

export async function nodeTokenEnv({ nodeToken, env, dataDir }: SupervisorConfig) {
  // The programs read and follow the file.
  if (env.MATTING_NODE_TOKEN_FILE) return {};
  return { MATTING_NODE_TOKEN: nodeToken ?? (await readOrCreateToken(dataDir)) };
}

/**
 * Stores the token, so that a node started by hand can use it. The file appears atomically: two
 * simultaneous starts get the same token, and a full disk leaves none.
 * @throws CommandError
 */
async function readOrCreateToken(dataDir: string): Promise<string> {
  const file = path.join(dataDir, NODE_TOKEN_FILE);
  const temporary = `${file}.${process.pid}`;
  try {
    if (!existsSync(file)) {
      await writeFile(temporary, randomBytes(32).toString('base64url'), { mode: 0o600 });
      // A link, not a rename, so that the first writer wins.
      await link(temporary, file).catch(unlessExists);
    }
    const token = (await readFile(file, 'utf8')).trim();
    if (TOKEN.test(token)) return token;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    throw new CommandError(
      `cannot read or create ${file} (${code}); check its permissions and the disk`,
    );
  } finally {
    await rm(temporary, { force: true });
  }
  throw new CommandError(`${file} has no token; remove it, and the next start makes a new one`);
}

function unlessExists(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') throw error;
}
