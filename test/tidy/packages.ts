/** The packages of the house: npm's workspaces, by what their manifests say. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT, type SourceFile } from './source-files.ts';

interface Manifest {
  readonly name: string;
  readonly workspaces?: readonly string[];
  readonly exports?: Readonly<Record<string, string>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

interface Package extends Manifest {
  readonly folder: string;
}

const readManifest = (folder: string): Manifest =>
  JSON.parse(readFileSync(path.join(ROOT, folder, 'package.json'), 'utf8'));

const root = readManifest('.');
/** A package in a folder of another comes before it. */
export const PACKAGES: readonly Package[] = (root.workspaces ?? [])
  .map(folder => ({ folder, ...readManifest(folder) }))
  .sort((one, other) => other.folder.length - one.folder.length);

/**
 * A package gives at most this many files besides its tests'. What the core gives is counted by
 * name (budget.ts).
 */
export const EXPORTS_MAX: Readonly<Record<string, number>> = {
  '@matting/serving': 20,
};

export function exportsOf({ exports = {} }: Pick<Manifest, 'exports'>): string[] {
  return Object.keys(exports).filter(name => !name.startsWith('./test/'));
}

/** Undefined: a file of no package, such as bin/, bench/ and the tests that start everything. */
const packageOf = (file: string) => PACKAGES.find(({ folder }) => file.startsWith(`${folder}/`));

/** `@matting/core`, `core/jobs/job.ts`: the package and what is wanted of it. */
export function partsOf(specifier: string): readonly [name: string, subpath: string] {
  const [name = ''] = /^(?:@[^/]+\/)?[^/]+/.exec(specifier) ?? [];
  return [name, `.${specifier.slice(name.length)}`];
}

/** A package's tests may import it, what it depends on, and what that depends on. */
function testable({ name, dependencies = {} }: Package): string[] {
  const others = PACKAGES.filter(one => one.name in dependencies);
  return [name, ...Object.keys(dependencies), ...others.flatMap(testable)];
}

function isExported({ exports = {} }: Manifest, subpath: string): boolean {
  if (subpath in exports) return true;
  const folders = Object.keys(exports).filter(name => name.endsWith('/*'));
  return folders.some(name => subpath.startsWith(name.slice(0, -1)));
}

/** Lists a file's imports that its package's manifest does not allow, each with its reason. */
export function wrongImportsOf(file: SourceFile, isTest: boolean): string[] {
  const own = packageOf(file.name);
  if (own === undefined) return [];
  const known = new Set(
    isTest
      ? [...testable(own), ...Object.keys(root.devDependencies ?? {})]
      : Object.keys(own.dependencies ?? {}),
  );
  return file.specifiers.flatMap(specifier => {
    const at = `${file.name} -> ${specifier}`;
    if (specifier.startsWith('.')) {
      const to = path.posix.join(path.posix.dirname(file.name), specifier);
      return packageOf(to) === own ? [] : [`${at}: leaves its package`];
    }
    if (/^(node|data):/.test(specifier)) return [];
    const [name, subpath] = partsOf(specifier);
    const other = PACKAGES.find(one => one.name === name);
    if (!known.has(name)) return [`${at}: is not in its package.json`];
    return other === undefined || isExported(other, subpath) ? [] : [`${at}: is not exported`];
  });
}
