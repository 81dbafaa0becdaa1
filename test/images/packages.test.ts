/** deploy/images/packages.json: each image gets the packages that its program imports, and no other. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'ava';
import { ROOT, readSources } from '../tidy/source-files.ts';

const PACKAGES: Readonly<Record<string, readonly string[]>> = JSON.parse(
  readFileSync(path.join(ROOT, 'deploy/images/packages.json'), 'utf8'),
);
/** Rooms that every image has beside its own program. */
const SHARED = /^(bin|program|proto)\//;
/** Generated code is no source of the house; this is what it imports. */
const IMPORTED_BY_GENERATED = ['@bufbuild/protobuf', '@grpc/grpc-js'];

const sources = readSources().filter(({ name }) => !/(^|\/)test\//.test(name));

function packageOf(specifier: string): string | undefined {
  if (specifier.startsWith('node:') || !/^[@a-z]/.test(specifier)) return undefined;
  const parts = specifier.split('/');
  return parts.slice(0, specifier.startsWith('@') ? 2 : 1).join('/');
}

for (const [program, packages] of Object.entries(PACKAGES)) {
  test(`the image of the ${program} has what it imports`, t => {
    const rooms = sources.filter(
      ({ name }) => SHARED.test(name) || name.startsWith(`${program}/src/`),
    );
    const known = new Set(
      Object.keys(JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')).dependencies),
    );
    const imported = rooms.flatMap(({ imports }) => imports.map(packageOf));
    const wanted = new Set(
      [...imported, ...IMPORTED_BY_GENERATED].filter(name => known.has(name!)),
    );
    t.deepEqual([...packages].sort(), [...wanted].sort(), 'deploy/images/packages.json');
  });
}
