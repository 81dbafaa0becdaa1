/** How far a run is: a bar on a terminal, a line at each quarter elsewhere, always on standard error. */
import type { WriteStream } from 'node:tty';

const BAR_LENGTH = 30;
const COLUMNS_DEFAULT = 80;
const PLAIN_STEP_PERCENT = 25;
const CLEAR_LINE = '\r\x1b[2K';
/** All controls but tabs and new lines: names of files may hold any. */
const CONTROLS = /(?![\t\n])\p{Cc}/gu;

/** As it may be written to a terminal, which acts by controls. */
export function shown(text: string): string {
  return text.replaceAll(CONTROLS, '?');
}

export class Progress {
  readonly #out: Pick<WriteStream, 'isTTY' | 'columns' | 'write'>;
  readonly #total: number;
  readonly #hasBar: boolean;
  readonly #startedAtMs = performance.now();
  #ended = 0;
  #percentSaid = 0;
  #note = '';

  constructor(total: number, out: Pick<WriteStream, 'isTTY' | 'columns' | 'write'>) {
    this.#out = out;
    this.#total = total;
    this.#hasBar = out.isTTY && total > 0;
    this.#draw();
  }

  /** One more picture has ended, well or not. */
  ended(): void {
    this.#ended += 1;
    this.note('');
    if (this.#hasBar) return;
    const percent = Math.floor((this.#ended / this.#total) * 100);
    if (percent < this.#percentSaid + PLAIN_STEP_PERCENT) return;
    this.#percentSaid = percent - (percent % PLAIN_STEP_PERCENT);
    this.line(`${this.#ended} of ${this.#total}`);
  }

  /** What is waited for; beside the bar, until the next picture ends. */
  note(text: string): void {
    this.#note = shown(text);
    this.#draw();
  }

  /** A line of its own, above the bar. */
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
    const parts = [`${bar} ${this.#ended} of ${this.#total}`, this.#left(), this.#note];
    const text = parts.filter(part => part !== '').join(', ');
    this.#out.write(CLEAR_LINE + text.slice(0, (this.#out.columns || COLUMNS_DEFAULT) - 1));
  }

  /** As long a picture as those before. */
  #left(): string {
    if (this.#ended === 0 || this.#ended === this.#total) return '';
    const perPictureMs = (performance.now() - this.#startedAtMs) / this.#ended;
    const seconds = Math.ceil((perPictureMs * (this.#total - this.#ended)) / 1000);
    return seconds < 100 ? `${seconds} s left` : `${Math.ceil(seconds / 60)} min left`;
  }
}
