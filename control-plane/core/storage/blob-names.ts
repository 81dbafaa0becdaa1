/** The names of blobs. They come from this program only: a wrong one is a bug, not an input. */

/** The first part of a name. */
export const BLOB_KINDS = ['inputs', 'backgrounds', 'results'] as const;
export type BlobKind = (typeof BLOB_KINDS)[number];

/** No dot, no slash: no way out of a directory, and nothing to be escaped in a URL. */
export const BLOB_ID = /^[A-Za-z0-9_-]{1,128}$/;

/** @throws TypeError where it is no name of a blob that is, or will be, committed */
export function requireBlobName(name: string): { readonly kind: BlobKind; readonly id: string } {
  const [first, id = '', ...more] = name.split('/');
  const kind = BLOB_KINDS.find(known => known === first);
  if (kind === undefined || !BLOB_ID.test(id) || more.length > 0) {
    throw new TypeError('a blob is named <inputs, backgrounds or results>/<letters, digits, _, ->');
  }
  return { kind, id };
}
