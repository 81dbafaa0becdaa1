/** Changes of a work tree since a commit: files, and versions of npm packages. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';

const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;
const LOCK = 'package-lock.json';

export interface Changes {
  /** From the root, with deleted and new ones. */
  readonly files: readonly string[];
  /** Names of packages with another version in the lock file. */
  readonly packages: ReadonlySet<string>;
}

interface Locked {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
}

/** By path in node_modules. */
type Lock = Readonly<Record<string, Locked>>;

const packagesIn = (text: string): Lock => JSON.parse(text).packages;
const nameOf = (place: string) => place.split('node_modules/').at(-1) ?? place;

export function git(root: string, ...args: readonly string[]): string {
  return execFileSync('git', args, {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: OUTPUT_BYTES_MAX,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
}

/** @returns undefined if the clone lacks the commit: it is shallow, or has another history */
export function changesSince(root: string, commit: string): Changes | undefined {
  try {
    git(root, 'cat-file', '-e', `${commit}^{commit}`);
  } catch {
    return undefined;
  }
  const changed = git(root, 'diff', '--name-only', '--no-renames', '-z', commit);
  const added = git(root, 'ls-files', '--others', '--exclude-standard', '-z');
  const files = `${changed}${added}`.split('\0').filter(name => name !== '');
  if (!files.includes(LOCK)) return { files, packages: new Set() };
  const before = packagesIn(git(root, 'show', `${commit}:${LOCK}`));
  const now = packagesIn(readFileSync(path.join(root, LOCK), 'utf8'));
  const places = [...new Set([...Object.keys(before), ...Object.keys(now)])];
  const differ = (place: string) => JSON.stringify(before[place]) !== JSON.stringify(now[place]);
  const installed = places.filter(place => place.includes('node_modules/'));
  return { files, packages: new Set(installed.filter(differ).map(nameOf)) };
}

/** Transitive. @throws Error the lock file lacks a package */
export function withDependencies(root: string, names: readonly string[]): ReadonlySet<string> {
  const byName = Map.groupBy(
    Object.entries(packagesIn(readFileSync(path.join(root, LOCK), 'utf8'))),
    ([place]) => nameOf(place),
  );
  for (const name of names) {
    if (!byName.has(name)) throw new Error(`${LOCK} has no ${name}`);
  }
  const found = new Set(names);
  // The set grows while it is walked.
  for (const name of found) {
    for (const [, locked] of byName.get(name) ?? []) {
      const { dependencies, optionalDependencies, peerDependencies } = locked;
      const all = { ...dependencies, ...optionalDependencies, ...peerDependencies };
      for (const each of Object.keys(all)) found.add(each);
    }
  }
  return found;
}
