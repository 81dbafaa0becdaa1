/**
 * Reads the fields of one JSON object, each once, and refuses what is missing, wrong or unknown.
 */
import { ModelError } from './model-error.ts';

export class FieldReader {
  readonly #fields: Readonly<Record<string, unknown>>;
  readonly #unread: Set<string>;
  readonly #file: string;
  /** Of the object inside the file, `''` for the whole; named in errors. */
  readonly #path: string;

  constructor(value: unknown, file: string, path: string) {
    this.#file = file;
    this.#path = path;
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new ModelError('manifest', `${file}: ${path || 'the whole'} must be an object`);
    }
    this.#fields = value as Record<string, unknown>;
    this.#unread = new Set(Object.keys(value));
  }

  fail(field: string, expected: string): never {
    throw new ModelError('manifest', `${this.#file}: ${this.#at(field)} ${expected}`);
  }

  /** Not empty, one line; of `form` when one is given. */
  text(field: string, form = /^[^\r\n]+$/): string {
    const value = this.#read(field);
    if (typeof value !== 'string') this.fail(field, 'must be a string');
    if (!form.test(value)) this.fail(field, `must match ${form.source}`);
    return value;
  }

  integer(field: string, min: number, max: number): number {
    return this.#asInteger(field, this.#read(field), min, max);
  }

  /** At least one. */
  integers(field: string, min: number, max: number): readonly number[] {
    return this.#array(field).map(value => this.#asInteger(field, value, min, max));
  }

  triple(field: string): readonly [number, number, number] {
    const values = this.#array(field);
    if (values.length !== 3 || !values.every(value => Number.isFinite(value))) {
      this.fail(field, 'must be three numbers, for red, green and blue');
    }
    return values as unknown as readonly [number, number, number];
  }

  choice<Choice extends string>(field: string, choices: readonly Choice[]): Choice {
    return this.#asChoice(field, this.#read(field), choices);
  }

  /** At least one, none twice. */
  choices<Choice extends string>(field: string, choices: readonly Choice[]): readonly Choice[] {
    const values = this.#array(field).map(value => this.#asChoice(field, value, choices));
    if (new Set(values).size !== values.length) this.fail(field, 'must not repeat a value');
    return values;
  }

  /** Of a field that may be left out. */
  has(field: string): boolean {
    return Object.hasOwn(this.#fields, field) && this.#fields[field] !== null;
  }

  /** At least one. */
  texts(field: string): readonly string[] {
    const values = this.#array(field);
    if (!values.every(value => typeof value === 'string')) this.fail(field, 'must be strings');
    return values as readonly string[];
  }

  /** Of an object whose names are data. */
  entries(field: string): readonly (readonly [name: string, value: unknown])[] {
    const value = this.#read(field);
    if (typeof value !== 'object' || Array.isArray(value)) this.fail(field, 'must be an object');
    return Object.entries(value as object);
  }

  object(field: string): FieldReader {
    return new FieldReader(this.#read(field), this.#file, this.#at(field));
  }

  /** At least one. */
  list<Item>(field: string, read: (fields: FieldReader) => Item): readonly Item[] {
    return this.#array(field).map((value, index) =>
      read(new FieldReader(value, this.#file, `${this.#at(field)}[${index}]`)),
    );
  }

  /** Call it last: a field nobody read is a misspelt one. */
  end(): void {
    for (const field of this.#unread) this.fail(field, 'is not a known field');
  }

  #read(field: string): unknown {
    this.#unread.delete(field);
    const value = Object.hasOwn(this.#fields, field) ? this.#fields[field] : undefined;
    if (value === undefined || value === null) this.fail(field, 'is missing');
    return value;
  }

  #array(field: string): readonly unknown[] {
    const value = this.#read(field);
    if (!Array.isArray(value) || value.length === 0) this.fail(field, 'must be a list, not empty');
    return value;
  }

  #asInteger(field: string, value: unknown, min: number, max: number): number {
    if (!Number.isInteger(value) || (value as number) < min || (value as number) > max) {
      this.fail(field, `must be a whole number from ${min} to ${max}`);
    }
    return value as number;
  }

  #asChoice<Choice extends string>(
    field: string,
    value: unknown,
    choices: readonly Choice[],
  ): Choice {
    const found = choices.find(choice => choice === value);
    if (found === undefined) this.fail(field, `must be one of ${choices.join(', ')}`);
    return found;
  }

  #at(field: string): string {
    return this.#path === '' ? field : `${this.#path}.${field}`;
  }
}
