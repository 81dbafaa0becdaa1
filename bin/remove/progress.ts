/** How far a run is: a bar on a terminal, a line at each quarter elsewhere, always on standard error. */
import type { WriteStream } from 'node:tty';
import cliProgress from 'cli-progress';

const FRAMES_PER_SECOND = 10;
const PLAIN_STEP_PERCENT = 25;
/** Of a note beside the bar. */
const NOTE_LENGTH_MAX = 60;

export class Progress {
  readonly #out: WriteStream;
  readonly #total: number;
  readonly #bar: cliProgress.SingleBar | undefined;
  #ended = 0;
  #percentSaid = 0;

  constructor(total: number, out: WriteStream = process.stderr) {
    this.#out = out;
    this.#total = total;
    if (out.isTTY !== true || total === 0) return;
    this.#bar = new cliProgress.SingleBar(
      {
        format: '{bar} {value} of {total}, {eta_formatted} left {note}',
        stream: out,
        fps: FRAMES_PER_SECOND,
        hideCursor: true,
        gracefulExit: false,
      },
      cliProgress.Presets.shades_classic,
    );
    this.#bar.start(total, 0, { note: '' });
  }

  /** One more picture has ended, well or not. */
  ended(): void {
    this.#ended += 1;
    this.#bar?.update(this.#ended, { note: '' });
    if (this.#bar !== undefined) return;
    const percent = Math.floor((this.#ended / this.#total) * 100);
    if (percent < this.#percentSaid + PLAIN_STEP_PERCENT) return;
    this.#percentSaid = percent - (percent % PLAIN_STEP_PERCENT);
    this.#out.write(`matting: ${this.#ended} of ${this.#total}\n`);
  }

  /** What is waited for; beside the bar, until the next picture ends. */
  note(text: string): void {
    this.#bar?.update(this.#ended, { note: `(${text.slice(0, NOTE_LENGTH_MAX)})` });
  }

  /** A line of its own, above the bar. */
  line(text: string): void {
    // The bar is drawn again with its next frame.
    if (this.#bar !== undefined) this.#out.write('\r\x1b[2K');
    this.#out.write(`matting: ${text}\n`);
  }

  stop(): void {
    this.#bar?.stop();
  }
}
