/** The errors of all interfaces that stand for another service's share these parts. */
import type { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyReply } from 'fastify';

/** Seconds to wait before a retry, for errors of load that give none themselves. */
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
  // A buffer keeps the framework from taking a string for text.
  reply.send(Buffer.from(JSON.stringify(body)));
}

/** Errors of `invalidParameter` begin with the field's name, then say what is wrong with it. */
const FIELD = /^([a-z]+(?:_[a-z0-9]+)*)\b/;

/** A job keeps only the sentence, which begins with the field's name. */
export function fieldOf({ fieldErrors, message }: ContractError): string {
  return fieldErrors[0]?.field ?? FIELD.exec(message)?.[1] ?? 'request';
}

/** @param names an interface's names for the contract's fields */
export function renaming(names: Readonly<Record<string, string>>): (text: string) => string {
  const known = new RegExp(`\\b(?:${Object.keys(names).join('|')})\\b`, 'g');
  return text => text.replaceAll(known, name => names[name] ?? name);
}
