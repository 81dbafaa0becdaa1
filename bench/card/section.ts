/** A section while it is measured: the time that it has, and its rows, each written at once. */

import type { CardFile, SectionName, SectionResult } from './card-file.ts';
import { describeError } from './describe-error.ts';
import { shown } from './figures.ts';
import type { Row } from './table.ts';

/** What was measured is wrong: its figures are kept, and the row says why. */
export class WrongFigures extends Error {
  readonly figures: Readonly<Record<string, unknown>>;

  constructor(message: string, figures: Readonly<Record<string, unknown>>) {
    super(message);
    this.name = 'WrongFigures';
    this.figures = figures;
  }
}

export class Section {
  readonly name: SectionName;
  /** Aborted when its time is over, and when the program is told to end. */
  readonly signal: AbortSignal;
  readonly #file: CardFile;
  readonly #measuredAt = new Date().toISOString();
  readonly #startedMs = performance.now();
  readonly #endsMs: number;
  #facts: Record<string, unknown> = {};
  #rows: Row[] = [];
  #leftOut: string[] = [];
  #failed: string | undefined;

  constructor(
    name: SectionName,
    { file, seconds, ending }: { file: CardFile; seconds: number; ending: AbortSignal },
  ) {
    this.name = name;
    this.#file = file;
    this.#endsMs = this.#startedMs + 1000 * seconds;
    // A timeout signal that only other signals follow can be collected before it fires.
    const over = new AbortController();
    const end = (reason: unknown) => over.abort(reason);
    setTimeout(() => end(new Error("the section's time was over")), 1000 * seconds).unref();
    if (ending.aborted) end(ending.reason);
    ending.addEventListener('abort', () => end(ending.reason), { once: true });
    this.signal = over.signal;
  }

  get leftMs(): number {
    return this.#endsMs - performance.now();
  }

  get result(): SectionResult {
    return {
      measuredAt: this.#measuredAt,
      seconds: Math.round((performance.now() - this.#startedMs) / 1000),
      facts: this.#facts,
      rows: this.#rows,
      leftOut: this.#leftOut,
      ...(this.#failed !== undefined && { failed: this.#failed }),
    };
  }

  note(facts: Readonly<Record<string, unknown>>): void {
    this.#facts = { ...this.#facts, ...facts };
    this.#write();
  }

  fail(error: unknown): void {
    this.#failed = describeError(error);
    this.#write();
  }

  leaveOut(name: string): void {
    this.#leftOut.push(name);
    this.#write();
  }

  /**
   * Measures a row where there is time for it. What goes wrong is the row's, not the section's.
   * @param needsMs what it takes at least.
   * @returns its figures; undefined: it was left out, or failed.
   */
  async row(
    name: string,
    needsMs: number,
    measure: (signal: AbortSignal) => Promise<Record<string, unknown>>,
  ): Promise<Record<string, unknown> | undefined> {
    if (this.signal.aborted || this.leftMs < needsMs) {
      this.leaveOut(name);
      return undefined;
    }
    try {
      const figures = await measure(this.signal);
      this.#add({ name, figures });
      return figures;
    } catch (error) {
      const figures = error instanceof WrongFigures ? error.figures : {};
      this.#add({ name, failed: describeError(error), figures });
      return undefined;
    }
  }

  /** What rows need before they can be measured. @returns undefined: it failed, as a row says. */
  async prepare<Made>(name: string, make: (signal: AbortSignal) => Promise<Made>) {
    try {
      return await make(this.signal);
    } catch (error) {
      this.#add({ name, failed: describeError(error), figures: {} });
      return undefined;
    }
  }

  #add(row: Row): void {
    this.#rows.push(row);
    this.#write();
    const { imagesPerS } = row.figures;
    const rate = typeof imagesPerS === 'number' ? `${shown(imagesPerS)} images/s` : 'measured';
    const said = row.failed === undefined ? rate : `failed: ${row.failed}`;
    console.log(`${this.name}: ${row.name}: ${said}, after ${this.result.seconds} s`);
  }

  #write(): void {
    this.#file.write(this.name, this.result);
  }
}
