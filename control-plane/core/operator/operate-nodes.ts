import { type SeenMember, seenMembers } from '@matting/nodes/node-state.ts';
import type { NodeMember, NodeStore } from '@matting/nodes/node-store.ts';
import { standingSums } from '@matting/nodes/selectable.ts';
import type { SightingStore, Sightings } from '@matting/nodes/sighting-store.ts';
import { isoTime } from '@matting/program/iso-time.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';

interface Stores {
  readonly nodes: NodeStore;
  readonly sightings: Pick<SightingStore, 'list'>;
}

export type OperatorNode = ReturnType<typeof viewNode>;

export class OperateNodes {
  readonly #nodes: NodeStore;
  readonly #sightings: Pick<SightingStore, 'list'>;
  readonly #onChanged: (() => void) | undefined;

  constructor({ nodes, sightings }: Stores, onChanged?: () => void) {
    this.#nodes = nodes;
    this.#sightings = sightings;
    this.#onChanged = onChanged;
  }

  async list() {
    return viewNodes(await this.#nodes.listAll(), await this.#sightings.list());
  }

  async show(nodeId: string): Promise<OperatorNode> {
    const node = (await this.list()).find(({ node_id }) => node_id === nodeId);
    if (node === undefined) throw notFound(nodeId);
    return node;
  }

  /** Dispatch stops within a second; the node learns of it with its next heartbeat. */
  async setDraining(nodeId: string, draining: boolean) {
    if (!(await this.#nodes.setDraining(nodeId, draining))) throw notFound(nodeId);
    this.#onChanged?.();
    return { node_id: nodeId, draining };
  }

  /** Accepts a silent node: its endpoints may answer although its heartbeats fail. */
  async requireHttpAddress(nodeId: string): Promise<string> {
    const member = await this.#require(nodeId);
    if (member.gone) throw new ContractError('NOT_FOUND', `Node "${nodeId}" has left the fleet.`);
    if (member.httpAddress === '') {
      throw new ContractError('NOT_FOUND', `Node "${nodeId}" has no HTTP endpoints.`);
    }
    return member.httpAddress;
  }

  async #require(nodeId: string): Promise<NodeMember> {
    const member = await this.#nodes.find(nodeId);
    if (member === undefined) throw notFound(nodeId);
    return member;
  }
}

function notFound(nodeId: string): ContractError {
  return new ContractError('NOT_FOUND', `There is no node "${nodeId}".`);
}

export function viewNodes(members: readonly NodeMember[], sightings: Pick<Sightings, 'all'>) {
  const seen = seenMembers(members, sightings);
  const leftOut = namesLeftOut(seen);
  return seen.map(one => viewNode(one, leftOut));
}

/**
 * The models of each node whose checksum differs from the fleet's. The node gets no job for them.
 */
function namesLeftOut(nodes: readonly SeenMember[]): ReadonlyMap<string, string[]> {
  const standing = standingSums(
    nodes.flatMap(({ state, member: { models, registeredAtMs } }) =>
      state === 'live' && models ? [{ models, registeredAtMs }] : [],
    ),
  );
  return new Map(
    nodes.map(({ member: { nodeId, models } }) => {
      const others = (models ?? []).filter(({ name, sha256 }) => {
        return (standing.get(name) ?? sha256) !== sha256;
      });
      return [nodeId, others.map(({ name }) => name)];
    }),
  );
}

function viewNode(
  { member, state, cause, sightings }: SeenMember,
  leftOut: ReadonlyMap<string, string[]>,
) {
  return {
    node_id: member.nodeId,
    state,
    cause,
    seen_by: sightings.map(({ replica, state: seen, cause: why, sinceMs }) => {
      return { control_plane: replica, state: seen, cause: why, since: isoTime(sinceMs) };
    }),
    draining: member.draining,
    address: member.address,
    http_address: member.httpAddress === '' ? null : member.httpAddress,
    version: member.version,
    runs_on: member.runsOn,
    models: member.models,
    models_left_out: leftOut.get(member.nodeId) ?? [],
    registered_at: isoTime(member.registeredAtMs),
    heartbeat_at: isoTime(member.heartbeatAtMs),
  };
}
