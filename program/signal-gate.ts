/**
 * The meaning of SIGTERM and SIGINT for a program that drains: the first says to drain, another
 * within SAME_SIGNAL_MS of the last says nothing (terminals and npm send one twice), a later one
 * says to hurry.
 */
const SAME_SIGNAL_MS = 1000;

type SignalMeaning = 'drain' | 'repeat' | 'hurry';

export class SignalGate {
  #lastMs: number | undefined;

  /** @param nowMs of a monotonic clock. */
  read(nowMs: number): SignalMeaning {
    const lastMs = this.#lastMs;
    this.#lastMs = nowMs;
    if (lastMs === undefined) return 'drain';
    return nowMs - lastMs < SAME_SIGNAL_MS ? 'repeat' : 'hurry';
  }
}
