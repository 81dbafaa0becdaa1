/**
 * The playground's form, read as it arrives (control-plane/http): the session's token before any byte of a
 * file, the picture and its options under the names of the API. What a browser sends of a field
 * that was left empty is no field.
 */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import type { FinishingField } from '#contract/finishing/fields.ts';
import { MattingForm } from '../../core/http/read-matting-body.ts';
import type { RequestUploads } from '../../core/submission/pictures.ts';
import { unknownField } from '../../http/bodies.ts';
import type { PartEvent, PartHead } from '../../http/multipart.ts';
import { CSRF_FIELD, isSecret } from '../session/guard.ts';
import { PageError } from '../session/visit.ts';

/** Options of the API that the form has. */
export const PLAYGROUND_OPTIONS = [
  'output_format',
  'background',
  'channels',
  'crop',
  'crop_margin',
  'scale',
  'position',
  'size_max_megapixels',
  'output_width',
  'output_height',
] as const satisfies readonly ('output_format' | FinishingField)[];
type PlaygroundOption = (typeof PLAYGROUND_OPTIONS)[number];
const FILES = ['image_file', 'background_file'] as const;
/** Fields of the page itself. `once`: random, of the form. `demo`: the demo picture in place of a file. */
const OWN = [CSRF_FIELD, 'once', 'demo'] as const;
/** No option and no token needs more; a longer one is refused. */
const OPTION_BYTES_MAX = 200;

export type Options = ReadonlyMap<PlaygroundOption, string>;

export class PlaygroundForm {
  readonly #form: MattingForm;
  readonly #requireToken: (token: string) => void;
  readonly #texts = new Map<string, string>();
  #trusted = false;
  /** The part that is read now; its head is passed on with its first byte. */
  #part: { readonly head: PartHead; begun: boolean; text: string } | undefined;

  /** @param requireToken throws for another token than the session's */
  constructor(uploads: RequestUploads, requireToken: (token: string) => void) {
    this.#form = new MattingForm(uploads);
    this.#requireToken = requireToken;
  }

  /** @throws PageError; ContractError as MattingForm */
  async take(event: PartEvent): Promise<void> {
    if (event.kind === 'head') {
      this.#part = { head: event.head, begun: false, text: '' };
      this.#requireKnown(event.head);
      return;
    }
    const part = this.#part;
    if (part === undefined) throw new Error('a part has bytes before its head');
    if (event.kind === 'end') {
      this.#part = undefined;
      await this.#end(part);
    } else if (event.bytes.length > 0) {
      if (!part.head.isFile) this.#collect(part, event.bytes);
      if (!isOwn(part.head)) await this.#passOn(part, event);
    }
  }

  /** The options that have come, for the form to show again. */
  get options(): Options {
    const given = PLAYGROUND_OPTIONS.flatMap(name => {
      const text = this.#texts.get(name);
      return text === undefined ? [] : [[name, text] as const];
    });
    return new Map(given);
  }

  /** @throws PageError; ContractError INVALID_IMAGE_SOURCE: no picture, or two */
  async finish() {
    const once = this.#texts.get('once') ?? '';
    if (!this.#trusted || !isSecret(once)) throw new PageError('staleForm');
    if (this.#texts.has('demo')) await this.#takeDemo();
    return { fields: this.#form.finish(), once };
  }

  #requireKnown({ name, isFile }: PartHead): void {
    if (OWN.some(own => own === name)) {
      if (isFile) throw new PageError('badForm');
      return;
    }
    if (!this.#trusted) throw new PageError('staleForm');
    const known: readonly string[] = isFile ? FILES : PLAYGROUND_OPTIONS;
    if (!known.includes(name)) throw unknownField(name);
  }

  #collect(part: { text: string }, bytes: Buffer): void {
    if (part.text.length + bytes.length > OPTION_BYTES_MAX) throw new PageError('badForm');
    part.text += bytes.toString('latin1');
  }

  async #passOn(part: { readonly head: PartHead; begun: boolean }, event: PartEvent) {
    if (!part.begun) await this.#form.take({ kind: 'head', head: part.head });
    part.begun = true;
    await this.#form.take(event);
  }

  async #end(part: { readonly head: PartHead; begun: boolean; text: string }): Promise<void> {
    const { name, isFile } = part.head;
    if (part.begun) await this.#form.take({ kind: 'end' });
    if (isFile || part.text === '') return;
    const text = Buffer.from(part.text, 'latin1').toString();
    if (isOwn(part.head) && this.#texts.has(name)) throw new PageError('badForm');
    this.#texts.set(name, text);
    if (name !== CSRF_FIELD) return;
    this.#requireToken(text);
    this.#trusted = true;
  }

  async #takeDemo(): Promise<void> {
    const head = { name: 'image_file', isFile: true, isAscii: false };
    await this.#form.take({ kind: 'head', head });
    await this.#form.take({ kind: 'data', bytes: await demoPicture() });
    await this.#form.take({ kind: 'end' });
  }
}

function isOwn({ name }: PartHead): boolean {
  return OWN.some(own => own === name);
}

/** The options that an address names, as far as they are any. */
export function optionsOfQuery(query: unknown): Options {
  const given = new Map<PlaygroundOption, string>();
  for (const name of PLAYGROUND_OPTIONS) {
    const text = (query as Record<string, unknown> | null)?.[name];
    if (typeof text !== 'string' || text === '' || text.length > OPTION_BYTES_MAX) continue;
    // Nothing that a line of the call could be broken with.
    if (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(text)) continue;
    given.set(name, text);
  }
  return given;
}

/** The picture that `make demo` cuts out (docs/images/draw-demo.ts drew it). */
const DEMO_FILE = path.join(import.meta.dirname, '../../../docs/images/demo.jpg');

let bytes: Promise<Buffer> | undefined;

/** The file's bytes, read once. */
export function demoPicture(): Promise<Buffer> {
  bytes ??= readFile(DEMO_FILE);
  // A failure is not kept: the next who asks reads again.
  bytes.catch(() => {
    bytes = undefined;
  });
  return bytes;
}
