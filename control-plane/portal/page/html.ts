/**
 * Pages are trees of preact, written with htm. A value in `${}` is a child or an attribute and
 * cannot become markup. This module refuses what escaping cannot make safe: inline style and
 * script, and links of other schemes.
 */

import htm from 'htm';
import { h, type VNode } from 'preact';
import { renderToString } from 'preact-render-to-string';

/** Declared here so that documents can link to it without the account area's code. */
export const ACCOUNT_PATH = '/account';
export const DOCS_PATH = '/docs';

export type Child = VNode | string | number | null | undefined | false | readonly Child[];

const ADDRESSES = new Set(['href', 'src', 'action', 'formaction', 'poster']);
/** Paths of this host, anchors, http(s), mail, and pictures as data. */
const SAFE_ADDRESS = /^(?:$|\/(?![/\\])|[#?]|https?:\/\/|mailto:|data:image\/(?:png|webp|avif);)/i;
/** The pages' policy forbids `style` and `on…`. The other attributes insert text as markup. */
const REFUSED = /^(?:style|on.*|dangerouslySetInnerHTML|innerHTML|srcdoc)$/i;

class MarkupError extends Error {}

function element(this: unknown[], type: string, props: Props, ...children: Child[]): VNode {
  // Keeps htm from caching this subtree for the next page: preact writes on the nodes that it
  // renders.
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
 * html`<p class=${name}>${text}</p>`. Several roots give a list.
 * @throws MarkupError for a forbidden attribute
 */
export const html = (htm as unknown as Htm).bind(element);

interface Htm {
  bind(create: typeof element): (strings: TemplateStringsArray, ...values: unknown[]) => VNode;
}

export function renderDocument(root: VNode): string {
  return `<!doctype html>${renderToString(root)}`;
}
