/** Whether a secret looks like one that was made at random. It never says anything of the value. */

import { type Finding, warning } from './findings.ts';

/** What documentation and habit put in the place of a secret. */
const PLACEHOLDER =
  /change.?me|placeholder|example|password|secret|random.?token|hexadecimal|0123456789|abcdef0123|qwerty|letmein/i;
/** Nobody guesses so much over a network. */
const BITS_MIN = 80;

/** Why it is no good secret, one clause; undefined: nothing speaks against it. */
export function weaknessOf(secret: string): string | undefined {
  if (PLACEHOLDER.test(secret)) return 'holds words of an example';
  const bits = bitsOf(secret);
  return bits < BITS_MIN ? `can hold no more than ${Math.floor(bits)} bits` : undefined;
}

/** The same of bytes. */
export function weaknessOfBytes(secret: Uint8Array): string | undefined {
  const bits = bitsOf(Buffer.from(secret).toString('latin1'));
  return bits < BITS_MIN ? `can hold no more than ${Math.floor(bits)} bits` : undefined;
}

/** MATTING_NODE_TOKEN_ACCEPTED is for the time of a change. @param opened what it opens */
export function secondTokenFinding(opened: string): Finding {
  const found = `MATTING_NODE_TOKEN_ACCEPTED is set: a second token opens ${opened}`;
  const page = 'docs/operations.md, "Changing the node token"';
  const advice = `remove it when every node and control plane has the new one: ${page}`;
  return warning('secrets', found, advice);
}

/** By how often each letter is there, and no more than one period of what repeats itself: an upper
 * bound of what such a text can hold. */
function bitsOf(text: string): number {
  const once = text.slice(0, periodOf(text));
  const counts = new Map<string, number>();
  for (const letter of once) counts.set(letter, (counts.get(letter) ?? 0) + 1);
  const { length } = once;
  return [...counts.values()].reduce((bits, n) => bits + n * Math.log2(length / n), 0);
}

/** The shortest beginning that repeated gives the text; its length where none does. */
function periodOf(text: string): number {
  const at = (text + text).indexOf(text, 1);
  return at === -1 ? text.length : at;
}
