/** These hashes distinguish requests: the fingerprint, and the hash of the idempotency key. */

import { hash } from 'node:crypto';
import type { Channels, Finishing } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';

export interface FingerprintedRequest {
  /** SHA-256 of the decoded bytes, hexadecimal; or the URL's text as it was sent. */
  readonly source: { readonly imageSha256: string } | { readonly url: string };
  readonly outputFormat: OutputFormat;
  readonly channels?: Channels | undefined;
  /** If it is absent or empty, nothing in it could change the fingerprint. */
  readonly finishing?: Finishing | undefined;
  readonly background?: { readonly sha256: string } | { readonly url: string } | undefined;
  readonly model?: string | undefined;
  readonly noSubject?: 'fail' | undefined;
  readonly callback: { readonly url: string; readonly secret: string } | undefined;
}

/**
 * SHA-256, hexadecimal, over the fields that are there, each as `tag:length in bytes:value` and a
 * new line, so that no two different requests make the same text. What a later release adds is
 * there only where it is asked for, so that a repetition is known across an upgrade.
 */
export function fingerprintOf(request: FingerprintedRequest): string {
  const { source, outputFormat, channels = 'rgba', finishing = {}, background } = request;
  const { model, noSubject, callback } = request;
  const fields: [tag: string, value: string][] = [
    'url' in source ? ['image_url', source.url] : ['image_sha256', source.imageSha256],
    ['output_format', outputFormat],
  ];
  if (channels !== 'rgba') fields.push(['channels', channels]);
  if (Object.keys(finishing).length > 0) fields.push(['finishing', canonicalText(finishing)]);
  if (background !== undefined) {
    fields.push(
      'url' in background
        ? ['background_url', background.url]
        : ['background_sha256', background.sha256],
    );
  }
  if (model !== undefined) fields.push(['model', model]);
  if (noSubject !== undefined) fields.push(['no_subject', noSubject]);
  if (callback !== undefined) {
    fields.push(['callback_url', callback.url]);
    fields.push(['callback_secret_sha256', sha256(callback.secret)]);
  }
  return sha256(
    fields.map(([tag, value]) => `${tag}:${Buffer.byteLength(value)}:${value}\n`).join(''),
  );
}

function canonicalText(value: Finishing): string {
  return JSON.stringify(value, (_name, part: unknown) =>
    typeof part === 'object' && part !== null
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}

export function idempotencyKeyHash(idempotencyKey: string): string {
  return sha256(idempotencyKey);
}

/**
 * Hashes for a request without a key: no caller's key has this hash, since line ends are in none.
 */
export function derivedKeyHash(namespace: string, apiKeyId: string, fingerprint: string): string {
  return sha256(`derived\n${namespace}\n${apiKeyId}\n${fingerprint}\n`);
}

function sha256(text: string): string {
  return hash('sha256', text, 'hex');
}
