/**
 * Pages are trees, never text put together. `html` is htm bound to preact. A value in `${}` is a
 * child or an attribute that cannot become markup. This module refuses what escaping cannot make
 * safe: inline style and script, and links of other schemes.
 */

import htm from 'htm';
import { h, type VNode } from 'preact';
import { renderToString } from 'preact-render-to-string';

/** The account area has this path; documents link to it without loading its code. */
export const ACCOUNT_PATH = '/account';
export const DOCS_PATH = '/docs';

export type Child = VNode | string | number | null | undefined | false | readonly Child[];

const ADDRESSES = new Set(['href', 'src', 'action', 'formaction', 'poster']);
/** Allows paths of this host, anchors, other hosts by http(s), mail, and pictures of scripts. */
const SAFE_ADDRESS = /^(?:$|\/(?![/\\])|[#?]|https?:\/\/|mailto:|data:image\/(?:png|webp|avif);)/i;
/** The policy of the pages forbids the first two; the others insert markup as text. */
const REFUSED = /^(?:style|on.*|dangerouslySetInnerHTML|innerHTML|srcdoc)$/i;

/** A page was to have what no page may have, which is a mistake of the page. */
class MarkupError extends Error {}

function element(this: unknown[], type: string, props: Props, ...children: Child[]): VNode {
  // Tells htm not to keep this subtree for the next page: preact writes on the nodes it renders.
  this[0] = 3;
  for (const [name, value] of Object.entries(props ?? {})) {
    if (REFUSED.test(name)) throw new MarkupError(`<${type}> has the attribute ${name}`);
    if (!ADDRESSES.has(name.toLowerCase()) || value === undefined || value === null) continue;
    if (!SAFE_ADDRESS.test(String(value))) {
      throw new MarkupError(`<${type} ${name}> leads to another scheme or by another host's name`);
    }
  }
  return h(type, props, ...children);
}

type Props = Record<string, unknown> | null;

/**
 * A tree of the page: html`<p class=${name}>${text}</p>`. Several roots are a list of children.
 * @throws MarkupError for an attribute that a page must not have
 */
export const html = (htm as unknown as Htm).bind(element);

interface Htm {
  bind(create: typeof element): (strings: TemplateStringsArray, ...values: unknown[]) => VNode;
}

export function renderDocument(root: VNode): string {
  return `<!doctype html>${renderToString(root)}`;
}
