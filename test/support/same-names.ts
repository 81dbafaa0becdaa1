/** A failure shows the missing and extra names, not two shifted lists. */
import type { ExecutionContext } from 'ava';

/**
 * Ignores the order; each name counts once.
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
