import test from 'ava';
import { Semaphore } from '../../program/semaphore.ts';
import { skipReason } from '../support/database.ts';
import { readTrees } from './functions.ts';
import { changesOf } from './guard.ts';
import { GUARDS } from './guards.ts';
import { judge } from './judge.ts';

/** Templates of databases were made without the mutant. */
const { MATTING_TEST_TEMPLATES: _madeWithoutMutants, ...environment } = process.env;
/** Tests wait half of their time: three processes keep two cores busy. */
const processes = new Semaphore({
  max: 3,
  waitingMax: Number.POSITIVE_INFINITY,
  refusal: () => new Error('all may wait'),
});
const trees = readTrees([...new Set(GUARDS.map(({ file }) => file))]);
let caught = 0;
/** Files of guards or tests; any other name runs all. */
const chosen = (process.env.MATTING_TEST_GUARDS_OF ?? '').split(' ');
const isOf = (name: string) => (one: { readonly file: string; readonly tests: string }) =>
  one.file === name || one.tests === name;
const judged = chosen.every(name => GUARDS.some(isOf(name)))
  ? GUARDS.filter(one => chosen.some(name => isOf(name)(one)))
  : GUARDS;

for (const dialect of ['mysql', 'sqlite'] as const) {
  const guarded = judged.map(guard => ({ ...guard, changes: changesOf(guard, trees) }));
  const own = guarded.filter(({ title }) => title.includes('on mysql') === (dialect === 'mysql'));
  const byTests = [...Map.groupBy(own, ({ tests }) => tests)];
  for (const [tests, guards] of byTests.sort(([, one], [, other]) => other.length - one.length)) {
    test.skipIf(skipReason(dialect) !== false)(
      `${tests} on ${dialect} catches its mutants by name`,
      async t => {
        // Hooks run even for unmatched tests: one dialect saves databases on the server.
        const env = { ...environment, MATTING_TEST_DIALECT: dialect };
        const verdicts = await processes.run({}, () => judge(tests, guards, env));
        caught += verdicts.filter(({ isCaught }) => isCaught).length;
        const survived = verdicts.flatMap(({ isCaught, said }, index) => {
          const { file, name, mark, title } = guards[index]!;
          return isCaught ? [] : [`${file}: ${name} | ${mark} | ${title}: ${said}`];
        });
        t.deepEqual(survived, []);
      },
    );
  }
}

test.after.always('the report', t => {
  const functions = new Set(judged.map(({ file, name }) => `${file} ${name}`)).size;
  const byHand = judged.filter(guard => guard.byHand.length > 0).length;
  const made = `${judged.length - byHand} by operators and ${byHand} by hand`;
  t.log(`${functions} functions, ${judged.length} guards: ${made}, ${caught} caught`);
});
