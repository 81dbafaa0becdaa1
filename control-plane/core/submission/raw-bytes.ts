/** Bytes that are the file itself: what the Base64 reader is to text, without anything to decode. */
import { ContractError, type FieldError } from '#contract/errors.ts';

export class RawBytes {
  readonly #field: string | undefined;
  #decodedBytes = 0;

  /** @param field the request's field, for the error's `errors[]`; absent: the whole body. */
  constructor(field?: string) {
    this.#field = field;
  }

  get decodedBytes(): number {
    return this.#decodedBytes;
  }

  /** The same bytes, not copied. */
  push(chunk: Uint8Array): Uint8Array {
    this.#decodedBytes += chunk.length;
    return chunk;
  }

  /** Nothing is held back. @throws ContractError INVALID_IMAGE_SOURCE: there was none */
  finish(): Uint8Array {
    if (this.#decodedBytes > 0) return Buffer.alloc(0);
    const detail = `${this.#field ?? 'the body'} is empty`;
    const fieldErrors: FieldError[] =
      this.#field === undefined ? [] : [{ field: this.#field, detail: 'the file is empty' }];
    throw new ContractError('INVALID_IMAGE_SOURCE', detail, { fieldErrors });
  }
}
