/**
 * Holds real answers against an OpenAPI 3.1 document: the status must be described, the body must
 * fit its schema with no property too many, and every required header must be there and fit.
 */
import assert from 'node:assert/strict';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

export interface Answer {
  readonly method: string;
  /** As asked for; a query is ignored. */
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

export class AnswerChecker {
  readonly #document: Json;
  readonly #ajv: Ajv2020;
  readonly #operations: Described[] = [];
  readonly #validators = new Map<string, ValidateFunction>();
  /** `METHOD path status` of every answer that was checked. */
  readonly seen = new Set<string>();

  constructor(document: unknown) {
    this.#document = closed(document) as Json;
    this.#ajv = new Ajv2020({ strict: false, allErrors: true });
    addFormats.default(this.#ajv);
    this.#ajv.addSchema(this.#document, DOCUMENT_ID);
    for (const [path, methods] of Object.entries(this.#document.paths)) {
      const pattern = new RegExp(
        `^${path.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, '[^/]*')}$`,
      );
      for (const [method, operation] of Object.entries(methods)) {
        this.#operations.push({ operation, pattern, path, method: method.toUpperCase() });
      }
    }
  }

  check(answer: Answer): void {
    const path = answer.url.split('?')[0];
    const operation = this.#operations.find(
      ({ pattern, method }) => method === answer.method && pattern.test(path),
    );
    assert.ok(operation, `the document has no ${answer.method} ${path}`);
    const name = `${operation.method} ${operation.path} ${answer.status}`;
    const response = operation.operation.responses[String(answer.status)];
    assert.ok(response, `${name} is not described`);
    this.seen.add(name);
    const method = operation.method.toLowerCase();
    const pointer = `/paths/${escapePointer(operation.path)}/${method}/responses/${answer.status}`;
    this.#checkHeaders(name, response, answer);
    this.#checkBody(name, response, pointer, answer);
  }

  #checkHeaders(name: string, response: Json, answer: Answer): void {
    for (const [header, described] of Object.entries(response.headers ?? {})) {
      const resolved = this.#resolve(described);
      const value = answer.headers[header.toLowerCase()];
      if (value === undefined) {
        assert.ok(!resolved.required, `${name} lacks the header ${header}`);
        continue;
      }
      const validate = this.#ajv.compile(resolved.schema);
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
    const type = String(answer.headers['content-type']).split(';')[0];
    assert.ok(types.includes(type), `${name}: ${type} is not among ${types.join(', ')}`);
    if (!type.endsWith('json')) return;
    const at = `${DOCUMENT_ID}#${pointer}/content/${escapePointer(type)}/schema`;
    let validate = this.#validators.get(at);
    if (validate === undefined) {
      validate = this.#ajv.compile({ $ref: at });
      this.#validators.set(at, validate);
    }
    const fits = validate(JSON.parse(answer.body.toString()));
    assert.ok(fits, `${name}: ${this.#ajv.errorsText(validate.errors)}\n${answer.body}`);
  }

  #resolve(value: Json): Json {
    const pointer = value.$ref as unknown as string | undefined;
    if (pointer === undefined) return value;
    const target = pointer
      .slice(2)
      .split('/')
      .reduce<Json | undefined>((node, part) => node?.[part], this.#document);
    assert.ok(target, `${pointer} leads nowhere`);
    return target;
  }
}

/** The document with no object allowed more properties than it names. */
function closed(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(closed);
  if (node === null || typeof node !== 'object') return node;
  const copy = Object.fromEntries(
    Object.entries(node).map(([name, value]) => [name, closed(value)]),
  );
  const isObject = copy.type === 'object' && copy.properties !== undefined;
  return isObject ? { ...copy, additionalProperties: false } : copy;
}

/** A JSON pointer's part inside a URI fragment. */
function escapePointer(part: string): string {
  return encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'));
}
