/** fast-check with the same cases in every run; MATTING_TEST_SEED changes them. */
import type { ExecutionContext } from 'ava';
import fc from 'fast-check';

const seed = Number(process.env.MATTING_TEST_SEED ?? 1);
fc.configureGlobal({ seed });

export function holds<Values extends [unknown, ...unknown[]]>(
  t: ExecutionContext,
  all: { [At in keyof Values]: fc.Arbitrary<Values[At]> },
  said: (...values: Values) => void,
  parameters?: fc.Parameters<Values>,
): void {
  t.notThrows(() => fc.assert(fc.property(...all, said), parameters));
}

export { fc };
