/** Range requests (RFC 9110 section 14). Pure. */

export interface ByteRange {
  /** Inclusive, both. */
  readonly start: number;
  readonly end: number;
}

const ONE_RANGE = /^bytes=[ \t]*(\d*)-(\d*)[ \t]*$/i;

/**
 * The range asked for. Undefined: none, several, or one that cannot be read, so the whole file is
 * sent. `unsatisfiable`: outside of the file.
 */
export function parseRange(
  header: string | undefined,
  sizeBytes: number,
): ByteRange | 'unsatisfiable' | undefined {
  const match = header === undefined ? null : ONE_RANGE.exec(header);
  if (match === null || (match[1] === '' && match[2] === '')) return undefined;
  if (match[1] === '') {
    const suffixBytes = Number(match[2]);
    if (suffixBytes === 0 || sizeBytes === 0) return 'unsatisfiable';
    return { start: Math.max(0, sizeBytes - suffixBytes), end: sizeBytes - 1 };
  }
  const start = Number(match[1]);
  const last = match[2] === '' ? Number.POSITIVE_INFINITY : Number(match[2]);
  if (last < start) return undefined;
  if (start >= sizeBytes) return 'unsatisfiable';
  return { start, end: Math.min(last, sizeBytes - 1) };
}
