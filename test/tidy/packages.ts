/** npm's workspaces by their manifests. */
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
/** A nested package comes before its parent. */
export const PACKAGES: readonly Package[] = (root.workspaces ?? [])
  .map(folder => ({ folder, ...readManifest(folder) }))
  .sort((one, other) => other.folder.length - one.folder.length);

/** Most files that a package exports, without its tests'. budget.ts counts the core's names. */
export const EXPORTS_MAX: Readonly<Record<string, number>> = {
  '@matting/serving': 20,
};

export function exportsOf({ exports = {} }: Pick<Manifest, 'exports'>): string[] {
  return Object.keys(exports).filter(name => !name.startsWith('./test/'));
}

/** Undefined: in no package, such as bin/, bench/ and tests of the whole service. */
const packageOf = (file: string) => PACKAGES.find(({ folder }) => file.startsWith(`${folder}/`));

/** `@matting/core`, `core/jobs/job.ts`: the package and the path in it. */
export function partsOf(specifier: string): readonly [name: string, subpath: string] {
  const [name = ''] = /^(?:@[^/]+\/)?[^/]+/.exec(specifier) ?? [];
  return [name, `.${specifier.slice(name.length)}`];
}

/** Tests may import the package and its transitive dependencies. */
function testable({ name, dependencies = {} }: Package): string[] {
  const others = PACKAGES.filter(one => one.name in dependencies);
  return [name, ...Object.keys(dependencies), ...others.flatMap(testable)];
}

function isExported({ exports = {} }: Manifest, subpath: string): boolean {
  if (subpath in exports) return true;
  const folders = Object.keys(exports).filter(name => name.endsWith('/*'));
  return folders.some(name => subpath.startsWith(name.slice(0, -1)));
}

/** Imports that the package's manifest forbids, with reasons. */
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
