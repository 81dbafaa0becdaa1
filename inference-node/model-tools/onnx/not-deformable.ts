/** Why a Sum is not the middle of a deformable convolution. */
export class NotDeformable extends Error {}

export function need(holds: boolean, what: string): asserts holds {
  if (!holds) throw new NotDeformable(what);
}

export const equal = (found: readonly number[] | undefined, wanted: readonly number[]) =>
  found?.length === wanted.length && wanted.every((value, at) => value === found[at]);
