/** Why tests are skipped: ava prints no reason. */

const said = new Set<string>();

/** Tells `test.skipIf` whether something is missing here; reports it once on stderr. */
export function isNotTested(reason: string | false): boolean {
  if (reason === false) return false;
  if (!said.has(reason)) console.error(`NOT TESTED: ${reason}`);
  said.add(reason);
  return true;
}
