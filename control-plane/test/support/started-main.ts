/** The control plane's program as a process of its own, on SQLite and free ports. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';

const MAIN = path.resolve(import.meta.dirname, '../../src/main.ts');

export interface StartedLine {
  readonly msg: string;
  readonly http: number;
  readonly metrics: number;
  readonly connectionsMax: number;
  readonly openFilesMax: number;
}

export interface StartedMain {
  readonly databaseUrl: string;
  /** The next line of its log with that message. */
  lineOf(message: string): Promise<StartedLine>;
  /** Its log is read on and thrown away. */
  ignoreLog(): void;
  stop(): Promise<void>;
}

/** @param openFilesMax `ulimit -n`; that of this process where absent */
export async function startMain(
  changes: Readonly<Record<string, string>> = {},
  openFilesMax?: number,
): Promise<StartedMain> {
  const directory = await mkdtemp(path.join(tmpdir(), 'matting-started-'));
  const env = {
    MATTING_DATA_DIR: directory,
    MATTING_PORT: '0',
    MATTING_REGISTRY_PORT: '0',
    MATTING_METRICS_PORT: '0',
    MATTING_BASE_URL: 'http://127.0.0.1',
    MATTING_NODE_TOKEN: 'a-token-that-no-node-shows-here',
    ...changes,
  };
  const limit = openFilesMax === undefined ? '' : `ulimit -n ${openFilesMax}; `;
  const child = spawn('sh', ['-c', `${limit}exec "$0" "$1"`, process.execPath, MAIN], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  return {
    databaseUrl: `sqlite:${path.join(directory, 'matting.sqlite')}`,
    async lineOf(message) {
      for (;;) {
        const { value, done } = await lines.next();
        assert.ok(done !== true, `the program ended before it said: ${message}`);
        const line = JSON.parse(value) as StartedLine;
        if (line.msg === message) return line;
      }
    },
    ignoreLog: () => void child.stdout.resume(),
    async stop() {
      child.kill('SIGKILL');
      await exited;
      await rm(directory, { recursive: true });
    },
  };
}
