/**
 * One boot of one node as this replica sees it. The capacity stream is its sign of life and its
 * load.
 *
 * | state      | entered                           | left                                        |
 * |------------|-----------------------------------|---------------------------------------------|
 * | connecting | it was created, or its stream     | live: GetNodeInfo names this boot, and the  |
 * |            | ended and a delay began           | first report came                           |
 * | live       | a report came                     | connecting: the stream ended, or was silent |
 * |            |                                   | for 5 s                                     |
 * | retired    | its membership ended, or the node | closed: its last attempt ended              |
 * |            | registered a new boot             |                                             |
 *
 * It is routable while it is live and SERVING. Attempts in flight keep their own outcome.
 */

import { setTimeout as delay } from 'node:timers/promises';
import type { ChannelSecurity } from '@matting/program/tls/tls-files.ts';
import { inputFormatFromProto, outputFormatFromProto } from '@matting/proto/contract/formats.ts';
import { oddNumberIn } from '@matting/proto/contract/odd-numbers.ts';
import {
  type GetNodeInfoResponse,
  NodeState,
  type WatchCapacityResponse,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { CapacityStream } from './capacity-stream.ts';
import { NodeClient } from './node-client.ts';
import {
  type Fullness,
  type NodeAbilities,
  type NodeReport,
  type NodeSnapshot,
  NodeView,
  type Reservation,
} from './node-view.ts';
import { NODE_TIMING } from './registry-server.ts';
import {
  NO_SELECTABLES,
  type Selectable,
  type Selectables,
  selectablesFromProto,
} from './selectable.ts';
import type { SightedNode, SightedState } from './sighting-store.ts';
import { unreachableCause } from './unreachable-cause.ts';

const PROTOCOL_VERSION = 'matting.v1';
const RECONNECT_WAIT_MIN_MS = 50;
const RECONNECT_WAIT_MAX_MS = 1000;

export interface FleetMember {
  readonly nodeId: string;
  readonly bootId: string;
  readonly address: string;
  /** The operator stopped new images for it. */
  readonly draining: boolean;
  /** Absent: unknown. */
  readonly registeredAtMs?: number;
}

/** ended: an attempt of this replica. reported: a report, or a change of the node's state. */
export type FleetChange = 'ended' | 'reported';

export type LinkLog = (level: 'info' | 'warn', message: string, fields: object) => void;

export type Offer = ReturnType<NodeLink['offer']>;

export interface AttemptNeeds {
  readonly megapixels: number;
  /** As in MatteCall. */
  readonly waitMsMax?: number;
  readonly model?: string | undefined;
  /** The job names its plan or model even if it is the default: it may run on crops. */
  readonly cropRun?: boolean;
}

interface NodeLinkOptions {
  readonly log: LinkLog;
  readonly onChange: (cause: FleetChange) => void;
  /** The node starts or stops taking jobs, or its models change. Called before `onChange`. */
  readonly onRoutingChanged: () => void;
  readonly now: () => number;
  /** The plan of jobs that name none. undefined: each node runs its own default plan. */
  readonly defaultModel?: string | undefined;
  readonly security?: ChannelSecurity | undefined;
  readonly connectionAgeMaxMs?: number | undefined;
}

export class NodeLink {
  readonly member: FleetMember;
  readonly #nodeToken: () => string;
  readonly #options: NodeLinkOptions;
  readonly #closed = new AbortController();
  readonly #offers = new Map<Reservation, NodeClient>();
  /** For new calls. */
  #client: NodeClient;
  /**
   * All open clients: for new calls, of a connection that is being replaced, of earlier attempts.
   */
  readonly #clients = new Set<NodeClient>();
  readonly #followed: Promise<void>;
  #draining: boolean;
  #retired = false;
  /**
   * From the first GetNodeInfo. A boot's abilities never change, except for the names of models.
   */
  #view: NodeView | undefined;
  #selectables: Selectables = NO_SELECTABLES;
  /** The value of `selectables` that the fleet stored last. */
  notedSelectables: Selectables = NO_SELECTABLES;
  #runsOn: string | undefined;
  #report: WatchCapacityResponse | undefined;
  /** Why calls fail. undefined: they reach the node, or the first is running. */
  #unreachable: string | undefined;
  #loggedCause = '';

  constructor(member: FleetMember, nodeToken: () => string, options: NodeLinkOptions) {
    this.member = member;
    this.#nodeToken = nodeToken;
    this.#options = options;
    this.#client = this.#newClient();
    this.#draining = member.draining;
    this.#followed = this.#follow();
  }

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

  /** State and cause, for people. undefined while the first call runs. */
  get seen(): SightedNode | undefined {
    const { nodeId, bootId } = this.member;
    const as = (state: SightedState, cause: string | null) => ({ nodeId, bootId, state, cause });
    if (this.#report === undefined) {
      return this.#unreachable === undefined ? undefined : as('unreachable', this.#unreachable);
    }
    const notServing = NOT_SERVING.get(this.#report.state);
    if (notServing !== undefined) return as(...notServing);
    const { ejectedUntilMs = 0 } = this.#view?.snapshot() ?? {};
    return ejectedUntilMs > this.#options.now()
      ? as('ejected', 'it lost too many images in a row, and gets none for up to 5 minutes')
      : as('serving', null);
  }

  get selectables(): Selectables {
    return this.#selectables;
  }

  /** The processor of its own plan, for people. undefined: not known yet. */
  get runsOn(): string | undefined {
    return this.#runsOn;
  }

  offerModels(models: Selectables): void {
    this.#view?.offerModels(models);
  }

  model(name: string): Selectable | undefined {
    return this.#view?.model(name);
  }

  snapshot(): NodeSnapshot | undefined {
    return this.routable ? this.#view?.snapshot() : undefined;
  }

  /** The caller must end the offer. */
  offer({ megapixels, waitMsMax = 0, model, cropRun = false }: AttemptNeeds) {
    const view = this.#view;
    if (view === undefined) throw new Error('nothing is known of the node yet');
    const { nodeId, bootId } = this.member;
    const held = view.reserve(megapixels);
    const client = this.#client;
    this.#offers.set(held, client);
    return {
      nodeId,
      bootId,
      client,
      waitMsMax,
      abilities: view.abilities,
      model: model === undefined ? this.#ownPlan(cropRun) : this.model(model),
      cropRun,
      admitted: () => view.admitted(held),
      judge: (outcome: 'well' | 'fault') => view.judge(outcome, this.#options.now()),
      end: (full?: Fullness) => {
        if (held.phase === 'ended') return;
        view.end(held, full);
        this.#ended(held);
      },
    };
  }

  /** Finds the node's own plan, with a checksum that may differ from that of most nodes. */
  #ownPlan(isNamed: boolean): Selectable | undefined {
    return [...this.#selectables.values()].find(({ isDefault }) => isNamed && isDefault);
  }

  setDraining(draining: boolean): void {
    if (this.#draining === draining) return;
    this.#draining = draining;
    this.#options.onRoutingChanged();
    this.#options.onChange('reported');
  }

  retire(): void {
    this.#retired = true;
    if (this.#offers.size === 0) this.#close();
  }

  async close(): Promise<void> {
    this.#retired = true;
    this.#close();
    await this.#followed;
  }

  #close(): void {
    this.#closed.abort();
    for (const client of this.#clients) client.close();
    this.#clients.clear();
  }

  #newClient(): NodeClient {
    const { address } = this.member;
    const client = new NodeClient(address, this.#nodeToken, this.#options.security);
    this.#clients.add(client);
    return client;
  }

  /** Closes a client that gets no new calls, unless an attempt uses it. */
  #closeUnused(client: NodeClient): void {
    if (client === this.#client || [...this.#offers.values()].includes(client)) return;
    if (this.#clients.delete(client)) client.close();
  }

  #ended(held: Reservation): void {
    const client = this.#offers.get(held);
    this.#offers.delete(held);
    if (client !== undefined) this.#closeUnused(client);
    if (this.#retired && this.#offers.size === 0) this.#close();
    this.#options.onChange('ended');
  }

  async #follow(): Promise<void> {
    const { signal } = this.#closed;
    let waitMs = RECONNECT_WAIT_MIN_MS;
    while (!signal.aborted) {
      try {
        const stream = await this.#reach(this.#client);
        waitMs = RECONNECT_WAIT_MIN_MS;
        await this.#stay(stream);
      } catch (error) {
        this.#unreachable = unreachableCause(error);
        this.#notReached(error);
      }
      this.#lost();
      if (signal.aborted) break;
      await delay(waitMs, undefined, { signal }).catch(() => undefined);
      waitMs = Math.min(RECONNECT_WAIT_MAX_MS, waitMs * 2);
    }
  }

  /** Resolves after the first report. */
  async #reach(client: NodeClient): Promise<CapacityStream> {
    const info = await client.getNodeInfo();
    const abilities = this.#check(info);
    this.#view ??= new NodeView(abilities);
    this.#runsOn = runsOnOf(info);
    this.#selectables = selectablesFromProto(info.selectable);
    const { signal } = this.#closed;
    const { connectionAgeMaxMs } = this.#options;
    const onReport = (report: WatchCapacityResponse) => this.#take(report);
    const stream = new CapacityStream(client, { onReport, signal, connectionAgeMaxMs });
    await stream.reported;
    this.#loggedCause = '';
    return stream;
  }

  /** Replaces each connection that is due. The old stream ends after a report on the new one. */
  async #stay(first: CapacityStream): Promise<void> {
    let current = first;
    while ((await current.over()) === 'due') {
      const client = this.#newClient();
      try {
        const next = await this.#reach(client);
        this.#client = client;
        current.cancel();
        this.#closeUnused(current.client);
        current = next;
      } catch (error) {
        this.#closeUnused(client);
        this.#notReached(error);
        await Promise.race([current.ended, delay(RECONNECT_WAIT_MAX_MS)]);
      }
    }
  }

  /** Logs a cause only when it changes, since repeated lines would hide others. */
  #notReached(error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    const cause = unreachableCause(error);
    if (!this.#closed.signal.aborted && cause !== this.#loggedCause)
      this.#say('warn', 'node not reachable', { message, cause });
    this.#loggedCause = cause;
  }

  #check(info: GetNodeInfoResponse): NodeAbilities {
    const odd = oddNumberIn(info);
    if (odd !== undefined) throw new Error(`the node says ${odd} out of range`);
    if (info.protocolVersion !== PROTOCOL_VERSION) {
      throw new Error(`the node speaks ${info.protocolVersion}, not ${PROTOCOL_VERSION}`);
    }
    // Another process answers at this address: the registered one has left or not yet started.
    if (info.nodeId !== this.member.nodeId || info.bootId !== this.member.bootId) {
      throw new Error(
        `another node or boot answers at its address; without heartbeats it leaves within ${NODE_TIMING.leaseMs / 1000} s`,
      );
    }
    if (info.limits === undefined) throw new Error('the node sent no limits');
    const { defaultModel } = this.#options;
    const isOther = (one: { default: boolean; name: string }) =>
      one.default && one.name !== defaultModel;
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
      capabilities: new Set(info.capabilities),
      onlyByName: defaultModel !== undefined && info.selectable.some(isOther),
      registeredAtMs: this.member.registeredAtMs ?? 0,
    };
  }

  #take(report: WatchCapacityResponse): void {
    const before = this.#report?.state;
    this.#report = report;
    this.#unreachable = undefined;
    this.#view?.take(readReport(report), this.#options.now());
    if (before !== report.state) {
      this.#say('info', 'node state', { state: stateName(report.state) });
      this.#options.onRoutingChanged();
    }
    this.#options.onChange('reported');
  }

  #lost(): void {
    if (this.#report === undefined) return;
    this.#report = undefined;
    this.#unreachable ??= 'the connection to it broke off';
    this.#view?.lost();
    if (!this.#closed.signal.aborted) this.#say('warn', 'node lost', {});
    this.#options.onRoutingChanged();
    this.#options.onChange('reported');
  }

  #say(level: 'info' | 'warn', message: string, fields: object): void {
    const { nodeId, bootId } = this.member;
    this.#options.log(level, message, { nodeId, bootId, ...fields });
  }
}

/** A node in any other state takes images. */
const NOT_SERVING: ReadonlyMap<NodeState, [SightedState, string]> = new Map([
  [NodeState.NODE_STATE_STARTING, ['starting', 'its engines are loading']],
  [NodeState.NODE_STATE_DRAINING, ['draining', 'it finishes its images and takes no new ones']],
  [NodeState.NODE_STATE_FAILED, ['failed', 'its engines keep ending; see its log']],
]);

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

/** A newer node may report formats that this replica does not know. */
function isKnown<F>(rate: readonly [F | undefined, number]): rate is readonly [F, number] {
  return rate[0] !== undefined;
}

function stateName(state: NodeState): string {
  const entry = Object.entries(NodeState).find(([, value]) => value === state);
  return entry === undefined ? 'UNRECOGNIZED' : entry[0].replace('NODE_STATE_', '');
}

/** Restricted, because terminals show it. */
const RUNS_ON_NAME = /^[\w-]{1,32}$/;
const RUNTIMES_MAX = 8;

/** `cpu (onnxruntime, openvino)`. An older node names no runtime: `cpu`. */
function runsOnOf({ executionProviderSelected, models }: GetNodeInfoResponse): string {
  const provider = RUNS_ON_NAME.test(executionProviderSelected) ? executionProviderSelected : '?';
  const named = models.map(({ runtime }) => runtime).filter(name => RUNS_ON_NAME.test(name));
  const runtimes = [...new Set(named)].sort().slice(0, RUNTIMES_MAX);
  return runtimes.length === 0 ? provider : `${provider} (${runtimes.join(', ')})`;
}
