import { editDistance } from '@matting/program/edit-distance.ts';

/** Longer names get no suggestion. */
const LENGTH_MAX = 32;

/** imageUrl, image-url and image_url become the same name. */
export function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9]/g, '');
}

/** undefined: more than a fifth of the letters differ. */
export function nearName(name: string, known: readonly string[]): string | undefined {
  const plain = plainName(name);
  if (plain.length > LENGTH_MAX) return undefined;
  const near = known
    .map(one => ({ one, edits: editDistance(plain, plainName(one)) }))
    .sort((a, b) => a.edits - b.edits)[0];
  if (near === undefined) return undefined;
  return near.edits <= Math.ceil(plainName(near.one).length / 5) ? near.one : undefined;
}
