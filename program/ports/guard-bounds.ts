/** The bounds of a guarded gRPC port, and how many of its connections the open files allow. */
import { connectionsWithin } from './listening.ts';

export const GUARD_BOUNDS = {
  strangersMax: 512,
  /** The time from the connection to the first call with a token, with the TLS handshake. */
  tokenWaitMaxMs: 10_000,
  /** The same of a connection that only makes calls that need no token, as probes do. */
  probeAgeMaxMs: 60_000,
  /**
   * The bytes as they come over the wire, with frames and TLS: more than `strangerCallsMax` calls
   * that each fill their window, so that a caller with a wrong token hears of that and of no flood.
   */
  strangerBytesMax: 1024 * 1024,
  /** The calls of one connection over its life: a probe each second until it must reconnect. */
  strangerCallsMax: 100,
  knownMax: 256,
  directMax: 192,
  directEachMax: 64,
  /** The time from a call's headers to the end of its first message. */
  firstMessageWaitMaxMs: 10_000,
  /** The time for callers that send on, or never end their side, after their whole answer. */
  afterEndMaxMs: 5000,
};
export type GuardBounds = Readonly<typeof GUARD_BOUNDS>;

/**
 * The same, with as many connections as the files there are allow.
 * @param share fraction of all files that the port's connections may take
 */
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

/** Connections keep below it; strangers count twice, for those that are about to end. */
export function connectionsMaxOf({ strangersMax, knownMax }: GuardBounds): number {
  return 2 * strangersMax + knownMax;
}
