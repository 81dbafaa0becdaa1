/** A page as a browser reads it: scripts, targets of forms and links, visible text. */
import { type DefaultTreeAdapterMap, parse } from 'parse5';

type Node = DefaultTreeAdapterMap['node'];
type Element = DefaultTreeAdapterMap['element'];

export interface PageForm {
  readonly action: string;
  readonly method: string;
  readonly fields: ReadonlyMap<string, string>;
}

export class ReadPage {
  readonly #elements: readonly Element[];
  readonly text: string;

  constructor(html: string) {
    const document = parse(html);
    this.#elements = elementsOf(document);
    this.text = textOf(document);
  }

  all(name: string): readonly Element[] {
    return this.#elements.filter(({ tagName }) => tagName === name);
  }

  /** In text, or in a visible attribute. */
  shows(words: string): boolean {
    const values = this.#elements.flatMap(element =>
      ['title', 'value', 'aria-label', 'placeholder'].map(name => attributeOf(element, name) ?? ''),
    );
    return this.text.includes(words) || values.some(value => value.includes(words));
  }

  get links(): readonly string[] {
    return this.all('a').flatMap(element => attributeOf(element, 'href') ?? []);
  }

  get forms(): readonly PageForm[] {
    return this.all('form').map(form => ({
      action: attributeOf(form, 'action') ?? '',
      method: (attributeOf(form, 'method') ?? 'get').toLowerCase(),
      fields: fieldsOf(form),
    }));
  }

  get csrf(): string | undefined {
    return this.forms.map(({ fields }) => fields.get('csrf')).find(token => token !== undefined);
  }

  get dangers(): readonly string[] {
    return this.#elements.flatMap(element => dangersOf(element));
  }
}

const FORBIDDEN = ['iframe', 'object', 'embed', 'base', 'style', 'applet', 'frame', 'math'];
const ADDRESSES = ['href', 'src', 'action', 'formaction', 'srcset', 'poster', 'xlink:href', 'ping'];

function dangersOf(element: Element): string[] {
  const { tagName, attrs, childNodes } = element;
  const found = FORBIDDEN.includes(tagName) ? [`<${tagName}>`] : [];
  if (tagName === 'script' && childNodes.length > 0) found.push('script with text');
  if (tagName === 'meta' && attrs.some(({ name }) => name === 'http-equiv')) found.push('<meta>');
  for (const { name, value } of attrs) {
    if (/^on|^style$|^srcdoc$/.test(name)) found.push(`${tagName} ${name}=${value}`);
    if (ADDRESSES.includes(name) && !isOwnAddress(value)) found.push(`${tagName} ${name}=${value}`);
  }
  return found;
}

/** Allows this host, pictures in the page itself, and documents that pages name. */
function isOwnAddress(value: string): boolean {
  return /^\/(?![/\\])|^#|^\?|^$|^data:image\/(?:png|svg\+xml|jpeg)[;,]|^mailto:/.test(value);
}

export function attributeOf(element: Element, name: string): string | undefined {
  return element.attrs.find(attribute => attribute.name === name)?.value;
}

function fieldsOf(form: Element): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  for (const element of elementsOf(form)) {
    const name = attributeOf(element, 'name');
    if (name === undefined) continue;
    if (element.tagName === 'textarea') fields.set(name, textOf(element));
    if (element.tagName === 'select') fields.set(name, chosenOf(element));
    if (element.tagName !== 'input') continue;
    const isTicked = /^(?:checkbox|radio)$/.test(attributeOf(element, 'type') ?? '');
    if (isTicked && attributeOf(element, 'checked') === undefined) continue;
    fields.set(name, attributeOf(element, 'value') ?? '');
  }
  return fields;
}

function chosenOf(select: Element): string {
  const options = elementsOf(select).filter(({ tagName }) => tagName === 'option');
  const chosen = options.find(option => attributeOf(option, 'selected') !== undefined);
  const option = chosen ?? options[0];
  return option === undefined ? '' : (attributeOf(option, 'value') ?? textOf(option));
}

function childrenOf(node: Node): readonly Node[] {
  return 'childNodes' in node ? node.childNodes : [];
}

function elementsOf(node: Node): Element[] {
  return childrenOf(node).flatMap(child =>
    'tagName' in child ? [child, ...elementsOf(child)] : elementsOf(child),
  );
}

function textOf(node: Node): string {
  if ('value' in node && node.nodeName === '#text') return node.value;
  return childrenOf(node).map(textOf).join('');
}
