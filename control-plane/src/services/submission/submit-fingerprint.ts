/**
 * What makes two requests under one Idempotency-Key the same request. Pure but for the hash.
 */
import { hash } from 'node:crypto';
import type { OutputFormat } from '#contract/formats.ts';

export interface FingerprintedRequest {
  /** SHA-256 of the decoded bytes, hexadecimal; or the URL's text as it was sent. */
  readonly source: { readonly imageSha256: string } | { readonly url: string };
  readonly outputFormat: OutputFormat;
  /** As they were sent; undefined: none. */
  readonly callback: { readonly url: string; readonly secret: string } | undefined;
}

/**
 * SHA-256, hexadecimal, over the fields that are there, each as `tag:length in bytes:value` and a
 * new line, so that no two different requests make the same text.
 */
export function fingerprintOf(request: FingerprintedRequest): string {
  const { source, outputFormat, callback } = request;
  const fields: [tag: string, value: string][] = [
    'url' in source ? ['image_url', source.url] : ['image_sha256', source.imageSha256],
    ['output_format', outputFormat],
  ];
  if (callback !== undefined) {
    fields.push(['callback_url', callback.url]);
    fields.push(['callback_secret_sha256', sha256(callback.secret)]);
  }
  return sha256(
    fields.map(([tag, value]) => `${tag}:${Buffer.byteLength(value)}:${value}\n`).join(''),
  );
}

/** The form in which an Idempotency-Key is stored: SHA-256, hexadecimal. */
export function idempotencyKeyHash(idempotencyKey: string): string {
  return sha256(idempotencyKey);
}

function sha256(text: string): string {
  return hash('sha256', text, 'hex');
}
