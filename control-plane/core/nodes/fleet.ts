/**
 * The nodes as this replica sees them: who is a member (the table every replica shares), who
 * answers (the capacity streams), and how much room each has, our own attempts included. It picks
 * nothing and knows no jobs.
 *
 * A node is routable while its membership lives, its stream lives and it says SERVING. When the
 * database does not answer, the members known last stand and the streams alone decide; so they do
 * for one lease after it is back, until every node had time for a heartbeat.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { ChannelSecurity } from '#program/tls/tls-files.ts';
import type { NodeSnapshot } from '../dispatch/dispatch-policy.ts';
import {
  type FleetChange,
  type FleetMember,
  type LinkLog,
  NodeLink,
  type Offer,
} from './node-link.ts';
import { NODE_TIMING } from './registry-server.ts';

/** How soon another replica's registrations are seen here. */
const MEMBERS_POLL_MS = 1000;

export interface FleetOptions {
  /** Members whose lease lives by the database's clock. */
  readonly listMembers: () => Promise<readonly FleetMember[]>;
  readonly nodeToken: string;
  /** How nodes are reached; plain text where absent. */
  readonly security?: ChannelSecurity;
  readonly log: LinkLog;
  /** Milliseconds of a clock that never goes back. */
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
  /** No members any more, kept until their last attempt ends. */
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
  #hasBeenRoutable = false;
  #lastRoutableAtMs: number;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#lastRoutableAtMs = this.#now();
  }

  /** Begins to follow the members; resolves when they were read once. */
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

  /** Called whenever a node, its room or its state may have changed. Returns how to stop it. */
  onChange(listener: (cause: FleetChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Routable nodes. */
  snapshots(): NodeSnapshot[] {
    const snapshots: NodeSnapshot[] = [];
    for (const link of this.#links.values()) {
      const snapshot = link.snapshot();
      if (snapshot !== undefined) snapshots.push(snapshot);
    }
    return snapshots;
  }

  /** Takes room on a node for one attempt; undefined when that boot of it is routable no more. */
  offer(
    node: Pick<NodeSnapshot, 'nodeId' | 'bootId'>,
    megapixels: number,
    waitMsMax = 0,
  ): Offer | undefined {
    const link = this.#links.get(node.nodeId);
    if (link === undefined || link.member.bootId !== node.bootId || !link.routable) {
      return undefined;
    }
    return link.offer(megapixels, waitMsMax);
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

  /** Ends every channel; attempts still in flight end with it. */
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
      // Rejects when the fleet is closed, which ends the loop.
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
    } while (this.#refreshAgain && !this.#closed.signal.aborted);
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
      now: this.#now,
      security,
    });
  }

  #retire(link: NodeLink): void {
    const { nodeId, bootId } = link.member;
    this.#options.log('info', 'node left', { nodeId, bootId });
    link.retire();
    if (link.attemptsInFlight > 0) this.#retired.add(link);
    this.#changed('reported');
  }

  #changed(cause: FleetChange): void {
    const routable = [...this.#links.values()].some(link => link.routable);
    if (routable || this.#routable) this.#lastRoutableAtMs = this.#now();
    this.#routable = routable;
    this.#hasBeenRoutable ||= routable;
    for (const listener of this.#listeners) listener(cause);
  }
}

function isSameBoot(a: FleetMember, b: FleetMember): boolean {
  return a.bootId === b.bootId && a.address === b.address;
}
