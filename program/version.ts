/** What stands in the product's manifests: its version, in the root's alone, and those it depends on. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '..');

interface Manifest {
  readonly version: string;
  readonly workspaces: readonly string[];
  readonly dependencies?: Readonly<Record<string, string>>;
}

export const VERSION: string = readManifest('.').version;

/** Of the packages that are here, without each other, by name. */
export function dependencyVersions(): Readonly<Record<string, string>> {
  const folders = ['.', ...readManifest('.').workspaces];
  const present = folders.filter(folder => existsSync(path.join(ROOT, folder, 'package.json')));
  const all = present.flatMap(folder => Object.entries(readManifest(folder).dependencies ?? {}));
  return Object.fromEntries(all.filter(([name]) => !name.startsWith('@matting/')).sort());
}

function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(path.join(ROOT, folder, 'package.json'), 'utf8'));
}
