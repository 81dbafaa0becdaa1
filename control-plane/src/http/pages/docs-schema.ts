/** A JSON Schema of the OpenAPI document, as people read it. */
import { type Html, html, prose } from './html.ts';

export type JsonSchema = { readonly [keyword: string]: unknown };

const SCHEMA_PREFIX = '#/components/schemas/';

/** Where a component schema stands on the page. */
export function schemaAnchor(name: string): string {
  return `schema-${name}`;
}

/** What a value may be, in a few words: `string or null`, `"queued"`, a link to a schema. */
export function typeOf(schema: JsonSchema): Html {
  const { $ref, type, items, format, oneOf } = schema;
  if (typeof $ref === 'string') {
    const name = $ref.replace(SCHEMA_PREFIX, '');
    return html`<a href="#${schemaAnchor(name)}">${name}</a>`;
  }
  if ('const' in schema) return html`<code>${JSON.stringify(schema.const)}</code>`;
  if (Array.isArray(schema.enum)) {
    return joined(schema.enum.map(value => html`<code>${JSON.stringify(value)}</code>`));
  }
  if (type === 'array') return html`array of ${typeOf((items ?? {}) as JsonSchema)}`;
  if (Array.isArray(oneOf)) return joined(oneOf.map(typeOf));
  const words = [type ?? 'any'].flat().join(' or ');
  return html`${words}${format === undefined ? '' : ` (${format})`}`;
}

/** The properties of an object, those of objects inside indented by their path. */
export function propertiesOf(schema: JsonSchema, path = ''): Html {
  const required = (schema.required ?? []) as readonly string[];
  const properties = Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>);
  const rows = properties.map(([name, property]) => {
    const inner = property.type === 'array' ? (property.items as JsonSchema) : property;
    const at = `${path}${name}${property.type === 'array' ? '[]' : ''}`;
    const nested = inner?.properties === undefined ? undefined : propertiesOf(inner, `${at}.`);
    return html`<div>
<dt><code>${at}</code> <span class="soft">${required.includes(name) ? 'always' : 'optional'}</span></dt>
<dd>${typeOf(property)}${bounds(property)}. ${description(property)}</dd>
</div>${nested}`;
  });
  return html`${rows}`;
}

/** A component schema with all it says. */
export function renderSchema(schema: JsonSchema): Html {
  const body =
    schema.properties === undefined
      ? html`<p>One of ${typeOf(schema)}.</p>`
      : html`<dl>${propertiesOf(schema)}</dl>`;
  return html`<p>${description(schema)}</p>${body}`;
}

function description(schema: JsonSchema): Html | undefined {
  return schema.description === undefined ? undefined : prose(String(schema.description));
}

const BOUNDS: Readonly<Record<string, readonly [words: string, unit: string]>> = {
  minimum: ['at least', ''],
  maximum: ['at most', ''],
  minLength: ['at least', ' characters'],
  maxLength: ['at most', ' characters'],
};

function bounds(schema: JsonSchema): string {
  const named = Object.entries(BOUNDS).filter(([keyword]) => schema[keyword] !== undefined);
  return named.map(([keyword, [words, unit]]) => `, ${words} ${schema[keyword]}${unit}`).join('');
}

function joined(parts: readonly Html[]): Html {
  return html`${parts.map((part, index) => (index === 0 ? part : html` or ${part}`))}`;
}
