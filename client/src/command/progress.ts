/** Shows progress on standard error: a bar on a terminal, otherwise a line at each quarter. */
import type { WriteStream } from 'node:tty';
import { withoutBytes } from './file-names.ts';

const BAR_LENGTH = 30;
const COLUMNS_DEFAULT = 80;
const PLAIN_STEP_PERCENT = 25;
const CLEAR_LINE = '\r\x1b[2K';
/** The control characters that a file name may contain, except tabs and line ends. */
const CONTROLS = /(?![\t\n])\p{Cc}/gu;

/** Removes control characters, which a terminal would obey, and undecodable bytes. */
export function shown(text: string): string {
  return withoutBytes(text).replaceAll(CONTROLS, '?');
}

export class Progress {
  readonly #out: Pick<WriteStream, 'isTTY' | 'columns' | 'write'>;
  readonly #total: number;
  readonly #hasBar: boolean;
  readonly #startedAtMs = performance.now();
  #ended = 0;
  /** Pictures that were cut out. Failed ones do not count for the pace. */
  #made = 0;
  #percentSaid = 0;
  #note = '';

  constructor(total: number, out: Pick<WriteStream, 'isTTY' | 'columns' | 'write'>) {
    this.#out = out;
    this.#total = total;
    this.#hasBar = out.isTTY && total > 0;
    this.#draw();
  }

  /** @param isMade the picture has a new result */
  ended(source: string, isMade: boolean): void {
    this.#ended += 1;
    if (isMade) this.#made += 1;
    this.note(source);
    if (this.#hasBar) return;
    const percent = Math.floor((this.#ended / this.#total) * 100);
    if (percent < this.#percentSaid + PLAIN_STEP_PERCENT) return;
    this.#percentSaid = percent - (percent % PLAIN_STEP_PERCENT);
    this.line(this.#text());
  }

  /** Shows a text next to the bar, until the next picture ends. */
  note(text: string): void {
    // One line, because it is overwritten.
    this.#note = shown(text).replaceAll(/\s/g, ' ');
    this.#draw();
  }

  /** Prints a line above the bar. */
  line(text: string): void {
    this.#out.write(`${this.#hasBar ? CLEAR_LINE : ''}matting: ${shown(text)}\n`);
    this.#draw();
  }

  stop(): void {
    if (this.#hasBar) this.#out.write('\n');
  }

  #draw(): void {
    if (!this.#hasBar) return;
    const bar = '█'.repeat((this.#ended / this.#total) * BAR_LENGTH).padEnd(BAR_LENGTH, '░');
    const text = `${bar} ${this.#text()}`;
    this.#out.write(CLEAR_LINE + text.slice(0, (this.#out.columns || COLUMNS_DEFAULT) - 1));
  }

  #text(): string {
    const parts = [`${this.#ended} of ${this.#total}`, ...this.#pace(), this.#note];
    return parts.filter(part => part !== '').join(', ');
  }

  /** The pace so far, and the remaining time at that pace. */
  #pace(): string[] {
    const left = this.#total - this.#ended;
    if (this.#made === 0 || left === 0) return [];
    const perPictureMs = (performance.now() - this.#startedAtMs) / this.#made;
    const perMinute = 60_000 / perPictureMs;
    const rate = `${perMinute.toFixed(perMinute < 10 ? 1 : 0)} a minute`;
    const seconds = Math.ceil((perPictureMs * left) / 1000);
    return [seconds < 100 ? `${seconds} s left` : `${Math.ceil(seconds / 60)} min left`, rate];
  }
}
