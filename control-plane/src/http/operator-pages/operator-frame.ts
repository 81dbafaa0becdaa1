/** The frame of the operator's pages: their navigation, language and errors. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { assetHref } from '../account/page/assets.ts';
import { PAGE_HEADERS } from '../account/page/page-headers.ts';
import { languageOf } from '../account/page/page-request.ts';
import { saidOf } from '../account/page/render-page.ts';
import { html, renderDocument } from '../account/views/html.ts';
import type { IconName } from '../account/views/icons.ts';
import { type NavLink, type PageContent, pageDocument } from '../account/views/layout.ts';
import { type Formats, formatsIn } from '../account/words/formats.ts';
import { fill, isLanguage, type Language, type Words, wordsIn } from '../account/words/words.ts';

export const OPERATOR_PATH = '/operator';
export const PAGES_PATH = `${OPERATOR_PATH}/pages`;
export const LANGUAGE_COOKIE = 'matting-operator-language';

const ENTRIES = [
  { name: 'overview', path: OPERATOR_PATH, icon: 'overview' },
  { name: 'accounts', path: `${PAGES_PATH}/accounts`, icon: 'people' },
  { name: 'orders', path: `${PAGES_PATH}/orders`, icon: 'credits' },
  { name: 'nodes', path: `${PAGES_PATH}/nodes`, icon: 'nodes' },
  { name: 'jobs', path: `${PAGES_PATH}/jobs`, icon: 'jobs' },
  { name: 'notifications', path: `${PAGES_PATH}/notifications`, icon: 'bell' },
] as const satisfies readonly { name: string; path: string; icon: IconName }[];

export type OperatorEntry = (typeof ENTRIES)[number]['name'];

/** The hidden field of the forms of who is signed in. */
const tokens = new WeakMap<FastifyRequest, string>();

/** @param csrf undefined: there is no session (any more) */
export function setCsrf(request: FastifyRequest, csrf: string | undefined): void {
  if (csrf === undefined) tokens.delete(request);
  else tokens.set(request, csrf);
}

export function maybeCsrf(request: FastifyRequest): string | undefined {
  return tokens.get(request);
}

/** Only for routes behind the session. */
export function csrfOf(request: FastifyRequest): string {
  const csrf = tokens.get(request);
  if (csrf === undefined) throw new Error('a route without a session asked for its token');
  return csrf;
}

export interface Tongue {
  readonly language: Language;
  readonly words: Words;
  readonly formats: Formats;
  /** The section of these pages. */
  readonly own: Words['operator'];
}

/** What was chosen here, else what the browser asks for. */
export function tongueOf(request: FastifyRequest): Tongue {
  const chosen = request.cookies[LANGUAGE_COOKIE];
  const language = isLanguage(chosen) ? chosen : languageOf(request);
  const words = wordsIn(language);
  return { language, words, formats: formatsIn(language), own: words.operator };
}

export interface OperatorPage extends PageContent {
  readonly active?: OperatorEntry;
  readonly status?: number;
}

export function renderOperatorPage(
  request: FastifyRequest,
  reply: FastifyReply,
  page: OperatorPage,
): FastifyReply {
  const { language, words, own } = tongueOf(request);
  const csrf = maybeCsrf(request);
  const document = pageDocument({
    ...page,
    language,
    words: { ...words, common: { ...words.common, navigation: own.title } },
    viewer: undefined,
    nav: csrf === undefined ? [] : navOf(own, page.active),
    forms: csrf === undefined ? undefined : { path: OPERATOR_PATH, csrf },
    home: OPERATOR_PATH,
    address: request.url,
    said: saidOf(request, own.said),
    styleHref: assetHref(OPERATOR_PATH, 'style.css'),
    iconHref: assetHref(OPERATOR_PATH, 'mark.svg'),
    scriptHrefs: ['copy.js', 'confirm.js', 'times.js'].map(name => assetHref(OPERATOR_PATH, name)),
  });
  return reply
    .code(page.status ?? 200)
    .headers(PAGE_HEADERS)
    .send(renderDocument(document));
}

function navOf(own: Words['operator'], active: OperatorEntry | undefined): NavLink[] {
  return ENTRIES.map(({ name, path, icon }) => ({
    href: path,
    label: own[name].title,
    icon,
    active: name === active,
  }));
}

export type OperatorErrorKind =
  | 'notFound'
  | 'badForm'
  | 'otherOrigin'
  | 'staleForm'
  | 'insecure'
  | 'tooManyAttempts'
  | 'unavailable'
  | 'internal';

/** @param error.detail for the operator, in English, as the command line says it */
export function renderOperatorError(
  request: FastifyRequest,
  reply: FastifyReply,
  error: { readonly kind: OperatorErrorKind; readonly status: number; readonly detail?: string },
): FastifyReply {
  const { words, own } = tongueOf(request);
  const { title, text } = words.errors[error.kind];
  return renderOperatorPage(request, reply, {
    title,
    status: error.status,
    main: html`<div class="stack">
      <p>${error.kind === 'notFound' ? own.notFound : text}</p>
      ${error.detail === undefined ? null : html`<p><code>${error.detail}</code></p>`}
      <p class="actions"><a class="button secondary" href=${OPERATOR_PATH}>${own.toOverview}</a></p>
      <p class="hint">${fill(words.errors.requestId, { id: request.id })}</p>
    </div>`,
  });
}
