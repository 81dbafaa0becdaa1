/** Checks answers against an OpenAPI 3.1 document; `unseen()` lists what no answer showed. */
import assert from 'node:assert/strict';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

export interface Answer {
  readonly method: string;
  /** The query is ignored. */
  readonly url: string;
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | number | undefined>>;
  readonly body: string | Buffer;
}

type Json = { readonly [name: string]: Json };

interface Described {
  readonly operation: Json;
  readonly pattern: RegExp;
  readonly path: string;
  readonly method: string;
}

const DOCUMENT_ID = 'openapi';
const PROBLEM_TYPE = 'application/problem+json';

/** On every answer: headers of HTTP itself and for browser safety. */
const PLAIN_HEADERS = [
  'connection',
  'content-length',
  'content-security-policy',
  'content-type',
  'date',
  'keep-alive',
  'referrer-policy',
  'transfer-encoding',
  'x-content-type-options',
];

export class AnswerChecker {
  readonly #document: Json;
  readonly #ajv: Ajv2020;
  readonly #operations: Described[] = [];
  readonly #validators = new Map<string, ValidateFunction>();
  readonly #seen = new Set<string>();

  constructor(document: unknown) {
    this.#document = closed(document) as Json;
    this.#ajv = new Ajv2020({ strict: false, allErrors: true });
    addFormats.default(this.#ajv);
    this.#ajv.addSchema(this.#document, DOCUMENT_ID);
    for (const [path, methods] of Object.entries(this.#document.paths ?? {})) {
      const pattern = new RegExp(
        `^${path.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, '[^/]*')}$`,
      );
      for (const [method, operation] of Object.entries(methods)) {
        this.#operations.push({ operation, pattern, path, method: method.toUpperCase() });
      }
    }
  }

  /** HEAD follows GET unless it is described. */
  check(answer: Answer): void {
    const [path = ''] = answer.url.split('?');
    const onPath = this.#operations.filter(({ pattern }) => pattern.test(path));
    const operation =
      onPath.find(({ method }) => method === answer.method) ??
      onPath.find(({ method }) => method === 'GET' && answer.method === 'HEAD');
    assert.ok(operation, `the document has no ${answer.method} ${path}`);
    const name = `${answer.method} ${operation.path} ${answer.status}`;
    const pointer = `#/paths/${escapePointer(operation.path)}/${operation.method.toLowerCase()}`;
    const response = operation.operation.responses?.[String(answer.status)];
    assert.ok(response, `${name} is not described`);
    this.#checkResponse(name, response, `${pointer}/responses/${answer.status}`, answer);
  }

  /** For answers outside of any operation. */
  checkComponent(component: string, answer: Answer): void {
    const response = this.#document.components?.responses?.[component];
    assert.ok(response, `${component} is not described`);
    const pointer = `#/components/responses/${component}`;
    this.#checkResponse(component, response, pointer, answer);
  }

  /** Undefined: it fits. */
  schemaError(pointer: string, value: unknown): string | undefined {
    const at = `${DOCUMENT_ID}${pointer}`;
    let validate = this.#validators.get(at);
    if (validate === undefined) {
      validate = this.#ajv.compile({ $ref: at });
      this.#validators.set(at, validate);
    }
    return validate(value) ? undefined : this.#ajv.errorsText(validate.errors);
  }

  /** Statuses, codes and headers that no checked answer had. */
  unseen(): string[] {
    const all = this.#operations.flatMap(({ operation, path, method }) =>
      Object.entries(operation.responses ?? {}).flatMap(([status, response]) => {
        const name = `${method} ${path} ${status}`;
        const codes = method === 'HEAD' ? [] : codesOf(response);
        const headers = Object.keys(response.headers ?? {});
        return [name, ...[...codes, ...headers].map(part => `${name} ${part}`)];
      }),
    );
    return all.filter(name => !this.#seen.has(name));
  }

  #checkResponse(name: string, response: Json, pointer: string, answer: Answer): void {
    this.#seen.add(name);
    this.#checkHeaders(name, response, answer);
    this.#checkBody(name, response, pointer, answer);
  }

  #checkHeaders(name: string, response: Json, answer: Answer): void {
    const described = response.headers ?? {};
    const known = new Set([
      ...PLAIN_HEADERS,
      ...Object.keys(described).map(header => header.toLowerCase()),
    ]);
    const more = Object.keys(answer.headers).filter(header => !known.has(header));
    assert.deepEqual(more, [], `${name} has headers that are not described`);
    for (const [header, spec] of Object.entries(described)) {
      const resolved = this.#resolve(spec);
      const value = answer.headers[header.toLowerCase()];
      if (value === undefined) {
        assert.ok(!resolved.required, `${name} lacks the header ${header}`);
        continue;
      }
      this.#seen.add(`${name} ${header}`);
      const validate = this.#ajv.compile(resolved.schema ?? {});
      const coerced = [String(value), Number(value), value === 'true'];
      assert.ok(
        coerced.some(candidate => validate(candidate)),
        `${name}: ${header}: ${value} does not fit ${JSON.stringify(resolved.schema)}`,
      );
    }
  }

  #checkBody(name: string, response: Json, pointer: string, answer: Answer): void {
    const types = Object.keys(response.content ?? {});
    if (answer.method === 'HEAD' || types.length === 0) {
      assert.equal(answer.body.length, 0, `${name} has a body`);
      return;
    }
    const [type = ''] = String(answer.headers['content-type']).split(';');
    assert.ok(types.includes(type), `${name}: ${type} is not among ${types.join(', ')}`);
    if (!type.endsWith('json')) return;
    const body = JSON.parse(answer.body.toString());
    const error = this.schemaError(`${pointer}/content/${escapePointer(type)}/schema`, body);
    assert.equal(error, undefined, `${name}: ${error}\n${answer.body}`);
    if (type !== PROBLEM_TYPE) return;
    assert.ok(codesOf(response).includes(body.code), `${name} does not name ${body.code}`);
    assert.equal(body.status, answer.status, name);
    this.#seen.add(`${name} ${body.code}`);
  }

  #resolve(value: Json): Json {
    const pointer = value.$ref as unknown as string | undefined;
    return pointer === undefined ? value : (resolvePointer(this.#document, pointer) as Json);
  }
}

export function resolvePointer(document: unknown, pointer: string): unknown {
  const target = pointer
    .slice(2)
    .split('/')
    .map(part => decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce<unknown>(
      (node, part) => (node as Record<string, unknown> | undefined)?.[part],
      document,
    );
  assert.ok(target, `${pointer} leads nowhere`);
  return target;
}

function codesOf(response: Json): string[] {
  return Object.keys(response.content?.[PROBLEM_TYPE]?.examples ?? {});
}

/** A copy in which objects allow no unnamed properties. */
function closed(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(closed);
  if (node === null || typeof node !== 'object') return node;
  const copy = Object.fromEntries(
    Object.entries(node).map(([name, value]) => [name, closed(value)]),
  );
  const isObject = copy.type === 'object' && copy.properties !== undefined;
  return isObject ? { ...copy, additionalProperties: false } : copy;
}

/** For a JSON pointer inside a URI fragment. */
export function escapePointer(part: string): string {
  return encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'));
}
