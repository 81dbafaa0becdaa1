const COMPRESSIONS: readonly string[] = ['gzip', 'br', 'zstd', 'deflate', 'compress'];

/**
 * @returns the compressions in the order of their application. Ignores other tokens (aws-chunked,
 * UTF-8, base64, none): buckets store and replay them by mistake.
 */
export function compressionsOf(contentEncoding: string | string[] | undefined): string[] {
  return String(contentEncoding ?? '')
    .split(',')
    .map(token => token.trim().toLowerCase().replace(/^x-/, ''))
    .filter(token => COMPRESSIONS.includes(token));
}
