/** Which known name was meant by one that is not known: the same but for its spelling. Pure. */
import { editDistance } from '@matting/program/edit-distance.ts';

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
    .map(one => ({ one, edits: editDistance(plain, plainName(one)) }))
    .sort((a, b) => a.edits - b.edits)[0];
  if (near === undefined) return undefined;
  return near.edits <= Math.ceil(plainName(near.one).length / 5) ? near.one : undefined;
}
