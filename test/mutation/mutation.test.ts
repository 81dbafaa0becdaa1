/** mutation.mutants.ts runs the mutants. */
import { readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import path from 'node:path';
import test from 'ava';
import { changed } from './change.ts';
import { ROOT, readTrees } from './functions.ts';
import { changesOf } from './guard.ts';
import { GUARDS } from './guards.ts';
import { judge } from './judge.ts';

test('each guard names a function that is there, by a mark in it, and its mutants are TypeScript', t => {
  const trees = readTrees([...new Set(GUARDS.map(({ file }) => file))]);
  const wrong = GUARDS.flatMap(guard => {
    const tree = trees.get(guard.file)!;
    try {
      readFileSync(path.join(ROOT, guard.tests));
      for (const change of changesOf(guard, trees))
        stripTypeScriptTypes(changed(tree.text, change));
      return [];
    } catch (error) {
      return [`${guard.name} of ${guard.file}: ${error}`];
    }
  });
  t.deepEqual(wrong, []);
});

test('a mutant counts as caught if its test fails by name, and not by a crash', async t => {
  const file = 'program/semaphore.ts';
  const source = readFileSync(path.join(ROOT, file), 'utf8');
  const env = { ...process.env, MATTING_TEST_DIALECT: 'sqlite' };
  const guardedBy = (title: string, goes: string, comes: string) => {
    const start = source.indexOf(goes);
    return { file, title, changes: [{ start, end: start + goes.length, text: comes }] };
  };
  const isCaught = async (...guarded: ReturnType<typeof guardedBy>[]) =>
    (await judge('program/test/semaphore.test.ts', guarded, env, 0)).map(one => one.isCaught);
  const title = 'keys of a semaphore › whose callers all wait leave others room to wait';
  const bound = 'if (own >= waitingMax - this.#waiting) throw refusal();';
  const caught = guardedBy(title, bound, ';');
  const same = guardedBy(title, bound, `${bound};`);
  const atImport = guardedBy(title, 'export class', 'no.such.name();\nexport class');
  const atParsing = guardedBy(title, bound, 'if (');
  const verdicts = await isCaught(caught, same, atImport, atParsing, caught);
  t.deepEqual(verdicts, [true, false, false, false, true]);
  t.deepEqual(await isCaught(guardedBy('no test has that title', bound, ';')), [false]);
});
