/** Answers with a page of the account area; a refusal or a failure too, in words. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ContractError, ErrorCode } from '#contract/errors.ts';
import { problemHeaders } from '../../http/error-handler.ts';
import type { Role } from '../people/roles.ts';
import { PageError } from '../session/page-error.ts';
import { localeOf, maybeSignedIn } from '../session/visit.ts';
import { fill, type Words } from '../words/words.ts';
import { type PageContent, renderFramed } from './frame.ts';
import { html } from './html.ts';
import type { IconName } from './icons.ts';

export const ACCOUNT_PATH = '/account';

/** Entries of the navigation, in its order, and the roles that see them. */
const ENTRIES = [
  { name: 'overview', path: '' },
  { name: 'keys', path: '/keys' },
  { name: 'credits', path: '/credits' },
  { name: 'usage', path: '/usage' },
  { name: 'jobs', path: '/jobs' },
  { name: 'playground', path: '/playground', roles: ['owner', 'member'] },
  { name: 'people', path: '/people', roles: ['owner'] },
  { name: 'settings', path: '/settings', roles: ['owner'] },
  { name: 'audit', path: '/audit', roles: ['owner'] },
] as const satisfies readonly {
  name: IconName & keyof Words['nav'];
  path: string;
  roles?: readonly Role[];
}[];

interface Page extends PageContent {
  readonly active?: (typeof ENTRIES)[number]['name'];
}

export function renderPage(reply: FastifyReply, page: Page): FastifyReply {
  const { request } = reply;
  const person = maybeSignedIn(request);
  const { words } = localeOf(request);
  const seen = ENTRIES.filter(
    entry => person && (!('roles' in entry) || entry.roles.some(role => role === person.role)),
  );
  const nav = seen.map(({ name, path }) => ({
    href: `${ACCOUNT_PATH}${path}`,
    label: words.nav[name],
    icon: name,
    active: name === page.active,
  }));
  const { navigation } = words.common;
  return renderFramed(reply, page, { path: ACCOUNT_PATH, nav, navigation, person });
}

/** Sections of `words.errors` that are pages. */
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
 * What the page of an error says: in words, with the request's number, and a way on. Sets Retry-After.
 * @param way.notFound other words for what is not there
 * @param way.detail for the operator, in English, as the command line says it
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

/** A refusal, or an error of the catalogue, as a page. @see createErrorHandler */
export function writeErrorPage(
  error: PageError | ContractError,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const { errors } = localeOf(request).words;
  const label = maybeSignedIn(request) === undefined ? errors.toSignIn : errors.toOverview;
  const page = errorPage(reply, error, { href: ACCOUNT_PATH, label });
  return renderPage(reply, page);
}

/** Whether the answer is read by a person: a browser asks for HTML, a script of ours does not. */
export function wantsPage(request: FastifyRequest, path: string): boolean {
  if (path !== ACCOUNT_PATH && !path.startsWith(`${ACCOUNT_PATH}/`)) return false;
  return /\btext\/html\b/i.test(request.headers.accept ?? '');
}
