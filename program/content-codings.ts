/** Content-Encoding of a body that was requested without one. */

const COMPRESSIONS: readonly string[] = ['gzip', 'br', 'zstd', 'deflate', 'compress'];

/**
 * The compressions that it names, in the order in which they were applied. Buckets store and replay
 * other tokens by mistake (aws-chunked, UTF-8, base64, none): the bytes are as they should be.
 */
export function compressionsOf(contentEncoding: string | string[] | undefined): string[] {
  return String(contentEncoding ?? '')
    .split(',')
    .map(token => token.trim().toLowerCase().replace(/^x-/, ''))
    .filter(token => COMPRESSIONS.includes(token));
}
