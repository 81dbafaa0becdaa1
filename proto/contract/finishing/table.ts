/**
 * Each field of finishing is a row of table.json, in the order of documents and pages. Parsers,
 * wire message, capabilities, OpenAPI, agents' tools, client and playground derive from it.
 */
import rows from './table.json' with { type: 'json' };

/** `number`, `boolean`, `choice` or `text` is the kind of value, with its range. */
interface FinishingRow {
  /** form: `whole`, `percent` (with a %), `share` (optional %); absent: decimal. */
  readonly number?: { readonly min: number; readonly max: number; readonly form?: string };
  readonly boolean?: boolean;
  /** Case does not matter. */
  readonly choice?: readonly string[];
  /** Parsed in `fields.ts`. */
  readonly text?: object;
  /** The field that it belongs to. Absent: it is a property of `Finishing`, or `channels`. */
  readonly of?: string;
  /** Nodes of 0.2.0 know it. Otherwise a node lists it as a capability. */
  readonly everyNode?: boolean;
  /** For the OpenAPI document and agents' tools. */
  readonly document: string;
  readonly schema: { readonly default?: unknown; readonly examples: readonly unknown[] };
  /** Comment in the client's types; value and meaning of the command's option. */
  readonly client: string;
  readonly command: readonly string[];
  readonly placeholder?: string;
}

export const FINISHING_ROWS = rows;
type Rows = typeof rows;
export type FinishingField = keyof Rows;
export const FINISHING_FIELDS = Object.keys(rows) as readonly FinishingField[];

export function rowOf(field: FinishingField): FinishingRow {
  return rows[field];
}

/** For JSON and code samples. */
export function fieldKind(field: string): 'text' | 'boolean' | 'number' {
  const { boolean, number } = (rows as { [field: string]: FinishingRow })[field] ?? {};
  if (boolean) return 'boolean';
  return number && number.form !== 'percent' ? 'number' : 'text';
}

/**
 * A number or boolean may also be a text: client generators know no type with several. No default:
 * some clients would send it, which differs from an absent field.
 */
export function jsonSchemaOf(field: FinishingField) {
  const { number, document, schema } = rowOf(field);
  const { default: _, ...rest } = schema;
  const kind = fieldKind(field);
  const own = number?.form === 'whole' ? 'integer' : kind;
  return {
    type: [kind === 'text' ? 'string' : own, 'null'],
    description: document,
    ...(kind === 'number' && { minimum: number?.min, maximum: number?.max }),
    ...rest,
  };
}

type FieldWith<Part> = {
  [Field in FinishingField]: Rows[Field] extends Part ? Field : never;
}[FinishingField];
export type BooleanField = FieldWith<{ boolean: boolean }>;
export type ChoiceField = FieldWith<{ choice: string[] }>;
export type NumberField = FieldWith<{ number: object }>;
type OwnField = Exclude<FinishingField, FieldWith<{ of: string }>>;
export type CapableField = Exclude<OwnField, FieldWith<{ everyNode: boolean }>>;
type OwnNumberField = Extract<NumberField, OwnField>;

const OWN_FIELDS = FINISHING_FIELDS.filter((field): field is OwnField => !rowOf(field).of);
/** A node lists the capability `finishing.<field>` for each of these it supports. */
export const CAPABLE_FIELDS = OWN_FIELDS.filter(
  (field): field is CapableField => !rowOf(field).everyNode,
);
/** Numbers of `Finishing` and, with their property's name, of the wire; 0: absent. */
export const OWN_NUMBER_FIELDS = OWN_FIELDS.filter(
  (field): field is OwnNumberField => rowOf(field).number !== undefined,
);

type Camel<Name> = Name extends `${infer First}_${infer Rest}`
  ? `${First}${Capitalize<Camel<Rest>>}`
  : Name;
type PropertyOf<Field> = Field extends 'scale' ? 'scalePercent' : Camel<Field>;
export type FinishingNumbers = { readonly [Field in OwnNumberField as PropertyOf<Field>]?: number };

const PROPERTIES = new Map(
  FINISHING_FIELDS.map(field => {
    const camel = field.replaceAll(/_(.)/g, (_all, letter: string) => letter.toUpperCase());
    return [field, field === 'scale' ? 'scalePercent' : camel] as const;
  }),
);

export function propertyOf<Field extends OwnNumberField | CapableField>(field: Field) {
  return PROPERTIES.get(field) as PropertyOf<Field>;
}
