import type { ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findFreePorts } from '@matting/program/ports/free-ports.ts';
import { findProgram, isProgram, killChild, spawnBound } from '../foreign-program.ts';

export type StoreProgramName = 'versitygw' | 'minio';

export interface Identity {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly region: string;
}

const START_MS_MAX = 60_000;
const READY_POLL_MS = 50;
/** Another process may take the port before the store binds it. */
const START_TRIES_MAX = 3;
const LOG_LINES_MAX = 40;

interface Launch {
  readonly options: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

function launchOf(
  name: StoreProgramName,
  port: number,
  directory: string,
  { accessKeyId, secretAccessKey, region }: Identity,
): Launch {
  const data = path.join(directory, 'data');
  mkdirSync(data, { recursive: true });
  // Neither reads this machine's settings or credentials.
  const home = { PATH: process.env.PATH, HOME: directory };
  const address = `127.0.0.1:${port}`;
  if (name === 'versitygw') {
    const versions = path.join(directory, 'versions');
    mkdirSync(versions, { recursive: true });
    return {
      options: [
        '--port',
        address,
        '--quiet',
        '--keep-alive',
        'posix',
        '--versioning-dir',
        versions,
        data,
      ],
      env: {
        ...home,
        ROOT_ACCESS_KEY_ID: accessKeyId,
        ROOT_SECRET_ACCESS_KEY: secretAccessKey,
        VGW_REGION: region,
      },
    };
  }
  return {
    options: ['server', '--quiet', '--address', address, data],
    env: {
      ...home,
      MINIO_ROOT_USER: accessKeyId,
      MINIO_ROOT_PASSWORD: secretAccessKey,
      MINIO_REGION: region,
      MINIO_BROWSER: 'off',
      MINIO_UPDATE: 'off',
      // Allows a directory on the system's disk.
      MINIO_CI_CD: '1',
    },
  };
}

/** Installed, or built by build-versitygw.sh; undefined: neither. */
export function findStore(name: StoreProgramName): string | undefined {
  const installed = findProgram(name);
  if (installed !== undefined || name !== 'versitygw') return installed;
  const script = readFileSync(path.join(import.meta.dirname, 'build-versitygw.sh'), 'utf8');
  const version = /^version=(.+)$/m.exec(script)?.[1];
  const cache = process.env.XDG_CACHE_HOME || path.join(homedir(), '.cache');
  const built = path.join(cache, `matting-test-tools/versitygw-${version}`, name);
  return isProgram(built) ? built : undefined;
}

export class StoreProgram {
  readonly #name: StoreProgramName;
  readonly #identity: Identity;
  readonly #directory: string;
  #port = 0;
  #child: ChildProcess | undefined;

  private constructor(name: StoreProgramName, identity: Identity) {
    this.#name = name;
    this.#identity = identity;
    this.#directory = mkdtempSync(path.join(tmpdir(), `matting-${name}-`));
    process.once('exit', () => this.#removeDirectory());
  }

  static async start(name: StoreProgramName, identity: Identity): Promise<StoreProgram> {
    const program = new StoreProgram(name, identity);
    for (let tries = 1; ; tries += 1) {
      [program.#port = 0] = await findFreePorts(1);
      try {
        await program.listen();
        return program;
      } catch (error) {
        if (tries === START_TRIES_MAX) throw error;
      }
    }
  }

  get endpoint(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async listen(): Promise<void> {
    const file = findStore(this.#name);
    if (file === undefined) throw new Error(`${this.#name} is not installed`);
    const { options, env } = launchOf(this.#name, this.#port, this.#directory, this.#identity);
    const child = spawnBound(file, options, env);
    this.#child = child;
    const log: string[] = [];
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      log.push(text);
      if (log.length > LOG_LINES_MAX) log.shift();
    });
    try {
      await this.#untilReady(child);
    } catch (error) {
      await killChild(child);
      throw new Error(`${this.#name} did not start:\n${log.join('')}`, { cause: error });
    }
  }

  async #untilReady(child: ChildProcess): Promise<void> {
    for (let waitedMs = 0; waitedMs < START_MS_MAX; waitedMs += READY_POLL_MS) {
      if (child.exitCode !== null) throw new Error(`ended with ${child.exitCode}`);
      const answered = await fetch(this.endpoint).then(
        async response => {
          await response.body?.cancel();
          // MinIO answers 503 until its disk is ready.
          return response.status < 500;
        },
        () => false,
      );
      if (answered) return;
      await delay(READY_POLL_MS);
    }
    throw new Error(`no answer within ${START_MS_MAX} ms`);
  }

  async close(): Promise<void> {
    if (this.#child !== undefined) await killChild(this.#child);
  }

  freeze(): void {
    this.#child?.kill('SIGSTOP');
  }

  thaw(): void {
    this.#child?.kill('SIGCONT');
  }

  async remove(): Promise<void> {
    await this.close();
    this.#removeDirectory();
  }

  #removeDirectory(): void {
    rmSync(this.#directory, { recursive: true, force: true, maxRetries: 5 });
  }
}
