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
import {
  type GetNodeInfoResponse,
  NodeState,
  type WatchCapacityResponse,
} from '#gen/matting/v1/matte_service.ts';
import type { ChannelSecurity } from '#program/tls/tls-files.ts';
import type { NodeSnapshot } from '../dispatch/dispatch-policy.ts';
import {
  type Fullness,
  type NodeAbilities,
  type NodeReport,
  NodeView,
  type Reservation,
} from '../dispatch/dispatch-policy.ts';
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

/** ended: an attempt of this replica. reported: the node said so, or its state changed. */
export type FleetChange = 'ended' | 'reported';

/** A message that shows in the log which node it is about. */
export type LinkLog = (level: 'info' | 'warn', message: string, fields: object) => void;

/** Holds room on a node for one attempt, from the choice of the node to the attempt's end. */
export type Offer = ReturnType<NodeLink['offer']>;

export interface NodeLinkOptions {
  readonly log: LinkLog;
  readonly onChange: (cause: FleetChange) => void;
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number;
  /** Plain text where absent. */
  readonly security?: ChannelSecurity | undefined;
}

export class NodeLink {
  readonly member: FleetMember;
  readonly client: NodeClient;
  readonly #options: NodeLinkOptions;
  readonly #closed = new AbortController();
  readonly #offers = new Set<Reservation>();
  readonly #followed: Promise<void>;
  #draining: boolean;
  #retired = false;
  /** Made with the first GetNodeInfo: what a boot can do never changes. */
  #view: NodeView | undefined;
  #directOrigins: readonly string[] = [];
  #report: WatchCapacityResponse | undefined;

  constructor(member: FleetMember, nodeToken: string, options: NodeLinkOptions) {
    this.member = member;
    this.client = new NodeClient(member.address, nodeToken, options.security);
    this.#draining = member.draining;
    this.#options = options;
    this.#followed = this.#follow();
  }

  /** Its stream reports. */
  get live(): boolean {
    return this.#report !== undefined;
  }

  get routable(): boolean {
    if (this.#retired || this.#draining) return false;
    return this.#report?.state === NodeState.NODE_STATE_SERVING;
  }

  get attemptsInFlight(): number {
    return this.#offers.size;
  }

  /** Undefined while it is not routable. */
  snapshot(): NodeSnapshot | undefined {
    return this.routable ? this.#view?.snapshot() : undefined;
  }

  /**
   * Room taken by an attempt that is about to begin; the caller ends it. It must be routable.
   * @param waitMsMax the node is to refuse where an engine would not take the image within this; 0:
   *   any wait
   */
  offer(megapixels: number, waitMsMax: number) {
    const view = this.#view;
    if (view === undefined) throw new Error('nothing is known of the node yet');
    const { nodeId, bootId } = this.member;
    const held = view.reserve(megapixels);
    this.#offers.add(held);
    return {
      nodeId,
      bootId,
      client: this.client,
      waitMsMax,
      /** Origins of object storage at which the node gets and puts files. */
      directOrigins: this.#directOrigins,
      admitted: () => view.admitted(held),
      /** The attempt's outcome, where it shows something about the node. */
      judge: (outcome: 'well' | 'fault') => view.judge(outcome, this.#options.now()),
      /** @param full the node refused for now, until its next report */
      end: (full?: Fullness) => {
        if (held.phase === 'ended') return;
        view.end(held, full);
        this.#ended(held);
      },
    };
  }

  setDraining(draining: boolean): void {
    if (this.#draining === draining) return;
    this.#draining = draining;
    this.#options.onChange('reported');
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

  #ended(held: Reservation): void {
    this.#offers.delete(held);
    if (this.#retired && this.#offers.size === 0) this.#close();
    this.#options.onChange('ended');
  }

  async #follow(): Promise<void> {
    const { signal } = this.#closed;
    let waitMs = RECONNECT_WAIT_MIN_MS;
    let said = '';
    while (!signal.aborted) {
      try {
        const info = await this.client.getNodeInfo();
        const abilities = this.#check(info);
        this.#view ??= new NodeView(abilities);
        this.#directOrigins = info.directOrigins;
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

  #check(info: GetNodeInfoResponse): NodeAbilities {
    if (info.protocolVersion !== PROTOCOL_VERSION) {
      throw new Error(`the node speaks ${info.protocolVersion}, not ${PROTOCOL_VERSION}`);
    }
    // Another process answers at this address: the one registered is gone or not there yet.
    if (info.nodeId !== this.member.nodeId || info.bootId !== this.member.bootId) {
      throw new Error('another node or boot answers at its address');
    }
    if (info.limits === undefined) throw new Error('the node sent no limits');
    const formats = info.inputFormats.map(inputFormatFromProto);
    const outputs = info.outputFormats.map(outputFormatFromProto);
    return {
      nodeId: info.nodeId,
      bootId: info.bootId,
      imagesMax: info.limits.imagesMax,
      megapixelsMax: info.limits.megapixelsMax,
      inputFormats: new Set(formats.filter(format => format !== undefined)),
      outputFormats: new Set(outputs.filter(format => format !== undefined)),
      imagePixelsMax: info.limits.imagePixelsMax,
      jxlPixelsMax: info.limits.jxlPixelsMax,
      megapixelsAloneMax: info.limits.megapixelsAloneMax,
      engines: info.engines,
    };
  }

  /** Resolves when a stream that reported has ended; rejects when none reported. */
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
    this.#view?.take(readReport(report), this.#options.now());
    if (before !== report.state)
      this.#say('info', 'node state', { state: stateName(report.state) });
    this.#options.onChange('reported');
  }

  #lost(): void {
    if (this.#report === undefined) return;
    this.#report = undefined;
    this.#view?.lost();
    if (!this.#closed.signal.aborted) this.#say('warn', 'node lost', {});
    this.#options.onChange('reported');
  }

  #say(level: 'info' | 'warn', message: string, fields: object): void {
    const { nodeId, bootId } = this.member;
    this.#options.log(level, message, { nodeId, bootId, ...fields });
  }
}

function readReport(report: WatchCapacityResponse): NodeReport {
  const decodeRates = report.decodeRates.map(
    ({ format, msPerMegapixel }) => [inputFormatFromProto(format), msPerMegapixel] as const,
  );
  const encodeRates = report.encodeRates.map(
    ({ format, msPerMegapixel }) => [outputFormatFromProto(format), msPerMegapixel] as const,
  );
  return {
    ...report,
    decodeRates: new Map(decodeRates.filter(isKnown)),
    encodeRates: new Map(encodeRates.filter(isKnown)),
  };
}

/** A newer node may measure formats that this replica does not know. */
function isKnown<F>(rate: readonly [F | undefined, number]): rate is readonly [F, number] {
  return rate[0] !== undefined;
}

/** A cancelled stream may still report its end, for which nothing waits any more. */
function ignoreLateErrors(stream: ClientReadableStream<unknown>): void {
  stream.removeAllListeners('error');
  stream.on('error', () => undefined);
}

function stateName(state: NodeState): string {
  const entry = Object.entries(NodeState).find(([, value]) => value === state);
  return entry === undefined ? 'UNRECOGNIZED' : entry[0].replace('NODE_STATE_', '');
}
