/**
 * Verification of notifications by their receiver: https://www.standardwebhooks.com. For Node, Deno
 * and Bun.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { FailedJob, SucceededJob } from './types.ts';

/** The verification refuses an older or newer notification, so that nobody can replay one. */
const TOLERANCE_S = 300;
const BASE64_PREFIX = 'whsec_';

interface JobEvent<Type extends string, Job> {
  readonly type: Type;
  /** ISO 8601, UTC. */
  readonly timestamp: string;
  /** If your answer got lost, the service repeats the notification with the same job_id. */
  readonly job_id: string;
  /** The job at its end. */
  readonly data: Omit<Job, 'callback'>;
}

/** Newer services send types that this version does not know. */
export type WebhookEvent =
  | JobEvent<'matting.job.succeeded', SucceededJob>
  | JobEvent<'matting.job.failed', FailedJob>;

/** The service did not send the request, or not within the last minutes. Answer 401. */
export class WebhookError extends Error {
  override readonly name = 'WebhookError';
}

/** Node's headers, or those of `fetch`. */
export type WebhookHeaders =
  | { get(name: string): string | null }
  | Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * Checks the signature of a notification and reads it.
 * @param body the bytes as they arrived, before a JSON parser
 * @param secret the `callback_secret` of the submission, or the secret of the account's webhook
 * @throws WebhookError the headers are missing, the signature is wrong, or it is 5 minutes old
 */
export function verifyWebhook(
  body: Uint8Array | string,
  headers: WebhookHeaders,
  secret: string,
): WebhookEvent {
  const [id, timestamp, signatures] = ['id', 'timestamp', 'signature'].map(name =>
    headerOf(headers, `webhook-${name}`),
  ) as [string, string, string];
  const offS = Math.abs(Date.now() / 1000 - Number(timestamp));
  if (!/^\d{1,15}$/.test(timestamp) || offS > TOLERANCE_S) {
    throw new WebhookError('webhook-timestamp is missing or more than five minutes off');
  }
  const mac = createHmac('sha256', keyOf(secret)).update(`${id}.${timestamp}.`);
  const expected = mac.update(body).digest();
  if (!signatures.split(' ').some(signature => isOf(signature, expected))) {
    throw new WebhookError('no webhook-signature matches the body and the secret');
  }
  const text = typeof body === 'string' ? body : new TextDecoder().decode(body);
  return JSON.parse(text) as WebhookEvent;
}

/** '' if it is absent. */
function headerOf(headers: WebhookHeaders, name: string): string {
  if (typeof headers.get === 'function') return headers.get(name) ?? '';
  const value = (headers as Exclude<WebhookHeaders, { get(name: string): unknown }>)[name];
  return typeof value === 'string' ? value : '';
}

/** @throws TypeError */
function keyOf(secret: string): Buffer {
  const key = secret.startsWith(BASE64_PREFIX)
    ? Buffer.from(secret.slice(BASE64_PREFIX.length), 'base64')
    : Buffer.from(secret, 'utf8');
  if (key.length < 24)
    throw new TypeError('the secret is empty or too short: is its variable set?');
  return key;
}

function isOf(signature: string, expected: Buffer): boolean {
  const [version, base64 = ''] = signature.split(',', 2);
  const given = Buffer.from(base64, 'base64');
  return version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected);
}
