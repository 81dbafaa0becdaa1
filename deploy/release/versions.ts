/** The places where the project's version stands. What runs reads it from package.json. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** Numbers alone: what is not meant for operators is not released. */
const VERSION = /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$/;

/** Each finds the version in its second group, once in the file or as often as `times` says. */
interface VersionPlace {
  readonly file: string;
  readonly pattern: RegExp;
  readonly times: number;
}

const PLACES: readonly VersionPlace[] = [
  { file: 'package.json', pattern: /^( {2}"version": ")([^"]+)/gm, times: 1 },
  // The first two lines of that name are the lock file's and those of the package that it locks.
  {
    file: 'package-lock.json',
    pattern: /("name": "matting-service",\n\s+"version": ")([^"]+)/g,
    times: 2,
  },
  { file: 'deploy/chart/Chart.yaml', pattern: /^(version: ['"]?)([^'"\s]+)/gm, times: 1 },
  { file: 'deploy/chart/Chart.yaml', pattern: /^(appVersion: ['"]?)([^'"\s]+)/gm, times: 1 },
];

/** @throws Error for anything but three numbers */
export function parseVersion(version: string): readonly [number, number, number] {
  const [, major, minor, patch] = VERSION.exec(version) ?? [];
  if (patch === undefined) throw new Error(`${version} is no version such as 0.2.0`);
  return [Number(major), Number(minor), Number(patch)];
}

export function isLater(one: string, other: string): boolean {
  const [a, b] = [parseVersion(one), parseVersion(other)];
  const differs = a.findIndex((number, index) => number !== b[index]);
  return differs >= 0 && (a[differs] ?? 0) > (b[differs] ?? 0);
}

/** Reads the version at each of its places, by file. @throws Error where a place cannot be found */
export function readVersions(root: string): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, string[]>();
  for (const place of placesIn(root)) {
    const versions = matchesIn(readFileSync(path.join(root, place.file), 'utf8'), place);
    found.set(place.file, [...(found.get(place.file) ?? []), ...versions]);
  }
  return found;
}

/** @returns the files that were written */
export function setVersions(root: string, version: string): readonly string[] {
  const files = new Set<string>();
  for (const place of placesIn(root)) {
    const file = path.join(root, place.file);
    const text = readFileSync(file, 'utf8');
    matchesIn(text, place);
    writeFileSync(
      file,
      text.replace(place.pattern, (_, before: string) => before + version),
    );
    files.add(place.file);
  }
  return [...files];
}

/** The chart may be missing: a clone of before it. */
function placesIn(root: string): readonly VersionPlace[] {
  return PLACES.filter(
    ({ file }) => !file.startsWith('deploy/chart/') || existsSync(path.join(root, file)),
  );
}

function matchesIn(text: string, { file, pattern, times }: VersionPlace): string[] {
  const versions = [...text.matchAll(pattern)].map(([, , version = '']) => version);
  if (versions.length === times) return versions;
  throw new Error(`${file} has ${versions.length} versions at ${pattern}, not ${times}`);
}
