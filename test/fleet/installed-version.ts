/** A version of the project in a directory, with its own locked packages. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../running-service.ts';
import type { Release } from '../upgrade/releases.ts';

const execute = promisify(execFile);
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;

export interface InstalledVersion {
  readonly name: string;
  readonly root: string;
}

export const THIS_VERSION: InstalledVersion = { name: 'this version', root: ROOT };

/** Older versions have it in src/. */
export function mainOf({ root }: InstalledVersion, program: 'control-plane' | 'inference-node') {
  const main = `${program}/main.ts`;
  return existsSync(path.join(root, main)) ? main : `${program}/src/main.ts`;
}

/**
 * Uses the version's own Node.
 * @returns standard output
 */
export async function runCommand(
  version: InstalledVersion,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<string> {
  const { stdout } = await execute('sh', ['bin/node24', 'bin/matting.ts', ...args], {
    cwd: version.root,
    env: { PATH: process.env.PATH ?? '', ...env },
    maxBuffer: OUTPUT_BYTES_MAX,
  });
  return stdout;
}

/** As its Makefile installs it; kept in `MATTING_TEST_RELEASES`. */
export class ReleaseCheckout implements InstalledVersion, AsyncDisposable {
  readonly name: string;
  readonly root: string;
  readonly #stays: boolean;

  private constructor(name: string, root: string, stays: boolean) {
    this.name = name;
    this.root = root;
    this.#stays = stays;
  }

  /** Takes 90 s if absent, mostly for npm. */
  static async install({ version, commit }: Release): Promise<ReleaseCheckout> {
    const kept = process.env.MATTING_TEST_RELEASES;
    const root = kept
      ? path.resolve(kept, commit)
      : await mkdtemp(path.join(tmpdir(), `matting-${version}-`));
    const checkout = new ReleaseCheckout(version, root, Boolean(kept));
    try {
      await mkdir(root, { recursive: true });
      if (!existsSync(path.join(root, 'Makefile'))) await unpack(commit, root);
      // Does nothing if everything is installed.
      await execute('make', ['setup'], { cwd: root, maxBuffer: OUTPUT_BYTES_MAX });
    } catch (error) {
      await checkout[Symbol.asyncDispose]();
      throw error;
    }
    return checkout;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#stays) await rm(this.root, { recursive: true, force: true, maxRetries: 5 });
  }
}

async function unpack(commit: string, directory: string): Promise<void> {
  const archive = spawn('git', ['archive', commit], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const tar = spawn('tar', ['-x', '-C', directory], {
    stdio: [archive.stdout, 'ignore', 'inherit'],
  });
  const [[archived], [unpacked]] = await Promise.all([once(archive, 'exit'), once(tar, 'exit')]);
  if (archived !== 0 || unpacked !== 0) throw new Error(`${commit} cannot be unpacked`);
}
