/**
 * The body of a form (application/x-www-form-urlencoded): small, read whole, each field once. A
 * field that may be given several times is asked for as such.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { bodyChunks } from '../../http/body-chunks.ts';
import { FIELDS_MAX } from '../../http/malformed.ts';
import { bodyTypeOf, extendsAscii } from '../../http/request-headers.ts';
import { wantBody } from '../../http/unread-body.ts';
import { PageError } from './page-error.ts';

/** The longest form has a few short fields and a list of networks. */
export const FORM_BYTES_MAX = 32 * 1024;
/** From the headers' checks to the last byte: 64 kbit/s bring the longest form in 4 s. */
export const FORM_MS_MAX = 5000;
/** The Unicode standard's own bound (UAX 15, D3): beyond it composing them costs their square. */
const MARKS_IN_A_ROW = /\p{M}{31}/u;
const FORM_TYPE = 'application/x-www-form-urlencoded';

export class FormFields {
  readonly #fields: ReadonlyMap<string, readonly string[]>;

  constructor(fields: ReadonlyMap<string, readonly string[]>) {
    this.#fields = fields;
  }

  /** As typed, in Unicode's composed form; '' where absent. @throws PageError given twice */
  text(name: string): string {
    const values = this.#fields.get(name) ?? [];
    if (values.length > 1) throw new PageError('badForm');
    return values[0] ?? '';
  }

  /** All values of a field that may be given several times: check boxes. */
  all(name: string): readonly string[] {
    return this.#fields.get(name) ?? [];
  }

  /** Whether a check box was ticked. */
  has(name: string): boolean {
    return this.#fields.has(name);
  }
}

/** What the headers say of a form, before a byte of it is awaited. @throws PageError badForm */
export function requireFormHead(request: FastifyRequest): void {
  const type = bodyTypeOf(request.raw);
  const isForm = type !== 'none' && type?.type === FORM_TYPE && extendsAscii(type);
  if (!isForm || request.headers['content-encoding'] !== undefined) throw new PageError('badForm');
  if (Number(request.headers['content-length'] ?? 0) > FORM_BYTES_MAX) {
    throw new PageError('badForm');
  }
}

/** Only where requireFormHead has passed. @throws PageError badForm; ContractError of bodyChunks */
export async function readFormBody(
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FormFields> {
  wantBody(request, reply);
  const chunks: Buffer[] = [];
  const bounds = { bytesMax: FORM_BYTES_MAX, wholeMsMax: FORM_MS_MAX };
  for await (const chunk of bodyChunks(request.raw, bounds)) chunks.push(chunk);
  return parseForm(Buffer.concat(chunks));
}

/** @throws PageError badForm */
export function parseForm(bytes: Buffer): FormFields {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new PageError('badForm', { cause });
  }
  if (text.split('&', FIELDS_MAX + 1).length > FIELDS_MAX) throw new PageError('badForm');
  const fields = new Map<string, string[]>();
  for (const [name, value] of new URLSearchParams(text)) {
    // What is not UTF-8 was replaced: nobody typed it.
    if (value.includes('\uFFFD') || MARKS_IN_A_ROW.test(value)) throw new PageError('badForm');
    const values = fields.get(name) ?? [];
    values.push(value.normalize('NFC'));
    fields.set(name, values);
  }
  return new FormFields(fields);
}
