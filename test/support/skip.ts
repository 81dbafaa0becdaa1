/** Ava prints no reason for a skip. */

const said = new Set<string>();

/** Reports the reason once on stderr. */
export function isNotTested(reason: string | false): boolean {
  if (reason === false) return false;
  const line = '*'.repeat(90);
  if (!said.has(reason)) console.error(`${line}\nNOT TESTED: ${reason}\n${line}`);
  said.add(reason);
  return true;
}
