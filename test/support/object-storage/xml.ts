/** The little XML that S3 speaks: written from trees, read by the names of elements. */

/** Text, or elements: a list repeats its element. */
export type XmlValue = string | number | boolean | XmlTree;
export interface XmlTree {
  readonly [element: string]: XmlValue | readonly XmlValue[] | undefined;
}

const NAMESPACE = 'http://s3.amazonaws.com/doc/2006-03-01/';
const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
};

export function xmlDocument(root: string, tree: XmlTree): string {
  return `<?xml version="1.0" encoding="UTF-8"?>\n<${root} xmlns="${NAMESPACE}">${inside(tree)}</${root}>`;
}

function inside(value: XmlValue): string {
  if (typeof value !== 'object') {
    return String(value).replace(/[&<>"]/g, character => ENTITIES[character] ?? character);
  }
  return Object.entries(value)
    .flatMap(([name, child]) => {
      if (child === undefined) return [];
      const children: readonly XmlValue[] = Array.isArray(child) ? child : [child];
      return children.map(each => `<${name}>${inside(each)}</${name}>`);
    })
    .join('');
}

/** The insides of every element of that name, which has none of its own name inside. */
export function elementsOf(xml: string, name: string): string[] {
  const element = new RegExp(`<${name}(?:\\s[^>]*)?>([\\s\\S]*?)</${name}>`, 'g');
  return [...xml.matchAll(element)].map(([, content = '']) => content);
}

export function textOf(xml: string, name: string): string | undefined {
  const [content] = elementsOf(xml, name);
  return content
    ?.replaceAll('&quot;', '"')
    .replaceAll('&#34;', '"')
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&')
    .trim();
}
