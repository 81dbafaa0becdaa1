/** Which known name was meant by one that is not known: the same but for its spelling. Pure. */

/** Longer names are spelled like nothing. */
const LENGTH_MAX = 32;

/** The name in lower case without separators: imageUrl, image-url and image_url are the same. */
export function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9]/g, '');
}

/** Undefined: none is near. A fifth of the letters may differ. */
export function nearName(name: string, known: readonly string[]): string | undefined {
  const plain = plainName(name);
  if (plain.length > LENGTH_MAX) return undefined;
  const near = known
    .map(one => ({ one, edits: editsBetween(plain, plainName(one)) }))
    .sort((a, b) => a.edits - b.edits)[0];
  if (near === undefined) return undefined;
  return near.edits <= Math.ceil(plainName(near.one).length / 5) ? near.one : undefined;
}

/** Letters that are added, taken away or replaced (Levenshtein). */
function editsBetween(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, place) => place);
  for (const [index, letter] of [...from].entries()) {
    const next = [index + 1];
    for (const [place, other] of [...to].entries()) {
      const replaced = row[place]! + (letter === other ? 0 : 1);
      next.push(Math.min(replaced, row[place + 1]! + 1, next[place]! + 1));
    }
    row = next;
  }
  return row.at(-1)!;
}
