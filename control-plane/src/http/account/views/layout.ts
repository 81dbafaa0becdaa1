/** The frame of every page: navigation, the account and the person, the page's head, its content. */
import type { VNode } from 'preact';
import { LANGUAGES, type Language, type Words } from '../words/words.ts';
import { button } from './components/buttons.ts';
import { postForm } from './components/fields.ts';
import { notice } from './components/marks.ts';
import { type Child, html } from './html.ts';
import { type IconName, icon, mark } from './icons.ts';

export interface NavLink {
  readonly href: string;
  readonly label: string;
  readonly icon: IconName;
  readonly active: boolean;
}

/** Who is signed in; the parts of it that the frame shows. */
export interface Viewer {
  readonly mail: string;
  readonly accountId: string;
  readonly accountName: string;
  readonly roleName: string;
  readonly csrf: string;
  /** The accounts that the person may act for. */
  readonly accounts: readonly { readonly id: string; readonly name: string }[];
}

/** What a page is apart from its frame. */
export interface PageContent {
  /** The page's one h1, and the title of the window. */
  readonly title: string;
  /** One sentence below it. */
  readonly lead?: Child;
  /** Buttons beside it. */
  readonly actions?: Child;
  /** The list that the page is one row of. */
  readonly back?: { readonly href: string; readonly label: string };
  readonly main: Child;
}

export interface FrameProps extends PageContent {
  readonly language: Language;
  readonly words: Words;
  /** Undefined: a stranger's page, in one narrow column. */
  readonly viewer: Viewer | undefined;
  readonly nav: readonly NavLink[];
  /** Where the mark leads: `/account`. */
  readonly home: string;
  /** Path and query of this page. */
  readonly address: string;
  /** What the last change came to. */
  readonly said?: string | undefined;
  readonly styleHref: string;
  readonly iconHref: string;
  readonly scriptHrefs: readonly string[];
  /** Where the forms of the frame go: below it are `/sign-out` and `/language`. Absent: nowhere. */
  readonly forms?: { readonly path: string; readonly csrf: string } | undefined;
}

export function pageDocument(props: FrameProps): VNode {
  const { language, words, title, viewer, styleHref, iconHref, scriptHrefs } = props;
  const owner = viewer === undefined ? words.common.product : viewer.accountName;
  return html`<html lang=${language}>
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <meta name="color-scheme" content="light dark" />
      <meta name="robots" content="noindex" />
      <title>${`${title} · ${owner}`}</title>
      <link rel="stylesheet" href=${styleHref} />
      <link rel="icon" type="image/svg+xml" href=${iconHref} />
      ${scriptHrefs.map(href => html`<script type="module" src=${href}></script>`)}
    </head>
    ${props.nav.length === 0 ? strangersBody(props) : framedBody(props)}
  </html>`;
}

function framedBody(props: FrameProps): VNode {
  const { words, home, viewer } = props;
  return html`<body>
    <a class="skip" href="#main">${words.common.skip}</a>
    <div class="frame">
      <header class="bar">
        ${brand(home, words)}
        <button type="button" class="button quiet menu-button" popovertarget="menu">
          ${icon('menu')}<span>${words.common.menu}</span>
        </button>
      </header>
      <nav class="side" id="menu" popover="auto" aria-label=${words.common.navigation}>
        <div class="side-brand">${brand(home, words)}</div>
        ${viewer === undefined ? null : accountSwitch(viewer, words)}
        ${navList(props.nav)}
        <div class="side-foot">${viewer === undefined ? null : person(viewer, words)}
          ${languageForms(props)}${signOutForm(props)}
        </div>
      </nav>
      ${mainOf(props)}
    </div>
  </body>`;
}

function strangersBody(props: FrameProps): VNode {
  const { words, home } = props;
  return html`<body class="narrow">
    <a class="skip" href="#main">${words.common.skip}</a>
    <header class="bar">${brand(home, words)}${languageLinks(props)}</header>
    ${mainOf(props)}
  </body>`;
}

function mainOf({ title, lead, actions, back, main, said }: FrameProps): VNode {
  return html`<main id="main" tabindex="-1">
    ${back === undefined ? null : html`<a class="back" href=${back.href}>${icon('down')}${back.label}</a>`}
    <div class="page-head">
      <div><h1>${title}</h1>${lead ? html`<p class="lead">${lead}</p>` : null}</div>
      ${actions ? html`<div class="actions">${actions}</div>` : null}
    </div>
    ${said === undefined ? null : notice('good', said)}
    ${main}
  </main>`;
}

function brand(home: string, words: Words): VNode {
  return html`<a class="brand" href=${home}>${mark()}<span>${words.common.product}</span></a>`;
}

function navList(links: readonly NavLink[]): VNode {
  return html`<ul class="nav">${links.map(
    link => html`<li><a href=${link.href} aria-current=${link.active ? 'page' : undefined}>
      ${icon(link.icon)}<span>${link.label}</span></a></li>`,
  )}</ul>`;
}

function accountSwitch(viewer: Viewer, words: Words): VNode {
  const { accountId, accountName, accounts, roleName, csrf } = viewer;
  const name = html`<span class="account-name"><b>${accountName}</b><small>${roleName}</small></span>`;
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

function person(viewer: Viewer, words: Words): VNode {
  return html`<a class="person" href="/account/profile" title=${words.nav.profile}>
    ${icon('profile')}<span>${viewer.mail}</span></a>`;
}

/** A change that is kept, and so a form; it comes back to this page. */
function languageForms({ language, words, forms, address }: FrameProps): VNode | null {
  if (forms === undefined) return null;
  const others = LANGUAGES.filter(one => one !== language);
  const hidden = { back: address };
  return postForm(
    { action: `${forms.path}/language`, csrf: forms.csrf, hidden, class: 'inline' },
    html`<span class="silent">${words.common.language}</span>`,
    others.map(
      one => html`<button type="submit" class="button quiet small" name="language" value=${one}
        lang=${one}>${LANGUAGE_NAMES[one]}</button>`,
    ),
  );
}

/** A stranger's choice is kept nowhere but in the address. */
function languageLinks({ language, address }: FrameProps): VNode {
  const [path = '', query = ''] = address.split('?');
  return html`<div class="languages">${LANGUAGES.filter(one => one !== language).map(one => {
    const parameters = new URLSearchParams(query);
    parameters.set('language', one);
    return html`<a href=${`${path}?${parameters}`} lang=${one} hreflang=${one}>${LANGUAGE_NAMES[one]}</a>`;
  })}</div>`;
}

function signOutForm({ forms, words }: FrameProps): VNode | null {
  if (forms === undefined) return null;
  return postForm(
    { action: `${forms.path}/sign-out`, csrf: forms.csrf, class: 'inline' },
    html`<button type="submit" class="button quiet small">${icon('out')}${words.common.signOut}</button>`,
  );
}

const LANGUAGE_NAMES: Readonly<Record<Language, string>> = { en: 'English', 'zh-CN': '简体中文' };
