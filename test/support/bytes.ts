import type { ExecutionContext } from 'ava';

/**
 * The same bytes. ava's `deepEqual` takes seconds for a megabyte of them, and would print all.
 *
 * @param actual samples of any element type: what lies in memory is compared
 */
export function sameBytes(
  t: ExecutionContext,
  actual: NodeJS.ArrayBufferView,
  expected: NodeJS.ArrayBufferView,
  message = 'bytes',
): void {
  const [one, other] = [actual, expected].map(
    ({ buffer, byteOffset, byteLength }) => Buffer.from(buffer, byteOffset, byteLength) as Buffer,
  );
  t.is(one!.length, other!.length, `${message}: length`);
  const at = one!.equals(other!) ? -1 : one!.findIndex((byte, index) => byte !== other![index]);
  t.is(at, -1, `${message} differ from the one at ${at} on`);
}
