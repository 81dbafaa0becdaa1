import type { WriteStream } from 'node:tty';

const SPINNER = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const SPINNER_INTERVAL_MS = 90;
const BAR_COLUMNS = 28;
/** If the terminal's width is unknown. */
const COLUMNS_UNKNOWN = 80;
/** Steps of progress without a terminal. */
const PLAIN_STEP_PERCENT = 25;

export class Terminal {
  readonly #out: WriteStream;
  readonly #live: boolean;
  #timer: NodeJS.Timeout | undefined;
  #frame = 0;
  #activity = '';
  #activitySinceMs = 0;
  #percentSaid = -1;

  constructor(out: WriteStream = process.stdout) {
    this.#out = out;
    this.#live = out.isTTY === true;
    // The terminal was closed, or nobody reads the pipe: the work continues unseen.
    out.on('error', () => undefined);
  }

  line(text: string): void {
    this.#clear();
    this.#out.write(`${text}\n`);
    this.#draw();
  }

  /** A spinner with seconds in a terminal, otherwise one line. */
  activity(text: string): void {
    this.#percentSaid = -1;
    this.#activity = text;
    this.#activitySinceMs = Date.now();
    if (!this.#live) {
      this.#out.write(`${text} ...\n`);
      return;
    }
    this.#timer ??= setInterval(() => {
      this.#frame += 1;
      this.#draw();
    }, SPINNER_INTERVAL_MS);
    this.#timer.unref();
    this.#draw();
  }

  progress(text: string, receivedBytes: number, totalBytes: number | undefined): void {
    const percent =
      totalBytes === undefined || totalBytes === 0
        ? undefined
        : Math.min(100, Math.floor((receivedBytes / totalBytes) * 100));
    if (this.#live) {
      const filled = Math.round(((percent ?? 0) / 100) * BAR_COLUMNS);
      const bar = '█'.repeat(filled) + '░'.repeat(BAR_COLUMNS - filled);
      const total = totalBytes === undefined ? '' : ` of ${megabytes(totalBytes)}`;
      this.#activity = `${text} ${bar} ${megabytes(receivedBytes)}${total} MB`;
      this.#draw();
      return;
    }
    if (percent === undefined || percent < this.#percentSaid + PLAIN_STEP_PERCENT) return;
    this.#percentSaid = percent - (percent % PLAIN_STEP_PERCENT);
    this.#out.write(`${text} ${this.#percentSaid} %\n`);
  }

  /** Ends the live line. */
  quiet(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#clear();
    this.#activity = '';
  }

  #clear(): void {
    if (this.#live && this.#activity !== '') this.#out.write('\r\x1b[2K');
  }

  #draw(): void {
    if (!this.#live || this.#activity === '') return;
    const seconds = Math.floor((Date.now() - this.#activitySinceMs) / 1000);
    const since = seconds >= 1 ? ` ${seconds} s` : '';
    const text = `${SPINNER[this.#frame % SPINNER.length]} ${this.#activity}${since}`;
    this.#out.write(`\r\x1b[2K${text.slice(0, (this.#out.columns || COLUMNS_UNKNOWN) - 1)}`);
  }
}

function megabytes(bytes: number): string {
  return (bytes / 1_000_000).toFixed(1);
}
