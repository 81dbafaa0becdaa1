/** The control plane's program as a process of its own, on SQLite and free ports. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Program } from '@matting/test-support/program.ts';

const MAIN = path.resolve(import.meta.dirname, '../../../main.ts');

/**
 * @param openFilesMax `ulimit -n`; that of this process where absent
 * @param within a command behind which it starts
 */
export async function startMain(
  changes: Readonly<Record<string, string>> = {},
  openFilesMax?: number,
  within?: readonly string[],
) {
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
  const main = new Program('control plane', [MAIN], env, { openFilesMax, within });
  main.start();
  return {
    databaseUrl: `sqlite:${path.join(directory, 'matting.sqlite')}`,
    line: main.line.bind(main),
    async stop() {
      await main.kill();
      await rm(directory, { recursive: true });
    },
  };
}
