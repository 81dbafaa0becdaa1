/** What the Makefile says that it makes, it has a rule for: a target without one does nothing. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'ava';
import { ROOT } from './source-files.ts';

const MAKEFILE = readFileSync(path.join(ROOT, 'Makefile'), 'utf8');
const named = (pattern: RegExp) =>
  new Set([...MAKEFILE.matchAll(pattern)].flatMap(([, names = '']) => names.split(/,? +/)));

test('every target of the Makefile has a rule', t => {
  const phony = named(/^\.PHONY: (.*)$/gm);
  const documented = named(/^# make ([a-z-]+(?:, make [a-z-]+)*)/gm);
  documented.delete('make');
  const rules = named(/^([a-z-]+):(?! export)/gm);
  t.true(documented.size > 20);
  t.deepEqual(
    [...documented].filter(name => !phony.has(name)),
    [],
  );
  t.deepEqual(
    [...phony].filter(name => !rules.has(name)),
    [],
  );
});
