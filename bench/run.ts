/**
 * Every measurement of bench/MEASUREMENTS.md, one after the other; the table of all layers first.
 * `--peer FOLDER`: beside another background remover too, on the folder's photos.
 */
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { parseArgs } from 'node:util';

const { values } = parseArgs({ options: { peer: { type: 'string' } } });

const MEASUREMENTS: readonly (readonly [program: string, ...args: string[]])[] = [
  ['whole.ts'],
  ...(values.peer === undefined ? [] : [['beside-peer.ts', values.peer] as const]),
  ['precisions.ts'],
  ['prepared-model.ts'],
  ['picture-cost.ts'],
  ['memory.ts'],
  ['control-plane.ts'],
  ['parse-cost.ts'],
  ['dispatch-simulator/main.ts'],
];

for (const [program, ...args] of MEASUREMENTS) {
  const { status } = spawnSync(
    process.execPath,
    [path.join(import.meta.dirname, program), ...args],
    { stdio: 'inherit' },
  );
  if (status !== 0) process.exit(status ?? 1);
}
