/** HTML as a value: whatever is put into a template is text, and escaped, unless it is HTML itself. */

export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Value = Html | string | number | undefined | readonly Html[];

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** The tag of a template. Nothing at all stands for undefined. */
export function html(parts: TemplateStringsArray, ...values: readonly Value[]): Html {
  return new Html(String.raw({ raw: parts }, ...values.map(markup)));
}

/** Text in which `...` is code. */
export function prose(text: string): Html {
  const pieces = text.split('`');
  return html`${pieces.map((piece, index) => (index % 2 === 1 ? html`<code>${piece}</code>` : html`${piece}`))}`;
}

function markup(value: Value): string {
  if (value === undefined) return '';
  if (value instanceof Html) return value.text;
  if (Array.isArray(value)) return value.map(markup).join('');
  return String(value).replaceAll(/[&<>"']/g, character => ENTITIES[character] ?? character);
}
