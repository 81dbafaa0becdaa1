import { problemHeaders } from '@matting/http/problems.ts';
import type { ContractError, ErrorCode } from '@matting/proto/contract/errors.ts';
import type { FastifyReply } from 'fastify';
import { localeOf, PageError } from '../session/visit.ts';
import { fill, type Words } from '../words/words.ts';
import { html } from './html.ts';
import type { PageContent } from './page-frame.ts';

type ErrorPageKind = {
  [K in keyof Words['errors']]: Words['errors'][K] extends { title: string } ? K : never;
}[keyof Words['errors']];

const KINDS: Readonly<Partial<Record<ErrorCode, ErrorPageKind>>> = {
  NOT_FOUND: 'notFound',
  JOB_NOT_FOUND: 'notFound',
  METHOD_NOT_ALLOWED: 'methodNotAllowed',
  RATE_LIMITED: 'tooManyAttempts',
  SERVICE_UNAVAILABLE: 'unavailable',
  RESULT_LOST: 'resultLost',
};

/**
 * Sets Retry-After.
 * @param way.notFound replaces the words for 404
 * @param way.detail for the operator, in English, as in the command line
 */
export function errorPage(
  reply: FastifyReply,
  error: PageError | ContractError,
  way: { href: string; label: string; notFound?: string; detail?: string | undefined },
): PageContent {
  const { request } = reply;
  const { errors } = localeOf(request).words;
  const status = error instanceof PageError ? error.status : error.spec.http;
  const kind =
    error instanceof PageError
      ? error.kind
      : (KINDS[error.code] ?? (status >= 500 ? 'internal' : 'badForm'));
  const retryAfter =
    error instanceof PageError ? error.retryAfterS : problemHeaders(error)['retry-after'];
  if (retryAfter !== undefined) reply.header('retry-after', String(retryAfter));
  const { title, text } = errors[kind];
  return {
    title,
    status,
    main: html`<div class="stack">
      <p>${kind === 'notFound' && way.notFound ? way.notFound : text}</p>
      ${way.detail === undefined ? null : html`<p><code>${way.detail}</code></p>`}
      <p class="actions"><a class="button secondary" href=${way.href}>${way.label}</a></p>
      <p class="hint">${fill(errors.requestId, { id: request.id })}</p>
    </div>`,
  };
}
