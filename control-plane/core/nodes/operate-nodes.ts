/** The operator's use cases on nodes: list them, drain and undrain one, find its HTTP endpoints. */
import { ContractError } from '@matting/proto/contract/errors.ts';
import { isoTime } from '../jobs/job.ts';
import type { NodeMember, NodeStore } from './node-store.ts';

export type OperatorNode = ReturnType<typeof viewNode>;

export class OperateNodes {
  readonly #nodes: NodeStore;
  readonly #onChanged: (() => void) | undefined;

  constructor({ nodes }: { readonly nodes: NodeStore }, onChanged?: () => void) {
    this.#nodes = nodes;
    this.#onChanged = onChanged;
  }

  async list(): Promise<OperatorNode[]> {
    return (await this.#nodes.listAll()).map(viewNode);
  }

  async show(nodeId: string): Promise<OperatorNode> {
    return viewNode(await this.#require(nodeId));
  }

  /** Dispatch sends it nothing new within a second; the node learns it with its next heartbeat. */
  async setDraining(nodeId: string, draining: boolean) {
    if (!(await this.#nodes.setDraining(nodeId, draining))) throw notFound(nodeId);
    this.#onChanged?.();
    return { node_id: nodeId, draining };
  }

  /** Also of a silent node: its endpoints may answer though its heartbeats fail. */
  async requireHttpAddress(nodeId: string): Promise<string> {
    const member = await this.#require(nodeId);
    if (member.gone) throw new ContractError('NOT_FOUND', `node "${nodeId}" has left the fleet`);
    if (member.httpAddress === '') {
      throw new ContractError('NOT_FOUND', `node "${nodeId}" has no HTTP endpoints`);
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
  return new ContractError('NOT_FOUND', `there is no node "${nodeId}"`);
}

function viewNode(member: NodeMember) {
  return {
    node_id: member.nodeId,
    state: nodeState(member),
    draining: member.draining,
    address: member.address,
    http_address: member.httpAddress === '' ? null : member.httpAddress,
    version: member.version,
    registered_at: isoTime(member.registeredAtMs),
    heartbeat_at: isoTime(member.heartbeatAtMs),
  };
}

/** live, draining: its lease is valid. gone: it deregistered. silent: its lease ran out. */
function nodeState(member: NodeMember): 'live' | 'draining' | 'gone' | 'silent' {
  if (member.gone) return 'gone';
  if (!member.live) return 'silent';
  return member.draining ? 'draining' : 'live';
}
