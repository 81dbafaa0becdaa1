const COMPRESSIONS: readonly string[] = ['gzip', 'br', 'zstd', 'deflate', 'compress'];

/**
 * The compressions in the order of their application. Other tokens (aws-chunked, UTF-8, base64,
 * none) are ignored: buckets store and replay them by mistake.
 */
export function compressionsOf(contentEncoding: string | string[] | undefined): string[] {
  return String(contentEncoding ?? '')
    .split(',')
    .map(token => token.trim().toLowerCase().replace(/^x-/, ''))
    .filter(token => COMPRESSIONS.includes(token));
}
