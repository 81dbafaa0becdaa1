/**
 * The nodes as this replica sees and calls them: who is a member (the table every replica shares),
 * who answers (the capacity streams), and how much room each has, our own attempts included. It
 * picks nothing, knows no jobs and never retries.
 *
 * A node is routable while its membership lives, its stream lives and it says SERVING. When the
 * database does not answer, the members known last stand and the streams alone decide; so they do
 * for one lease after it is back, until every node had time for a heartbeat.
 */
import { setTimeout as delay } from 'node:timers/promises';
import {
  ChannelCredentials,
  type ChannelOptions,
  type ClientReadableStream,
  Metadata,
} from '@grpc/grpc-js';
import type { ChannelSecurity } from '@matting/program/tls/tls-files.ts';
import {
  activeCarrier,
  describeSpan,
  errorTypeOf,
  failSpan,
  type SpanBegin,
  traced,
} from '@matting/program/tracing/active-span.ts';
import { inputFormatFromProto, outputFormatFromProto } from '@matting/proto/contract/formats.ts';
import { MESSAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import {
  type GetNodeInfoResponse,
  MatteServiceClient,
  NodeState,
  type WatchCapacityResponse,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import {
  type NamedSum,
  NO_SELECTABLES,
  ofStandingSum,
  type Selectable,
  type Selectables,
  selectablesFromProto,
  standingSums,
} from '../models/selectable.ts';
import { type AttemptOutcome, type MatteCall, MatteExchange, outcomeOf } from './matte-exchange.ts';
import {
  type Fullness,
  type NodeAbilities,
  type NodeReport,
  type NodeSnapshot,
  NodeView,
  type Reservation,
} from './node-view.ts';
import { NODE_TIMING } from './registry-server.ts';
import type { SightedNode, SightedState } from './sighting-store.ts';
import { unreachableCause } from './unreachable-cause.ts';

/** Sent ahead on one connection: by the default, 64 KiB, 40 MB over 2 ms take seconds. */
const FLOW_CONTROL_WINDOW_BYTES = 4 * 1024 * 1024;
/** A node answers a header from memory: one silent for this long is as good as gone. */
const ADMISSION_TIMEOUT_MS = 5000;
const NODE_INFO_TIMEOUT_MS = 5000;

const CHANNEL_OPTIONS: ChannelOptions = {
  // An upload beyond 1 MiB cannot be replayed by the library; retries are the job run's.
  'grpc.enable_retries': 0,
  'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
  'grpc.max_send_message_length': MESSAGE_BYTES_MAX,
  'grpc-node.flow_control_window': FLOW_CONTROL_WINDOW_BYTES,
  'grpc.keepalive_time_ms': 20_000,
  'grpc.keepalive_timeout_ms': 10_000,
  'grpc.keepalive_permit_without_calls': 1,
  // A node that restarts is found again at once, not after the default's minute.
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 1000,
  // Nodes are inside: a proxy of the environment is for URLs, not for them.
  'grpc.enable_http_proxy': 0,
  // A new boot of a node gets a new connection, never the old one's.
  'grpc.use_local_subchannel_pool': 1,
};

const MATTE_SPAN: SpanBegin = {
  name: 'matting.v1.MatteService/Matte',
  kind: 'CLIENT',
  attributes: { 'rpc.system.name': 'grpc', 'rpc.method': 'matting.v1.MatteService/Matte' },
};

const PLAIN_TEXT: ChannelSecurity = {
  credentials: ChannelCredentials.createInsecure(),
  options: {},
};

/** One node's MatteService, with back-pressure both ways: a slow node never fills this process. */
export class NodeClient {
  readonly #client: MatteServiceClient;
  readonly #nodeToken: () => string;
  readonly #admissionTimeoutMs: number;

  /**
   * @param address host:port. Connects lazily; `close` ends it
   * @param nodeToken asked for each call: it may change
   */
  constructor(
    address: string,
    nodeToken: () => string,
    { credentials, options }: ChannelSecurity = PLAIN_TEXT,
    admissionTimeoutMs = ADMISSION_TIMEOUT_MS,
  ) {
    this.#admissionTimeoutMs = admissionTimeoutMs;
    this.#client = new MatteServiceClient(address, credentials, { ...CHANNEL_OPTIONS, ...options });
    this.#nodeToken = nodeToken;
  }

  /** Calls in flight end with UNAVAILABLE or run to their end, as the channel decides. */
  close(): void {
    this.#client.close();
  }

  getNodeInfo(): Promise<GetNodeInfoResponse> {
    const deadline = Date.now() + NODE_INFO_TIMEOUT_MS;
    return new Promise((resolve, reject) => {
      this.#client.getNodeInfo({}, this.#metadata(), { deadline }, (error, response) => {
        if (error === null) resolve(response);
        else reject(error);
      });
    });
  }

  watchCapacity(): ClientReadableStream<WatchCapacityResponse> {
    return this.#client.watchCapacity({}, this.#metadata());
  }

  matte(request: MatteCall): Promise<AttemptOutcome> {
    return traced(MATTE_SPAN, async () => {
      const outcome = await this.#matte(request);
      describeSpan({ 'matting.outcome': outcome.kind });
      if ('error' in outcome) failSpan(errorTypeOf(outcome.error));
      return outcome;
    });
  }

  async #matte(request: MatteCall): Promise<AttemptOutcome> {
    if (request.signal.aborted) return { kind: 'aborted' };
    const deadline = Date.now() + request.timeoutMs;
    const call = this.#client.matte(this.#tracedMetadata(), { deadline });
    const exchange = new MatteExchange(call, request, this.#admissionTimeoutMs);
    const abort = () => call.cancel();
    request.signal.addEventListener('abort', abort, { once: true });
    try {
      return { kind: 'done', result: await exchange.run() };
    } catch (error) {
      // Frees the node's permits at once where the fault is ours or its answer was broken.
      call.cancel();
      return outcomeOf(error, exchange.admitted, request.signal.aborted);
    } finally {
      request.signal.removeEventListener('abort', abort);
    }
  }

  #metadata(): Metadata {
    const metadata = new Metadata();
    metadata.set('authorization', `Bearer ${this.#nodeToken()}`);
    return metadata;
  }

  /** The node's spans go under the one that calls it, and are made where that one is. */
  #tracedMetadata(): Metadata {
    const metadata = this.#metadata();
    const carrier = activeCarrier();
    if (carrier === undefined) return metadata;
    metadata.set('traceparent', carrier.traceparent);
    if (carrier.tracestate) metadata.set('tracestate', carrier.tracestate);
    return metadata;
  }
}

/*
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

const PROTOCOL_VERSION = 'matting.v1';
/** A node reports every second: five missed are a node that hangs. */
export const REPORT_SILENCE_MAX_MS = 5000;
const RECONNECT_WAIT_MIN_MS = 50;
const RECONNECT_WAIT_MAX_MS = 1000;

export interface FleetMember {
  readonly nodeId: string;
  readonly bootId: string;
  readonly address: string;
  /** The operator asked it to take nothing new. */
  readonly draining: boolean;
  /** Absent: not known. */
  readonly registeredAtMs?: number;
}

/** ended: an attempt of this replica. reported: the node said so, or its state changed. */
type FleetChange = 'ended' | 'reported';

type LinkLog = (level: 'info' | 'warn', message: string, fields: object) => void;

/** Holds room on a node for one attempt, from the choice of the node to the attempt's end. */
export type Offer = ReturnType<NodeLink['offer']>;

interface Asked {
  readonly megapixels: number;
  /** As of MatteCall. */
  readonly waitMsMax?: number;
  /** That the job names. */
  readonly model?: string | undefined;
}

interface NodeLinkOptions {
  readonly log: LinkLog;
  readonly onChange: (cause: FleetChange) => void;
  /** Before `onChange`: it came or went as one that takes jobs, or may be asked for others. */
  readonly onTurned: () => void;
  readonly now: () => number;
  readonly security?: ChannelSecurity | undefined;
}

class NodeLink {
  readonly member: FleetMember;
  readonly client: NodeClient;
  readonly #options: NodeLinkOptions;
  readonly #closed = new AbortController();
  readonly #offers = new Set<Reservation>();
  readonly #followed: Promise<void>;
  #draining: boolean;
  #retired = false;
  /** Made with the first GetNodeInfo: what a boot can do never changes, but for what it names. */
  #view: NodeView | undefined;
  #selectables: Selectables = NO_SELECTABLES;
  /** As they were written down last. */
  notedSelectables: Selectables = NO_SELECTABLES;
  #selectableRevision = 0;
  #asking = false;
  #directOrigins: readonly string[] = [];
  #report: WatchCapacityResponse | undefined;
  /** Why no call reaches it; undefined: one does, or the first is under way. */
  #unreachable: string | undefined;

  constructor(member: FleetMember, nodeToken: () => string, options: NodeLinkOptions) {
    this.member = member;
    this.client = new NodeClient(member.address, nodeToken, options.security);
    this.#draining = member.draining;
    this.#options = options;
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

  /** For people; undefined while the first call is under way. */
  get seen(): SightedNode | undefined {
    const { nodeId, bootId } = this.member;
    const as = (state: SightedState, cause: string | null) => ({ nodeId, bootId, state, cause });
    if (this.#report === undefined) {
      return this.#unreachable === undefined ? undefined : as('unreachable', this.#unreachable);
    }
    const said = NOT_SERVING.get(this.#report.state);
    if (said !== undefined) return as(...said);
    const { ejectedUntilMs = 0 } = this.#view?.snapshot() ?? {};
    return ejectedUntilMs > this.#options.now()
      ? as('ejected', 'it lost too many images in a row, and gets none for up to 5 minutes')
      : as('serving', null);
  }

  /** As the node says, whatever others say of these names; the same object until that changes. */
  get selectables(): Selectables {
    return this.#selectables;
  }

  offerModels(models: Selectables): void {
    this.#view?.offerModels(models);
  }

  /** Undefined: no job may name it there. */
  model(name: string): Selectable | undefined {
    return this.#view?.model(name);
  }

  snapshot(): NodeSnapshot | undefined {
    return this.routable ? this.#view?.snapshot() : undefined;
  }

  /** Room for an attempt, which the caller ends. */
  offer({ megapixels, waitMsMax = 0, model }: Asked) {
    const view = this.#view;
    if (view === undefined) throw new Error('nothing is known of the node yet');
    const { nodeId, bootId } = this.member;
    const held = view.reserve(megapixels, model);
    this.#offers.add(held);
    return {
      nodeId,
      bootId,
      client: this.client,
      waitMsMax,
      model: model === undefined ? undefined : this.model(model),
      /** Origins of object storage at which the node gets and puts files. */
      directOrigins: this.#directOrigins,
      /** The job names another model than the node's own plan. */
      ofOther: held.other !== undefined,
      admitted: () => view.admitted(held),
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
    this.#options.onTurned();
    this.#options.onChange('reported');
  }

  /** No member any more: nothing new goes there, and its channel closes with its last attempt. */
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
        this.#selectables = selectablesFromProto(info.selectable);
        this.#directOrigins = info.directOrigins;
        await this.#watch();
        waitMs = RECONNECT_WAIT_MIN_MS;
        said = '';
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        const cause = unreachableCause(error);
        this.#unreachable = cause;
        // The same complaint every second would hide the others.
        if (!signal.aborted && cause !== said)
          this.#say('warn', 'node not reachable', { message, cause });
        said = cause;
      }
      this.#lost();
      if (signal.aborted) break;
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
      registeredAtMs: this.member.registeredAtMs ?? 0,
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
    this.#unreachable = undefined;
    this.#view?.take(readReport(report), this.#options.now());
    if (before !== report.state) {
      this.#say('info', 'node state', { state: stateName(report.state) });
      this.#options.onTurned();
    }
    this.#options.onChange('reported');
    void this.#readSelectables(report.selectableRevision);
  }

  /** Never rejects: what fails is asked for again with the next report. */
  async #readSelectables(revision: number): Promise<void> {
    if (this.#asking || revision === this.#selectableRevision) return;
    this.#asking = true;
    try {
      const info = await this.client.getNodeInfo();
      this.#check(info);
      this.#selectables = selectablesFromProto(info.selectable);
      this.#selectableRevision = revision;
      // Once for each list of the node.
      const unread = info.selectable.length - this.#selectables.size;
      if (unread > 0) this.#say('warn', 'names of a node are not read', { unread });
      this.#options.onTurned();
      this.#options.onChange('reported');
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      if (!this.#closed.signal.aborted) this.#say('warn', 'models not readable', { message });
    } finally {
      this.#asking = false;
    }
  }

  #lost(): void {
    if (this.#report === undefined) return;
    this.#report = undefined;
    this.#unreachable ??= 'the connection to it broke off';
    this.#view?.lost();
    if (!this.#closed.signal.aborted) this.#say('warn', 'node lost', {});
    this.#options.onTurned();
    this.#options.onChange('reported');
  }

  #say(level: 'info' | 'warn', message: string, fields: object): void {
    const { nodeId, bootId } = this.member;
    this.#options.log(level, message, { nodeId, bootId, ...fields });
  }
}

/** Another state than these is that of a node which takes images. */
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
    loads: new Map(report.modelLoads.map(load => [load.name, load])),
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

/** How soon another replica's registrations are seen here. */
const MEMBERS_POLL_MS = 1000;

interface FleetOptions {
  readonly listMembers: () => Promise<readonly FleetMember[]>;
  /** Tells people who ask another process; absent: nobody. */
  readonly noteModels?: (
    { nodeId, bootId }: FleetMember,
    models: readonly NamedSum[],
  ) => Promise<unknown>;
  readonly nodeToken: () => string;
  readonly security?: ChannelSecurity;
  readonly log: LinkLog;
  readonly now?: () => number;
}

export interface FleetCounts {
  readonly members: number;
  readonly routable: number;
  readonly imagesFree: number;
  readonly attemptsInFlight: number;
}

export class Fleet {
  readonly #options: FleetOptions;
  readonly #now: () => number;
  readonly #links = new Map<string, NodeLink>();
  readonly #retired = new Set<NodeLink>();
  readonly #listeners = new Set<(cause: FleetChange) => void>();
  readonly #closed = new AbortController();
  #polled: Promise<void> | undefined;
  #refreshing: Promise<void> | undefined;
  #refreshAgain = false;
  #membersKnown = true;
  /** Until then a lease that ran out says only that no heartbeat could be written down. */
  #leasesDoubtedUntilMs = 0;
  #routable = false;
  /** The sums that names stand for are to be counted again. */
  #turned = false;
  #hasBeenRoutable = false;
  #lastRoutableAtMs: number;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#lastRoutableAtMs = this.#now();
  }

  async start(): Promise<void> {
    await this.refresh();
    this.#polled = this.#poll();
  }

  /** Reads the members now: a node has just registered here. Never rejects. */
  refresh(): Promise<void> {
    if (this.#refreshing !== undefined) {
      // The read under way may have come before the change.
      this.#refreshAgain = true;
      return this.#refreshing;
    }
    this.#refreshing = this.#refreshAll().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  onChange(listener: (cause: FleetChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  snapshots(): NodeSnapshot[] {
    const snapshots: NodeSnapshot[] = [];
    for (const link of this.#links.values()) {
      const snapshot = link.snapshot();
      if (snapshot !== undefined) snapshots.push(snapshot);
    }
    return snapshots;
  }

  /** Takes room on a node for one attempt; undefined when that boot of it is routable no more. */
  offer(node: Pick<NodeSnapshot, 'nodeId' | 'bootId'>, asked: Asked): Offer | undefined {
    const link = this.#links.get(node.nodeId);
    if (link === undefined || link.member.bootId !== node.bootId || !link.routable) {
      return undefined;
    }
    if (asked.model !== undefined && link.model(asked.model) === undefined) return undefined;
    return link.offer(asked);
  }

  /** What this replica sees of each node that it knows; those it has not reached once are left out. */
  seen(): SightedNode[] {
    return [...this.#links.values()].flatMap(link => link.seen ?? []);
  }

  get hasBeenRoutable(): boolean {
    return this.#hasBeenRoutable;
  }

  /** Milliseconds without a routable node: 0 while there is one, counted from the start at most. */
  unroutableMs(): number {
    return this.#routable ? 0 : this.#now() - this.#lastRoutableAtMs;
  }

  counts(): FleetCounts {
    const snapshots = this.snapshots();
    const links = [...this.#links.values(), ...this.#retired];
    return {
      members: this.#links.size,
      routable: snapshots.length,
      imagesFree: snapshots.reduce((sum, node) => sum + Math.max(0, node.imagesFree), 0),
      attemptsInFlight: links.reduce((sum, link) => sum + link.attemptsInFlight, 0),
    };
  }

  async close(): Promise<void> {
    this.#closed.abort();
    this.#listeners.clear();
    await this.#polled;
    await this.#refreshing;
    const links = [...this.#links.values(), ...this.#retired];
    this.#links.clear();
    this.#retired.clear();
    await Promise.all(links.map(link => link.close()));
  }

  async #poll(): Promise<void> {
    const { signal } = this.#closed;
    while (!signal.aborted) {
      await delay(MEMBERS_POLL_MS, undefined, { signal }).catch(() => undefined);
      if (!signal.aborted) await this.refresh();
    }
  }

  async #refreshAll(): Promise<void> {
    do {
      this.#refreshAgain = false;
      try {
        this.#apply(await this.#options.listMembers());
        this.#membersKnown = true;
      } catch (error) {
        if (this.#membersKnown) this.#options.log('warn', 'members not readable', { err: error });
        this.#membersKnown = false;
        this.#leasesDoubtedUntilMs = this.#now() + NODE_TIMING.leaseMs;
      }
      await this.#noteModels();
    } while (this.#refreshAgain && !this.#closed.signal.aborted);
  }

  /** Never rejects: what is not written is written with the next poll. */
  async #noteModels(): Promise<void> {
    const { noteModels, log } = this.#options;
    for (const link of this.#membersKnown && noteModels ? this.#links.values() : []) {
      const { member, selectables } = link;
      if (selectables === link.notedSelectables) continue;
      const models = [...selectables.values()];
      try {
        await noteModels?.(
          member,
          models.map(({ name, kind, sha256 }) => ({ name, kind, sha256 })),
        );
        link.notedSelectables = selectables;
      } catch (error) {
        log('warn', 'models not noted', { err: error });
        return;
      }
    }
  }

  #apply(members: readonly FleetMember[]): void {
    if (this.#closed.signal.aborted) return;
    const seen = new Set<string>();
    for (const member of members) {
      seen.add(member.nodeId);
      const link = this.#links.get(member.nodeId);
      if (link !== undefined && isSameBoot(link.member, member)) {
        link.setDraining(member.draining);
        continue;
      }
      if (link !== undefined) this.#retire(link);
      this.#links.set(member.nodeId, this.#connect(member));
    }
    for (const [nodeId, link] of this.#links) {
      if (seen.has(nodeId) || (link.live && this.#now() < this.#leasesDoubtedUntilMs)) continue;
      this.#links.delete(nodeId);
      this.#retire(link);
    }
    for (const link of this.#retired) if (link.attemptsInFlight === 0) this.#retired.delete(link);
  }

  #connect(member: FleetMember): NodeLink {
    const { nodeId, bootId, address } = member;
    this.#options.log('info', 'node joined', { nodeId, bootId, address });
    const { nodeToken, log, security } = this.#options;
    return new NodeLink(member, nodeToken, {
      log,
      onChange: cause => this.#changed(cause),
      onTurned: () => {
        this.#turned = true;
      },
      now: this.#now,
      security,
    });
  }

  #retire(link: NodeLink): void {
    const { nodeId, bootId } = link.member;
    this.#options.log('info', 'node left', { nodeId, bootId });
    link.retire();
    this.#turned = true;
    if (link.attemptsInFlight > 0) this.#retired.add(link);
    this.#changed('reported');
  }

  #changed(cause: FleetChange): void {
    const routable = [...this.#links.values()].some(link => link.routable);
    this.#countSums();
    if (routable || this.#routable) this.#lastRoutableAtMs = this.#now();
    this.#routable = routable;
    this.#hasBeenRoutable ||= routable;
    for (const listener of this.#listeners) listener(cause);
  }

  /** A node gets no job that names what it has another sum of. */
  #countSums(): void {
    if (!this.#turned) return;
    this.#turned = false;
    const routable = [...this.#links.values()].filter(link => link.routable);
    const standing = standingSums(
      routable.map(({ selectables, member }) => {
        return { models: selectables, registeredAtMs: member.registeredAtMs ?? 0 };
      }),
    );
    for (const link of routable) link.offerModels(ofStandingSum(link.selectables, standing));
  }
}

function isSameBoot(a: FleetMember, b: FleetMember): boolean {
  return a.bootId === b.bootId && a.address === b.address;
}
