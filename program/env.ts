/**
 * Reads typed values from an environment and collects all problems, so that an operator can correct
 * every variable at once. No problem contains a value, since it may be a secret. An empty variable
 * counts as unset: it takes its default or, without one, is a problem.
 */

import { ConfigError, type EnvProblem, Unusable } from './config-error.ts';
import { LEFT_VARIABLES } from './env-names.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

/** Text of a variable in docs/settings.md, which `make generate` collects. */
export interface About {
  readonly about: string;
  /** When the variable must be set in spite of its default; follows "Required ". */
  readonly required?: string;
  /** The default in words, if it depends on the machine or on other variables. */
  readonly otherwise?: string;
}

/** No default: the variable is required. `undefined`: it is optional. */
export interface EnvOptions<Default> extends About {
  readonly default: Default;
}

type EnvRead<Default> = About & Partial<EnvOptions<Default>>;

export interface Declaration extends About {
  /** Absent: the variable is required. */
  readonly default?: unknown;
  readonly variable: string;
  /** The expected form, in words that follow "must be ". */
  readonly expected: string;
  readonly section: string;
}

interface StringOptions {
  readonly lengthMin?: number;
  readonly lengthMax?: number;
  readonly pattern?: RegExp;
  /** The form in words. A pattern needs it. */
  readonly expected?: string;
}

interface NumberRange {
  readonly min?: number;
  readonly max?: number;
}

export interface UrlOptions {
  /** Schemes without the colon, such as `http`. Default: any. */
  readonly schemes?: readonly string[];
}

/** Refuses a typo of many commas. */
const LIST_ITEMS_MAX = 64;

export function readEnvironment<T>(env: Environment, read: (reader: EnvReader) => T): T {
  const reader = new EnvReader(env);
  const settings = read(reader);
  reader.requireValid();
  return settings;
}

export class EnvReader {
  readonly #env: Environment;
  readonly #section: string;
  readonly problems: EnvProblem[];
  /** Each variable that was read, in that order. */
  readonly declarations: Declaration[];

  constructor(env: Environment, section = '', { problems, declarations }: Partial<EnvReader> = {}) {
    this.#env = env;
    this.#section = section;
    this.problems = problems ?? [];
    this.declarations = declarations ?? [];
  }

  section(title: string): EnvReader {
    return new EnvReader(this.#env, title, this);
  }

  /** Does not trim the value. */
  string<D = never>(variable: string, options: StringOptions & EnvRead<D>) {
    const { lengthMin = 1, lengthMax = Number.POSITIVE_INFINITY, pattern } = options;
    const expected = options.expected ?? textOfLength(lengthMin, lengthMax);
    const parse = (text: string): string | undefined => {
      const fits = text.length >= lengthMin && text.length <= lengthMax;
      return fits && (pattern?.test(text) ?? true) ? text : undefined;
    };
    return this.parsed<string, D>(variable, expected, parse, options);
  }

  /** Decimal digits with an optional minus. */
  integer<D = never>(variable: string, options: NumberRange & EnvRead<D>) {
    const expected = `a whole number${rangeInWords(options)}`;
    const parse = (text: string) => inRange(text, /^-?\d{1,15}$/, options);
    return this.parsed<number, D>(variable, expected, parse, options);
  }

  number<D = never>(variable: string, options: NumberRange & EnvRead<D>) {
    const expected = `a number${rangeInWords(options)}`;
    const parse = (text: string) => inRange(text, /^-?\d{1,15}(\.\d{1,15})?$/, options);
    return this.parsed<number, D>(variable, expected, parse, options);
  }

  /** 0 to 65535. 0: the system chooses. */
  port<D = never>(variable: string, options: EnvRead<D>) {
    const parse = (text: string) => inRange(text, /^\d{1,5}$/, { min: 0, max: 65_535 });
    return this.parsed<number, D>(variable, 'a port number, 0 to 65535', parse, options);
  }

  /** `true` or `false`, in any case. */
  boolean<D = never>(variable: string, options: EnvRead<D>) {
    const parse = (text: string): boolean | undefined => {
      const lower = text.toLowerCase();
      return lower === 'true' ? true : lower === 'false' ? false : undefined;
    };
    return this.parsed<boolean, D>(variable, 'true or false', parse, options);
  }

  oneOf<const T extends string, D = never>(
    variable: string,
    values: readonly T[],
    options: EnvRead<D>,
  ) {
    const parse = (text: string): T | undefined => values.find(value => value === text);
    return this.parsed<T, D>(variable, `one of ${values.join(', ')}`, parse, options);
  }

  /** Comma-separated, trimmed, at least one item. `parse` returns undefined for a wrong item. */
  list<T, D = never>(
    variable: string,
    expected: string,
    parse: (item: string) => T | undefined,
    options: { readonly itemsMax?: number } & EnvRead<D>,
  ) {
    const itemsMax = options.itemsMax ?? LIST_ITEMS_MAX;
    const parseList = (text: string): readonly T[] | undefined => {
      const items = text.split(',', itemsMax + 1);
      if (items.length > itemsMax) return undefined;
      const values: T[] = [];
      for (const item of items) {
        const trimmed = item.trim();
        const value = trimmed === '' ? undefined : parse(trimmed);
        if (value === undefined) return undefined;
        values.push(value);
      }
      return values;
    };
    const form = `a comma-separated list of ${expected}`;
    return this.parsed<readonly T[], D>(variable, form, parseList, options);
  }

  url<D = never>(variable: string, options: UrlOptions & EnvRead<D>) {
    const { schemes } = options;
    const forms = schemes?.map(scheme => `${scheme}://...`).join(' or ');
    const parse = (text: string): string | undefined => {
      const url = URL.canParse(text) ? new URL(text) : undefined;
      if (url === undefined) return undefined;
      return (schemes?.includes(url.protocol.slice(0, -1)) ?? true) ? text : undefined;
    };
    const expected = forms === undefined ? 'an absolute URL' : `a URL of the form ${forms}`;
    return this.parsed<string, D>(variable, expected, parse, options);
  }

  /** A value of any other form. `parse` returns undefined for a wrong form, or throws Unusable. */
  parsed<T, D = never>(
    variable: string,
    expected: string,
    parse: (text: string) => T | undefined,
    options: EnvRead<D>,
  ): T | D {
    this.declarations.push({ ...options, variable, expected, section: this.#section });
    const text = this.#env[variable];
    if (text === undefined || text === '') {
      if (!('default' in options)) this.problem(variable, `set: ${expected}`);
      return options.default as D;
    }
    try {
      const value = parse(text);
      if (value !== undefined) return value;
      this.problem(variable, expected);
    } catch (error) {
      if (!(error instanceof Unusable)) throw error;
      this.problem(variable, error.message);
    }
    // Nobody uses this value: requireValid throws first.
    return options.default as D;
  }

  has(variable: string): boolean {
    const text = this.#env[variable];
    return text !== undefined && text !== '';
  }

  /**
   * Reports a problem between several variables. If two packages report the same one, the list has
   * it once.
   */
  problem(variable: string, expected: string): void {
    const isNamed = this.problems.some(
      one => one.variable === variable && one.expected === expected,
    );
    if (!isNamed) this.problems.push({ variable, expected });
  }

  /** Call it before you use any value. @throws ConfigError */
  requireValid(): void {
    for (const [variable, instead] of Object.entries(LEFT_VARIABLES)) {
      if (this.has(variable)) this.problem(variable, `taken out: ${instead}`);
    }
    if (this.problems.length > 0) throw new ConfigError([...this.problems]);
  }
}

function inRange(text: string, form: RegExp, { min, max }: NumberRange): number | undefined {
  if (!form.test(text)) return undefined;
  const value = Number(text);
  const low = min ?? Number.NEGATIVE_INFINITY;
  const high = max ?? Number.POSITIVE_INFINITY;
  return value >= low && value <= high ? value : undefined;
}

function rangeInWords({ min, max }: NumberRange): string {
  if (min !== undefined && max !== undefined) return `, ${min} to ${max}`;
  if (min !== undefined) return `, at least ${min}`;
  return max === undefined ? '' : `, at most ${max}`;
}

function textOfLength(lengthMin: number, lengthMax: number): string {
  if (lengthMax !== Number.POSITIVE_INFINITY) return `${lengthMin} to ${lengthMax} characters`;
  return lengthMin <= 1 ? 'text' : `at least ${lengthMin} characters`;
}
