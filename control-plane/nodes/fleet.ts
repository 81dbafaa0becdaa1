/**
 * The nodes as this replica sees and calls them: who is a member (the table every replica shares),
 * who answers (the capacity streams), and how much room each has, our own attempts included. It
 * picks nothing, knows no jobs and never retries.
 *
 * A node is routable while its membership lives, its stream lives and it says SERVING. When the
 * database does not answer, the members known last stand and the streams alone decide; so they do
 * for one lease after it is back, until every node had time for a heartbeat.
 */

import { pollingLoop, type RoundLoop } from '@matting/database/round-loop.ts';
import type { ChannelSecurity } from '@matting/program/tls/tls-files.ts';
import {
  type Asked,
  type FleetChange,
  type FleetMember,
  type LinkLog,
  NodeLink,
  type Offer,
} from './node-link.ts';
import type { NodeSnapshot } from './node-view.ts';
import { NODE_TIMING } from './registry-server.ts';
import { type NamedSum, ofStandingSum, standingSums } from './selectable.ts';
import type { SightedNode } from './sighting-store.ts';

/** Another replica's registrations are seen here after this time. */
const MEMBERS_POLL_MS = 1000;

interface FleetOptions {
  readonly listMembers: () => Promise<readonly FleetMember[]>;
  /** Tells people who ask another process; absent: nobody. */
  readonly noteModels?: (
    { nodeId, bootId }: FleetMember,
    models: readonly NamedSum[],
    runsOn: string | undefined,
  ) => Promise<unknown>;
  readonly nodeToken: () => string;
  /** As in NodeLink. */
  readonly defaultModel?: string | undefined;
  readonly security?: ChannelSecurity;
  readonly log: LinkLog;
  readonly now?: () => number;
  readonly connectionAgeMaxMs?: number;
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
  readonly #loop: RoundLoop;
  #refreshing: Promise<void> | undefined;
  #refreshAgain = false;
  #membersKnown = true;
  /** Until this instant a lease that ran out shows only that no heartbeat could be written down. */
  #leasesDoubtedUntilMs = 0;
  #routable = false;
  /** The next round counts again the sums that names stand for. */
  #turned = false;
  #hasBeenRoutable = false;
  #lastRoutableAtMs: number;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#lastRoutableAtMs = this.#now();
    this.#loop = pollingLoop(
      MEMBERS_POLL_MS,
      () => this.refresh(),
      err => options.log('warn', 'members not readable', { err }),
    );
  }

  /** Resolves once the members are read. */
  start(): Promise<void> {
    this.#loop.start();
    return this.#loop.roundUnderWay();
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

  /**
   * Lists what this replica sees of each node that it knows, without those it has not reached once.
   */
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
    this.#listeners.clear();
    await this.#loop.stop();
    await this.#refreshing;
    const links = [...this.#links.values(), ...this.#retired];
    this.#links.clear();
    this.#retired.clear();
    await Promise.all(links.map(link => link.close()));
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
    } while (this.#refreshAgain && !this.#loop.stopping);
  }

  /** Never rejects: what is not written is written with the next poll. */
  async #noteModels(): Promise<void> {
    const { noteModels, log } = this.#options;
    for (const link of this.#membersKnown && noteModels ? this.#links.values() : []) {
      const { member, selectables, runsOn } = link;
      if (selectables === link.notedSelectables) continue;
      const models = [...selectables.values()];
      try {
        await noteModels?.(
          member,
          models.map(({ name, kind, sha256 }) => ({ name, kind, sha256 })),
          runsOn,
        );
        link.notedSelectables = selectables;
      } catch (error) {
        log('warn', 'models not noted', { err: error });
        return;
      }
    }
  }

  #apply(members: readonly FleetMember[]): void {
    if (this.#loop.stopping) return;
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
    const { nodeToken, log, defaultModel, security, connectionAgeMaxMs } = this.#options;
    return new NodeLink(member, nodeToken, {
      log,
      onChange: cause => this.#changed(cause),
      onTurned: () => {
        this.#turned = true;
      },
      now: this.#now,
      defaultModel,
      security,
      connectionAgeMaxMs,
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
