/** Names of fields that this interface does not have, for the header that says they were ignored. */

/** More than any client sends; the header stays small. */
const NAMES_MAX = 16;
const NAME = /^[A-Za-z0-9_.[\]-]{1,64}$/;

export class UnknownFields {
  readonly #names = new Set<string>();

  /** A name that no header should carry is left out. @param name undefined: too long to be kept. */
  note(name: string | undefined): void {
    if (name === undefined || !NAME.test(name) || this.#names.size >= NAMES_MAX) return;
    this.#names.add(name);
  }

  get names(): readonly string[] {
    return [...this.#names];
  }
}
