/**
 * Watches whether the clocks of the database's members agree, where it has several. They are not
 * mended here, and the service goes on: a line of the log and a metric say it.
 */
import type { Logger } from 'pino';
import { pollingLoop } from '../round-loop.ts';
import { type ClockComparison, describeClocks, MEMBER_CLOCKS_MS_MAX } from './member-clocks.ts';

/** A look is a connection of its own: at this pace each of three members is seen twice a minute. */
const LOOK_EVERY_MS = 10_000;

export interface ClockWatchDependencies {
  /** Undefined: the database has one clock. */
  readonly look: () => Promise<ClockComparison | undefined>;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
}

export class ClockWatch {
  readonly #dependencies: ClockWatchDependencies;
  readonly loop = pollingLoop(
    LOOK_EVERY_MS,
    () => this.look(),
    err => this.#dependencies.log.warn({ err }, 'the clocks of the database were not read'),
  );
  #last: ClockComparison | undefined;
  #apart = false;

  constructor(dependencies: ClockWatchDependencies) {
    this.#dependencies = dependencies;
  }

  /** By the last look; undefined: there is one clock, or there was no look yet. */
  get differenceMs(): number | undefined {
    return this.#last?.differenceMs;
  }

  /** Says so when they begin to differ, and when they agree again. */
  async look(): Promise<void> {
    const { look, log } = this.#dependencies;
    this.#last = await look();
    if (this.#last === undefined) return;
    const apart = this.#last.differenceMs > MEMBER_CLOCKS_MS_MAX;
    if (apart === this.#apart) return;
    this.#apart = apart;
    if (apart) log.error({ ...this.#last }, describeClocks(this.#last));
    else log.info({ ...this.#last }, 'the clocks of the database’s members agree again');
  }
}
