/**
 * The documents in the frame of the account's pages, with search and contents. They are public and
 * cached, so they have no session, and need no account area.
 */

import type { Brand } from '../page/brand.ts';
import { ACCOUNT_PATH, type Child, DOCS_PATH, html, renderDocument } from '../page/html.ts';
import { POLICY, pageDocument } from '../page/page-frame.ts';
import { formatsIn, wordsIn } from '../words/words.ts';

export const SCHEMAS_PATH = '/docs/schemas';
export const LLMS_PATH = '/llms.txt';
export const CLIENT_PATH = '/client.tgz';

export const HTML_PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': POLICY,
} as const;

export type Navigation = readonly {
  readonly group: string;
  readonly links: readonly { readonly href: string; readonly label: string }[];
}[];

export interface DocumentFrame {
  readonly navigation: Navigation;
  readonly path: string;
  readonly brand: Brand;
  readonly hasAccountArea: boolean;
}

interface HtmlPage extends DocumentFrame {
  readonly title: string;
  readonly lead?: Child;
  readonly contents: Child;
  readonly main: Child;
}

const ENGLISH = { language: 'en', words: wordsIn('en'), formats: formatsIn('en') } as const;

export function renderHtmlPage(page: HtmlPage): string {
  const { navigation, path, hasAccountArea, contents, ...content } = page;
  const icon = 'overview' as const;
  const account = { href: ACCOUNT_PATH, label: 'Your account', icon, active: false };
  const documents = navigation.flatMap(({ group, links }) =>
    links.map(({ href, label }, index) => ({
      ...{ href, label, active: href === path, group: index === 0 ? group : undefined },
      below: href === path ? html`<ul class="contents">${contents}</ul>` : undefined,
    })),
  );
  return renderDocument(
    pageDocument({
      ...content,
      ...ENGLISH,
      path: DOCS_PATH,
      nav: [...(hasAccountArea ? [account] : []), ...documents],
      navigation: 'Documentation',
      sheet: 'documents.css',
      scripts: ['find.js', 'copy-code.js', 'moved.js'],
      search: html`<div role="search" id="find" hidden>
<label for="words">Search the documentation</label>
<input type="search" id="words" autocomplete="off" spellcheck="false" />
<p role="status" class="soft"></p>
<ol></ol>
</div>`,
      address: path,
      csrf: undefined,
      outcome: undefined,
    }),
  );
}
