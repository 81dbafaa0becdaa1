/**
 * The first SIGTERM or SIGINT means drain, a later one hurry. Repeats within SAME_SIGNAL_MS do not
 * count, since terminals and npm send a signal twice.
 */
const SAME_SIGNAL_MS = 1000;

type SignalMeaning = 'drain' | 'repeat' | 'hurry';

export class SignalGate {
  #lastMs: number | undefined;

  /** @param nowMs monotonic */
  read(nowMs: number): SignalMeaning {
    const lastMs = this.#lastMs;
    this.#lastMs = nowMs;
    if (lastMs === undefined) return 'drain';
    return nowMs - lastMs < SAME_SIGNAL_MS ? 'repeat' : 'hurry';
  }
}
