/** The check of a coded picture finds one of these if the picture is not whole. */

/** The coded bytes break the standard's rules, or end before the picture does. */
export class DamagedCoding extends Error {
  override readonly name = 'DamagedCoding';
}

/** The picture uses a tool that the check does not follow. It says nothing of damage. */
export class UncheckedCoding extends Error {
  override readonly name = 'UncheckedCoding';
}
