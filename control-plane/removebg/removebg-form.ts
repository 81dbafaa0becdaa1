/**
 * A body of the remove.bg interface that comes in parts: multipart/form-data, or the pairs of
 * application/x-www-form-urlencoded. Texts are kept, pictures go into their uploads as they arrive,
 * and what is empty is absent: clients send every field they know. Fields that this interface does
 * not have are skipped, and named in the answer: the one that it stands for took them.
 */

import { givenTwice } from '../core/http/body/malformed.ts';
import type { PartEvent } from '../core/http/body/multipart-reader.ts';
import { PartText } from '../core/http/body/part-text.ts';
import type { TextValue } from '../core/submission/submit-fields.ts';
import type { RequestUploads } from '../core/submission/submit-upload.ts';
import {
  REMOVEBG_PICTURES,
  REMOVEBG_TEXTS,
  type RemovebgFields,
  type RemovebgPicture,
  type RemovebgText,
} from './removebg-fields.ts';
import { RemovebgRefusal } from './removebg-refusal.ts';
import { UnknownFields } from './unknown-fields.ts';

type Target =
  | { readonly kind: 'text'; readonly field: RemovebgText }
  | { readonly kind: 'picture'; readonly field: RemovebgPicture }
  | { readonly kind: 'skipped' };

/** A part of it; that of JSON is read elsewhere. */
export interface RemovebgBody extends RemovebgFields {
  /** Names that are no field of this interface, as far as they may be shown. */
  readonly unknown: readonly string[];
}

export class RemovebgForm {
  readonly #uploads: RequestUploads;
  readonly #texts = new Map<RemovebgText, TextValue>();
  readonly #pictures = new Set<RemovebgPicture>();
  readonly #unknown = new UnknownFields();
  readonly #text = new PartText();
  #target: Target = { kind: 'skipped' };
  #isEmpty = true;

  constructor(uploads: RequestUploads) {
    this.#uploads = uploads;
  }

  /** @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE; RemovebgRefusal multiple_sources */
  async take(event: PartEvent): Promise<void> {
    if (event.kind === 'head') {
      this.#target = this.#targetOf(event.head.name);
      this.#text.begin(event.head);
      this.#isEmpty = true;
    } else if (event.kind === 'end') {
      this.#end(this.#target);
    } else if (event.bytes.length > 0) {
      await this.#takeBytes(this.#target, event.bytes);
    }
  }

  /** After the last part. */
  finish(): RemovebgBody {
    return { texts: this.#texts, pictures: this.#pictures, unknown: this.#unknown.names };
  }

  #targetOf(name: string): Target {
    const picture = REMOVEBG_PICTURES.find(known => known === name);
    if (picture !== undefined) return { kind: 'picture', field: picture };
    const text = REMOVEBG_TEXTS.find(known => known === name);
    if (text !== undefined) return { kind: 'text', field: text };
    this.#unknown.note(name);
    return { kind: 'skipped' };
  }

  async #takeBytes(target: Target, bytes: Buffer): Promise<void> {
    const isFirst = this.#isEmpty;
    this.#isEmpty = false;
    if (target.kind === 'text') {
      if (isFirst && this.#texts.has(target.field)) throw givenTwice(target.field);
      this.#text.take(bytes);
    } else if (target.kind === 'picture') {
      if (isFirst) this.#beginPicture(target.field);
      const { image, background } = this.#uploads;
      await (target.field === 'bg_image_file' ? background : image).write(bytes);
    }
  }

  /** Two sources would be written into one upload, so the second is not begun. */
  #beginPicture(field: RemovebgPicture): void {
    if (this.#pictures.has(field)) throw givenTwice(field);
    this.#pictures.add(field);
    if (this.#pictures.has('image_file') && this.#pictures.has('image_file_b64')) {
      const detail = 'image_file, image_url and image_file_b64 exclude each other';
      throw new RemovebgRefusal('multiple_sources', field, detail);
    }
    if (field === 'image_file') this.#uploads.image.takeBytes(field);
    if (field === 'bg_image_file') this.#uploads.background.takeBytes(field);
  }

  #end(target: Target): void {
    if (target.kind !== 'text' || this.#isEmpty) return;
    this.#texts.set(target.field, this.#text.end(target.field));
  }
}
