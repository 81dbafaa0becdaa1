import { connectionsWithin } from './listening.ts';

export const GUARD_BOUNDS = {
  strangersMax: 512,
  /** The time from the connection, with the TLS handshake, to the first call with a token. */
  tokenWaitMaxMs: 10_000,
  /** Bounds connections with only calls that need no token, such as probes. */
  probeAgeMaxMs: 60_000,
  /**
   * Includes frames and TLS. It exceeds `strangerCallsMax` full windows, so that a wrong token is
   * no flood.
   */
  strangerBytesMax: 1024 * 1024,
  /** A caller that probes each second must reconnect after 100 s. */
  strangerCallsMax: 100,
  knownMax: 256,
  directMax: 192,
  directEachMax: 64,
  /** The time from a call's headers to its complete first message. */
  firstMessageWaitMaxMs: 10_000,
  /** The time of callers that continue to send after the whole answer. */
  afterEndMaxMs: 5000,
};
export type GuardBounds = Readonly<typeof GUARD_BOUNDS>;

/** Reduces the bounds to the limit of open files. @param share fraction of it for the port */
export function guardBoundsWithin(
  bounds: GuardBounds,
  share: number,
  filesMax?: number,
): GuardBounds {
  const all = connectionsMaxOf(bounds);
  const part = connectionsWithin(all, share, filesMax) / all;
  const fewer = (count: number) => Math.max(1, Math.floor(count * part));
  return {
    ...bounds,
    strangersMax: fewer(bounds.strangersMax),
    knownMax: fewer(bounds.knownMax),
    directMax: fewer(bounds.directMax),
    directEachMax: fewer(bounds.directEachMax),
  };
}

/** Counts strangers twice, since some are being closed. */
export function connectionsMaxOf({ strangersMax, knownMax }: GuardBounds): number {
  return 2 * strangersMax + knownMax;
}
