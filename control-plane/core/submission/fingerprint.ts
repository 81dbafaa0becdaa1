import { hash } from 'node:crypto';
import type { Channels, Finishing } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';

export interface FingerprintedRequest {
  /** Hexadecimal SHA-256 of the decoded bytes, or the URL as sent. */
  readonly source: { readonly imageSha256: string } | { readonly url: string };
  readonly outputFormat: OutputFormat;
  readonly channels?: Channels | undefined;
  /** Absent or empty: only defaults. */
  readonly finishing?: Finishing | undefined;
  readonly background?: { readonly sha256: string } | { readonly url: string } | undefined;
  readonly hints?: Hints | undefined;
  readonly hintsSha256?: string | undefined;
  readonly model?: string | undefined;
  readonly noSubject?: 'fail' | undefined;
  readonly correctable?: object | undefined;
  readonly callback: { readonly url: string; readonly secret: string } | undefined;
}

/**
 * Each field is `tag:length in bytes:value` and a line feed, so no two requests share a text.
 * Fields of later releases are hashed only if they are sent, so repeats match across an upgrade.
 */
export function fingerprintOf(request: FingerprintedRequest): string {
  const { source, outputFormat, channels = 'rgba', finishing = {}, background } = request;
  const { hints, hintsSha256, model, noSubject, correctable, callback } = request;
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
  if (hints !== undefined) fields.push(['hints', canonicalText(hints)]);
  if (hintsSha256 !== undefined) fields.push(['hints_sha256', hintsSha256]);
  if (model !== undefined) fields.push(['model', model]);
  if (noSubject !== undefined) fields.push(['no_subject', noSubject]);
  if (correctable !== undefined) fields.push(['correctable', 'true']);
  if (callback !== undefined) {
    fields.push(['callback_url', callback.url]);
    fields.push(['callback_secret_sha256', sha256(callback.secret)]);
  }
  return hashOf(fields);
}

type Tagged = readonly [tag: string, value: string];

function hashOf(fields: readonly Tagged[]): string {
  return sha256(
    fields.map(([tag, value]) => `${tag}:${Buffer.byteLength(value)}:${value}\n`).join(''),
  );
}

/**
 * The first tag distinguishes a correction from a submission, so that one key never serves both.
 */
export function correctionFingerprintOf(correction: {
  readonly jobId: string;
  readonly texts: ReadonlyMap<string, string>;
  /** SHA-256 of each file, by its field. */
  readonly files: Readonly<Record<string, string>>;
}): string {
  const { jobId, texts, files } = correction;
  const sent = [...texts].map(([field, text]): Tagged => {
    return field === 'callback_secret' ? ['callback_secret_sha256', sha256(text)] : [field, text];
  });
  const given = sent.filter(([field]) => field !== 'reference');
  const all = [...given, ...Object.entries(files)].sort(([a], [b]) => (a < b ? -1 : 1));
  return hashOf([['kind', 'correction'], ['job_id', jobId], ...all]);
}

function canonicalText(value: Finishing | Hints): string {
  return JSON.stringify(value, (_name, part: unknown) =>
    typeof part === 'object' && part !== null
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}

export function idempotencyKeyHash(idempotencyKey: string): string {
  return sha256(idempotencyKey);
}

/** No caller's key has this hash, since keys have no line ends. */
export function derivedKeyHash(namespace: string, apiKeyId: string, fingerprint: string): string {
  return sha256(`derived\n${namespace}\n${apiKeyId}\n${fingerprint}\n`);
}

function sha256(text: string): string {
  return hash('sha256', text, 'hex');
}
