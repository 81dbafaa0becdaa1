/**
 * The downloads of image_url under way here. Each holds a socket and a file for a minute at most;
 * their places are shared by core/shared-places.ts, by account and by the URL's host. A redirect
 * may lead elsewhere: a host that redirects to a slow one is slow.
 */
import { type PlaceLimits, SharedPlaces } from '../shared-places.ts';

/** One account alone downloads 32 at once, 16 from one host. */
const DOWNLOAD_LIMITS: PlaceLimits = {
  max: 64,
  destinationMax: 32,
  slowMax: 32,
  slowDestinationsMax: 256,
};
/** A host whose download took longer shares its places with others of its kind. */
const SLOW_MS = 5000;

/** A job whose image is to be downloaded. */
export interface DownloadJob {
  readonly accountId: string;
  /** The URL's host; null: unknown, counted as a host of the account's own. */
  readonly sourceHost: string | null;
}

/** A place held. */
export interface Download {
  /** The request begins now: its duration decides whether the host is slow. */
  started(): void;
  /** Gives the place back. False: it was given back before. */
  end(): boolean;
}

export class Downloads {
  readonly #places: SharedPlaces;
  readonly #now: () => number;

  constructor(now: () => number, limits: PlaceLimits = DOWNLOAD_LIMITS) {
    this.#places = new SharedPlaces(limits);
    this.#now = now;
  }

  get underWay(): number {
    return this.#places.taken;
  }

  hasRoom(job: DownloadJob): boolean {
    return this.#places.hasRoom(useOf(job));
  }

  /** Whether the account may download from some host now. */
  hasRoomFor(accountId: string): boolean {
    return this.#places.hasRoomFor(accountId);
  }

  /** Hosts that the account may not download from now. */
  fullHosts(accountId: string): string[] {
    return this.#places.fullFor(accountId);
  }

  /** Undefined: there is no place for it now. */
  begin(job: DownloadJob): Download | undefined {
    const use = useOf(job);
    if (!this.#places.take(use)) return undefined;
    let startedAtMs: number | undefined;
    let ended = false;
    return {
      started: () => {
        startedAtMs = this.#now();
      },
      end: () => {
        if (ended) return false;
        ended = true;
        const slow = startedAtMs === undefined ? undefined : this.#now() - startedAtMs > SLOW_MS;
        this.#places.end(use, slow);
        return true;
      },
    };
  }
}

function useOf({ accountId, sourceHost }: DownloadJob) {
  return { accountId, destination: sourceHost ?? accountId };
}
