/** Why tests are skipped: ava prints no reason. */

const said = new Set<string>();

/** Tells `test.skipIf` whether something is missing here; reports it once, loudly, on stderr. */
export function isNotTested(reason: string | false): boolean {
  if (reason === false) return false;
  const line = '*'.repeat(90);
  if (!said.has(reason)) console.error(`${line}\nNOT TESTED: ${reason}\n${line}`);
  said.add(reason);
  return true;
}
