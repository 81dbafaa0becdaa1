/**
 * One boot of one node as this replica sees it: its channel, what it said of itself, and the
 * capacity stream, which is its sign of life and its load.
 *
 * | state      | entered                               | left                                  |
 * |------------|---------------------------------------|---------------------------------------|
 * | connecting | made; or a stream ended, after a wait | live: GetNodeInfo fits, first report  |
 * | live       | a report came                         | connecting: stream ends or 5 s silent |
 * | retired    | its membership ended or a new boot    | closed: its last attempt has ended    |
 *
 * Routable is live and SERVING. Attempts in flight keep their own outcome through all of it.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { ClientReadableStream } from '@grpc/grpc-js';
import { inputFormatFromProto, outputFormatFromProto } from '#contract/formats.ts';
import type { ChannelSecurity } from '#contract/tls-files.ts';
import {
  type GetNodeInfoResponse,
  NodeState,
  type WatchCapacityResponse,
} from '#gen/matting/v1/matte_service.ts';
import type { NodeSnapshot } from '../domain/dispatch-policy.ts';
import { NodeClient } from './node-client.ts';

const PROTOCOL_VERSION = 'matting.v1';
/** A node reports every second: five missed are a node that hangs. */
export const REPORT_SILENCE_MAX_MS = 5000;
const RECONNECT_WAIT_MIN_MS = 50;
const RECONNECT_WAIT_MAX_MS = 1000;

/** A row of the membership table, as far as dispatch needs it. */
export interface FleetMember {
  readonly nodeId: string;
  readonly bootId: string;
  /** host:port of its MatteService. */
  readonly address: string;
  /** The operator asked it to take nothing new. */
  readonly draining: boolean;
}

/** A message that shows in the log which node it is about. */
export type LinkLog = (level: 'info' | 'warn', message: string, fields: object) => void;

type Static = Pick<
  NodeSnapshot,
  'inputFormats' | 'outputFormats' | 'imagePixelsMax' | 'jxlPixelsMax' | 'engines'
>;

/** offered: header sent. admitted: not in a report yet. shown: in the node's own numbers. */
type OfferPhase = 'offered' | 'admitted' | 'shown' | 'ended';

/** Holds room on a node for one attempt, from the choice of the node to the attempt's end. */
export class Offer {
  readonly nodeId: string;
  readonly bootId: string;
  readonly client: NodeClient;
  readonly megapixels: number;
  readonly #onEnd: (offer: Offer, full: boolean) => void;
  phase: OfferPhase = 'offered';

  constructor(
    member: FleetMember,
    client: NodeClient,
    megapixels: number,
    onEnd: (offer: Offer, full: boolean) => void,
  ) {
    this.nodeId = member.nodeId;
    this.bootId = member.bootId;
    this.client = client;
    this.megapixels = megapixels;
    this.#onEnd = onEnd;
  }

  admitted(): void {
    if (this.phase === 'offered') this.phase = 'admitted';
  }

  /** @param full the node refused for now: it gets nothing more until its next report. */
  end(full = false): void {
    if (this.phase !== 'ended') this.#onEnd(this, full);
  }
}

export class NodeLink {
  readonly member: FleetMember;
  readonly client: NodeClient;
  readonly #log: LinkLog;
  readonly #onChange: () => void;
  readonly #closed = new AbortController();
  readonly #offers = new Set<Offer>();
  readonly #followed: Promise<void>;
  #draining: boolean;
  #retired = false;
  #static: Static | undefined;
  /** The sum of megapixels the node admits at once; a single larger image may be admitted alone. */
  #megapixelsMax = 0;
  #imagesMax = 0;
  #report: WatchCapacityResponse | undefined;
  /** Ended since the last report, which still counts them. */
  #freedImages = 0;
  #freedMegapixels = 0;
  #fullUntilReport = false;

  constructor(
    member: FleetMember,
    nodeToken: string,
    log: LinkLog,
    onChange: () => void,
    security?: ChannelSecurity,
  ) {
    this.member = member;
    this.client = new NodeClient(member.address, nodeToken, { security });
    this.#draining = member.draining;
    this.#log = log;
    this.#onChange = onChange;
    this.#followed = this.#follow();
  }

  /** Its stream reports. */
  get live(): boolean {
    return this.#report !== undefined;
  }

  get routable(): boolean {
    if (this.#retired || this.#draining || this.#static === undefined) return false;
    return this.#report?.state === NodeState.NODE_STATE_SERVING;
  }

  get attemptsInFlight(): number {
    return this.#offers.size;
  }

  /** Undefined while it is not routable. */
  snapshot(): NodeSnapshot | undefined {
    const report = this.#report;
    if (!this.routable || report === undefined || this.#static === undefined) return undefined;
    const unreported = [...this.#offers].filter(offer => offer.phase !== 'shown');
    // A report that crossed an attempt's end counts it as freed already; ours are never more than
    // this.
    const imagesFree = Math.min(
      report.imagesFree + this.#freedImages - unreported.length,
      this.#imagesMax - this.#offers.size,
    );
    const inFlight = Math.max(
      report.imagesInFlight - this.#freedImages + unreported.length,
      this.#offers.size,
    );
    // An empty node reports room for the one large image it would take alone.
    const reportedFree = report.megapixelsFree + this.#freedMegapixels;
    const megapixelsFree =
      inFlight > 0 ? Math.min(reportedFree, this.#megapixelsMax) - sumOf(unreported) : reportedFree;
    return {
      ...this.#static,
      nodeId: this.member.nodeId,
      bootId: this.member.bootId,
      imagesFree: this.#fullUntilReport ? 0 : imagesFree,
      megapixelsFree,
      idle: inFlight <= 0,
      enginesReady: report.enginesReady,
      estimatedWaitMs: report.estimatedWaitMs,
      inferMs: report.inferMs,
      unreportedImages: unreported.length,
    };
  }

  /** Room taken by an attempt that is about to begin; the caller ends it. */
  offer(megapixels: number): Offer {
    const offer = new Offer(this.member, this.client, megapixels, (ended, full) => {
      this.#end(ended, full);
    });
    this.#offers.add(offer);
    return offer;
  }

  setDraining(draining: boolean): void {
    if (this.#draining === draining) return;
    this.#draining = draining;
    this.#onChange();
  }

  /** No member any more: nothing new goes there, and its channel closes with its last attempt. */
  retire(): void {
    this.#retired = true;
    if (this.#offers.size === 0) this.#close();
  }

  /** Closes the channel now. */
  async close(): Promise<void> {
    this.#retired = true;
    this.#close();
    await this.#followed;
  }

  #close(): void {
    this.#closed.abort();
    this.client.close();
  }

  #end(offer: Offer, full: boolean): void {
    if (offer.phase === 'shown') {
      this.#freedImages += 1;
      this.#freedMegapixels += offer.megapixels;
    }
    offer.phase = 'ended';
    this.#offers.delete(offer);
    if (full) this.#fullUntilReport = true;
    if (this.#retired && this.#offers.size === 0) this.#close();
    this.#onChange();
  }

  async #follow(): Promise<void> {
    const { signal } = this.#closed;
    let waitMs = RECONNECT_WAIT_MIN_MS;
    let said = '';
    while (!signal.aborted) {
      try {
        this.#static = this.#check(await this.client.getNodeInfo());
        await this.#watch();
        waitMs = RECONNECT_WAIT_MIN_MS;
        said = '';
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        // The same complaint every second would hide the others.
        if (!signal.aborted && message !== said)
          this.#say('warn', 'node not reachable', { message });
        said = message;
      }
      this.#lost();
      if (signal.aborted) break;
      // Rejects when the link is closed, which ends the loop.
      await delay(waitMs, undefined, { signal }).catch(() => undefined);
      waitMs = Math.min(RECONNECT_WAIT_MAX_MS, waitMs * 2);
    }
  }

  #check(info: GetNodeInfoResponse): Static {
    if (info.protocolVersion !== PROTOCOL_VERSION) {
      throw new Error(`the node speaks ${info.protocolVersion}, not ${PROTOCOL_VERSION}`);
    }
    // Another process answers at this address: the one registered is gone or not there yet.
    if (info.nodeId !== this.member.nodeId || info.bootId !== this.member.bootId) {
      throw new Error('another node or boot answers at its address');
    }
    if (info.limits === undefined) throw new Error('the node sent no limits');
    this.#megapixelsMax = info.limits.megapixelsMax;
    this.#imagesMax = info.limits.imagesMax;
    const formats = info.inputFormats.map(inputFormatFromProto);
    const outputs = info.outputFormats.map(outputFormatFromProto);
    return {
      inputFormats: new Set(formats.filter(format => format !== undefined)),
      outputFormats: new Set(outputs.filter(format => format !== undefined)),
      imagePixelsMax: info.limits.imagePixelsMax,
      jxlPixelsMax: info.limits.jxlPixelsMax,
      engines: info.engines,
    };
  }

  /** Resolves when a stream that reported has ended; rejects when none came about. */
  async #watch(): Promise<void> {
    const stream = this.client.watchCapacity();
    const cancel = () => stream.cancel();
    this.#closed.signal.addEventListener('abort', cancel, { once: true });
    let silence = setTimeout(cancel, REPORT_SILENCE_MAX_MS);
    let reported = false;
    try {
      await new Promise<void>((resolve, reject) => {
        stream.on('data', (report: WatchCapacityResponse) => {
          clearTimeout(silence);
          silence = setTimeout(cancel, REPORT_SILENCE_MAX_MS);
          reported = true;
          this.#take(report);
        });
        stream.on('error', error => (reported ? resolve() : reject(error)));
        stream.on('end', resolve);
      });
    } finally {
      clearTimeout(silence);
      this.#closed.signal.removeEventListener('abort', cancel);
      ignoreLateErrors(stream);
    }
  }

  #take(report: WatchCapacityResponse): void {
    const before = this.#report?.state;
    this.#report = report;
    this.#freedImages = 0;
    this.#freedMegapixels = 0;
    this.#fullUntilReport = false;
    for (const offer of this.#offers) if (offer.phase === 'admitted') offer.phase = 'shown';
    if (before !== report.state)
      this.#say('info', 'node state', { state: stateName(report.state) });
    this.#onChange();
  }

  #lost(): void {
    if (this.#report === undefined) return;
    this.#report = undefined;
    if (!this.#closed.signal.aborted) this.#say('warn', 'node lost', {});
    this.#onChange();
  }

  #say(level: 'info' | 'warn', message: string, fields: object): void {
    const { nodeId, bootId } = this.member;
    this.#log(level, message, { nodeId, bootId, ...fields });
  }
}

function sumOf(offers: readonly Offer[]): number {
  return offers.reduce((sum, offer) => sum + offer.megapixels, 0);
}

/** A cancelled stream may still report its end, which nobody waits for any more. */
function ignoreLateErrors(stream: ClientReadableStream<unknown>): void {
  stream.removeAllListeners('error');
  stream.on('error', () => undefined);
}

function stateName(state: NodeState): string {
  const entry = Object.entries(NodeState).find(([, value]) => value === state);
  return entry === undefined ? 'UNRECOGNIZED' : entry[0].replace('NODE_STATE_', '');
}
