/**
 * While an image is built: leaves in ./package.json the packages that one program imports, so that
 * `npm prune` removes the others and what only they need.
 *   node keep-packages.ts control-plane|inference-node
 */
import { readFileSync, writeFileSync } from 'node:fs';

interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies?: unknown;
  readonly [field: string]: unknown;
}

const program = process.argv[2] ?? '';
const lists = JSON.parse(readFileSync(new URL('packages.json', import.meta.url), 'utf8'));
const kept: readonly string[] | undefined = lists[program];
if (kept === undefined) throw new Error(`packages.json has no list for "${program}"`);

const manifest: Manifest = JSON.parse(readFileSync('package.json', 'utf8'));
const dependencies = Object.fromEntries(
  kept.map(name => {
    const version = manifest.dependencies[name];
    if (version === undefined) throw new Error(`package.json has no dependency ${name}`);
    return [name, version];
  }),
);
const { devDependencies: _left, ...rest } = manifest;
writeFileSync('package.json', `${JSON.stringify({ ...rest, dependencies }, null, 2)}\n`);
