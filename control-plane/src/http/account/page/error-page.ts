/** Refusals and failures as pages: in words, with the request's number, and a way on. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ContractError, ErrorCode } from '#contract/errors.ts';
import { problemHeaders } from '../../answers/problem.ts';
import { html } from '../views/html.ts';
import { fill, type Words } from '../words/words.ts';
import { pageViewerOf, wordsOf } from './page-request.ts';
import { ACCOUNT_PATH, renderPage } from './render-page.ts';

/** Sections of `words.errors` that are pages. */
export type ErrorPageKind = {
  [K in keyof Words['errors']]: Words['errors'][K] extends { title: string } ? K : never;
}[keyof Words['errors']];

export function renderErrorPage(
  request: FastifyRequest,
  reply: FastifyReply,
  error: { readonly kind: ErrorPageKind; readonly status: number },
): FastifyReply {
  const words = wordsOf(request);
  const { title, text } = words.errors[error.kind];
  const isKnown = pageViewerOf(request) !== undefined;
  return renderPage(request, reply, {
    title,
    status: error.status,
    main: html`<div class="stack">
      <p>${text}</p>
      <p class="actions"><a class="button secondary" href=${ACCOUNT_PATH}>${
        isKnown ? words.errors.toOverview : words.errors.toSignIn
      }</a></p>
      <p class="hint">${fill(words.errors.requestId, { id: request.id })}</p>
    </div>`,
  });
}

const KINDS: Readonly<Partial<Record<ErrorCode, ErrorPageKind>>> = {
  NOT_FOUND: 'notFound',
  JOB_NOT_FOUND: 'notFound',
  METHOD_NOT_ALLOWED: 'methodNotAllowed',
  RATE_LIMITED: 'tooManyAttempts',
  SERVICE_UNAVAILABLE: 'unavailable',
  RESULT_LOST: 'resultLost',
};

/** An error of the catalogue as a page. @see createErrorHandler */
export function writeErrorPage(
  error: ContractError,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  const status = error.spec.http;
  const kind = KINDS[error.code] ?? (status >= 500 ? 'internal' : 'badForm');
  const retryAfter = problemHeaders(error)['retry-after'];
  if (retryAfter !== undefined) reply.header('retry-after', retryAfter);
  renderErrorPage(request, reply, { kind, status });
}

/** Whether the answer is read by a person: a browser asks for HTML, a script of ours does not. */
export function wantsPage(request: FastifyRequest, path: string): boolean {
  if (path !== ACCOUNT_PATH && !path.startsWith(`${ACCOUNT_PATH}/`)) return false;
  return /\btext\/html\b/i.test(request.headers.accept ?? '');
}
