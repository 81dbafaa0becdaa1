/**
 * What a child's native libraries write to standard output and error, cut into lines for the log:
 * the node's own output is one JSON line an event. Of a flood only the number of lines is logged.
 */

/** The rest of a line is left out. */
export const LINE_CHARACTERS_MAX = 1000;
/** Lines of one child that are logged in a window; further ones are counted. */
export const LINES_MAX = 100;
export const WINDOW_MS = 60_000;

export class OutputLines {
  readonly #onLine: (line: string) => void;
  #partial = '';
  /** The rest of the line that is being read is left out. */
  #cut = false;
  #windowStartMs = Number.NEGATIVE_INFINITY;
  #logged = 0;
  #leftOut = 0;

  /** @param onLine takes one line, without its line feed. */
  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  push(text: string): void {
    const pieces = text.split('\n');
    for (const [index, piece] of pieces.entries()) {
      this.#append(piece);
      if (index < pieces.length - 1) this.#endLine();
    }
  }

  /** The child is gone: what it wrote last may lack a line feed. */
  end(): void {
    this.#endLine();
    this.#logLeftOut();
  }

  #append(piece: string): void {
    if (this.#cut) return;
    this.#partial += piece.slice(0, LINE_CHARACTERS_MAX - this.#partial.length);
    this.#cut = this.#partial.length === LINE_CHARACTERS_MAX;
  }

  #endLine(): void {
    const line = this.#partial.trimEnd();
    this.#partial = '';
    this.#cut = false;
    if (line === '') return;
    const nowMs = performance.now();
    if (nowMs - this.#windowStartMs >= WINDOW_MS) {
      this.#windowStartMs = nowMs;
      this.#logged = 0;
      this.#logLeftOut();
    }
    if (this.#logged >= LINES_MAX) {
      this.#leftOut += 1;
      return;
    }
    this.#logged += 1;
    this.#onLine(line);
  }

  #logLeftOut(): void {
    if (this.#leftOut === 0) return;
    this.#onLine(`${this.#leftOut} more lines were left out`);
    this.#leftOut = 0;
  }
}
