/** @param fence of the claim that downloaded it; absent for an upload */
export function backgroundBlob(jobId: string, fence?: number): string {
  return `backgrounds/${jobId}${fence === undefined ? '' : `-${fence}`}`;
}

export function hintsBlob(jobId: string): string {
  return `backgrounds/${jobId}-hints`;
}

/** Undefined unless it names a background or a file of hints. */
export function jobOfBackground(blob: string): string | undefined {
  const named = /^backgrounds\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-\d+|-hints)?$/;
  return named.exec(blob)?.[1];
}

export function matteBlob(resultBlob: string): string {
  return `${resultBlob}-matte`;
}

/** Undefined unless it names an input or a matte. */
export function jobOfKept(blob: string): string | undefined {
  const id = '([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})';
  return new RegExp(`^(?:inputs/${id}(?:-\\d+)?|results/${id}-\\d+-matte)$`)
    .exec(blob)
    ?.slice(1)
    .find(found => found !== undefined);
}

const THUMBNAIL_SUFFIX = '-thumbnail';

export function thumbnailBlob(resultBlob: string): string {
  return `${resultBlob}${THUMBNAIL_SUFFIX}`;
}

export function resultOfThumbnail(blob: string): string {
  return blob.endsWith(THUMBNAIL_SUFFIX) ? blob.slice(0, -THUMBNAIL_SUFFIX.length) : blob;
}
