/**
 * A submission as multipart/form-data: parts of text, which are kept, and files and Base64, whose
 * bytes go into their uploads as they arrive. Unknown parts, parts that come twice, texts that are
 * no UTF-8, and files where texts belong are this file's; what a value means is not.
 */
import { ContractError } from '#contract/errors.ts';
import {
  MATTING_FIELDS,
  type MattingFields,
  type TextField,
  type TextValue,
} from '../../submission/submit-fields.ts';
import type { ImageUpload, RequestUploads } from '../../submission/submit-upload.ts';
import { givenTwice, malformed, unknownField } from './malformed.ts';
import type { PartEvent } from './multipart-reader.ts';
import type { PartHead } from './part-head.ts';
import { PartText } from './part-text.ts';

export const FILE_FIELDS = ['image_file', 'background_file'] as const;
type FileField = (typeof FILE_FIELDS)[number];
type FormField = TextField | FileField | 'image_base64';

const FORM_FIELDS: readonly FormField[] = [...FILE_FIELDS, ...MATTING_FIELDS];

/** Where the bytes of the part that is read now go. */
type Target = { readonly text: TextField } | { readonly upload: ImageUpload };

export class MattingForm {
  readonly #uploads: RequestUploads;
  readonly #seen = new Set<FormField>();
  readonly #texts = new Map<TextField, TextValue>();
  readonly #text = new PartText();
  #target: Target | undefined;

  constructor(uploads: RequestUploads) {
    this.#uploads = uploads;
  }

  /** @throws ContractError INVALID_REQUEST, INVALID_IMAGE_SOURCE, IMAGE_TOO_LARGE */
  async take(event: PartEvent): Promise<void> {
    const target = this.#target;
    if (event.kind === 'head') {
      this.#target = this.#begin(event.head);
    } else if (target === undefined) {
      throw new Error('a part has bytes before its head');
    } else if ('upload' in target) {
      if (event.kind === 'data') await target.upload.write(event.bytes);
    } else if (event.kind === 'data') {
      this.#text.take(event.bytes);
    } else {
      this.#texts.set(target.text, this.#text.end(target.text));
    }
  }

  /** The fields, after the last part. @throws ContractError INVALID_IMAGE_SOURCE */
  finish(): MattingFields {
    const imageGiven = this.#seen.has('image_file') || this.#seen.has('image_base64');
    if (imageGiven === this.#seen.has('image_url')) throw notOneSource(this.#seen);
    const backgroundGiven = this.#seen.has('background_file');
    return { texts: this.#texts, imageGiven, backgroundGiven };
  }

  #begin(head: PartHead): Target {
    const { name, isFile } = head;
    const field = FORM_FIELDS.find(known => known === name);
    if (field === undefined) throw unknownField(name);
    if (this.#seen.has(field)) throw givenTwice(field);
    this.#seen.add(field);
    if (field === 'image_file' || field === 'background_file') {
      if (!isFile) throw wrongKind(field, 'must be a file: a part with a file name');
      const upload = field === 'image_file' ? this.#image() : this.#uploads.background;
      upload.takeBytes(field);
      return { upload };
    }
    if (isFile) throw wrongKind(field, 'must be text: a part without a file name');
    if (field === 'image_base64') return { upload: this.#image() };
    this.#text.begin(head);
    return { text: field };
  }

  /** Two sources would be written into one upload, so the second is not begun. */
  #image(): ImageUpload {
    const isSecond = this.#seen.has('image_file') && this.#seen.has('image_base64');
    if (isSecond) throw notOneSource(this.#seen);
    return this.#uploads.image;
  }
}

function wrongKind(field: FormField, wrong: string): ContractError {
  return malformed(`${field} ${wrong}`, field, wrong);
}

function notOneSource(seen: ReadonlySet<FormField>): ContractError {
  const sources = ['image_file', 'image_url', 'image_base64'] as const;
  const given = sources.filter(field => seen.has(field));
  const names = 'image_file, image_url and image_base64';
  const detail = given.length > 0 ? `${names} exclude each other` : `one of ${names} is required`;
  const fields = given.length > 0 ? given : sources;
  const fieldErrors = fields.map(field => ({ field, detail }));
  return new ContractError('INVALID_IMAGE_SOURCE', detail, { fieldErrors });
}
