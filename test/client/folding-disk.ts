/**
 * A disk that ignores case and refuses some names, such as exFAT: lower case, no colons. Patches
 * `node:fs/promises` in this process.
 */
import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import sinon from 'sinon';

const WITH_PATH = ['open', 'mkdir', 'rm', 'stat', 'lstat', 'realpath', 'readFile', 'writeFile'];
type Call = (...args: unknown[]) => Promise<unknown>;

export async function onFoldingDisk<T>(folder: string, run: () => Promise<T>): Promise<T> {
  const folded = (place: unknown) => {
    const name = path.relative(folder, path.resolve(String(place)));
    if (name.startsWith('..') || place instanceof Uint8Array) return place;
    if (name.includes(':')) throw Object.assign(new Error(`EINVAL: ${name}`), { code: 'EINVAL' });
    return path.join(folder, name.normalize('NFC').toLowerCase());
  };
  const disk = sinon.createSandbox();
  const calls = fs as unknown as Record<string, Call>;
  for (const name of [...WITH_PATH, 'rename']) {
    const original = calls[name]!.bind(fs);
    disk.stub(calls, name).callsFake(async (from: unknown, to: unknown, ...more: unknown[]) => {
      return original(folded(from), name === 'rename' ? folded(to) : to, ...more);
    });
  }
  syncBuiltinESMExports();
  try {
    return await run();
  } finally {
    disk.restore();
    syncBuiltinESMExports();
  }
}
