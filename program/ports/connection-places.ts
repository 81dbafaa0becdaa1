/**
 * Places of a gRPC port's connections. A connection is a stranger until one of its calls shows who
 * makes it; strangers have places of their own and take none from those that are known:
 *
 * | bound               | who           | what happens there                                       |
 * |---------------------|---------------|----------------------------------------------------------|
 * | strangersMax        | all strangers | the address with most of them loses its oldest one       |
 * | tokenWaitMaxMs      | a stranger    | it is closed                                             |
 * | probeAgeMaxMs       | a stranger    | the same, later, where it made calls that are open to all|
 * | strangerBytesMax    | a stranger    | it is closed: it floods                                  |
 * | strangerCallsMax    | a stranger    | it is asked to connect again                             |
 * | knownMax            | all known     | the newcomer's call is refused, its connection closed    |
 * | directMax           | direct callers| the same                                                 |
 * | directEachMax       | one of them   | the same                                                 |
 *
 * The newest stranger is never the one to go, so who has a token gets as far as showing it: with
 * places for 512, others of the same network would have to connect 5,000 times a second to be
 * faster than one that needs 100 ms.
 */
import { constants, type ServerHttp2Session } from 'node:http2';
import type { Socket } from 'node:net';
import { networkOf } from '../network-of.ts';
import { connectionsWithin } from '../open-files.ts';

export interface PlaceBounds {
  readonly strangersMax: number;
  /** From the connection to the first call with a token, the TLS handshake included. */
  readonly tokenWaitMaxMs: number;
  /** The same of a connection that only makes calls that need no token, as probes do. */
  readonly probeAgeMaxMs: number;
  /** As they come over the wire, frames and TLS included. */
  readonly strangerBytesMax: number;
  /** Bound for one connection over its life: a probe each second until it must reconnect. */
  readonly strangerCallsMax: number;
  readonly knownMax: number;
  readonly directMax: number;
  readonly directEachMax: number;
}

export const PLACE_BOUNDS: PlaceBounds = {
  strangersMax: 512,
  tokenWaitMaxMs: 10_000,
  probeAgeMaxMs: 60_000,
  strangerBytesMax: 32 * 1024,
  strangerCallsMax: 100,
  knownMax: 256,
  directMax: 192,
  directEachMax: 64,
};

/**
 * The same places, as many as the files there are allow.
 * @param share fraction of all files that the port's connections may take
 */
export function placesWithin<Bounds extends PlaceBounds>(
  bounds: Bounds,
  share: number,
  filesMax?: number,
): Bounds {
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

/** The places keep below it; strangers count twice, for those that are about to end. */
export function connectionsMaxOf({ strangersMax, knownMax }: PlaceBounds): number {
  return 2 * strangersMax + knownMax;
}

/** Who a known connection belongs to: the fleet, or the direct caller of that name. */
export type ConnectionOwner =
  | { readonly kind: 'fleet' }
  | { readonly kind: 'direct'; readonly name: string };

/** Why a connection was ended here. */
export const PLACE_CAUSES = ['no_token', 'crowded', 'flood', 'over_limit'] as const;
export type PlaceCause = (typeof PLACE_CAUSES)[number];

/** Interval at which strangers' ages and bytes are checked; bytes also with each call. */
const SWEEP_INTERVAL_MS = 200;
/** Between asking a connection to end and ending it. */
const END_GRACE_MS = 1000;

interface Place {
  readonly socket: Socket;
  readonly network: string;
  readonly openedAtMs: number;
  session: ServerHttp2Session | undefined;
  owner: ConnectionOwner | undefined;
  /** Made a call that is open to all. */
  probed: boolean;
  calls: number;
  ending: boolean;
}

export class ConnectionPlaces {
  readonly #bounds: PlaceBounds;
  readonly #onEnded: (cause: PlaceCause) => void;
  /**
   * By the peer's address and port: of TLS, the session's socket is another object than the
   * connection's. In the order in which they came.
   */
  readonly #places = new Map<string, Place>();
  readonly #bySession = new WeakMap<ServerHttp2Session, Place>();
  #strangers = 0;
  #known = 0;
  readonly #direct = new Map<string, number>();
  #sweeping: NodeJS.Timeout | undefined;

  constructor(bounds: PlaceBounds, onEnded: (cause: PlaceCause) => void) {
    this.#bounds = bounds;
    this.#onEnded = onEnded;
  }

  /** Open connections that have shown no token. */
  get strangers(): number {
    return this.#strangers;
  }

  /** Open connections that have shown one. */
  get known(): number {
    return this.#known;
  }

  /** A new connection, before its first byte is read. */
  opened(socket: Socket): void {
    const peer = peerOf(socket);
    const place: Place = {
      socket,
      network: networkOf(socket.remoteAddress ?? ''),
      openedAtMs: performance.now(),
      session: undefined,
      owner: undefined,
      probed: false,
      calls: 0,
      ending: false,
    };
    this.#places.set(peer, place);
    this.#strangers += 1;
    socket.once('close', () => {
      if (this.#places.get(peer) === place) this.#places.delete(peer);
      this.#leave(place);
    });
    this.#makeRoom();
    const intervalMs = Math.min(SWEEP_INTERVAL_MS, this.#bounds.tokenWaitMaxMs / 4);
    this.#sweeping ??= setInterval(() => this.#sweep(), intervalMs).unref();
  }

  /** The HTTP/2 session of a connection that was opened. */
  greeted(session: ServerHttp2Session): void {
    const place = this.#places.get(peerOf(session.socket));
    if (place === undefined) return;
    place.session = session;
    this.#bySession.set(session, place);
  }

  /**
   * A call with a known token. True for the first of its connection; undefined where the owner has
   * no place left: the call is to be refused, and its connection ends.
   */
  identified(session: ServerHttp2Session, owner: ConnectionOwner): boolean | undefined {
    const place = this.#bySession.get(session);
    if (place === undefined || place.owner !== undefined) return false;
    if (place.ending) return undefined;
    if (!this.#hasRoomFor(owner)) {
      this.#end(place, 'over_limit');
      return undefined;
    }
    place.owner = owner;
    this.#strangers -= 1;
    this.#known += 1;
    if (owner.kind === 'direct') {
      this.#direct.set(owner.name, (this.#direct.get(owner.name) ?? 0) + 1);
    }
    return true;
  }

  /** A call that is open to all. */
  probed(session: ServerHttp2Session): void {
    const place = this.#bySession.get(session);
    if (place !== undefined) place.probed = true;
  }

  /** A call without a token; false where its connection ends before it. */
  called(session: ServerHttp2Session): boolean {
    const place = this.#bySession.get(session);
    if (place === undefined || place.owner !== undefined) return true;
    place.calls += 1;
    // This one is answered still: a probe that comes often is asked to connect again.
    if (place.calls === this.#bounds.strangerCallsMax) this.#end(place, 'no_token');
    return this.mayGoOn(session);
  }

  /** False where the connection of bytes that just came sends too many for a stranger: it ends. */
  mayGoOn(session: ServerHttp2Session): boolean {
    const place = this.#bySession.get(session);
    if (place === undefined || place.owner !== undefined) return true;
    if (place.socket.bytesRead <= this.#bounds.strangerBytesMax) return true;
    this.#end(place, 'flood');
    return false;
  }

  #hasRoomFor(owner: ConnectionOwner): boolean {
    const { knownMax, directMax, directEachMax } = this.#bounds;
    if (this.#known >= knownMax) return false;
    if (owner.kind === 'fleet') return true;
    const direct = [...this.#direct.values()].reduce((sum, count) => sum + count, 0);
    return direct < directMax && (this.#direct.get(owner.name) ?? 0) < directEachMax;
  }

  #leave({ owner }: Place): void {
    if (owner === undefined) this.#strangers -= 1;
    else this.#known -= 1;
    if (owner?.kind === 'direct') {
      const left = (this.#direct.get(owner.name) ?? 1) - 1;
      if (left === 0) this.#direct.delete(owner.name);
      else this.#direct.set(owner.name, left);
    }
    if (this.#strangers > 0) return;
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
  }

  /** Ends the oldest stranger of the network that has most of them, where there are too many. */
  #makeRoom(): void {
    if (this.#strangers <= this.#bounds.strangersMax) return;
    const open = [...this.#places.values()].filter(({ owner, ending }) => !owner && !ending);
    if (open.length <= this.#bounds.strangersMax) return;
    const byNetwork = new Map<string, Place[]>();
    for (const place of open) {
      const same = byNetwork.get(place.network);
      if (same === undefined) byNetwork.set(place.network, [place]);
      else same.push(place);
    }
    let most: readonly Place[] = [];
    for (const places of byNetwork.values()) if (places.length > most.length) most = places;
    const [oldest] = most;
    if (oldest !== undefined) this.#end(oldest, 'crowded');
  }

  #sweep(): void {
    const { tokenWaitMaxMs, probeAgeMaxMs, strangerBytesMax } = this.#bounds;
    const nowMs = performance.now();
    for (const place of this.#places.values()) {
      if (place.owner !== undefined) continue;
      const ageMaxMs = place.probed ? probeAgeMaxMs : tokenWaitMaxMs;
      if (place.socket.bytesRead > strangerBytesMax) this.#end(place, 'flood');
      else if (nowMs - place.openedAtMs > ageMaxMs) this.#end(place, 'no_token');
    }
  }

  /** With a GOAWAY where it speaks HTTP/2; whatever the peer does, it is over soon. */
  #end(place: Place, cause: PlaceCause): void {
    if (place.ending) return;
    place.ending = true;
    this.#onEnded(cause);
    const { socket, session } = place;
    const end = () => socket.destroy();
    if (session === undefined || session.destroyed || cause === 'crowded') end();
    else if (cause === 'flood') {
      // Ends the socket, not the session: destroyed with a code, a session under a flood never
      // tells its server that it closed, which then cannot close either (Node 24.21).
      session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      setImmediate(end);
    } else {
      session.close();
      setTimeout(end, END_GRACE_MS).unref();
    }
  }
}

function peerOf({ remoteAddress, remotePort }: Pick<Socket, 'remoteAddress' | 'remotePort'>) {
  return `${remoteAddress} ${remotePort}`;
}
