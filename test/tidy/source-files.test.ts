/** What the rules of the house measure with is right: circles of imports, imports and lengths. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'ava';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { circlesOf } from './circles.ts';
import { readSources } from './source-files.ts';

test('circles are found, what only hangs on them is not', t => {
  const graph = new Map([
    ['entry', ['a', 'd', 'package']],
    ['a', ['b']],
    ['b', ['c', 'leaf']],
    ['c', ['a']],
    ['d', ['e', 'a']],
    ['e', ['d']],
    ['leaf', []],
  ]);
  t.deepEqual(circlesOf(graph), [
    ['a', 'b', 'c'],
    ['d', 'e'],
  ]);
  t.deepEqual(
    circlesOf(
      new Map([
        ['a', ['b']],
        ['b', []],
      ]),
    ),
    [],
  );
});

test('imports of every kind are found, and functions with their names and lines', async t => {
  const root = await temporaryFolder(t);
  mkdirSync(path.join(root, 'program/room'), { recursive: true });
  writeFileSync(path.join(root, 'tsconfig.json'), '{ "include": ["program"] }');
  const text = `/** Not counted. */
import { a } from '../a.ts';
import type { B } from '#contract/b.ts';
export * from 'package';
import './effect.ts';
const later = () => import('./later.ts');
type C = import('./type.ts').C;
const notAnImport = "import { x } from './x.ts'"; // import './y.ts'
/** Not counted either. */
export async function three(b: B) {
  return b ?? '}';
}
class D {
  #four = (
    c: C,
  ) => c;
  get two() { return /[}]/;
  }
}
onDatabases(test, 'a group', (test, dialect) => {
  test('a test', t => {
    a();
  });
});
`;
  writeFileSync(path.join(root, 'program/room/one.ts'), text);
  t.deepEqual(readSources(root), [
    {
      name: 'program/room/one.ts',
      text,
      imports: [
        'program/a.ts',
        'proto/contract/b.ts',
        'package',
        'program/room/effect.ts',
        'program/room/later.ts',
        'program/room/type.ts',
      ],
      functions: [
        { name: 'later', lines: 1 },
        { name: 'three', lines: 3 },
        { name: '#four', lines: 3 },
        { name: 'two', lines: 2 },
        { name: 'test: a test', lines: 3 },
      ],
    },
  ]);
});
