/** Names of the files of a job in the blob store. */
/** @param fence of the claim that downloaded it; absent for an upload */
export function backgroundBlob(jobId: string, fence?: number): string {
  return `backgrounds/${jobId}${fence === undefined ? '' : `-${fence}`}`;
}

/** A file of hints lies beside the backgrounds. */
export function hintsBlob(jobId: string): string {
  return `backgrounds/${jobId}-hints`;
}

/** The job that such a blob is of; undefined for any other name. */
export function jobOfBackground(blob: string): string | undefined {
  const named = /^backgrounds\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-\d+|-hints)?$/;
  return named.exec(blob)?.[1];
}

/** Names the matte of an attempt beside its result. */
export function matteBlob(resultBlob: string): string {
  return `${resultBlob}-matte`;
}

/** The job that such an input or matte is of; undefined for any other name. */
export function jobOfKept(blob: string): string | undefined {
  const id = '([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})';
  return new RegExp(`^(?:inputs/${id}(?:-\\d+)?|results/${id}-\\d+-matte)$`)
    .exec(blob)
    ?.slice(1)
    .find(found => found !== undefined);
}

const THUMBNAIL_SUFFIX = '-thumbnail';

/** Names it beside the result: the code that lists or erases results knows its name by theirs. */
export function thumbnailBlob(resultBlob: string): string {
  return `${resultBlob}${THUMBNAIL_SUFFIX}`;
}

/** The result that such a blob is of; any other name is its own. */
export function resultOfThumbnail(blob: string): string {
  return blob.endsWith(THUMBNAIL_SUFFIX) ? blob.slice(0, -THUMBNAIL_SUFFIX.length) : blob;
}
