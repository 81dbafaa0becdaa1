/** Aborts a try when nothing has moved for too long, or its time is over. */
export class SilenceWatch {
  readonly signal: AbortSignal;
  readonly #silent = new AbortController();
  readonly #timers: readonly [NodeJS.Timeout, NodeJS.Timeout];
  /** Why the watch aborted; undefined: it did not. */
  expired: string | undefined;

  constructor(silenceMs: number, leftMs: number, call: AbortSignal) {
    this.signal = AbortSignal.any([call, this.#silent.signal]);
    const expire = (why: string) => () => {
      this.expired ??= why;
      this.#silent.abort();
    };
    this.#timers = [
      setTimeout(expire('the storage is silent'), silenceMs),
      setTimeout(expire('the time is over'), leftMs),
    ];
  }

  moved(): void {
    this.#timers[0].refresh();
  }

  stop(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }
}
