/** Where an object or an array ends, which arrives in pieces and of which nothing is needed. Pure. */

/** Where its reader is. */
export interface Nesting {
  /** Braces and brackets that are open; 0: it has ended. */
  depth: number;
  inString: boolean;
  /** In a string: the byte before was a backslash. */
  escaped: boolean;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** What a byte outside of strings does to the depth; whether it is the right one, JSON.parse says. */
const DEPTH_OF = new Int8Array(256);
for (const open of '{[') DEPTH_OF[open.charCodeAt(0)] = 1;
for (const close of '}]') DEPTH_OF[close.charCodeAt(0)] = -1;

/** The offset behind its last byte, or the chunk's length. @param nesting is moved on */
export function endOfNested(nesting: Nesting, chunk: Buffer, from: number): number {
  for (let at = from; at < chunk.length; at += 1) {
    const byte = chunk[at]!;
    if (nesting.escaped) nesting.escaped = false;
    else if (nesting.inString) {
      if (byte === BACKSLASH) nesting.escaped = true;
      else if (byte === QUOTE) nesting.inString = false;
    } else if (byte === QUOTE) nesting.inString = true;
    else nesting.depth += DEPTH_OF[byte]!;
    if (nesting.depth === 0) return at + 1;
  }
  return chunk.length;
}
