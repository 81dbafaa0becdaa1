/** The OpenAPI webhooks: what a callback_url is sent when its job ends. */
import { ref } from './json-schema.ts';
import { jobFailed, jobSucceeded } from './openapi-examples.ts';
import type { JsonObject } from './openapi-parts.ts';

function header(name: string, description: string, example: string, pattern: string): JsonObject {
  const schema = { type: 'string', pattern };
  return { name, in: 'header', required: true, description, schema, example };
}

const parameters = [
  header(
    'webhook-id',
    'Names the notification; the same on every attempt.',
    'msg_6f1d2c1e-8b1a-4d0e-9a57-2f2b6c3d4e5f',
    '^msg_[0-9a-f-]{36}$',
  ),
  header('webhook-timestamp', 'Seconds since 1970, of this attempt.', '1777887006', '^\\d+$'),
  header(
    'webhook-signature',
    'Standard Webhooks v1: Base64 of HMAC-SHA256 over `id.timestamp.body`, keyed with the ' +
      'callback_secret.',
    'v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=',
    '^v1,[A-Za-z0-9+/]{43}=$',
  ),
];

const responses = {
  '2XX': { description: 'Taken, within 15 s. It is not sent again.' },
  410: { description: 'Not wanted any more. It is not sent again.' },
  429: { description: 'Not now: `Retry-After` is honoured, up to an hour.' },
  503: { description: 'Not now: `Retry-After` is honoured, up to an hour.' },
  default: {
    description:
      'Anything else, redirects too, and no answer: sent again after 5 s, 5 min, 30 min, 2 h, 5 h ' +
      'and 10 h.',
  },
};

function webhook(
  operationId: string,
  summary: string,
  schema: string,
  example: JsonObject,
): JsonObject {
  return {
    post: {
      operationId,
      tags: ['Notifications'],
      summary,
      description:
        'Sent where the submission gave callback_url and callback_secret, for synchronous requests ' +
        'too. At least once: tell repeats by job_id. Check the signature over the bytes as received.',
      security: [],
      parameters,
      requestBody: {
        required: true,
        content: {
          'application/json': { schema: ref(schema), examples: { sent: { value: example } } },
        },
      },
      responses,
    },
  };
}

export const webhooks: JsonObject = {
  'matting.job.succeeded': webhook(
    'onJobSucceeded',
    'A job succeeded',
    'JobSucceededEvent',
    jobSucceeded,
  ),
  'matting.job.failed': webhook('onJobFailed', 'A job failed', 'JobFailedEvent', jobFailed),
};
