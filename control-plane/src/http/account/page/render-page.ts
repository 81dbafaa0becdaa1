/** Answers with a page of the account area: the frame, the policy's headers, the right language. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { renderDocument } from '../views/html.ts';
import type { IconName } from '../views/icons.ts';
import { type NavLink, type PageContent, pageDocument, type Viewer } from '../views/layout.ts';
import type { Words } from '../words/words.ts';
import { assetHref } from './assets.ts';
import { PAGE_HEADERS } from './page-headers.ts';
import { languageOf, type PageViewer, pageViewerOf, wordsOf } from './page-request.ts';

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
  roles?: readonly PageViewer['role'][];
}[];

export type NavEntry = (typeof ENTRIES)[number]['name'] | 'profile';

export interface Page extends PageContent {
  readonly active?: NavEntry;
  /** 200 where absent. */
  readonly status?: number;
  /** Files of assets/ that this page runs, beside those that every page runs. */
  readonly scripts?: readonly string[];
  /**
   * What the last change came to, by the code of `?said=`: `words.keys.said`. Free text of an address
   * never gets onto a page.
   */
  readonly said?: Readonly<Record<string, string>>;
}

/** They run on every page. */
const SCRIPTS = ['copy.js', 'confirm.js', 'times.js'] as const;

export function renderPage(request: FastifyRequest, reply: FastifyReply, page: Page): FastifyReply {
  const viewer = pageViewerOf(request);
  const words = wordsOf(request);
  const scripts = [...SCRIPTS, ...(page.scripts ?? [])];
  const document = pageDocument({
    ...page,
    language: languageOf(request),
    words,
    viewer: viewer && frameViewerOf(viewer, words),
    forms: viewer && { path: ACCOUNT_PATH, csrf: viewer.csrf },
    nav: viewer === undefined ? [] : navOf(viewer, words, page.active),
    home: ACCOUNT_PATH,
    address: request.url,
    said: saidOf(request, page.said),
    styleHref: assetHref(ACCOUNT_PATH, 'style.css'),
    iconHref: assetHref(ACCOUNT_PATH, 'mark.svg'),
    scriptHrefs: scripts.map(name => assetHref(ACCOUNT_PATH, name)),
  });
  return reply
    .code(page.status ?? 200)
    .headers(PAGE_HEADERS)
    .send(renderDocument(document));
}

function frameViewerOf(viewer: PageViewer, words: Words): Viewer {
  return { ...viewer, roleName: words.roles[viewer.role] };
}

function navOf(viewer: PageViewer, words: Words, active: NavEntry | undefined): NavLink[] {
  const seen = ENTRIES.filter(
    entry => !('roles' in entry) || entry.roles.some(role => role === viewer.role),
  );
  return seen.map(({ name, path }) => ({
    href: `${ACCOUNT_PATH}${path}`,
    label: words.nav[name],
    icon: name,
    active: name === active,
  }));
}

/** The words of a known code; anything else that stands in the address says nothing. */
export function saidOf(
  request: FastifyRequest,
  words: Readonly<Record<string, string>> | undefined,
): string | undefined {
  const { said } = (request.query ?? {}) as Record<string, unknown>;
  if (words === undefined || typeof said !== 'string') return undefined;
  return Object.hasOwn(words, said) ? words[said] : undefined;
}
