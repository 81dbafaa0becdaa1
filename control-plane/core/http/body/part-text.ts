/** The text of a part, or of a pair, kept as it arrives and decoded at its end. */
import { isAscii } from 'node:buffer';
import { URL_LENGTH_MAX } from '#contract/limits.ts';
import { OVERLONG, type TextValue } from '../../submission/submit-fields.ts';
import { malformed } from './malformed.ts';
import type { PartHead } from './part-head.ts';

/** No text within URL_LENGTH_MAX characters needs more in UTF-8. */
const TEXT_BYTES_MAX = 3 * URL_LENGTH_MAX;

export class PartText {
  readonly #utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  readonly #raw = Buffer.allocUnsafe(TEXT_BYTES_MAX);
  #isAscii = false;
  #bytes = 0;

  begin(head: Pick<PartHead, 'isAscii'>): void {
    this.#isAscii = head.isAscii;
    this.#bytes = 0;
  }

  take(bytes: Buffer): void {
    const from = this.#bytes;
    this.#bytes += bytes.length;
    if (this.#bytes <= TEXT_BYTES_MAX) this.#raw.set(bytes, from);
  }

  /** @throws ContractError INVALID_REQUEST */
  end(field: string): TextValue {
    if (this.#bytes > TEXT_BYTES_MAX) return OVERLONG;
    const raw = this.#raw.subarray(0, this.#bytes);
    if (this.#isAscii && !isAscii(raw)) {
      throw malformed(`${field} is neither ASCII nor UTF-8`, field, 'not ASCII');
    }
    try {
      return this.#utf8.decode(raw);
    } catch (cause) {
      throw malformed(`${field} is not UTF-8`, field, 'not UTF-8', cause);
    }
  }
}
