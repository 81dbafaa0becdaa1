import type { FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { type Locale, localeOf, maybeCsrf, queryOf, type SignedIn } from '../session/visit.ts';
import { LANGUAGES, type Language, type Words } from '../words/words.ts';
import { assetHref, hrefOf } from './assets.ts';
import { type Brand, brandOf } from './brand.ts';
import { button } from './buttons.ts';
import { postForm } from './forms.ts';
import { ACCOUNT_PATH, type Child, DOCS_PATH, html, renderDocument } from './html.ts';
import { type IconName, icon, mark } from './icons.ts';
import { notice } from './sections.ts';

export interface PageContent {
  /** The page's only h1, and the title of the window. */
  readonly title: string;
  readonly lead?: Child;
  readonly actions?: Child;
  readonly back?: { readonly href: string; readonly label: string };
  readonly main: Child;
  readonly aside?: Child;
  readonly status?: number;
  readonly scripts?: readonly string[];
  /** Texts of the codes of `?said=`, so that no free text of an address gets onto a page. */
  readonly notices?: Readonly<Record<string, string>>;
}

export interface NavLink {
  readonly href: string;
  readonly label: string;
  readonly icon?: IconName;
  readonly active: boolean;
  /** Starts a group of links of this name. */
  readonly group?: string | undefined;
  readonly below?: Child;
}

interface Frame {
  /** The logo links here. Below it are the assets, and the forms `/sign-out` and `/language`. */
  readonly path: string;
  /** Links of the navigation. Empty: a page before sign-in, in one narrow column. */
  readonly nav: readonly NavLink[];
  readonly navigation: string;
  readonly search?: Child;
  readonly sheet?: string;
  /** The name of pages outside of an account, next to the logo and in the title. */
  readonly area?: string;
  readonly person?: SignedIn | undefined;
}

type FrameProps = Omit<PageContent, 'notices'> &
  Frame &
  Locale & {
    readonly brand: Brand | undefined;
    readonly address: string;
    readonly csrf: string | undefined;
    readonly outcome: string | undefined;
  };

export const POLICY = [
  "default-src 'none'",
  "style-src 'self'",
  "script-src 'self'",
  // Pictures that a script drew or the person chose.
  "img-src 'self' blob: data:",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');

const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': POLICY,
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=(), payment=(), usb=()',
  'cache-control': 'no-store',
  'x-robots-tag': 'noindex',
} as const;

export function renderFramed(reply: FastifyReply, page: PageContent, frame: Frame): FastifyReply {
  const { request } = reply;
  const csrf = maybeCsrf(request);
  const outcome = noticeOf(request, page.notices);
  const locale = localeOf(request);
  const more = { csrf, outcome, brand: brandOf(request), address: request.url };
  const scripts = ['copy.js', 'confirm.js', 'times.js', ...(page.scripts ?? [])];
  const document = pageDocument({ ...page, ...frame, ...locale, ...more, scripts });
  return reply
    .code(page.status ?? 200)
    .headers(PAGE_HEADERS)
    .send(renderDocument(document));
}

function noticeOf(request: FastifyRequest, words: PageContent['notices']): string | undefined {
  const code = queryOf(request, 'said');
  if (words === undefined || typeof code !== 'string') return undefined;
  return Object.hasOwn(words, code) ? words[code] : undefined;
}

export function pageDocument(props: FrameProps): VNode {
  const { language, title, person, path, brand, area, sheet, scripts = [] } = props;
  const owner = person?.accountName ?? [productOf(props), area].filter(Boolean).join(' · ');
  const favicon =
    brand?.logo === undefined ? assetHref(path, 'mark.svg') : hrefOf(path, brand.logo);
  return html`<html lang=${language}>
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <meta name="color-scheme" content="light dark" />
      <title>${`${title} · ${owner}`}</title>
      <script src=${assetHref(path, 'theme.js')}></script>
      <link rel="stylesheet" href=${assetHref(path, 'style.css')} />
      ${sheet ? html`<link rel="stylesheet" href=${assetHref(path, sheet)} />` : null}
      ${brand?.style ? html`<link rel="stylesheet" href=${hrefOf(path, brand.style)} />` : null}
      <link rel="icon" type=${brand?.logo?.type ?? 'image/svg+xml'} href=${favicon} />
      ${scripts.map(name => html`<script type="module" src=${assetHref(path, name)}></script>`)}
    </head>
    ${props.nav.length === 0 ? strangersBody(props) : framedBody(props)}
  </html>`;
}

function framedBody(props: FrameProps): VNode {
  const { words, person, navigation } = props;
  return html`<body class=${props.area === undefined ? undefined : 'operator'}>
    <a class="skip" href="#main">${words.common.skip}</a>
    <div class="frame">
      <header class="bar">
        ${brandLink(props)}
        <button type="button" class="button quiet menu-button" popovertarget="menu">
          ${icon('menu')}<span>${words.common.menu}</span>
        </button>
      </header>
      <nav class="side" id="menu" popover="auto" aria-label=${navigation}>
        <div class="side-brand">${brandLink(props)}</div>
        ${person === undefined ? null : accountSwitch(person, words)}${props.search}
        ${navList(props.nav)}
        <div class="side-foot">${person === undefined ? null : profileLink(person, words)}
          ${languageForms(props)}${themeChoice(words)}${signOutForm(props)}
        </div>
      </nav>
      ${mainOf(props)}
    </div>
  </body>`;
}

function strangersBody(props: FrameProps): VNode {
  const { words, area } = props;
  return html`<body class=${area === undefined ? 'narrow' : 'narrow operator'}>
    <a class="skip" href="#main">${words.common.skip}</a>
    <header class="bar">${brandLink(props)}${languageLinks(props)}</header>
    ${
      props.aside === undefined
        ? mainOf(props)
        : html`<div class="beside">${mainOf(props)}<aside>${props.aside}</aside></div>`
    }
  </body>`;
}

function mainOf({ title, lead, actions, back, main, outcome }: FrameProps): VNode {
  return html`<main id="main" tabindex="-1">
    ${back === undefined ? null : html`<a class="back" href=${back.href}>${icon('down')}${back.label}</a>`}
    <div class="page-head">
      <div><h1>${title}</h1>${lead ? html`<p class="lead">${lead}</p>` : null}</div>
      ${actions ? html`<div class="actions">${actions}</div>` : null}
    </div>
    ${outcome === undefined ? null : notice('good', outcome)}
    ${main}
  </main>`;
}

function brandLink(props: FrameProps): VNode {
  const { path, brand, area } = props;
  const logo = brand?.logo;
  return html`<a class="brand" href=${path}>
    ${logo === undefined ? mark() : html`<img class="logo" src=${hrefOf(path, logo)} alt="" />`}
    <span>${productOf(props)}</span>${area === undefined ? null : html`<span class="area">${area}</span>`}
  </a>`;
}

function productOf({ brand, words }: FrameProps): string {
  return brand?.name ?? words.common.product;
}

function navList(links: readonly NavLink[]): VNode {
  return html`<ul class="nav">${links.map(
    link => html`${link.group && html`<li class="nav-group">${link.group}</li>`}<li><a href=${link.href} aria-current=${link.active ? 'page' : undefined}>
      ${link.icon && icon(link.icon)}<span>${link.label}</span></a>${link.below}</li>`,
  )}</ul>`;
}

/** A script shows the choice, and stores it in the browser. */
function themeChoice({ common }: Words): VNode {
  return html`<label class="theme" hidden><span class="silent">${common.theme}</span>
    <select>${Object.entries(common.themes).map(
      ([value, label]) => html`<option value=${value}>${label}</option>`,
    )}</select></label>`;
}

function accountSwitch(person: SignedIn, words: Words): VNode {
  const { accountId, accountName, accounts, role, csrf } = person;
  const name = html`<span class="account-name"><b>${accountName}</b><small>${words.roles[role]}</small></span>`;
  const others = accounts.filter(({ id }) => id !== accountId);
  if (others.length === 0) return html`<div class="account">${name}</div>`;
  return html`<details class="account">
    <summary aria-label=${`${words.common.switchAccount}: ${accountName}`}>${name}${icon('down')}</summary>
    ${postForm(
      { action: '/account/switch', csrf, class: 'stack' },
      others.map(({ id, name }) =>
        button({ label: name, kind: 'quiet', name: 'account', value: id }),
      ),
    )}
  </details>`;
}

function profileLink({ mail }: SignedIn, words: Words): VNode {
  return html`<a class="person" href="/account/profile" title=${words.nav.profile}>
    ${icon('profile')}<span>${mail}</span></a>`;
}

/** The service stores the choice, so this is a form, which leads back to this page. */
function languageForms({ language, words, path, csrf, address }: FrameProps): VNode | null {
  if (csrf === undefined) return null;
  const others = LANGUAGES.filter(one => one !== language);
  const hidden = { back: address };
  return postForm(
    { action: `${path}/language`, csrf, hidden, class: 'inline' },
    html`<span class="silent">${words.common.language}</span>`,
    others.map(
      one => html`<button type="submit" class="button quiet small" name="language" value=${one}
        lang=${one}>${LANGUAGE_NAMES[one]}</button>`,
    ),
  );
}

/** Before sign-in the choice is only in the address. */
function languageLinks({ language, words, path: area, address }: FrameProps): VNode {
  const [path = '', query = ''] = address.split('?');
  const docs = area === ACCOUNT_PATH ? html`<a href=${DOCS_PATH}>${words.nav.docs}</a>` : null;
  return html`<div class="languages">${docs}${LANGUAGES.filter(one => one !== language).map(one => {
    const parameters = new URLSearchParams(query);
    parameters.set('language', one);
    return html`<a href=${`${path}?${parameters}`} lang=${one} hreflang=${one}>${LANGUAGE_NAMES[one]}</a>`;
  })}</div>`;
}

function signOutForm({ path, csrf, words }: FrameProps): VNode | null {
  if (csrf === undefined) return null;
  return postForm(
    { action: `${path}/sign-out`, csrf, class: 'inline' },
    html`<button type="submit" class="button quiet small">${icon('out')}${words.common.signOut}</button>`,
  );
}

const LANGUAGE_NAMES: Readonly<Record<Language, string>> = { en: 'English', 'zh-CN': '简体中文' };
