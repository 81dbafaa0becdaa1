import type { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyReply } from 'fastify';

/** For 429 and 503 without a time of their own. */
const RETRY_AFTER_S = 5;

export function sendRefusal(
  reply: FastifyReply,
  error: ContractError,
  { status, body }: { readonly status: number; readonly body: object },
): void {
  if (status === 429 || status === 503) {
    reply.header('retry-after', String(Math.ceil(error.retryAfterS ?? RETRY_AFTER_S)));
  }
  reply.header('x-credits-charged', '0');
  if (error.jobId !== undefined) reply.header('x-job-id', error.jobId);
  reply.code(status).type('application/json; charset=utf-8');
  // The framework would treat a string as text.
  reply.send(Buffer.from(JSON.stringify(body)));
}

/** An error of `invalidParameter` begins with the field's name. */
const FIELD = /^([a-z]+(?:_[a-z0-9]+)*)\b/;

/** A job's error has only the message, so the field's name is read from it. */
export function fieldOf({ fieldErrors, message }: ContractError): string {
  return fieldErrors[0]?.field ?? FIELD.exec(message)?.[1] ?? 'request';
}

export function renaming(names: Readonly<Record<string, string>>): (text: string) => string {
  const known = new RegExp(`\\b(?:${Object.keys(names).join('|')})\\b`, 'g');
  return text => text.replaceAll(known, name => names[name] ?? name);
}
