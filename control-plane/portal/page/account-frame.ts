import type { HttpInterface } from '@matting/core/http/public-app.ts';
import type { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { may, type Permission } from '../session/roles.ts';
import { localeOf, maybeSignedIn, type PageError } from '../session/visit.ts';
import type { Words } from '../words/words.ts';
import { errorPage } from './error-page.ts';
import { ACCOUNT_PATH, DOCS_PATH } from './html.ts';
import type { IconName } from './icons.ts';
import { type NavLink, type PageContent, renderFramed } from './page-frame.ts';

const ENTRIES = [
  { name: 'overview', path: '', permission: 'overview.read' },
  { name: 'playground', path: '/playground', permission: 'playground.use' },
  { name: 'jobs', path: '/jobs', permission: 'jobs.read' },
  { name: 'webhooks', path: '/webhooks', permission: 'jobs.read' },
  { name: 'keys', path: '/keys', permission: 'keys.read' },
  { name: 'credits', path: '/credits', permission: 'credits.read', group: 'billing' },
  { name: 'usage', path: '/usage', permission: 'usage.read' },
  { name: 'people', path: '/people', permission: 'people.manage', group: 'account' },
  { name: 'settings', path: '/settings', permission: 'settings.manage' },
  { name: 'audit', path: '/audit', permission: 'audit.read' },
] as const satisfies readonly {
  name: IconName & keyof Words['nav'];
  path: string;
  permission: Permission;
  group?: keyof Words['navGroups'];
}[];

interface Page extends PageContent {
  /** The name of its link in the navigation. */
  readonly active?: string;
}

export type AccountPage = NonNullable<HttpInterface['accountPages']>[number];

const described = new WeakMap<FastifyRequest, readonly AccountPage[]>();

export function notePages(request: FastifyRequest, pages: readonly AccountPage[]): void {
  described.set(request, pages);
}

export function pathOfEvent(request: FastifyRequest, event: string): string | undefined {
  const page = described.get(request)?.find(one => one.event === event);
  return page && `${ACCOUNT_PATH}/${page.name}`;
}

export function renderPage(reply: FastifyReply, page: Page): FastifyReply {
  const { request } = reply;
  const person = maybeSignedIn(request);
  const { words, language } = localeOf(request);
  const more = (described.get(request) ?? []).map(({ name, words: own }): NavLink => {
    const href = `${ACCOUNT_PATH}/${name}`;
    return { href, label: own[language].title, icon: 'described', active: name === page.active };
  });
  const seen = ENTRIES.filter(({ permission }) => person && may(person.role, permission));
  const entries = seen.flatMap(({ name, path, ...entry }) => {
    const link = {
      href: `${ACCOUNT_PATH}${path}`,
      label: words.nav[name],
      icon: name,
      active: name === page.active,
      group: 'group' in entry ? words.navGroups[entry.group] : undefined,
    };
    return name === 'jobs' ? [link, ...more] : [link];
  });
  const help = { icon: 'docs', active: false, group: words.navGroups.help } as const;
  const nav = person ? [...entries, { href: DOCS_PATH, label: words.nav.docs, ...help }] : [];
  const { navigation } = words.common;
  return renderFramed(reply, page, { path: ACCOUNT_PATH, nav, navigation, person });
}

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

/** Browsers ask for HTML, our scripts do not. */
export function wantsPage(request: FastifyRequest, path: string): boolean {
  if (path !== ACCOUNT_PATH && !path.startsWith(`${ACCOUNT_PATH}/`)) return false;
  return /\btext\/html\b/i.test(request.headers.accept ?? '');
}
