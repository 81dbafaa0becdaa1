/**
 * The last bad news about each server: it takes no writes any more, or it fell silent. A connection
 * that is older than the news about its server leads to the same, and is closed instead of used:
 * after a fail-over the same name leads elsewhere, and a connection that is used every second would
 * stay with the old primary for ever.
 */
import type { Member } from './member.ts';

/** Servers that news is kept of: far more than a cluster has. */
const SERVERS_MAX = 64;
/**
 * Between two news about one server: while there is no primary every write meets a read-only
 * server, and readers must not pay a new connection for each of them. News that comes earlier
 * counts later.
 */
const NEWS_MS_MIN = 1_000;

interface Connection {
  /** The server it leads to; undefined while it is not known. */
  readonly member: Member | undefined;
  /** The time by performance.now() before it connected. */
  readonly askedAtMs: number;
}

export class BadNews {
  /** The time by performance.now() from which each server's last news counts. */
  readonly #fromMs = new Map<string, number>();

  /** Notes that a connection has met it. An older connection than the last news brings no other. */
  note(connection: Connection): void {
    const name = connection.member?.name;
    if (name === undefined || this.isOver(connection)) return;
    const now = performance.now();
    const lastMs = this.#fromMs.get(name) ?? Number.NEGATIVE_INFINITY;
    if (lastMs > now) return;
    if (this.#fromMs.size >= SERVERS_MAX) this.#fromMs.clear();
    this.#fromMs.set(name, Math.max(now, lastMs + NEWS_MS_MIN));
  }

  /** Whether there is news about its server since it began. */
  isOver({ member, askedAtMs }: Connection): boolean {
    const fromMs = member && this.#fromMs.get(member.name);
    if (fromMs === undefined) return false;
    // News that does not count yet came within the time after the one before, which does.
    const countsFromMs = fromMs > performance.now() ? fromMs - NEWS_MS_MIN : fromMs;
    return askedAtMs <= countsFromMs;
  }
}
