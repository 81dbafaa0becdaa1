/** Hashes one of the files of a call while their bytes come, one after the other. */
import { createHash, type Hash } from 'node:crypto';
import { ContractError } from '#contract/errors.ts';
import type { FileOrder } from './file-header.ts';

export class FileDigest {
  readonly #from: number;
  readonly #to: number;
  readonly #expected: Buffer | undefined;
  readonly #hash: Hash | undefined;

  /** @param from where its bytes begin among all. */
  constructor({ contentLength, sha256 }: FileOrder, from: number) {
    this.#from = from;
    this.#to = from + contentLength;
    this.#expected = sha256;
    this.#hash = sha256 === undefined ? undefined : createHash('sha256');
  }

  /** @param offset of the data among the bytes of all files. */
  update(data: Buffer, offset: number): void {
    if (this.#hash === undefined) return;
    const [from, to] = [Math.max(0, this.#from - offset), Math.max(0, this.#to - offset)];
    this.#hash.update(data.subarray(from, to));
  }

  /** Once all bytes have come. @throws ContractError INVALID_REQUEST */
  require(bytes: string): void {
    if (this.#hash === undefined || this.#expected === undefined) return;
    if (this.#hash.digest().equals(this.#expected)) return;
    throw new ContractError('INVALID_REQUEST', `${bytes} do not have the sha256 given`);
  }
}
