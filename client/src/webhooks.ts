/** Verifies notifications (https://www.standardwebhooks.com), for Node, Deno and Bun. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { FailedJob, SucceededJob } from './types.ts';

/** A notification whose time differs by more is refused, so that nobody can replay it. */
const TOLERANCE_S = 300;
const BASE64_PREFIX = 'whsec_';

interface JobEvent<Type extends string, Job> {
  readonly type: Type;
  /** ISO 8601, UTC. */
  readonly timestamp: string;
  /** Recognise repeats by it: a notification is repeated if your answer got lost. */
  readonly job_id: string;
  /** The job at its end. */
  readonly data: Omit<Job, 'callback'>;
}

/** Newer services may send other types. */
export type WebhookEvent =
  | JobEvent<'matting.job.succeeded', SucceededJob>
  | JobEvent<'matting.job.failed', FailedJob>;

/** The notification is not from the service, or too old. Answer 401. */
export class WebhookError extends Error {
  override readonly name = 'WebhookError';
}

/** Headers of Node or of `fetch`. */
export type WebhookHeaders =
  | { get(name: string): string | null }
  | Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * @param body the raw bytes, before a JSON parser
 * @param secret the submission's `callback_secret`, or the secret of the account's webhook
 * @throws WebhookError: missing headers, a wrong signature, or 5 minutes old
 * @example const { type, data } = verifyWebhook(rawBody, request.headers, secret);
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

/** @returns an empty text if the header is absent */
function headerOf(headers: WebhookHeaders, name: string): string {
  if (typeof headers.get === 'function') return headers.get(name) ?? '';
  const value = (headers as Exclude<WebhookHeaders, { get(name: string): unknown }>)[name];
  return typeof value === 'string' ? value : '';
}

/** @throws TypeError: the secret is too short */
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
