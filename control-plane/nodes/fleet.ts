/**
 * The nodes as this replica sees them: members (a table that all replicas share), their capacity
 * streams, and the room on each after our own attempts. It chooses no node and never retries.
 *
 * A node is routable while its membership and its stream live and it reports SERVING. If the
 * database does not answer, the last known members count, and the streams alone decide. This holds
 * for one lease after the database is back, until every node had time for a heartbeat.
 */

import { pollingLoop, type RoundLoop } from '@matting/database/round-loop.ts';
import type { ChannelSecurity } from '@matting/program/tls/tls-files.ts';
import {
  type AttemptNeeds,
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

const MEMBERS_POLL_MS = 1000;

interface FleetOptions {
  readonly listMembers: () => Promise<readonly FleetMember[]>;
  /** Publishes the models for other processes. */
  readonly noteModels?: (
    { nodeId, bootId }: FleetMember,
    models: readonly NamedSum[],
    runsOn: string | undefined,
  ) => Promise<unknown>;
  readonly nodeToken: () => string;
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
  /** Until then an expired lease only shows that no heartbeat could be recorded. */
  #leasesDoubtedUntilMs = 0;
  #routable = false;
  #routingChanged = false;
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

  start(): Promise<void> {
    this.#loop.start();
    return this.#loop.roundUnderWay();
  }

  /** Reads the members at once, such as after a node registered here. Never rejects. */
  refresh(): Promise<void> {
    if (this.#refreshing !== undefined) {
      // The running read may have begun before the change.
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

  /** undefined: this boot of the node is no longer routable. */
  offer(node: Pick<NodeSnapshot, 'nodeId' | 'bootId'>, needs: AttemptNeeds): Offer | undefined {
    const link = this.#links.get(node.nodeId);
    if (link === undefined || link.member.bootId !== node.bootId || !link.routable) {
      return undefined;
    }
    if (needs.model !== undefined && link.model(needs.model) === undefined) return undefined;
    return link.offer(needs);
  }

  /** Leaves out nodes that this replica has not called yet. */
  seen(): SightedNode[] {
    return [...this.#links.values()].flatMap(link => link.seen ?? []);
  }

  get hasBeenRoutable(): boolean {
    return this.#hasBeenRoutable;
  }

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

  /** Stores each node's models. Never rejects: the next poll repeats a failed write. */
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
      onRoutingChanged: () => {
        this.#routingChanged = true;
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
    this.#routingChanged = true;
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

  /**
   * Finds the checksum that most nodes report for each model. A job that names the model goes only
   * to nodes with this checksum.
   */
  #countSums(): void {
    if (!this.#routingChanged) return;
    this.#routingChanged = false;
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
