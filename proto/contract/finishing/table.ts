/**
 * The fields of finishing, one row of table.json each, in the order in which documents and pages
 * list them. From a row follow the parsers of requests, the wire message, what a node must know,
 * the OpenAPI document, the tools of agents, the client, and the playground.
 */
import rows from './table.json' with { type: 'json' };

/** `number`, `boolean`, `choice` or `text` says how a caller writes a value, and its range. */
interface FinishingRow {
  /** form: `whole`, `percent` (with a %), `share` (with or without a %); absent: decimal. */
  readonly number?: { readonly min: number; readonly max: number; readonly form?: string };
  readonly boolean?: boolean;
  /** In any case of letters. */
  readonly choice?: readonly string[];
  /** `fields.ts` has its parser. */
  readonly text?: object;
  /** The field that it is a part of. Absent: it is a property of `Finishing`, or `channels`. */
  readonly of?: string;
  /** The nodes of 0.2.0 follow it. Absent: a node lists it as a capability. */
  readonly everyNode?: boolean;
  /** Description for the OpenAPI document and the tools of agents, and the rest of the schema. */
  readonly document: string;
  readonly schema: { readonly default?: unknown; readonly examples: readonly unknown[] };
  /** The comment in the client's types; the command's option: its value and its meaning. */
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

/** Type of a field in JSON and code samples. */
export function fieldKind(field: string): 'text' | 'boolean' | 'number' {
  const { boolean, number } = (rows as { [field: string]: FinishingRow })[field] ?? {};
  if (boolean) return 'boolean';
  return number && number.form !== 'percent' ? 'number' : 'text';
}

/**
 * Numbers and booleans can be their text too: generators of clients know no type with several. Some
 * clients would send a default, which is not the same as nothing.
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
/** A node lists the capability `finishing.<field>` if it follows one of these. */
export const CAPABLE_FIELDS = OWN_FIELDS.filter(
  (field): field is CapableField => !rowOf(field).everyNode,
);
/** Each is a number of `Finishing` and, under its property's name, of the wire, 0: absent. */
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

/** The property of `Finishing` that a field gives. */
export function propertyOf<Field extends OwnNumberField | CapableField>(field: Field) {
  return PROPERTIES.get(field) as PropertyOf<Field>;
}
