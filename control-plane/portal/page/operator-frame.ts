import type { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { localeOf, maybeCsrf, PageError, queryOf } from '../session/visit.ts';
import { errorPage } from './error-page.ts';
import { html } from './html.ts';
import type { IconName } from './icons.ts';
import { type PageContent, renderFramed } from './page-frame.ts';

export const OPERATOR_PATH = '/operator';
export const PAGES_PATH = `${OPERATOR_PATH}/pages`;

const ENTRIES = [
  { name: 'overview', path: OPERATOR_PATH, icon: 'overview' },
  { name: 'accounts', path: `${PAGES_PATH}/accounts`, icon: 'people' },
  { name: 'orders', path: `${PAGES_PATH}/orders`, icon: 'credits' },
  { name: 'nodes', path: `${PAGES_PATH}/nodes`, icon: 'nodes' },
  { name: 'jobs', path: `${PAGES_PATH}/jobs`, icon: 'jobs' },
  { name: 'notifications', path: `${PAGES_PATH}/notifications`, icon: 'webhooks' },
] as const satisfies readonly { name: string; path: string; icon: IconName }[];

export type OperatorVisit = ReturnType<typeof operatorVisitOf>;

export function operatorVisitOf(request: FastifyRequest) {
  const csrf = maybeCsrf(request);
  if (csrf === undefined) throw new Error('a route without a session asked for its token');
  const locale = localeOf(request);
  return { ...locale, own: locale.words.operator, csrf };
}

interface OperatorPage extends PageContent {
  readonly active?: (typeof ENTRIES)[number]['name'];
}

export function renderOperatorPage(reply: FastifyReply, page: OperatorPage): FastifyReply {
  const { request } = reply;
  const { operator: own } = localeOf(request).words;
  const isSignedIn = maybeCsrf(request) !== undefined;
  const nav = ENTRIES.map(({ name, path: href, icon }) => {
    return { href, label: own[name].title, icon, active: name === page.active };
  });
  return renderFramed(
    reply,
    { ...page, notices: own.notices },
    { path: OPERATOR_PATH, nav: isSignedIn ? nav : [], navigation: own.title, area: own.title },
  );
}

/** Errors are in English, as in the command line. Hides causes of failures. */
export function writeOperatorError(
  error: PageError | ContractError,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  const { notFound, toOverview: label } = localeOf(request).words.operator;
  const isSilent = error instanceof PageError || error.spec.http === 500;
  const detail = isSilent ? undefined : error.message;
  const way = { href: OPERATOR_PATH, label, notFound, detail };
  renderOperatorPage(reply, errorPage(reply, error, way));
}

const VALUE_LENGTH_MAX = 200;

/** Undefined: absent, empty, given twice or too long. */
export function queryValue(request: FastifyRequest, name: string): string | undefined {
  const value = queryOf(request, name);
  if (typeof value !== 'string') return undefined;
  const text = value.trim();
  return text === '' || text.length > VALUE_LENGTH_MAX ? undefined : text;
}

export function queryChoice<T extends string>(
  request: FastifyRequest,
  name: string,
  choices: readonly T[],
): T | undefined {
  const value = queryValue(request, name);
  return choices.find(choice => choice === value);
}

export type AccountNames = ReadonlyMap<string, string>;

export function accountLink(id: string, names: AccountNames): VNode {
  return html`<a href=${`${PAGES_PATH}/accounts/${id}`}>${names.get(id) ?? id}</a>`;
}
