/**
 * A submission as multipart/form-data: parts of text, which are kept, and files and Base64, whose
 * bytes go into their uploads as they arrive. Unknown parts, parts that come twice, texts that are
 * no UTF-8, and files where texts belong are this file's; what a value means is not.
 */
import { ContractError } from '#contract/errors.ts';
import { URL_LENGTH_MAX } from '#contract/limits.ts';
import {
  MATTING_FIELDS,
  type MattingFields,
  OVERLONG,
  type TextField,
  type TextValue,
} from '../../services/submission/submit-fields.ts';
import type { ImageUpload, RequestUploads } from '../../services/submission/submit-upload.ts';
import { givenTwice, malformed, unknownField } from './malformed.ts';
import type { PartEvent } from './multipart-reader.ts';
import type { PartHead } from './part-head.ts';

export const FILE_FIELDS = ['image_file', 'background_file'] as const;
type FileField = (typeof FILE_FIELDS)[number];
type FormField = TextField | FileField | 'image_base64';

const FORM_FIELDS: readonly FormField[] = [...FILE_FIELDS, ...MATTING_FIELDS];
/** No text within URL_LENGTH_MAX characters needs more in UTF-8. */
const TEXT_BYTES_MAX = 3 * URL_LENGTH_MAX;

/** Where the bytes of the part that is read now go. */
type Target = { readonly text: TextField } | { readonly upload: ImageUpload };

export class MattingForm {
  readonly #utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  readonly #uploads: RequestUploads;
  readonly #seen = new Set<FormField>();
  readonly #texts = new Map<TextField, TextValue>();
  readonly #raw = Buffer.allocUnsafe(TEXT_BYTES_MAX);
  #target: Target | undefined;
  #rawLength = 0;
  #overlong = false;

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
      this.#collect(event.bytes);
    } else {
      this.#texts.set(target.text, this.#overlong ? OVERLONG : this.#decode(target.text));
    }
  }

  /** The fields, after the last part. @throws ContractError INVALID_IMAGE_SOURCE */
  finish(): MattingFields {
    const imageGiven = this.#seen.has('image_file') || this.#seen.has('image_base64');
    if (imageGiven === this.#seen.has('image_url')) throw notOneSource(this.#seen);
    const backgroundGiven = this.#seen.has('background_file');
    return { texts: this.#texts, imageGiven, backgroundGiven };
  }

  #begin({ name, isFile }: PartHead): Target {
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
    this.#rawLength = 0;
    this.#overlong = false;
    return { text: field };
  }

  /** Two sources would be written into one upload, so the second is not begun. */
  #image(): ImageUpload {
    const isSecond = this.#seen.has('image_file') && this.#seen.has('image_base64');
    if (isSecond) throw notOneSource(this.#seen);
    return this.#uploads.image;
  }

  #collect(bytes: Buffer): void {
    if (this.#rawLength + bytes.length > TEXT_BYTES_MAX) this.#overlong = true;
    if (this.#overlong) return;
    this.#raw.set(bytes, this.#rawLength);
    this.#rawLength += bytes.length;
  }

  #decode(field: TextField): string {
    try {
      return this.#utf8.decode(this.#raw.subarray(0, this.#rawLength));
    } catch (cause) {
      throw malformed(`${field} is not UTF-8`, field, 'not UTF-8', cause);
    }
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
