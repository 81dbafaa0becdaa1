/** Every measurement of docs/performance.md, one after the other. */
import { spawnSync } from 'node:child_process';
import path from 'node:path';

for (const name of [
  'prepared-model.ts',
  'rest.ts',
  'memory.ts',
  'control-plane.ts',
  'large-uploads.ts',
  'stub-fleet.ts',
  'dispatch-simulator/main.ts',
]) {
  const { status } = spawnSync(process.execPath, [path.join(import.meta.dirname, name)], {
    stdio: 'inherit',
  });
  if (status !== 0) process.exit(status ?? 1);
}
