/** Compares two lists of names, so that a failure names the names and not two shifted lists. */
import type { ExecutionContext } from 'ava';

/**
 * Asserts that both have the same names, in whatever order, each once.
 * @param found what the thing under test has
 * @param expected what it should have
 * @returns whether they are the same
 */
export function sameNames(
  t: Pick<ExecutionContext, 'deepEqual'>,
  found: readonly string[],
  expected: readonly string[],
  what?: string,
): boolean {
  return t.deepEqual(
    {
      missing: expected.filter(name => !found.includes(name)),
      extra: found.filter(name => !expected.includes(name)),
      twice: [found, expected].flatMap(all => all.filter((one, at) => all.indexOf(one) !== at)),
    },
    { missing: [], extra: [], twice: [] },
    what,
  );
}
